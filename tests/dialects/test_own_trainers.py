"""Trainers of a project's own: what their methods decide is followed, or it is not known and named."""

from __future__ import annotations

import pytest
from tests.linked import report_of, run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

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


_NAMED = """\
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument('--deepspeed-config', default='conf/zero3.json')
ours = parser.parse_args()
named = ours.deepspeed_config
model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')
args = TrainingArguments(
    output_dir='o', per_device_train_batch_size=1, deepspeed=None if named in ('none', 'off') else named
)
Trainer(model, args, train_dataset=data).train()
"""


def test_a_word_by_which_an_option_asks_for_no_file_is_none() -> None:
    files = {"train.py": _NAMED, "conf/zero3.json": '{"zero_optimization": {"stage": 3}}'}

    def of(given: str) -> Run:
        line = f"torchrun --nproc_per_node 4 train.py {given}\n"
        return run_of({**files, "run.sh": line}, "run.sh")

    named = of("--deepspeed-config conf/zero3.json")
    assert (named.missing, named.plan.parallel.zero.stage) == ((), 3)
    for word in ("none", "off"):
        without = of(f"--deepspeed-config {word}")
        assert (without.missing, without.plan.parallel.backend) == ((), "ddp")
    (lost,) = of("--deepspeed-config nonesuch").missing
    assert lost.reference == "nonesuch"


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


_HERE = (
    "import torch\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', torch_dtype='float32')\n"
    "{between}"
    "args = TrainingArguments(output_dir='o', per_device_train_batch_size=2{arguments})\n"
    "trainer = Trainer(model=model, args=args, train_dataset=data{given})\n"
    "trainer.train()\n"
    "{behind}"
)


def _here(between: str = "", arguments: str = "", given: str = "", behind: str = "") -> Run:
    text = _HERE.format(between=between, arguments=arguments, given=given, behind=behind)
    return run_of({"train.py": text}, "train.py")


@pytest.mark.parametrize(
    ("line", "dtype"),
    [
        ("model.half()\n", "fp16"),
        ("model = model.to(torch.bfloat16)\n", "bf16"),
        ("model.to('cuda')\n", "fp32"),
        ("vision_tower.half()\n", "fp32"),
    ],
)
def test_a_model_that_is_cast_has_that_dtype(line: str, dtype: str) -> None:
    assert _here(line).plan.load.dtype == dtype
    assert _here(behind=line).plan.load.dtype == "fp32"


def test_a_cast_that_only_running_decides_on_leaves_it_open() -> None:
    run = _here("if asks(model):\n    model.half()\n")
    assert run.level(f.load.dtype) is Level.UNREAD


def test_an_optimizer_that_the_trainer_is_given_is_not_known() -> None:
    assert _here(given=", optimizers=(Lion(model), None)").level(f.optimizer.kind) is Level.UNREAD
    assert _here(given=", optimizers=(None, plan)").level(f.optimizer.kind) < Level.UNREAD


def test_what_is_unpacked_into_the_arguments_may_say_anything_that_nothing_else_says() -> None:
    run = _here(arguments=", **read_settings()")
    assert run.level(f.checkpointing.mode) is Level.UNREAD
    assert run.level(f.batch.micro) is Level.STATED
    known = _here("more = dict(gradient_checkpointing=True)\n", ", **more")
    assert known.plan.checkpointing.mode == "full"
    assert known.level(f.checkpointing.mode) < Level.ASSUMED


def test_a_forward_pass_in_the_place_of_the_models_is_not_followed() -> None:
    run = _here("LlamaAttention.forward = ours.attention\n")
    assert run.level(f.model.attn_impl) is Level.UNREAD
    assert run.level(f.loss.logits_materialised) < Level.UNREAD
    run = _here("Qwen2ForCausalLM.forward = ours.forward\n")
    assert run.level(f.loss.logits_materialised) is Level.UNREAD


