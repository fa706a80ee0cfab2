"""Settings that LLaMA-Factory refuses together.

## What it finds

Combinations that LLaMA-Factory's own parser stops at: generation in evaluation, `pure_bf16`,
Unsloth, KTransformers or `pissa_init` with ZeRO-3; GaLore and APOLLO with DeepSpeed; their
layer-wise forms and BAdam on several GPUs; quantization without LoRA or OFT; FP8 with
quantization; `neat_packing` outside of SFT; streaming without `max_steps`;
`load_best_model_at_end` for reward models and PPO; a device map for a quantized model; DeepSpeed
without a distributed launch.

## Why it runs out of memory

It does not get that far: a `ValueError` ends the run after the time in the queue. Who then
drops the wrong one of the two, ZeRO-3 for a LoRA run of 70B parameters, say, has 131 GiB of
weights on each card.

## How to fix it

Drop one of the two; the message says which one is the cheaper loss. Where the fix can, it
removes the key that does not decide memory. It is unsafe, because it changes what was asked for.

## When not to

Where another version of LLaMA-Factory, whose parser allows it, is pinned.

## Sources

* LLaMA-Factory ff6d4d12 `src/llamafactory/hparams/parser.py:232-255` and `:395-520`,
  `hparams/data_args.py:179`
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.common.fields import ref
from oomlint.dialects.llamafactory.keys import lf, lf_env
from oomlint.linting.rule import Applicability, Finding, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import LLAMA_FACTORY, deepspeed, example
from oomlint_rules.settings._combinations import Combination, refusals

_JSON = deepspeed('"stage": 3, "stage3_gather_16bit_weights_on_model_save": true')
_ZERO3 = f"{LLAMA_FACTORY}deepspeed: ds.json\n"


def _zero3(run: Run) -> bool:
    return run.plan.parallel.backend == "zero" and run.plan.parallel.zero.stage == 3


def _several(run: Run) -> bool:
    ranks = run.settings.get(f.parallel.gpus_per_node)
    counted = ranks is not None and ranks.origin.kind != "catalog"
    return counted and (run.plan.parallel.world or 1) > 1


def _sharded_or_several(run: Run) -> bool:
    return _several(run) and not _zero3(run)


def _stage_is_not(*stages: str) -> set[str]:
    return {"pt", "sft", "rm", "ppo", "dpo", "kto", "orpo"} - set(stages)


def _stage(run: Run) -> str:
    setting = run.settings.get(lf.stage)
    return "" if setting is None else str(setting.value)


_TABLE = (
    Combination(
        (f.eval.generate,),
        "predict_with_generate with ZeRO-3",
        f.eval.generate,
        choice=True,
        holds=_zero3,
        details=(
            "generation would gather every layer for every token",
            "evaluate by the loss, or shard with ZeRO-2",
        ),
    ),
    Combination(
        (lf.pure_bf16,),
        "pure_bf16 with ZeRO-3",
        lf.pure_bf16,
        holds=_zero3,
        details=("bf16: true trains in bf16 there too",),
    ),
    Combination((lf.unsloth,), "use_unsloth with ZeRO-3", lf.unsloth, holds=_zero3),
    Combination((lf.ktransformers,), "use_kt with ZeRO-3", holds=_zero3),
    Combination(
        (lf.pissa,),
        "pissa_init with ZeRO-3",
        lf.pissa,
        holds=_zero3,
        details=("run scripts/pissa_init.py once before",),
    ),
    Combination(
        (lf.galore,),
        "use_galore with DeepSpeed",
        holds=lambda run: run.plan.parallel.backend == "zero",
    ),
    Combination(
        (lf.apollo,),
        "use_apollo with DeepSpeed",
        holds=lambda run: run.plan.parallel.backend == "zero",
    ),
    Combination(
        (lf.galore, lf.galore_layerwise),
        "layer-wise GaLore on several GPUs",
        lf.galore_layerwise,
        holds=_several,
    ),
    Combination(
        (lf.apollo, lf.apollo_layerwise),
        "layer-wise APOLLO on several GPUs",
        lf.apollo_layerwise,
        holds=_several,
    ),
    Combination((lf.badam,), "BAdam on several GPUs without ZeRO-3", holds=_sharded_or_several),
    Combination(
        (lf.badam,),
        "badam_mode: ratio on several GPUs",
        lf.badam_mode,
        holds=lambda run: (
            _several(run) and _zero3(run) and run.settings[lf.badam_mode].value == "ratio"
        ),
        details=("the layer-wise mode works with ZeRO-3",),
    ),
    Combination(
        (lf.quant_bits,),
        "quantization with finetuning_type full or freeze",
        lf.quant_bits,
        choice=True,
        holds=lambda run: run.plan.trainable.method in ("full", "freeze"),
        details=("quantized weights take LoRA or OFT",),
    ),
    Combination(
        (lf.quant_bits, lf.pissa),
        "pissa_init on a quantized model",
        lf.pissa,
        details=("run scripts/pissa_init.py once before",),
    ),
    Combination(
        (lf.quant_bits, lf.resize_vocab),
        "resize_vocab on a quantized model",
        lf.resize_vocab,
    ),
    Combination((lf.quant_bits, lf.fp8), "fp8 training of a quantized model", lf.fp8),
    Combination(
        (lf.neat_packing,),
        "neat_packing outside of stage sft",
        lf.neat_packing,
        holds=lambda run: _stage(run) in _stage_is_not("sft"),
    ),
    Combination(
        (f.eval.generate,),
        "predict_with_generate outside of stage sft",
        f.eval.generate,
        choice=True,
        holds=lambda run: _stage(run) in _stage_is_not("sft"),
    ),
    Combination(
        (f.save.load_best_at_end,),
        "load_best_model_at_end for reward models and PPO",
        f.save.load_best_at_end,
        holds=lambda run: _stage(run) in ("rm", "ppo"),
    ),
    Combination(
        (f.data.streaming,),
        "streaming without max_steps",
        unless=("total_steps",),
        details=("the length of the data is not known",),
    ),
    Combination(
        (f.data.streaming, f.data.max_samples),
        "max_samples with streaming",
        f.data.max_samples,
        choice=True,
    ),
    Combination(
        ("quantization_device_map",),
        "quantization_device_map: auto in training",
        "quantization_device_map",
        details=("each process would spread a copy over all cards",),
    ),
    Combination(
        (ref.deepspeed,),
        "DeepSpeed in one process that torchrun does not start",
        unless=(lf_env.torchrun,),
        holds=lambda run: _runs_alone(run),
        details=("set FORCE_TORCHRUN=1",),
    ),
)


def _runs_alone(run: Run) -> bool:
    """One GPU, and a command line of llamafactory-cli or python that starts nothing else."""
    launched = any(claim.is_launched for claim in run.claims)
    blocks = [block for block, _ in run.parts.blocks if block.table.section == "launcher"]
    shown = run.plan.env.cuda_visible_devices
    alone = run.plan.parallel.world == 1 and shown is not None and shown.isdigit()
    return launched and alone and all(block.table.name == "python" for block in blocks)


class LfInvalidCombo(Rule, code="OOM806", may_end=True, fixes=Applicability.UNSAFE, cost=8):
    summary = "settings that LLaMA-Factory refuses together"
    only_where = (Where(dialects=("llama-factory",), frameworks=("llama-factory",)),)

    bad = (
        example(
            {
                "train.yaml": f"{_ZERO3}predict_with_generate: true\nval_size: 0.1\n",
                "ds.json": _JSON,
            },
        ),
        example({"train.yaml": f"{LLAMA_FACTORY}quantization_bit: 4\n"}),
        example(
            {
                "train.sh": (
                    "CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train --stage sft --do_train"
                    " --model_name_or_path meta-llama/Llama-3.1-8B --finetuning_type full"
                    " --dataset instructions --template llama3 --output_dir out --bf16"
                    " --use_galore --galore_layerwise\n"
                )
            },
            {
                "train.sh": (
                    "CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train --stage sft --do_train"
                    " --model_name_or_path meta-llama/Llama-3.1-8B --finetuning_type full"
                    " --dataset instructions --template llama3 --output_dir out --bf16"
                    " --use_galore\n"
                )
            },
        ),
        example(
            {
                "train.yaml": _ZERO3,
                "ds.json": _JSON,
                "train.sh": "CUDA_VISIBLE_DEVICES=0 llamafactory-cli train train.yaml\n",
            }
        ),
        example({"train.yaml": f"{LLAMA_FACTORY}streaming: true\n"}),
    )
    good = (
        example({"train.yaml": _ZERO3, "ds.json": _JSON}),
        example(
            {
                "train.yaml": LLAMA_FACTORY.replace("type: full", "type: lora")
                + "quantization_bit: 4\n"
            }
        ),
        example({"train.yaml": f"{LLAMA_FACTORY}streaming: true\nmax_steps: 1000\n"}),
        example(
            {
                "train.yaml": _ZERO3,
                "ds.json": _JSON,
                "train.sh": (
                    "FORCE_TORCHRUN=1 CUDA_VISIBLE_DEVICES=0 llamafactory-cli train train.yaml\n"
                ),
            }
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        yield from refusals(self, run, _TABLE, "LLaMA-Factory")
