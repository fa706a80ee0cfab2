accelerate launch --num_processes 4 train.py --model_name_or_path Qwen/Qwen3-1.7B --output_dir out \
  --per_device_train_batch_size 8 --learning_rate 1e-6 --max_prompt_length 512 \
  --max_completion_length 1024 --num_generations 8
