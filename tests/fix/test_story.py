"""What a file says of itself by its name and its comments holds after a fix too."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fixing import repaired, speaks, wants

from oomlint.fix.apply import FixResult
from oomlint.fix.story import contradiction, name_for
from oomlint.linting.rule import Applicability, Proposal
from oomlint.plan import Plan
from oomlint.runs.run import Run

FACTORY = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
do_train: true
finetuning_type: full{comment}
dataset: alpaca
template: llama3
per_device_train_batch_size: 8{batch}
bf16: true
"""
SCRIPT = """\
from transformers import Trainer, TrainingArguments

args = TrainingArguments(output_dir="o", bf16=True{more})
Trainer(model="meta-llama/Llama-3.2-1B", args=args).train()
"""


def fix(files: dict[str, str], field: str, value: Any) -> FixResult:
    return repaired(files, rules=[wants(field, value)], unsafe=True)


def factory(comment: str = "", batch: str = "") -> str:
    return FACTORY.format(comment=comment, batch=batch)


def reason(result: FixResult) -> str:
    """Why the only fix is but shown."""
    assert result.texts == {}
    (left,) = result.report.diagnoses
    assert left.fix is not None
    assert left.fix.applicability is Applicability.DISPLAY
    return str(left.fix.reason)


@pytest.mark.parametrize(
    ("name", "field", "value", "word"),
    [
        ("llama3_full_sft.yaml", "trainable.method", "lora", "full_sft"),
        ("qwen-fullft.yaml", "trainable.method", "lora", "fullft"),
        ("sft_bf16.yaml", "precision.compute", "fp16", "bf16"),
        ("sft_bs8.yaml", "batch.micro", 1, "bs8"),
        ("galore.yaml", "optimizer.kind", "adafactor", "galore"),
    ],
)
def test_config_stays_what_it_is_called(name: str, field: str, value: Any, word: str) -> None:
    said = reason(fix({name: factory()}, field, value))
    assert said == f"{name} would no longer be what its name says: {word}"


def test_script_for_one_gpu_gets_no_sharding() -> None:
    wishes = {"parallel.backend": "fsdp1"}
    assert contradiction("a/train_singlegpu.py", Plan(), wishes) == "singlegpu"
    assert contradiction("a/train-1x-gpu.sh", Plan(), wishes) == "1x-gpu"
    assert contradiction("singlegpu/train_8gpu.py", Plan(), wishes) is None


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("fuller_sft.yaml", "trainable.method", "lora"),
        ("sft_bs4.yaml", "batch.micro", 1),  # so it was once
        ("llama3_full_sft.yaml", "batch.micro", 1),
        ("8gpu.yaml", "trainable.method", "lora"),
    ],
)
def test_names_that_say_nothing_of_it_stop_nothing(name: str, field: str, value: Any) -> None:
    assert fix({name: factory()}, field, value).texts.keys() == {name}


def test_adapter_is_left_to_the_file_beside_that_trains_one() -> None:
    lora = factory().replace("full", "lora")
    said = reason(fix({"sft.yaml": factory(), "sft_lora.yaml": lora}, "trainable.method", "lora"))
    assert said == "sft_lora.yaml beside it is for that"
    files = {"sft.yaml": factory(), "dpo_lora.yaml": lora}
    assert fix(files, "trainable.method", "lora").texts.keys() == {"sft.yaml"}


def test_adapter_goes_with_no_galore() -> None:
    said = reason(fix({"a.yaml": factory() + "use_galore: true\n"}, "trainable.method", "lora"))
    assert said == "LLaMA-Factory refuses use_galore with LoRA"


@pytest.mark.parametrize(
    "comment",
    [
        "  # only support full for now",
        " # LoRA fails on multi-node",
        "  # must be the same as in eval.yaml",
    ],
)
def test_comment_beside_a_value_forbids_another(comment: str) -> None:
    said = reason(fix({"a.yaml": factory(comment=comment)}, "trainable.method", "lora"))
    assert said == f"a comment beside it warns: {comment.strip(' #')}"


@pytest.mark.parametrize(
    "comment", ["  # choices: [full, freeze, lora]", "  # the method", "  #", ""]
)
def test_comment_that_only_explains_stops_nothing(comment: str) -> None:
    assert fix({"a.yaml": factory(comment=comment)}, "trainable.method", "lora").texts


