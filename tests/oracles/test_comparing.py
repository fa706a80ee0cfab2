"""How a judge's answer is weighed: what it is shown of a command, and what counts as different."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from tests.linked import run_of

from oomlint.runs.run import Run

if not (Path(__file__).parents[2] / "benchmarks" / "oracles").is_dir():
    pytest.skip("benchmarks/oracles is not part of this source tree", allow_module_level=True)

_YAML = "base_model: Qwen/Qwen2.5-7B\ndatasets: [{path: d, type: alpaca}]\nmicro_batch_size: 2\n"


def _run(**files: str) -> Run:
    return run_of({name.replace("_", "."): text for name, text in files.items()})


def _weighed(answer: dict[str, Any], **case: Any) -> Any:
    """The verdict on one Axolotl config for one answer of the loader."""
    framework = importlib.import_module("benchmarks.oracles.framework")
    verdict = importlib.import_module("benchmarks.oracles.verdict")
    keys = importlib.import_module("oomlint.dialects.axolotl.keys")
    parts = (framework.Part(keys.AXOLOTL),)
    judge = framework.Framework("Axolotl", "axolotl_config", ("axolotl",), parts)
    given = framework.Case("t.yaml", Path("/w"), "t.yaml", _run(t_yaml=_YAML), **case)
    weighed = verdict.Verdict({})
    verdict.weigh(judge, given, answer, weighed, {"t.yaml": {"error": "ValueError: line 3"}})
    return weighed


def test_words_of_a_command_are_those_of_its_program() -> None:
    commands = importlib.import_module("benchmarks.oracles.commands")
    script = (
        "STEPS=4\nNPROC_PER_NODE=2 swift sft --model Qwen/Qwen2.5-7B --dataset 'my data.jsonl' "
        "--gradient_accumulation_steps $STEPS --learning_rate $(cat rate)\n"
    )
    told = commands.command_of(_run(go_sh=script))
    assert told["program"] == "swift"
    assert told["argv"] == [
        "sft", "--model", "Qwen/Qwen2.5-7B", "--dataset", "my data.jsonl",
        "--gradient_accumulation_steps", "4",
    ]  # fmt: skip


def test_equal_values_are_no_disagreement() -> None:
    weighed = _weighed({"values": {"micro_batch_size": 2}})
    assert (weighed.read, weighed.compared, weighed.disagreements) == (1, 1, [])


def test_another_value_is_one() -> None:
    (sentence,) = _weighed({"values": {"micro_batch_size": 3}}).disagreements
    assert "we read 2, it reads 3" in sentence


def test_a_new_refusal_after_a_fix_counts_and_an_old_one_does_not() -> None:
    new = _weighed({"error": "TypeError: no such key"}, fixed="1xT4-16GB")
    assert len(new.refused_after) == 1
    old = _weighed({"error": "ValueError: line 7"}, fixed="1xT4-16GB")
    assert old.refused_after == []
    assert len(old.still_refused) == 1


@pytest.mark.parametrize(
    ("pinned", "came", "judged"),
    [
        ("0.9.0", {"error": "ValueError: no key a"}, False),
        ("0.19.0", {"error": "ValueError: no key a"}, True),
        ("0.9.0", {"values": {}}, True),
    ],
)
def test_a_refusal_of_what_is_written_for_another_release_says_nothing(
    pinned: str, came: dict[str, Any], judged: bool
) -> None:
    framework = importlib.import_module("benchmarks.oracles.framework")
    verdict = importlib.import_module("benchmarks.oracles.verdict")
    judge = framework.Framework("Axolotl", "axolotl_config", ("axolotl",), ())
    files = {"t.yaml": _YAML, "requirements.txt": f"axolotl=={pinned}\n"}
    weighed, heard = verdict.Verdict({"axolotl": "0.19.0"}), dict[str, Any]()
    for stage, answer in (("", came), ("1xL4-24GB", {"error": "ValueError: no key b"})):
        case = framework.Case("t.yaml", Path("/w"), "t.yaml", run_of(files, "t.yaml"), stage)
        verdict.weigh(judge, case, answer, weighed, heard)
    assert bool(weighed.refused_after) is judged
    assert bool(weighed.unjudged) is not judged
    assert weighed.taken["unsafe"].only_after == judged


def test_a_missing_package_is_no_refusal() -> None:
    weighed = _weighed({"error": "ImportError: no vllm"})
    assert weighed.refused_before == []
    assert len(weighed.unjudged) == 1


def test_a_rule_counts_whose_fix_the_loader_sees() -> None:
    root = Path("/w")
    seen = _weighed({"values": {"micro_batch_size": 2}}, fixed="rule", rules=frozenset({"rule"}))
    assert (seen.rules, seen.unmoved) == ({"rule"}, set())
    framework = importlib.import_module("benchmarks.oracles.framework")
    verdict = importlib.import_module("benchmarks.oracles.verdict")
    judge = framework.Framework("Axolotl", "axolotl_config", ("axolotl",), ())
    weighed, heard = verdict.Verdict({}), {}
    for folder, fixed in (("before", ""), ("after", "rule")):
        rules = frozenset({fixed} - {""})
        case = framework.Case("t", root / folder, "t.yaml", _run(t_yaml=_YAML), fixed, rules=rules)
        answer = {"values": {"output_dir": f"/w/{folder}/out/20261121-200000"}}
        verdict.weigh(judge, case, answer, weighed, heard)
    assert (weighed.rules, weighed.unmoved) == (set(), {"rule"})


def test_nothing_is_made_for_a_judge_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    framework = importlib.import_module("benchmarks.oracles.framework")
    verdict = importlib.import_module("benchmarks.oracles.verdict")
    made: list[object] = []
    monkeypatch.setattr(verdict, "PYTHON", None)
    monkeypatch.setattr(verdict, "all_cases", lambda *asked: made.append(asked) or [])
    judge = framework.Framework("Axolotl", "axolotl_config", ("axolotl",), ())
    with pytest.raises(verdict.MissingFramework):
        verdict.judge(judge, tmp_path)
    assert made == []


def test_where_all_fixes_write_nothing_the_safe_ones_are_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = importlib.import_module("benchmarks.oracles.cases")
    workspaces = importlib.import_module("oomlint.files.workspace")
    asked: list[bool] = []

    def fix_all(*given: Any, unsafe: bool, **named: Any) -> Any:
        asked.append(unsafe)
        return original(*given, unsafe=unsafe, **named)

    original = cases.fix_all
    monkeypatch.setattr(cases, "fix_all", fix_all)
    misspelt = "export NCCL_DEBG=INFO\ntorchrun --nproc_per_node 8 train.py --output_dir out\n"
    changed = {}
    for name, text in {"fine.sh": "echo done\n", "misspelt.sh": misspelt}.items():
        workspace = workspaces.Workspace(Path("/w"), {name: text.encode()})
        changed[name] = cases._changes(workspace, [name], "8xA100-80GB", explicit=True)
    assert asked == [True, True, False]
    assert [changes.texts for changes in changed["fine.sh"].values()] == [{}, {}]
    assert all(b"NCCL_DEBUG" in c.texts["misspelt.sh"] for c in changed["misspelt.sh"].values())
    assert changed["misspelt.sh"][False].rules == {"misspelt.sh": {"env-var-typo"}}
