"""The frameworks that judge: whose loader reads which of our tables, and what is not compared.

An ``unsaid`` field is compared only where a file says it, for the reason beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.oracles.commands import command_of
from benchmarks.oracles.framework import SCRIPTS, Framework, Part

from oomlint.dialects.accelerate.keys import ACCELERATE
from oomlint.dialects.axolotl.keys import AXOLOTL, FSDP_CONFIG
from oomlint.dialects.colossalai.keys import TABLES as COLOSSALAI
from oomlint.dialects.deepspeed.keys import DEEPSPEED
from oomlint.dialects.lingua.keys import LINGUA
from oomlint.dialects.litgpt.keys import LITGPT, own as litgpt
from oomlint.dialects.llama_recipes.keys import LLAMA_RECIPES
from oomlint.dialects.llamafactory.keys import LLAMA_FACTORY
from oomlint.dialects.llm_foundry.keys import LLM_FOUNDRY
from oomlint.dialects.machine.launcher_keys import ACCELERATE_LAUNCHER, DEEPSPEED_LAUNCHER, TORCHRUN
from oomlint.dialects.ms_swift.keys import SWIFT
from oomlint.dialects.nanotron.keys import NANOTRON
from oomlint.dialects.openrlhf.keys import TABLES as OPENRLHF
from oomlint.dialects.profiles.build import script_table
from oomlint.dialects.profiles.known import script_named
from oomlint.dialects.torchtitan.keys import TORCHTITAN
from oomlint.dialects.torchtune.keys import TORCHTUNE
from oomlint.dialects.trainer.tables import ADAPTER, ARGUMENTS, QUANTIZATION
from oomlint.dialects.trl.keys import TRL
from oomlint.dialects.verl.keys import VERL_PPO, VERL_SFT_ENGINE
from oomlint.runs.run import Run

_ONE = "left out, it is one"
_EVAL = {"hf.do_eval": "left out, the strategy decides (training_args.py __post_init__)"}
_DDP = {
    "parallel.ddp.bucket_mb": "left out, torch takes 25",
    "parallel.ddp.find_unused": "left out, the Trainer goes by checkpointing (trainer.py)",
}


# -- Accelerate, DeepSpeed and the launchers ---------------------------------------------

_ACCELERATE = Framework(
    "Accelerate",
    "accelerate_config",
    ("accelerate",),
    (
        Part(
            ACCELERATE,
            unsaid={
                "launch.machines": _ONE,
                "parallel.fsdp.state_dict": "left out, the plug-in goes by the version (dataclasses.py:2050)",
                "load.zero3_init": "left out, the plug-in goes by the stage (utils/dataclasses.py)",
            },
        ),
    ),
    folders=("accelerate", "trl", "LLaMA-Factory", "Liger-Kernel"),
)

_BATCH = "left out, it follows from the others and the ranks"
_BUFFERS = "left out, the memory model counts DeepSpeed's default (memory/host.py)"


def _batches(run: Run) -> Mapping[str, Any]:
    plan = run.plan
    return {"ranks": plan.parallel.world, "micro": plan.batch.micro, "steps": plan.batch.grad_accum}


_DEEPSPEED = Framework(
    "DeepSpeed",
    "deepspeed_config",
    ("deepspeed",),
    (
        Part(
            DEEPSPEED,
            unsaid={
                "ds.micro": _BATCH,
                "ds.grad_accum": _BATCH,
                "ds.train_batch": _BATCH,
                "offload.optimizer_buffers": _BUFFERS,
                "offload.param_buffers": _BUFFERS,
                "offload.param_buffer_elems": _BUFFERS,
                "offload.params_in_cpu_elems": _BUFFERS,
            },
        ),
    ),
    folders=("DeepSpeed", "accelerate"),
    suffixes=(".json",),
    options=_batches,
)

_PARALLEL = dict.fromkeys(
    ("parallel.tp", "parallel.pp", "parallel.dp_replicate", "parallel.ulysses", "parallel.cp"), _ONE
)
_LAUNCHERS = Framework(
    "torchrun, deepspeed, accelerate launch",
    "launcher_config",
    ("hf-trainer", "trl", "llama-recipes", "llama-factory", "ms-swift", "openrlhf"),
    (
        Part(TORCHRUN),
        Part(DEEPSPEED_LAUNCHER, only_said=True),
        Part(ACCELERATE_LAUNCHER, unsaid=_PARALLEL),
    ),
    suffixes=SCRIPTS,
    options=command_of,
)


# -- transformers, TRL and peft ------------------------------------------------------------

_QUANTIZATION = {"quant.compute_dtype": "left out, bitsandbytes goes by what it is given"}
_GATHERS = "where an engine of its own generates it is of no effect"
_ADAPTER = dict.fromkeys(
    ("trainable.r", "trainable.alpha", "trainable.dropout", "trainable.targets"),
    "without an adapter it is of no effect",
)


def _objective(run: Run) -> Mapping[str, Any]:
    ranks = run.plan.parallel.world
    return {"objective": run.plan.objective.kind, "ranks": ranks, **command_of(run)}


def _trainer(run: Run) -> Mapping[str, Any]:
    return {"ranks": run.plan.parallel.world, **command_of(run)}


_TRL = Framework(
    "TRL",
    "trainer_config",
    ("trl", "alignment-handbook"),
    (
        Part(
            TRL,
            unsaid={
                **_DDP,
                **_ADAPTER,
                **_EVAL,
                "model.attn_impl": "left out, transformers takes what the model has",
                "trl.beta": "left out, it is what the objective has",
                "objective.rollout.gathers": _GATHERS,
                "trl.steps_per_generation": "left out, it is gradient_accumulation_steps",
                "hf.fsdp.min_params": "left out, nothing is wrapped by size",
                "trl.loss_type": "left out, it is what the version has",
                "hf.load_dtype": "left out, it is what the version has",
                "save.dir": "left out, it is a folder of the script's",
            },
        ),
        Part(ADAPTER, "LoraConfig."),
        Part(QUANTIZATION, "BitsAndBytesConfig.", _QUANTIZATION),
    ),
    folders=("alignment-handbook", "trl"),
    suffixes=(".yaml", ".yml", ".py", *SCRIPTS),
    options=_objective,
    known={
        r"^alignment-handbook/\S+ (dtype|max_length) \(": "torch_dtype and max_seq_length are read as "
        "the TRL of their time did; the newest drops them without a word"
    },
)

_FSDP_WORDS = {
    r"fsdp \(hf.fsdp_words\)": "its words become keys of fsdp_config (training_args.py _process_fsdp_args)"
}
_TRAINER_SCRIPT = """\
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-14B")
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, task_type="CAUSAL_LM"))
arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=8,
    fp16=True,
    save_strategy="epoch",
)
Trainer(model=model, args=arguments, train_dataset=data).train()
"""
_TRAINER = Framework(
    "transformers and peft",
    "trainer_config",
    ("hf-trainer",),
    (
        Part(
            ARGUMENTS,
            unsaid={**_DDP, **_EVAL, "save.dir": "left out, it is a folder of the script's"},
        ),
        Part(ADAPTER, "LoraConfig."),
        Part(QUANTIZATION, "BitsAndBytesConfig.", _QUANTIZATION),
    ),
    suffixes=(".py", *SCRIPTS),
    options=_trainer,
    written={
        "train.sh": "torchrun --nproc_per_node=8 run_clm.py --model_name_or_path Qwen/Qwen2.5-7B"
        " --output_dir out --per_device_train_batch_size 16 --bf16 --optim adamw_torch\n",
        "train.py": _TRAINER_SCRIPT,
    },
    known=_FSDP_WORDS,
)


_FASTCHAT_HEAD = (
    "torchrun --nproc_per_node=4 fastchat/train/{script}.py --model_name_or_path"
    " meta-llama/Llama-2-7b-hf --data_path chat.json --output_dir out --bf16 True"
    " --per_device_train_batch_size 2 --gradient_accumulation_steps 8 {more}\n"
)
_FASTCHAT_UNSAID = {
    **_DDP,
    **_EVAL,
    "hf.fsdp.min_params": "left out, nothing is wrapped by size",
    "save.dir": "left out, it is a folder of the script's",
}
_FASTCHAT = Framework(
    "FastChat",
    "fastchat_config",
    ("hf-trainer",),
    (
        Part(ARGUMENTS, unsaid=_FASTCHAT_UNSAID),
        Part(script_table(script_named("FastChat's train_lora.py")), unsaid=_FASTCHAT_UNSAID),
    ),
    suffixes=SCRIPTS,
    options=_trainer,
    known=_FSDP_WORDS,
    written={
        f"{script}.sh": _FASTCHAT_HEAD.format(script=script, more=more)
        for script, more in {
            "train": "--lazy_preprocess True",
            "train_mem": "--model_max_length 2048 --gradient_checkpointing True --fsdp 'full_shard auto_wrap'",
            "train_with_template": "--model_max_length 4096",
            "train_lora": "--lora_r 16 --q_lora True --model_max_length 2048",
            "train_lora_t5": "--lora_alpha 32",
        }.items()
    },
)


# -- frameworks with configs of their own ----------------------------------------------------


def _axolotl_ranks(run: Run) -> Mapping[str, Any]:
    """As many as the files name, else eight where something is sharded over them."""
    sharded = run.plan.parallel.backend not in (None, "none")
    return {"ranks": run.plan.parallel.world or (8 if sharded else 1)}


_AXOLOTL_HEAD = """\
base_model: meta-llama/Llama-3.2-3B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
learning_rate: 2e-4
gradient_accumulation_steps: 2
"""
_AXOLOTL = Framework(
    "Axolotl",
    "axolotl_config",
    ("axolotl",),
    (
        Part(
            AXOLOTL,
            unsaid={
                "data.preprocess_workers": "by default as many as the machine at hand has cores",
                "data.workers": "by default as many as ranks",
                "data.pin_memory": "by default true with those workers",
                "save.merge": "a key of `axolotl merge-lora`, not of training",
                "axolotl.pad_to_max": "left out, it is what sample_packing is",
                "parallel.tp": _ONE,
                "parallel.cp": _ONE,
                "save.dir": "left out, it is ./model-out",
                "quant.quantises_moe_experts": "experts that are stored quantized stay so",
                **dict.fromkeys(
                    (
                        "axolotl.lora_mlp_kernel",
                        "axolotl.lora_qkv_kernel",
                        "axolotl.lora_o_kernel",
                        "axolotl.lora_embedding_kernel",
                    ),
                    "left out, the schema goes by what else the file says (validation.py)",
                ),
            },
        ),
        Part(FSDP_CONFIG, "fsdp_config."),
    ),
    folders=("axolotl",),
    options=_axolotl_ranks,
    given={"learning_rate": 1e-4, "gradient_accumulation_steps": 1, "micro_batch_size": 1},
    known={
        r"examples/qwen3/32b-qlora.yaml: (gradient_checkpointing|activation_off)": "the schema turns "
        "`gradient_checkpointing: offload` into two keys, as our reading does later",
        r"v4-flash-nvfp4-lora.yaml.* lora_mlp_kernel": "ScatterMoE takes it off, whatever the file says "
        "(integrations/kernels/args.py)",
        r"datasets \(axolotl\.datasets\)": "the schema adds to each data set what it leaves out",
    },
    written={
        name: _AXOLOTL_HEAD + settings
        for name, settings in {
            "batch.yaml": "micro_batch_size: 1\n",
            "scalars.yaml": "sample_packing: on\nmicro_batch_size: 4\nbf16: auto\nweight_decay: 1e-5\n",
            "lora.yaml": "micro_batch_size: 2\nbf16: true\noptimizer: adamw_torch\nlora_r: 8\nadapter: lora\nlora_target_linear: yes\n",
            "int8.yaml": "micro_batch_size: 2\nfp16: true\nload_in_8bit: true\nadapter: lora\nlora_r: 16\nsequence_len: 2_048\n",
            "attention.yaml": "micro_batch_size: 2\nattn_implementation: kernels-community/flash-attn3\n",
            "offload.yaml": "micro_batch_size: 2\ngradient_checkpointing: true\nactivation_offloading: legacy\ndataloader_num_workers: 4\n",
            "save.yaml": "micro_batch_size: 2\nsave_total_limit: 1\nsave_only_model: 'true'\ntensor_parallel_size: 2\n",
        }.items()
    },
)

_LLAMA_FACTORY = Framework(
    "LLaMA-Factory",
    "llamafactory_config",
    ("llama-factory",),
    (
        Part(
            LLAMA_FACTORY,
            unsaid={
                **_DDP,
                **_EVAL,
                "load.low_cpu_mem": "ZeRO-3 switches it off where a model is loaded",
                "model.revision": "left out, it is main",
                "lf.ray_workers": "left out, Ray does not start",
                "eval.max_new_tokens": "left out, it is cutoff_len, and nothing is generated",
                "hf.fsdp.min_params": "left out, nothing is wrapped by size",
                "trainable.alpha": "left out, it is twice the rank (hparams/finetuning_args.py)",
                "model.attn_impl": "auto is what the model takes",
            },
        ),
    ),
    folders=("LLaMA-Factory",),
    known={
        r"cutoff_len \(seq.max_len\): we read (\d+),|packing \(lf.packing\)": "neat_packing takes a "
        "token off for the sake of kernels, and sets packing too"
    },
    given={"dataset": "alpaca_en_demo", "output_dir": "saves", "do_train": True},
)


def _litgpt_command(run: Run) -> Mapping[str, Any]:
    """The sub-command of a line, or that a config of its hub is for, by name: ``qlora`` runs ``finetune_lora``."""
    line = command_of(run)
    if line:
        return {**line, "command": run.cells[litgpt.command]}
    words = {run.name.rpartition("/")[2].partition(".")[0], *run.name.split("/")}
    found = next((word for word in ("full", "adapter", "pretrain") if word in words), "lora")
    return {"command": found}


_LITGPT = Framework(
    "LitGPT",
    "litgpt_config",
    ("litgpt",),
    (
        Part(
            LITGPT,
            unsaid={
                "litgpt.precision": "left out, Fabric chooses by the card",
                "litgpt.optimizer": "left out, or a class with arguments of its own",
                "eval.max_new_tokens": "left out, nothing of memory hangs on it here",
                "save.dir": "left out, a folder of the command's name",
            },
        ),
    ),
    folders=("litgpt",),
    suffixes=(".yaml", ".yml", *SCRIPTS),
    options=_litgpt_command,
    known={
        r"checkpoint_dir|model_name \(litgpt": "the word that stands first on a line, which is no option",
        r"data.class_path \(litgpt.data\): we read '(\w+)', it reads 'litgpt.data": "it looks its classes up by their last name",
    },
    written={
        f"{command}.sh": f"litgpt {command} {model} --data {data} --devices {devices}"
        " --train.micro_batch_size 8 --train.max_seq_length 2048\n"
        for command, model, data, devices in (
            ("finetune_full", "meta-llama/Llama-3.2-3B", "Alpaca2k", 1),
            ("finetune_lora", "meta-llama/Llama-3.1-8B", "Alpaca2k", 1),
            ("finetune_adapter", "meta-llama/Llama-2-7b-hf", "Alpaca2k", 4),
            ("pretrain", "pythia-1b", "TinyStories", 1),
        )
    },
)

_TORCHTUNE = Framework(
    "torchtune",
    "torchtune_config",
    ("torchtune",),
    (Part(TORCHTUNE),),
    folders=("torchtune", "llama-cookbook"),
    # A release may lack the recipe or the model that a newer config names.
    unjudged=r"^(InstantiationError|NameError|InterpolationKeyError)",
)

_SWIFT_UNSAID = {
    **_ADAPTER,
    **_DDP,
    "seq.max_len": "left out, it is the model's, and no model is looked up",
    "model.attn_impl": "left out, transformers takes what the model has",
    "model.vision.max_pixels": "a variable of the environment says it too",
    "quant.double": "without quantization it is of no effect",
    "load.device_map": "left out, it follows from the ranks (model/utils.py get_default_device_map)",
    "objective.rollout.gathers": _GATHERS,
    "data.preprocess_workers": "left out, it is one",
    "data.prefetch": "left out, torch takes two",
    "eval.every": "left out, it is save_steps",
    **dict.fromkeys(
        (
            "objective.rollout.gpu_mem_util",
            "objective.rollout.tp",
            "objective.rollout.n",
            "objective.rollout.max_completion_tokens",
            "objective.rollout.generation_batch",
        ),
        "where nothing is generated it is of no effect",
    ),
    "swift.padding_free": "packing sets it, as our reading does later",
}
_SWIFT = Framework(
    "ms-swift",
    "swift_config",
    ("ms-swift",),
    (Part(SWIFT, unsaid=_SWIFT_UNSAID, only_said=True),),
    folders=("ms-swift",),
    suffixes=(".yaml", ".yml", *SCRIPTS),
    options=_trainer,
    unjudged=r"please install|remaining_argv: \['grpo'",
    known={
        r"lora_llm_full_vit/seq_cls.sh: freeze_vit|rlhf_type \(": "it follows from the kind of tuner "
        "or objective",
        "deepseek_ocr/train.sh: optim ": "the file pins a transformers of its own",
    },
    given={"dataset": "alpaca", "model": "Qwen/Qwen2.5-7B-Instruct"},
    written={
        "full.sh": "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B-Instruct --dataset alpaca"
        " --tuner_type full --per_device_train_batch_size 4 --max_length 8192 --torch_dtype bfloat16\n",
        "lora.sh": "swift sft --model Qwen/Qwen2.5-7B-Instruct --dataset alpaca --tuner_type lora"
        " --lora_rank 64 --target_modules all-linear --per_device_train_batch_size 16\n",
    },
)

_COOKBOOK_UNSAID = {
    "save.dir": "left out, it is a folder that nobody has",
    "parallel.fsdp.strategy": "without enable_fsdp it is of no effect",
    "parallel.fsdp.state_dict": "without enable_fsdp it is of no effect",
}
_COOKBOOK = Framework(
    "llama-cookbook",
    "llamacookbook_config",
    ("llama-recipes",),
    (Part(LLAMA_RECIPES, unsaid=_COOKBOOK_UNSAID, only_said=True),),
    suffixes=SCRIPTS,
    options=_trainer,
    written={
        "fsdp.sh": "torchrun --nnodes 1 --nproc_per_node 8 finetuning.py --enable_fsdp"
        " --model_name meta-llama/Llama-3.1-8B --batch_size_training 8 --context_length 8192"
        " --use_peft --peft_method lora\n",
        "alone.sh": "python finetuning.py --model_name meta-llama/Llama-3.2-3B --pure_bf16"
        " --batch_size_training 16 --batching_strategy padding\n",
    },
)

_OPENRLHF_UNSAID = {
    **_ADAPTER,
    "parallel.zero.overlap_comm": "left out, DeepSpeed goes by the stage (deepspeed_utils.py:40)",
    "data.max_samples": "left out, all of them",
    "save.dir": "left out, it is ./ckpt",
    "objective.loss": "left out, it is what the objective is",
}
_OPENRLHF = Framework(
    "OpenRLHF",
    "openrlhf_config",
    ("openrlhf",),
    tuple(
        Part(OPENRLHF[program, True], unsaid=_OPENRLHF_UNSAID, only_said=True)
        for program in ("sft", "ppo_ray")
    ),
    folders=("OpenRLHF",),
    unjudged=r"No module named 'bash'",
    known={r"remote_(url|rm_url): it has \[": "several addresses are parted after they are read"},
    suffixes=SCRIPTS,
    options=_trainer,
    written={
        "sft.sh": "deepspeed --module openrlhf.cli.train_sft --model.model_name_or_path"
        " meta-llama/Llama-3.1-8B --data.dataset Open-Orca/OpenOrca --data.max_len 8192"
        " --train.batch_size 256 --train.micro_batch_size 8 --ds.zero_stage 2\n",
    },
)


def _ranks(run: Run) -> Mapping[str, Any]:
    return {"ranks": run.plan.parallel.world}


def _registered(run: Run) -> Mapping[str, Any]:
    """The function of a registry that a run's name ends in."""
    return {"config": run.name.rpartition(":")[2]}


