"""Two runs side by side: steps that add up, origins of values, what has no effect."""

from collections import Counter

import pytest

from oomlint.dialects import registry
from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware
from oomlint.judgement.comparison import GROUPS, _leaves_of_groups, compare
from oomlint.plan import leaf_paths
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker

AXOLOTL = """\
base_model: meta-llama/Llama-3.2-3B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 4096
micro_batch_size: 4
output_dir: out
optimizer: adamw_torch_fused
bf16: true
flash_attention: true
"""

LLAMA_FACTORY = """\
model_name_or_path: meta-llama/Llama-3.2-3B
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
dataset: alpaca
template: llama3
cutoff_len: 2048
output_dir: saves/x
per_device_train_batch_size: 1
bf16: true
deepspeed: ds.json
"""

ZERO3 = """\
{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
 "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}
"""


@pytest.fixture
def run_of(tmp_path):
    """The run of a config's text, and the files beside it."""

    def make(text, name="a.yaml", hardware="8xA100-80GB", **beside):
        workspace = Workspace(
            tmp_path, {name: text.encode(), **{k + ".json": v.encode() for k, v in beside.items()}}
        )
        machine = parse_hardware(hardware) if hardware else None
        (run,) = Linker(workspace, registry(), LinkOptions(hardware=machine)).link([name]).runs
        return run

    return make


@pytest.fixture
def pair(run_of):
    """Full fine-tuning in Axolotl against LoRA under ZeRO-3 in LLaMA-Factory."""
    return run_of(AXOLOTL), run_of(LLAMA_FACTORY, "b.yaml", "4xL40S-48GB", ds=ZERO3)


def step(comparison, name):
    return next(s for s in comparison.steps if s.group.name == name)


def fields(comparison):
    return [d.field for s in comparison.steps for d in s.differences]


def test_every_leaf_of_the_plan_belongs_to_one_group():
    homes = Counter(leaf for _, leaves in _leaves_of_groups() for leaf in leaves)
    assert set(homes) == leaf_paths() - {"name"}
    assert set(homes.values()) == {1}
    tops = {leaf.partition(".")[0] for leaf in homes}
    named = {name.partition(".")[0] for group in GROUPS for name in group.fields}
    assert tops == named, "a new part of the plan wants a group of its own"
    kernels = next(leaves for group, leaves in _leaves_of_groups() if group.name == "attention")
    assert kernels == ["model.attn_impl", "model.experts_impl"]


@pytest.mark.parametrize("resource", ["gpu", "host"])
def test_the_steps_lead_from_one_run_to_the_other(pair, resource):
    for a, b in (pair, pair[::-1]):
        found = compare(a, b)
        start = getattr(a.estimate, resource).peak_bytes
        end = getattr(b.estimate, resource).peak_bytes
        changes = [getattr(s, resource) for s in found.steps]
        assert found.total(resource) == end - start == sum(c.step for c in changes)
        for change in changes:
            start += change.step
            assert change.peak == start
        assert changes[-1].peak == end
        assert changes[-1].phase == getattr(b.estimate, resource).peak_phase


def test_what_no_change_brings_alone_is_told_apart(pair):
    found = compare(*pair)
    alone = sum(s.gpu.alone for s in found.steps)
    assert found.interaction("gpu") == found.total("gpu") - alone
    assert found.interaction("gpu") != 0
    only = compare(pair[0], pair[0].what_if({"batch.micro": 1}))
    assert only.interaction("gpu") == 0


def test_one_changed_setting_bears_the_whole_difference(run_of):
    a = run_of(AXOLOTL)
    b = run_of(AXOLOTL + "gradient_checkpointing: true\n")
    found = compare(a, b)
    (only,) = found.steps
    assert only.group.name == "checkpointing"
    (mode,) = (d for d in only.differences if d.field == "checkpointing.mode")
    assert (mode.a.value, mode.b.value) == ("none", "full")
    assert (mode.b.path, mode.b.line, mode.b.key) == ("a.yaml", 11, "gradient_checkpointing")
    assert mode.a.path is None
    assert mode.a.key == "gradient_checkpointing"
    assert only.gpu.step == only.gpu.alone == found.total("gpu") < 0


