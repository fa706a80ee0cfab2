"""Liger: what its switch is worth for a model, in every framework that has one."""

from __future__ import annotations

import pytest
from tests.fixing import fixed_files
from tests.linked import link, report_of, run_of

from oomlint.dialects.releases import SKIPS_LOGITS
from oomlint.errors import CannotEdit
from oomlint.linting.rule import Severity
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_TRAINER = (
    "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path {model} --output_dir out --bf16"
    " --per_device_train_batch_size 2 --num_train_epochs 1 --learning_rate 1e-4{more}\n"
)
_SWIFT = "swift sft --model {model} --train_type full --dataset d --max_length 2048{more}\n"
_TRL = "trl {kind} --model_name_or_path {model} --dataset_name d --output_dir out{more}\n"
_LLAMA_FACTORY = (
    "model_name_or_path: {model}\nstage: sft\ndo_train: true\nfinetuning_type: full\n"
    "dataset: d\ntemplate: default\noutput_dir: out\n{more}"
)
_FUSED = {"loss.logits_materialised": "fused"}


def _run(name: str, text: str) -> Run:
    """Under the last TRL whose loss Liger fuses: later ones have a head of their own."""
    (run,) = link({name: text, "requirements.txt": "trl==1.14.2\n"}).runs
    return run


@pytest.mark.parametrize(
    ("name", "text", "on"),
    [
        ("run.sh", _TRAINER, " --use_liger_kernel True"),
        ("run.sh", _SWIFT, " --use_liger_kernel true"),
        ("run.sh", _TRL.replace("{kind}", "sft"), " --use_liger_kernel true"),
        ("train.yaml", _LLAMA_FACTORY, "enable_liger_kernel: true\n"),
    ],
    ids=["trainer", "swift", "trl", "llama-factory"],
)
def test_liger_leaves_models_without_kernels_as_they_are(name: str, text: str, on: str) -> None:
    known, unknown = "Qwen/Qwen2.5-7B", "EleutherAI/pythia-6.9b"
    assert _run(name, text.format(model=known, more=on)).plan.loss.logits_materialised == "fused"
    left = _run(name, text.format(model=unknown, more=on)).plan.loss
    assert left.logits_materialised != "fused"
    assert left.liger.rms is not True
    with pytest.raises(CannotEdit, match="no kernels for models of the type gpt_neox"):
        _run(name, text.format(model=unknown, more="")).what_if(_FUSED)


@pytest.mark.parametrize(
    ("pins", "fuses"),
    [
        ("liger_kernel==0.5.2\ntransformers==4.48.2\n", False),
        ("liger_kernel==0.5.10\ntransformers==5.16.0\n", False),
        ("liger_kernel==0.6.2\ntransformers==5.14.0\n", False),
        ("liger_kernel==0.6.2\ntransformers==5.15.0\n", True),
        ("", True),
    ],
)
@pytest.mark.parametrize("name", ["trainer", "trl"])
def test_liger_fuses_the_loss_of_evaluation_where_it_is_asked_to(
    name: str, pins: str, fuses: bool
) -> None:
    text = _TRAINER if name == "trainer" else _TRL.replace("{kind}", "sft")
    more = " --use_liger_kernel true --eval_strategy steps --per_device_eval_batch_size 8"
    is_open = not pins
    pins = f"trl==0.15.2\n{pins}" if pins else "trl==1.14.2\n"
    files = {"run.sh": text.format(model="Qwen/Qwen2.5-7B", more=more), "requirements.txt": pins}
    run = run_of(files, "run.sh", hardware="8xA100-80GB")
    assert run.plan.loss.logits_materialised == "fused"
    assert run.plan.eval.fuses_loss is fuses
    spared = run.assuming({f.eval.fuses_loss: True}).estimate.gpu.phases["evaluation"]
    needed = run.estimate.gpu.phases["evaluation"]
    assert needed is not None
    assert spared is not None
    # Of 8 samples of 1,024 tokens and 152,064 words the logits, an fp32 copy, and what the fused loss has.
    assert needed == spared if fuses else needed > spared + 8 * 1024 * 152_064 * 5
    if is_open:
        assert SKIPS_LOGITS in run.open


