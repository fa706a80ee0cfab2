"""ROLL: Hydra YAML, of which every role says on which GPUs it runs."""
