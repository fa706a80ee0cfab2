"""The formats for people: text, concise, diff."""

import subprocess
from pathlib import Path

import pytest
from tests.linked import report_of

from oomlint.documents.text import Location, Span
from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware
from oomlint.linting.engine import Options, Report, lint
from oomlint.linting.rule import Severity
from oomlint.report import render
from oomlint.report.blocks import troubles
from oomlint.report.diff import render as render_diff
from oomlint.report.excerpts import excerpt
from oomlint.report.paint import Paint
from oomlint.report.places import LineIndex
from oomlint.report.wrapping import columns, wrapped

GOLDEN = """\
error OOM102 micro-batch-too-large: needs 92.3 GiB, 100% of it: <activations> &
  "logits"
   --> a,b.yaml:2:14
  2 | x: {a: "😀é", batch: 16}
    |               ^^^^^^^^^
  the stage stands here (conf/ds.json:1:11)
  fix (safe, --fix): halve the batch: 92.2 GiB → 65.0 GiB

warning OOM301 zero-stage-too-low: stage 1
   --> conf/ds.json:1:11
  1 | {"stage": 1}
    |           ^
  fix (shown only: the value is templated): raise the stage

info OOM301 zero-stage-too-low: stage 1
   --> conf/ds.json:1:11
  1 | {"stage": 1}
    |           ^

1 error, 1 warning, 1 note; 1 fixable with --fix; 1 file could not be used
"""


@pytest.fixture(autouse=True)
def _narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_text(report):
    assert render(report, "text", Paint()) == GOLDEN


def test_colour_changes_nothing_but_adds_codes(report):
    import re

    colored = render(report, "text", Paint(True))
    assert colored != GOLDEN
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == GOLDEN


def test_concise_is_one_line_a_finding(report):
    assert render(report, "concise", Paint()).splitlines() == [
        'a,b.yaml:2:14: error OOM102 micro-batch-too-large needs 92.3 GiB, 100% of it: <activations> & "logits"',
        "conf/ds.json:1:11: warning OOM301 zero-stage-too-low stage 1",
        "conf/ds.json:1:11: info OOM301 zero-stage-too-low stage 1",
    ]


def show(text: str, start: int, end: int) -> list[str]:
    workspace = Workspace(overlay={"a.yaml": text.encode()})
    places = LineIndex(Report((), (), (), 1, workspace))
    return list(excerpt(Location("a.yaml", Span(start, end)), "error", places, Paint(), 100))


def test_underline_stands_below_its_text_whatever_the_width():
    assert show("\tkey: v\n", 1, 4)[1:] == ["1 |     key: v", "  |     ^^^"]
    assert show("名: value\n", 3, 8)[1:] == ["1 | 名: value", "  |     ^^^^^"]


def test_a_span_of_several_lines_shows_its_first():
    assert show("a: 1\nb: 2\n", 0, 9)[1:] == ["1 | a: 1", "  | ^^^^"]


def test_a_minified_line_is_cut_around_the_span():
    text = "{" + '"k": 1, ' * 5000 + '"last": 2}'
    shown = show(text, text.index('"last"'), len(text) - 1)
    assert all(len(line) < 200 for line in shown)
    assert '"last": 2' in shown[1]
    start = shown[1].index('"last"')
    assert shown[2][start : start + 9] == "^" * 9


def test_control_characters_do_not_reach_the_terminal():
    assert "\x1b" not in "".join(show("a: \x1b[31mred\n", 0, 1))


def test_an_empty_file_and_an_end_beyond_the_text():
    assert show("", 0, 0) == []
    assert show("a: 1", 0, 99)[1:] == ["1 | a: 1", "  | ^^^^"]


