"""Modules that several scripts take something from are parsed once, whatever their size."""

from __future__ import annotations

import pytest

from oomlint.documents.python import modules
from oomlint.documents.python.document import parse_python
from oomlint.documents.text import Source

_SCRIPT = """\
from transformers import Trainer, TrainingArguments
{imports}
args = TrainingArguments(output_dir="o", per_device_train_batch_size={sizes})
Trainer(model, args).train()
"""


def _project(count: int, size: int) -> dict[str, str]:
    """Modules of a project, of so many characters at least, that each give a number a name."""
    return {f"part_{n}.py": f"SIZE = {n}\n# {'x' * size}\n" for n in range(count)}


def _script(first: int, last: int) -> str:
    names = [f"part_{n}" for n in range(first, last)]
    imports = "\n".join(f"from {name} import SIZE as size_of_{name}" for name in names)
    return _SCRIPT.format(imports=imports, sizes=" + ".join(f"size_of_{name}" for name in names))


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules that were parsed, in turn."""
    paths: list[str] = []
    read = modules._parsed

    def noted(source: Source) -> modules.Module | None:
        paths.append(source.path)
        return read(source)

    monkeypatch.setattr(modules, "_parsed", noted)
    monkeypatch.setattr(modules, "_lately", {})
    return paths


def _read_all(project: dict[str, str], scripts: list[str]) -> None:
    def find(path: str) -> Source | None:
        return Source(path, project[path]) if path in project else None

    for number, text in enumerate(scripts):
        assert parse_python(Source(f"train_{number}.py", text), find) is not None


def test_scripts_side_by_side_share_their_modules(parsed: list[str]) -> None:
    scripts = [_script(first, first + 8) for first in (0, 8, 16)]
    _read_all(_project(24, 10), [*scripts, *scripts])
    assert sorted(parsed) == sorted(f"part_{n}.py" for n in range(24))


def test_a_large_module_is_shared_too(parsed: list[str]) -> None:
    _read_all(_project(1, 60_000), [_script(0, 1)] * 3)
    assert parsed == ["part_0.py"]


def test_what_was_read_longest_ago_is_forgotten(parsed: list[str]) -> None:
    size = modules._MOST_KEPT // 3
    scripts = [_script(n, n + 1) for n in (0, 1, 0, 2, 0, 1)]
    _read_all(_project(3, size), scripts)
    assert parsed == ["part_0.py", "part_1.py", "part_2.py", "part_1.py"]
    assert sum(len(source.text) for source in modules._lately) <= modules._MOST_KEPT
