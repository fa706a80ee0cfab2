"""Known scripts that train models of images and text: which of their parts is trained.

Read from LLaVA c121f04, LLaVA-NeXT df17966, InternVL 2410d1d ``internvl_chat``, Qwen3-VL ``qwen-vl-finetune`` and
MiniCPM-V ``finetune``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingABC

from oomlint.dialects.draft import Draft
from oomlint.dialects.kinds import BOOLEAN, COUNT, LIST, TEXT
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.table import Row
from oomlint.dialects.trainer.known_script import KnownScript, script_table

_LLAVA = "LLaVA llava/train/train.py"
_LLAVA_NEXT = "LLaVA-NeXT df17966 llava/train/train.py:1658"
_INTERNVL = "InternVL internvl/train/internvl_chat_finetune.py"
_QWEN = "Qwen-VL qwenvl/train/train_qwen.py"
_MINICPM = "MiniCPM-V finetune/finetune.py"

# Width of CLIP ViT-L/14, the tower of LLaVA's own scripts (its config.json, hidden_size).
_CLIP_WIDTH = 1024


def _trains_parts(
    draft: Draft, source: str, *, llm: bool, vision: bool, projector_params: int | None, by: str
) -> None:
    """Which parts get gradients, where no adapter stands for the language model."""
    if draft.get("hf.use_peft"):
        return
    if llm:
        if not vision:
            draft.derive("trainable.frozen", ("vision",), by, source=source)
        return
    dims = draft.get("model.dims")
    tower = dims.vision.params if dims is not None and dims.vision is not None else None
    parts = [projector_params, tower if vision else 0]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts) or sum(known) == 0:
        # How much is trained is not known: no number is better than that of a whole model.
        draft.unknown["trainable.method"] = draft.settings[by].origin
        return
    draft.derive("script.method", "freeze", by, source=source)
    draft.derive("trainable.params", sum(known), by, source=source)


def _hidden(draft: Draft) -> int | None:
    dims = draft.get("model.dims")
    return None if dims is None else dims.hidden


def _tower_width(draft: Draft) -> int | None:
    dims = draft.get("model.dims")
    return None if dims is None or dims.vision is None else dims.vision.hidden


# -- LLaVA ---------------------------------------------------------------------------------------


def _finish_llava(draft: Draft) -> None:
    """The vision tower is frozen, and ``--tune_mm_mlp_adapter`` trains the projector alone, unless
    ``--mm_tunable_parts`` of LLaVA-NeXT names what is trained."""
    half = "bf16" if draft.get("hf.bf16") else None
    draft.derive("hf.load_dtype", half, "hf.bf16", source=f"{_LLAVA}:831")
    hidden = _hidden(draft)
    deep = re.match(r"mlp(\d+)x", str(draft.get("script.projector") or ""))
    params = None
    if hidden:
        params = _CLIP_WIDTH * hidden + (int(deep[1]) - 1 if deep else 0) * hidden * hidden
    if draft.is_unknown("script.tuned_parts"):
        draft.unknown["trainable.method"] = draft.unknown["script.tuned_parts"]
        return
    parts = draft.get("script.tuned_parts")
    if parts is None:
        alone = bool(draft.get("script.tune_projector"))
        parts = ("mm_mlp_adapter",) if alone else ("mm_mlp_adapter", "mm_language_model")
        by, source = "script.tune_projector", _LLAVA
    else:
        by, source = "script.tuned_parts", _LLAVA_NEXT
    if "mm_vision_resampler" in parts:
        params = None  # its size is not in any dimension of ours
    elif "mm_mlp_adapter" not in parts:
        params = 0
    _trains_parts(
        draft, source, llm="mm_language_model" in parts, vision="mm_vision_tower" in parts,
        projector_params=params, by=by,
    )  # fmt: skip


def _llava(name: str, attention: str = "") -> KnownScript:
    defaults = {
        "seq.max_len": 512, "optimizer.name": "adamw_torch", "hf.bits": 16, "quant.double": True,
        "trainable.r": 64, "trainable.alpha": 16, "trainable.dropout": 0.05, "hf.use_peft": False,
    }  # fmt: skip
    table = script_table(
        f"LLaVA's {name}.py", _LLAVA, defaults,
        Row("tune_mm_mlp_adapter", "script.tune_projector", BOOLEAN, default=False, source=_LLAVA),
        Row("mm_tunable_parts", "script.tuned_parts", LIST, source=_LLAVA_NEXT),
        Row("mm_projector_type", "script.projector", TEXT, default="linear", source=_LLAVA),
    )  # fmt: skip
    facts = {"hf.lora_targets": ("all-linear",), "seq.pad": "longest"}
    return KnownScript(
        table, _LLAVA, "", facts, {"quant.prepares_kbit": True}, attention, _finish_llava
    )


# -- InternVL ------------------------------------------------------------------------------------


def _finish_internvl(draft: Draft) -> None:
    """Parts are frozen one by one; adapters are wrapped around the language model or the tower.

    ``grad_checkpoint`` is the model's own, beside the Trainer's ``gradient_checkpointing``; the
    projector takes four patches at once (mlp1 of modeling_internvl_chat.py).
    """
    draft.override("hf.checkpointing", draft.get("script.checkpoints"), "script.checkpoints")
    rank = draft.get("script.llm_rank") or 0
    draft.derive("hf.use_peft", rank > 0, "script.llm_rank", source=_INTERNVL)
    if rank:
        draft.derive("trainable.r", rank, "script.llm_rank")
        draft.derive("trainable.alpha", 2 * rank, "script.llm_rank")
        draft.derive("trainable.dropout", 0.05, "script.llm_rank")
        draft.derive("hf.lora_targets", ("all-linear",), "script.llm_rank")
    hidden, width = _hidden(draft), _tower_width(draft)
    params: int | None = 0
    if not draft.get("script.freeze_projector"):
        params = None if not (hidden and width) else 4 * width * hidden + hidden * hidden
    _trains_parts(
        draft, _INTERNVL, llm=not draft.get("script.freeze_llm"),
        vision=not draft.get("hf.freeze_backbone"), projector_params=params,
        by="script.freeze_llm",
    )  # fmt: skip


def _internvl(name: str, length: int) -> KnownScript:
    table = script_table(
        f"InternVL's {name}.py", _INTERNVL, {"seq.max_len": length, "hf.freeze_backbone": False},
        Row("freeze_llm", "script.freeze_llm", BOOLEAN, default=False, source=_INTERNVL),
        Row("freeze_mlp", "script.freeze_projector", BOOLEAN, default=False, source=_INTERNVL),
        Row("use_llm_lora", "script.llm_rank", COUNT, default=0, source=_INTERNVL),
        Row("grad_checkpoint", "script.checkpoints", BOOLEAN, default=True, source=_INTERNVL),
    )  # fmt: skip
    facts = {"hf.load_dtype": "bf16", "seq.pad": "longest"}
    return KnownScript(table, _INTERNVL, "", facts, attention="flash2", finish=_finish_internvl)


# -- Qwen-VL and MiniCPM-V -----------------------------------------------------------------------


def _finish_qwen(draft: Draft) -> None:
    """``set_model``: what is not asked for is frozen. The merger takes four patches at once."""
    half = "bf16" if draft.get("hf.bf16") else None
    draft.derive("hf.load_dtype", half, "hf.bf16", source=_QWEN)
    hidden, width = _hidden(draft), _tower_width(draft)
    params: int | None = 0
    if draft.get("script.tune_projector"):
        inner = 4 * width if width else None
        params = None if not (hidden and inner) else inner * inner + inner * hidden
    _trains_parts(
        draft, _QWEN, llm=bool(draft.get("script.tune_llm")),
        vision=bool(draft.get("script.tune_vision")), projector_params=params, by="script.tune_llm",
    )  # fmt: skip


_QWEN_SCRIPT = KnownScript(
    script_table(
        "Qwen-VL's train_qwen.py", _QWEN,
        {
            "seq.max_len": 512, "optimizer.name": "adamw_torch", "hf.use_peft": False,
            "trainable.r": 64, "trainable.alpha": 128, "trainable.dropout": 0.0,
        },
        Row("tune_mm_llm", "script.tune_llm", BOOLEAN, default=False, source=_QWEN),
        Row("tune_mm_mlp", "script.tune_projector", BOOLEAN, default=False, source=_QWEN),
        Row("tune_mm_vision", "script.tune_vision", BOOLEAN, default=False, source=_QWEN),
    ),
    _QWEN,
    facts={"hf.lora_targets": ("q_proj", "k_proj", "v_proj", "o_proj"), "seq.pad": "longest"},
    attention="flash2",
    finish=_finish_qwen,
)  # fmt: skip


def _finish_minicpm(draft: Draft) -> None:
    """The resampler between the tower and the language model is always trained; its size is not
    in any dimension of ours."""
    half = "fp16" if draft.get("hf.fp16") else "bf16" if draft.get("hf.bf16") else "fp32"
    draft.derive("hf.load_dtype", half, "hf.bf16", "hf.fp16", source=_MINICPM)
    _trains_parts(
        draft, _MINICPM, llm=bool(draft.get("script.tune_llm")),
        vision=bool(draft.get("script.tune_vision")), projector_params=None, by="script.tune_llm",
    )  # fmt: skip


_MINICPM_SCRIPT = KnownScript(
    script_table(
        "MiniCPM-V's finetune.py", _MINICPM,
        {
            "seq.max_len": 2048, "optimizer.name": "adamw_torch", "hf.use_peft": False,
            "trainable.r": 64, "trainable.alpha": 64, "trainable.dropout": 0.05,
        },
        Row("tune_llm", "script.tune_llm", BOOLEAN, default=True, source=_MINICPM),
        Row("tune_vision", "script.tune_vision", BOOLEAN, default=True, source=_MINICPM),
    ),
    _MINICPM,
    facts={"hf.lora_targets": ("q_proj", "k_proj", "v_proj")},
    finish=_finish_minicpm,
)  # fmt: skip

_BY_PATH: MappingABC[str, KnownScript] = {
    "llava/train/train": _llava("train"),
    "llava/train/train_mem": _llava("train_mem", "flash2"),
    "llava/train/train_xformers": _llava("train_xformers", "xformers"),
    "internvl/train/internvl_chat_finetune": _internvl("internvl_chat_finetune", 8192),
    "internvl/train/internvl_chat_pretrain": _internvl("internvl_chat_pretrain", 8192),
    "qwenvl/train/train_qwen": _QWEN_SCRIPT,
}
"""By the end of the script's path."""

