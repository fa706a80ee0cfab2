"""The user's settings: finding the file, reading it, and telling where each value comes from.

The nearest ``oomlint.toml``, ``.oomlint.toml`` or ``pyproject.toml`` with ``[tool.oomlint]``
counts, going up from the file being linted; settings of two files are never mixed.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct, field

from oomlint.errors import UsageError
from oomlint.files import dependencies
from oomlint.files.ignored import LONGEST_PATTERN, MOST_DEEP, MOST_STARS, is_costly, patterns
from oomlint.files.reading import read_regular

FILE_NAMES = ("oomlint.toml", ".oomlint.toml", "pyproject.toml")

FailLevel = Literal["error", "warning", "info"]
OutputFormat = Literal[
    "text", "concise", "json", "jsonl", "github", "gitlab", "sarif", "rdjson", "rdjsonl", "junit",
    "lsp", "markdown",
]  # fmt: skip
Framework = Literal[
    "llama-factory", "axolotl", "trl", "hf-trainer", "accelerate", "deepspeed", "torchtune",
    "torchtitan", "ms-swift", "llama-recipes", "litgpt", "llm-foundry", "openrlhf", "verl", "easyr1",
    "slime", "nemo", "nemo-rl", "automodel", "roll", "megatron", "gpt-neox", "nanotron", "olmo", "olmo-core", "lingua", "align-anything", "prime-rl", "areal", "unsloth", "xtuner", "colossalai", "nanogpt", "lightning", "torch",
]  # fmt: skip


class HardwareProfile(
    Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True
):
    """Hardware under a name of your own, for ``--hardware NAME``."""

    hardware: Annotated[str, Meta(description="such as 8xA100-80GB, 2x8xH100-80GB or p4d.24xlarge")]
    host_memory: Annotated[str | None, Meta(description="RAM of one node, such as 512GiB")] = None


class Settings(Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """What a settings file can say; keys are written in kebab case."""

    hardware: Annotated[
        str | None,
        Meta(
            description="the machine: 8xA100-80GB, 2x8xH100-80GB (nodes x GPUs x type), a cloud instance, a "
            "profile below, or auto"
        ),
    ] = None
    host_memory: Annotated[str | None, Meta(description="RAM of one node, such as 512GiB")] = None
    gpus: Annotated[
        int | str | None, Meta(description="GPUs per node, or NODESxGPUS, whatever the files say")
    ] = None
    framework: Annotated[
        Framework | str | None, Meta(description="read every config as this framework's")
    ] = None
    project_root: Annotated[
        str | None, Meta(description="where paths inside configs start; relative to this file")
    ] = None
    select: Annotated[
        tuple[str, ...], Meta(description="rules to run: codes, prefixes or names; all if empty")
    ] = ()
    extend_select: Annotated[
        tuple[str, ...], Meta(description="rules to run besides those selected")
    ] = ()
    ignore: Annotated[tuple[str, ...], Meta(description="rules not to run")] = ()
    per_file_ignores: Annotated[
        Mapping[str, tuple[str, ...]],
        Meta(description="file pattern to rules that are silent there"),
    ] = field(default_factory=dict)
    exclude: Annotated[
        tuple[str, ...],
        Meta(
            description="files and folders left out, even if named on the command line: patterns as in a "
            ".gitignore beside this file"
        ),
    ] = ()
    respect_gitignore: Annotated[
        bool,
        Meta(description="leave out of folders what the repository's .gitignore files name"),
    ] = True
    fail_level: Annotated[
        FailLevel, Meta(description="the least severity that makes the exit status 1")
    ] = "warning"
    margin: Annotated[
        float,
        Meta(
            description="the share of a limit that what is proposed may fill: a length, a batch, RAM to "
            "ask for; verdicts go by the risk"
        ),
    ] = 0.85
    output_format: Annotated[
        OutputFormat | None,
        Meta(description="how findings are printed: text, on GitHub Actions github"),
    ] = None
    baseline: Annotated[
        str | None,
        Meta(description="file of findings that are known and not reported; relative to this file"),
    ] = None
    plugins: Annotated[
        tuple[str, ...],
        Meta(
            description="folders with rules of your own, relative to this file; they run where "
            "`oomlint plugins allow FOLDER` was said"
        ),
    ] = ()
    profiles: Annotated[
        Mapping[str, HardwareProfile], Meta(description="hardware by name, for --hardware NAME")
    ] = field(default_factory=dict)


class ActiveSettings(Struct, frozen=True):
    """Settings in force, the file that holds them (``None``: defaults) and the lines of its keys."""

    settings: Settings
    file: Path | None = None
    lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def folder(self) -> Path | None:
        return self.file.parent if self.file else None

    def origin(self, key: str) -> str:
        """Where a key's value comes from, for people."""
        if self.file is None or key not in self.lines:
            return "default"
        return f"{self.file}:{self.lines[key]}"

    def excludes(self, path: Path) -> bool:
        """Whether ``exclude`` covers an absolute path or a folder above it."""
        folder = self.folder
        if folder is None or not self.settings.exclude or not path.is_relative_to(folder):
            return False
        return patterns(self.settings.exclude).match_file(path.relative_to(folder).as_posix())

    def per_file_ignores(self, cwd: Path) -> dict[str, tuple[str, ...]]:
        """The ignores by patterns of paths as oomlint displays them from ``cwd``."""
        out: dict[str, tuple[str, ...]] = {}
        for pattern, words in self.settings.per_file_ignores.items():
            for shown in _displayed(pattern, self.folder or cwd, cwd):
                out[shown] = (*out.get(shown, ()), *words)
        return out


