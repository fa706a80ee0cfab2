torchrun --nproc-per-node 8 -m apps.main.train config=7b.yaml data.batch_size=1
