"""What a framework's own loader says of our readings and of our fixes.

A loader (``loaders/*.py``) runs in the interpreter that ``OOMLINT_ORACLE_PYTHON`` names; all its
cases go to one process. ``install`` makes an environment that has them all.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.oracles.cases import MACHINES, PYTHON, SAFE, all_cases, project_cases
from benchmarks.oracles.framework import Case, Framework, Part

from oomlint.dialects.kinds import AUTO, BadValue
from oomlint.documents.base import UNKNOWN
from oomlint.plan import Plan
from oomlint.plan.library_changes import release_of
from oomlint.runs.run import Run

_LOADERS = Path(__file__).with_name("loaders")
_MISSING = 77

# The loader could not judge: an optional package, not the config, is at fault.
_UNJUDGED = (
    r"^(ImportError|ModuleNotFoundError|CalledProcessError|FileNotFoundError|PackageNotFoundError)"
)

# No framework may look for a GPU, a hub or a cluster.
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "DS_ACCELERATOR": "cpu",
    "TOKENIZERS_PARALLELISM": "false",
    "WANDB_DISABLED": "true",
    "AXOLOTL_DO_NOT_TRACK": "1",
}


class MissingFramework(Exception):
    """The interpreter that should judge lacks the framework; the text says what it lacks."""


@dataclass
class Tally:
    """Files that fixes have changed, at each size of hardware, and how many of them a framework
    takes: as they came, and fixed. A file that a fix has made did not come: it is ``made``."""

    files: int = 0
    made: int = 0
    before: int = 0
    after: int = 0
    only_after: int = 0
    """Refused fixed, and not for what they were refused for as they came."""


@dataclass
class Verdict:
    """What a framework says of everything that we read and wrote in its dialects.

    Sentences name the file first. ``read`` and ``fixed`` count the configs that it was shown
    as they came and after a fix, ``examples`` those of rules, ``compared`` the values in all of
    them, ``keys`` the different keys. ``rules`` are those whose fixes it has taken and reads
    something else after, ``unmoved`` those after which it reads what it read before.
    """

    versions: Mapping[str, str]
    read: int = 0
    fixed: int = 0
    examples: int = 0
    compared: int = 0
    keys: set[str] = field(default_factory=set)
    rules: set[str] = field(default_factory=set)
    unmoved: set[str] = field(default_factory=set)
    disagreements: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    """Those of them that ``known`` of the framework says are none."""
    refused_before: list[str] = field(default_factory=list)
    refused_after: list[str] = field(default_factory=list)
    """What it takes as it came and not after a fix, or refuses for another reason."""
    still_refused: list[str] = field(default_factory=list)
    """What it refuses after a fix for the reason for which it refused it as it came."""
    taken: dict[str, Tally] = field(default_factory=lambda: {"safe": Tally(), "unsafe": Tally()})
    """What it takes of the files that safe fixes, or all fixes, have changed."""
    unjudged: list[str] = field(default_factory=list)
    """What this environment is at fault for: a package or a GPU that it lacks, and the release of the framework
    where it refuses a file as it came and the project pins another."""


def judge(framework: Framework, tmp: Path, machines: Sequence[str] = MACHINES) -> Verdict:
    """Show a framework the corpus and every fixable example of a rule, before and after fixes.

    Raises:
        MissingFramework: the interpreter lacks it.
    """
    _answers(framework, (), tmp)  # The cases take minutes to make, in vain if nobody reads them.
    return judge_cases(framework, all_cases(framework, tmp, machines), tmp)


def judge_projects(
    framework: Framework,
    projects: Sequence[Path],
    tmp: Path,
    machines: Sequence[str] = MACHINES,
) -> Verdict:
    """Show a framework the files of other people's projects that fixes change, before and after.

    Raises:
        MissingFramework: the interpreter lacks it.
    """
    _answers(framework, (), tmp)
    return judge_cases(framework, project_cases(framework, projects, tmp, machines), tmp)


def judge_cases(framework: Framework, cases: Sequence[Case], tmp: Path) -> Verdict:
    """Show a framework some files.

    Raises:
        MissingFramework: the interpreter lacks it.
    """
    versions, answers = _answers(framework, cases, tmp)
    verdict = Verdict(versions)
    heard: dict[str, Mapping[str, Any]] = {}
    for case, answer in zip(cases, answers, strict=True):
        weigh(framework, case, answer, verdict, heard)
    return verdict


def weigh(
    framework: Framework,
    case: Case,
    answer: Mapping[str, Any],
    verdict: Verdict,
    heard: dict[str, Mapping[str, Any]],
) -> None:
    """Add what a loader answers to a case to the verdict. ``heard`` are its answers about files as
    they came, by name."""
    name = f"{case.name} [{case.fixed}]" if case.fixed else case.name
    error = answer.get("error")
    if error is not None and error.startswith("NotMine"):
        return
    before = heard.get(case.name, {})
    unjudged = _why_unjudged(framework, case, error, verdict.versions, before)
    if unjudged is not None:
        if unjudged != error:
            # Of a file that its own release may take, fixes are not judged either.
            heard.setdefault(case.name, answer)
        verdict.unjudged.append(f"{name}: {unjudged}")
        return
    if case.fixed and not case.rule:
        _count(verdict.taken["safe" if SAFE in case.fixed else "unsafe"], before, error)
    answer = {**answer, "gist": _told(case, answer.get("values"))}
    if not case.fixed:
        heard[case.name] = answer
    elif error is not None and _gist(before.get("error", "")) == _gist(error):
        verdict.still_refused.append(f"{name}: {error}")
        return
    _count_case(verdict, case)
    if error is not None:
        refused = verdict.refused_after if case.fixed else verdict.refused_before
        if case.fixed or not case.rule:
            refused.append(f"{name}: {error}")
        return
    if case.fixed:
        is_other = answer["gist"] != before.get("gist")
        (verdict.rules if is_other else verdict.unmoved).update(case.rules)
    _compare_parts(framework, case, name, answer["values"], verdict)


def _compare_parts(
    framework: Framework, case: Case, name: str, values: Mapping[str, Any], verdict: Verdict
) -> None:
    """Hold what a loader made of a file against what oomlint did."""
    for part in framework.parts:
        sentences, keys = _compare(part, case, values)
        for sentence in sentences:
            told = f"{case.name}: {sentence}"
            is_known = any(re.search(pattern, told) for pattern in framework.known)
            found = verdict.known if is_known else verdict.disagreements
            found.append(f"{name}: {sentence}")
        verdict.compared += len(keys)
        verdict.keys |= keys


def _why_unjudged(
    framework: Framework,
    case: Case,
    error: str | None,
    versions: Mapping[str, str],
    before: Mapping[str, Any],
) -> str | None:
    """What the environment is at fault for where a loader refuses a file, if that is so."""
    if error is not None and re.search(f"{_UNJUDGED}|{framework.unjudged}", error):
        return error
    other = _other_release(case.run, versions)
    if other is not None and ("error" in before if case.fixed else error is not None):
        return f"the project pins {other}, and this one refuses it: {error}"
    return None


def _count_case(verdict: Verdict, case: Case) -> None:
    if case.rule:
        verdict.examples += bool(case.fixed)
    elif case.fixed:
        verdict.fixed += 1
    else:
        verdict.read += 1


def _other_release(run: Run, judges: Mapping[str, str]) -> str | None:
    """What the project of a run pins of a package that judges, where that is another release."""
    for package, version in judges.items():
        pinned = release_of(run.plan.versions.get(package.replace("_", "-")))
        if pinned is not None and pinned != release_of(version):
            return f"{package} {'.'.join(map(str, pinned))}"
    return None


def _count(tally: Tally, before: Mapping[str, Any], error: str | None) -> None:
    tally.files += 1
    tally.made += not before
    tally.before += bool(before) and "error" not in before
    tally.after += error is None
    is_new = error is not None and _gist(before.get("error", "")) != _gist(error)
    tally.only_after += is_new


def _gist(error: str) -> str:
    """An error without the values that it names."""
    return re.sub(r"\d+|[\w./]+/", "", error)


def _told(case: Case, values: Any) -> str:
    """What a loader reads, without the folder of the case and the time of day."""
    text = json.dumps(values, sort_keys=True).replace(str(case.root), "")
    return re.sub(r"\d{8}-\d{6}|[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d", "", text)


# -- the loader ----------------------------------------------------------------------


def _answers(
    framework: Framework, cases: Sequence[Case], tmp: Path
) -> tuple[Mapping[str, str], list[Mapping[str, Any]]]:
    """The versions of the packages that judge, and what they say of each case.

    Raises:
        MissingFramework: the interpreter lacks it.
    """
    if PYTHON is None:
        raise MissingFramework("OOMLINT_ORACLE_PYTHON names no interpreter with the frameworks")
    request = [
        {
            "root": str(case.root),
            "main": case.main,
            **framework.options(case.run),
            "given": case.given,
        }
        for case in cases
    ]
    out = tmp / "answers.json"
    done = subprocess.run(
        [PYTHON, str(_LOADERS / f"{framework.loader}.py"), str(out)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env={**_environment(), **_OFFLINE, "HOME": str(tmp)},
        check=False,
    )
    if done.returncode == _MISSING:
        why = done.stderr.strip().splitlines()[-1]
        raise MissingFramework(f"{PYTHON} lacks {framework.name}: {why}")
    if done.returncode:
        raise RuntimeError(f"{framework.loader}: {done.stderr[-3000:]}")
    answer = json.loads(out.read_text("utf-8"))
    return answer["versions"], answer["answers"]


def _environment() -> dict[str, str]:
    of_clusters = ("ACCELERATE_", "FSDP_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "PYTHON")
    return {k: v for k, v in os.environ.items() if not k.startswith(of_clusters)}


# -- what is read --------------------------------------------------------------------


def _compare(part: Part, case: Case, theirs: Mapping[str, Any]) -> tuple[list[str], set[str]]:
    """Where we and the framework differ over a file, and which keys were compared."""
    found: list[str] = []
    seen: set[str] = set()
    compared: set[str] = set()
    for row in part.table.rows:
        names = [part.under + name for name in (row.key, *row.aliases)]
        names = [name for name in names if name in theirs]
        is_silent = part.only_said and row.default is None and not _is_of_plan(row.field)
        only_said = is_silent or row.field in part.unsaid
        ours = _ours(case.run, case.main, row.field, only_said=only_said)
        if not names or row.table or row.field in seen or ours is AUTO:
            continue
        seen.add(row.field)
        if any(name in case.given for name in names):
            continue
        raw = next((theirs[n] for n in names if theirs[n] not in (None, [])), None)
        try:
            want = None if raw is None else row.kind.read(raw)
        except BadValue as error:
            found.append(f"{row.key}: it has {raw!r}, which we refuse: {error}")
            continue
        if want is AUTO:
            continue
        compared.add(part.under + row.key)
        if _same(ours) != _same(want):
            found.append(f"{row.key} ({row.field}): we read {ours!r}, it reads {want!r}")
    return found, compared


def _ours(run: Run, path: str, name: str, *, only_said: bool) -> Any:
    """What a file says of a field, else what the run comes to; ``AUTO`` where the value is left
    to others, cannot be read or comes from another file."""
    for block, reading in reversed(run.parts.blocks):
        if name in reading.auto or name in reading.unknown:
            return AUTO
        if name in reading.settings:
            is_here = block.path == path or block.path.endswith("/" + path)
            value = reading.settings[name].value
            return value if is_here and not _is_partly_unknown(value) else AUTO
    setting = run.settings.get(name)
    return AUTO if only_said else None if setting is None else setting.value


def _is_partly_unknown(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_is_partly_unknown, value.values()))
    return value is UNKNOWN or (isinstance(value, list) and any(map(_is_partly_unknown, value)))


def _is_of_plan(name: str) -> bool:
    return name.partition(".")[0] in Plan.__struct_encode_fields__


def _same(value: Any) -> Any:
    """False, ``"none"``, every one, an empty text or list are nothing; order is nothing."""
    if isinstance(value, (list, tuple)):
        return tuple(sorted(value, key=str)) or None
    return None if value is False or value in ({}, "", "none", "no", "all") else value
