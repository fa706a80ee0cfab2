NLAYERS="${MODEL_ARGS_NUM_LAYERS:-4}"
FIRST_K_DENSE_REPLACE=1

arr=()
for ((i=0; i<NLAYERS; i++)); do
  if (( i < FIRST_K_DENSE_REPLACE )); then
    arr+=(0)
  else
    arr+=(1)
  fi
done
printf -v MOE_LAYER_FREQ "[%s]" "$(IFS=', '; echo "${arr[*]}")"

MODEL_ARGS=(
   --swiglu
   --num-layers $NLAYERS
   --hidden-size 2048
   --ffn-hidden-size 6144
   --num-attention-heads 16
   --group-query-attention
   --num-query-groups 8
   --disable-bias-linear
   --normalization "RMSNorm"
   --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
   --vocab-size 151936
   --kv-channels 128
   # experts
   --num-experts 8
   --moe-ffn-hidden-size 768
   --moe-router-topk 2
   --moe-layer-freq "$MOE_LAYER_FREQ"
)
