NPROC_PER_NODE=8 xtuner train config.py --deepspeed deepspeed_zero2
