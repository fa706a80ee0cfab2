"""DeepSpeed JSON: the ``zero_optimization`` file that trainers and launch lines name.

Read from DeepSpeed edaa7221 (0.19.x): ``DS`` below is ``deepspeed/runtime``.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.deepspeed.alone import alone
from oomlint.dialects.deepspeed.blocks import deepspeed_block, preset_block
from oomlint.dialects.deepspeed.keys import DEEPSPEED
from oomlint.dialects.deepspeed.presets import is_shipped, is_whole
from oomlint.dialects.draft import Draft
from oomlint.documents.base import Document, Mapping

_SIGNATURE = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu"})
_SUPPORTING = frozenset({"fp16", "bf16", "optimizer", "scheduler", "gradient_accumulation_steps"})


def looks_like_deepspeed(keys: Iterable[str]) -> bool:
    present = set(keys)
    return bool(_SIGNATURE & present) or (
        "train_batch_size" in present and bool(_SUPPORTING & present)
    )


class DeepSpeed(Dialect):
    name = "deepspeed"
    markers = (b"zero_optimization", b"train_micro_batch_size_per_gpu", b"train_batch_size")
    suffixes = (".json",)
    meaning = alone

    def recognise(self, document: Document) -> Iterable[Claim]:
        root = getattr(document, "root", None)
        if not isinstance(root, Mapping) or not looks_like_deepspeed(root.entries):
            return
        yield _claim(self, document, root)

    def adopt(self, document: Document) -> Claim | None:
        root = getattr(document, "root", None)
        if not isinstance(root, Mapping):
            return None
        return _claim(self, document, root)

    def preset(self, reference: Reference) -> Claim | None:
        """A config that a framework ships, by its usual file name."""
        block = preset_block(reference.path, reference.location)
        if block is None:
            return None
        shipped = is_whole(reference.path)
        return Claim(self, "part", block.document, (block,), is_shipped=shipped)


def _claim(dialect: DeepSpeed, document: Document, root: Mapping) -> Claim:
    shipped = is_shipped(document.source.path, document.source.text)
    block = deepspeed_block(document, root)
    return Claim(dialect, "part", document, (block,), is_shipped=shipped)


def take_wished_preset(draft: Draft) -> None:
    """Where a fix names another shipped DeepSpeed config, what that one says counts."""
    setting = draft.settings.get("ref.deepspeed")
    if setting is None or setting.origin.kind != "option":
        return
    location = setting.shadowed[0].origin.value_location if setting.shadowed else None
    if location is None:
        return
    claim = DeepSpeed().preset(Reference(str(setting.value), location, "deepspeed"))
    if claim is None:
        return
    for name, old in list(draft.settings.items()):
        if old.origin.block is not None and old.origin.block.table is DEEPSPEED:
            draft.forget(name)
    for name, origin in list(draft.auto.items()):
        if origin.block is not None and origin.block.table is DEEPSPEED:
            del draft.auto[name]
    reading = claim.blocks[0].read()
    draft.settings.update(reading.settings)
    draft.auto.update(reading.auto)
    for row in DEEPSPEED.rows:
        if row.default is not None and row.field not in draft.auto:
            draft.default(row.field, row.default, row.source)


def upgrade_old_offload(draft: Draft) -> None:
    """Old spellings of offloading (DS/zero/config.py:181-202 map them to the new objects)."""
    for old, new in (
        ("ds.cpu_offload", "offload.optimizer"),
        ("ds.cpu_offload_param", "offload.params"),
    ):
        draft.derive(new, draft.get(old), old)
    flag = draft.get("ds.zero_flag")
    if isinstance(flag, bool):
        draft.override("parallel.zero.stage", int(flag), "ds.zero_flag")
