"""A program that is sure to end before its first step: what it would need is a remark."""

from __future__ import annotations

import pytest
from tests.linked import report_of, run_of

from oomlint.dialects.common.fields import shared
from oomlint.judgement import judgement_of
from oomlint.linting.rule import Severity

_CARD = "1xRTX-4090-24GB"
_LOOP = """\
import torch
from environment import Environment
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype=torch.bfloat16)
config = {{}}
environment = Environment({given})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in torch.utils.data.DataLoader(samples, batch_size=1):
    model(**batch).loss.backward()
    optimizer.step()
"""
_ENVIRONMENT = "class Environment:\n    def __init__(self, config):\n        pass\n"
_AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
adapter: qlora
load_in_4bit: true
lora_r: 16
lora_target_linear: true
sequence_len: 4096
sample_packing: true
micro_batch_size: 4
bf16: {bf16}
fp16: false
{attention}: true
"""


def test_what_a_program_would_need_that_stops_is_a_remark() -> None:
    for given, is_sure in (("config", True), ("", False)):
        files = {
            "train.py": _LOOP.format(given=given),
            "environment.py": _ENVIRONMENT,
            "run.sh": "python train.py\n",
        }
        found = report_of(files, hardware=_CARD).diagnoses
        of_need = [each for each in found if each.finding.resource is not None]
        assert any(each.severity >= Severity.WARNING for each in of_need) is is_sure
        errors = {each.rule.code for each in found if each.severity is Severity.ERROR}
        assert is_sure or errors == {"OOM905"}
        verdict = judgement_of(run_of(files, hardware=_CARD)).spoken.verdict
        assert verdict == ("does_not_fit" if is_sure else "unknown")
    assert any("without config" in each.finding.text for each in found)


def test_workers_that_ask_for_npus_never_start_on_gpus() -> None:
    line = (
        "python3 -m verl.trainer.main_ppo data.train_files=a actor_rollout_ref.rollout.name=vllm "
        "actor_rollout_ref.model.path=Qwen/Qwen3-32B actor_rollout_ref.rollout.n=4 "
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1 "
        "critic.ppo_micro_batch_size_per_gpu=1 "
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 trainer.n_gpus_per_node=1"
    )
    for device, stops in (("npu", True), ("cuda", False)):
        files = {"run.sh": f"{line} trainer.device={device}\n"}
        found = report_of(files, hardware=_CARD).diagnoses
        assert found
        assert any(each.severity >= Severity.WARNING for each in found) is not stops


@pytest.mark.parametrize(
    ("bf16", "attention", "stops"),
    [
        ("false", "flash_attention", True),
        ("true", "flash_attention", False),
        ("false", "sdp_attention", False),
    ],
)
def test_flash_attention_has_no_kernel_for_fp32(bf16: str, attention: str, stops: bool) -> None:
    files = {"a.yaml": _AXOLOTL.format(bf16=bf16, attention=attention)}
    run = run_of(files, hardware=_CARD)
    assert (run.settings.get(shared.stops) is not None) is stops
    verdict = judgement_of(run).spoken.verdict
    assert (verdict == "unknown") is stops
    errors = [e.rule.code for e in report_of(files, hardware=_CARD).diagnoses if e.severity > 2]
    assert ("OOM109" in errors) is stops
    assert not stops or errors == ["OOM109"]


_SIZES = "--per_device_train_batch_size 1 --per_device_eval_batch_size 1 --num_train_epochs 1"
_ON_DEMAND = """\
import torch
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser(TrainingArguments)
(training_args,) = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype=torch.float32)
trainer = Trainer(model=model, args=training_args, train_dataset=data, data_collator=collator)
{asked}
    trainer.train()
if training_args.do_eval:
    trainer.evaluate()
"""


@pytest.mark.parametrize(
    ("asked", "options", "stops"),
    [
        ("if training_args.do_train:", "--do_eval", True),
        ("if training_args.do_train:", "--do_train --do_eval", False),
        ("if training_args.do_train:", "--do_eval $EXTRA", False),
        ("if True:", "--do_eval", False),
        ("training_args.do_train = True\nif training_args.do_train:", "--do_eval", False),
    ],
)
def test_a_script_that_nothing_asks_to_train(asked: str, options: str, stops: bool) -> None:
    files = {
        "run_clm.py": _ON_DEMAND.format(asked=asked),
        "run.sh": f"python run_clm.py --output_dir out --learning_rate 1e-5 {_SIZES} {options}\n",
    }
    found = run_of(files, hardware=_CARD).settings.get(shared.stops)
    assert (found is not None and "--do_train" in found.value) is stops


_SWITCHED = """\
from dataclasses import dataclass
import torch
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Own(TrainingArguments):
    do_train: bool = {default}
    scores: bool = False

