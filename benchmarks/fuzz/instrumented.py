"""One target under libFuzzer, in a process that loads nothing of oomlint but with its branches counted.

Started by :mod:`benchmarks.fuzz.guided`, which lays out the folder that it gets.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import atheris


def main() -> None:
    name, place, *options = sys.argv[1:]
    folder = Path(place)
    # The rules stay as they are: they read no bytes, and to count their branches would take longer
    # to prepare than all else. Modules are imported where they are first needed: by an input.
    with atheris.instrument_imports(include=["oomlint"]):
        from benchmarks.fuzz.targets import of_projects, targets

        if (folder / "projects").exists():
            target = of_projects(pickle.loads((folder / "projects").read_bytes()))
        else:
            target = dict(targets())[name]
        for file in sorted((folder / "corpus").iterdir()):
            target.run(file.read_bytes())
    atheris.Setup([name, *options, str(folder / "corpus")], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
