"""What ends a run before its first step is part of its judgement, and every surface says so."""

from __future__ import annotations

import json

import pytest
from tests.configs import FULL_LLAMA_FACTORY
from tests.linked import report_of

from oomlint.dialects.ending import When
from oomlint.judgement import Judgement, judgement_of, words
from oomlint.linting.engine import Report, Selection, lint
from oomlint.linting.rule import Severity
from oomlint.linting.testing import _workspace, example_options
from oomlint.lsp.hints import marked, verdict_line
from oomlint.report import estimates, fits, html, markdown, render, text, why
from oomlint.report.paint import Paint
from oomlint.report.runs import run_object
from oomlint_rules import rules

_CARD = "1xRTX-4090-24GB"
_TRAIN = FULL_LLAMA_FACTORY + "{more}\n"
_START = "llamafactory-cli train train.yaml\n"


def _refused(more: str = "cut_off_lenn: 1024") -> dict[str, str]:
    return {"train.yaml": _TRAIN.format(more=more), "run.sh": _START}


def _judged(report: Report) -> Judgement:
    (run,) = report.runs
    return judgement_of(run)


def test_a_refused_key_is_part_of_the_judgement() -> None:
    (ending,) = _judged(report_of(_refused(), hardware=_CARD)).endings
    assert ending.why.startswith("LLaMA-Factory does not know cut_off_lenn")
    assert (ending.at.path, ending.line, ending.when) == ("train.yaml", 9, When.SETTINGS)
    assert (ending.code, ending.name) == ("OOM801", "unknown-key-ignored")


def test_a_run_that_nothing_ends_has_none() -> None:
    judged = _judged(report_of(_refused("lr_scheduler_type: cosine"), hardware=_CARD))
    assert judged.endings == ()
    assert judged.outcome == judged.verdict == "does_not_fit"


def test_whoever_is_told_of_other_rules_alone_has_the_same_judgement() -> None:
    for selection in (Selection(), Selection(select=("OOM1",))):
        report = report_of(_refused(), hardware=_CARD, selection=selection)
        assert len(_judged(report).endings) == 1
        of_memory = [each for each in report.diagnoses if each.rule.code[3:4] == "1"]
        assert of_memory
        assert all(each.severity is Severity.INFO for each in of_memory)


@pytest.mark.parametrize(
    ("more", "selection"),
    [
        ("cut_off_lenn: 1024", Selection(ignore=("OOM801",))),
        ("cut_off_lenn: 1024", Selection(per_file_ignores={"train.yaml": ("OOM801",)})),
        ("cut_off_lenn: 1024  # oomlint: ignore[unknown-key-ignored]", Selection()),
    ],
)
def test_what_the_user_silences_ends_nothing(more: str, selection: Selection) -> None:
    report = report_of(_refused(more), hardware=_CARD, selection=selection)
    assert _judged(report).endings == ()
    errors = {each.rule.code for each in report.diagnoses if each.severity is Severity.ERROR}
    assert "OOM100" in errors


def test_endings_are_in_the_order_in_which_the_run_gets_there() -> None:
    files = {
        "train.sh": "torchrun --nproc_per_node 2 train.py --output_dir out --bf16 perhaps "
        '--fsdp "full_shard auto_wrap" --fsdp_transformer_layer_cls_to_wrap GPT2DecoderLayer\n',
        "train.py": (
            "from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer\n"
            "from transformers import TrainingArguments\n"
            "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
            'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")\n'
            "Trainer(model=model, args=args, train_dataset=data, data_collator=pad).train()\n"
        ),
    }
    found = _judged(report_of(files, hardware="2xA100-80GB")).endings
    assert [each.code for each in found] == ["OOM904", "OOM304"]
    assert [each.when for each in found] == [When.SETTINGS, When.LOADED]
    assert words.ending(_judged(report_of(files, hardware="2xA100-80GB"))).endswith("(and 1 more)")


