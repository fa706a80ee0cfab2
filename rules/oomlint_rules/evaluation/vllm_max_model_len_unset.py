"""vLLM is to make room for the longest sequence that the model could have.

## What it finds

RL training with vLLM on the training cards (TRL, ms-swift) that names no longest sequence, where the
key-value cache of a single sequence of the model's full length is more than the engine's share of
the card leaves beside the weights. The card is the run's, or an 80 GB one where it is unknown.

## Why it runs out of memory

vLLM checks at start that its cache holds one sequence of `max_model_len` tokens, which is the
model's own maximum where nobody says less, and stops where it does not: *The model's max seq len
(131072) is larger than the maximum number of tokens that can be stored in KV cache*. Llama-3.1-8B
takes 2 x 32 layers x 8 heads x 128 x 2 bytes, 128 KiB a token: 16 GiB for 131072 tokens, where
30% of an 80 GB card leave 9 beside the weights. Who then raises the share takes it from training.

## How to fix it

`vllm_max_model_length` (TRL), `--vllm_max_model_len` (ms-swift): prompt and answer together. Where
the length of prompts is limited the fix changes nothing in the training; where it is not, longer
prompts than the fix allows for would be refused, and it is unsafe.

## When not to

Versions of TRL that cut prompts (`max_prompt_length`, until 0.24, 512 where nobody says otherwise)
set it by themselves.

## Sources

* TRL f2cd5771 `generation/vllm_generation.py:355`, `trainer/grpo_config.py:654`
* vLLM documentation, `max_model_len`; https://github.com/huggingface/trl/issues/3113
* ms-swift 3602360a `rlhf_trainers/args_mixin.py` (`vllm_max_model_len`)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.plan.model import ModelDims
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import example, line, mended, trl
from oomlint_rules._remedies import card_bytes

_LENGTH = f.objective.rollout.max_model_len
_PROMPT = f.objective.rollout.max_prompt_tokens
_HALF_PRECISION = 2
# Room for prompts whose length nobody limits, in tokens.
_LONG_PROMPT = 4096

_TRL = trl(
    "meta-llama/Llama-3.1-8B-Instruct",
    "reward_funcs: [accuracy_reward]\nuse_peft: true\nuse_vllm: true\n",
    "vllm_mode: colocate\nvllm_gpu_memory_utilization: 0.3\n{more}num_generations: 8\n",
    "max_completion_length: 1024\nper_device_train_batch_size: 1\n",
    "gradient_accumulation_steps: 8\noutput_dir: out\n",
    dataset="trl-lib/tldr",
)
_SWIFT = line(
    """
    swift rlhf --rlhf_type grpo --model meta-llama/Llama-3.1-8B-Instruct --dataset our/tasks.jsonl
    --reward_funcs accuracy --tuner_type lora --torch_dtype bfloat16 --use_vllm true
    --vllm_mode colocate --vllm_gpu_memory_utilization 0.3 --max_length 1024
    --max_completion_length 1024 --num_generations 8{more} --per_device_train_batch_size 1
    --gradient_accumulation_steps 8
    """
)


class VllmMaxModelLenUnset(Rule, code="OOM613", fixes=Applicability.SAFE):
    summary = "vLLM makes room for the model's full length, more than its share of the card holds"
    only_where = (Where(plan={f.objective.rollout.engine: ("vllm_colocate",)}),)

    bad = (
        mended("grpo.yaml", _TRL, more=("", "vllm_max_model_length: 5120\n"), on="1xH100-80GB"),
        mended("train.sh", _SWIFT, more=("", " --vllm_max_model_len 2048")),
    )
    good = (
        example({"grpo.yaml": _TRL.format(more="vllm_max_model_length: 4096\n")}, on="1xH100-80GB"),
        example({"grpo.yaml": _TRL.format(more="")}, on="1xB300-288GB"),
        example(
            {"grpo.yaml": _TRL.format(more="").replace("colocate", "server")},
            on="1xH100-80GB",
            why="a server has settings of its own",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        rollout, dims = run.plan.objective.rollout, run.plan.model.dims
        share = rollout.gpu_mem_util
        if rollout.max_model_len is not None:
            return
        if dims is None or dims.ctx is None or share is None or _LENGTH in run.unreadable:
            return
        # Without a key for it the framework sizes the engine itself (verl, OpenRLHF).
        if run.block_with(_LENGTH) is None or _cuts_prompts_itself(run):
            return
        token = _cache_of_a_token(dims)
        if token is None or dims.params_total is None:
            return
        ranks = rollout.tp or 1
        left = share * card_bytes(run) - _HALF_PRECISION * dims.params_total / ranks
        need = dims.ctx * token / ranks
        if left <= 0 or need <= left:
            return
        length, known = _enough(run)
        where = "" if run.limits.gpu_bytes is not None else " of an 80 GB card"
        yield self.warning(
            run,
            f"vLLM makes room for the model's {dims.ctx:,} tokens: {gib(need)} of key-value cache",
            at=(_LENGTH, f.objective.rollout.gpu_mem_util, f.objective.rollout.engine),
            details=(
                f"that is for one sequence, and {share:.0%}{where} leave {gib(left)} beside the weights",
                "vLLM stops at start",
                f"{length:,} tokens take {gib(length * token / ranks)}",
            ),
            confidence="medium",
            resource="gpu",
            predicted=need,
            limit=left,
            proposals=[
                Proposal.set(
                    f"let sequences have {length} tokens",
                    {_LENGTH: length},
                    Applicability.SAFE if known else Applicability.UNSAFE,
                )
            ],
        )


def _cuts_prompts_itself(run: Run) -> bool:
    """Whether a key limits prompts alone: TRL up to 0.24, which then added up both limits."""
    return run.is_explicit(_PROMPT)


def _cache_of_a_token(dims: ModelDims) -> int | None:
    """Bytes that keys and values of one token take, all layers together; ``None`` where
    layers of several kinds or a latent cache make it another sum."""
    if dims.mla or dims.ssm or dims.linear_attn or dims.layer_types or dims.sliding_window:
        return None
    if not (dims.layers and dims.kv_heads and dims.head_dim):
        return None
    return 2 * dims.layers * dims.kv_heads * dims.head_dim * _HALF_PRECISION


def _enough(run: Run) -> tuple[int, bool]:
    """Tokens of a prompt with its answer, and whether the files limit the prompt."""
    rollout, prompt = run.plan.objective.rollout, run.settings.get(_PROMPT)
    answer = rollout.max_completion_tokens or 512
    if prompt is None or prompt.origin.kind == "assumed":
        return answer + _LONG_PROMPT, False
    return answer + int(prompt.value), True
