"""Keys that releases of a framework had and that its newest state has no more, and which releases have the others.

    python -m benchmarks.past_keys (axolotl | llamafactory | ms_swift) CLONE
    python -m benchmarks.past_keys --spans (axolotl | llamafactory | ms_swift | transformers | trl) CLONE

prints the lines of ``lint/oomlint/dialects/keys/past/FRAMEWORK.txt``: each key with the first release without it. With
``--spans`` it prints those of ``keys/spans/FRAMEWORK.txt``: each key of the table that came or went between the
releases, of TRL for each objective's class. CLONE is a clone of the framework's repository with its tags. Nothing of it is run: classes are read as text.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

from oomlint.dialects.axolotl.keys import AXOLOTL
from oomlint.dialects.llamafactory.keys import LLAMA_FACTORY
from oomlint.dialects.ms_swift.keys import SWIFT
from oomlint.dialects.table import Table
from oomlint.dialects.trainer.arguments import SEQ2SEQ_ARGUMENTS, TRAINING_ARGUMENTS
from oomlint.dialects.trainer.keys import TRAINER
from oomlint.dialects.trl.keys import TRL


class Framework(Struct, frozen=True):
    """Where a framework declares its keys, over all its releases: in ``files``, as fields of classes called like
    ``classes``; of others' options that stand there too, ``foreign`` are the keys. ``history`` are paths of which each
    change counts, not only those that a release has; with these, code that reads ``cfg.KEY`` and configs in the README
    count as well, as long as there are no classes. ``first`` is the first release that declares its keys so; from
    ``inherits`` on the classes have those of transformers' arguments, too. ``objectives`` are those of the classes, where
    each has keys of its own; what they all inherit is left out."""

    table: Table
    files: str
    classes: str
    history: tuple[str, ...] = ()
    foreign: frozenset[str] = frozenset()
    first: str = ""
    inherits: str = ""
    objectives: Mapping[str, str] = {}


_FRAMEWORKS = {
    "axolotl": Framework(
        AXOLOTL,
        r"^src/axolotl/(utils/(config|schemas)/|integrations/.*args\.py$)",
        r"^AxolotlInputConfig$|Args$",
        ("README.md", "docs", "src/axolotl/utils", "src/axolotl/integrations"),
        frozenset({"rank", "proj_type"}),  # of GaLore, in optim_args
        first="0.4.0",
    ),
    "llamafactory": Framework(
        LLAMA_FACTORY, r"^src/((llamafactory|llmtuner)/hparams/\w+|utils/config)\.py$", r"Arguments$|Params$", first="0.1.3", inherits="0.1.3",
    ),
    "ms_swift": Framework(
        SWIFT,
        r"^swift/(llm/(argument|utils/argument|sft)|arguments|trainers|rlhf_trainers/args_mixin)",
        r"(Arguments|Args|Mixin)$",
        foreign=frozenset({"repo"}),  # what a Trainer pushes to, no option
        first="1.3.0",
        inherits="3.0.0",  # swift/llm/argument/train_args.py: over Seq2SeqTrainingArguments
    ),
    "trl": Framework(
        TRL,
        r"^trl/(?:trainer|experimental)/(?:\w+/)*\w*(?:config|utils)\w*\.py$",
        r"Config$",
        first="0.9.3",
        objectives={
            "SFTConfig": "sft", "DPOConfig": "dpo", "KTOConfig": "kto", "RewardConfig": "rm", "GRPOConfig": "grpo",
            "RLOOConfig": "rloo", "ORPOConfig": "orpo", "CPOConfig": "cpo", "GKDConfig": "gkd", "PPOConfig": "ppo",
        },
    ),
    "transformers": Framework(
        TRAINER, r"^src/transformers/training_args(_seq2seq)?\.py$", r"TrainingArguments$", first="4.28.0",
    ),
}  # fmt: skip
_CONFIGS = re.compile(r"^README\.md$|^docs/config(-reference)?\.(qmd|md)$")
_CODE = re.compile(r"^(src/axolotl|scripts)/.*\.py$")
_APART = 2 * 24 * 3600
_State = tuple[int, str]


class Clone:
    def __init__(self, path: str) -> None:
        self.path = path

    def git(self, *words: str) -> str:
        done = subprocess.run(("git", "-C", self.path, *words), capture_output=True, check=True)
        return done.stdout.decode("utf-8", "replace")

    def releases(self) -> list[_State]:
        """Time and name of each, the oldest first."""
        lines = self.git("tag", "--format=%(creatordate:unix) %(refname:short)").splitlines()
        found = (line.split() for line in lines)
        named = [(int(at), tag) for at, tag in found if re.fullmatch(r"v?\d+(\.\d+)+", tag)]
        return sorted(named, key=lambda each: tuple(map(int, each[1].lstrip("v").split("."))))

    def changes(self, paths: tuple[str, ...]) -> Iterator[_State]:
        """States between the releases, two days apart at least."""
        before = 0
        for line in self.git(
            "log", "--first-parent", "--reverse", "--format=%ct %H", "--", *paths
        ).splitlines():
            at, commit = line.split()
            if int(at) - before > _APART:
                before = int(at)
                yield before, commit

    @cache  # noqa: B019  as long as the program
    def text(self, blob: str) -> str:
        return self.git("cat-file", "-p", blob)

    def files(self, state: str) -> Iterator[tuple[str, str]]:
        for line in self.git("ls-tree", "-r", state).splitlines():
            about, _, path = line.partition("\t")
            yield path, about.split()[2]


def keys_of(clone: Clone, framework: Framework, state: str) -> set[str]:
    files = dict(clone.files(state))
    classes = _classes_of(clone, framework, files)
    found = {
        key
        for name in classes
        if re.search(framework.classes, name)
        for key in _fields(name, classes, set())
    }
    if framework.history:
        for path, blob in files.items():
            if _CONFIGS.search(path):
                found |= _in_configs(clone.text(blob))
            elif _CODE.search(path) and "AxolotlInputConfig" not in classes:
                found |= set(
                    re.findall(r"(?<![\w.])(?:self\.)?cfg\.([a-z]\w*)\b(?!\()", clone.text(blob))
                )
    return found


def _classes_of(
    clone: Clone, framework: Framework, files: Mapping[str, str]
) -> dict[str, ast.ClassDef]:
    classes: dict[str, ast.ClassDef] = {}
    for path, blob in files.items():
        if path.endswith(".py") and re.search(framework.files, path):
            nodes = ast.walk(_parsed(clone.text(blob)))
            classes |= {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    return classes


def _keys_by_objective(clone: Clone, framework: Framework, state: str) -> set[str]:
    """``sft.packing``: the keys of each class but those that all inherit."""
    classes = _classes_of(clone, framework, dict(clone.files(state)))
    own = {row.key.partition(".")[0] for row in (*TRAINING_ARGUMENTS, *SEQ2SEQ_ARGUMENTS)}
    return {
        f"{objective}.{key}"
        for name, objective in framework.objectives.items()
        for key in set(_fields(name, classes, set())) - own
    }


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module([], [])


def _fields(name: str, classes: dict[str, ast.ClassDef], seen: set[str]) -> Iterator[str]:
    """The fields of a class and of those that it is derived from, by their aliases too."""
    if name in seen or name not in classes:
        return
    seen.add(name)
    for base in classes[name].bases:
        yield from _fields(ast.unparse(base).rpartition(".")[2], classes, seen)
    for statement in classes[name].body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id
    for node in ast.walk(classes[name]):
        match node:
            case ast.keyword(arg="alias" | "validation_alias", value=ast.Constant(value=str(key))):
                yield key


def _in_configs(text: str) -> set[str]:
    blocks = re.findall(r"```ya?ml\n(.*?)```", text, re.DOTALL)
    whole = (block for block in blocks if re.search(r"^base_model:", block, re.MULTILINE))
    return {
        key
        for block in whole
        for key in re.findall(r"^#? ?([a-z]\w*):(?: |$)", block, re.MULTILINE)
    }


def main(name: str, path: str) -> None:
    framework, clone = _FRAMEWORKS[name], Clone(path)
    releases = clone.releases()
    order = {tag: n for n, (_, tag) in enumerate(releases)}
    gone: dict[str, int] = {}
    """Of each key the first release after it was last seen."""
    for at, state in (*releases, *(clone.changes(framework.history) if framework.history else ())):
        after = order[state] + 1 if state in order else sum(made <= at for made, _ in releases)
        for key in keys_of(clone, framework, state):
            gone[key] = max(gone.get(key, 0), after)
    today = keys_of(clone, framework, "HEAD") | framework.table.legal_keys | framework.foreign
    for key in sorted(gone.keys() - today):
        if gone[key] < len(releases):
            print(key, releases[gone[key]][1].lstrip("v"))


def spans(name: str, path: str) -> None:
    """Of each key of the table that came or went, the first release with it ("-" for the first of all), and the first
    without it."""
    framework, clone = _FRAMEWORKS[name], Clone(path)
    releases = [tag.lstrip("v") for _, tag in clone.releases()]
    releases = releases[releases.index(framework.first) :]
    inherited = {row.key.partition(".")[0] for row in (*TRAINING_ARGUMENTS, *SEQ2SEQ_ARGUMENTS)}
    had: dict[str, list[int]] = {}
    for number, release in enumerate(releases):
        read = _keys_by_objective if framework.objectives else keys_of
        keys = read(clone, framework, f"v{release}")
        if framework.inherits and number >= releases.index(framework.inherits):
            keys |= inherited
        for key in keys:
            had.setdefault(key, []).append(number)
    names = {name.partition(".")[0] for name in framework.table.names}
    for key in sorted(key for key in had if key.rpartition(".")[2] in names):
        came, went = had[key][0], had[key][-1] + 1
        if came or went < len(releases):
            first = releases[came] if came else "-"
            print(key, first, *releases[went : went + 1])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--spans", name, path] if name in _FRAMEWORKS and _FRAMEWORKS[name].first:
            spans(name, path)
        case [name, path] if name in _FRAMEWORKS and Path(path).is_dir():
            main(name, path)
        case _:
            sys.exit(__doc__)
