"""verl: the launch lines of its PPO and SFT trainers, and whole configs of the same keys.

Read from verl 0.8.0.dev (b178a3cd, 2026-01-29); ``VL`` below is its ``verl`` package. Hydra
merges ``key=value`` words into the configs that verl ships under VL/trainer/config, or into
those of the project's own copy of it, so that a command and these say all there is to say. Ray
starts the ranks of PPO, torchrun those of SFT.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block
from oomlint.dialects.common.paths import with_ends_of_paths
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launchers import read_launch
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.omegaconf import HydraOverrides, OmegaConfBlock, OmegaConfOverrides
from oomlint.dialects.table import Table
from oomlint.dialects.verl.carried import CODE, DECLARING, VERSION
from oomlint.dialects.verl.keys import (
    ACTOR_MODEL,
    LAUNCHED,
    RAY,
    VERL_PPO,
    VERL_SFT,
    VERL_SFT_ENGINE,
)
from oomlint.dialects.verl.meaning import meaning
from oomlint.documents.base import (
    UNKNOWN,
    Document,
    Entry,
    Mapping,
    Scalar,
    Sequence,
    ShellDocument,
    roots,
)
from oomlint.documents.text import Location, Span

_MODULE = re.compile(r"-m\s+((?:verl|recipe)\.[\w.]+)")
_PATH_KEYS = (
    ACTOR_MODEL + "path", "critic.model.path", "reward_model.model.path", "model.partial_pretrain",
    "model.path",
)  # fmt: skip


class Verl(Dialect):
    name = "verl"
    packages = ("verl",)
    markers = (b"verl", b"actor_rollout_ref")
    suffixes = (".yaml", ".yml", ".sh", ".bash", ".slurm", ".sbatch", ".job")
    declared_in = DECLARING
    declares_all = True
    meaning = meaning
    carried_code = CODE
    carried_version = VERSION

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            yield from self._file(document, root)
        if isinstance(document, ShellDocument):
            yield from self._commands(document)

    def _file(self, document: Document, root: Mapping) -> Iterable[Claim]:
        entry = root.entries.get("actor_rollout_ref")
        table = VERL_PPO if root.section("actor_rollout_ref") is not None else None
        model = root.section("model")
        if table is None and model is not None and _names_trainer(root):
            entry = root.entries["model"]
            table = VERL_SFT if "partial_pretrain" in model.entries else VERL_SFT_ENGINE
        if _is_shipped(document, root):
            yield Claim(self, "aside", document, tuple(_base_blocks(document, root, table, entry)))
        elif table is not None and entry is not None:
            block = OmegaConfBlock(document, root, table, entry.key_span)
            yield Claim(self, "run", document, (block,))

    def lack_of(self, config: Claim) -> str:
        """A config that is composed with no other and leaves out what verl's trainer asks first (0.2 to 0.9.1
        trainer/main_ppo.py: ``actor_rollout_ref.actor.strategy``) is laid over another by whoever starts it."""
        block = config.blocks[0]
        is_alone = isinstance(block, OmegaConfBlock) and block.table is VERL_PPO
        if not is_alone or any(block.find(key) is not None for key in ("defaults", _ASKED_FIRST)):
            return ""
        return f"{config.path} has no {_ASKED_FIRST}: what verl composes it with is not known"

    def _commands(self, document: Document) -> Iterable[Claim]:
        claimed = False
        for launch in launches(document):
            module = _module_of(launch)
            kind = None if module is None else _trainer_of(module) or _told_by_words(launch)
            if module is None or kind is None:
                continue
            claimed = True
            if kind == "aside" or _is_completed_elsewhere(launch) or _only_validates(launch):
                yield Claim(self, "aside", document, ())
            else:
                yield self._launch(launch, module, kind)
        if not claimed:
            yield from self._hidden(document)

    def adopt(self, document: Document) -> Claim | None:
        """A program that starts verl's trainers by a config of its own, which its ``@hydra.main`` names, or that config,
        where it says but what it lays over one of verl's."""
        laid_over = _laid_over(document)
        if laid_over is not None:
            return Claim(self, "aside", document, laid_over)
        text = document.source.text
        found = re.search(_HYDRA_MAIN, text) if document.source.path.endswith(".py") else None
        if found is None:
            return None
        said = {key: value for key, _, value in re.findall(_TEXT_ARGUMENT, found[0])}
        if "config_name" not in said:
            return None
        file = os.path.join(
            os.path.dirname(document.source.path),
            said.get("config_path", ""),
            said["config_name"].removesuffix(".yaml") + ".yaml",
        )
        where = Location(document.source.path, Span(*found.span()))
        reference = Reference(os.path.normpath(file), where, self.name, optional=True)
        return Claim(self, "part", document, (), (reference,))

    def _launch(self, launch: Launch, module: str, kind: str) -> Claim:
        document = launch.document
        words = with_ends_of_paths(document, launch.command.assignments, _PATH_KEYS)
        launched = _launched_block(launch, module, words)
        own = _own_config(launch)
        cls = HydraOverrides if own is None else OmegaConfOverrides
        block = cls(document, words, _TABLES[kind], launch.anchor)
        starts = (Block(document, words, RAY, launch.anchor),) if kind == "ray" else ()
        # What launches a trainer under Ray launches one process that asks Ray for the others.
        scene = launch.blocks[:-1] if kind in ("ray", "ppo") else launch.blocks
        blocks = (*scene, launched, *starts, block)
        is_foreign = own is None and _trainer_of(module) is None
        begun = [own] if own else [_file_of(module)] if is_foreign else []
        files = dict.fromkeys((*_bases(launch, module, kind), *begun))
        where = Location(document.source.path, launch.anchor)
        # Of a name alone Hydra may know where it lies, beside the program that asks for it.
        base = own if launch.flag("config_path") is not None else None
        references = tuple(
            Reference(file, where, self.name, optional=True, is_base=file == base) for file in files
        )
        return Claim(self, "launch" if begun else "run", document, blocks, references)

    def _hidden(self, document: Document) -> Iterable[Claim]:
        """A command whose program is a variable, in a script that names a trainer elsewhere."""
        found = _MODULE.search(document.source.text)
        kind = _trainer_of(found[1]) if found is not None else None
        if found is None or kind in (None, "aside"):
            return
        for command in document.commands:
            entries = command.assignments.entries
            if "data.train_files" not in entries or read_launch(document, command) is not None:
                continue
            words = with_ends_of_paths(document, command.assignments, _PATH_KEYS)
            anchor = next(iter(entries.values())).key_span
            yield Claim(
                self,
                "run",
                document,
                (OmegaConfBlock(document, words, _TABLES[str(kind)], anchor),),
            )


