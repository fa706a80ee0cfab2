"""What is wrong with a config that no run of its project uses is a remark."""

from pathlib import Path

import pytest

from oomlint.files.workspace import Workspace
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Severity

IGNORED = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}'
RUN = "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 1\ndatasets:\n  - {path: a/b, type: alpaca}\n"
LOOP = "loss.backward()\n"


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ({}, Severity.WARNING),
        ({"axolotl.yaml": RUN}, Severity.INFO),
        ({"axolotl.yaml": RUN, "README.md": "Take ds.json on small cards.\n"}, Severity.WARNING),
        (
            {"axolotl.yaml": RUN, "README.md": "├── configs\n│   └── ds.json  # ZeRO\n"},
            Severity.INFO,
        ),
        ({"axolotl.yaml": f"{RUN}deepspeed: ds.json\n"}, Severity.WARNING),
        ({"axolotl.yaml": f"{RUN}# deepspeed: ds.json\n"}, Severity.INFO),
        ({"train.py": "import lightning\nlightning.Trainer().fit(model)\n"}, Severity.INFO),
        ({"train.py": f"{LOOP}run('ds.json')\n"}, Severity.WARNING),
        ({"train.py": f"{LOOP}# run('ds.json')\n"}, Severity.INFO),
        ({"train.py": f"# takes ds.json\n{LOOP}"}, Severity.WARNING),
        ({"train.py": f"{LOOP}def idle():\n    run('ds.json')\n"}, Severity.INFO),
        (
            {"train.py": f"{LOOP}def used():\n    run('ds.json')\n", "b.py": "used()\n"},
            Severity.WARNING,
        ),
        ({"train.py": f"{LOOP}p.add_argument('--ds', default='ds.json')\n"}, Severity.INFO),
        (
            {"train.py": f"{LOOP}p.add_argument('--ds', default='ds.json')\nrun(a.ds)\n"},
            Severity.WARNING,
        ),
    ],
    ids=[
        "alone",
        "beside a run",
        "named by a guide",
        "drawn by a guide",
        "used",
        "commented out",
        "beside a program",
        "named by a program",
        "named by a comment of it",
        "named at its head",
        "named by what nothing calls",
        "named by what is called",
        "named by an option that nothing reads",
        "named by an option that is read",
    ],
)
def test_part_that_nothing_uses(beside: dict[str, str], expected: Severity) -> None:
    files = {"ds.json": IGNORED.encode()} | {n: text.encode() for n, text in beside.items()}
    report = lint(Workspace(Path("/p"), files), [n for n in files if n != "README.md"], Options())
    (found,) = (d for d in report.diagnoses if d.rule.code == "OOM303")
    assert found.severity is expected
    says = "no run here uses ds.json, and no other file names it in use"
    assert (says in found.finding.details) is (expected is Severity.INFO)


@pytest.mark.parametrize(
    ("others", "is_judged"),
    [
        ({"tests/unit/configs.py": "open('ds.json')\n"}, False),
        ({"test_configs.py": "open('ds.json')\n"}, False),
        ({"test_configs.py": "open('ds.json')\n", "go.py": "run('ds.json')\n"}, True),
        ({"latest.py": "open('ds.json')\n"}, True),
    ],
    ids=["in a folder of tests", "a test by its name", "not alone", "no test"],
)
def test_a_part_that_only_tests_name(others: dict[str, str], is_judged: bool) -> None:
    files = {"ds.json": IGNORED, "train.py": LOOP, **others}
    texts = {name: text.encode() for name, text in files.items()}
    report = lint(Workspace(Path("/p"), texts), list(files), Options())
    (found,) = (d for d in report.diagnoses if d.rule.code == "OOM303")
    assert found.severity is (Severity.WARNING if is_judged else Severity.INFO)
    says = "no run here uses ds.json, and only tests name it"
    assert (says in found.finding.details) is not is_judged


LEAKS = """\
import torch
def leak(model):
    for batch in loader:
        loss = model(batch)
        loss.backward(retain_graph=True)
        total_loss += loss
"""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"leak.py": f"{LEAKS}leak(wrapped)\n"}, Severity.WARNING),
        ({"leak.py": LEAKS}, Severity.INFO),
        (
            {"leak.py": LEAKS, "train.py": "from leak import leak\nleak(wrapped)\n"},
            Severity.WARNING,
        ),
        ({"leak.py": LEAKS, "train.py": "from leak import leak\n"}, Severity.INFO),
        ({"leak.py": LEAKS, "test_leak.py": "import leak\nleak.leak(wrapped)\n"}, Severity.WARNING),
        (
            {"leak.py": f"{LEAKS}def end():\n    leak(wrapped)\ndef go():\n    end()\n"},
            Severity.INFO,
        ),
        (
            {"leak.py": f"{LEAKS}def end():\n    leak(end)\nend()\n"},
            Severity.WARNING,
        ),
    ],
    ids=[
        "called",
        "never",
        "elsewhere",
        "only imported",
        "by a test",
        "by what nothing calls",
        "in turn",
    ],
)
def test_what_stands_in_a_function_that_nothing_calls(
    files: dict[str, str], expected: Severity
) -> None:
    texts = {name: text.encode() for name, text in files.items()}
    report = lint(Workspace(Path("/p"), texts), list(files), Options())
    (found,) = (d for d in report.diagnoses if d.rule.code == "OOM116")
    assert found.severity is expected
    says = "nothing here calls leak, in which it stands"
    assert (says in found.finding.details) is (expected is Severity.INFO)


def test_what_the_user_names_is_used() -> None:
    texts = {"leak.py": LEAKS.encode()}
    report = lint(Workspace(Path("/p"), texts), ["leak.py"], Options(), explicit=frozenset(texts))
    (found,) = (d for d in report.diagnoses if d.rule.code == "OOM116")
    assert found.severity is Severity.WARNING


def test_run_in_a_function_that_nothing_calls() -> None:
    begin = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
def go():
    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B")
    args = TrainingArguments(output_dir="out", deepspeed="ds.json", gradient_accumulation_steps=4)
    Trainer(model=model, args=args, train_dataset=rows).train()
"""
    config = b'{"gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
    found = []
    for end in ("", "go()\n"):
        texts = {"t.py": f"{begin}{end}".encode(), "ds.json": config}
        report = lint(Workspace(Path("/p"), texts), list(texts), Options())
        found += [d.severity for d in report.diagnoses if d.rule.code == "OOM802"]
    assert found == [Severity.INFO, Severity.ERROR]


def test_script_is_no_part_of_a_run() -> None:
    broken = "python serve.py --model a \\ \n  --port 1\n"
    files = {"serve.sh": broken.encode(), "axolotl.yaml": RUN.encode()}
    report = lint(Workspace(Path("/p"), files), list(files), Options())
    (found,) = (d for d in report.diagnoses if d.rule.code == "OOM703")
    assert found.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("name", "guide", "expected"),
    [
        ("scripts/train_1b.sh", "", Severity.WARNING),
        ("old_scripts/train_1b.sh", "", Severity.INFO),
        ("old_scripts/train_1b.sh", "Run old_scripts/train_1b.sh.\n", Severity.WARNING),
    ],
)
def test_a_script_that_was_set_aside(name: str, guide: str, expected: Severity) -> None:
    """Nobody starts a script of a folder that its project calls old, unless something names it in use."""
    line = "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file ./configs/llama3_1b.toml\n"
    texts = {name: line.encode(), "README.md": guide.encode()}
    report = lint(Workspace(Path("/p"), texts), list(texts), Options())
    (found,) = (d for d in report.diagnoses if d.rule.code == "OOM902")
    assert found.severity is expected
