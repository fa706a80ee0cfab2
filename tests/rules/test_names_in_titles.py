"""Titles of findings hold whatever the user's files call things, and severities go by the run's risk."""

import pytest

from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import MOST_OF_A_TITLE, Severity, asking
from oomlint_rules.settings import axolotl_invalid_combo, lf_invalid_combo

LONG = "a_key_of_some_house_framework_that_says_all_it_does_in_its_name"


def found(name, files, values=None, hardware=None):
    texts = {path: text.encode() for path, text in files.items()}
    card = None if hardware is None else parse_hardware(hardware)
    options = Options(hardware=card, values=values or {})
    report = lint(Workspace("/p", texts), list(texts), options, explicit=frozenset(texts))
    return [d.finding for d in report.diagnoses if d.rule.name == name]


def test_a_question_goes_where_there_is_room():
    assert asking("nothing reads X", "Y") == ("nothing reads X: did you mean Y?", ())
    title, details = asking("nothing reads X", LONG)
    assert title == "nothing reads X"
    assert details == (f"did you mean {LONG}?",)


@pytest.mark.parametrize(
    ("framework", "table"),
    [("Axolotl", axolotl_invalid_combo._TABLE), ("LLaMA-Factory", lf_invalid_combo._TABLE)],
)
def test_every_refusal_is_a_title(framework, table):
    titles = [f"{framework} refuses {combination.message}" for combination in table]
    assert [title for title in titles if len(title) > MOST_OF_A_TITLE] == []


@pytest.mark.parametrize(
    ("name", "files"),
    [
        (
            "referenced-file-missing",
            {"a.yaml": f"base_model: x/y\nmicro_batch_size: 1\ndeepspeed: {LONG}/{LONG}.json\n"},
        ),
        ("unknown-model", {"a.yaml": f"base_model: {LONG}/{LONG}\nmicro_batch_size: 1\n"}),
        ("unknown-model", {"a.yaml": f"base_model: {LONG}/{LONG}-13b\nmicro_batch_size: 1\n"}),
        ("invalid-value", {"a.yaml": f"base_model: x/y\nmicro_batch_size: {LONG}\n"}),
        (
            "unused-suppression",
            {"a.yaml": f"base_model: x/y\nmicro_batch_size: 1 # oomlint: ignore[{LONG}]\n"},
        ),
    ],
)
def test_long_names_leave_a_title_short(name, files):
    (finding,) = found(name, {**files, "a.yaml": "datasets:\n  - path: d\n" + files["a.yaml"]})
    assert len(finding.message) <= MOST_OF_A_TITLE
    assert "…" in finding.message


SAVES = (
    "import torch\nimport torch.distributed.checkpoint as dcp\n"
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n\n"
    'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-13b-hf")\n'
    'args = TrainingArguments(output_dir="out", per_device_train_batch_size=1, bf16=True)\n'
    "trainer = Trainer(model=model, args=args)\ntrainer.train()\n"
    'dcp.async_save({"model": model.state_dict()}, checkpoint_id="out/step")\n'
)


@pytest.mark.parametrize(
    ("ram", "severity"),
    [(40.0, Severity.ERROR), (72.0, Severity.WARNING), (80.0, Severity.INFO), (512.0, None)],
)
def test_a_need_beside_training_is_judged_by_its_risk(ram, severity):
    copies = found(
        "async-save-extra-copy",
        # An earlier release may load in fp32, of which 49 GiB would be copies.
        {"train.py": SAVES, "requirements.txt": "transformers==5.0.0\n"},
        {"host.ram_gib": ram},
        "1xH200-141GB",
    )
    assert [finding.severity for finding in copies] == ([] if severity is None else [severity])


PINNED = (
    "base_model: Qwen/Qwen2.5-7B\ndatasets:\n  - path: tatsu-lab/alpaca\nsequence_len: 2048\n"
    "micro_batch_size: 1\ngradient_checkpointing: true\nbf16: true\ndeepspeed: ds.json\n"
)
ZERO = (
    '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true}},'
    ' "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": "auto"}\n'
)


@pytest.mark.parametrize(
    ("ram", "speaks"), [(160.0, False), (215.0, True), (260.0, True), (2048.0, False)]
)
def test_pinned_memory_is_a_remark_on_runs_that_fit(ram, speaks):
    files = {"a.yaml": PINNED, "ds.json": ZERO}
    remarks = found("offload-pinned-memory-tight", files, {"host.ram_gib": ram}, "8xA100-80GB")
    assert bool(remarks) is speaks
    assert all(finding.severity is Severity.INFO for finding in remarks)
    headline = found("host-memory-at-risk", files, {"host.ram_gib": ram}, "8xA100-80GB")
    assert bool(headline) is (ram < 180)


@pytest.mark.parametrize(
    ("pins", "severity"),
    [
        ("transformers==4.30.2\n", Severity.INFO),
        ("transformers==4.46.0\n", Severity.WARNING),
        ("", Severity.WARNING),
    ],
)
def test_a_key_of_its_day_is_a_remark_where_what_is_pinned_beside_it_is_as_old(pins, severity):
    config = "distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n  fsdp_backward_prefetch_policy: BACKWARD_PRE\n"
    files = {"acc.yaml": config, "requirements.txt": pins}
    assert [each.severity for each in found("renamed-key", files)] == [severity]
