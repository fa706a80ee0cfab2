"""What an eighth reading of diffs in public repositories found, and its causes; the projects here are written anew."""

from __future__ import annotations

import pytest
from tests.fixing import fix_of, repaired
from tests.linked import run_of

from oomlint.plan.fields import f

_AXOLOTL = """\
base_model: meta-llama/Meta-Llama-3-8B
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
sequence_len: 4096
micro_batch_size: 8
gradient_accumulation_steps: 4
pad_to_sequence_len: true
optimizer: adamw_torch
bf16: true
deepspeed: %s
"""
_NO_STAGE = '{"zero_optimization": {"stage": 4}, "bf16": {"enabled": true}}\n'


def test_an_error_in_a_file_that_several_runs_use_stops_each_of_them() -> None:
    files = dict.fromkeys(("a.yaml", "b.yaml"), _AXOLOTL % "ds.json")
    result = repaired({**files, "ds.json": _NO_STAGE}, hardware="8xA100-40GB")
    assert "OOM904" in {d.rule.code for d in result.report.diagnoses}
    assert not result.texts


_SCRIPT = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
Trainer(model, args, train_dataset=data).train()
"""
_JOB = """\
# DeepSpeed
{comment}
deepspeed=./scripts/zero2.json
torchrun --nproc_per_node 8 train.py --bf16 True --per_device_train_batch_size 1 --output_dir out \\
    --gradient_checkpointing True --deepspeed $deepspeed
"""
_ZERO2 = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}\n'


@pytest.mark.parametrize(
    ("comment", "is_left"), [("# MoE models only support zero2", True), ("# supports zero2", False)]
)
def test_a_comment_above_says_what_alone_is_supported(comment: str, is_left: bool) -> None:
    files = {
        "run.sh": _JOB.format(comment=comment),
        "train.py": _SCRIPT,
        "scripts/zero2.json": _ZERO2,
    }
    fix = fix_of(run_of(files, "run.sh"), {f.parallel.zero.stage: 3})
    assert any(edit.path == "run.sh" for edit in fix.edits) is not is_left
    assert ("MoE models only support zero2" in (fix.reason or "")) is is_left


_OWN_MODEL = """\
from transformers import AutoModelForCausalLM, PreTrainedModel, Trainer, TrainingArguments


class Wrapped(PreTrainedModel):
{more}
    def __init__(self, config):
        super().__init__(config)
        self.model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")


model = Wrapped(config).cuda()
args = TrainingArguments("out", per_device_train_batch_size=16, gradient_accumulation_steps=8, bf16=True)
Trainer(model=model, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize("supports", [False, True])
def test_a_model_of_the_scripts_own_recomputes_only_where_it_says_so(supports: bool) -> None:
    more = "    supports_gradient_checkpointing = True\n" if supports else ""
    run = run_of({"train.py": _OWN_MODEL.format(more=more)})
    assert bool(fix_of(run, {f.checkpointing.mode: "full"}).edits) is supports
    assert not fix_of(run, {f.loss.logits_materialised: "fused"}).edits


@pytest.mark.parametrize("package", ["transformers", "my_models.qwen"])
def test_liger_patches_classes_of_transformers_alone(package: str) -> None:
    script = (
        f"from {package} import Qwen2ForCausalLM\nfrom transformers import Trainer, TrainingArguments\n"
        'model = Qwen2ForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")\n'
        'args = TrainingArguments("out", per_device_train_batch_size=1, bf16=True, gradient_checkpointing=True)\n'
        "Trainer(model=model, args=args, train_dataset=data).train()\n"
    )
    fix = fix_of(run_of({"train.py": script}), {f.loss.logits_materialised: "fused"})
    assert bool(fix.edits) is (package == "transformers")


_LAUNCH = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 8\n"
_ACCUMULATES = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
args = TrainingArguments("out", per_device_train_batch_size=1, gradient_accumulation_steps=2, bf16=True)
Trainer(model, args, train_dataset=data).train()
"""


@pytest.mark.parametrize("scripts", [("a.py",), ("a.py", "b.py")])
def test_a_launch_of_several_scripts_is_not_cut_for_the_batch_of_one(
    scripts: tuple[str, ...],
) -> None:
    files = {"cards.yaml": _LAUNCH}
    for name in scripts:
        files[name] = _ACCUMULATES
        files[f"{name}.sh"] = f"accelerate launch --config_file cards.yaml {name}\n"
    result = repaired(files, hardware="4xA100-80GB", unsafe=True)
    assert (b"num_processes: 4" in result.texts.get("cards.yaml", b"")) is (len(scripts) == 1)
    assert bool(result.texts) is (len(scripts) == 1)
