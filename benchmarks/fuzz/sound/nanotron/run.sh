torchrun --nproc_per_node=8 run_train.py --config-file config.yaml
