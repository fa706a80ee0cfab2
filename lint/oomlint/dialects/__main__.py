"""``python -m oomlint.dialects``: write the indexes of dialects and of profiles anew."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from oomlint.dialects import CLASSES
from oomlint.dialects.profiles.known import index_rows

INDEX = Path(__file__).with_name("index.py")
PROFILES = Path(__file__).parent / "profiles" / "index.py"

_HEAD = '''"""By class: name, suffixes, markers, whether they prove it to be a config, where it needs one, and words in Python.

Written by ``python -m oomlint.dialects`` from the classes themselves; do not edit.
"""

# fmt: off
SIGNATURES: dict[
    str, tuple[str, tuple[str, ...], tuple[bytes, ...], bool, tuple[str, ...], tuple[bytes, ...]]
] = {
'''


def index_text() -> str:
    """What the index must hold, according to the classes."""
    rows = []
    for module, name in CLASSES:
        kind = getattr(import_module(f"oomlint.dialects.{module}"), name)
        signature = (
            kind.name, kind.suffixes, kind.markers, kind.markers_prove, kind.only_marked, kind.words_in_python,
        )  # fmt: skip
        rows.append(f"    {name!r}: {signature!r},\n")
    return _HEAD + "".join(rows) + "}\n"


_HEAD_OF_PROFILES = '''"""By profile: the folders that it ignores; number, framework and fingerprints of its scripts.

Written by ``python -m oomlint.dialects`` from the profiles themselves; do not edit.
"""

from typing import Any

_Script = tuple[int, str, tuple[dict[str, Any], ...]]

# fmt: off
PROJECTS: tuple[tuple[str, tuple[str, ...], tuple[_Script, ...]], ...] = (
'''


def profiles_text() -> str:
    """What the index of profiles must hold, according to their files."""
    return _HEAD_OF_PROFILES + "".join(f"    {row!r},\n" for row in index_rows()) + ")\n"


if __name__ == "__main__":
    PROFILES.write_text(profiles_text(), "utf-8")
    INDEX.write_text(index_text(), "utf-8")
