"""What TRL's scripts and command lines say of libraries and the model, before its trainers have it.

Read from TRL f2cd5771 (1.10.0.dev0); ``TRL`` below is ``trl``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.machine.meaning import launch_all_visible
from oomlint.dialects.meaning import Bounds, Meaning, Wishes
from oomlint.dialects.table import Setting
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.script_meaning import is_script, script
from oomlint.dialects.trl.changes import LOADS_FP32
from oomlint.dialects.trl.fields import handbook, trl
from oomlint.dialects.trl.keys import MODEL_SOURCE
from oomlint.dialects.trl.training import trainers
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(trainers, script, launch_all_visible)


@meaning.requires
def releases(run: Cells) -> Iterator[Bounds]:
    """What the newest requires where TRL is not pinned (TRL 1.9.0 pyproject.toml), and which still
    have a key: ``max_seq_length`` went with 0.20.0, ``max_prompt_length`` with 0.29.0;
    alignment-handbook's mixtures are of that time."""
    length = run.said(f.seq.max_len)
    if isinstance(length, Setting) and length.origin.key == "max_seq_length":
        yield "trl", (), (0, 20)
    elif run.says(handbook.mixture) or run.says(handbook.mixer):
        yield "trl", (), (0, 22)
    elif run.says(f.objective.rollout.max_prompt_tokens):
        yield "trl", (), (0, 29)
    elif run.version("trl") is None:
        yield "transformers", (4, 56), ()
        yield "accelerate", (1, 4), ()


@meaning.default(f.trainable.r, f.trainable.alpha, f.trainable.dropout, source=MODEL_SOURCE)
def adapter(run: Cells) -> Any:
    """ModelConfig's, where no script writes a LoraConfig of its own."""
    if is_script(run) or not is_adapter_run(run):
        return None
    return {f.trainable.r: 16, f.trainable.alpha: 32, f.trainable.dropout: 0.05}


@meaning.default(f.load.dtype, source=f"{MODEL_SOURCE}:89 and trainer/utils.py:1144: float32")
def loads_wide(run: Cells) -> Any:
    """A model that the trainer loads by its name."""
    if run[hf.load_dtype] is not None or run[trl.model_object]:
        return None
    return "fp32" if run.has(LOADS_FP32) else None
