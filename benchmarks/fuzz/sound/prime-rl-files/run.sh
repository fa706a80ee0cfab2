uv run rl --trainer @ train.toml --orchestrator @ orch.toml --inference @ infer.toml \
  --trainer-gpu-ids 0,1,2,3 --inference-gpu-ids 4,5
