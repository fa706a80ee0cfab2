"""Trainers of a project's own: what their methods decide is followed, or it is not known and named."""

from __future__ import annotations

import pytest
from tests.linked import report_of, run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

_SCRIPT = """\
from transformers import AutoModelForCausalLM, TrainingArguments
from ours.trainers import OwnTrainer
model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', torch_dtype='bfloat16')
args = TrainingArguments(output_dir='o', per_device_train_batch_size=2, eval_strategy='steps', bf16=True)
trainer = OwnTrainer(model=model, args=args, train_dataset=data, eval_dataset=more)
trainer.train()
"""
_CLASS = "from transformers import Trainer\nclass OwnTrainer(Trainer):\n"


def _files(body: str, base: str = "") -> dict[str, str]:
    text = (base or _CLASS) + "".join(f"    {line}\n" for line in body.splitlines())
    return {"train.py": _SCRIPT, "ours/__init__.py": "", "ours/trainers.py": text}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("def prediction_step(self, model, inputs):\n    return self.answer(inputs)", f.eval.enabled),
        ("def evaluate(self, *given):\n    return judge(self.model)", f.eval.keeps_logits),
        ("def compute_loss(self, model, inputs):\n    return logits_of(model, inputs)", f.loss.logits_materialised),
        ("def create_optimizer(self):\n    self.optimizer = Lion(self.model)", f.optimizer.kind),
        ("def get_train_dataloader(self):\n    return DataLoader(self.rows, 7)", f.batch.micro),
        ("def training_step(self, model, inputs):\n    return halves(model, inputs)", f.batch.micro),
        ("def _wrap_model(self, model):\n    return FSDP(model)", f.parallel.backend),
    ],
)  # fmt: skip
def test_what_an_own_method_decides_is_not_known(body: str, field: str) -> None:
    run = run_of(_files(body), "train.py")
    assert run.level(field) is Level.UNREAD


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("def prediction_step(self, model, inputs):\n    return super().prediction_step(model, inputs)", f.eval.enabled),
        ("def evaluate(self, *given):\n    return self.evaluation_loop(*given)", f.eval.enabled),
        ("def compute_loss(self, model, inputs):\n    return model(**inputs).loss * 2", f.loss.logits_materialised),
        ("def compute_loss(self, model, inputs):\n    return self.part(model)\ndef part(self, model):\n    return model().logits", f.loss.logits_materialised),
        ("def create_optimizer(self):\n    kind, more = OwnTrainer.get_optimizer_cls_and_kwargs(self.args)", f.optimizer.kind),
        ("def get_train_dataloader(self):\n    return DataLoader(self.rows, self._train_batch_size)", f.batch.micro),
        ("def training_step(self, model, inputs):\n    self.accelerator.backward(model(inputs).loss)", f.batch.micro),
        ("def log(self, logs):\n    print(logs)", f.eval.enabled),
    ],
)  # fmt: skip
def test_a_method_that_does_what_the_librarys_does_is_followed(body: str, field: str) -> None:
    run = run_of(_files(body), "train.py")
    assert run.level(field) < Level.UNREAD


def test_the_class_above_counts_unless_the_nearer_one_says_otherwise() -> None:
    above = (
        _CLASS.replace("OwnTrainer", "Base") + "    def evaluate(self):\n        return judge()\n"
    )
    inherits = run_of(_files("pass", f"{above}class OwnTrainer(Base):\n"), "train.py")
    assert inherits.level(f.eval.enabled) is Level.UNREAD
    back = "def evaluate(self):\n    return super().evaluate()"
    returns = run_of(_files(back, f"{above}class OwnTrainer(Base):\n"), "train.py")
    assert returns.level(f.eval.enabled) < Level.UNREAD


def test_a_loss_of_another_file_without_logits_is_seen() -> None:
    body = "def compute_loss(self, model, inputs):\n    return self.distance(self.model(inputs[0]), inputs[1])"
    assert run_of(_files(body), "train.py").plan.loss.logits_materialised == "fused"


def test_what_hangs_on_an_own_method_is_a_remark_that_names_it() -> None:
    evaluates = _SCRIPT.replace("bf16=True", "bf16=True, per_device_eval_batch_size=400")
    own = _files("def prediction_step(self, model, inputs):\n    return self.answer(inputs)")
    told = {
        name: report_of({**own, "train.py": text}, "train.py", hardware="8xH200-141GB")
        for name, text in (("few", _SCRIPT), ("many", evaluates))
    }
    (finding,) = (d for d in told["many"].diagnoses if d.finding.rule.code == "OOM100")
    assert finding.severity.name == "INFO"
    assert "OwnTrainer.prediction_step" in " ".join(finding.finding.details)


_OPTION = """\
from dataclasses import dataclass
from transformers import HfArgumentParser
from trl import GRPOConfig, GRPOTrainer

@dataclass
class Arguments:
    config_path: str = None

(ours,) = HfArgumentParser(Arguments).parse_args_into_dataclasses()
args = GRPOConfig(output_dir='o', deepspeed=ours.config_path, per_device_train_batch_size=8, bf16=True)
GRPOTrainer(model='Qwen/Qwen2.5-7B', reward_funcs=[score], args=args, train_dataset=data).train()
"""


def test_an_option_of_the_scripts_own_names_the_deepspeed_config() -> None:
    files = {
        "train.py": _OPTION,
        "run.sh": "torchrun --nproc_per_node 4 train.py --config_path conf/zero3.json\n",
        "conf/zero3.json": '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}',
    }
    run = run_of(files, "run.sh")
    assert run.plan.parallel.zero.stage == 3
    del files["conf/zero3.json"]
    (missing,) = run_of(files, "run.sh").missing
    assert (missing.reference, missing.location.path) == ("conf/zero3.json", "run.sh")


def test_a_reference_is_loaded_by_its_name_and_not_as_the_policy_is() -> None:
    script = (
        "from transformers import AutoModelForCausalLM\nfrom trl import GRPOConfig, GRPOTrainer\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', torch_dtype='bfloat16')\n"
        "args = GRPOConfig(output_dir='o', beta=0.04, bf16=True{more})\n"
        "GRPOTrainer(model=model, reward_funcs=[score], args=args, train_dataset=data).train()\n"
    )

    def dtype(pins: str, more: str = "") -> str | None:
        files = {"train.py": script.format(more=more), "requirements.txt": pins}
        return run_of(files, "train.py").plan.objective.ref_dtype

    assert dtype("trl==0.25.1\ntransformers==4.57.3\n") == "fp32"
    assert dtype("trl==0.18.2\ntransformers==4.52.0\n") is None  # copied
    assert dtype("trl==0.26.0\ntransformers==5.0.0\n") == "bf16"  # as the checkpoint is
    kwargs = ", model_init_kwargs={'torch_dtype': 'bfloat16'}"
    assert dtype("trl==0.25.1\ntransformers==4.57.3\n", kwargs) is None
