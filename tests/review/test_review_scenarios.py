"""Changes as people make them, and the whole of what a reviewer is left with.

Scenarios are data (scenarios.toml), their reviews are golden (golden/NAME.md) and read by people:
``OOMLINT_WRITE_GOLDEN=1`` writes them anew. What a review says, suggests, shows as a diff and prints as a
command is checked to be one change, and to lead to the number that it names.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.command import oomlint
from tests.review.conftest import RUN, PullRequest, making
from tests.review.test_review_faults import READ_ONLY

pytestmark = pytest.mark.slow

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

HERE = Path(__file__).parent
SCENARIOS: dict[str, dict[str, Any]] = tomllib.loads((HERE / "scenarios.toml").read_text("utf-8"))
GIB = r"(\d[\d.]*) GiB"


def files_of(scenario: dict[str, Any]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """The project before, after, and after the push that follows."""
    names = scenario.get("copies") or [f"run{n:02}.yaml" for n in range(scenario.get("count", 0))]
    lengths = scenario.get("lengths", [4096] * len(names))
    files = dict(RUN)
    if names:
        del files["train.yaml"]
    for number, name in enumerate(names):
        text = RUN["train.yaml"].replace("output_dir: out", f"output_dir: out{number}")
        files[name] = text.replace("sequence_len: 4096", f"sequence_len: {lengths[number]}")
    before = stepped(files, scenario.get("before", []))
    after = stepped(before, scenario["after"])
    last = stepped(before, scenario.get("then", scenario["after"]))
    if scenario.get("new"):
        before = {k: v for k, v in before.items() if k not in (names or ["train.yaml"])}
    return before, after, last


def stepped(files: dict[str, str], steps: list[list[str]]) -> dict[str, str]:
    files = dict(files)
    for path, *rest in steps:
        if not rest:
            del files[path]
        elif len(rest) == 1:
            files[path] = rest[0]
        else:
            for name in [n for n in files if n == path or (path == "*" and n.endswith(".yaml"))]:
                assert rest[0] in files[name]
                files[name] = files[name].replace(*rest)
    return files


@pytest.fixture(scope="module", params=SCENARIOS)
def scene(request, tmp_path_factory):
    """A scenario played to its end, once for all that is asked of it: its name, the forge, which answers no
    more, what the command printed, and its status."""
    folder = tmp_path_factory.mktemp("scene")
    with pytest.MonkeyPatch.context() as patch, making(folder, patch) as pull_request:
        return request.param, *played(SCENARIOS[request.param], pull_request, folder, patch)


def played(
    scenario: dict[str, Any], pull_request: PullRequest, folder: Path, patch: pytest.MonkeyPatch
) -> tuple[Any, list[str], int]:
    before, after, last = files_of(scenario)
    fake = pull_request(before, after)
    printed = []
    if scenario.get("fork"):
        fake.is_fork = True
        fake.faults = lambda m, p: READ_ONLY if m == "POST" and "/reviews" in p else None
        page = folder / "summary.md"
        patch.setenv("GITHUB_ACTIONS", "true")
        patch.setenv("GITHUB_STEP_SUMMARY", str(page))
        result = oomlint("review")
        printed = [result.stdout, page.read_text("utf-8")]
    else:
        result = oomlint("review")
    assert result.exit_code in (0, 1), result.output
    if last != after:
        # A force-push: a commit that does not build on the one that was reviewed.
        fake.repository.git("checkout", "-q", fake.before)
        fake.head = fake.repository.commit({k: v.encode() for k, v in last.items()})
        assert oomlint("review").exit_code in (0, 1)
    return fake, printed, result.exit_code


def shown(fake: Any, printed: list[str], status: int) -> str:
    """All that a reviewer sees, without the marks that nobody sees."""
    parts = [f"exit status {status}"]
    parts += [f"## printed\n\n{text}" for text in printed]
    parts += [f"## summary\n\n{review['body']}" for review in fake.reviews]
    for thread in fake.threads:
        state = ", resolved" if thread.resolved_by else ""
        place = f"{thread.path}:{thread.first}-{thread.last}{state}"
        parts.append(f"## comment on {place}\n\n{thread.body}")
    text = "\n\n".join(parts)
    text = re.sub(r"<!--.*?-->\n?", "", text).replace(fake.url, "URL")
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def test_the_review_reads_as_it_did(scene):
    name, fake, printed, status = scene
    golden = HERE / "golden" / f"{name}.md"
    text = shown(fake, printed, status)
    if os.environ.get("OOMLINT_WRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8")


def test_what_is_said_is_suggested_and_leads_to_the_number_that_is_named(scene, tmp_path):
    _, fake, _, _ = scene
    threads = fake.open_threads
    fixes = [fix for t in threads for fix in re.findall(r"^\*\*Fix:\*\* .*$", t.body, re.M)]
    for fix in fixes:
        assert fix in fake.reviews[0]["body"], "the summary names another way"
        back = re.search(r"put `([^`]+)` back to `([^`]+)`", fix)
        if back is not None:
            (thread,) = [t for t in threads if fix in t.body][:1]
            suggested = re.search(r"```suggestion\n(.*?)```", thread.body, re.S)
            assert suggested is not None
            assert re.search(f"{back[1]}\\W+{back[2]}\\b", suggested[1])
    if not fixes:
        return
    taken = tmp_path / "taken"
    for path, data in fake.with_everything(tmp_path / "patched").items():
        file = taken / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(taken)
        report = json.loads(oomlint("check", "--output-format", "json", "--exit-zero").stdout)
    peaks = sorted(run["gpu"]["peak_bytes"] / 2**30 for run in report["runs"])
    named = [n for fix in fixes for n in re.findall(rf"then (?:([\d.]+) to )?{GIB}", fix)]
    ends = [float(n) for pair in named for n in pair if n]
    assert peaks[-1] == pytest.approx(max(ends), rel=0.01)
    assert all(run["verdict"] in ("fits", "unknown") for run in report["runs"])


def test_commands_run_as_they_are_printed_and_make_what_the_diff_shows(scene, tmp_path):
    _, fake, _, _ = scene
    said = "".join([*(r["body"] for r in fake.reviews), *(t.body for t in fake.open_threads)])
    commands = re.findall(r"`(oomlint [^`]+)`", said)
    for number, command in enumerate(commands):
        folder = tmp_path / f"checkout{number}"
        for path, data in fake.repository.files(fake.head).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            result = oomlint(*shlex.split(command)[1:])
        assert result.exit_code in (0, 1), result.output
        wanted = fake.with_everything(tmp_path / f"wanted{number}")
        for path in re.findall(r"^\+\+\+ b/(.*)$", said, re.M):
            assert (folder / path).read_bytes() == wanted[path]