_EVALUATES = """\
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", dtype="bfloat16")
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")

def cut(rows):
    return tok(rows["text"], truncation=True, padding="max_length", max_length=2048)

data = load_dataset("json", data_files="a.json")["train"].map(cut, batched=True)
args = TrainingArguments(
    "out",
    per_device_train_batch_size=1,
    eval_strategy="steps",
    per_device_eval_batch_size=8,
    bf16=True,
    gradient_checkpointing=True,
)
Trainer(model=model, args=args, train_dataset=data, eval_dataset=data{more}).train()
"""


@pytest.mark.parametrize(
    ("more", "pins", "severity"),
    [
        ("", "transformers==5.16.0\nliger-kernel==0.6.2\n", Severity.ERROR),
        ("", "transformers==4.54.1\nliger-kernel==0.6.2\n", None),
        ("", "", Severity.INFO),
        # An argument that transformers' own Trainer lost with 5.0.
        (", tokenizer=tok", "", None),
    ],
)
def test_a_fused_loss_relieves_evaluation_only_where_that_asks_for_it(
    more: str, pins: str, severity: Severity | None
) -> None:
    files = {"train.py": _EVALUATES.format(more=more), "requirements.txt": pins}
    report = report_of(files, "train.py", hardware="1xRTX-4090-24GB")
    found = {each.rule.code: each.severity for each in report.diagnoses}
    assert found["OOM602"] is Severity.ERROR
    assert found.get("OOM103") is severity


def test_who_asks_for_the_logits_of_evaluation_gets_them() -> None:
    text = _TRAINER.format(model="Qwen/Qwen2.5-7B", more=" --use_liger_kernel true")
    run = run_of({"run.sh": text}).assuming({f.eval.keeps_logits: True})
    assert run.plan.eval.fuses_loss is False


def test_preference_losses_of_trl_are_ligers_for_any_model() -> None:
    text = _TRL.format(kind="dpo", model="EleutherAI/pythia-1b", more=" --use_liger_kernel true")
    assert _run("run.sh", text).plan.loss.logits_materialised == "fused"


@pytest.mark.parametrize(
    ("kind", "key", "pin", "logits"),
    [
        ("grpo", "use_liger_kernel", "0.24.0", "completion_only"),
        ("grpo", "use_liger_loss", "0.24.0", "fused"),
        ("grpo", "use_liger_kernel", "0.25.1", "fused"),
        ("dpo", "use_liger_kernel", "0.24.0", "full"),
        ("dpo", "use_liger_loss", "0.24.0", "fused"),
        ("kto", "use_liger_kernel", "0.24.0", "full"),
    ],
)
def test_trl_fuses_losses_of_its_own_by_their_own_key_up_to_0_24(
    kind: str, key: str, pin: str, logits: str
) -> None:
    text = _TRL.format(kind=kind, model="Qwen/Qwen2.5-0.5B", more=f" --{key} true")
    run = run_of({"run.sh": text, "requirements.txt": f"trl=={pin}\n"}, "run.sh")
    assert run.plan.loss.logits_materialised == logits


@pytest.mark.parametrize(("pin", "key"), [("0.24.0", "loss"), ("0.25.1", "kernel")])
def test_the_key_that_fuses_is_the_one_of_the_release(pin: str, key: str) -> None:
    files = {
        "run.sh": _TRL.format(kind="grpo", model="Qwen/Qwen2.5-0.5B", more=""),
        "requirements.txt": f"trl=={pin}\nliger-kernel==0.6.2\n",
    }
    after = fixed_files(lambda texts: run_of(texts, "run.sh"), files, _FUSED)
    assert f"--use_liger_{key}" in after["run.sh"]


@pytest.mark.parametrize("kind", ["orpo", "cpo"])
def test_liger_has_no_loss_for_trainers_that_take_logits_themselves(kind: str) -> None:
    script = (
        f"from trl import {kind.upper()}Config, {kind.upper()}Trainer\n"
        f"args = {kind.upper()}Config(output_dir='o', use_liger_kernel=True)\n"
        f"{kind.upper()}Trainer(model='Qwen/Qwen2.5-0.5B', args=args, train_dataset=data).train()\n"
    )
    loss = _run("train.py", script).plan.loss
    assert (loss.logits_materialised, loss.liger.flce) == ("full", False)


def test_llama_factory_asks_for_fewer_models_than_liger_knows() -> None:
    text = _LLAMA_FACTORY.format(
        model="deepseek-ai/DeepSeek-V2-Lite", more="enable_liger_kernel: true\n"
    )
    assert _run("train.yaml", text).plan.loss.logits_materialised == "full"
