uv run torchrun --nproc-per-node 8 src/prime_rl/trainer/rl/train.py @ train.toml
