"""A key that earlier releases had is a remark, unless a release is pinned: then that one has it, or has not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linked import report_of

from oomlint.files.workspace import Workspace
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Severity
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, script
from oomlint_rules.settings.unknown_key_ignored import UnknownKeyIgnored


@pytest.mark.parametrize(
    ("text", "pin", "severity"),
    [
        (f"{AXOLOTL}eval_table_max_new_tokens: 128\n", "", Severity.INFO),
        (f"{AXOLOTL}eval_table_max_new_tokens: 128\n", "axolotl==0.4.1\n", None),
        (f"{AXOLOTL}eval_table_max_new_token: 128\n", "", Severity.WARNING),  # no release had it
        (f"{AXOLOTL}load_4bit: true\n", "", Severity.INFO),
        (f"{AXOLOTL}load_4bit: true\n", "axolotl==0.9.2\n", Severity.WARNING),
        (f"{LLAMA_FACTORY}hf_auth_token: x\n", "", Severity.INFO),
        (f"{LLAMA_FACTORY}hf_auth_token: x\n", "llamafactory==0.9.3\n", Severity.ERROR),
        (f"{LLAMA_FACTORY}hf_auth_token: x\n", "llamafactory>=0.1,<=0.9.3\n", Severity.INFO),
        # No release had it, and nothing here starts LLaMA-Factory with the file.
        (f"{LLAMA_FACTORY}hf_auth_tokens: x\n", "", Severity.INFO),
    ],
)
def test_severity(tmp_path: Path, text: str, pin: str, severity: Severity | None) -> None:
    (tmp_path / "train.yaml").write_text(text, "utf-8")
    (tmp_path / "requirements.txt").write_text(pin, "utf-8")
    told = lint(Workspace(tmp_path), ["train.yaml"], Options()).diagnoses
    found = [told.severity for told in told if told.finding.rule.code == "OOM801"]
    assert found == ([] if severity is None else [severity])


def test_a_config_of_several_strange_keys_that_nothing_starts_gets_remarks() -> None:
    """Another program may read it, or nobody; a command shows who does."""
    files = {"sft.yaml": f"{LLAMA_FACTORY}program: llamafactory\nkind_of_numbers: bfloat16\n"}
    for command, severity in (
        ("", Severity.INFO),
        ("llamafactory-cli train sft.yaml\n", Severity.ERROR),
    ):
        told = report_of({**files, "run.sh": command}).diagnoses
        found = [each.severity for each in told if each.finding.rule.code == "OOM801"]
        assert found == [severity, severity]


_TRL = (
    "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: a/b\nmax_length: 1024\noutput_dir: out\n"
    "per_device_train_batch_size: 1\ngpu_memory_utilization: 0.9\n"
)


@pytest.mark.parametrize(
    ("more", "command", "severity"),
    [
        ("", "", Severity.WARNING),
        # Keys that are like none of TRL's are another program's, and so may this one be.
        ("triton_server_url: x\n", "", Severity.INFO),
        ("triton_server_url: x\n", "trl sft --config sft.yaml\n", Severity.WARNING),
    ],
)
def test_beside_keys_of_another_program_one_that_is_only_near_gets_a_remark(
    more: str, command: str, severity: Severity
) -> None:
    told = report_of({"sft.yaml": _TRL + more, "run.sh": command}).diagnoses
    found = [each.severity for each in told if each.finding.rule.code == "OOM801"]
    assert found == [severity]


_DPO = """\
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer
args = DPOConfig(output_dir="out", model_init_kwargs={{"use_cache": False}}, {}={{"use_cache": False}})
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
DPOTrainer(model=model, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("key", "pin", "severity"),
    [
        ("ref_model_init_kwargs", "", Severity.INFO),
        ("ref_model_init_kwargs", "trl==0.12.0\n", None),
        ("ref_model_init_kwargs", "trl>=1.0\n", Severity.ERROR),
        ("ref_model_init_kwargs", "trl==1.0.0\n", Severity.ERROR),
        ("sample_num_steps", "", Severity.ERROR),  # another class's
    ],
)
def test_an_argument_of_earlier_releases(key: str, pin: str, severity: Severity | None) -> None:
    files = {"train.py": _DPO.format(key), "requirements.txt": pin}
    found = report_of(files, rules=[UnknownKeyIgnored]).diagnoses
    assert [each.severity for each in found] == ([] if severity is None else [severity])
    # The nearest name stands there already.
    assert key.startswith("sample") or not any(each.finding.proposals for each in found)


@pytest.mark.parametrize(
    ("key", "start", "severity"),
    [
        ("megatron", "", Severity.INFO),
        ("megatron", "llamafactory-cli train train.yaml\n", Severity.ERROR),
        ("cutof_len", "", Severity.ERROR),
    ],
)
def test_a_key_that_is_like_none_may_be_another_program_s(
    key: str, start: str, severity: Severity
) -> None:
    """Unless something is seen to start the framework that refuses it."""
    files = {"train.yaml": f"{LLAMA_FACTORY}{key}: 1024\n"}
    if start:
        files["run.sh"] = start
    found = report_of(files, rules=[UnknownKeyIgnored]).diagnoses
    assert [each.severity for each in found] == [severity]


@pytest.mark.parametrize(
    ("pin", "severity"),
    [
        ("transformers==4.33.3\n", None),
        ("transformers>=4.30,<5\n", Severity.INFO),  # the newest that it allows refuses the key
        ("transformers>=4.52,<5\n", Severity.ERROR),
        ("transformers==4.57.1\n", Severity.ERROR),
    ],
)
def test_a_key_that_some_releases_of_a_range_have_is_a_remark(
    pin: str, severity: Severity | None
) -> None:
    files = {"train.py": script("evaluation_strategy='epoch'"), "requirements.txt": pin}
    told = report_of(files, "train.py").diagnoses
    found = [each.severity for each in told if each.finding.rule.code == "OOM805"]
    assert found == ([] if severity is None else [severity])
