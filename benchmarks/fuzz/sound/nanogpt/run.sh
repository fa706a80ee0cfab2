torchrun --standalone --nproc_per_node=8 train.py large.py --batch_size=4