_TABLES = {"ppo": VERL_PPO, "sft": VERL_SFT, "engine": VERL_SFT_ENGINE, "ray": VERL_SFT_ENGINE}
_ASIDES = ("main_generation", "main_eval", "model_merger", "main_perf")


_ASKED_FIRST = "actor_rollout_ref.actor.strategy"
_HYDRA_MAIN = r"@hydra\.main\([^()]*\)"
_TEXT_ARGUMENT = r"(\w+)\s*=\s*([\"'])([^\"'\n]*)\2"


def _names_trainer(root: Mapping) -> bool:
    """The sections that a verl SFT config has beside ``model``."""
    data, trainer = root.section("data"), root.section("trainer")
    if data is None or trainer is None:
        return False
    keys = {*data.entries, *trainer.entries}
    return "micro_batch_size_per_gpu" in keys and "default_local_dir" in keys


# The model of verl's own configs, which every command replaces (VL/trainer/config/ppo_trainer.yaml 0.1 to 0.5, model/
# hf_model.yaml since).
_NO_MODEL = "~/models/deepseek-llm-7b-chat"


def _is_shipped(document: Document, root: Mapping) -> bool:
    """A config that verl composes others from, a part of one, one that its scripts/generate_trainer_config.sh (0.5)
    writes down as a reference (``_generated_ppo_trainer.yaml``), or one that was made of verl's and does not say which
    model it is for: nobody's run by itself."""
    is_part = str(root.said("_target_")).startswith("verl.")
    if root.said("actor_rollout_ref", "model", "path") == _NO_MODEL:
        return True
    path = "/" + document.source.path.replace("\\", "/")
    ours = "actor_rollout_ref" in root.entries or _names_trainer(root) or "verl/" in path
    return is_part or (ours and ("trainer/config/" in path or "/_generated_" in path))


def _laid_over(document: Document) -> tuple[Block, ...] | None:
    """What a config says whose ``defaults`` begin with one of verl's; None of another."""
    root = next(roots(document), None)
    begun = None if root is None else root.entries.get("defaults")
    if root is None or begun is None or not isinstance(begun.value, Sequence):
        return None
    names = [each.value for each in begun.value.items if isinstance(each, Scalar)]
    shipped = next((each for each in names if _SHIPPED.fullmatch(str(each))), None)
    if shipped is None:
        return None
    is_ppo = "ppo" in str(shipped)
    table = VERL_PPO if is_ppo else VERL_SFT_ENGINE if "engine" in str(shipped) else VERL_SFT
    return tuple(_base_blocks(document, root, table, begun))


def _base_blocks(
    document: Document, root: Mapping, table: Table | None, entry: Entry | None
) -> Iterable[Block]:
    """What a config that launch lines begin with says; they say otherwise themselves."""
    if table is not None and entry is not None:
        why = f"other runs begin with {document.source.path} too"
        yield OmegaConfBlock(document, root, table, entry.key_span, locked=why)


def _module_of(launch: Launch) -> str | None:
    """The module that a command starts, inside a container that we do not know too."""
    if launch.is_module or launch.script is not None:
        return launch.name
    for key in ("m", "module"):
        entry = launch.command.flags.entries.get(key)
        if entry is not None and isinstance(entry.value, Scalar):
            return str(entry.value.value)
    return None