# What only the options of MiniCPM-V's `finetune.py` are called.
_OF_MINICPM = frozenset({"tune_vision", "tune_llm", "llm_type", "max_slice_nums"})


# What only the options of LLaVA's scripts are called; projects that begin with a copy of it rename
# the folder.
_OF_LLAVA = frozenset(
    {"mm_projector_type", "mm_vision_select_layer", "mm_use_im_start_end", "mm_tunable_parts", "tune_mm_mlp_adapter"}
)  # fmt: skip
_LLAVA_STEMS = frozenset({"train", "train_mem", "train_xformers"})


def vision_script(launch: Launch) -> KnownScript | None:
    """The script that a command starts, if it is one of these."""
    if launch.stem == "finetune" and len(_OF_MINICPM & set(launch.flags.entries)) > 1:
        return _MINICPM_SCRIPT
    if launch.stem in _LLAVA_STEMS and len(_OF_LLAVA & set(launch.flags.entries)) > 1:
        return _BY_PATH[f"llava/train/{launch.stem}"]
    path = launch.name.replace("\\", "/").removesuffix(".py")
    if launch.is_module:
        path = launch.name.replace(".", "/")
    return next((s for end, s in _BY_PATH.items() if f"/{path}".endswith(f"/{end}")), None)


VISION_SCRIPTS: tuple[KnownScript, ...] = (*_BY_PATH.values(), _MINICPM_SCRIPT)
