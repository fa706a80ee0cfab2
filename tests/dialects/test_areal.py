"""AReaL's YAML: a line for the cards of each role, what waits beside, and micro batches that tokens fill."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link, run_of

from oomlint.dialects.areal.allocation import BACKEND, MODE, Allocation, served, trained
from oomlint.dialects.kinds import BadValue
from oomlint.errors import CannotEdit
from oomlint.memory import estimate
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_YAML = """\
experiment_name: maths
trial_name: first
enable_offload: false
cluster:
  n_nodes: 1
  n_gpus_per_node: 8
rollout:
  backend: "sglang:d2t2"
  max_concurrent_rollouts: 128
gconfig:
  n_samples: 8
  max_new_tokens: 2048
actor:
  backend: "fsdp:d4"  # four cards
  experiment_name: ${experiment_name}
  trial_name: ${trial_name}
  path: Qwen/Qwen2.5-3B-Instruct
  gradient_checkpointing: true
  dtype: bfloat16
  mb_spec:
    max_tokens_per_mb: 8192
  optimizer:
    type: adam
    lr: 1.0e-6
  kl_ctl: 0.0
  ppo_n_minibatches: 2
  recompute_logprob: true
ref:
  backend: ${actor.backend}
  path: ${actor.path}
  scheduling_strategy:
    type: colocation
    target: actor
sglang:
  model_path: ${actor.path}
  mem_fraction_static: 0.8
vllm:
  gpu_memory_utilization: 0.7
train_dataset:
  batch_size: 64
  path: openai/gsm8k
  type: rl
  max_length: 1024
saver:
  freq_epochs: 1
"""
_DPO = """\
experiment_name: pairs
trial_name: first
actor:
  backend: fsdp:d8
  path: Qwen/Qwen2.5-7B
  gradient_checkpointing: true
  mb_spec: {max_tokens_per_mb: 4096}
ref:
  backend: fsdp:d8
  path: Qwen/Qwen2.5-7B
  scheduling_strategy: {type: colocation, target: actor}
train_dataset:
  batch_size: 64
  type: dpo
  max_length: 2048
