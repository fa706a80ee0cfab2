"""What TRL's scripts and command lines say of libraries and the model, before its trainers have it.

Read from TRL f2cd5771 (1.10.0.dev0); ``TRL`` below is ``trl``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping as MappingABC
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.machine.meaning import launch_all_visible
from oomlint.dialects.meaning import Bounds, Meaning, Said
from oomlint.dialects.setting import Origin, Setting
from oomlint.dialects.trainer.custody import custody
from oomlint.dialects.trainer.fields import hf, script
from oomlint.dialects.trainer.model import loading
from oomlint.dialects.trainer.own_ways import own_ways
from oomlint.dialects.trainer.scripts import classifier, early_load, is_script, scripts
from oomlint.dialects.trainer.statements import idle_flags
from oomlint.dialects.trainer.unfollowed import unfollowed
from oomlint.dialects.trl.keys import MODEL_SOURCE
from oomlint.dialects.trl.lengths import without_dropped
from oomlint.dialects.trl.releases import LOADS_FP32
from oomlint.dialects.trl.training import trainers
from oomlint.documents.base import parser_of
from oomlint.documents.python.nodes import option_of
from oomlint.plan.fields import f
from oomlint.plan.library_changes import Release, release_of

meaning = Meaning(
    custody,
    own_ways,
    early_load,
    scripts,
    trainers,
    classifier,
    loading,
    launch_all_visible,
    idle_flags,
    unfollowed,
)


# Keys, and the first release without them; alignment-handbook's mixtures were written for earlier ones.
_WITHOUT: MappingABC[str, Release] = {
    "max_seq_length": (0, 20),
    "dataset_mixture": (0, 22),
    "dataset_mixer": (0, 22),
    "max_prompt_length": (0, 29),
    "use_liger_loss": (0, 28),
}

# Releases of TRL from which on it takes no older Python, transformers or accelerate: what its wheels on PyPI require, one
# patch of each minor release from 0.9.6 to 1.16.0. An installation has the newest that takes what the project pins.
_TAKES_FROM: tuple[tuple[Release, str, Release], ...] = (
    ((0, 11), "transformers", (4, 40)),
    ((0, 13), "transformers", (4, 46)),
    ((0, 18), "transformers", (4, 50)),
    ((0, 19), "transformers", (4, 51)),
    ((0, 19), "accelerate", (1, 4)),
    ((0, 20), "transformers", (4, 53, 2)),
    ((0, 21), "transformers", (4, 55)),
    ((0, 23), "transformers", (4, 56, 1)),
    ((0, 25), "python", (3, 10)),
    ((0, 29), "transformers", (4, 56, 2)),
    ((1, 15), "python", (3, 11)),
    ((1, 16), "accelerate", (1, 10, 1)),
)


def _beyond(blocks: list[Block]) -> Release | None:
    """The first release without a key that these files have."""
    named = {
        name
        for block in blocks
        if block.table.section in ("training", "trainer")
        for name in _WITHOUT
        if name in block.table.legal_keys and block.find(name) is not None
    }
    return min((_WITHOUT[name] for name in named), default=None)


@meaning.requires
def releases(run: Cells) -> Iterator[Bounds]:
    """Those that still have the keys."""
    beyond = run.once(_beyond)
    if beyond is not None:
        yield "trl", (), beyond


@meaning.brings
def what_the_newest_requires(run: Cells) -> Iterator[Bounds]:
    """Where TRL is not pinned: of TRL no release that does not take what is pinned, and of the others none that its newest
    does not take, unless a key gives away that it is an earlier one."""
    if run.version("trl") is not None or "trl" in run.known.untold:
        return
    refusing = (since for since, package, oldest in _TAKES_FROM if _is_before(run, package, oldest))
    beyond = min(refusing, default=None)
    if beyond is not None:
        yield "trl", (), beyond
    if run.once(_beyond) is None:
        for since, package, oldest in _TAKES_FROM:
            if package != "python" and (beyond is None or since < beyond):
                yield package, oldest, ()


def _is_before(run: Cells, package: str, oldest: Release) -> bool:
    """Whether the project pins what is older."""
    pinned = release_of(run.known.versions.get(package, ("", ""))[0])
    return pinned is not None and pinned < oldest


@meaning.said(f.seq.max_len)
def known_to_release(run: Cells, _field: Any, said: Said) -> Said:
    return without_dropped(run, said)


@meaning.default(f.trainable.r, f.trainable.alpha, f.trainable.dropout, source=MODEL_SOURCE)
def adapter(run: Cells) -> Any:
    """ModelConfig's, where no script writes a LoraConfig of its own."""
    if is_script(run) or not is_adapter_run(run):
        return None
    return {f.trainable.r: 16, f.trainable.alpha: 32, f.trainable.dropout: 0.05}


@meaning.said(hf.load_dtype)
def left_to_model_config(run: Cells, field: Any, said: Said) -> Said:
    """``from_pretrained(torch_dtype=model_config.torch_dtype)`` where no line and no file says it:
    ModelConfig's own default, which is none until 0.27 (see LOADS_FP32), and that release has the
    field under its new name alone (TRL 0.26.0 and 0.28.0 trainer/model_config.py)."""
    if not isinstance(said, Origin) or said.entry is None or said.row is None:
        return said
    option = option_of(said.entry.value)
    if option not in ("dtype", "torch_dtype") or not run.once(_parses_model_config):
        return said
    if option == "dtype" and run.has(LOADS_FP32):
        return Setting(said.row.kind.read("float32"), Origin("derived", said.block))
    return None


def _parses_model_config(blocks: list[Block]) -> bool:
    parsers = (parser_of(block.document) for block in blocks)
    return any("trl.ModelConfig" in parser.bases for parser in parsers if parser is not None)


@meaning.default(f.load.dtype, source=f"{MODEL_SOURCE}:89 and trainer/utils.py:1144: float32")
def loads_wide(run: Cells) -> Any:
    """A model that the trainer loads by its name."""
    if run[hf.load_dtype] is not None or run.is_unread(hf.load_dtype) or run[script.model_object]:
        return None
    return "fp32" if run.has(LOADS_FP32) else None