def test_a_config_that_the_program_is_given_in_another_way_leaves_the_sharding_open() -> None:
    files = {
        "train.py": _HERE.format(between="", arguments="", given="", behind=""),
        "run.sh": "torchrun --nproc_per_node 4 train.py --sharding conf/zero3.json\n",
        "conf/zero3.json": '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}',
    }
    run = run_of(files, "run.sh", "train.py")
    assert run.level(f.parallel.backend) is Level.UNREAD
    other = {**files, "conf/zero3.json": '{"rows": 3}'}
    assert run_of(other, "run.sh", "train.py").level(f.parallel.backend) < Level.UNREAD


_OPTIONAL = """\
import argparse
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--use_lora", action="store_true")
args = parser.parse_args()
config = SFTConfig(output_dir='o', per_device_train_batch_size=2)
{choice}
SFTTrainer(model='Qwen/Qwen2.5-7B', args=config, peft_config=adapter, train_dataset=data).train()
"""
_LATER = "adapter = None\nif args.use_lora:\n    adapter = LoraConfig(r=4)"
_EITHER = "if args.use_lora:\n    adapter = LoraConfig(r=4)\nelse:\n    adapter = None"


@pytest.mark.parametrize("choice", [_LATER, _EITHER])
@pytest.mark.parametrize(("words", "method"), [("", "full"), ("--use_lora", "lora")])
def test_an_adapter_that_an_option_asks_for_is_there_where_the_line_has_it(
    choice: str, words: str, method: str
) -> None:
    script = _OPTIONAL.format(choice=choice)
    run = run_of({"train.py": script, "run.sh": f"torchrun train.py {words}\n"}, "run.sh")
    assert (run.plan.trainable.method, run.level(f.trainable.method)) == (method, Level.DEFAULT)


def test_an_adapter_in_a_branch_that_no_option_decides_on_is_open() -> None:
    script = _OPTIONAL.format(choice=_LATER.replace("args.use_lora", "asks()"))
    run = run_of({"train.py": script, "run.sh": "torchrun train.py\n"}, "run.sh")
    assert run.level(f.trainable.method) is Level.UNREAD


@pytest.mark.parametrize(
    ("package", "is_known"), [("transformers", True), ("trl", True), ("elsewhere.trainers", False)]
)
def test_a_trainer_of_a_package_that_is_not_known_may_have_a_loss_of_its_own(
    package: str, is_known: bool
) -> None:
    script = _SCRIPT.replace("from ours.trainers", f"from {package}").replace("Own", "SFT")
    run = run_of({"train.py": script}, "train.py")
    levels = {run.level(field) for field in (f.loss.logits_materialised, f.eval.enabled)}
    assert (Level.UNREAD in levels) is not is_known
    derived = {
        "train.py": _SCRIPT,
        "ours/__init__.py": "",
        "ours/trainers.py": f"from {package} import Trainer\nclass OwnTrainer(Trainer):\n    pass\n",
    }
    run = run_of(derived, "train.py")
    assert (run.level(f.loss.logits_materialised) is Level.UNREAD) is not is_known


def test_a_model_of_a_class_of_the_projects_own_may_have_no_logits() -> None:
    wraps = "class Scores(torch.nn.Module):\n    pass\nscores = Scores(model)\n"
    text = _HERE.format(between=wraps, arguments="", given="", behind="")
    run = run_of({"train.py": text.replace("model=model", "model=scores")}, "train.py")
    assert run.level(f.loss.logits_materialised) is Level.UNREAD
    assert _here(wraps).level(f.loss.logits_materialised) < Level.UNREAD


def test_settings_that_are_picked_by_what_the_release_takes_are_followed() -> None:
    more = "more = {'gradient_checkpointing': True}\nmore['eval_strategy'] = 'epoch'\n"
    picked = ", **{k: v for k, v in more.items() if k in known}"
    run = _here(more, picked)
    assert run.plan.checkpointing.mode == "full"
    assert run.level(f.parallel.backend) < Level.UNREAD
    changed = _here(more, ", **{k: str(v) for k, v in more.items()}")
    assert changed.level(f.checkpointing.mode) is Level.UNREAD
