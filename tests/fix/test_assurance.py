"""What has to be known of a change before it is called safe; the projects here are written anew."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.fixing import fix_of, repaired
from tests.linked import link, run_of

from oomlint.errors import CannotEdit
from oomlint.fix.assurance import as_sure_as_known
from oomlint.fix.edits import Fix
from oomlint.judgement import Risk
from oomlint.linting.rule import Applicability
from oomlint.plan.fields import f

_CONFIG = """\
base_model: NousResearch/Llama-2-7b-hf
datasets: [{path: a.json, type: alpaca}]
sequence_len: 2048
micro_batch_size: 8
bf16: true
output_dir: out
"""
_LAUNCH = "axolotl train conf/train.yaml\n"


def _after(files: dict[str, str], risk: float) -> Fix:
    """A smaller batch of the first run, as if it left a risk."""
    run = next(r for r in link(files, *files, hardware="8xA100-80GB").runs if not r.is_fragment)
    fix = fix_of(run, {f.batch.micro: 4})
    return as_sure_as_known(run, replace(fix, risk_after=Risk(risk, None)))


@pytest.mark.parametrize(("risk", "is_safe"), [(0.1, True), (0.43, False)])
def test_a_change_that_leaves_a_risk_says_so_and_is_made_on_request(
    risk: float, is_safe: bool
) -> None:
    fix = _after({"conf/train.yaml": _CONFIG, "run.sh": _LAUNCH}, risk)
    assert (fix.applicability is Applicability.SAFE) is is_safe
    assert ("leaves a risk of 43 %" in fix.title) is not is_safe
    # It trains the same all the same, which "may change results" would deny.
    assert fix.trains_the_same


def test_what_nothing_here_starts_is_fitted_on_request() -> None:
    # Where the project has no script at all, somebody starts it by hand.
    scripts = {"prepare.sh": "echo ready\n"}
    for more, is_unstarted in (scripts, True), ({}, True), (scripts, False):
        files = {"conf/train.yaml": _CONFIG, **more}
        run = run_of(files, "conf/train.yaml", hardware="8xA100-80GB")
        fix = replace(fix_of(run, {f.batch.micro: 4}), risk_after=Risk(0.1, None))
        parts = replace(run.parts, find_unstarted=lambda answer=is_unstarted: answer)
        sure = as_sure_as_known(replace(run, parts=parts), fix)
        is_doubted = bool(more) and is_unstarted
        assert (sure.applicability is Applicability.SAFE) is not is_doubted
        assert ("no script here starts it" in sure.title) is is_doubted


_OVERLAID = """\
import subprocess
import yaml

base = yaml.safe_load(open("conf/train.yaml"))
base.update({{"{key}": settings.size}})
subprocess.run(["axolotl", "train", written(base)])
"""


@pytest.mark.parametrize(("key", "counts"), [("micro_batch_size", False), ("run_name", True)])
def test_what_code_lays_over_a_config_is_not_changed_in_it(key: str, counts: bool) -> None:
    files = {"conf/train.yaml": _CONFIG, "run.sh": _LAUNCH, "start.py": _OVERLAID.format(key=key)}
    run = next(r for r in link(files, *files, hardware="8xA100-80GB").runs if not r.is_fragment)
    fix = fix_of(run, {f.batch.micro: 4})
    assert bool(fix.edits) is counts
    if not counts:
        assert fix.reason == "start.py reads train.yaml and says micro_batch_size itself"


_ENGINE = """\
import deepspeed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

config = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True, "bf16_optimizer_states": True}}
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for batch in DataLoader(data, batch_size=2):
    engine.backward(engine(**batch).loss)
    engine.step()
"""


def test_a_loop_under_deepspeed_offloads_no_states_that_are_in_16_bits() -> None:
    with pytest.raises(CannotEdit, match="16 bits"):
        run_of({"train.py": _ENGINE}, "train.py").what_if({f.offload.optimizer: "cpu"})


_MISSPELT = "export CUDA_VISIBLE_DEVICE={cards}\ntorchrun --nproc_per_node {ranks} train.py --output_dir out\n"
_TRAINER = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
Trainer(model=model, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("cards", "ranks", "is_mended"),
    [
        ("2,3", 2, True),
        ("0,1", 2, False),  # those that it takes without
        ("0,1,2,3", 4, False),  # all of the machine
        ("2", 2, False),  # it would wait for a second one
        ("6,7", 2, False),  # none of the machine
    ],
)
def test_a_misspelt_list_of_gpus_is_mended_where_it_then_does_something(
    cards: str, ranks: int, is_mended: bool
) -> None:
    command = _MISSPELT.format(cards=cards, ranks=ranks)
    texts = repaired({"run.sh": command, "train.py": _TRAINER}, hardware="4xA100-80GB").texts
    assert ("run.sh" in texts) is is_mended


_ACCELERATE = """\
distributed_type: {kind}
deepspeed_config: {{zero_stage: 3}}
mixed_precision: bf16
num_machines: 1
num_processes: {processes}
"""
_WITH_MODEL = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
args = TrainingArguments(output_dir="out", per_device_train_batch_size=8, bf16=True, max_steps=9)
Trainer(model=model, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(("kind", "is_shown"), [("'NO'", True), ("DEEPSPEED", False)])
def test_a_run_whose_sharding_is_set_up_and_not_used_is_left_to_its_author(
    kind: str, is_shown: bool
) -> None:
    processes = 1 if is_shown else 4
    files = {
        "run.sh": "accelerate launch --config_file acc.yaml train.py\n",
        "acc.yaml": _ACCELERATE.format(kind=kind, processes=processes),
        "train.py": _WITH_MODEL,
    }
    report = repaired(files, hardware=f"{processes}xA100-40GB", unsafe=True).report
    reasons = [d.fix.reason or "" for d in report.diagnoses if d.fix is not None]
    assert any("is set up and not used" in reason for reason in reasons) is is_shown
    assert not (is_shown and report.applied)
