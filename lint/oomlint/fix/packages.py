"""Packages that what a fix writes needs and that the project does not have.

A setting that another package carries out (a Liger kernel, an optimizer of bitsandbytes) stops a run at its
first line where that is not installed. What a project requires stands in its files, or in what they tell people to
install: where they name others and not this one, to add it is somebody's decision. An extra is what only some install.
Where no file tells, the fix says what it needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct

from oomlint.documents import SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.text import Edit
from oomlint.files.requirements import (
    PACKAGES,
    installed_names,
    is_guide,
    is_pin_file,
    sets_up,
    without_extras,
)
from oomlint.files.searched import SearchedTexts
from oomlint.files.workspace import Workspace
from oomlint.fix.new_files import configs_around
from oomlint.runs.run import Run

_DEEPSPEED = r"deepspeed"

# How a text says what needs a package, and the names under which files require it. Sources: transformers 4.57
# training_args.py (use_liger_kernel, OptimizerNames of bitsandbytes) and integrations; LLaMA-Factory ff6d4d12
# model/model_utils/liger_kernel.py; ms-swift 3602360a arguments/sft_args.py.
_NEEDED = (
    (r"liger", ("liger-kernel", "liger_kernel", "[liger")),
    (r"adamw?_?8bit|adamw_bnb|bitsandbytes|load_in_[48]bit|quantization_bit|\bbnb", ("bitsandbytes",)),
    (r"flash_attention_2|flash_attention: true|flash_attn:? (?:true|fa2)", ("flash-attn", "flash_attn")),
    # An extra of all of them that has their own configs; TrainingArguments of transformers 4.57 stop without it
    # (integrations/deepspeed.py HfDeepSpeedConfig, accelerate utils/dataclasses.py DeepSpeedPlugin).
    (_DEEPSPEED, ("deepspeed",)),
)  # fmt: skip

# Packages that a framework requires itself. Sources: Axolotl 067b021c requirements.txt and setup.py; unsloth
# 2025.11 pyproject.toml; openrlhf 0.11.2 and llama-cookbook 0.0.5.post1 METADATA; torchtune 0.6 pyproject.toml names none.
_BROUGHT = {
    "axolotl": ("liger-kernel", "bitsandbytes", "flash-attn"),
    "unsloth": ("bitsandbytes",),
    "openrlhf": ("bitsandbytes", "flash-attn"),
    "llama-recipes": ("bitsandbytes",),
}


class _Told(Struct, frozen=True):
    """The texts in which packages are named, and whether they tell what the run is installed with."""

    text: str
    is_told: bool


def missing_package(run: Run, edits: Sequence[Edit]) -> str | None:
    """A package that the text of edits needs and that nothing which the project requires brings; ``None``
    where that cannot be told."""
    return _lacking(run, edits, is_told=True)


def untold_package(run: Run, edits: Sequence[Edit]) -> str | None:
    """A package that the text of edits needs, where no file tells what is installed, that neither."""
    return _lacking(run, edits, is_told=False)


def _lacking(run: Run, edits: Sequence[Edit], *, is_told: bool) -> str | None:
    written = [edit.replacement for edit in edits if not edit.creates]
    needed = [
        names
        for pattern, names in _NEEDED
        if names[0] not in _BROUGHT.get(run.dialect.name, ())
        and any(re.search(pattern, text, re.IGNORECASE) for text in written)
    ]
    copier = run.parts.copier
    if not needed or copier is None or run.parts.root is None:
        return None
    told = _told(run, copier.workspace, run.parts.root.path)
    if told.is_told is not is_told:
        return None
    lacking = (names[0] for names in needed if not any(n in told.text for n in names))
    missing = next(lacking, None)
    wants_deepspeed = any(names[0] == _DEEPSPEED for names in needed)
    if is_told and wants_deepspeed and _goes_without(copier.workspace, run.parts.root.path):
        return _DEEPSPEED
    if missing == _DEEPSPEED and _trains_with_deepspeed(copier.workspace, run.parts.root.path):
        return None
    return missing


def _goes_without(workspace: Workspace, path: str) -> bool:
    """Whether a script that sets up the project around a file says that it leaves DeepSpeed out, whatever else is listed:
    ``echo "Axolotl (no DeepSpeed)"``."""
    texts = _setting_up(workspace, path).values()
    return any(re.search(r"(?i)\b(?:no|without)[ \t]+deepspeed\b", text) for text in texts)


def _setting_up(workspace: Workspace, path: str) -> dict[str, str]:
    """The scripts that set the project around a file up, by name."""
    project = str(workspace.project_around(path))
    saved = workspace.below(project, SHELL_SUFFIXES, _DEEPEST)
    unsaved = (n for n in workspace.overlay if n.endswith(SHELL_SUFFIXES))
    return {
        name: (workspace.read_or_none(name) or b"").decode("utf-8", "replace")
        for name in dict.fromkeys((*saved, *unsaved))
        if sets_up(name) and name.count("/") <= _DEEPEST
    }


def _trains_with_deepspeed(workspace: Workspace, path: str) -> bool:
    """Whether another config or script of the project around a file trains under DeepSpeed, or says how to."""
    if configs_around(workspace, path):
        return True
    project = workspace.name(workspace.project_around(path))
    return workspace.once(_name_deepspeed, project)


def _name_deepspeed(workspace: Workspace, project: str) -> bool:
    files = islice(workspace.below(project, (*YAML_SUFFIXES, *SHELL_SUFFIXES), 5), _MOST_FILES)
    texts = SearchedTexts(workspace, files).holding(_DEEPSPEED.encode())
    return any(re.search(rb"(?m)^(?![ \t]*#).*deepspeed", data) for _, data in texts)


def _told(run: Run, workspace: Workspace, path: str) -> _Told:
    """What is said of a run's packages: by what the project requires, by what a guide tells its reader to install or a
    script that sets it up installs, and by what the run's own files install or already use."""
    required = _required(workspace, path)
    own = {claim.path: claim.document.source.text for claim in run.claims}
    guides = dict(_below(workspace, str(workspace.project_around(path)), are_guides=True))
    said = {**guides, **_setting_up(workspace, path), **own}
    is_told = required is not None or any(
        _TRAIN_WITH & installed_names(name, text) for name, text in said.items()
    )
    return _Told("\n".join((required or "", *said.values())), is_told)


