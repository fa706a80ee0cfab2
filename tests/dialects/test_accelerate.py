"""Accelerate's YAML: alone, under a trainer, and overridden by flags of its launcher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.linked import run_of

from oomlint.dialects import registry
from oomlint.dialects.accelerate.passed_by import passed_by
from oomlint.documents.text import Source, by_path
from oomlint.errors import CannotEdit, FileError
from oomlint.files.workspace import Workspace
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

CORPUS = Path(__file__).parents[2] / "../shared/corpus"
FOREIGN = Path(__file__).parents[2] / "../shared/corpus-other"

FSDP = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_state_dict_type: FULL_STATE_DICT
machine_rank: 0
mixed_precision: bf16
num_machines: 2
num_processes: 16
"""
DEEPSPEED = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  gradient_accumulation_steps: 4
  offload_optimizer_device: cpu
  zero3_init_flag: false
  zero_stage: 3
mixed_precision: fp16
num_machines: 1
num_processes: 8
"""
TRAINER = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
do_train: true
finetuning_type: full
dataset: identity
template: llama3
output_dir: out
"""


def written(run: Run, files: dict[str, str], changes: dict[str, Any]) -> dict[str, str]:
    """The files once the run says ``changes``."""
    edits = []
    for field, value in run.what_if(changes).wished.items():
        origin = run.origin(field)
        explicit = origin is not None and origin.kind == "explicit"
        block = origin.block if origin is not None and explicit else run.block_with(field)
        assert block is not None
        edits += block.write({field: value})
    return {**files, **{p: Source(p, files[p]).edited(e).text for p, e in by_path(edits).items()}}


def test_fsdp_alone_is_a_fragment_with_its_own_ranks() -> None:
    run = run_of({"a.yaml": FSDP})
    parallel = run.plan.parallel
    assert run.is_fragment
    assert run.framework == "accelerate"
    assert (parallel.nodes, parallel.gpus_per_node, parallel.world) == (2, 8, 16)
    assert (parallel.backend, parallel.fsdp.strategy) == ("fsdp1", "grad_op")
    assert parallel.fsdp.reshard_after_forward is False
    assert (parallel.fsdp.wrap, parallel.fsdp.state_dict) == ("transformer", "full")
    # accelerate launch turns this on unless the file says no; the plugin alone would not.
    assert run.plan.load.cpu_ram_efficient is True
    assert run.plan.precision.compute == "bf16"
    assert run.plan.model.id is None


@pytest.mark.parametrize(("release", "reads_once"), [("4.31.0", False), ("4.32.0", True)])
def test_an_old_transformers_reads_on_every_rank(release: str, reads_once: bool) -> None:
    pin = f"transformers=={release}\n"
    run = run_of({"a.yaml": FSDP, "requirements.txt": pin}, "a.yaml")
    assert run.plan.load.cpu_ram_efficient is reads_once


def test_without_a_policy_the_model_is_one_unit() -> None:
    text = FSDP.replace("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n", "")
    assert run_of({"a.yaml": text}).plan.parallel.fsdp.wrap == "none"


def test_fsdp2_reshards_by_its_boolean() -> None:
    text = FSDP.replace(
        "fsdp_sharding_strategy: SHARD_GRAD_OP",
        "fsdp_version: 2\n  fsdp_reshard_after_forward: false",
    )
    fsdp = run_of({"a.yaml": text}).plan.parallel.fsdp
    assert (fsdp.version, fsdp.strategy, fsdp.wrap) == (2, "grad_op", "ends")


def test_keys_may_leave_their_prefix_away() -> None:
    text = FSDP.replace("fsdp_sharding_strategy: SHARD_GRAD_OP", "offload_params: true")
    run = run_of({"a.yaml": text})
    assert run.plan.offload.params == "cpu"
    assert run.stray == ()


def test_deepspeed_made_from_the_yaml() -> None:
    run = run_of({"a.yaml": DEEPSPEED})
    plan = run.plan
    assert (plan.parallel.backend, plan.parallel.zero.stage) == ("zero", 3)
    assert (plan.offload.optimizer, plan.offload.params) == ("cpu", "none")
    assert plan.load.zero3_init is False
    assert plan.parallel.zero.gather16_on_save is False
    assert plan.parallel.zero.reduce_bucket_elems == 500_000_000
    assert (plan.precision.param, plan.precision.master) == ("fp16", "fp32")
    assert plan.batch.grad_accum == 4


def test_stage_two_is_the_default_of_deepspeed() -> None:
    text = DEEPSPEED.replace("  zero_stage: 3\n", "").replace("  zero3_init_flag: false\n", "")
    plan = run_of({"a.yaml": text}).plan
    assert plan.parallel.zero.stage == 2
    assert plan.load.zero3_init is False


