"""torchtitan: its TOML job configs, its Python config registries and the lines that launch them.

Read from torchtitan b5bcd76c (2026-08-21), where configs are Python functions, from v0.1.0
to v0.2.2, where they are TOML, and from 2024's ``run_llama_train.sh``; ``TN`` below is its
package. Options of the command line have the dotted names of the config
(``--training.seq_len 4096``); what neither says is the default of a dataclass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.cells import Cells
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.torchtitan.keys import (
    EXTENDED,
    HEADER,
    OPTIONS,
    SCENE,
    STARTED,
    TORCHTITAN,
    own,
)
from oomlint.dialects.torchtitan.meaning import meaning
from oomlint.documents import SHELL_SUFFIXES, TOML_SUFFIXES
from oomlint.documents.base import Document, Entry, Mapping, PythonDocument, Scalar, roots
from oomlint.documents.text import Location, Span

_PRESET = re.compile(r"^#[^\n]*\bpreset for (\d{1,5}) [A-Z]\w* GPUs", re.MULTILINE)
_SCRIPTS = frozenset({"run_train", "run_llama_train"})
_MODULES = ("torchtitan.train", "torchtitan.experiments")


class Torchtitan(Dialect):
    name = "torchtitan"
    packages = ("torchtitan",)
    # Those of its package, which parse every key (torchtitan/config_manager.py, later config/job_config.py).
    declares_all = True
    starters = _SCRIPTS
    markers = (b"[parallelism]", b"[activation_checkpoint]", b"torchtitan", b"run_train.sh", b"run_llama_train.sh", b"flavor")  # fmt: skip
    markers_prove = False
    suffixes = (*TOML_SUFFIXES, *SHELL_SUFFIXES, ".py")
    only_marked = (".py",)
    meaning = meaning

    def model_folder(self, run: Cells) -> str:
        return str(run[own.name] or "")

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            if _is_config(root):
                anchor = _anchor(root)
                if _trains_images(root):
                    yield Claim(self, "aside", document, ())
                    continue
                table = EXTENDED if _is_extended(root) else TORCHTITAN
                blocks = (*_header(document), Block(document, root, table, anchor))
                yield Claim(self, "run", document, blocks)
        if isinstance(document, PythonDocument):
            from oomlint.dialects.torchtitan.registry import registry_claims

            yield from registry_claims(self, document)
        for launch in launches(document):
            claim = self._launch(launch)
            if claim is not None:
                yield claim

    def _launch(self, launch: Launch) -> Claim | None:
        if not _starts_torchtitan(launch):
            return None
        if any(launch.flag(each) is not None for each in _TRAIN_NOTHING):
            return Claim(self, "aside", launch.document, ())
        document, environment = launch.document, launch.command.environment
        blocks = list(launch.blocks)
        blocks.append(Block(document, environment, SCENE, launch.anchor))
        by_script = launch.stem.removesuffix(".sh") in _SCRIPTS
        if by_script:
            at = place(launch.program)
            entry = Entry("script", at, Scalar(at, launch.stem), at)
            why = "it is the script's name"
            blocks.append(Block(document, Mapping(at, {"script": entry}), STARTED, at, locked=why))
        flags = _without_negations(launch.flags)
        references = tuple(self._config_of(launch, by_script=by_script))
        if not references:
            if not _says_training(flags):
                return None if not by_script else Claim(self, "aside", document, ())
            options = Block(document, flags, OPTIONS, launch.anchor)
            return Claim(self, "run", document, (*blocks, options))
        overrides = OverrideBlock(document, flags, OPTIONS, launch.anchor)
        return Claim(self, "launch", document, (*blocks, overrides), references)

    def _config_of(self, launch: Launch, *, by_script: bool) -> Iterable[Reference]:
        """The TOML file or the function of a registry that a command starts."""
        words = {
            "toml": launch.flag("job.config_file"),
            "module": launch.flag("module"),
            "config": launch.flag("config"),
        }
        if by_script:
            environment = launch.command.environment.entries
            for name, variable in (
                ("toml", "CONFIG_FILE"), ("module", "MODULE"), ("config", "CONFIG"),
            ):  # fmt: skip
                words[name] = words[name] or environment.get(variable)
        toml = _plain(words["toml"])
        if toml is not None:
            yield from launch.reference(toml, self.name)
            return
        module, config = _plain(words["module"]), _plain(words["config"])
        if module is None or config is None:
            return
        where = Location(launch.document.source.path, place(config))
        folder = str(module.value).replace(".", "/")
        for package in ("models", "experiments"):
            path = f"torchtitan/{package}/{folder}/config_registry.py"
            yield Reference(path, where, self.name, optional=True, claim=str(config.value))


def _is_config(root: Mapping) -> bool:
    """Tables of a job config: ``[training]``, and one that no other framework has."""
    if root.section("training") is None:
        return False
    if {"parallelism", "activation_checkpoint"} & set(root.entries):
        return True
    model = root.section("model")
    return model is not None and "flavor" in model.entries


def _trains_images(root: Mapping) -> bool:
    """Flux generates images: no decoder of ours."""
    return "flux" in str(root.said("model", "name")).lower()


def _is_extended(root: Mapping) -> bool:
    return bool(
        root.said("job", "custom_config_module") or root.said("experimental", "custom_args_module")
    )


def _anchor(root: Mapping) -> Span:
    entry = root.entries.get("model") or root.entries["training"]
    return entry.key_span


def _header(document: Document) -> Iterable[Block]:
    """The comment at the head of shipped configs: ``a preset for 64 A100 GPUs``."""
    found = _PRESET.search(document.source.text[:2048])
    if found is not None:
        span = Span(*found.span(1))
        entry = Entry("ranks", span, Scalar(span, found[1]), span)
        yield Block(document, Mapping(span, {"ranks": entry}), HEADER, span, locked="a comment")


# A dry run or all ranks in one process, for debugging; the checkpoint of step 0 that one process writes, after which
# train.py returns (torchtitan v0.2.2 torchtitan/train.py main).
_TRAIN_NOTHING = ("comm.mode", "checkpoint.create_seed_checkpoint")


def _starts_torchtitan(launch: Launch) -> bool:
    if launch.flag("config-file") or launch.flag("config_file"):
        return False  # nanotron has a run_train.py too
    if launch.is_module:
        return launch.name.startswith(_MODULES) and "train" in launch.name
    stem = launch.stem.removesuffix(".sh")
    if stem in _SCRIPTS:
        return True
    own = {"job.config_file", "training.seq_len", "parallelism.tensor_parallel_degree"}
    return stem == "train" and bool(own & set(launch.flags.entries))


def _says_training(flags: Mapping) -> bool:
    return any(key.startswith(("training.", "parallelism.")) for key in flags.entries)


def _plain(entry: Entry | None) -> Scalar | None:
    """A word of a command that names something; ``None`` where it is empty or computed."""
    value = entry.value if entry is not None else None
    if isinstance(value, Scalar) and isinstance(value.value, str) and value.value:
        return value
    return None


_NEGATION = re.compile(r"^(.*\.)no_(\w+)$")


def _without_negations(flags: Mapping) -> Mapping:
    """tyro turns a switch off by ``--checkpoint.no-enable``."""
    entries: dict[str, Entry] = {}
    for key, entry in flags.entries.items():
        found = _NEGATION.match(key)
        bare = f"{found[1]}{found[2]}" if found else key
        if found and isinstance(entry.value, Scalar) and entry.value.value is True:
            off = replace(entry.value, value=False, locked="the option's name says no")
            key, entry = bare, replace(entry, key=bare, value=off)
        entries[key] = entry
    return replace(flags, entries=entries)
