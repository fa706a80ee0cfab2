"""Settings that Axolotl refuses together.

## What it finds

Combinations that the validators of Axolotl's config stop at: DeepSpeed with FSDP, quantized
weights with FSDP2 in preference training, `activation_offloading` without
`gradient_checkpointing`, `max_memory` with `gpu_memory_limit`, `sample_packing` in RL training,
ReLoRA with FSDP or DeepSpeed, fused MLPs with LoRA, LoRA kernels with 8 bit or remote code,
FSDP for Falcon, checkpointing for MPT, streaming without `max_steps` or with `val_set_size`,
two ways to say how often to save or to evaluate, evaluations of a set that `val_set_size: 0`
leaves empty, and unpinned offloading under FSDP1. What
context parallelism is refused with, context-parallel-constraint says.

## Why it runs out of memory

It does not get that far: a `ValueError` ends the run after the time in the queue. Who then
drops the wrong one of the two takes away what made the run fit: checkpointing, for one,
without which an 8B model keeps about 0.3 GiB a layer for each 4096 tokens instead of 0.03.

## How to fix it

Drop one of the two. Where the fix can, it removes the key that does not decide memory. It is
unsafe, because it changes what was asked for, and only shown where each of the two may be what
was meant: how often to save or to evaluate, and on what.

## When not to

Where another version of Axolotl, whose validators allow it, is pinned.

## Sources

* Axolotl 067b021c `src/axolotl/utils/schemas/validation.py` (`check_fsdp_deepspeed`:1226,
  `check_fsdp2_base_model_quant_rl`:1069, `check_activation_offloading_wo_gc`:1445,
  `check_mem_mismatch`:1214, `check_sample_packing_w_rl`:688, `check_relora`:1581,
  `check_fused_lora`:615, `check_lora_kernels_8bit`:648, `check_falcon_fsdp`:1397,
  `check_lora_kernels_trust_remote_code`:669, which v0.15.0 has first,
  `check_mpt_checkpointing`:1403, `check_streaming_w_max_steps`:1370, `check_saves`:303,
  `check_evals`:331, `check_fsdp2_cpu_offload_pin_memory`:1052)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.axolotl.keys import own
from oomlint.dialects.common.fields import ref
from oomlint.linting.rule import Applicability, Finding, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, example
from oomlint_rules.settings._combinations import Combination, refusals, value_of

_FSDP2 = "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n"


def _names(part: str, run: Run) -> bool:
    return part in str(run.plan.model.id or "").lower()


def _saves_otherwise(run: Run) -> bool:
    return run.plan.save.strategy not in ("steps", None) and run.is_explicit(f.save.strategy)


def _evaluates_otherwise(run: Run) -> bool:
    said = value_of(run, own.eval_strategy)
    return said not in ("steps", None) and said is not False


def _holds_nothing_out(run: Run) -> bool:
    said = value_of(run, own.eval_strategy)
    return (
        run.is_explicit(own.val_set_size)
        and value_of(run, own.val_set_size) == 0
        and said not in ("no", False)
    )


# What takes its samples from a stream, of which nobody knows the length.
_STREAMS = ("streaming", "pretraining_dataset")

_TABLE = (
    Combination((ref.deepspeed, own.fsdp), "deepspeed and fsdp in one config"),
    Combination(
        ("rl",),
        "8-bit or 4-bit weights with FSDP2 in preference training",
        holds=lambda run: (
            run.plan.parallel.backend == "fsdp2"
            and value_of(run, "rl") in ("dpo", "kto", "orpo", "ipo")
            and run.plan.quant.method in ("bnb4", "bnb8")
        ),
        details=("use fsdp_version: 1 or DeepSpeed",),
    ),
    Combination(
        (own.activation_offload,),
        "activation_offloading without gradient_checkpointing",
        unless=(own.gc,),
    ),
    Combination(
        ("max_memory", "gpu_memory_limit"),
        "max_memory together with gpu_memory_limit",
        "gpu_memory_limit",
    ),
    Combination(
        ("sample_packing", "rl"), "sample_packing in preference and RL training", "sample_packing"
    ),
    Combination(("relora", ref.deepspeed), "relora with DeepSpeed"),
    Combination(
        ("relora",), "relora with FSDP", holds=lambda run: "fsdp" in str(run.plan.parallel.backend)
    ),
    Combination(
        ("flash_attn_fuse_mlp",),
        "flash_attn_fuse_mlp with LoRA",
        "flash_attn_fuse_mlp",
        holds=lambda run: value_of(run, "adapter") in ("lora", "qlora"),
    ),
    *(
        Combination(
            (kernel, "load_in_8bit"),
            f"{kernel} with 8-bit LoRA",
            kernel,
            holds=lambda run: value_of(run, "adapter") == "lora",
        )
        for kernel in ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
    ),
    *(
        Combination(
            (kernel, "trust_remote_code"),
            f"{kernel} with trust_remote_code",
            kernel,
            since=(0, 15),
        )
        for kernel in ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
    ),
    Combination((own.fsdp,), "FSDP for Falcon models", holds=lambda run: _names("falcon", run)),
    Combination(
        (own.gc,),
        "gradient_checkpointing for MPT models",
        own.gc,
        holds=lambda run: _names("mpt", run),
    ),
    Combination(
        (own.gc,),
        "gradient_checkpointing of nemotron_h without sample_packing",
        unless=("sample_packing",),
        holds=lambda run: _names("nemotron-h", run),
    ),
    Combination(
        ("model_quantization_config",),
        "cpu_ram_efficient_loading with Mxfp4Config",
        holds=lambda run: (
            value_of(run, "model_quantization_config") == "Mxfp4Config"
            and run.plan.load.cpu_ram_efficient is True
            and run.is_explicit(f.load.cpu_ram_efficient)
        ),
    ),
    *(
        Combination((streams,), f"{streams} without max_steps", unless=("total_steps",))
        for streams in _STREAMS
    ),
    *(
        Combination(
            (streams, own.val_set_size),
            f"val_set_size with {streams}",
            own.val_set_size,
            details=("name test_datasets",),
            # axolotl 231a67e7 (2025-09-02), after 0.12.2.
            since=(0, 13),
        )
        for streams in _STREAMS
    ),
    Combination(
        (own.test_datasets, own.val_set_size),
        "val_set_size with test_datasets",
        own.val_set_size,
    ),
    Combination(
        (own.batch_size, "gradient_accumulation_steps"),
        "batch_size together with gradient_accumulation_steps",
        own.batch_size,
    ),
    Combination(
        (f.save.every,),
        "save_steps with a save_strategy other than steps",
        f.save.every,
        holds=_saves_otherwise,
        choice=True,
    ),
    Combination(
        (f.save.every, own.saves_per_epoch),
        "save_steps together with saves_per_epoch",
        own.saves_per_epoch,
        choice=True,
    ),
    Combination(
        (f.eval.every, own.evals_per_epoch),
        "eval_steps together with evals_per_epoch",
        own.evals_per_epoch,
        choice=True,
    ),
    Combination(
        (f.eval.every,),
        "eval_steps with an eval_strategy other than steps",
        f.eval.every,
        holds=_evaluates_otherwise,
        choice=True,
    ),
    *(
        Combination(
            (asked,),
            f"{key} with val_set_size: 0 and no test_datasets",
            asked,
            unless=(own.test_datasets, *others),
            holds=_holds_nothing_out,
            choice=True,
            details=("give val_set_size a share, or name test_datasets",),
        )
        for asked, key, others in (
            (f.eval.every, "eval_steps", ()),
            (own.eval_strategy, "eval_strategy", (f.eval.every,)),
        )
    ),
    Combination(
        ("fsdp_config",),
        "cpu_offload_pin_memory: false under FSDP1",
        holds=lambda run: (
            run.plan.parallel.backend == "fsdp1" and value_of(run, f.offload.pin_memory) is False
        ),
        details=("set fsdp_version: 2",),
    ),
)


class AxolotlInvalidCombo(Rule, code="OOM807", may_end=True, fixes=Applicability.UNSAFE, cost=8):
    summary = "settings that Axolotl refuses together"
    only_where = (Where(dialects=("axolotl",)),)

    bad = (
        example(
            {"train.yaml": f"{AXOLOTL}rl: dpo\nsample_packing: true\n"},
            {"train.yaml": f"{AXOLOTL}rl: dpo\n"},
        ),
        example(
            {
                "train.yaml": (
                    f"{AXOLOTL}deepspeed: deepspeed_configs/zero3_bf16.json\n"
                    "fsdp:\n  - full_shard\n"
                )
            }
        ),
        example(
            {
                "train.yaml": (
                    f"{AXOLOTL}activation_offloading: true\n".replace(
                        "gradient_checkpointing: true\n", ""
                    )
                )
            }
        ),
        example({"train.yaml": f"{AXOLOTL}adapter: qlora\nload_in_4bit: true\nrl: dpo\n{_FSDP2}"}),
        example(
            {"train.yaml": f"{AXOLOTL}save_strategy: epoch\nsave_steps: 100\n"},
        ),
        example(
            {"train.yaml": f"{AXOLOTL}val_set_size: 0\neval_steps: 100\n"},
        ),
    )
    good = (
        example({"train.yaml": f"{AXOLOTL}sample_packing: true\nsave_steps: 100\n"}),
        example({"train.yaml": f"{AXOLOTL}activation_offloading: true\n"}),
        example({"train.yaml": f'{AXOLOTL}val_set_size: 0\neval_strategy: "no"\n'}),
        example({"train.yaml": f"{AXOLOTL}streaming: true\nmax_steps: 100\n"}),
        example({"train.yaml": f"{AXOLOTL}rl: dpo\n{_FSDP2}"}),
        example(
            {
                "train.yaml": f"{AXOLOTL}lora_o_kernel: true\ntrust_remote_code: true\n",
                "setup.sh": "pip install 'git+https://github.com/axolotl-ai-cloud/axolotl@v0.13.0'\n",
            },
            why="that release takes both",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        yield from refusals(self, run, _TABLE, "Axolotl")
