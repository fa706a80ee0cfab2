"""slime: reinforcement learning on Megatron-LM and SGLang under Ray."""