# Who names one of these tells what training takes.
_TRAIN_WITH = PACKAGES & {"torch", "transformers", "trl", "peft", "accelerate", "deepspeed"}


def _required(workspace: Workspace, path: str) -> str | None:
    """What the project of a file says that it needs, extras left out; where the folders above the file do not say it,
    those that the project keeps its code in do (a copy of the framework). ``None`` where none names what trains."""
    near = workspace.requirements(path)
    project = str(workspace.project_around(path))
    below = (text for _, text in _below(workspace, project, are_guides=False))
    for texts in (near, below):
        required = "\n".join(map(without_extras, texts))
        if re.search(r"\b(torch|transformers|trl|peft)\b", required):  # accelerate is a verb, too
            return required
    return None


def _below(workspace: Workspace, project: str, *, are_guides: bool) -> Iterator[tuple[str, str]]:
    """Names and texts of such files in the project's folder and those in it, unsaved ones included."""
    saved = workspace.below(project, _GUIDES if are_guides else _LISTS, _DEEPEST)
    unsaved = (n for n in workspace.overlay if n.count("/") <= _DEEPEST)
    for name in dict.fromkeys((*saved, *unsaved)):
        base = name.rpartition("/")[2]
        if is_pin_file(base) and is_guide(base) is are_guides:
            yield name, (workspace.read_or_none(name) or b"").decode("utf-8", "replace")


_LISTS, _GUIDES = (".txt", ".toml", ".cfg", ".py"), (".md", ".rst", ".txt")
# How many files are searched for who uses a package already.
_MOST_FILES = 2000
# Folders below the project's: further down lies what others brought.
_DEEPEST = 1
