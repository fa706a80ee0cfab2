"""Whether ``check`` shows what ``--fix`` does: ``python -m benchmarks.planning.agreement CORPUS``.

Of every config file on small hardware: each safe fix that a report shows must be applied by
``--fix``, refused with a reason, or have become needless; the plan of a run that does not fit must
be applied with just the edits that were shown; and where the first fixes are all, the files must
become what the shown edits make of them.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from oomlint.documents.text import Edit, Source, by_path
from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.fix.apply import choose, fix_all
from oomlint.fix.planned import with_plans
from oomlint.hardware import parse_hardware
from oomlint.linting.engine import Diagnosis, Options, lint
from oomlint.linting.rule import Applicability


def disagreements(workspace: Workspace, names: Sequence[str], options: Options) -> Iterator[str]:
    """What is shown and not done, or done otherwise."""
    report = lint(workspace, names, options)
    shown = [d for d in with_plans(report, options, Applicability.SAFE) if _is_offered(d)]
    result = fix_all(workspace, names, options)
    applied = {_identity(d): d for d in result.report.applied}
    first = list(choose(shown, Applicability.SAFE, {}))
    left = {_identity(d) for d in result.report.diagnoses if _is_offered(d)}
    for diagnosis in shown:
        done = applied.get(_identity(diagnosis))
        is_first = len(first) == 1 and diagnosis is first[0]  # later ones have moved by then
        if done is not None and is_first and _edits(done) != _edits(diagnosis):
            yield f"{_title(diagnosis)} is applied with other edits than shown"
        if done is None and _identity(diagnosis) in left:
            yield f"{_title(diagnosis)} is shown, and neither applied nor refused"
    if {_identity(d) for d in first} == applied.keys() and not result.report.errors:
        for path, text in _edited(workspace, first).items():
            if result.texts.get(path) != text:
                yield f"{path} does not become what the shown edits make of it"
    if shown and not result.texts and not result.report.errors:
        refused = [d for d in result.report.diagnoses if d.fix is not None and d.fix.reason]
        if not refused:
            yield "fixes are shown and nothing is written"


def _is_offered(diagnosis: Diagnosis) -> bool:
    fix = diagnosis.fix
    return fix is not None and bool(fix.edits) and fix.applicability is Applicability.SAFE


def _identity(diagnosis: Diagnosis) -> tuple[str, str, str]:
    name = diagnosis.run.name if diagnosis.run is not None else ""
    return diagnosis.rule.code, name, _title(diagnosis)


def _title(diagnosis: Diagnosis) -> str:
    return diagnosis.fix.title if diagnosis.fix is not None else ""


def _edits(diagnosis: Diagnosis) -> tuple[Edit, ...]:
    return diagnosis.fix.edits if diagnosis.fix is not None else ()


def _edited(workspace: Workspace, diagnoses: Sequence[Diagnosis]) -> dict[str, bytes]:
    edits = [edit for d in diagnoses if d.fix is not None for edit in d.fix.edits]
    texts = {}
    for path, group in by_path(edits).items():
        if group[0].creates:
            texts[path] = Source(path, group[0].replacement).to_bytes()
        else:
            texts[path] = Source.from_bytes(path, workspace.read(path)).edited(group).to_bytes()
    return texts


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning.agreement")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--hardware", default="8xT4-16GB")
    given = parser.parse_args(arguments)
    options = Options(hardware=parse_hardware(given.hardware))
    corpus = given.corpus.resolve()
    counts: Counter[str] = Counter(files=0, disagreements=0)
    for path in walk(corpus, (".yaml", ".yml", ".json")):
        name = str(path.relative_to(corpus))
        counts["files"] += 1
        for trouble in disagreements(Workspace(corpus), [name], options):
            counts["disagreements"] += 1
            print(f"{name}: {trouble}")
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["disagreements"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
