"""Which files are read, and as what: their languages by the endings of their names."""

from __future__ import annotations

YAML_SUFFIXES = (".yaml", ".yml")
JSON_SUFFIXES = (".json",)
TOML_SUFFIXES = (".toml",)
SHELL_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".job")
PYTHON_SUFFIXES = (".py",)
# How the names end of new texts that wait beside the files whose place they are to take.
STAGED = ".oomlint.tmp"
HELD_LANGUAGES = {".ipynb": (".py", ".sh"), ".mk": (".sh",), ".dockerfile": (".sh",)}
"""Files that hold code of other languages, and the endings of those."""
SUFFIXES = (
    *YAML_SUFFIXES, *JSON_SUFFIXES, *TOML_SUFFIXES, *SHELL_SUFFIXES, *PYTHON_SUFFIXES, *HELD_LANGUAGES,
)  # fmt: skip

_NAMES = {
    "makefile": ".mk", "gnumakefile": ".mk", "dockerfile": ".dockerfile", "containerfile": ".dockerfile",
}  # fmt: skip


def kind_of(path: str) -> str:
    """The ending, one of :data:`SUFFIXES`, that tells what a file holds: its own, or for names
    like ``Makefile`` and ``Dockerfile.train`` the one that such files have otherwise. Nothing
    where files of that name are not read."""
    name = path.rpartition("/")[2].lower()
    suffix = name[name.rfind(".") :] if "." in name else ""
    return suffix if suffix in SUFFIXES else _NAMES.get(name.partition(".")[0], "")


def languages_of(path: str) -> tuple[str, ...]:
    """The endings of the languages that a file holds."""
    kind = kind_of(path)
    return HELD_LANGUAGES.get(kind, (kind,))
