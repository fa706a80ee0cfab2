"""What a title says of names that are too long for it, and what a detail says of a need."""

from pathlib import Path

from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import short

RUN = (
    "base_model: NousResearch/Meta-Llama-3-8B\ndatasets:\n  - path: tatsu-lab/alpaca\n"
    "    type: alpaca\nsequence_length: 8192\nmicro_batch_size: 8\nbf16: true\nadapter: lora\n"
    "lora_r: 16\nlora_target_linear: true\n"
)


def findings(hardware=None, text=RUN):
    files = {"train.yaml": text.encode()}
    options = Options(hardware=parse_hardware(hardware) if hardware else None)
    report = lint(Workspace(Path("/project"), files), ["train.yaml"], options)
    return {d.finding.rule.name: d.finding for d in report.diagnoses}


def test_of_a_path_the_last_part_and_of_a_long_name_its_ends():
    assert short("meta-llama/Llama-3.1-8B") == "Llama-3.1-8B"
    assert short("/data/models/own/") == "own"
    assert short("a\n b") == "a b"
    assert short("/") == "/"
    assert short("x" * 24) == "x" * 24
    assert short("begin" + "x" * 40 + "end", 9) == "begi…xend"


def test_a_cause_repeats_the_need_only_where_no_headline_says_it():
    anywhere, known = findings(), findings("1xA100-80GB")
    assert any("the run needs" in text for text in anywhere["no-gradient-checkpointing"].details)
    assert "the run needs" not in known["no-gradient-checkpointing"].text
    assert "needs" in known["gpu-memory-at-risk"].message


def test_a_reading_of_the_files_is_a_detail():
    for name in ("gpu-memory-at-risk", "no-gradient-checkpointing"):
        finding = findings("1xA100-80GB")[name]
        assert "sequence_length read as sequence_len" not in finding.message
        assert any("sequence_length read as sequence_len" in text for text in finding.details)


def test_a_large_mask_is_no_warning_where_the_run_fits():
    packed = RUN.replace("sequence_length: 8192", "sequence_len: 32768").replace(": 8\n", ": 1\n")
    packed += "sample_packing: true\nattn_implementation: sdpa\ngradient_checkpointing: true\n"
    labels = {
        card: findings(card, packed)["packing-without-varlen-attention"].severity.label
        for card in ("1xA100-40GB", "1xB200-180GB")
    }
    assert labels == {"1xA100-40GB": "warning", "1xB200-180GB": "info"}


def test_states_that_are_too_large_alone_go_by_the_risk_of_the_run():
    whole = RUN.partition("adapter")[0].replace("sequence_length: 8192", "sequence_len: 256")
    finding = findings("1xA100-40GB", whole)["gpu-states-over-budget"]
    assert finding.severity.label == "error"
    assert finding.details[-1].startswith("what is enough: LoRA of rank 16 (")


def test_what_only_just_goes_below_the_limit_is_not_enough():
    """39.0 of 39.4 GiB is a risk of 70 %."""
    whole = RUN.partition("adapter")[0].replace("sequence_length: 8192", "sequence_len: 512")
    finding = findings("1xA100-40GB", whole)["gpu-states-over-budget"]
    assert not any("enough" in detail for detail in finding.details)


def test_states_that_a_launcher_may_share_out_are_a_remark():
    recipe = (
        "model_name_or_path: Qwen/Qwen2.5-7B\ntorch_dtype: bfloat16\nbf16: true\nper_device_train_batch_size: 64\n"
        "max_length: 4096\npacking: true\ndataset_name: a/b\noutput_dir: o\n"
    )
    found = findings("8xA100-40GB", recipe)
    assert found["gpu-memory-at-risk"].severity.label == "error"
    assert found["gpu-states-over-budget"].severity.label == "info"
