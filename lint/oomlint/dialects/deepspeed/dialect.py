"""DeepSpeed JSON: the ``zero_optimization`` file that trainers and launch lines name.

Read from DeepSpeed edaa7221 (0.19.x): ``DS`` below is ``deepspeed/runtime``.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.deepspeed.alone import alone
from oomlint.dialects.deepspeed.blocks import deepspeed_block, former_block, preset_block
from oomlint.dialects.deepspeed.keys import DEEPSPEED
from oomlint.dialects.deepspeed.presets import is_at_home, is_shipped, is_whole
from oomlint.documents.base import Document, Mapping, root_of, roots

_SIGNATURE = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu"})
_SUPPORTING = frozenset({"fp16", "bf16", "optimizer", "scheduler", "gradient_accumulation_steps"})

# GPT-NeoX writes DeepSpeed's keys beside the model's own into one file, and makes the JSON for
# DeepSpeed itself (gpt-neox 2e69e0fe configs/autotuning_configs, megatron/neox_arguments).
_GPT_NEOX = ({"num-layers", "hidden-size"}, {"num_layers", "hidden_size"})


def looks_like_deepspeed(keys: Iterable[str]) -> bool:
    present = set(keys)
    if any(own <= present for own in _GPT_NEOX):
        return False
    if _SIGNATURE & present:
        return True
    shared = "train_batch_size" in present and bool(_SUPPORTING & present)
    return shared and not _are_mostly_foreign(present)


def _are_mostly_foreign(keys: set[str]) -> bool:
    """Other programs have a batch size, an accumulation and an optimizer too, among many keys of their own; a
    DeepSpeed config has a misspelt key or two."""
    known = DEEPSPEED.legal_keys
    foreign = [
        key for key in keys if key not in known and not key.startswith(DEEPSPEED.known_prefixes)
    ]
    return 2 * len(foreign) > len(keys)


class DeepSpeed(Dialect):
    name = "deepspeed"
    markers = (b"zero_optimization", b"train_micro_batch_size_per_gpu", b"train_batch_size")
    suffixes = (".json",)
    meaning = alone
    # accelerate 1.1.0 utils/dataclasses.py:1127 asks for the zero_optimization object; without a batch
    # size DeepSpeed itself stops too (DS/config.py _batch_assertion).
    turns_down = "no key in it is one of a DeepSpeed config"

    def recognise(self, document: Document) -> Iterable[Claim]:
        root = root_of(document)
        if not isinstance(root, Mapping) or not looks_like_deepspeed(root.entries):
            return
        yield _claim(self, document, root)

    def adopt(self, document: Document) -> Claim | None:
        """Also a YAML file, which scripts of their own read and hand on; not one without a key of DeepSpeed's,
        which says no ZeRO stage and is not stage 0 either."""
        root = next(roots(document), None)
        if root is None or DEEPSPEED.legal_keys.isdisjoint(root.entries):
            return None
        return _claim(self, document, root)

    def preset(self, reference: Reference) -> Claim | None:
        """A config that a framework ships, by its usual path, or shipped, by the one of that day."""
        former = former_block(reference.path, reference.location, reference.framework)
        if former is not None:
            return Claim(self, "part", former.document, (former,))
        if not is_at_home(reference.path):
            return None
        block = preset_block(reference.path, reference.location)
        if block is None:
            return None
        shipped = is_whole(reference.path)
        return Claim(self, "part", block.document, (block,), is_shipped=shipped)


def _claim(dialect: DeepSpeed, document: Document, root: Mapping) -> Claim:
    shipped = is_shipped(document.source.path, document.source.text)
    block = deepspeed_block(document, root)
    return Claim(dialect, "part", document, (block,), is_shipped=shipped)
