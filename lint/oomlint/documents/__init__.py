"""Documents: the syntax of configs and scripts, where every value stands, how to change one."""

from __future__ import annotations

from collections.abc import Callable

from oomlint.documents.base import Document
from oomlint.documents.suffixes import (
    HELD_LANGUAGES,
    JSON_SUFFIXES,
    PYTHON_SUFFIXES,
    SHELL_SUFFIXES,
    STAGED,
    SUFFIXES,
    TOML_SUFFIXES,
    YAML_SUFFIXES,
    kind_of,
    languages_of,
)
from oomlint.documents.text import Source

__all__ = (
    "HELD_LANGUAGES",
    "JSON_SUFFIXES",
    "PYTHON_SUFFIXES",
    "SHELL_SUFFIXES",
    "STAGED",
    "SUFFIXES",
    "TOML_SUFFIXES",
    "YAML_SUFFIXES",
    "kind_of",
    "languages_of",
    "parse",
)


def parse(
    source: Source, find: Callable[[str], Source | None] = lambda _name: None
) -> Document | None:
    """Parse a file by its name; ``None`` if there is nothing in it for us. ``find`` gives the
    text of other files that it takes in, by the names that it has for them.

    Raises:
        ParseError: the text is not valid in its language.
    """
    kind = kind_of(source.path)
    if kind in YAML_SUFFIXES:
        from oomlint.documents.yaml.document import parse_yaml

        return parse_yaml(source)
    if kind in JSON_SUFFIXES:
        from oomlint.documents.json import is_tokenizer, parse_json

        return None if is_tokenizer(source) else parse_json(source)
    if kind in TOML_SUFFIXES:
        from oomlint.documents.toml import parse_toml

        return parse_toml(source)
    if kind in PYTHON_SUFFIXES:
        from oomlint.documents.python.document import parse_python

        return parse_python(source, find)
    if kind in SHELL_SUFFIXES:
        from oomlint.documents.shell.document import parse_shell

        return parse_shell(source, find)
    if kind == ".ipynb":
        from oomlint.documents.notebook import parse_notebook

        return parse_notebook(source, find)
    if kind == ".mk":
        from oomlint.documents.makefile import parse_makefile

        return parse_makefile(source)
    if kind == ".dockerfile":
        from oomlint.documents.dockerfile import parse_dockerfile

        return parse_dockerfile(source)
    if not kind and source.text.lstrip().startswith("{"):
        from oomlint.documents.json import parse_json

        return parse_json(source)  # a DeepSpeed config by another name: `stage3.conf`
    return None
