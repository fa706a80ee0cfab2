python3 -m verl.trainer.main config=config.yaml trainer.n_gpus_per_node=8
