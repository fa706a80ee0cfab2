"""GPT-NeoX: YAML of Megatron's and DeepSpeed's keys beside each other."""
