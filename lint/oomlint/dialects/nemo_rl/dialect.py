"""NeMo-RL: chains of YAML, and the programs that start them with overrides.

Read from NVIDIA-NeMo/RL 7ea279ab (2026-08-22). ``uv run examples/run_grpo.py --config FILE key=value …``;
a file names those that it begins with under ``defaults``, by their path. Ray starts the ranks.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence

from oomlint.dialects.base import Claim, ClaimKind, Reference
from oomlint.dialects.block import Block
from oomlint.dialects.configs import ConfigDialect
from oomlint.dialects.entries import plain_value
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.nemo_rl.keys import ALGORITHMS, NEMO_RL
from oomlint.dialects.nemo_rl.meaning import meaning
from oomlint.dialects.nemo_rl.merged import NemoRlBlock, NemoRlOverrides, in_whole
from oomlint.documents import SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import (
    UNKNOWN,
    Document,
    Mapping,
    Scalar,
    Sequence as Items,
    roots,
)
from oomlint.documents.text import Location

# The config that each of its programs reads where no --config is given (examples/run_*.py).
_CONFIGS = {
    "run_sft": "sft", "run_dpo": "dpo", "run_rm": "rm", "run_grpo": "grpo_math_1B", "run_grpo_math": "grpo_math_1B",
    "run_grpo_rm": "grpo_rm_1B", "run_grpo_sliding_puzzle": "grpo_sliding_puzzle", "run_ppo": "ppo_math_1B",
    "run_distillation": "distillation_math", "run_distillation_math": "distillation_math",
    "run_vlm_grpo": "vlm_grpo_3B", "run_vlm_sft": "sft_vlm_3B", "run_grpo_single_controller": "grpo_math_1B",
}  # fmt: skip
_PROGRAM = re.compile(r"run_(?:\w+_)?(?:sft|dpo|rm|grpo|ppo|distillation|nemo_gym)(?:_\w+)?")
_OWN_SECTIONS = ALGORITHMS | {"policy", "cluster", "checkpointing", "loss_fn", "teacher", "value"}
_BACKENDS = frozenset({"dtensor_cfg", "megatron_cfg"})
_OVERRIDDEN = tuple(f"{section}." for section in _OWN_SECTIONS)


class NemoRl(ConfigDialect):
    name = "nemo-rl"
    packages = ("nemo_rl",)
    markers = (b"dtensor_cfg", b"megatron_cfg", b"defaults:", b"run_")
    markers_prove = False
    suffixes = (*YAML_SUFFIXES, *SHELL_SUFFIXES)
    declared_in = ("nemo_rl/models/policy/__init__.py",)
    meaning = meaning

    def is_config(self, root: Mapping) -> bool:
        """A policy with one of its backends, or sections of its own over a file that is named by its path."""
        policy = root.section("policy")
        keys = set(root.entries)
        if (
            policy is not None
            and _BACKENDS & set(policy.entries)
            and "model_name" in policy.entries
        ):
            return bool((ALGORITHMS | {"cluster"}) & keys)
        if next(_defaults(root), None) is None or not keys <= _ROOT:
            return False
        return len(keys) > 1

    def started_by(self, launch: Launch) -> Iterable[Claim]:
        if _is_program(launch):
            yield self._launch(launch)

    def adopt(self, document: Document) -> Claim | None:
        return next((self.of_config(document, root) for root in roots(document)), None)

    def layered(self, claims: Sequence[Claim]) -> Iterable[Block]:
        """A file counts for more than those that it begins with; what each refers to, all of them say
        together."""
        blocks = [block for claim in claims for block in claim.blocks]
        own = [block for block in blocks if isinstance(block, NemoRlBlock)]
        files = [block for block in own if not isinstance(block, NemoRlOverrides)]
        lines = [block for block in own if isinstance(block, NemoRlOverrides)]
        others = (block for block in blocks if not isinstance(block, NemoRlBlock))
        return (*others, *in_whole(files[::-1], lines))

    def of_config(self, document: Document, root: Mapping) -> Claim:
        entry = root.entries.get("policy") or next(iter(root.entries.values()), None)
        anchor = root.span if entry is None else entry.key_span
        block = NemoRlBlock(document, root, NEMO_RL, anchor)
        below = tuple(self._below(document, root))
        kind: ClaimKind = "aside" if not below and _trains_otherwise(root) else "run"
        return Claim(self, kind, document, (block,), below)

    def _below(self, document: Document, root: Mapping) -> Iterator[Reference]:
        """The files that one begins with, those that count for more first."""
        folder = posixpath.dirname(document.source.path.replace("\\", "/"))
        for scalar in reversed(list(_defaults(root))):
            path = posixpath.normpath(posixpath.join(folder, str(scalar.value)))
            yield Reference(path, Location(document.source.path, scalar.span), self.name)

    def _launch(self, launch: Launch) -> Claim:
        document, words = launch.document, launch.command.assignments
        if _is_completed_elsewhere(launch):
            return Claim(self, "aside", document, ())
        # The command starts one process, which asks Ray for the others.
        scene = launch.blocks[:-1]
        block = NemoRlOverrides(document, words, NEMO_RL, launch.anchor)
        references = (*launch.scene_references, *self._config(launch))
        return Claim(self, "launch", document, (*scene, block), references)

    def _config(self, launch: Launch) -> Iterator[Reference]:
        entry = launch.flag("config")
        if entry is not None:
            yield from launch.reference(entry.value, self.name)
            return
        name = _CONFIGS.get(launch.stem)
        if name is not None:
            folder = launch.name.rpartition("/")[0]
            path = posixpath.join(folder, f"configs/{name}.yaml").removeprefix("./")
            where = Location(launch.document.source.path, place(launch.program))
            yield Reference(path, where, self.name)


def _is_program(launch: Launch) -> bool:
    """One of its programs, or one of that kind whose words are of its sections."""
    if launch.script is None or _PROGRAM.fullmatch(launch.stem) is None:
        return False
    words = launch.command.assignments.entries
    if any(key.lstrip("+~").startswith(_OVERRIDDEN) for key in words):
        return True
    # Scripts of TRL's kin have the same names and lie elsewhere.
    is_shipped = launch.name.removesuffix(f"{launch.stem}.py").endswith("examples/")
    return is_shipped and not launch.arguments and set(launch.flags.entries) <= {"config"}


def _is_completed_elsewhere(launch: Launch) -> bool:
    """Whether the line leaves its config to whoever starts the script: its words change a few keys of one that may be any."""
    entry = launch.flag("config")
    value = entry.value if entry is not None else None
    return isinstance(value, Scalar) and value.value is UNKNOWN


def _defaults(root: Mapping) -> Iterator[Scalar]:
    """What ``defaults`` names: one path or several."""
    entry = root.entries.get("defaults")
    value = entry.value if entry is not None else None
    items = value.items if isinstance(value, Items) else (value,)
    for item in items:
        path = str(item.value) if isinstance(item, Scalar) else ""
        if isinstance(item, Scalar) and path.endswith((".yaml", ".yml")):
            # What examples/run_eval.py begins with trains nothing.
            if posixpath.basename(path).startswith("eval"):
                return
            yield item


def _trains_otherwise(root: Mapping) -> bool:
    """Whether neither backend is switched on: up to 0.3 a worker of FSDP 1 trained then, and forks have
    backends of their own."""
    backends = (root.section("policy", name) for name in _BACKENDS)
    switches = [
        plain_value(backend.entries["enabled"].value, "omegaconf")
        for backend in backends
        if backend is not None and "enabled" in backend.entries
    ]
    return bool(switches) and all(switch is False for switch in switches)


_ROOT = _OWN_SECTIONS | {
    "defaults", "data_plane", "data", "logger", "env", "reward_penalties", "value_loss_fn", "async_rl",
    "on_policy_distillation", "teachers",
}  # fmt: skip