def test_a_config_file_of_deepspeed_is_followed() -> None:
    text = (
        "distributed_type: DEEPSPEED\nnum_processes: 4\n"
        "deepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    config = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
    run = run_of({"a.yaml": text, "ds.json": config}, "a.yaml")
    assert run.plan.parallel.zero.stage == 3
    assert run.plan.load.zero3_init is True
    assert run.files == ("a.yaml", "ds.json")


@pytest.mark.parametrize(
    ("kind", "backend", "world"), [("MULTI_GPU", "ddp", 8), ("NO", "none", 1), ("'NO'", "none", 1)]
)
def test_settings_of_a_backend_that_is_not_started_are_dropped(
    kind: str, backend: str, world: int
) -> None:
    text = DEEPSPEED.replace("DEEPSPEED", kind)
    plan = run_of({"a.yaml": text}).plan
    assert (plan.parallel.backend, plan.parallel.world) == (backend, world)
    assert plan.parallel.zero.stage is None
    assert plan.offload.optimizer is None


def test_a_trainer_takes_ranks_sharding_and_precision_from_it() -> None:
    line = "accelerate launch --config_file acc.yaml src/train.py a.yaml\n"
    run = run_of({"a.yaml": TRAINER, "acc.yaml": FSDP, "run.sh": line})
    plan = run.plan
    assert run.framework == "llama-factory"
    assert (plan.parallel.world, plan.parallel.backend) == (16, "fsdp1")
    assert (plan.precision.param, plan.precision.compute) == ("fp32", "bf16")
    assert plan.save.full_gather is True


def test_the_trainers_own_precision_wins() -> None:
    line = "accelerate launch --config_file acc.yaml src/train.py a.yaml\n"
    files = {"a.yaml": TRAINER + "fp16: true\n", "acc.yaml": FSDP, "run.sh": line}
    assert run_of(files).plan.precision.compute == "fp16"


def test_flags_of_the_launcher_win() -> None:
    line = (
        "accelerate launch --config_file acc.yaml --num_processes 4 --num_machines 1"
        " src/train.py a.yaml\n"
    )
    run = run_of({"a.yaml": TRAINER, "acc.yaml": FSDP, "run.sh": line})
    assert (run.plan.parallel.nodes, run.plan.parallel.world) == (1, 4)


def test_flags_alone_choose_deepspeed() -> None:
    line = (
        "accelerate launch --use_deepspeed --zero_stage 3 --num_processes 2 src/train.py a.yaml\n"
    )
    run = run_of({"a.yaml": TRAINER + "bf16: true\n", "run.sh": line})
    assert (run.plan.parallel.backend, run.plan.parallel.zero.stage) == ("zero", 3)
    assert run.plan.precision.master == "fp32"


def test_switches_of_the_launch_line_take_a_word() -> None:
    """argparse wants one after ``--zero3_save_16bit_model``, which is no switch there."""
    line = "accelerate launch --use_deepspeed --zero_stage 3 src/train.py a.yaml\n"
    files = {"a.yaml": TRAINER + "bf16: true\n", "run.sh": line}
    changes = {"parallel.zero.gather16_on_save": True}
    after = written(run_of(files), files, changes)
    assert "--zero3_save_16bit_model true" in after["run.sh"]
    assert run_of(after).plan.parallel.zero.gather16_on_save is True


def test_fixes_go_into_its_own_sections() -> None:
    line = "accelerate launch --config_file acc.yaml src/train.py a.yaml\n"
    files = {"a.yaml": TRAINER, "acc.yaml": FSDP, "run.sh": line}
    run = run_of(files)
    after = written(run, files, {"parallel.fsdp.state_dict": "sharded", "offload.params": "cpu"})
    assert "fsdp_state_dict_type: SHARDED_STATE_DICT\n" in after["acc.yaml"]
    assert "  fsdp_offload_params: true\n" in after["acc.yaml"]
    assert after["a.yaml"] == TRAINER
    with pytest.raises(CannotEdit, match="DeepSpeed"):
        run.what_if({"parallel.zero.stage": 3})


def test_the_accumulation_that_it_repeats_stays_equal() -> None:
    line = "accelerate launch --config_file acc.yaml src/train.py a.yaml\n"
    trainer = TRAINER + "gradient_accumulation_steps: 4\n"
    files = {"a.yaml": trainer, "acc.yaml": DEEPSPEED, "run.sh": line}
    run = run_of(files)
    after = written(run, files, {"batch.micro": 1, "batch.grad_accum": 32})
    assert "gradient_accumulation_steps: 32\n" in after["acc.yaml"]
    assert "gradient_accumulation_steps: 32\n" in after["a.yaml"]


def test_alone_it_can_raise_the_stage_and_checkpoint() -> None:
    run = run_of({"a.yaml": DEEPSPEED.replace("zero_stage: 3", "zero_stage: 2")})
    files = {"a.yaml": DEEPSPEED.replace("zero_stage: 3", "zero_stage: 2")}
    after = written(run, files, {"parallel.zero.stage": 3})
    assert after["a.yaml"] == DEEPSPEED
    run = run_of({"a.yaml": FSDP})
    after = written(run, {"a.yaml": FSDP}, {"checkpointing.mode": "full"})
    assert "  fsdp_activation_checkpointing: true\n" in after["a.yaml"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (FSDP, "part"),
        ("distributed_type: no\nnum_processes: 1\n", "part"),
        (
            "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: NO\nmixed_precision: fp16\n",
            "aside",
        ),
        ("distributed_type: FSDP\n", None),
        ("distributed_type: sharded\nnum_processes: 2\n", None),
        ("distributed_type:\n  - FSDP\nnum_processes: 2\n", None),
    ],
)
def test_recognises_by_keys(text: str, kind: str | None) -> None:
    workspace = Workspace(Path("/x"), {"a.yaml": text.encode()})
    claims = Linker(workspace, registry(), LinkOptions()).claims("a.yaml")
    ours = [claim.kind for claim in claims if claim.dialect.name == "accelerate"]
    assert ours == ([] if kind is None else [kind])


