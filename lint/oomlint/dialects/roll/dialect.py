"""ROLL: YAML for Hydra, a section for each role.

Read from alibaba/ROLL 8eb27cc2 (2026-08-18). ``python examples/start_rlvr_pipeline.py --config_path FOLDER
--config_name NAME`` takes no overrides, so that a file says all; what its ``defaults`` merge in are games
and their prompts. Ray starts the ranks, as many as a role's ``device_mapping`` has GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.entries import plain_value
from oomlint.dialects.omegaconf import OmegaConfBlock
from oomlint.dialects.reading import StrayKey
from oomlint.dialects.roll.keys import ROLES, TABLES
from oomlint.dialects.roll.meaning import meaning
from oomlint.documents import YAML_SUFFIXES
from oomlint.documents.base import Document, Mapping, roots

_STRATEGIES = {"megatron_train": "megatron", "fsdp2_train": "fsdp2"}
# Roles that pipelines have without one that trains: answers are written, or rewarded, and no more.
_OTHERS = ("actor_infer", "student_infer", "reference", "critic")


class _File(OmegaConfBlock, frozen=True, eq=False):
    """A config: what it merges in refers to keys of its own (examples/config/traj_envs.yaml)."""

    def stray_keys(self, mapping: Mapping, prefix: str) -> Iterator[StrayKey]:
        merges = "defaults" in self.mapping.entries
        for stray in super().stray_keys(mapping, prefix):
            if not merges or "." in stray.path or stray.nearest:
                yield stray


class Roll(Dialect):
    name = "roll"
    markers = (b"strategy_args",)
    markers_prove = False
    suffixes = YAML_SUFFIXES
    declared_in = ("roll/configs/worker_config.py",)
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            claim = self._file(document, root)
            if claim is not None:
                yield claim

    def _file(self, document: Document, root: Mapping) -> Claim | None:
        for role in ROLES:
            section = root.section(role)
            if section is None or not _is_role(section):
                continue
            strategy = _STRATEGIES.get(str(_strategy(section)))
            if strategy is None or "device_mapping" not in section.entries:
                # deepspeed_train of before 2026-06, or a role that only scores.
                return Claim(self, "aside", document, ())
            anchor = root.entries[role].key_span
            block = _File(document, root, TABLES[role, strategy], anchor)
            return Claim(self, "run", document, (block,))
        if any(_is_role(each) for role in _OTHERS if (each := root.section(role)) is not None):
            return Claim(self, "aside", document, ())
        return None


def _is_role(section: Mapping) -> bool:
    return _strategy(section) is not None


def _strategy(section: Mapping) -> object:
    arguments = section.section("strategy_args")
    named = arguments.entries.get("strategy_name") if arguments is not None else None
    return plain_value(named.value, "omegaconf") if named is not None else None
