"""NeMo-RL: fine-tuning and reinforcement learning on DTensor or Megatron, with vLLM."""