def test_diff_keeps_line_endings_and_the_missing_last_one(tmp_path):
    before = {"a.yaml": b"x: 1\r\ny: 2", "b.json": b"{}\n", "new/c.yaml": b"\xc3\xa9: 1\n\x0c\n"}
    after = {"a.yaml": b"x: 1\r\ny: 3", "b.json": b"{1}\n", "new/c.yaml": b"\xc3\xa9: 2\n\x0c\n"}
    text = render_diff(after, before)
    assert text.count("\\ No newline at end of file\n") == 2
    for name, data in before.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    subprocess.run(
        ["patch", "--binary", "-s", "-p1"], input=text.encode(), check=True, cwd=tmp_path
    )
    assert {name: (tmp_path / name).read_bytes() for name in after} == after


def test_what_was_not_read_and_decides_is_named_below():
    """No finding may speak of such a run: with the default of what is not known it fits."""
    script = (
        "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-2-7b-hf"
        " --bf16 True --per_device_train_batch_size $MICRO --model_max_length 4096"
        " --output_dir out --deepspeed ds.json\n"
    )
    trainer = (
        "from transformers import HfArgumentParser, TrainingArguments\n"
        "parser = HfArgumentParser((TrainingArguments,))\n"
    )
    files = {
        "train.sh": script.encode(),
        "train.py": trainer.encode(),
        "ds.json": b'{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}',
    }
    options = Options(hardware=parse_hardware("8xA100-80GB"))
    report = lint(Workspace(Path("/project"), files), [*files], options)
    told = " ".join(render(report, "text", Paint()).split())
    assert "unknown whether it fits 8xA100-80GB" in told
    assert "$MICRO has no value" in told
    assert "1 run: unknown whether it fits; " in told


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_wider_than_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    long = (
        "CUDA_VISIBLE_DEVICES=0,1 && torchrun --nproc_per_node 2 train.py " + "--option 日本 " * 40
    )
    files = {
        "config.yaml": b"base_model: meta-llama/Llama-3.1-8B\ndatasets:\n  - path: a\nsequence_length: 8192\n"
        b"micro_batch_size: 16\nbf16: true\noptimizer: adamw_torch\nadapter: " + b"x" * 300 + b"\n",
        "train.sh": long.encode(),
    }
    options = Options(hardware=parse_hardware("1xA100-40GB"))
    report = lint(Workspace(Path("/project"), files), [*files], options)
    for paint in (Paint(), Paint(enabled=True)):
        lines = render(report, "text", paint).splitlines()
        assert any("^^^" in line for line in lines)
        assert [line for line in lines if columns(line) > width] == []


def test_a_number_stays_with_its_unit_and_a_colour_goes_on() -> None:
    assert list(wrapped("it needs 12 GiB (risk 34 %)", 17, "", "  ")) == [
        "it needs 12 GiB",
        "  (risk 34 %)",
    ]
    red = Paint(enabled=True)("one two", "bad")
    assert list(wrapped(red, 5, "", "")) == ["\x1b[31mone\x1b[0m", "\x1b[31mtwo\x1b[0m"]


_JOB = """\
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:a100:8
#SBATCH --mem=64G
deepspeed --num_gpus 8 run_clm.py --deepspeed ds.json --do_train --bf16 --output_dir out \\
    --model_name_or_path Qwen/Qwen2.5-7B --dataset_name tatsu-lab/alpaca --per_device_train_batch_size 1
"""


def test_a_host_that_is_too_small_is_told_in_its_own_numbers() -> None:
    """Its limit before and after a fix, and what it needs should the dtype be another."""
    deepspeed = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'
    texts = {"job.sh": _JOB, "ds.json": deepspeed}
    files = Workspace(Path("/project"), {name: text.encode() for name, text in texts.items()})
    report = lint(files, [*texts], Options())
    text = " ".join(render(report, "text", Paint()).split())
    assert "does not fit: needs 139 to 252 of 64.0 GiB of host RAM a node while loading" in text
    assert "the GPU is assumed to be A100-80GB; A100-40GB has" in text
    assert "loading dtype is assumed to be fp32; otherwise 139 GiB" in text
    assert "ask Slurm for 304 GiB a node: 252 of 64.0 GiB → 252 of 304 GiB" in text