def discover(start: Path, known: dict[Path, ActiveSettings] | None = None) -> ActiveSettings:
    """The settings for files in the folder ``start`` (absolute). ``known`` keeps those of folders
    that were asked for.

    Raises:
        UsageError: the nearest settings file is broken; names file, line and key.
    """
    known = {} if known is None else known
    passed: list[Path] = []
    found: ActiveSettings | None = None
    for folder in (start, *start.parents):
        found = known.get(folder)
        if found is None:
            passed.append(folder)
            files = (_load_if_ours(folder / name) for name in FILE_NAMES)
            found = next((file for file in files if file is not None), None)
        if found is not None:
            break
    found = found or ActiveSettings(Settings())
    known.update(dict.fromkeys(passed, found))
    return found


def load(file: Path) -> ActiveSettings:
    """The settings of one file, named by the user.

    Raises:
        UsageError: it is missing, broken, or holds no settings of ours.
    """
    if not file.is_file():
        what = "is no regular file" if file.exists() else "does not exist"
        raise UsageError(f"the settings file {file} {what}")
    found = _load_if_ours(file)
    if found is None:
        raise UsageError(f"{file} has no [tool.oomlint] table")
    return found


def _load_if_ours(file: Path) -> ActiveSettings | None:
    nested = file.name == "pyproject.toml"
    try:
        data = read_regular(file)
        dependencies.saw_bytes(file, data)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        dependencies.saw_no_bytes(file)
        return None
    except OSError as error:
        if not os.path.lexists(file):  # nor can be told in a folder that is closed to us
            dependencies.saw_no_bytes(file)
            return None
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from None
    if nested and b"oomlint" not in data:
        return None
    table = _parse(file, data, nested)
    return None if table is None else _check(file, data.decode("utf-8-sig"), table, nested)


def _parse(file: Path, data: bytes, nested: bool) -> dict[str, Any] | None:
    from oomlint.validation.toml import loads

    try:
        document = loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text") from None
    except ValueError as error:
        raise UsageError(f"{file} is not valid TOML: {error}") from None
    if not nested:
        return document
    tool = document.get("tool")
    table = tool.get("oomlint") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{file}: tool.oomlint should be a table")
    return table


def _check(file: Path, text: str, table: dict[str, Any], nested: bool) -> ActiveSettings:
    from oomlint.validation.records import RecordError, record

    prefix = ("tool", "oomlint") if nested else ()
    lines = _key_lines(text)

    def at(path: tuple[str, ...]) -> str:
        for depth in range(len(path), 0, -1):
            line = lines.get((*prefix, *path[:depth]))
            if line is not None:
                return f"{file}:{line}"
        return str(file)

    try:
        settings = record(Settings, table)
    except RecordError as error:
        raise UsageError(f"{at(error.path)}: {error}") from None
    if not 0 < settings.margin <= 1:
        raise UsageError(f"{at(('margin',))}: margin should be above 0 and at most 1")
    for key, said in (
        ("exclude", settings.exclude),
        ("per-file-ignores", settings.per_file_ignores),
    ):
        if any(len(pattern) > LONGEST_PATTERN for pattern in said):
            raise UsageError(
                f"{at((key,))}: a pattern of {key} is longer than any path ({LONGEST_PATTERN} characters)"
            )
    if any(map(is_costly, settings.exclude)):
        raise UsageError(
            f"{at(('exclude',))}: a pattern has more stars than can be tried: at most {MOST_STARS} in a name and {MOST_DEEP} times **/"
        )
    own = {
        path[len(prefix)]: line
        for path, line in reversed(lines.items())
        if path[: len(prefix)] == prefix and len(path) > len(prefix)
    }
    return ActiveSettings(settings, file, {key: own[key] for key in table if key in own})


