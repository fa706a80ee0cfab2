"""Imports that fail from where a command starts a script, and those that may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linked import report_of, run_of

from oomlint.dialects import registry
from oomlint.dialects.common.fields import shared
from oomlint.files.workspace import Workspace
from oomlint.linting.rule import Severity
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker

_CARD = "1xRTX-4090-24GB"
_SCRIPT = """\
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
{imports}
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype=torch.float32)
options = TrainingArguments(output_dir="out", per_device_train_batch_size=4)
Trainer(model=model, args=options, train_dataset=data, data_collator=collator).train()
"""


def _refused(imports: str, start: str = "python scripts/train.py", **files: str) -> str:
    named = {
        name if "." in name else name.replace("__", "/").replace("_py", ".py"): text
        for name, text in files.items()
    }
    texts = {"scripts/train.py": _SCRIPT.format(imports=imports), "run.sh": f"{start}\n", **named}
    run = run_of(texts, "run.sh", "scripts/train.py", hardware=_CARD)
    found = run.settings.get(shared.refused)
    return "" if found is None else str(found.value)


_ELSEWHERE = "helpers.text lies in the project's root, where Python does not look for train.py"


def test_a_module_that_lies_where_python_does_not_look() -> None:
    own = {"helpers__text_py": "clean = 1\n"}
    imports = "from helpers.text import clean"
    assert _refused(imports, **own) == _ELSEWHERE
    assert _refused(imports, "torchrun --nproc_per_node 1 scripts/train.py", **own) == _ELSEWHERE
    assert not _refused(imports, "PYTHONPATH=. python scripts/train.py", **own)
    assert not _refused(imports, "accelerate launch scripts/train.py", **own)
    for kind, is_sure in (("FSDP", True), ("MULTI_GPU", True), ("DEEPSPEED", False)):
        start = "accelerate launch --config_file gpus.yaml scripts/train.py"
        found = _refused(imports, start, **own, **{"gpus.yaml": f"distributed_type: {kind}\n"})
        assert found == (_ELSEWHERE if is_sure else "")
    assert not _refused(imports, "python -m scripts.train", **own)
    assert not _refused(f"import sys\nsys.path.append('..')\n{imports}", **own)
    assert not _refused(imports, scripts__helpers__text_py="clean = 1\n", **own)
    assert not _refused("from helpers.other import clean", **own)
    assert not _refused(f"try:\n    {imports}\nexcept ImportError:\n    pass", **own)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "[build-system]\nrequires = []\n"),
        ("setup.py", "from setuptools import setup\nsetup()\n"),
        ("README.md", "Run `pip install -e .` first.\n"),
        ("requirements.txt", "helpers==1.0\n"),
        (".env", "PYTHONPATH=.\n"),
    ],
)
def test_a_project_that_may_be_installed(name: str, text: str) -> None:
    files = {
        "scripts/train.py": _SCRIPT.format(imports="from helpers.text import clean"),
        "helpers/text.py": "clean = 1\n",
        "run.sh": "python scripts/train.py\n",
    }
    for more, reason in (({}, _ELSEWHERE), ({name: text}, None)):
        run = run_of({**files, **more}, "run.sh", hardware=_CARD)
        found = run.settings.get(shared.refused)
        assert (None if found is None else found.value) == reason


def test_a_module_that_a_package_beside_the_script_lacks() -> None:
    files = {
        "scripts/train.py": _SCRIPT.format(imports="from ours.data import load"),
        "scripts/ours/__init__.py": "",
        "scripts/ours/text.py": "",
        "run.sh": "python scripts/train.py\n",
    }
    reason = "there is no module ours.data, which train.py imports"
    for more, expected in (
        ({}, reason),
        ({"scripts/ours/data.py": "load = 1\n"}, None),
        ({"scripts/ours/data/x.txt": ""}, None),
        ({"scripts/ours/__init__.py": "import sys\nsys.modules['ours.data'] = sys\n"}, None),
    ):
        run = run_of({**files, **more}, "run.sh", hardware=_CARD)
        said = run.settings.get(shared.refused)
        assert (None if said is None else said.value) == expected


_LACKED = "there is no module parts.fast, which blocks.py imports"


def test_a_module_that_a_folder_without_init_lacks_where_others_of_it_are_taken() -> None:
    blocks = {
        "scripts__parts__blocks_py": "from parts.fast import attend\nBlock = 1\n",
        "scripts__parts__more_py": "more = 1\n",
    }
    taken = "from parts.blocks import Block"
    assert _refused(taken, **blocks) == _LACKED
    assert not _refused(taken, **blocks, scripts__parts__fast_py="attend = 1\n")
    guarded = "try:\n    from parts.fast import attend\nexcept ImportError:\n    attend = None\nBlock = 1\n"
    assert not _refused(taken, **{**blocks, "scripts__parts__blocks_py": guarded})
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from parts.fast import attend\nBlock = 1\n"
    assert not _refused(taken, **{**blocks, "scripts__parts__blocks_py": typed})
    # An installed package of that name would come first; nothing tells that the folder's is meant.
    assert not _refused("from parts.fast import attend", scripts__parts__more_py="more = 1\n")
    assert not _refused(taken, **blocks, parts__fast_py="attend = 1\n")
    assert not _refused(taken, "PYTHONPATH=lib python scripts/train.py", **blocks)
    assert not _refused(f"import sys\nsys.path.append('lib')\n{taken}", **blocks)


def test_a_module_that_the_installed_package_of_the_project_lacks() -> None:
    own = {
        "pyproject.toml": "[project]\nname = 'ours'\n",
        "ours/__init__.py": "",
        "ours__rows_py": "rows = 1\n",
    }
    taken = "from ours.rows import rows\nfrom ours.masks import mask"
    reason = "there is no module ours.masks, which train.py imports"
    assert _refused(taken, **own) == reason
    assert _refused(taken, "deepspeed scripts/train.py", **own) == reason
    assert not _refused(taken, **own, ours__masks_py="mask = 1\n")
    assert not _refused(taken, **own, **{"ours/masks/kernel.cu": ""})
    # An installed package of that name may be another, of which the program takes nothing that is here.
    assert not _refused("from ours.masks import mask", **own)


def test_a_module_beside_the_one_that_imports_it() -> None:
    home = {
        "scripts__ours__blocks_py": "from sizes import Sizes\nBlock = 1\n",
        "scripts__ours__sizes_py": "class Sizes:\n    pass\n",
    }
    taken = "from ours.blocks import Block"
    reason = "sizes lies in scripts/ours, where Python does not look for train.py"
    assert _refused(taken, **home) == reason
    assert not _refused(taken, **home, scripts__sizes_py="class Sizes:\n    pass\n")
    # The namesake of an installed package gives other names, or is asked for none.
    assert not _refused(taken, **{**home, "scripts__ours__sizes_py": "class Others:\n    pass\n"})
    plain = "import sizes\nBlock = 1\n"
    assert not _refused(taken, **{**home, "scripts__ours__blocks_py": plain})
    own = "import sys\nsys.path.insert(0, 'ours')\nfrom sizes import Sizes\nBlock = 1\n"
    assert not _refused(taken, **{**home, "scripts__ours__blocks_py": own})
    assert not _refused(taken, "PYTHONPATH=scripts/ours python scripts/train.py", **home)


@pytest.mark.parametrize(
    ("imports", "reason"),
    [
        ("from .parts import a", "train.py imports from .parts, and belongs to no package when started so"),
        ("from parts import a", "parts.py imports from .more, and belongs to no package when started so"),
        ("from simple import b", "scripts/simple.py gives no b, which train.py imports"),
        ("from simple import a", ""),
        ("from lazy import b", ""),
    ],
)  # fmt: skip
def test_imports_of_a_script_that_is_started_by_its_path(imports: str, reason: str) -> None:
    files = {
        "scripts/train.py": _SCRIPT.format(imports=imports),
        "scripts/parts.py": "from .more import a\n",
        "scripts/more.py": "a = 1\n",
        "scripts/simple.py": "a = 1\n",
        "scripts/lazy.py": "def __getattr__(name):\n    return 1\n",
    }
    for start, is_by_path in (
        ("python scripts/train.py", True),
        ("python -m scripts.train", False),
    ):
        run = run_of({**files, "run.sh": f"{start}\n"}, "run.sh", hardware=_CARD)
        found = run.settings.get(shared.refused)
        assert (found is not None and found.value) == (reason if reason and is_by_path else False)


def test_a_program_whose_training_stands_in_other_files() -> None:
    options = "--output_dir out --per_device_train_batch_size 1 --learning_rate 1e-5 --bf16 True"
    start = (
        f"torchrun --nproc_per_node 1 {{}} {options} --model_name_or_path meta-llama/Llama-3.1-8B\n"
    )
    program = "from transformers import TrainingArguments\nfrom {} import main\nmain()\n"
    for module, ends in ((".ours", True), ("ours", False)):
        files = {
            "scripts/train.py": program.format(module),
            "scripts/ours.py": "def main():\n    pass\n",
        }
        run = run_of({**files, "run.sh": start.format("scripts/train.py")}, "run.sh")
        found = run.settings.get(shared.refused)
        assert (found is not None and "belongs to no package" in found.value) is ends


@pytest.mark.parametrize(
    ("imports", "pin", "reason"),
    [
        ("from trl import DataCollatorForCompletionOnlyLM", "trl==0.24.0", "TRL 0.20.0 and later has no DataCollatorForCompletionOnlyLM"),
        ("from trl import DataCollatorForCompletionOnlyLM", "trl>=0.21", "TRL 0.20.0 and later has no DataCollatorForCompletionOnlyLM"),
        ("from trl import DataCollatorForCompletionOnlyLM", "trl==0.19.1", ""),
        ("from trl import DataCollatorForCompletionOnlyLM", "trl>=0.12", ""),
        ("from trl import DataCollatorForCompletionOnlyLM", "trl", ""),
        ("from trl import GRPOConfig", "trl==0.12.0", "TRL up to 0.13 has no GRPOConfig"),
        ("from trl import GRPOConfig", "trl==0.13.0", "TRL up to 0.13 has no GRPOConfig"),
        ("from trl import SFTTrainer", "trl==0.4.0", "TRL up to 0.4 has no SFTTrainer"),
        ("from trl import SFTTrainer", "trl==0.4.7", ""),
        ("from transformers import AdamW", "transformers==4.57.1", "transformers 4.50.0 and later has no AdamW"),
        ("from transformers import AdamW", "transformers==4.49.0", ""),
        ("from peft import prepare_model_for_kbit_training", "peft==0.3.0", "PEFT up to 0.3 has no prepare_model_for_kbit_training"),
        ("from torch.distributed.fsdp import fully_shard", "torch==2.5.1", "torch up to 2.5 has no distributed.fsdp.fully_shard"),
        ("from torch.distributed.fsdp import fully_shard", "torch==2.6.0", ""),
        ("from torch.distributed.fsdp import FullyShardedDataParallel", "torch==2.5.1", ""),
        ("from torch.distributed._composable.fsdp import fully_shard", "torch==2.5.1", ""),
        ("from trl.trainer.utils import ConstantLengthDataset", "trl==0.21.0", "TRL 0.20.0 and later has no trainer.utils.ConstantLengthDataset"),
        ("try:\n    from trl import GRPOConfig\nexcept ImportError:\n    pass", "trl==0.12.0", ""),
        ("if model_is_new:\n    from trl import GRPOConfig", "trl==0.12.0", ""),
    ],
)  # fmt: skip
def test_names_that_no_allowed_release_has(imports: str, pin: str, reason: str) -> None:
    files = {
        "train.py": _SCRIPT.format(imports=f"model_is_new = False\n{imports}"),
        "requirements.txt": f"{pin}\n",
    }
    run = run_of(files, hardware=_CARD)
    found = run.settings.get(shared.refused)
    assert (found is not None and found.value) == (reason or False)
    errors = [x for x in report_of(files, hardware=_CARD).diagnoses if x.severity is Severity.ERROR]
    assert ([x.rule.code for x in errors] == ["OOM905"]) is bool(reason)
    if reason:
        text = files["train.py"]
        assert text[errors[0].finding.location.span.start :].startswith(imports)
    own = {
        **files,
        **{f"{name}/__init__.py": "" for name in ("trl", "peft", "transformers", "torch")},
    }
    assert run_of(own, "train.py", hardware=_CARD).settings.get(shared.refused) is None


def test_a_project_that_is_named_from_the_root_of_the_disk(tmp_path: Path) -> None:
    project = tmp_path / "above" / "project"
    texts = {
        "scripts/train.py": _SCRIPT.format(imports="import pieces\nfrom helpers.text import clean"),
        "helpers/text.py": "clean = 1\n",
        "run.sh": "python scripts/train.py\n",
    }
    for name, text in texts.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    # Of no use to the script, and no business of the project's.
    (project.parent / "pieces.py").write_text("cut = 1\n")
    names = [str(project / name) for name in texts]
    workspace = Workspace(tmp_path / "elsewhere", named=[project])
    runs = Linker(workspace, registry(), LinkOptions()).link(names).runs
    endings = {
        found and found.value for found in (run.settings.get(shared.refused) for run in runs)
    }
    assert endings == {_ELSEWHERE}


@pytest.mark.parametrize(
    ("asked", "readme", "severity"),
    [
        ("", "", Severity.INFO),
        ("peft>=0.4", "", Severity.INFO),
        ("peft>=0.10", "", Severity.ERROR),
        ("peft==0.3.0", "", None),
        ("git+https://github.com/huggingface/peft.git", "", Severity.INFO),
        ("peft", "pip install git+https://github.com/huggingface/peft", Severity.INFO),
        ("peft", "pip install peft==0.9.0", None),
        ("transformers==4.57.1", "", None),
    ],
)
def test_a_name_that_only_the_newest_of_an_unpinned_library_lacks_is_a_remark(
    asked: str, readme: str, severity: Severity | None
) -> None:
    """transformers 5 asks for PEFT 0.18 and later; who installed earlier ones has the name."""
    imports = "from peft import prepare_model_for_int8_training"
    files = {
        "train.py": _SCRIPT.format(imports=imports),
        "requirements.txt": f"{asked}\n",
        "README.md": f"{readme}\n",
    }
    found = report_of(files, hardware=_CARD).diagnoses
    told = [each for each in found if each.rule.code == "OOM905"]
    assert [each.severity for each in told] == ([] if severity is None else [severity])
    errors = {each.rule.code for each in found if each.severity is Severity.ERROR}
    assert (errors - {"OOM905"} == set()) is (severity is Severity.ERROR)
    for each in told:
        assert each.finding.text.startswith("PEFT 0.10.0 and later has no prepare_model_for_int8")
        assert files["train.py"][each.finding.location.span.start :].startswith(imports)