_TORCHTITAN_UNSAID = {
    "parallel.dp_shard": "left out, it is the ranks that are left",
    "parallel.pp_schedule": "left out, there is no pipeline",
    "save.dir": "left out, it is a folder of the trainer's",
}
_TORCHTITAN = Framework(
    "torchtitan",
    "torchtitan_config",
    ("torchtitan",),
    (Part(TORCHTITAN, unsaid=_TORCHTITAN_UNSAID, only_said=True),),
    folders=("torchtitan",),
    suffixes=("config_registry.py",),
    options=_registered,
    # What only a newer card or another package has.
    unjudged=r"only supported on",
)

_VERL_UNSAID = {
    **_ADAPTER,
    "save.dir": "left out, it is a folder of the trainer's",
    "parallel.cp": _ONE,
    "parallel.ep": _ONE,
    "parallel.ulysses": _ONE,
    "batch.micro": "left out, a batch is as many rows as its tokens allow",
    "checkpointing.mode": "Megatron takes no heed of it",
    "optimizer.name": "left out, Megatron's Adam is AdamW",
}
_VERL = Framework(
    "verl",
    "verl_config",
    ("verl",),
    (
        Part(VERL_PPO, unsaid=_VERL_UNSAID, only_said=True),
        Part(VERL_SFT_ENGINE, unsaid=_VERL_UNSAID, only_said=True),
    ),
    folders=("verl",),
    suffixes=(".yaml", ".yml", *SCRIPTS),
    options=_trainer,
    given={
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 1,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 1,
    },
    # An engine for rollouts that is not installed.
    unjudged=r"vllm version",
    known={"n_gpus_per_node": "the ranks of SFT are what torchrun says"},
    written={
        "ppo.sh": "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B"
        " actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"
        " actor_rollout_ref.rollout.name=vllm algorithm.adv_estimator=grpo"
        " actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=2"
        " actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2"
        " trainer.n_gpus_per_node=8\n",
        "sft.sh": "torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer model.path=Qwen/Qwen2.5-7B\n",
    },
)

