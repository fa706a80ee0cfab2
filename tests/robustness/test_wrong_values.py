"""Every key of the examples and of model configs with values of wrong types and sizes."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SECONDS = 20
# Of some 15,000 cases so many are tried here; coprime to the number of wrong values, so that
# each key gets some of them and each of them some keys.
EVERY, EVERY_FILE = 101, 401
Oomlint = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def wrong() -> Any:
    if not (ROOT / "benchmarks" / "fuzz").is_dir():
        pytest.skip("benchmarks/fuzz is not part of this source tree")
    if sys.platform == "win32" or sys.version_info < (3, 11):
        pytest.skip("needs timers of POSIX and a reader of TOML")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield importlib.import_module("benchmarks.fuzz.wrong_values")


def test_the_cases_are_of_every_kind(wrong: Any) -> None:
    names = {case.what.partition(":")[0] for case in wrong.cases()}
    assert {f"model {name}" for name in wrong.MODELS} < names
    assert {name.rpartition(".")[2] for name in names} >= {"json", "yaml", "sh"}


def test_no_wrong_value_breaks_a_lint(wrong: Any) -> None:
    trial = importlib.import_module("benchmarks.fuzz.trial")
    for number, case in enumerate(wrong.cases()):
        if number % EVERY == 0:
            fix = number % (10 * EVERY) == 0
            problem = trial.trouble(case.files, case.hardware, fix=fix, seconds=SECONDS)
            assert problem is None, f"{case.what}: {problem}"


def test_one_command_over_projects_with_wrong_values(
    wrong: Any, project: Path, oomlint: Oomlint
) -> None:
    """Status and memory are those that are documented, however many are wrong."""
    for number, case in enumerate(wrong.cases()):
        if number % EVERY_FILE == 0:
            for name, data in case.files.items():
                file = project / str(number) / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
    words = ("check", "--isolated", "--no-cache", "--hardware", "8xA100-80GB")
    result = oomlint(*words, "--output-format", "json", ".", before=limit)
    assert result.returncode in (1, 3), result.stderr
    assert not result.stderr
    errors = json.loads(result.stdout)["errors"]
    assert not [error for error in errors if error["kind"] == "internal"]


@pytest.mark.parametrize("key", ["cpu_offload", "cpu_offload_param", "cpu_offload_params"])
@pytest.mark.parametrize("value", ["auto", -1, [], {"device": 1}, None])
def test_an_old_key_of_deepspeed_that_holds_no_switch(key: str, value: Any, wrong: Any) -> None:
    trial = importlib.import_module("benchmarks.fuzz.trial")
    text = json.dumps({"train_batch_size": 8, "zero_optimization": {"stage": 2, key: value}})
    for fix in (False, True):
        problem = trial.trouble({"ds.json": text.encode()}, "8xA100-80GB", fix=fix, seconds=SECONDS)
        assert problem is None


def test_a_picture_tower_with_more_heads_than_it_is_wide(wrong: Any) -> None:
    trial = importlib.import_module("benchmarks.fuzz.trial")
    for size, heads in ((3, 16), (1280, 2**31), (1, 2)):
        config = {
            **wrong.MODELS["vision"],
            "vision_config": {**wrong.MODELS["vision"]["vision_config"], "hidden_size": size, "num_heads": heads},
        }  # fmt: skip
        train = b"base_model: ./model\nmicro_batch_size: 4\nsequence_len: 2048\n"
        files = {"train.yaml": train, "model/config.json": json.dumps(config).encode()}
        assert trial.trouble(files, "8xA100-80GB", fix=False, seconds=SECONDS) is None