def main():
    (args,) = HfArgumentParser(Own).parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained(
        "meta-llama/Llama-3.1-8B", torch_dtype=torch.float32
    )
    trainer = Trainer(model=model, args=args, train_dataset=data, data_collator=collator)
    if args.scores:
        trainer.evaluate()
        return
    if args.do_train:
        trainer.train()

main()
"""


@pytest.mark.parametrize(
    ("default", "options", "why"),
    [
        ("True", "", ""),
        ("True", "--do_train False", "do_train is off"),
        ("False", "", "do_train is off"),
        ("False", "--do_train", ""),
        ("True", "--do_train $TRAINS --bf16", ""),
        ("True", "--scores", "scores is set"),
    ],
)
def test_a_script_whose_switches_keep_it_from_training(
    default: str, options: str, why: str
) -> None:
    files = {
        "run_own.py": _SWITCHED.format(default=default),
        "run.sh": f"python run_own.py --output_dir out --learning_rate 1e-5 {_SIZES} {options}\n",
    }
    found = run_of(files, hardware=_CARD).settings.get(shared.stops)
    assert (found is not None and why in found.value) if why else found is None


_LOOPED = """\
import argparse
import torch
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--mode", choices=["train", "tune", "eval"], default="train")
parser.add_argument("--skip", action="store_true")
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype=torch.float32).cuda()
optimizer = torch.optim.AdamW(model.parameters())
loader = torch.utils.data.DataLoader(data, batch_size=8)

def train():
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()

{switch}
    train()
"""


@pytest.mark.parametrize(
    ("switch", "options", "why"),
    [
        ('if args.mode == "train":', "", ""),
        ('if args.mode == "train":', "--mode eval", "mode is eval"),
        ('if args.mode == "train":', "--mode $MODE", ""),
        ('if args.mode in ("train", "tune"):', "--mode tune", ""),
        ('if args.mode in ("train", "tune"):', "--mode eval", "mode is eval"),
        ('if args.mode == "eval":\n    pass\nelse:', "--mode eval", "mode is eval"),
        ('if args.mode == "eval":\n    pass\nelse:', "--mode tune", ""),
        ("if not args.skip:", "--skip", "skip is set"),
        ("if not args.skip:", "", ""),
    ],
)
def test_a_loop_that_the_command_does_not_choose(switch: str, options: str, why: str) -> None:
    files = {
        "loop.py": _LOOPED.format(switch=switch),
        "run.sh": f"python loop.py {options}\n",
    }
    found = run_of(files, hardware=_CARD).settings.get(shared.stops)
    assert (found is not None and why in found.value) if why else found is None


_RANKED = """\
import argparse
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
{options}
args = parser.{parse}
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype=torch.float32)
arguments = TrainingArguments(output_dir="out", per_device_train_batch_size=1)
Trainer(model=model, args=arguments, train_dataset=data, data_collator=collator).train()
"""
_OLD, _NEW = 'parser.add_argument("--local_rank")', 'parser.add_argument("--local-rank")'


@pytest.mark.parametrize(
    ("options", "parse", "launcher", "torch", "stops"),
    [
        (_OLD, "parse_args()", "python -m torch.distributed.launch", "2.0.1", True),
        (_OLD, "parse_args()", "python -m torch.distributed.launch", "1.13.1", False),
        (_OLD, "parse_args()", "python -m torch.distributed.launch --use_env", "2.0.1", False),
        (_OLD, "parse_args()", "torchrun", "2.0.1", False),
        (_OLD, "parse_known_args()[0]", "python -m torch.distributed.launch", "2.0.1", False),
        (f"{_OLD}\n{_NEW}", "parse_args()", "python -m torch.distributed.launch", "2.0.1", False),
    ],
)
def test_a_rank_in_the_spelling_of_torch_2(
    options: str, parse: str, launcher: str, torch: str, stops: bool
) -> None:
    files = {
        "train.py": _RANKED.format(options=options, parse=parse),
        "run.sh": f"{launcher} --nproc_per_node 2 train.py\n",
        "requirements.txt": f"torch=={torch}\n",
    }
    found = run_of(files, hardware=_CARD).settings.get(shared.refused)
    assert (found is not None and "--local-rank" in found.value) is stops


def test_a_rank_in_the_spelling_of_a_torch_that_nobody_pins_is_a_remark() -> None:
    files = {
        "train.py": _RANKED.format(options=_OLD, parse="parse_args()"),
        "run.sh": "python -m torch.distributed.launch --nproc_per_node 2 train.py\n",
    }
    for pin, severity in (("", Severity.INFO), ("torch>=2.1\n", Severity.ERROR)):
        found = report_of({**files, "requirements.txt": pin}, hardware=_CARD).diagnoses
        levels = {each.rule.code: each.severity for each in found}
        assert levels["OOM905"] is severity


@pytest.mark.parametrize(
    ("adapter", "stops"), [("", True), ("adapter: qlora\nlora_r: 16\n", False)]
)
def test_packed_weights_that_nobody_adapts(adapter: str, stops: bool) -> None:
    text = (
        "base_model: meta-llama/Llama-3.1-8B-w4a16-experts\ndatasets:\n  - path: tatsu-lab/alpaca\n"
        f"    type: alpaca\nmicro_batch_size: 1\nlora_target_linear: true\n{adapter}"
    )
    found = run_of({"axolotl.yaml": text}, hardware=_CARD).settings.get(shared.stops)
    assert (found is not None and "no gradient" in found.value) is stops


_GALORE = (
    "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\ndo_train: true\nfinetuning_type: full\n"
    "dataset: alpaca_en_demo\ntemplate: qwen\nuse_galore: true\ngalore_layerwise: true\n"
    "per_device_train_batch_size: 1\noutput_dir: out\npure_bf16: true\n"
)


@pytest.mark.parametrize(("start", "stops"), [("FORCE_TORCHRUN=1 ", True), ("", False)])
def test_layerwise_updates_are_of_one_process(start: str, stops: bool) -> None:
    files = {"train.yaml": _GALORE, "run.sh": f"{start}llamafactory-cli train train.yaml\n"}
    hardware = "4xRTX-4090-24GB" if stops else _CARD
    found = run_of(files, hardware=hardware).settings.get(shared.stops)
    assert (found is not None and "GaLore" in found.value) is stops


def test_what_a_program_would_do_that_ends_is_a_remark() -> None:
    """One process on several cards says nothing of a program whose parser refuses the command."""
    text = _RANKED.format(options='parser.add_argument("--rate")', parse="parse_args()")
    for option, is_refused in (("--rate 1", False), ("--speed 1", True)):
        files = {"train.py": text, "run.sh": f"python train.py {option}\n"}
        found = report_of(files, hardware="4xRTX-4090-24GB").diagnoses
        levels = {each.rule.code: each.severity for each in found}
        assert (levels["OOM705"] is Severity.INFO) is is_refused
        assert (levels.get("OOM905") is Severity.ERROR) is is_refused


_SWIFT = """\
swift sft --model Qwen/Qwen2.5-7B-Instruct --dataset train.jsonl --train_type {tuner} --torch_dtype bfloat16 \\
  --max_length 20480
