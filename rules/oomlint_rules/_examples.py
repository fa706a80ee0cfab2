"""Texts that the examples of several rules are made of: the smallest configs that train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomlint.linting.rule import Example


def example(
    files: Mapping[str, str],
    fixed: Mapping[str, str] | None = None,
    *,
    on: str = "",
    why: str = "",
    values: Mapping[Any, Any] | None = None,
) -> Example:
    """A small project on a machine.

    Args:
        files, fixed, why, values: as :class:`Example` has them.
        on: the GPUs and, after a comma, a node's RAM: ``8xA100-40GB, 1TiB``; what is not said is not known.
    """
    hardware, _, host_memory = on.partition(", ")
    return Example(
        files,
        fixed,
        hardware=hardware or None,
        host_memory=host_memory or None,
        why=why,
        values=values or {},
    )


def mended(name: str, text: str, *, on: str = "", why: str = "", **gaps: Any) -> Example:
    """A project of one file of which the fix changes a few words.

    Args:
        text: what stands in the file, with named gaps.
        gaps: what stands in each, and instead of it after the fix: ``length=("4096", "2048")``; one value, where the
            fix leaves it.
    """
    pairs = {gap: said if isinstance(said, tuple) else (said, said) for gap, said in gaps.items()}
    before = text.format(**{gap: was for gap, (was, _) in pairs.items()})
    after = text.format(**{gap: becomes for gap, (_, becomes) in pairs.items()})
    return example({name: before}, {name: after}, on=on, why=why)


def each(
    files: Mapping[str, str], *, on: str = "", why: str = "", **gaps: Any
) -> tuple[Example, ...]:
    """The same of several files, each a project of its own: what ``mended`` makes of it where a gap has two values, and
    where none has, the file as it is."""
    if any(isinstance(said, tuple) for said in gaps.values()):
        return tuple(mended(name, text, on=on, why=why, **gaps) for name, text in files.items())
    return tuple(
        example({name: text.format(**gaps)}, on=on, why=why) for name, text in files.items()
    )


def text(block: str) -> str:
    """A file's text, as it stands in the code between lines of quotes, without the margin that it has there."""
    return block[len("\n") : -len("    ")].replace("\n    ", "\n").removeprefix("    ")


def line(block: str) -> str:
    """One line of a script, for which the code takes several."""
    return f"{' '.join(block.split())}\n"


ONE_SAMPLE = "micro_batch_size: 1\ngradient_checkpointing: true\nbf16: true\n"
"""What most runs with Axolotl say of a step."""

ONE_SAMPLE_OF_LF = "per_device_train_batch_size: 1\noutput_dir: out\nbf16: true\n"
"""What most runs with LLaMA-Factory say of a step; it checkpoints by itself."""

LIGER = (
    "plugins:\n  - axolotl.integrations.liger.LigerPlugin\nliger_fused_linear_cross_entropy: true\n"
)
"""Axolotl's fused loss, for a run whose logits are not the subject."""


def axolotl(
    model: str,
    *keys: str,
    lora: str = "",
    plugins: str = "",
    data: tuple[str, str] = ("tatsu-lab/alpaca", "alpaca"),
) -> str:
    """A config of Axolotl.

    Args:
        keys: what follows model, data and adapter, each ending in a line break.
        lora: which layers have adapters of rank 16; full fine-tuning where none.
        plugins: lines between model and data, such as ``LIGER``.
        data: path and type of the data set.
    """
    target = "linear: true" if lora == "all" else f"modules: {lora}"
    adapter = f"adapter: lora\nlora_r: 16\nlora_target_{target}\n" if lora else ""
    path, kind = data
    dataset = f"datasets:\n  - path: {path}\n    type: {kind}\n"
    return f"base_model: {model}\n{plugins}{dataset}{adapter}{''.join(keys)}"


def llama_factory(
    model: str,
    *keys: str,
    template: str = "llama3",
    lora: str = "",
    stage: str = "sft",
    dataset: str = "instructions",
) -> str:
    """A config of LLaMA-Factory.

    Args:
        keys: what follows model, method and data, each ending in a line break.
        lora: which layers have adapters of the usual rank; full fine-tuning where none.
    """
    method = f"lora\nlora_target: {lora}" if lora else "full"
    return (
        f"model_name_or_path: {model}\nstage: {stage}\ndo_train: true\nfinetuning_type: {method}\n"
        f"dataset: {dataset}\ntemplate: {template}\n{''.join(keys)}"
    )


