"""What ms-swift trains and in which types it holds the weights, with ``swift`` and ``megatron``.

``SW`` below is ``swift/`` of ms-swift 3602360a.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning, Sourced, Wishes
from oomlint.dialects.ms_swift.keys import MODEL, OLD, QUANT, RLHF, TUNER, env, own
from oomlint.plan.fields import f

weights = Meaning()

# -- the objective ---------------------------------------------------------------------------------

_PROGRAMS = ("swift", "megatron")
_OBJECTIVES = {
    "pt": "pretrain", "rlhf": "dpo", "dpo": "dpo", "orpo": "orpo", "simpo": "simpo",
}  # fmt: skip
_PAIRED = frozenset({"dpo", "orpo", "simpo", "cpo", "rm"})


def command_of_run(run: Cells) -> str:
    """The command whose options the run was read from, ``sft`` where none is known."""
    for block in reversed(run.blocks):
        program, _, command = block.table.name.partition(" ")
        if program in _PROGRAMS:
            return command
    return "sft"


def _other_task(run: Cells) -> str | None:
    """A task without logits over the vocabulary."""
    task = run[own.task]
    return None if task == "causal_lm" else task


@weights.derive(f.objective.kind)
def objective(run: Cells) -> Any:
    kind = run[own.rlhf] or _OBJECTIVES.get(command_of_run(run), "sft")
    if kind == "cpo" and run[own.loss_type] == ("simpo",):
        return "simpo"
    return "embedding" if kind == "sft" and _other_task(run) is not None else kind


@weights.derive(f.objective.pairs_per_sample)
def texts_of_sample(run: Cells) -> Any:
    """SW/dataset/packing.py create_packed_idx: a pack's length counts both sides of its pairs, and
    all texts of its samples.

    A sample of an embedding model is two texts at least, that of a reranker one for each document
    of its query (SW/template/base.py _reranker_data_collator).
    """
    if run[own.packing]:
        return 1
    task = _other_task(run)
    if run[f.objective.kind] != "embedding" or task is None:
        return 2 if run[f.objective.kind] in _PAIRED else 1
    documents = run.get(env.positives, 1) * (1 + run.get(env.negatives, 7))
    return {"seq_cls": 1, "embedding": 2}.get(task, documents)


# -- the other models of preference and RL training (SW/arguments/rlhf_args.py) --------------------


def _trains_whole(run: Cells) -> bool:
    """Whether the model itself is trained: full fine-tuning, be it a few layers at a time."""
    return run[f.trainable.method] in ("full", "freeze", "layerwise")


@weights.derive(f.objective.ref_model, source=RLHF)
def reference_model(run: Cells) -> Any:
    is_whole = _trains_whole(run)
    kind = run[f.objective.kind]
    needs = kind in ("dpo", "kto", "ppo") or (kind == "grpo" and run[own.beta] != 0)
    if not needs:
        return "none"
    return "copy" if is_whole else "shared_adapter_off"


@weights.derive(f.objective.teacher, source=RLHF)
def teacher(run: Cells) -> Any:
    """The run's own model teaches with its adapters off."""
    named = run[own.teacher]
    if named is None or run[f.objective.kind] not in ("gkd", "grpo"):
        return None
    return None if named == run[f.model.id] and not _trains_whole(run) else named


@weights.derive(f.objective.reward_model)
def reward_model(run: Cells) -> Any:
    rewards = run[own.reward_model]
    return rewards[0] if rewards and run[f.objective.kind] in ("ppo", "grpo") else None


@weights.derive(f.objective.critic)
def critic(run: Cells) -> Any:
    return run[f.objective.reward_model] if run[f.objective.kind] == "ppo" else None


# -- everything, but what is frozen ----------------------------------------------------------------


@weights.derive(f.trainable.params)
def trained_share(run: Cells) -> Any:
    """A share counted from the input side is frozen (SW/tuners/utils.py freeze_parameters)."""
    if run[f.trainable.method] != "full":
        return None
    ratio, dims = run[own.freeze_ratio] or 0.0, run[f.model.dims]
    if not 0 < ratio < 1 or dims is None or not dims.params_total:
        return None
    return int((1 - ratio) * dims.params_total)


@weights.override(f.trainable.method, source="SW/utils/transformers_utils.py:68")
def trains_only_named(run: Cells) -> Any:
    """With everything frozen first, what is named anew is all that is trained."""
    is_named = run[own.freeze_ratio] == 1 and run[own.trainable]
    return "freeze" if is_named and run[f.trainable.method] == "full" else None


@weights.derive(f.trainable.names, source="SW/utils/transformers_utils.py:102")
def named_anew(run: Cells) -> Any:
    """By how their names begin."""
    if run[f.trainable.method] != "freeze":
        return None
    return tuple(map(re.escape, run[own.trainable] or ())) or None


_PARTS = {
    "vision": f.model.vision.freeze_tower,
    "projector": own.freeze_aligner,
    "llm": own.freeze_llm,
}


