torchrun --nproc_per_node 8 train.py \
  --tensor-model-parallel-size 2 --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \
  --seq-length 4096 --micro-batch-size 1 --global-batch-size 32 --bf16
