"""Python scripts over transformers, peft and TRL, and the launcher in front of them."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.accuracy.facts import Row
from benchmarks.accuracy.languages.trainer import (
    arguments_of_training,
    launcher_of,
    stage_of,
    zero_config,
)
from benchmarks.accuracy.languages.words import (
    arguments_of,
    command,
    gpus_of,
    is_checkpointed,
    lora_of,
    strategy_of,
    yaml_text,
)

# -- a Trainer -------------------------------------------------------------------------------------

_HEADS = {"sequence": "ForSequenceClassification", "seq2seq": "ForSeq2SeqLM"}
"""Classes by the first word of a row's task."""


def trainer(row: Row) -> dict[str, str]:
    """A script as a document prints it: a model, TrainingArguments and a Trainer, TRL's with adapters."""
    head = _HEADS.get(str(row.get("task")).split()[0], "ForCausalLM")
    names = f"AutoModel{head}, BitsAndBytesConfig, Trainer, TrainingArguments"
    adapts = str(row["method"]) != "full"
    made = _call("TrainingArguments", _training_arguments(row))
    extra = "peft_config=LoraConfig(" + _keywords(_lora(row)) + "), " if adapts else ""
    shaped = f"max_seq_length={row['seq_len']}, packing={bool(row.get('packing'))}, "
    name = "SFTTrainer" if adapts else "Trainer"
    text = f"""\
import torch
from peft import LoraConfig
from transformers import {names}
from trl import SFTTrainer

model = AutoModel{head}.from_pretrained({_keywords_of_loading(row)})
args = {made}
trainer = {name}(model=model, args=args, train_dataset=data, {extra}{shaped if adapts else ""})
trainer.train()
"""
    return {"run.sh": command([*launcher_of(row), "train.py"], {}), "train.py": text}


# What `optim` is called for the optimizers of tables.
_OPTIMIZERS = {"adafactor": "adafactor", "bnb Adam8bit": "adamw_bnb_8bit"}


def _training_arguments(row: Row) -> dict[str, Any]:
    said = arguments_of_training(row)
    values = {k: v == "True" if v in ("True", "False") else v for k, v in said.items()}
    # Checkpointing of quantized models is asked for by what prepares them too.
    values["optim"] = _OPTIMIZERS.get(str(row.get("optimizer")), row.get("optim"))
    return values


def _keywords_of_loading(row: Row) -> str:
    dtype = str(row.get("dtype"))
    half = "torch.bfloat16" if "bf16" in dtype else "torch.float16"
    quant = ""
    if "int8" in dtype:
        quant = "BitsAndBytesConfig(load_in_8bit=True)"
    elif "nf4" in dtype or "fp4" in dtype:
        kind = "nf4" if "nf4" in dtype else "fp4"
        quant = (
            f'BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="{kind}", '
            f"bnb_4bit_compute_dtype={half})"
        )
    words = [repr(str(row["model"]))]
    if quant:
        words += [f"quantization_config={quant}", 'device_map={"": 0}']
    return ", ".join(words)


def _lora(row: Row) -> dict[str, Any]:
    lora = lora_of(row)
    return {
        "r": lora.get("r") or 8,
        "target_modules": lora.get("targets"),
        "task_type": "CAUSAL_LM",
    }


def _call(name: str, values: dict[str, Any]) -> str:
    return f"{name}({_keywords(values)})"


def _keywords(values: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in values.items() if value is not None)


# -- a loop over peft's models ---------------------------------------------------------------------


def peft_loop(row: Row) -> dict[str, str]:
    """PEFT's method_comparison/MetaMathQA/run.py as its settings make it: a loop that keeps `outputs`, and empties the
    cache after every tenth batch."""
    settings = arguments_of(row)["train_config"]
    adapts = str(row["method"]) != "full"
    wrap = f"model = get_peft_model(model, LoraConfig({_keywords(_peft(row))}))\n"
    text = f"""\
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(
    {settings["model_id"]!r}, torch_dtype=torch.{settings["dtype"]}, attn_implementation="sdpa"
).cuda()
{wrap if adapts else ""}optimizer = torch.optim.AdamW(model.parameters(), **{settings["optimizer_kwargs"]!r})
loader = torch.utils.data.DataLoader(data, batch_size={settings["batch_size"]})
for step, batch in enumerate(loader):
    batch = tokenizer.pad(batch, padding="max_length", max_length={settings["max_seq_length"]})
    outputs = model(**batch)
    loss = outputs.loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), {settings["grad_norm_clip"]})
    optimizer.step()
    optimizer.zero_grad()
"""
    return {"train.py": text}


def _peft(row: Row) -> dict[str, Any]:
    """Methods without a rank are as small as the smallest."""
    lora = lora_of(row)
    return {
        "r": lora.get("r") or 8,
        "lora_alpha": lora.get("alpha"),
        "target_modules": lora.get("targets"),
        "use_dora": lora.get("use_dora") or None,
        "task_type": "CAUSAL_LM",
    }


