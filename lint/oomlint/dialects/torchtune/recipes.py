"""Which recipe of torchtune runs, on how many ranks, and what of its config counts.

The YAML does not name its recipe: the launch line does, in files that torchtune ships the comment
at their head, else keys and the file's name tell. Read from torchtune 0.7.0 (bd2a0fc7,
2026-04-23); ``TT`` below is the root of that checkout.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Left, Meaning, Said, Sourced
from oomlint.dialects.omegaconf import REFERENCE
from oomlint.dialects.setting import Origin, Setting
from oomlint.dialects.table import Row
from oomlint.dialects.torchtune.keys import RECIPES, TORCHTUNE, header, own
from oomlint.dialects.torchtune.releases import EXPANDS_SEGMENTS
from oomlint.documents.base import Scalar
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

recipes = Meaning()

_F = f.parallel.fsdp

# -- what counts as said ---------------------------------------------------------------------------


def _is_removed(run: Cells, field: Any) -> bool:
    """``~key`` on the command line deletes it from the YAML (TT/torchtune/config/_parse.py)."""
    row = TORCHTUNE.by_field.get(field)
    removed = run[own.removed] or ()
    return row is not None and any(f"{row.key}.".startswith(f"{key}.") for key in removed)


def _named_by(said: Said) -> Row | None:
    """The row of the key that a value stands for: of ``batch_size`` for ``${batch_size}``."""
    entry = said.origin.entry if isinstance(said, Setting) else None
    node = None if entry is None else entry.value
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return None
    match = REFERENCE.fullmatch(node.value)
    return TORCHTUNE.names.get(match[1]) if match else None


@recipes.said(*TORCHTUNE.by_field)
def removed_or_referring(run: Cells, field: Any, said: Said) -> Said:
    """A value that refers to another key changes with it: ``batch_size_val: ${batch_size}``."""
    if said is None or _is_removed(run, field):
        return None
    found, seen = said, {field}
    while isinstance(found, Setting):
        row, other = found.origin.row, _named_by(found)
        if row is None or other is None or other.kind is not row.kind or other.field in seen:
            break
        seen.add(other.field)
        referred = None if _is_removed(run, other.field) else run.stated(other.field)
        if referred is None or isinstance(referred, Left):
            break
        found = referred
    if isinstance(said, Setting) and isinstance(found, Setting) and found is not said:
        return Setting(found.value, said.origin, said.shadowed, max(said.level, found.level))
    return found


@recipes.said(*header.all())
def suggested(run: Cells, field: Any, said: Said) -> Said:
    """Nobody has to start what the comment at the head of a file suggests."""
    if not isinstance(said, Setting):
        return said
    origin = replace(said.origin, source="the comment at the head of the file suggests it")
    return Setting(said.value, origin, said.shadowed, Level.ASSUMED)


@recipes.said(_F.cpu_offload, _F.reshard_after_forward)
def read_by_distributed_recipes(run: Cells, field: Any, said: Said) -> Said:
    return Left(Origin("derived", source=RECIPES)) if is_alone(run) else said


# -- the recipe ------------------------------------------------------------------------------------

# What only the distributed recipes read.
_OF_DISTRIBUTED = (
    _F.cpu_offload,
    _F.reshard_after_forward,
    own.sharded_layers,
    f.parallel.dp_shard,
    f.parallel.dp_replicate,
    f.parallel.tp,
    f.parallel.cp,
)


def _is_single(recipe: str | None) -> bool | None:
    if recipe is None:
        return None
    if "single_device" in recipe:
        return True
    return False if "distributed" in recipe else None


@recipes.derive(own.single)
def recipe_for_one_device(run: Cells) -> Any:
    """The YAML does not name its recipe: the launch line does, else keys tell."""
    recipe = run[own.recipe]
    if recipe is not None:
        return _is_single(recipe)
    if _is_single(run[header.recipe]) is not None:
        return None
    return False if any(isinstance(run.stated(x), Setting) for x in _OF_DISTRIBUTED) else None


@recipes.assume(own.single)
def suggested_recipe(run: Cells) -> Any:
    recipe = run[header.recipe]
    if run[own.recipe] is not None or _is_single(recipe) is None:
        return None
    return Sourced(_is_single(recipe), f"the comment at the head of the file starts {recipe}")


@recipes.assume(own.single, why="the file is named after the single-device recipes")
def recipe_of_file_name(run: Cells) -> Any:
    if run[own.recipe] is not None:
        return None
    path = next((block.path for block in run.blocks if block.table is TORCHTUNE), "")
    return True if "single_device" in path.rpartition("/")[2] else None


def is_alone(run: Cells) -> bool | None:
    """Whether one device trains; ``None`` where neither the recipe nor the ranks tell."""
    single = run[own.single]
    if single is not None:
        return single
    ranks = run[f.parallel.world]
    return None if ranks is None else ranks == 1


# -- ranks -----------------------------------------------------------------------------------------

_ONE_PROCESS = f"{RECIPES}/*_single_device.py: one process"
_COMMENT = "the comment at the head of the file starts that many"

recipes.constant(
    f.env.expandable_segments, True, "torchtune bd2a0fc7 torchtune/__init__.py:15", EXPANDS_SEGMENTS
)


@recipes.derive(f.parallel.gpus_per_node, source=_ONE_PROCESS)
def one_rank(run: Cells) -> Any:
    return 1 if run[own.single] else None


@recipes.derive(f.parallel.nodes, source=_ONE_PROCESS)
def one_node(run: Cells) -> Any:
    return 1 if run[own.single] else None


@recipes.derive(f.parallel.gpus_per_node, source=RECIPES)
def training_workers(run: Cells) -> Any:
    """recipes/dev/async_grpo_full_finetune_distributed.py starts actors of its own."""
    return run[own.training_workers]


def _follows_comment(run: Cells) -> bool:
    """Whether nothing but the comment tells how many ranks a distributed recipe has."""
    ranks = f.parallel.gpus_per_node
    return run[own.single] is False and not run.is_auto(ranks) and not run.is_unread(ranks)


@recipes.assume(f.parallel.gpus_per_node, why=_COMMENT)
def suggested_ranks(run: Cells) -> Any:
    return run[header.ranks] if _follows_comment(run) else None


@recipes.default(f.parallel.nodes, source=_COMMENT)
def suggested_nodes(run: Cells) -> Any:
    return run[header.nodes] if _follows_comment(run) else None
