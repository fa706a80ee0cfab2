"""FSDP cannot shard weights that are stored as integers.

## What it finds

FSDP (version 1, `FullyShardedDataParallel`) together with 8-bit weights of bitsandbytes
(`load_in_8bit`, `quantization_bit: 8`, llama-recipes' `--quantization 8bit` or the bare
`--quantization` of old), and with 4-bit weights whose storage type is left at `uint8`.

## Why it runs out of memory

It stops before that: FSDP packs the parameters of a unit into one flat tensor of one
floating-point type, and raises *Cannot flatten integer dtype tensors* (or *Must flatten
tensors with uniform dtype but got torch.float16 and torch.int8*) when it wraps the model,
after minutes of loading. Those who then drop FSDP hold the whole model on every card.

## How to fix it

Train 4-bit QLoRA with a floating-point storage type, which FSDP can flatten: Axolotl's
`adapter: qlora`, `load_in_4bit: true`, llama-recipes' `--quantization 4bit`,
`bnb_4bit_quant_storage=torch.bfloat16` in a script, equal to the compute type. The fix
switches to 4 bit; it is unsafe because the numerics change. Or keep 8 bit and leave FSDP for
DDP or ZeRO-2, or leave the weights in 16 bit.

## When not to

FSDP2 shards each parameter by itself and does not flatten; this rule is silent there.

## Sources

* torch `distributed/fsdp/_flat_param.py` (`_validate_tensors_to_flatten`)
* https://github.com/meta-llama/llama-cookbook/issues/240 and /675; llama-recipes refuses
  8 bit with FSDP itself since 0.0.3 (`finetuning.py`: *8bit quantization is not supported
  with FSDP*)
* https://github.com/axolotl-ai-cloud/axolotl/issues/2250,
  https://github.com/huggingface/peft/issues/2833,
  https://github.com/hiyouga/LLaMA-Factory/issues/3470
* bitsandbytes documentation, FSDP-QLoRA: `bnb_4bit_quant_storage`
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, When, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import axolotl, example

_TORCHRUN = (
    "torchrun --nnodes 1 --nproc_per_node 2 recipes/finetuning/finetuning.py --enable_fsdp"
    " --low_cpu_fsdp --use_peft --peft_method lora --model_name meta-llama/Meta-Llama-3-8B"
)
_AXOLOTL = axolotl("meta-llama/Llama-3.1-8B", "micro_batch_size: 1\ngradient_checkpointing: true\n")
_FSDP = (
    "fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n  fsdp_state_dict_type: FULL_STATE_DICT\n"
)

_INTEGERS = frozenset({"uint8", "int8"})

_REFUSED = 'it stops with "Cannot flatten integer dtype tensors" once the model is loaded'


class FsdpInt8Flatten(Rule, code="OOM202", may_end=True, fixes=Applicability.UNSAFE, cost=7):
    summary = "FSDP cannot flatten weights that are stored as integers"
    only_where = (Where(plan={f.parallel.backend: ("fsdp1",)}),)

    bad = (
        example(
            {"train.sh": f"{_TORCHRUN} --quantization 8bit\n"},
            {"train.sh": f"{_TORCHRUN} --quantization 4bit\n"},
        ),
        example(
            {"train.sh": f"{_TORCHRUN} --quantization --output_dir out\n"},
            why="the bare switch means 8 bit",
        ),
        example(
            {"train.yaml": f"{_AXOLOTL}adapter: lora\nload_in_8bit: true\n{_FSDP}"},
            {
                "train.yaml": (
                    f"{_AXOLOTL}adapter: qlora\nload_in_8bit: false\nload_in_4bit: true\n{_FSDP}"
                )
            },
        ),
    )
    good = (
        example({"train.sh": f"{_TORCHRUN} --quantization 4bit\n"}),
        example(
            {"train.yaml": f"{_AXOLOTL}adapter: qlora\nload_in_4bit: true\n{_FSDP}"},
            why="Axolotl stores 4-bit weights as bf16 under FSDP",
        ),
        example({"train.yaml": f"{_AXOLOTL}adapter: lora\nload_in_8bit: true\n"}, why="no FSDP"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        quant = run.plan.quant
        if quant.method == "bnb8":
            yield self._eight_bit(run)
        elif quant.method == "bnb4" and quant.storage_dtype in _INTEGERS:
            yield self._integer_storage(run)

    def _eight_bit(self, run: Run) -> Finding:
        return self.error(
            run,
            "8-bit weights under FSDP: torch refuses to flatten them",
            at=f.quant.method,
            details=(
                _REFUSED,
                "4-bit weights with a floating-point storage type can be sharded",
            ),
            proposals=[
                Proposal.set(
                    "quantize to 4 bit instead of 8",
                    {f.quant.method: "bnb4"},
                    Applicability.UNSAFE,
                )
            ],
            ends=When.LOADED,
        )

    def _integer_storage(self, run: Run) -> Finding:
        compute = run.plan.precision.compute
        wanted = compute if compute in ("bf16", "fp16") else "bf16"
        return self.error(
            run,
            f"4-bit weights stored as {run.plan.quant.storage_dtype} under FSDP: torch refuses to "
            "flatten them",
            at=(f.quant.storage_dtype, f.quant.method),
            details=(
                _REFUSED,
                f"bnb_4bit_quant_storage has to be the compute type, {wanted}",
            ),
            proposals=[
                Proposal.set(f"store 4-bit weights as {wanted}", {f.quant.storage_dtype: wanted})
            ],
            ends=When.LOADED,
        )