def _trainer_of(module: str) -> str | None:
    package, _, stem = (
        module.replace("\\", "/").removesuffix(".py").replace("/", ".").rpartition(".")
    )
    ours = package.partition(".")[0] in ("verl", "recipe") or ".verl." in f".{package}."
    if stem.startswith(_ASIDES) or "model_merger" in module:
        return "aside" if ours else None
    if stem.startswith(("main_ppo", "main_dapo", "fully_async_main")) or (
        ours and stem.startswith("main_")
    ):
        return "ppo"
    if not ours:
        return None
    return {"fsdp_sft_trainer": "sft", "sft_trainer": "engine", "sft_trainer_ray": "ray"}.get(stem)


def _told_by_words(launch: Launch) -> str | None:
    """A project's own program that takes verl's words trains by verl's workers, unless its name says that it
    only generates or scores."""
    words = launch.command.assignments.entries
    is_ours = any(key.lstrip("+").startswith(ACTOR_MODEL) for key in words)
    return "ppo" if is_ours and not launch.stem.startswith(_ASIDES) else None


def _file_of(module: str) -> str:
    return module if module.endswith(".py") else module.replace(".", "/") + ".py"


def _launched_block(launch: Launch, module: str, words: Mapping) -> Block:
    at = place(launch.program)
    entries = {"module": Entry("module", at, Scalar(at, module), at)}
    name = launch.flag("config_name")
    if name is not None:
        entries["config_name"] = replace(name, key="config_name")
    engine = words.entries.get("model_engine")
    if engine is not None:
        entries["model_engine"] = engine
    return Block(launch.document, Mapping(at, entries), LAUNCHED, at, locked="it names the trainer")


# The config that a trainer's @hydra.main names.
_NAMED_BY_TRAINER = {
    "main_ppo": "ppo_trainer",
    "main_dapo": "dapo_trainer",
    "fsdp_sft_trainer": "sft_trainer",
    "sft_trainer": "sft_trainer_engine",
    "sft_trainer_ray": "sft_trainer_engine",
}


def _bases(launch: Launch, module: str, kind: str) -> Iterable[str]:
    """The configs that a project with a copy of verl, often changed or old, begins a run with:
    verl's own, and one beside a trainer of the project's, which Hydra lays over it."""
    package, _, stem = (
        module.replace("\\", "/").removesuffix(".py").replace("/", ".").rpartition(".")
    )
    folder = package.replace(".", "/")
    name = _flag_text(launch, "config_name").removesuffix(".yaml")
    if launch.flag("config_name") is None:
        name = _NAMED_BY_TRAINER.get(stem, "")
    if kind == "ppo" and not name.startswith("ppo_"):
        yield "verl/trainer/config/ppo_trainer.yaml"
    if name:
        yield f"{folder}/config/{name}.yaml"
    elif stem not in _NAMED_BY_TRAINER and launch.stem not in _OF_EXAMPLES:
        yield _file_of(module)  # a recipe's own program, whose @hydra.main names its config


def _only_validates(launch: Launch) -> bool:
    """Whether the trainer stops before its first step (verl 0.5 trainer/ppo/ray_trainer.py ``fit``: with
    ``val_only`` it returns behind the validation)."""
    said = launch.command.assignments.entries
    given = (said[key].value for key in ("trainer.val_only", "+trainer.val_only") if key in said)
    values = [str(value.value).lower() for value in given if isinstance(value, Scalar)]
    return "true" in values


def _is_completed_elsewhere(launch: Launch) -> bool:
    """Whether the line leaves its config to whoever starts the script, and names no model itself: what
    it trains is none of the configs that lie here."""
    name, said = launch.flag("config_name"), launch.command.assignments.entries
    is_open = name is not None and isinstance(name.value, Scalar) and name.value.value is UNKNOWN
    return is_open and not any(key in said for key in _PATH_KEYS)


def _flag_text(launch: Launch, key: str) -> str:
    entry = launch.flag(key)
    value = entry.value.value if entry is not None and isinstance(entry.value, Scalar) else None
    return value if isinstance(value, str) else ""


# VL/trainer/config: names that Hydra finds in the package itself.
_SHIPPED = re.compile(r"_?(?:generated_)?(?:ppo|sft)_\w*trainer\w*|sft_trainer\w*")


# VL/examples/split_placement/main_ppo_split.py:92 (0.1 to 0.5).
_OF_EXAMPLES = {"main_ppo_split": "config/ppo_trainer_split.yaml"}


def _own_config(launch: Launch) -> str | None:
    """The YAML behind ``--config-path`` and ``--config-name`` where it is not verl's own, or that
    the ``@hydra.main`` of an example with a trainer of its own names."""
    name, folder = _flag_text(launch, "config_name"), _flag_text(launch, "config_path")
    name = name.removesuffix(".yaml")
    if not name and launch.stem in _OF_EXAMPLES:
        return f"{launch.name.rpartition('/')[0]}/{_OF_EXAMPLES[launch.stem]}".lstrip("/")
    if not name or (_SHIPPED.fullmatch(name) and folder in ("", "config", "./config")):
        return None
    return f"{folder}/{name}.yaml" if folder else f"{name}.yaml"