_LLM_FOUNDRY_UNSAID = {
    **_ADAPTER,
    "save.save_only_model": "without save_folder it is of no effect",
}
_LLM_FOUNDRY = Framework(
    "LLM Foundry",
    "llmfoundry_config",
    ("llm-foundry",),
    (Part(LLM_FOUNDRY, unsaid=_LLM_FOUNDRY_UNSAID, only_said=True),),
    folders=("llm-foundry",),
    options=_ranks,
    given={
        "tokenizer": {"name": "gpt2"},
        "scheduler": {"name": "constant"},
        "optimizer": {"name": "decoupled_adamw"},
        "max_seq_len": 2048,
        "global_train_batch_size": 8,
    },
)

# -- frameworks that no registry has: checkouts in OOMLINT_ORACLE_CHECKOUTS ------------------

_NANOTRON = Framework(
    "nanotron",
    "nanotron_config",
    ("nanotron",),
    (Part(NANOTRON, only_said=True),),
    folders=("nanotron",),
    known={r"moe_config \(nanotron\.moe\)": "the dataclass adds what the file leaves out"},
)

_LINGUA = Framework(
    "Meta Lingua",
    "lingua_config",
    ("lingua",),
    (Part(LINGUA, only_said=True, unsaid={"eval": "left out, there is none"}),),
    written={
        "7b.yaml": "steps: 60000\ndistributed: {fsdp_type: full_shard, model_dtype: bf16, dp_shard: 8}\n"
        "model: {dim: 4096, n_layers: 32, n_heads: 32, n_kv_heads: 8, vocab_size: 128256, multiple_of: 1024}\n"
        "data: {seq_len: 8192, batch_size: 8, tokenizer: {name: tiktoken}}\n",
        "1b.yaml": "grad_acc_steps: 2\ndistributed: {fsdp_type: no_shard, compile: true}\n"
        "model: {dim: 2048, n_layers: 25, n_heads: 16}\ndata: {seq_len: 4096, batch_size: 32}\n"
        "checkpoint: {dump: {every: 2500, keep: 3}}\n",
    },
)