"""


@pytest.mark.parametrize(
    ("pinned", "stops"), [("4.2.0", True), ("4.0.4", False), ("3.12.6", False), ("", False)]
)
def test_a_key_that_the_pinned_release_has_no_more_ends_the_program(
    pinned: str, stops: bool
) -> None:
    lock = f'[[package]]\nname = "ms-swift"\nversion = "{pinned}"\n' if pinned else ""
    files = {"train.sh": _SWIFT.format(tuner="full"), "uv.lock": lock}
    found = report_of(files, hardware=_CARD).diagnoses
    errors = {
        each.rule.code: each.finding.text for each in found if each.severity >= Severity.ERROR
    }
    assert ("OOM905" in errors) is stops
    if stops:
        assert "which it calls tuner_type" in errors.pop("OOM905")
        assert not errors


def test_a_key_that_only_begins_another_is_that_one_to_argparse() -> None:
    line = _SWIFT.format(tuner="lora").replace("--train_type", "--use_liger true --tuner_type")
    files = {"train.sh": line, "requirements.txt": "ms-swift==4.2.0\n"}
    assert run_of(files, hardware=_CARD).settings.get(shared.refused) is None


_PARSED = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B")
Trainer(model=model, args=args, train_dataset=data, data_collator=collator).train()
"""


def test_settings_that_contradict_are_not_met_by_a_program_that_stops_before() -> None:
    start = "deepspeed --num_gpus 1 train.py --output_dir out --deepspeed ds.json"
    files = {
        "train.py": _PARSED,
        "ds.json": '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}',
    }
    for option, stops in (("", False), ("--grad_accumulation 4", True)):
        line = f"{start} --per_device_train_batch_size 4 {option}\n"
        found = report_of({**files, "run.sh": line}, hardware=_CARD).diagnoses
        errors = {each.rule.code for each in found if each.severity is Severity.ERROR}
        assert ("OOM802" in errors) is not stops
        assert any(each.rule.code == "OOM802" for each in found)
        assert ("OOM905" in errors) is stops


@pytest.mark.parametrize("trains", [True, False])
def test_what_ranks_share_is_a_remark_where_nothing_is_trained(trains: bool) -> None:
    script = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B")\n'
        'args = TrainingArguments("out", per_device_train_batch_size=1, bf16=True)\n'
    )
    script += "Trainer(model=model, args=args).train()\n" if trains else "print(args.output_dir)\n"
    start = "docker run --gpus all trainer torchrun --nproc_per_node 2 train.py\n"
    report = report_of({"train.py": script, "run.sh": start}, hardware="2xRTX-4090-24GB")
    found = [x.severity for x in report.diagnoses if x.rule.code == "OOM709"]
    assert found == [Severity.WARNING if trains else Severity.INFO]