@weights.derive(f.trainable.frozen)
def frozen(run: Cells) -> Any:
    if not _trains_whole(run):
        return None
    return tuple(part for part, freezes in _PARTS.items() if run[freezes]) or None


# -- adapters --------------------------------------------------------------------------------------

_LIKE_LORA = frozenset({"lora", "dora", "qlora", "oft"})

# ms-swift release/2.6 llm/utils/model.py LoRATM: what DEFAULT stood for in most families.
_OLD_TARGETS = ("q_proj", "k_proj", "v_proj")
_OLD_TARGETS_OF = {"qwen": ("c_attn",), "chatglm": ("query_key_value",), "baichuan": ("W_pack",)}


def _is_like_lora(run: Cells) -> bool:
    """Whether adapters of a rank stand beside linear layers."""
    return run[f.trainable.method] in _LIKE_LORA


@weights.derive(f.trainable.r)
def rank(run: Cells) -> Any:
    if not _is_like_lora(run):
        return None
    return run[own.adalora_rank if run[own.tuner] == "adalora" else own.lora_rank]


@weights.derive(f.trainable.alpha)
def alpha(run: Cells) -> Any:
    return run[own.lora_alpha] if _is_like_lora(run) else None


@alpha.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.lora_alpha: wanted}


@weights.derive(f.trainable.dropout)
def dropout(run: Cells) -> Any:
    return run[own.lora_dropout] if _is_like_lora(run) else None


@dropout.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.lora_dropout: wanted}


@weights.derive(f.trainable.targets)
def targets(run: Cells) -> Any:
    if not _is_like_lora(run) or run[own.target_regex] is not None:
        return None
    named = run[own.targets]
    if named is None:
        if run.is_unread(own.targets):
            return None
        named = ("DEFAULT",) if run[own.is_old] else ("all-linear",)
    source = OLD if run[own.is_old] else TUNER
    if {"all-linear", "ALL", "all"} & set(named):
        return Sourced("all_linear", source)
    if {"DEFAULT", "AUTO"} & set(named):
        return Sourced(_OLD_TARGETS_OF.get(str(run[f.model.arch]), _OLD_TARGETS), source)
    return Sourced(named, source)


@weights.derive(
    f.trainable.by_name, source="ms-swift 4.6.0 utils/transformers_utils.py find_all_linears"
)
def finds_layers_itself(run: Cells) -> Any:
    """It hands PEFT the names of the linear layers that it found."""
    return True if run[f.trainable.targets] == "all_linear" else None


@weights.assume(f.trainable.targets, why="target_regex may hit every linear layer")
def targets_of_pattern(run: Cells) -> Any:
    """What a pattern over module names hits is not known: at most every linear layer."""
    is_pattern = _is_like_lora(run) and run[own.target_regex] is not None
    return "all_linear" if is_pattern else None


@weights.derive(f.trainable.modules_to_save)
def modules_to_save(run: Cells) -> Any:
    if not _is_like_lora(run):
        return None
    embeddings = dict.fromkeys(("all-embedding", "EMBEDDING"), "embed_tokens")
    names = (name for name in run[own.modules_to_save] or () if name not in ("all-norm", "LN"))
    return tuple(embeddings.get(name, name) for name in names) or None


# -- dtypes ----------------------------------------------------------------------------------------


@weights.derive(f.load.dtype)
def named_dtype(run: Cells) -> Any:
    said = run[own.dtype]
    if said == "fp16" and run[own.tuner] == "full" and run[own.is_old]:
        # Full fine-tuning in fp16 became fp32 weights under autocast.
        said = "fp32"
    return None if said is None else Sourced(said, MODEL)


def _leaves_dtype(run: Cells) -> bool:
    """Whether nobody names the dtype of the weights."""
    return run[own.dtype] is None and not run.is_unread(own.dtype)


@weights.derive(f.load.dtype, source="ms-swift 3602360a model/utils.py:240")
def stored_dtype(run: Cells) -> Any:
    """That of the checkpoint unless one is named."""
    if not _leaves_dtype(run) or run[own.is_old]:
        return None
    stored = run[f.model.ckpt_dtype]
    return stored if stored in ("bf16", "fp16", "fp32") else None


@weights.default(f.load.dtype, source=f"{OLD} select_dtype: AUTO on a GPU that has bf16")
def old_dtype(run: Cells) -> Any:
    return "bf16" if _leaves_dtype(run) and run[own.is_old] else None


@weights.assume(f.load.dtype, why="the checkpoint's dtype is not known; most are bf16")
def usual_dtype(run: Cells) -> Any:
    if run.is_unread(own.dtype):
        return Sourced("bf16", "a dtype is named that was not read: most are of 16 bits")
    return "bf16" if _leaves_dtype(run) else None


@weights.derive(f.quant.compute_dtype, source=QUANT)
def quantized_compute(run: Cells) -> Any:
    loaded = run[f.load.dtype]
    if run[f.quant.method] != "bnb4" or loaded is None:
        return None
    return "bf16" if loaded == "bf16" else "fp32"