def test_comment_beside_the_name_of_a_file_forbids_another() -> None:
    text = factory() + "deepspeed: zero1.json  # other stages meet bugs in the engine\n"
    files = {"a.yaml": text, "zero1.json": '{"zero_optimization": {"stage": 1}}'}
    said = reason(fix(files, "parallel.zero.stage", 3))
    assert said == "a comment beside it warns: other stages meet bugs in the engine"


def test_comment_of_another_line_stops_nothing() -> None:
    text = factory(batch="  # must be a power of two")
    assert fix({"a.yaml": text}, "trainable.method", "lora").texts


def test_what_a_call_unpacks_may_say_it_already() -> None:
    text = "import settings\n" + SCRIPT.format(more=", **settings.training()")
    said = reason(fix({"train.py": text}, "batch.micro", 1))
    assert said == "what is unpacked here may say per_device_train_batch_size already"


def test_what_a_call_unpacks_in_sight_is_known() -> None:
    text = SCRIPT.format(more=', **{"seed": 1}')
    assert (
        "per_device_train_batch_size=1"
        in fix({"train.py": text}, "batch.micro", 1).texts["train.py"].decode()
    )


# -- packages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("required", "is_written"),
    [
        ("torch\ntransformers\n", False),
        ("torch\ntransformers\nliger_kernel>=0.5\n", True),
        ("", True),  # what it needs stands elsewhere
        ("mkdocs\n", True),
    ],
)
def test_kernel_that_the_project_does_not_require_is_shown(required: str, is_written: bool) -> None:
    files = {"train.py": SCRIPT.format(more=""), "requirements.txt": required}
    result = fix(files, "loss.logits_materialised", "fused")
    if is_written:
        assert "use_liger_kernel=True" in result.texts["train.py"].decode()
    else:
        assert reason(result) == "it needs liger-kernel, which the project does not require"


@pytest.mark.parametrize(
    ("guide", "is_written"),
    [
        ("# Mine\n\n```bash\npip install torch transformers datasets\n```\n", False),
        ("# Mine\n\n```bash\npip install torch transformers liger-kernel\n```\n", True),
    ],
)
def test_kernel_that_the_guide_does_not_install_is_shown(guide: str, is_written: bool) -> None:
    result = fix(
        {"train.py": SCRIPT.format(more=""), "README.md": guide},
        "loss.logits_materialised",
        "fused",
    )
    if is_written:
        assert "use_liger_kernel=True" in result.texts["train.py"].decode()
        assert _titles(result) == ["set loss.logits_materialised"]
    else:
        assert reason(result) == "it needs liger-kernel, which the project does not require"


@pytest.mark.parametrize(
    ("installs", "is_told"),
    [("torch transformers", True), ("torch transformers liger-kernel", False), ("tqdm", False)],
)
def test_what_sets_the_project_up_tells_what_is_installed(installs: str, is_told: bool) -> None:
    files = {"train.py": SCRIPT.format(more=""), "setup/install.sh": f"pip install {installs}\n"}
    result = fix(files, "loss.logits_materialised", "fused")
    assert bool(result.texts) is not is_told
    if is_told:
        assert reason(result) == "it needs liger-kernel, which the project does not require"


def test_kernel_of_which_no_file_speaks_is_named_in_the_title() -> None:
    result = fix({"train.py": SCRIPT.format(more="")}, "loss.logits_materialised", "fused")
    assert _titles(result) == ["set loss.logits_materialised (it needs liger-kernel)"]


def test_kernel_that_the_script_does_not_install_is_shown() -> None:
    script = "import os\n\nos.system('pip install -q transformers trl')\n" + SCRIPT.format(more="")
    result = fix({"train.py": script}, "loss.logits_materialised", "fused")
    assert reason(result) == "it needs liger-kernel, which the project does not require"


def _titles(result: FixResult) -> list[str]:
    return [each.fix.title for each in result.report.applied if each.fix is not None]


_SETUP = """\
extra_require = {
    "torch": ["torch>=1.13.1"],
    "liger-kernel": ["liger-kernel"],
}
setup(install_requires=["transformers>=4.41"%s], extras_require=extra_require)
"""
_PYPROJECT = """\
[project]
name = "mine"
dependencies = ["transformers"%s]

[project.optional-dependencies]
fast = ["liger-kernel"]
"""


