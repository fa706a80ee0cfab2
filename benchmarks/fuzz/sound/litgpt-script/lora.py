devices = 1
batch_size = 128
micro_batch_size = 4
gradient_accumulation_iters = batch_size // micro_batch_size
override_max_seq_length = None
lora_r = 16
lora_mlp = True
