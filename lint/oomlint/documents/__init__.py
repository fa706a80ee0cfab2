"""Documents: the syntax of configs and scripts, where every value stands, how to change one."""

from __future__ import annotations

from oomlint.documents.base import Document
from oomlint.documents.text import Source

YAML_SUFFIXES = (".yaml", ".yml")
JSON_SUFFIXES = (".json",)
SHELL_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".job")
PYTHON_SUFFIXES = (".py",)
SUFFIXES = (*YAML_SUFFIXES, *JSON_SUFFIXES, *SHELL_SUFFIXES, *PYTHON_SUFFIXES)


def parse(source: Source) -> Document | None:
    """Parse a file by the ending of its name; ``None`` if there is nothing in it for us.

    Raises:
        ParseError: the text is not valid in its language.
    """
    path = source.path.lower()
    if path.endswith(YAML_SUFFIXES):
        from oomlint.documents.yaml import parse_yaml

        return parse_yaml(source)
    if path.endswith(JSON_SUFFIXES):
        from oomlint.documents.json import parse_json

        return parse_json(source)
    if path.endswith(PYTHON_SUFFIXES):
        from oomlint.documents.python import parse_python

        return parse_python(source)
    if path.endswith(SHELL_SUFFIXES):
        from oomlint.documents.shell import parse_shell

        return parse_shell(source)
    return None
