"""EasyR1: ``python -m verl.trainer.main config=FILE key=value …``, and the YAML that it names.

Read from hiyouga/EasyR1 b44b311 (2026-07-30). It grew out of verl and kept the name of its package;
program, keys and workers are its own. Ray starts the ranks.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.easyr1.keys import EASYR1
from oomlint.dialects.easyr1.meaning import meaning
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.omegaconf import OmegaConfBlock, OmegaConfOverrides
from oomlint.documents import SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, Mapping, Scalar, roots
from oomlint.documents.text import Location

_MODULE = "verl.trainer.main"


class EasyR1(Dialect):
    name = "easyr1"
    markers = (
        b"verl.trainer.main",
        b"micro_batch_size_per_device_for_update",
        b"rollout_batch_size",
    )
    suffixes = (*YAML_SUFFIXES, *SHELL_SUFFIXES)
    markers_prove = False
    packages = ("verl",)
    declared_in = (
        "verl/trainer/config.py",
        "verl/workers/config.py",
        "verl/workers/actor/config.py",
        "verl/workers/rollout/config.py",
    )
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            if _is_config(root):
                anchor = root.entries["worker"].key_span
                yield Claim(
                    self, "run", document, (OmegaConfBlock(document, root, EASYR1, anchor),)
                )
        for launch in launches(document):
            if launch.is_module and launch.name == _MODULE:
                yield self._launch(launch)

    def _launch(self, launch: Launch) -> Claim:
        document, words = launch.document, launch.command.assignments
        config = words.entries.get("config")
        # The command starts one process, which asks Ray for the others.
        scene = launch.blocks[:-1]
        if config is None or not isinstance(config.value, Scalar):
            block = OmegaConfBlock(document, words, EASYR1, launch.anchor)
            return Claim(self, "run", document, (*scene, block), launch.scene_references)
        path, where = config.value.value, Location(document.source.path, place(config.value))
        named = (Reference(path, where, self.name),) if isinstance(path, str) else ()
        overrides = OmegaConfOverrides(document, words, EASYR1, launch.anchor)
        references = (*launch.scene_references, *named)
        return Claim(self, "launch", document, (*scene, overrides), references)


def _is_config(root: Mapping) -> bool:
    """``worker`` with an actor that has EasyR1's batches, optimizer or model below it."""
    actor = root.section("worker", "actor")
    if actor is None:
        return False
    own = {"global_batch_size", "micro_batch_size_per_device_for_update", "offload", "model"}
    return bool(own & set(actor.entries)) and bool(
        {"data", "algorithm", "trainer"} & set(root.entries)
    )
