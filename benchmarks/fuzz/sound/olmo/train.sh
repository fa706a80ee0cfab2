#!/bin/bash
torchrun --nproc_per_node=8 scripts/train.py config.yaml \
  --activation_checkpointing=one_in_two --save_overwrite