_HEADER = r"\s*\[\[?(?P<name>[^\]]+)\]\]?\s*(?:#.*)?$"
_KEY = r"""\s*(?P<key>(?:[\w-]+|"[^"\n]*"|'[^'\n]*')(?:\s*\.\s*[\w-]+)*)\s*="""


def _key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line of every key that starts a line, and of every table; for messages only."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(_HEADER, line)
        if header:
            table = _split_key(header["name"])
            for depth in range(1, len(table) + 1):
                lines.setdefault(table[:depth], number)
            continue
        key = re.match(_KEY, line)
        if key:
            lines.setdefault((*table, *_split_key(key["key"])), number)
    return lines


def _split_key(text: str) -> tuple[str, ...]:
    parts = re.findall(r'"[^"]*"|\'[^\']*\'|[^\s."\']+', text)
    return tuple(part.strip("\"'") for part in parts)


def _displayed(pattern: str, folder: Path, cwd: Path) -> list[str]:
    """Patterns over display paths that mean what ``pattern`` means relative to ``folder``."""
    pattern = pattern.strip().removeprefix("./")
    bare = pattern.removeprefix("**/")
    if "/" not in bare:
        return [bare, f"*/{bare}"]
    if pattern.startswith("**/"):
        return [bare, f"*/{bare}"]
    absolute = f"{folder.as_posix().rstrip('/')}/{pattern}"
    shown = [absolute]
    if folder.is_relative_to(cwd):
        inner = folder.relative_to(cwd).as_posix()
        shown.append(pattern if inner == "." else f"{inner}/{pattern}")
    elif cwd.is_relative_to(folder):
        below = cwd.relative_to(folder).parts
        parts = pattern.split("/")
        if len(parts) > len(below) and all(map(fnmatch, below, parts)):
            shown.append("/".join(parts[len(below) :]))
    return shown


def framework_named(
    name: str | None, plugins: Sequence[str] = (), profiles: str | None = None
) -> str | None:
    """The name of a framework, one of a plug-in (in these folders) or of a profile included.

    Raises:
        UsageError: nobody knows it; with the nearest name.
    """
    from oomlint.plugins import dialects_in_force

    known = list(get_args(Framework))
    if name is None or name in known:
        return name
    dialects = dialects_in_force(plugins, profiles).items.dialects
    known += (dialect.name for dialect in dialects if dialect.origin)
    known = list(dict.fromkeys((*known, *dialects[0].profiles.frameworks)))
    if name in known:
        return name
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(f"the framework {name!r} is none of ours; {hint}known: {', '.join(known)}")


def kebab_keys() -> dict[str, str]:
    """Every key of the settings file and what it means, in the order of the class."""
    from msgspec.structs import fields

    return {f.encode_name: get_args(f.type)[1].description for f in fields(Settings)}


_HEAD = """\
# Settings of oomlint. Every key is optional; the values below are the defaults or examples.
# The nearest oomlint.toml, .oomlint.toml or [tool.oomlint] in pyproject.toml counts.
"""

_EXAMPLES: Mapping[str, str] = {
    "hardware": 'hardware = "8xA100-80GB"',
    "host-memory": 'host-memory = "512GiB"',
    "gpus": "gpus = 8",
    "framework": 'framework = "axolotl"',
    "project-root": 'project-root = "."',
    "select": "select = []",
    "extend-select": "extend-select = []",
    "ignore": 'ignore = ["OOM9"]',
    "exclude": 'exclude = ["third_party"]',
    "respect-gitignore": "respect-gitignore = true",
    "fail-level": 'fail-level = "warning"',
    "margin": "margin = 0.85",
    "output-format": 'output-format = "text"',
    "baseline": 'baseline = ".oomlint-baseline.json"',
    "plugins": 'plugins = ["tools/oomlint_rules"]',
    "per-file-ignores": '[per-file-ignores]\n"examples/*.json" = ["unknown-key-ignored"]',
    "profiles": '[profiles.cluster]\nhardware = "2x8xH100-80GB"\nhost-memory = "2TiB"',
}


def template(stated: Mapping[str, str] | None = None) -> str:
    """A settings file in which every key is explained, and none but the ``stated`` is in force."""
    from json import dumps

    help_texts, stated = kebab_keys(), stated or {}
    parts = [_HEAD]
    for key, example in _EXAMPLES.items():
        lines = [f"# {line}" for line in example.split("\n")]
        if key in stated:
            lines = [f"{key} = {dumps(stated[key])}"]
        parts += [f"# {help_texts[key]}", *lines, ""]
    return "\n".join(parts)
