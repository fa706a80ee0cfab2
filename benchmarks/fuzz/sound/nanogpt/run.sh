torchrun --standalone --nproc_per_node=8 train.py config/large.py --batch_size=4
