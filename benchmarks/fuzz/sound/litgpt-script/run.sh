python lora.py --checkpoint_dir checkpoints/tiiuae/falcon-7b/ --data_dir d
