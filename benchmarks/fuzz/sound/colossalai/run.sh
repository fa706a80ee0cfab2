colossalai run --nproc_per_node 4 --hostfile hosts train_dpo.py --pretrain Qwen/Qwen2.5-7B --dataset data/a data/b \
  --plugin 3d --tp 2 --zero_stage 1 --zero_cpu_offload --batch_size 4 --microbatch_size 2 --accumulation_steps 2 \
  --max_length 4096 --mixed_precision bf16 --use_flash_attn --grad_checkpoint --lora_config lora.json --ref_tp 2