def test_unknown_keys_are_refused_by_the_framework() -> None:
    run = run_of({"a.yaml": FSDP + "num_process: 3\n"})
    assert [stray.path for stray in run.stray] == ["num_process"]
    assert run.stray[0].block.table.ignores_unknown is False


def _parts(root: Path) -> dict[str, list[Any]]:
    if not root.is_dir():
        pytest.skip(f"{root.name} of the shared reference is not here")
    linker = Linker(Workspace(root), registry(), LinkOptions())
    found: dict[str, list[Any]] = {}
    for path in sorted(root.rglob("*.y*ml")):
        name = str(path.relative_to(root))
        try:
            claims = linker.claims(name)
        except FileError:
            continue
        found[name] = [c for c in claims if c.dialect.name == "accelerate"]
    return found


def test_every_accelerate_config_of_the_corpus_is_recognised() -> None:
    found = _parts(CORPUS)
    wanted = {n for n in found if b"\ndistributed_type:" in b"\n" + (CORPUS / n).read_bytes()}
    assert {name for name, claims in found.items() if claims} == wanted
    assert len(wanted) > 20
    for name in wanted:
        strays = [s.path for b in found[name][0].blocks for s in b.read().stray]
        assert not strays or name.endswith("invalid_keys.yaml"), (name, strays)


def test_nothing_foreign_is_claimed() -> None:
    assert [name for name, claims in _parts(FOREIGN).items() if claims] == []


@pytest.mark.parametrize(
    ("pinned", "steps", "synced"),
    [("1.10.1", 4, True), ("1.11.0", 4, None), ("1.10.1", 1, None)],
)
def test_fsdp2_kept_no_whole_gradients_before_accelerate_1_11(
    pinned: str, steps: int, synced: bool | None
) -> None:
    line = "accelerate launch --config_file acc.yaml src/train.py a.yaml\n"
    files = {
        "a.yaml": f"{TRAINER}gradient_accumulation_steps: {steps}\n", "run.sh": line,
        "acc.yaml": FSDP.replace("  fsdp_sharding_strategy: SHARD_GRAD_OP", "  fsdp_version: 2"),
        "requirements.txt": f"accelerate=={pinned}\n",
    }  # fmt: skip
    run = run_of(files, "run.sh")
    assert run.plan.parallel.fsdp.version == 2
    assert run.plan.parallel.fsdp.sync_every_micro is synced


_NESTED = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  zero_optimization:
    stage: 3
    offload_optimizer: {device: cpu, pin_memory: true}
    reduce_bucket_size: auto
    stage3_gather_16bit_weights_on_model_save: true
"""


def test_what_deepspeeds_own_words_ask_for_in_vain_has_keys_of_accelerates() -> None:
    """Those of one field in both tables; of the others there is nothing to say."""
    run = run_of({"acc.yaml": _NESTED})
    found = passed_by(block for block, _ in run.parts.blocks)
    assert found is not None
    assert [each.instead for each in found.losses()] == [
        "zero_stage: 3", "offload_optimizer_device: cpu", "zero3_save_16bit_model: true",
    ]  # fmt: skip
    assert found.location.path == "acc.yaml"
    flat = _NESTED[: _NESTED.index("  zero_opt")] + "  zero_stage: 3\n"
    assert passed_by(block for block, _ in run_of({"acc.yaml": flat}).parts.blocks) is None
