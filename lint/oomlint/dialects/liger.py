"""Liger's kernels: of which models it patches the classes, and that it lets the others be.

Read from liger-kernel 0.6.2 to 0.8.5 ``transformers/monkey_patch.py``.
"""

from __future__ import annotations

from oomlint.dialects.cells import Cells
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

# MODEL_TYPE_TO_APPLY_LIGER_FN of 0.8.5, which has all those of earlier releases.
_PATCHED = frozenset(
    "deepseek_v2 deepseek_v3 deepseek_v4 exaone4 falcon_h1 gemma gemma2 gemma3 gemma3_text gemma4 "
    "gemma4_text glm4 glm4v glm4v_moe gpt_oss granite hunyuan_v1_dense hunyuan_v1_moe internvl llama "
    "llama4 llama4_text llava ministral mistral mixtral mllama mllama_text_model muse_glimmer nemotron "
    "olmo2 olmo3 paligemma phi3 pixtral qwen2 qwen2_5_vl qwen2_5_vl_text qwen2_vl qwen2_vl_text qwen3 "
    "qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe "
    "qwen3_vl_moe_text qwen3_vl_text smollm3 smolvlm".split()
)


def liger_patches(run: Cells, known: frozenset[str] = _PATCHED) -> bool:
    """Whether the model's class gets Liger's kernels and its loss: of a type that is not ``known``
    they are left out with a line in the log. A model of which no type is known may have them."""
    arch = run[f.model.arch]
    return arch is None or arch in known


def check_liger_patches(run: Cells, known: frozenset[str] = _PATCHED) -> None:
    """
    Raises:
        CannotEdit: Liger would do nothing for the model.
    """
    if not liger_patches(run, known):
        raise CannotEdit(f"Liger has no kernels for models of the type {run[f.model.arch]}")