def test_a_fix_that_moves_no_peak_says_no_numbers() -> None:
    config = (
        "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: full\n"
        "dataset: ours\ntemplate: qwen\noutput_dir: out\ncutoff_len: 512\nbf16: true\n"
        "per_device_train_batch_size: 1\ntorch_empty_cache_steps: 1\n"
    )
    files = Workspace(Path("/project"), {"train.yaml": config.encode()})
    options = Options(hardware=parse_hardware("8xA100-80GB"))
    text = render(lint(files, ["train.yaml"], options), "text", Paint())
    assert "remove torch_empty_cache_steps" in " ".join(text.split())
    assert "→" not in text


def test_a_host_that_is_too_small_counts_where_nobody_names_the_gpu() -> None:
    texts = {
        "job.sh": _JOB.replace("gpu:a100:8", "gpu:8"),
        "ds.json": '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}',
    }
    files = Workspace(Path("/project"), {name: text.encode() for name, text in texts.items()})
    text = " ".join(render(lint(files, [*texts], Options()), "text", Paint()).split())
    assert "does not fit: needs 139 to 252 of 64.0 GiB of host RAM" in text
    assert "1 run: does not fit" in text
    assert "The GPU is not known, so nothing is held against its memory" in text


@pytest.mark.parametrize(("parts", "told"), [(1, True), (2, False)])
def test_several_parts_of_no_run_are_counted_and_not_listed(parts: int, told: bool) -> None:
    names = [f"ds{number}.json" for number in range(parts)]
    data = b'{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1}'
    files = Workspace(Path("/project"), dict.fromkeys(names, data))
    text = render(lint(files, names, Options()), "text", Paint())
    assert ("ds0.json: no prediction" in text) is told
    assert "without a prediction" in text


def test_what_ranks_without_a_card_would_need_is_a_remark_beside_that_they_do_not_start() -> None:
    files = {
        "run.sh": "torchrun --nproc_per_node 8 train.py\n",
        "train.py": "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', torch_dtype='float32')\n"
        "args = TrainingArguments(output_dir='o', per_device_train_batch_size=2)\n"
        "Trainer(model=model, args=args, train_dataset=data).train()\n",
    }
    assert [each.judgement.name for each in troubles(report_of(files, hardware="8xA100-40GB"))]
    without = report_of(files, hardware="4xA100-40GB")
    (trouble,) = troubles(without)
    assert [each.code for each in trouble.judgement.endings] == ["OOM706"]
    assert not trouble.judgement.is_lost
    assert {d.rule.code for d in without.diagnoses if d.severity is Severity.ERROR} == {"OOM706"}


def test_what_a_need_comes_of_is_a_remark_below_the_headline_where_a_run_may_live(
    tmp_path: Path,
) -> None:
    """A risk from 0.8 to 0.95: that the run may die is the warning, and what it dies of a line below it."""
    config = (
        "base_model: meta-llama/Llama-3.2-1B\ndatasets:\n  - path: tatsu-lab/alpaca\n    type: alpaca\n"
        "sequence_len: 1920\nsample_packing: true\npad_to_sequence_len: true\nmicro_batch_size: 6\n"
        "gradient_accumulation_steps: 1\ngradient_checkpointing: false\nbf16: true\noptimizer: adamw_torch\n"
        "flash_attention: true\nnum_epochs: 1\nlearning_rate: 0.0001\noutput_dir: out\n"
    )
    (tmp_path / "train.yaml").write_text(config, "utf-8")
    options = Options(hardware=parse_hardware("1xA100-40GB"))
    report = lint(Workspace(tmp_path), ["train.yaml"], options)
    (trouble,) = troubles(report)
    assert trouble.judgement.is_lost
    assert trouble.leader is trouble.headline
    assert trouble.headline.severity is Severity.WARNING
    assert {each.severity for each in trouble.causes} == {Severity.INFO}
    text = render(report, "text", Paint())
    assert "warning OOM100 gpu-memory-at-risk" in text
    assert "also: no gradient checkpointing" in text
    assert "info OOM101" not in text
