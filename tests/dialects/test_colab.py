"""The GPU that a notebook's metadata names: a hint where nobody else names one."""

from __future__ import annotations

import json

import pytest
from tests.linked import report_of

from oomlint.linting.engine import Report
from oomlint.linting.rule import Severity
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

_CODE = """\
from trl import SFTConfig, SFTTrainer
args = SFTConfig(output_dir="out", per_device_train_batch_size=8, max_length=4096, bf16=True)
SFTTrainer(model="Qwen/Qwen2.5-7B", args=args, train_dataset=data).train()
"""


def _lint(gpu: str | None, code: str = _CODE, hardware: str | None = None) -> Report:
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": code}
    metadata = {
        "accelerator": "GPU",
        "colab": {"provenance": []} | ({"gpuType": gpu} if gpu else {}),
    }
    text = json.dumps({"cells": [cell], "metadata": metadata, "nbformat": 4}, indent=1)
    return report_of({"train.ipynb": text}, hardware=hardware)


@pytest.mark.parametrize(
    ("gpu", "card"), [("T4", "T4-16GB"), ("L4", "L4-24GB"), ("A100", "A100-80GB"), (None, None)]
)
def test_a_notebook_names_the_gpu_that_it_runs_on(gpu: str | None, card: str | None) -> None:
    (run,) = _lint(gpu).runs
    assert (run.hardware.gpu.name if run.hardware else None) == card
    if run.hardware is not None:
        assert (run.hardware.nodes, run.hardware.gpus_per_node) == (1, 1)
        assert run.hardware.source.startswith("the notebook asks for")
        assert run.level(f.device.type) is Level.ASSUMED


def test_what_the_user_names_counts() -> None:
    (run,) = _lint("T4", hardware="8xA100-80GB").runs
    assert run.hardware is not None
    assert run.hardware.name == "8xA100-80GB"


def test_a_hint_makes_no_more_than_remarks() -> None:
    surely = {d.rule.name: d.severity for d in _lint(None, hardware="1xT4").diagnoses}
    by_hint = {d.rule.name: d.severity for d in _lint("T4").diagnoses}
    assert max(surely.values()) is Severity.ERROR
    assert max(by_hint.values()) is Severity.INFO
    assert surely["bf16-on-pre-ampere"] is Severity.WARNING
    assert by_hint["bf16-on-pre-ampere"] is Severity.INFO


def test_a_command_in_a_notebook_runs_there_too() -> None:
    line = (
        "!torchrun --nproc_per_node 1 train.py --model_name_or_path Qwen/Qwen2.5-7B "
        "--output_dir out --per_device_train_batch_size 1 --learning_rate 1e-5 --bf16 True "
        "--num_train_epochs 1\n"
    )
    (run,) = _lint("T4", line).runs
    assert run.hardware is not None
    assert run.hardware.name == "T4-16GB"


_OLDER = "!pip install trl==0.25.1\n"
_SHOWS = 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0,1"\n'


@pytest.mark.parametrize(
    ("code", "backend", "ranks", "is_told"),
    [
        (_CODE, "device_map_pp", 4, False),
        (_SHOWS + _CODE, "device_map_pp", 2, False),
        (_OLDER + _CODE, "dp", 4, False),
        (_OLDER + _SHOWS + _CODE, "dp", 2, True),
        ('from accelerate import notebook_launcher\nnotebook_launcher(main, num_processes=4)\n' + _CODE, "ddp", 4, False),
    ],
    ids=["the machine's cards", "its own", "the machine's, older", "its own, older", "several processes"],
)  # fmt: skip
def test_a_kernel_is_one_process(code: str, backend: str, ranks: int, is_told: bool) -> None:
    """TRL spreads a model that it loads by its name over the cards of one process, from 0.26 on. Nobody says that a
    notebook is for all cards of the machine, so that nothing is said of how it drives them."""
    report = _lint(None, code, hardware="4xA100-80GB")
    (run,) = report.runs
    assert (run.plan.parallel.backend, run.plan.parallel.world) == (backend, ranks)
    assert any(d.rule.code == "OOM705" for d in report.diagnoses) is is_told


@pytest.mark.parametrize(
    ("files", "ranks"),
    [
        ({"train.py": _SHOWS + _CODE}, 2),
        ({"train.py": _SHOWS + _CODE, "run.sh": "python train.py\n"}, 2),
        ({"train.py": "import os, torch\ntorch.cuda.init()\n" + _SHOWS + _CODE}, 4),
        ({"train.py": _SHOWS.replace('"0,1"', "devices") + _CODE}, 4),
    ],
    ids=["alone", "started", "when CUDA has counted them", "not known"],
)
def test_gpus_that_a_script_leaves_itself(files: dict[str, str], ranks: int) -> None:
    (run,) = report_of(files, hardware="4xA100-80GB").runs
    assert run.plan.parallel.world == ranks
