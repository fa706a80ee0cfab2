import torch
from mmengine.dataset import DefaultSampler
from mmengine.optim import AmpOptimWrapper
from peft import LoraConfig
from torch.optim import AdamW
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from xtuner.dataset import process_hf_dataset
from xtuner.engine.runner import TrainLoop
from xtuner.model import SupervisedFinetune

pretrained_model_name_or_path = 'Qwen/Qwen1.5-7B-Chat'
use_varlen_attn = False
max_length = 2048
pack_to_max_length = True
sequence_parallel_size = 1
batch_size = 4  # per device
accumulative_counts = 16
accumulative_counts *= sequence_parallel_size
dataloader_num_workers = 2
optim_type = AdamW
save_steps = 500
save_total_limit = 2

model = dict(
    type=SupervisedFinetune,
    use_varlen_attn=use_varlen_attn,
    llm=dict(
        type=AutoModelForCausalLM.from_pretrained,
        pretrained_model_name_or_path=pretrained_model_name_or_path,
        torch_dtype=torch.float16))

train_dataset = dict(
    type=process_hf_dataset,
    max_length=max_length,
    pack_to_max_length=pack_to_max_length)
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=dataloader_num_workers,
    dataset=train_dataset,
    sampler=dict(type=DefaultSampler, shuffle=True))
optim_wrapper = dict(
    type=AmpOptimWrapper,
    optimizer=dict(type=optim_type, lr=2e-4),
    accumulative_counts=accumulative_counts,
    dtype='float16')
train_cfg = dict(type=TrainLoop, max_epochs=3)
default_hooks = dict(checkpoint=dict(interval=save_steps, max_keep_ckpts=save_total_limit))
