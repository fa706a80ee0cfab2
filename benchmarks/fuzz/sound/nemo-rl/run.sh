uv run examples/run_grpo.py --config recipe.yaml cluster.num_nodes=2 policy.train_micro_batch_size=1
