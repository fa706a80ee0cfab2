accelerate launch --num_processes 8 train.py --batch-size 2 --qlora
