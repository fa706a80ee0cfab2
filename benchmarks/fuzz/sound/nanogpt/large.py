batch_size = 16
n_layer = 24
n_embd = 1024
n_head = 16
max_iters = 100
dtype = 'float16'