def test_every_surface_says_that_the_run_ends_and_what_comes_then() -> None:
    report = report_of(_refused(), hardware=_CARD)
    (run,) = report.runs
    judged = _judged(report)
    ends, then = "ends before its first step", "once that is mended it does not fit"
    said = {
        "text": text.render(report),
        "concise": render(report, "concise", Paint()),
        "estimate": estimates.render([judged]),
        "html": html.render([judged]),
        "markdown": markdown.render(report),
        "code lens": verdict_line(run),
    }
    for surface, printed in said.items():
        whole = " ".join(printed.split())
        assert ends in whole, surface
        assert then in whole, surface
    assert ends in marked(judged.spoken)
    assert ends in why.render(run, None)
    ways = fits.render([fits.Fitting(run, None, [], [])])
    assert ends in ways
    assert "once that is mended: 1" in ways
    assert "1 run: ends before its first step; 1 error" in said["text"]
    assert words.UNKNOWN.one not in said["text"]


def test_what_programs_read_says_how_far_it_gets() -> None:
    report = report_of(_refused(), hardware=_CARD)
    shape = run_object(_judged(report))
    assert shape["verdict"] == "does_not_fit"
    assert shape["endings"] == [
        {
            "what": "LLaMA-Factory does not know cut_off_lenn: did you mean cutoff_len?",
            "when": "settings",
            "path": "train.yaml",
            "line": 9,
            "code": "OOM801",
            "name": "unknown-key-ignored",
        }
    ]
    found = json.loads(render(report, "json", Paint()))["findings"]
    assert {each["code"]: each["ends"] for each in found if each["ends"]} == {"OOM801": "settings"}
    sarif = json.loads(render(report, "sarif", Paint()))["runs"][0]["results"]
    ended = {each["ruleId"]: each["properties"].get("endsRun") for each in sarif}
    assert {code for code, word in ended.items() if word == "settings"} == {"OOM801"}


def test_a_run_that_would_fit_besides_is_no_run_that_fits() -> None:
    small = _TRAIN.format(more="cut_off_lenn: 1024").replace("3.1-8B", "3.2-1B")
    files = {"train.yaml": small.replace("full", "lora").replace("4096", "256"), "run.sh": _START}
    report = report_of(files, hardware="1xA100-80GB")
    judged = _judged(report)
    assert (judged.verdict, judged.outcome) == ("fits", "ends")
    assert "1 run: ends before its first step; 1 error" in text.render(report)
    (run,) = report.runs
    assert not fits.Fitting(run, None, [], []).is_settled
    assert "once that is mended it fits" in verdict_line(run)


def test_a_program_that_declares_its_end_leaves_open_what_it_is_then() -> None:
    """Nobody knows what comes of an import that fails once it is mended."""
    script = (
        "from trl import GRPOTrainer\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")\n'
        'args = TrainingArguments("out", per_device_train_batch_size=1)\n'
        "Trainer(model=model, args=args, train_dataset=rows, data_collator=pad).train()\n"
    )
    files = {"train.py": script, "requirements.txt": "trl==0.12.0\n"}
    judged = _judged(report_of(files, hardware=_CARD))
    assert [each.code for each in judged.endings] == ["OOM905"]
    assert judged.verdict == "unknown"
    said = words.conclusion(judged.spoken)
    assert said.count("ends before its first step") == 1
    assert "once that is mended, unknown whether it fits" in said


@pytest.mark.parametrize("rule", [rule for rule in rules() if rule.may_end])
def test_what_a_rule_is_sure_of_is_in_the_judgement(rule: type) -> None:
    """A finding that ends its run, and an ending that a rule tells of, are two sides of one thing."""
    ends = 0
    for example in rule.bad:
        names = list(example.files)
        report = lint(
            _workspace(example), names, example_options(example), explicit=frozenset(names)
        )
        for run in report.runs:
            known = {(each.code, each.at) for each in judgement_of(run).endings if each.code}
            told = {
                (each.rule.code, each.finding.location)
                for each in report.diagnoses
                if each.run is run and each.finding.ends is not None
            }
            sure = {
                (each.rule.code, each.finding.location)
                for each in report.diagnoses
                if each.run is run and each.finding.ends_the_run
            }
            assert sure <= known <= told
            ends += any(code == rule.code for code, _ in known)
    assert ends or rule.name == "renamed-key"  # which release runs decides there


def test_no_rule_ends_a_run_that_is_not_asked_for_it() -> None:
    """``may_end`` says which rules are asked: another that named how far a run gets would lower nothing."""
    for rule in rules():
        for example in (*rule.bad, *rule.good):
            names = list(example.files)
            report = lint(_workspace(example), names, example_options(example), rules=[rule])
            for each in report.diagnoses:
                assert each.finding.ends is None or rule.may_end or rule.code == "OOM905"
