"""AReaL: YAML of a run, and the programs that are given one.

Read from inclusionAI/AReaL 4aef98d8 (2026-05-21). ``python3 examples/math/gsm8k_rl.py --config FILE key=value …``:
Hydra composes the file and the words behind it. Every role has a backend with its degrees
(``actor.backend: "fsdp:d4"``); before 2026-03-24 one ``allocation_mode`` had all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from oomlint.dialects.areal.keys import AREAL
from oomlint.dialects.areal.meaning import meaning
from oomlint.dialects.base import Claim
from oomlint.dialects.configs import ConfigDialect
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.omegaconf import OmegaConfBlock, OmegaConfOverrides
from oomlint.dialects.reading import StrayKey
from oomlint.documents import SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, Mapping

_PLACE = re.compile(r"\s*(?P<backend>fsdp|megatron|archon|sglang|vllm)(?:\[\w+\])?\s*[:.]")
_MODE = re.compile(
    r"\s*(?:sglang|vllm|fsdp|megatron|archon)?(?:\[\w+\])?[:.]?\(?(?:attn:)?[dtpce]\d"
)
_ROLES = ("actor", "model", "rollout")
_NAMES = frozenset({"experiment_name", "trial_name"})


class _File(OmegaConfBlock, frozen=True, eq=False):
    """A config: programs have classes of their own, which add keys at the top."""

    def stray_keys(self, mapping: Mapping, prefix: str) -> Iterator[StrayKey]:
        for stray in super().stray_keys(mapping, prefix):
            if "." in stray.path:
                yield stray


class Areal(ConfigDialect):
    name = "areal"
    markers = (b"trial_name", b"allocation_mode")
    markers_prove = False
    suffixes = (*YAML_SUFFIXES, *SHELL_SUFFIXES)
    declared_in = ("areal/api/cli_args.py",)
    meaning = meaning

    def is_config(self, root: Mapping) -> bool:
        """Its two names, and a role with a backend, or the cards of all roles in one line."""
        if not set(root.entries) >= _NAMES:
            return False
        if _MODE.match(str(root.said("allocation_mode"))):
            return True
        return any(_PLACE.match(str(root.said(role, "backend"))) for role in _ROLES)

    def started_by(self, launch: Launch) -> Iterable[Claim]:
        if launch.script is not None and _OWN_WORDS & set(launch.command.assignments.entries):
            yield self._launch(launch)

    def of_config(self, document: Document, root: Mapping) -> Claim:
        role = root.entries.get("actor") or root.entries.get("model")
        if role is None or _trains_otherwise(root):
            # It serves a model, or trains with archon, the third backend, which is called experimental.
            return Claim(self, "aside", document, ())
        block = _File(document, root, AREAL, role.key_span)
        return Claim(self, "run", document, (block,))

    def _launch(self, launch: Launch) -> Claim:
        words = OmegaConfOverrides(
            launch.document, launch.command.assignments, AREAL, launch.anchor
        )
        entry = launch.flag("config")
        named = () if entry is None else tuple(launch.reference(entry.value, self.name))
        # The command starts one process, which asks a scheduler for the others.
        blocks = (*launch.blocks[:-1], words)
        return Claim(self, "launch", launch.document, blocks, (*launch.scene_references, *named))


_OWN_WORDS = frozenset(
    {"scheduler.type", "allocation_mode", "actor.backend", "rollout.backend", "cluster.n_gpus_per_node", "cluster.fileroot"}
)  # fmt: skip


def _trains_otherwise(root: Mapping) -> bool:
    """By a backend that is none of ours."""
    role = root.section("actor") or root.section("model")
    return role is not None and str(role.said("backend")).lstrip().startswith("archon")