def trl(model: str, *keys: str, dataset: str = "trl-lib/Capybara") -> str:
    """A config of TRL's scripts, in bfloat16 and with FlashAttention; ``keys`` follow, each ending in a line break."""
    return (
        f"model_name_or_path: {model}\ndtype: bfloat16\nattn_implementation: flash_attention_2\n"
        f"dataset_name: {dataset}\n{''.join(keys)}"
    )


AXOLOTL = axolotl("meta-llama/Llama-3.1-8B", ONE_SAMPLE)

LLAMA_FACTORY = llama_factory(
    "meta-llama/Llama-3.1-8B",
    "output_dir: out\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 4\nbf16: true\n",
)


def script(
    *arguments: str,
    load: str = "",
    head: str = "",
    early: bool = False,
    model: str = "meta-llama/Llama-3.1-8B",
) -> str:
    """A Python script that trains with transformers' Trainer.

    Args:
        arguments: further arguments of ``TrainingArguments``, each ending in no comma.
        load: further arguments of ``from_pretrained``.
        head: statements after the imports.
        early: load the model before the training arguments exist.
    """
    given = ("output_dir='out'", "per_device_train_batch_size=1", "bf16=True", *arguments)
    config = "args = TrainingArguments(\n" + "".join(f"    {a},\n" for a in given) + ")\n"
    loading = (
        f'model = AutoModelForCausalLM.from_pretrained(\n    "{model}",\n'
        f"    torch_dtype=torch.bfloat16,\n{load})\n"
    )
    body = loading + config if early else config + loading
    return (
        "import torch\n"
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n\n"
        f"{head}{body}"
        "trainer = Trainer(model=model, args=args, train_dataset=data)\n"
        "trainer.train()\n"
    )


def command(options: str, launcher: str = "torchrun --nproc_per_node 8") -> str:
    """A command line that starts a script over transformers' Trainer."""
    return (
        f"{launcher} run_clm.py --model_name_or_path meta-llama/Llama-3.1-8B --do_train"
        " --dataset_name tatsu-lab/alpaca --torch_dtype bfloat16 --bf16"
        " --per_device_train_batch_size 1 --gradient_accumulation_steps 8"
        f" --num_train_epochs 1 --output_dir out {options}\n"
    )


def deepspeed(zero: str, more: str = "") -> str:
    """A DeepSpeed JSON that leaves batch and precision to the trainer.

    Args:
        zero: what stands in the ``zero_optimization`` object.
        more: further top-level lines, each ending in a comma and a line break.
    """
    return (
        "{\n"
        f'  "zero_optimization": {{{zero}}},\n'
        f"{more}"
        '  "bf16": {"enabled": "auto"},\n'
        '  "train_micro_batch_size_per_gpu": "auto",\n'
        '  "gradient_accumulation_steps": "auto"\n'
        "}\n"
    )


def under_deepspeed(
    config: str, zero: str, becomes: str = "", *, on: str = "", why: str = ""
) -> Example:
    """A project whose config names a DeepSpeed JSON.

    Args:
        config: a config of Axolotl or LLaMA-Factory, which says all but that.
        zero, becomes: what stands in the JSON's ``zero_optimization``, and after the fix, where one applies.
    """
    return example(
        {"train.yaml": f"{config}deepspeed: ds.json\n", "ds.json": deepspeed(zero)},
        {"ds.json": deepspeed(becomes)} if becomes else None,
        on=on,
        why=why,
    )


def fsdp(*lines: str, more: str = "") -> str:
    """An Accelerate YAML of a run that FSDP shards, its blocks wrapped.

    Args:
        lines: what else its ``fsdp_config`` says.
        more: sections behind it.
    """
    said = "".join(f"  {line}\n" for line in lines)
    return accelerate(
        "FSDP", f"fsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n{said}{more}"
    )


KUBERNETES_JOB = text(
    """
    apiVersion: batch/v1
    kind: Job
    spec:
      template:
        spec:
          containers:
            - name: tune
    """
)
"""How the manifest of a job with one container begins."""


def accelerate(kind: str, block: str = "", processes: int = 8) -> str:
    """An Accelerate YAML; ``block`` are whole lines, such as an ``fsdp_config``."""
    return (
        "compute_environment: LOCAL_MACHINE\n"
        f"distributed_type: {kind}\n"
        f"{block}"
        "mixed_precision: bf16\n"
        "num_machines: 1\n"
        f"num_processes: {processes}\n"
    )