def _own_scripts(program: str, *options: str) -> dict[str, str]:
    """Lines that start a script of Colossal-AI's applications with each of some options."""
    lines = (f"colossalai run --nproc_per_node 4 {program} --dataset d {o}\n" for o in options)
    return {f"{program.removesuffix('.py')}-{number}.sh": line for number, line in enumerate(lines)}


_CHAT = "--pretrain Qwen/Qwen2.5-7B"
_COLOSSALAI = Framework(
    "Colossal-AI",
    "colossalai_config",
    ("colossalai",),
    tuple(
        Part(table, only_said=True, unsaid=dict.fromkeys(("colossal.eval_set",), "left out, none"))
        for table in COLOSSALAI.values()
    ),
    suffixes=SCRIPTS,
    options=command_of,
    written={
        name: text
        for program, options in (
            (
                "train_sft.py",
                (
                    f"{_CHAT} --plugin zero2 --batch_size 8 --max_len 4096",
                    f"{_CHAT} --plugin 3d --tp 2 --batch_size 8",
                ),
            ),
            (
                "train_dpo.py",
                (
                    f"{_CHAT} --plugin gemini --batch_size 16",
                    f"{_CHAT} --plugin 3d --pp 2 --zero_stage 1",
                ),
            ),
            ("train_rm.py", (f"{_CHAT} --batch_size 32",)),
            ("train_kto.py", (f"{_CHAT} --plugin zero2_cpu --batch_size 8",)),
            ("train_orpo.py", (f"{_CHAT} --plugin zero2 --grad_checkpoint",)),
            (
                "train.py",
                (
                    "--pretrained Qwen/Qwen2.5-7B --plugin 3d --tp 2 --batch_size 8",
                    "--pretrained Qwen/Qwen2.5-7B --lora_rank 16 --plugin zero2",
                ),
            ),
        )
        for name, text in _own_scripts(program, *options).items()
    },
)