def test_a_difference_without_effect_is_set_aside(run_of):
    found = compare(
        run_of(AXOLOTL), run_of(AXOLOTL.replace("output_dir: out", "output_dir: elsewhere"))
    )
    assert found.steps == ()
    (only,) = found.without_effect
    assert (only.field, only.a.value, only.b.value) == ("save.dir", "out", "elsewhere")


def test_a_run_does_not_differ_from_itself(run_of):
    found = compare(run_of(AXOLOTL), run_of(AXOLOTL))
    assert found.steps == found.without_effect == ()
    assert found.total("gpu") == found.total("host") == 0


def test_each_side_says_where_its_value_comes_from(pair):
    found = compare(*pair)
    by_field = {d.field: d for s in found.steps for d in s.differences}
    method = by_field["trainable.method"]
    assert (method.a.value, method.a.kind) == ("full", "default")
    assert (method.b.value, method.b.kind, method.b.line) == ("lora", "explicit", 4)
    assert method.b.key == "finetuning_type"
    stage = by_field["parallel.zero.stage"]
    assert (stage.a.value, stage.a.kind) == (None, "unset")
    assert (stage.b.value, stage.b.path, stage.b.key) == (3, "ds.json", "stage")
    assert by_field["device.type"].b.kind == "catalog"
    assert by_field["offload.optimizer"].b.value == "cpu"


def test_the_limits_are_listed_even_where_they_change_no_prediction(run_of):
    found = compare(run_of(AXOLOTL), run_of(AXOLOTL, hardware="8xH200-141GB"))
    assert "device.type" in fields(found)
    assert found.a.verdict != found.b.verdict == "fits"


def test_the_dimensions_of_a_model_are_told_one_by_one(run_of):
    found = compare(run_of(AXOLOTL), run_of(AXOLOTL.replace("3.2-3B", "3.2-1B")))
    told = {d.field: (d.a.value, d.b.value) for d in step(found, "model").differences}
    assert told["model.dims.layers"] == (28, 16)
    assert told["model.id"] == ("meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.2-1B")
    assert "model.dims.vocab" not in told
    assert step(found, "model").gpu.step == found.total("gpu") < 0


def test_an_unknown_model_leaves_no_numbers_but_the_settings(run_of):
    unknown = run_of(AXOLOTL.replace("meta-llama/Llama-3.2-3B", "acme/unheard-of"))
    found = compare(run_of(AXOLOTL), unknown)
    assert found.total("gpu") is found.interaction("gpu") is None
    assert step(found, "model").gpu.peak is None
    assert "model.id" in fields(found)


def test_an_assumed_number_of_gpus_is_named_so(run_of):
    config = AXOLOTL + "deepspeed: ds.json\n"
    a = run_of(config, hardware=None, ds=ZERO3)
    b = run_of(config, hardware="2xA100-80GB", ds=ZERO3)
    found = compare(a, b)
    by_field = {d.field: d for s in found.steps for d in s.differences}
    gpus = by_field["parallel.gpus_per_node"]
    assert (gpus.a.value, gpus.a.kind, gpus.b.value) == (8, "assumed", 2)
    assert "--gpus" in gpus.a.source
    assert found.total("gpu") == b.estimate.gpu.peak_bytes - found.a.estimate.gpu.peak_bytes
    assert step(found, "parallel").gpu.step > 0


def test_what_a_step_does_to_checkpoints_adds_up(pair):
    found = compare(*pair)
    before, after = (f.estimate.disk_checkpoint_bytes for f in (found.a, found.b))
    assert sum(s.disk for s in found.steps) == after - before
    assert step(found, "trainable").disk < 0, "an adapter weighs less than a model"
