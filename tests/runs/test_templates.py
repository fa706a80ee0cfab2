"""A config that a script fills in and writes elsewhere is no run; one with the same mistake that nobody fills is."""

from __future__ import annotations

import pytest
from tests.linked import report_of

_CONFIG = (
    "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\ndo_train: true\nfinetuning_type: full\n"
    "dataset: instructions\ntemplate: llama3\noutput_dir: out\ncutoff_len: {length}\n"
)


@pytest.mark.parametrize(
    ("length", "filler", "is_template"),
    [
        ("__LEN__", 'sed "s/__LEN__/$1/" lf.yaml > filled.yaml\n', True),
        ('"@LEN@"', "T=lf.yaml\nsed -e 's|@LEN@|2048|' $T | tee filled.yaml\n", True),
        ('"$LEN"', "envsubst < lf.yaml > filled.yaml\n", True),
        ("__LEN__", "llamafactory-cli train lf.yaml\n", False),
        ("__LEN__", 'sed "s/__LEN__/$1/" other.yaml > filled.yaml\n', False),
        ("long", "sed 's/long/2048/' lf.yaml > filled.yaml\n", False),
    ],
)
def test_what_a_script_fills_in(length: str, filler: str, is_template: bool) -> None:
    files = {"lf.yaml": _CONFIG.format(length=length), "fill.sh": filler}
    report = report_of(files, hardware="1xA100-40GB")
    assert (not any("lf.yaml" in run.files for run in report.runs)) is is_template
    assert any(d.rule.code == "OOM904" for d in report.diagnoses) is not is_template


def test_a_python_program_fills_in() -> None:
    program = 'text = open("lf.yaml").read().replace("__LEN__", str(length))\nopen("filled.yaml", "w").write(text)\n'
    files = {"lf.yaml": _CONFIG.format(length="__LEN__"), "fill.py": program}
    assert not report_of(files).runs
