import argparse
import functools

import torch
from accelerate import Accelerator, DeepSpeedPlugin
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="meta-llama/Llama-2-7b-hf")
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--block-size", type=int, default=2048)
parser.add_argument("--qlora", action="store_true")
parser.add_argument("--fsdp", action="store_true")
args = parser.parse_args()


def load(name, quantize):
    config = BitsAndBytesConfig(load_in_4bit=True) if quantize else None
    return AutoModelForCausalLM.from_pretrained(name, quantization_config=config, torch_dtype=torch.bfloat16)


def batches(rows, size):
    return DataLoader(rows, batch_size=size, num_workers=2)


plugin = DeepSpeedPlugin(hf_ds_config={"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}})
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=8, deepspeed_plugin=plugin)
model = load(args.model, args.qlora)
model.gradient_checkpointing_enable()
if args.qlora:
    model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"]))
if args.fsdp:
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Layer})
    model = FSDP(model, auto_wrap_policy=policy, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
loader = batches(data, args.batch_size)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for step, batch in enumerate(loader):
    with accelerator.accumulate(model):
        outputs = model(**batch)
        accelerator.backward(outputs.loss)
        optimizer.step()
