#!/bin/bash
torchrun --nproc-per-node=8 train.py --save-folder=out --train_module.rank_microbatch_size=8192