_ALIGN_ANYTHING_HEAD = (
    "deepspeed --module align_anything.trainers.{trainer} --model_name_or_path Qwen/Qwen2.5-7B"
    " --train_datasets d --train_template t --train_split train --output_dir out {more}\n"
)
_ALIGN_ANYTHING = Framework(
    "align-anything",
    "alignanything_config",
    ("hf-trainer",),
    tuple(
        Part(
            script_table(script_named(f"align-anything's text_to_text.{trainer}")), unsaid=_ADAPTER
        )
        for trainer in ("sft", "rm")
    ),
    known={r"model_max_length \(seq\.max_len\)": "nothing cuts pairs: it is not their length"},
    suffixes=SCRIPTS,
    options=command_of,
    written={
        f"{number}.sh": _ALIGN_ANYTHING_HEAD.format(trainer=f"text_to_text.{trainer}", more=more)
        for number, (trainer, more) in enumerate(
            (
                ("sft", "--per_device_train_batch_size 16 --model_max_length 8192"),
                (
                    "sft",
                    "--use_lora True --r 64 --target_modules [q_proj,k_proj] --per_device_train_batch_size 32",
                ),
                ("rm", "--per_device_train_batch_size 32 --gradient_checkpointing False"),
                ("dpo", "--per_device_train_batch_size 8 --gradient_accumulation_steps 2"),
                ("simpo", "--bf16 False --fp16 True --per_device_train_batch_size 8"),
                ("orpo", "--save_total_limit 3 --per_device_train_batch_size 32"),
            )
        )
    },
)