# -- PEFT's example over TRL ------------------------------------------------------------------------


def peft_example(row: Row) -> dict[str, str]:
    """examples/sft/train.py under accelerate, as run_peft_*.sh start it."""
    quant, adapts = "nf4" in str(row.get("quant")), str(row["method"]) != "full"
    pure = "pure" in str(row.get("dtype"))
    lora = lora_of(row)
    options = {
        "model_name_or_path": row["model"],
        **arguments_of_training(row),
        "max_seq_length": row["seq_len"],
        "packing": str(bool(row.get("packing"))),
        "use_reentrant": str(quant),
        "use_flash_attn": "True",
        "use_peft_lora": str(adapts),
        "lora_r": lora.get("r"),
        "lora_alpha": lora.get("alpha"),
        "lora_target_modules": lora.get("targets"),
        "use_4bit_quantization": str(quant),
        "use_nested_quant": "True" if quant else None,
        "bnb_4bit_compute_dtype": "bfloat16" if quant else None,
        "bnb_4bit_quant_storage_dtype": "bfloat16" if quant else None,
    }
    words = ["accelerate", "launch", "--config_file", "accelerate.json", "train.py"]
    config = accelerate_config(row, mixed="no" if pure else "bf16")
    return {"run.sh": command(words, options), "accelerate.json": json.dumps(config) + "\n"}


