#!/bin/bash
# Llama 3 with FSDP on two cards.
CUDA_VISIBLE_DEVICES=0,1 && torchrun --nnodes 1 --nproc_per_node 2 recipes/quickstart/finetuning/finetuning.py \
    --enable_fsdp --use_peft --peft_method lora \
    --model_name meta-llama/Meta-Llama-3-8B \
    --batch_size_training 1 \
    --output_dir ./output