FRAMEWORKS = (
    _TRAINER, _TRL, _FASTCHAT, _ACCELERATE, _DEEPSPEED, _LAUNCHERS, _AXOLOTL, _LLAMA_FACTORY, _TORCHTUNE,
    _LITGPT, _LLM_FOUNDRY, _SWIFT, _COOKBOOK, _OPENRLHF, _VERL, _TORCHTITAN, _NANOTRON,
    _LINGUA, _COLOSSALAI, _ALIGN_ANYTHING,
)  # fmt: skip

_ENVIRONMENT = "it writes a variable of the environment, for torch, CUDA or NCCL"
_CONTAINER = "it writes an option of Docker, Compose or Kubernetes"
_NOT_ASKED = "it came after the judges were last asked; PEFT says what it takes (`tests/oracles/test_stacked_experts.py`)"
NO_JUDGE: Mapping[str, str] = {
    "adapters-on-stacked-experts": _NOT_ASKED,
    "alloc-conf-invalid": _ENVIRONMENT,
    "bnb8bit-save-oom": "it takes a method out of a script's own Trainer",
    "container-memory-limit-too-small": _CONTAINER,
    "container-shm-too-small": _CONTAINER,
    "debug-env-in-production": _ENVIRONMENT,
    "ds-activation-checkpointing-block-ignored": "it takes a block away that the Trainer never asks for",
    "ends-before-training": "its example renames an option of ms-swift's command line, which no judge parses",
    "env-var-typo": _ENVIRONMENT,
    "expandable-segments-unset": _ENVIRONMENT,
    "shell-env-not-exported": "it changes what the shell hands on",
    "stacked-experts-refuse-adapter": _NOT_ASKED,
    "unused-suppression": "it takes a comment away",
    "vm-overcommit-strict": "it writes a setting of the kernel",
}
"""Rules whose fix no framework's loader sees, each with the reason."""
