"""OLMo: the trainer of allenai/OLMo, one YAML for a run with the model's dimensions in it."""
