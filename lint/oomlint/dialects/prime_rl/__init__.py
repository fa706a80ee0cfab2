"""prime-rl: TOML of RL with trainer and inference on cards of their own, and of SFT."""
