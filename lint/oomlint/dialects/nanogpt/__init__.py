"""nanoGPT and scripts made of it: a training script whose own globals are its settings."""