"""
_MEGATRON = _YAML.replace('"fsdp:d4"', '"megatron:d4"')


def _run(text: str = _YAML, hardware: str = "8xA100-80GB") -> Run:
    run = run_of({"config.yaml": text}, "config.yaml", hardware=hardware)
    assert run.framework == "areal"
    return run


def _phase(text: str, phase: str) -> int:
    gpu = estimate(_run(text).plan).gpu
    assert gpu is not None
    found = gpu.phases[phase]
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("fsdp:d4p1t1", Allocation("fsdp", 4)),
        ("fsdp[actor]:d2t2c2", Allocation("fsdp", 2, 2, 1, 2)),
        ("megatron:d4t2p2e2", Allocation("megatron", 4, 2, 2, 1, 2)),
        ("megatron:(attn:d4p4t2|ffn:d2p4e4)", Allocation("megatron", 4, 2, 4, 1, 4, 1)),
    ],
)
def test_degrees(text: str, wanted: Allocation) -> None:
    assert BACKEND.read(text) == wanted


def test_degrees_without_a_backend_are_refused() -> None:
    with pytest.raises(BadValue):
        BACKEND.read("d4t2")


@pytest.mark.parametrize(
    ("mode", "actor", "engine"),
    [
        ("sglang:d4+fsdp:d4", Allocation("fsdp", 4), Allocation("sglang", 4)),
        ("sglang.d4p1t1+d4p1t2", Allocation("fsdp", 4, 2), Allocation("sglang", 4)),
        ("vllm:d2t2+d2p2", Allocation("megatron", 2, 1, 2), Allocation("vllm", 2, 2)),
        ("d8", Allocation("fsdp", 8), None),
        (
            "sglang:d4+megatron:(attn:d2t2|ffn:d1e4)",
            Allocation("megatron", 2, 2, 1, 1, 4, 1),
            Allocation("sglang", 4),
        ),
    ],
)
def test_one_line_for_all_roles(mode: str, actor: Allocation, engine: Allocation | None) -> None:
    parts = MODE.read(mode)
    assert (trained(parts), served(parts)) == (actor, engine)


def test_rl() -> None:
    run = _run()
    plan, rollout = run.plan, run.plan.objective.rollout
    assert not run.stray
    assert (plan.parallel.world, plan.parallel.dp, plan.parallel.backend) == (4, 4, "fsdp2")
    assert (rollout.engine, rollout.tp, rollout.gpu_mem_util, rollout.sleep) == (
        "sglang_server", 2, 0.8, False,
    )  # fmt: skip
    assert (plan.seq.max_len, plan.batch.max_tokens_per_gpu, rollout.scored_tokens) == (
        3072,
        8192,
        8192,
    )
    # 64 prompts with 8 answers each, two steps, four ranks: 64 rows of at most 3072 tokens.
    assert plan.batch.grad_accum == 24
    assert (plan.precision.param, plan.precision.master, plan.precision.optim_state) == (
        "bf16",
        "none",
        "bf16",
    )
    assert (plan.objective.kind, plan.objective.ref_model, plan.checkpointing.mode) == (
        "grpo",
        "none",
        "full",
    )


def test_a_reference_where_the_divergence_counts() -> None:
    on = _YAML.replace("kl_ctl: 0.0", "kl_ctl: 0.1")
    assert _run(on).plan.objective.ref_model == "copy"
    assert _run(on.replace("  kl_ctl: 0.1\n", "")).plan.objective.ref_model == "copy"
    apart = on.replace("target: actor", "target: rollout")
    assert _run(apart).plan.objective.ref_model == "precomputed"
    gone = on.replace("enable_offload: false", "enable_offload: true")
    gone = gone.replace("  path: ${actor.path}\n", "  path: ${actor.path}\n  offload: true\n")
    assert _run(gone).plan.objective.ref_model == "precomputed"


def test_a_critic_beside_doubles_the_states() -> None:
    critic = _MEGATRON.replace(
        "ref:\n",
        "critic:\n  backend: ${actor.backend}\n  path: ${actor.path}\n"
        "  scheduling_strategy: {type: colocation, target: actor}\nref:\n",
    )
    assert _run(critic).plan.objective.kind == "ppo"
    assert _phase(critic, "optimizer_step") > 1.7 * _phase(_MEGATRON, "optimizer_step")


def test_megatron() -> None:
    plan = _run(_MEGATRON).plan
    assert (plan.parallel.backend, plan.precision.grad, plan.precision.master) == (
        "megatron",
        "fp32",
        "fp32",
    )
    narrow = _run(_MEGATRON.replace("type: adam\n", "type: adam_bf16\n")).plan
    assert (narrow.precision.optim_state, narrow.parallel.megatron.precision_aware_optim) == (
        "bf16",
        True,
    )
    bridge = _MEGATRON.replace(
        "gradient_checkpointing: true", "megatron:\n    bridge_type: megatron-bridge"
    )
    assert _run(bridge).plan.checkpointing.mode == "full"
    assert (
        _run(
            _MEGATRON.replace("checkpointing: true", "checkpointing: false")
        ).plan.checkpointing.mode
        == "none"
    )


def test_adam_bf16_is_no_smaller_on_fsdp() -> None:
    """Two moments and a buffer of what rounding loses, beside adam's two moments in bf16."""
    thin, wide = _YAML, _YAML.replace("type: adam\n", "type: adam_bf16\n")
    assert _run(wide).plan.optimizer.kind == "anyprecision_adamw"
    assert _phase(wide, "optimizer_step") > _phase(thin, "optimizer_step")


def test_dpo_always_has_a_reference_and_loads_whole() -> None:
    run = _run(_DPO)
    plan = run.plan
    assert not run.stray
    assert (plan.objective.kind, plan.objective.ref_model, plan.parallel.world) == (
        "dpo",
        "copy",
        8,
    )
    assert plan.batch.max_tokens_per_gpu == 4096
    # 7.6 billion parameters in bf16 on each card, before they are sharded.
    assert _phase(_DPO, "load") > 2 * 7.6e9
    once = _DPO.replace("  mb_spec", "  fsdp: {memory_efficient_load: true}\n  mb_spec")
    assert _phase(once, "load") < 7.6e9


def test_without_a_budget_a_step_is_one_micro_batch() -> None:
    text = _YAML.replace("  mb_spec:\n    max_tokens_per_mb: 8192\n", "")
    plan = _run(text).plan
    assert plan.batch.max_tokens_per_gpu is None
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.micro_unit) == (
        64,
        1,
        "completions",
    )


def test_states_streamed_layer_by_layer_wait_in_ram() -> None:
    text = _YAML.replace("  mb_spec", "  fsdp: {per_layer_optim_step: true}\n  mb_spec")
    plan = _run(text).plan
    assert (plan.offload.optimizer, plan.offload.params) == ("cpu", "none")
    assert _phase(text, "optimizer_step") < _phase(_YAML, "optimizer_step")
    host, before = estimate(plan).host, estimate(_run().plan).host
    assert host is not None
    assert before is not None
    # 4 bytes of each of three billion parameters.
    more = max(x or 0 for x in host.phases.values()) - max(x or 0 for x in before.phases.values())
    assert more > 4 * 3e9


def test_older_configs() -> None:
    old = _YAML.replace('  backend: "fsdp:d4"  # four cards\n', "").replace(
        '  backend: "sglang:d2t2"\n', ""
    )
    old = old.replace("enable_offload: false", "allocation_mode: sglang.d2p1t2+d4p1t1").replace(
        "  backend: ${actor.backend}\n", ""
    )
    plan = _run(old).plan
    assert (plan.parallel.world, plan.parallel.backend, plan.objective.rollout.tp) == (
        4,
        "fsdp2",
        2,
    )


