import os
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from model import GPTConfig, GPT

out_dir = 'out'
eval_interval = 2000
init_from = 'scratch'
gradient_accumulation_steps = 5 * 8
batch_size = 12
block_size = 1024
n_layer = 12
n_head = 12
n_embd = 768
dropout = 0.0
bias = False
grad_clip = 1.0
dtype = 'bfloat16' if torch.cuda.is_bf16_supported() else 'float16'
compile = True
exec(open('configurator.py').read())
if int(os.environ.get('RANK', -1)) != -1:
    gradient_accumulation_steps //= int(os.environ['WORLD_SIZE'])
model_args = dict(n_layer=n_layer, n_head=n_head, n_embd=n_embd, block_size=block_size, bias=bias, vocab_size=None)
model = GPT(GPTConfig(**model_args)) if init_from == 'scratch' else GPT.from_pretrained(init_from)
optimizer = model.configure_optimizers()
for step in range(10):
    logits, loss = model(X, Y)
    loss.backward()
    optimizer.step()