def accelerate_config(row: Row, mixed: str) -> dict[str, Any]:
    """What an accelerate configuration says of a row's sharding."""
    gpus = gpus_of(row)
    nodes = -(-gpus // 8)
    config: dict[str, Any] = {
        "mixed_precision": mixed,
        "num_processes": gpus,
        "num_machines": nodes,
    }
    if stage_of(row):
        offload = "cpu" if "offload" in strategy_of(row) else "none"
        config |= {
            "distributed_type": "DEEPSPEED",
            "deepspeed_config": {
                "zero_stage": stage_of(row),
                "zero3_init_flag": stage_of(row) == 3,
                "offload_optimizer_device": offload,
                "offload_param_device": offload if stage_of(row) == 3 else "none",
            },
        }
    elif "fsdp" in strategy_of(row):
        config |= {
            "distributed_type": "FSDP",
            "fsdp_config": {
                "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                "fsdp_backward_prefetch": "BACKWARD_PRE",
                "fsdp_cpu_ram_efficient_loading": True,
                "fsdp_offload_params": "offload" in strategy_of(row),
                "fsdp_sharding_strategy": "FULL_SHARD",
                "fsdp_state_dict_type": "SHARDED_STATE_DICT",
                "fsdp_sync_module_states": True,
                "fsdp_use_orig_params": False,
            },
        }
    else:
        config["distributed_type"] = "MULTI_GPU" if gpus > 1 else "NO"
    return config


def accelerate_loop(row: Row) -> dict[str, str]:
    """A loop that accelerate prepares, as the scripts of its documents are."""
    head = _HEADS.get(str(row.get("task")).split()[0], "ForCausalLM")
    steps = row.get("grad_accum") or 1
    text = f"""\
import torch
from accelerate import Accelerator
from transformers import AutoModel{head}

accelerator = Accelerator(gradient_accumulation_steps={steps})
model = AutoModel{head}.from_pretrained({row["model"]!r})
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
loader = torch.utils.data.DataLoader(data, batch_size={row["micro_batch"]})
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    outputs = model(**batch)
    loss = outputs.loss
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
"""
    words = ["accelerate", "launch", "--config_file", "accelerate.json", "train.py"]
    config = accelerate_config(row, mixed="fp16")
    return {
        "run.sh": command(words, {}),
        "train.py": text,
        "accelerate.json": json.dumps(config) + "\n",
    }


# -- recipes of the alignment handbook ----------------------------------------------------------------


def handbook(row: Row) -> dict[str, str]:
    """scripts/run_sft.py and run_dpo.py with a recipe."""
    task = "dpo" if "/dpo/" in str(row.get("config_path")) else "sft"
    quant = str(row["method"]) == "qlora"
    recipe: dict[str, Any] = {
        "model_name_or_path": row["model"],
        "torch_dtype": "bfloat16" if quant else None,
        "attn_implementation": row.get("attention"),
        "bf16": True,
        "per_device_train_batch_size": row["micro_batch"],
        "gradient_accumulation_steps": row.get("grad_accum"),
        "gradient_checkpointing": is_checkpointed(row),
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "max_length" if task == "dpo" else "max_seq_length": row["seq_len"],
        "load_in_4bit": quant or None,
        "use_peft": quant or None,
        "lora_r": lora_of(row).get("r"),
        "lora_target_modules": lora_of(row).get("targets"),
        "optim": row.get("optimizer"),
        "dataset_mixer": {"HuggingFaceH4/ultrachat_200k": 1.0},
        "output_dir": "out",
    }
    said = {key: value for key, value in recipe.items() if value is not None}
    config = accelerate_config(row, mixed="bf16")
    script = f"scripts/run_{task}.py"
    line = f"accelerate launch --config_file accelerate.json {script} recipe.yaml\n"
    return {
        "run.sh": line,
        "recipe.yaml": yaml_text(said),
        "accelerate.json": json.dumps(config) + "\n",
    }


# -- scripts with files of their own ------------------------------------------------------------------


def chatglm3(row: Row) -> dict[str, str]:
    """ChatGLM3's finetune_hf.py: a folder of data, a model and a YAML file."""
    training: dict[str, Any] = {
        "output_dir": "out",
        "max_steps": 3000,
        "per_device_train_batch_size": row["micro_batch"],
        "per_device_eval_batch_size": 16,
        "gradient_accumulation_steps": row.get("grad_accum"),
    }
    files: dict[str, str] = {}
    if stage_of(row):
        training["deepspeed"] = "ds_zero.json"
        files["ds_zero.json"] = json.dumps(zero_config(row), indent=1) + "\n"
    config: dict[str, Any] = {
        "data_config": {"train_file": "train.json"},
        "max_input_length": 256,
        "max_output_length": int(row["seq_len"]) - 256,
        "training_args": training,
    }
    if str(row["method"]) == "lora":
        config["peft_config"] = {
            "peft_type": "LORA",
            "r": lora_of(row).get("r"),
            "lora_alpha": lora_of(row).get("alpha"),
            "target_modules": ["query_key_value"],
        }
    elif str(row["method"]) == "prefix-tuning":
        config["peft_config"] = {"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 128}
    line = command([*launcher_of(row), "finetune_hf.py", "data", str(row["model"]), "run.yaml"], {})
    return {"run.sh": line, "run.yaml": yaml_text(config), **files}


def minicpm(row: Row) -> dict[str, str]:
    """MiniCPM's finetune.py, as finetune/lora_finetune.sh starts it."""
    options = {
        "model_name_or_path": row["model"],
        **arguments_of_training(row),
        "model_max_length": row["seq_len"],
        "use_lora": "true" if str(row["method"]) == "lora" else None,
        "deepspeed": "ds_config.json",
    }
    line = command(["deepspeed", "--num_gpus", str(gpus_of(row)), "finetune.py"], options)
    return {"run.sh": line, "ds_config.json": json.dumps(zero_config(row), indent=1) + "\n"}


def deepspeed_loop(row: Row) -> dict[str, str]:
    """A loop over DeepSpeed's engine, with the configuration as a file; the model is built in shards (DeepSpeed edaa7221
    examples/sdma_allgather/train_qwen3_zero3.py build_model)."""
    config = {
        "train_micro_batch_size_per_gpu": row["micro_batch"],
        "gradient_accumulation_steps": row.get("grad_accum") or 1,
        "bf16": {"enabled": "bf16" in str(row.get("dtype"))},
        "fp16": {"enabled": "fp16" in str(row.get("dtype"))},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
        "zero_optimization": {"stage": stage_of(row)},
    }
    text = f"""\
import deepspeed
import torch
from transformers import AutoModelForCausalLM

with deepspeed.zero.Init(config_dict_or_path="ds_config.json"):
    model = AutoModelForCausalLM.from_pretrained({row["model"]!r}, torch_dtype=torch.bfloat16)
engine, optimizer, loader, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config="ds_config.json"
)
for batch in loader:
    ids = batch["input_ids"][:, :{row["seq_len"]}]
    loss = engine(input_ids=ids, labels=ids).loss
    engine.backward(loss)
    engine.step()
"""
    line = f"deepspeed --num_gpus {gpus_of(row)} train.py\n"
    config_text = json.dumps(config, indent=1) + "\n"
    return {"run.sh": line, "train.py": text, "ds_config.json": config_text}


def llamafactory(row: Row) -> dict[str, str]:
    """LLaMA-Factory over Megatron: the YAML and the switch in front of its command."""
    parallel = row.get("parallel") or {}
    config = {
        "model_name_or_path": row["model"],
        "stage": "sft",
        "do_train": True,
        "finetuning_type": row["method"],
        "dataset": "alpaca_en_demo",
        "template": "qwen3",
        "cutoff_len": row["seq_len"],
        "output_dir": "out",
        "per_device_train_batch_size": row["micro_batch"],
        "gradient_accumulation_steps": row.get("grad_accum"),
        "bf16": True,
        "tensor_model_parallel_size": parallel.get("tp"),
        "pipeline_model_parallel_size": parallel.get("pp"),
        "expert_model_parallel_size": parallel.get("ep"),
        "recompute_granularity": row.get("gradient_checkpointing"),
        "use_distributed_optimizer": True,
    }
    gpus = ",".join(map(str, range(gpus_of(row))))
    line = f"CUDA_VISIBLE_DEVICES={gpus} USE_MCA=1 llamafactory-cli train run.yaml\n"
    return {"run.sh": line, "run.yaml": yaml_text(config)}