def test_archon_is_left_alone() -> None:
    linked = link({"c.yaml": _YAML.replace('"fsdp:d4"', '"archon:d4"')})
    assert not linked.runs
    assert linked.recognised["c.yaml"] == "areal"


@pytest.mark.parametrize(
    "text",
    [
        "experiment_name: a\ntrial_name: b\nmodel: {path: gpt2}\n",
        "allocation_mode: sglang:d4+fsdp:d4\nmodel: {path: gpt2}\n",
        "experiment_name: a\ntrial_name: b\nactor: {backend: torch}\n",
    ],
)
def test_files_of_others(text: str) -> None:
    assert "areal" not in link({"c.yaml": text}).recognised.values()


def test_strange_keys() -> None:
    """Programs have keys of their own at the top; below, structs refuse what they lack."""
    assert not _run(_YAML + "agent_run_args: {turns: 3}\n").stray or not _run().stray
    (stray,) = _run(
        _YAML.replace("  kl_ctl: 0.0", "  gradient_checkpoint: true\n  kl_ctl: 0.0")
    ).stray
    assert stray.path == "actor.gradient_checkpoint"
    assert stray.block.table.refuses(stray.path)


def test_a_key_that_1_0_4_refuses() -> None:
    run = _run(_YAML.replace("  kl_ctl: 0.0", "  behave_imp_weight_cap: 5.0\n  kl_ctl: 0.0"))
    ((_, renaming),) = (found for block in run.cells.blocks for found in block.renamed())
    assert (renaming.effect, renaming.since) == ("refused", "1.0.4")


def test_a_launch_line() -> None:
    line = (
        "python3 examples/math/gsm8k_rl.py --config config.yaml scheduler.type=local"
        " actor.mb_spec.max_tokens_per_mb=4096 +actor.backend=fsdp:d2\n"
    )
    run = run_of({"run.sh": line.replace("+", ""), "config.yaml": _YAML}, "run.sh")
    assert set(run.files) == {"run.sh", "config.yaml"}
    assert (run.plan.batch.max_tokens_per_gpu, run.plan.parallel.world) == (4096, 2)


# -- fixes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({f.batch.max_tokens_per_gpu: 4096}, "max_tokens_per_mb: 4096"),
        ({f.parallel.tp: 2}, "fsdp:d2p1t2"),
        ({f.parallel.ulysses: 2}, "fsdp:d2p1t1c2"),
        ({f.offload.optimizer: "cpu"}, "per_layer_optim_step: true"),
        ({f.offload.params: "cpu", f.offload.optimizer: "cpu"}, "offload_params: true"),
        ({f.load.cpu_ram_efficient: True}, "memory_efficient_load: true"),
        ({f.checkpointing.mode: "none"}, "gradient_checkpointing: false"),
        ({f.trainable.method: "lora", f.trainable.r: 8}, "use_lora: true"),
        ({f.objective.rollout.gpu_mem_util: 0.7}, "mem_fraction_static: 0.7"),
        ({f.objective.rollout.max_completion_tokens: 1024}, "max_new_tokens: 1024"),
    ],
)
def test_wishes(changes: dict[Any, Any], line: str) -> None:
    after = fixed(_run, _YAML, changes)
    assert line in after
    assert "# four cards" in after


def test_megatrons_names_of_layers_are_the_checkpoints() -> None:
    lora = "  use_lora: true\n  lora_rank: 16\n  target_modules: [linear_qkv, linear_proj, linear_fc2]\n"
    plan = _run(_MEGATRON.replace("actor:\n", f"actor:\n{lora}", 1)).plan
    assert plan.trainable.method == "lora"
    assert plan.trainable.targets == ("q_proj", "k_proj", "v_proj", "o_proj", "down_proj")


def test_wishes_of_megatron() -> None:
    assert "megatron:d2p2t1" in fixed(_run, _MEGATRON, {f.parallel.pp: 2})
    assert "adam_bf16" in fixed(_run, _MEGATRON, {f.precision.optim_state: "bf16"})


@pytest.mark.parametrize(
    "changes",
    [
        {f.batch.max_tokens_per_gpu: 1024},
        {f.parallel.tp: 3},
        {f.parallel.pp: 2},
        {f.parallel.zero.stage: 3},
        {f.quant.method: "bnb4"},
        {f.optimizer.kind: "adamw8bit"},
        {f.loss.logits_materialised: "fused"},
        {f.checkpointing.offload: "cpu"},
        {f.objective.rollout.sleep: True},
        {f.checkpointing.mode: "selective_op"},
    ],
)
def test_what_areal_cannot_say(changes: dict[Any, Any]) -> None:
    run = _run()
    with pytest.raises(CannotEdit):
        run.dialect.express(changes, run.cells)