@pytest.mark.parametrize("of_all", ["", ', "liger-kernel>=0.3"'])
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("setup.py", _SETUP),
        ("pyproject.toml", _PYPROJECT),
        ("train/setup.py", _SETUP),
        ("train/pyproject.toml", _PYPROJECT),
    ],
)
def test_kernel_that_is_an_extra_is_what_only_some_install(
    path: str, text: str, of_all: str
) -> None:
    files = {"train.py": SCRIPT.format(more=""), path: text % of_all}
    result = fix(files, "loss.logits_materialised", "fused")
    if of_all:
        assert "use_liger_kernel=True" in result.texts["train.py"].decode()
    else:
        assert reason(result) == "it needs liger-kernel, which the project does not require"


def test_framework_that_brings_the_kernel_needs_no_requirement() -> None:
    config = "base_model: meta-llama/Llama-3.2-1B\ndatasets:\n  - path: x\n    type: alpaca\nsequence_len: 4096\nmicro_batch_size: 1\n"
    files = {"a.yaml": config, "requirements.txt": "torch\naxolotl\n"}
    assert fix(files, "loss.logits_materialised", "fused").texts


# -- names of copies -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stem", "wishes", "name"),
    [
        ("zero2", {"parallel.zero.stage": 3}, "zero3"),
        ("ds_z2_config", {"parallel.zero.stage": 3}, "ds_z3_config"),
        ("deepspeed", {"parallel.zero.stage": 3}, "deepspeed_zero3"),
        ("zero3", {"offload.optimizer": "cpu"}, "zero3_offload_optimizer"),
        ("zero3", {"offload.optimizer": "cpu", "offload.params": "cpu"}, "zero3_offload"),
        ("zero3_offload", {"offload.optimizer": "none"}, "zero3_offload_on_gpu"),
        ("zero3", {"parallel.zero.stage": 3, "parallel.zero.gather16_on_save": True}, "zero3"),
        ("run", {"batch.micro": 1}, "run_micro_1"),
        ("run", {"checkpointing.mode": "full"}, "run_checkpointing_full"),
        ("ds", {"offload.pin_memory": False}, "ds_no_pin_memory"),
        (
            "zero1",
            {
                "parallel.zero.stage": 2,
                "parallel.zero.reduce_bucket_elems": 5,
                "parallel.zero.allgather_bucket_elems": 5,
            },
            "zero2_small_buckets",
        ),
        ("zero3", {"parallel.zero.gather16_on_save": False}, "zero3_sharded_save"),
    ],
)
def test_copy_is_called_by_what_it_is_for(stem: str, wishes: dict[str, Any], name: str) -> None:
    assert name_for(stem, wishes) == name


def test_copy_is_called_by_what_it_says_itself_alone() -> None:
    line = "deepspeed train.py --deepspeed zero3.json --model_name_or_path {} --output_dir o --per_device_train_batch_size 8 --gradient_accumulation_steps 1\n"
    files = {
        "big.sh": line.format("meta-llama/Meta-Llama-3-70B"),
        "small.sh": line.format("meta-llama/Llama-3.2-1B"),
        "zero3.json": '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}',
    }
    wishes = {"batch.micro": 1, "batch.grad_accum": 8, "offload.optimizer": "cpu"}

    def proposals(run: Run) -> Proposal | None:
        is_done = run.plan.offload.optimizer == "cpu" or "70B" not in str(run.plan.model.id)
        return None if is_done else Proposal.set("change it", wishes)

    result = repaired(files, rules=[speaks(proposals)])
    assert result.texts.keys() == {"big.sh", "zero3_offload_optimizer.json"}


def test_number_that_is_worked_out_from_others_stays() -> None:
    script = """\
GLOBAL=128
ACCUMULATE=2
LOCAL=$[$GLOBAL/(8*$ACCUMULATE)]
torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.2-1B --output_dir o \\
    --learning_rate 1e-5 --num_train_epochs 1 --per_device_train_batch_size $LOCAL
"""
    said = reason(fix({"run.sh": script}, "batch.micro", 1))
    assert said.startswith("it is written as $[$GLOBAL/(8*$ACCUMULATE)]")


def test_optimizer_is_not_put_among_what_is_about_evaluation() -> None:
    text = factory() + "\n### eval\nper_device_eval_batch_size: 1\n"
    (changed,) = fix({"a.yaml": text}, "optimizer.kind", "paged_adamw8bit").texts.values()
    assert changed.decode().index("optim:") < changed.decode().index("### eval")
