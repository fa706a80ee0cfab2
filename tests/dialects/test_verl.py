"""verl's launch lines and configs: what they mean, and what a fix writes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link, report_of, run_of

from oomlint.dialects import registry
from oomlint.dialects.verl.dialect import Verl
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.fix.edits import make_fix
from oomlint.judgement import judge_gpu
from oomlint.linting.rule import Proposal, Severity
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_SHARED = Path(__file__).parents[2] / "../shared/corpus"
_CORPUS = _SHARED / "verl"

_GRPO = """\
set -x
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files=$HOME/data/gsm8k/train.parquet \\
    data.max_prompt_length=512 \\
    data.max_response_length=1024 \\
    actor_rollout_ref.model.path=$HOME/models/Qwen/Qwen2.5-7B-Instruct \\
    actor_rollout_ref.model.enable_gradient_checkpointing=False \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 \\
    actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.actor.fsdp_config.param_offload=True \\
    actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\
    actor_rollout_ref.rollout.n=5 \\
    actor_rollout_ref.ref.fsdp_config.param_offload=True \\
    trainer.n_gpus_per_node=8 \\
    trainer.nnodes=2 \\
    trainer.save_freq=20 \\
    trainer.test_freq=5 $@
"""
_DYNAMIC = _GRPO.replace(
    "ppo_micro_batch_size_per_gpu=16",
    "use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24576",
)
_MEGATRON = _GRPO.replace("main_ppo", "main_ppo --config-name='ppo_megatron_trainer.yaml'").replace(
    "actor_rollout_ref.actor.fsdp_config.param_offload=True",
    "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 "
    "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2",
)
_SFT = """\
torchrun --nproc_per_node=4 -m verl.trainer.fsdp_sft_trainer \\
    data.micro_batch_size_per_gpu=8 \\
    model.partial_pretrain=Qwen/Qwen2.5-0.5B-Instruct \\
    trainer.default_local_dir=out
"""
_SFT_FSDP1 = _SFT.replace("trainer.default", "model.strategy=fsdp trainer.default")
_YAML = """\
actor_rollout_ref:
  model:
    path: Qwen/Qwen2.5-7B-Instruct
  actor:
    ppo_micro_batch_size_per_gpu: 8
data:
  max_prompt_length: 1024
  max_response_length: ${data.max_prompt_length}
trainer:
  n_gpus_per_node: 8
"""


def _run(text: str, name: str = "run.sh", release: str | None = None) -> Run:
    values = {} if release is None else {"versions.verl": release}
    (run,) = link({name: text}, values=values).runs
    assert run.framework == "verl"
    return run


def test_reads_grpo() -> None:
    plan = _run(_GRPO).plan
    assert plan.model.id == "~/models/Qwen/Qwen2.5-7B-Instruct"
    assert plan.model.dims is not None
    assert (plan.objective.kind, plan.objective.critic) == ("grpo", "none")
    assert plan.objective.ref_model == "precomputed"
    assert (plan.parallel.world, plan.parallel.backend) == (16, "fsdp1")
    assert (plan.batch.micro, plan.batch.micro_unit) == (16, "completions")
    assert (plan.batch.grad_accum, plan.batch.global_) == (5, 1280)
    assert (plan.seq.max_len, plan.seq.packing) == (1536, "varlen")
    assert (plan.precision.param, plan.precision.optim_state) == ("fp32", "fp32")
    assert (plan.precision.compute, plan.precision.comm) == ("bf16", "fp32")
    assert (plan.checkpointing.mode, plan.trainable.method) == ("none", "full")
    rollout = plan.objective.rollout
    assert (rollout.engine, rollout.gpu_mem_util, rollout.tp) == ("vllm_colocate", 0.6, 2)
    assert (rollout.sleep, rollout.n) == (True, 5)
    assert (plan.save.every, plan.save.contents) == (20, ("model", "optimizer"))
    assert (plan.eval.every, plan.eval.generate, plan.batch.eval_micro) == (5, True, 1)
    assert (plan.loss.upcast_fp32, plan.precision.autocast) == (False, False)


@pytest.mark.parametrize(
    ("key", "value", "runs"), [("+trainer.val_only", "True", 0), ("trainer.val_only", "False", 1)]
)
def test_a_trainer_that_only_validates_trains_nothing(key: str, value: str, runs: int) -> None:
    text = f"{_GRPO.rstrip()} {key}={value}\n"
    assert len(link({"run.sh": text}).runs) == runs


def test_none_or_a_negative_number_of_checkpoints_keeps_all() -> None:
    for number, kept in (("0", "all"), ("-1", "all"), ("3", 3)):
        said = f"trainer.max_actor_ckpt_to_keep={number} $@"
        run = run_of({"a.sh": _GRPO.replace("$@", said)}, "a.sh")
        assert run.plan.save.keep == kept
        assert not run.wrong


def test_states_moved_between_phases_are_on_the_gpu_in_the_update() -> None:
    plan = _run(_GRPO).plan
    assert (plan.offload.params, plan.offload.optimizer) == ("none", "none")
    policy = _GRPO.replace(
        "fsdp_config.param_offload=True \\\n    actor_rollout_ref.rollout.name",
        "fsdp_config.offload_policy=True actor_rollout_ref.actor.strategy=fsdp2 \\\n"
        "    actor_rollout_ref.rollout.name",
    )
    plan = _run(policy).plan
    assert (plan.parallel.backend, plan.offload.params, plan.offload.optimizer) == (
        "fsdp2", "cpu", "cpu",
    )  # fmt: skip


def test_a_token_budget_is_the_micro_batch() -> None:
    plan = _run(_DYNAMIC).plan
    assert (plan.batch.max_tokens_per_gpu, plan.batch.micro, plan.batch.grad_accum) == (
        24576,
        16,
        5,
    )
    spread = _DYNAMIC.replace("use_kl_loss", "ulysses_sequence_parallel_size=2 a.use_kl_loss")
    assert _run(spread).plan.batch.max_tokens_per_gpu == 49152


@pytest.mark.parametrize(
    ("budget", "tokens", "micro", "steps"),
    [
        (122_880, 122_880, 80, 1),
        (200_000, 122_880, 80, 1),  # a rank has no more
        (100_000, 61_440, 40, 2),  # what does not fit in one makes two of a size
        (60_000, 60_000, 27, 3),
    ],
)
def test_a_token_budget_is_filled_by_what_a_rank_has(
    budget: int, tokens: int, micro: int, steps: int
) -> None:
    batch = _run(_DYNAMIC.replace("24576", str(budget))).plan.batch
    assert (batch.max_tokens_per_gpu, batch.micro, batch.grad_accum) == (tokens, micro, steps)


_BASE = """\
actor_rollout_ref:
  model:
    path: ~/models/deepseek-llm-7b-chat
    enable_gradient_checkpointing: False
    use_remove_padding: False
  actor:
    ppo_micro_batch_size_per_gpu: 2
data:
  max_prompt_length: 256
"""
_PLAIN = """\
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=x \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct trainer.n_gpus_per_node=8
"""


@pytest.mark.parametrize(
    ("prompts", "more", "rows"),
    [
        (1024, "", 64),  # as asked: 320 answers a rank
        (32, "", 10),
        (8, " actor_rollout_ref.rollout.n=1 actor_rollout_ref.rollout.n_agent=10", 5),
    ],
)
def test_no_more_answers_are_scored_at_once_than_a_rank_has(
    prompts: int, more: str, rows: int
) -> None:
    asked = (
        f"data.train_batch_size={prompts} actor_rollout_ref.rollout.log_prob_micro_batch_size=1024"
    )
    text = _GRPO.replace("trainer.nnodes=2", f"trainer.nnodes=2 {asked}{more}")
    assert _run(text).plan.objective.rollout.rollout_micro_batch == rows


def test_a_copy_of_verl_begins_its_runs_with_a_config_of_its_own() -> None:
    base = "rl/verl/trainer/config/ppo_trainer.yaml"
    linked = link({"rl/scripts/run.sh": _PLAIN, base: _BASE})
    (run,) = linked.runs
    plan = run.plan
    assert plan.model.id == "Qwen/Qwen2.5-7B-Instruct"
    assert (plan.checkpointing.mode, plan.seq.packing, plan.batch.micro) == ("none", "none", 2)
    assert plan.objective.rollout.max_prompt_tokens == 256
    origin = run.origin("checkpointing.mode")
    assert origin is not None
    assert origin.location is not None
    assert origin.location.path == base
    # Every launch line begins with it: what is to be otherwise is said on the line, if it has that key.
    fix = make_fix(run, Proposal.set("t", {"checkpointing.mode": "full"}), None)
    assert fix is not None
    assert [edit.path for edit in fix.edits] == ["rl/scripts/run.sh"]
    assert "enable_gradient_checkpointing=true" in fix.edits[0].replacement
    offload = make_fix(run, Proposal.set("t", {"offload.activations": "cpu"}), None)
    assert offload is not None
    assert not offload.edits


def test_a_recipe_lays_its_config_over_that_of_verl() -> None:
    recipe = "actor_rollout_ref:\n  model:\n    use_remove_padding: True\n"
    files = {
        "run.sh": _PLAIN.replace("verl.trainer.main_ppo", "recipe.dapo.main_dapo"),
        "verl/trainer/config/ppo_trainer.yaml": _BASE,
        "recipe/dapo/config/dapo_trainer.yaml": recipe,
    }
    run = next(run for run in link(files).runs if run.claims[0].path == "run.sh")
    assert (run.plan.checkpointing.mode, run.plan.seq.packing) == ("none", "varlen")


def test_a_recipes_own_program_names_its_config() -> None:
    files = {
        "run.sh": _PLAIN.replace("verl.trainer.main_ppo", "recipe.ours.src.main_ours"),
        "verl/trainer/config/ppo_trainer.yaml": _BASE,
        "recipe/ours/src/main_ours.py": _OWN_PROGRAM.replace("agent_trainer", "ours_trainer"),
        "recipe/ours/src/config/ours_trainer.yaml": (
            "actor_rollout_ref:\n  model:\n    use_remove_padding: True\n"
        ),
    }
    run = next(run for run in link(files).runs if "run.sh" in run.files)
    assert run.plan.seq.packing == "varlen"


_72B = """\
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=x \\
    data.max_prompt_length=512 data.max_response_length=512 trainer.nnodes=4 \\
    actor_rollout_ref.model.path=Qwen/Qwen2-72B-Instruct \\
    actor_rollout_ref.actor.use_dynamic_bsz=True \\
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24000 \\
    actor_rollout_ref.model.use_remove_padding=True \\
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=5
"""


def test_samples_that_leave_a_budget_empty_are_no_warning() -> None:
    """verl's examples/tuning/70b runs so on 32 cards of 80 GB: its questions are short."""
    (run,) = link({"run.sh": _72B}, hardware="4x8xA100-80GB").runs
    judged = judge_gpu(run)
    assert judged is not None
    assert judged.limit is not None
    assert judged.limit < judged.predicted < 1.03 * judged.limit
    assert not judged.is_problem
    assert "(with samples of 1,024 tokens)" in judged.sentence


def test_megatron_offloads_the_share_of_adam_that_it_is_told() -> None:
    override = " actor_rollout_ref.actor.optim.override_optimizer_config."
    asked = _MEGATRON.replace(" $@", f" +{override.strip()}optimizer_cpu_offload=True")
    offload = _run(asked).plan.offload
    assert (offload.optimizer, offload.optimizer_ratio) == ("cpu", 0)
    told = asked.rstrip() + f" +{override.strip()}optimizer_offload_fraction=1\n"
    assert _run(told).plan.offload.optimizer_ratio == 1


def test_rollouts_on_gpus_of_their_own_take_nothing_of_the_trainers() -> None:
    script = _GRPO.replace(
        "verl.trainer.main_ppo", "verl.experimental.fully_async_policy.fully_async_main"
    )
    script = script.replace("data.max_prompt", "data.train_batch_size=0 data.max_prompt")
    run = _run(script)
    assert not run.wrong
    assert run.plan.objective.rollout.engine == "vllm_colocate"
    apart = _run(
        script.replace("data.max_prompt", "actor_rollout_ref.hybrid_engine=False data.max_prompt")
    )
    assert apart.plan.objective.rollout.engine == "vllm_server"
    assert not apart.stray


def test_only_gae_has_a_critic() -> None:
    text = _GRPO.replace("=grpo", "=gae").replace(
        "trainer.nnodes", "critic.model.path=Qwen/Qwen2.5-0.5B \\\n    trainer.nnodes"
    )
    plan = _run(text).plan
    assert (plan.objective.kind, plan.objective.critic) == ("ppo", "Qwen/Qwen2.5-0.5B")
    away = text.replace(
        "trainer.nnodes",
        "critic.model.fsdp_config.param_offload=True "
        "critic.model.fsdp_config.optimizer_offload=True trainer.nnodes",
    )
    assert _run(away).plan.objective.critic == "none"


def test_reads_lora() -> None:
    text = _GRPO.replace("trainer.nnodes", "actor_rollout_ref.model.lora_rank=32 trainer.nnodes")
    plan = _run(text).plan
    assert (plan.trainable.method, plan.trainable.r, plan.trainable.alpha) == ("lora", 32, 16)
    assert (plan.trainable.targets, plan.trainable.adapter_dtype) == ("all_linear", "fp32")
    assert plan.objective.ref_model == "shared_adapter_off"


def test_offload_policy_is_fsdp2s_alone() -> None:
    offloads = _GRPO.replace("param_offload=True", "offload_policy=True")
    second = offloads.replace(
        "trainer.nnodes", "actor_rollout_ref.actor.strategy=fsdp2 trainer.nnodes"
    )
    plans = [_run(text).plan for text in (offloads, second)]
    assert [plan.parallel.fsdp.cpu_offload for plan in plans] == [False, True]
    assert [plan.offload.optimizer for plan in plans] == ["none", "cpu"]


def test_megatron_split_each_layer_by_default_before_release_0_4() -> None:
    unsaid = _run(
        _MEGATRON.replace("actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 ", "")
    )
    assert (unsaid.plan.parallel.tp, unsaid.plan.parallel.dp) == (1, 8)
    ((changes, before),) = [
        (changes, run) for changes, run in unsaid.alternatives if changes[0].package == "verl"
    ]
    assert changes[0].release == "0.4"
    assert (before.plan.parallel.tp, before.plan.parallel.dp) == (4, 2)
    assert not [c for c, _ in _run(_MEGATRON).alternatives if c[0].package == "verl"]


@pytest.mark.parametrize(
    ("release", "checkpointing", "packing"),
    [("0.1", "none", "none"), ("0.6.1", "full", "none"), ("0.7.0", "full", "varlen")],
)
def test_what_the_actor_does_unsaid_depends_on_the_release(
    release: str, checkpointing: str, packing: str
) -> None:
    text = _GRPO.replace("    actor_rollout_ref.model.enable_gradient_checkpointing=False \\\n", "")
    run = run_of({"run.sh": text, "requirements.txt": f"verl=={release}\n"}, "run.sh")
    assert (run.plan.checkpointing.mode, run.plan.seq.packing) == (checkpointing, packing)


def test_micro_batches_by_gpu_are_no_key_of_the_first_release() -> None:
    text = _GRPO.replace("    actor_rollout_ref.model.enable_gradient_checkpointing=False \\\n", "")

    def open_releases(text: str) -> set[str]:
        return {change.release for change in _run(text).open if change.package == "verl"}

    assert open_releases(text) == {"0.7"}
    by_all = text.replace("ppo_micro_batch_size_per_gpu", "ppo_micro_batch_size")
    assert open_releases(by_all) == {"0.2", "0.7"}


def test_megatron_alone_builds_layers_of_multi_token_prediction() -> None:
    """As many as the checkpoint has: MiMo-7B one."""
    asked = _MEGATRON.replace(
        "actor_rollout_ref.actor.megatron.tensor",
        "actor_rollout_ref.model.mtp.enable=True actor_rollout_ref.model.path=XiaomiMiMo/MiMo-7B-RL "
        "actor_rollout_ref.actor.megatron.tensor",
        1,
    )
    assert _run(asked).plan.model.mtp_layers == 1
    assert _run(asked.replace("mtp.enable=True", "mtp.enable=False")).plan.model.mtp_layers is None
    by_fsdp = _GRPO.rstrip() + " actor_rollout_ref.model.mtp.enable=True\n"
    assert _run(by_fsdp).plan.model.mtp_layers is None


def test_reads_megatron() -> None:
    plan = _run(_MEGATRON).plan
    assert (plan.parallel.backend, plan.parallel.tp, plan.parallel.pp) == ("megatron", 2, 2)
    assert (plan.parallel.dp, plan.batch.grad_accum) == (4, 20)
    assert (plan.precision.param, plan.precision.master) == ("bf16", "fp32")
    assert (plan.objective.ref_model, plan.objective.ref_dtype) == ("copy", "bf16")


def test_reads_supervised_training() -> None:
    plan = _run(_SFT).plan
    assert (plan.objective.kind, plan.parallel.world, plan.parallel.backend) == ("sft", 4, "fsdp2")
    assert (plan.batch.micro, plan.batch.grad_accum, plan.seq.max_len) == (8, 8, 1024)
    assert (plan.checkpointing.mode, plan.seq.pad, plan.loss.upcast_fp32) == (
        "full",
        "max_len",
        True,
    )
    engine = "torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer model.path=Qwen/Qwen3-8B\n"
    plan = _run(engine).plan
    assert (plan.parallel.backend, plan.batch.max_tokens_per_gpu) == ("fsdp1", 8192)
    ray = "python3 -m verl.trainer.sft_trainer_ray model.path=a/b trainer.n_gpus_per_node=2\n"
    assert _run(ray).plan.parallel.world == 2


def test_ray_counts_ranks_whatever_starts_the_command() -> None:
    text = _GRPO.replace("python3", "srun --nodes=1 --ntasks=1 apptainer run a.sif python3")
    assert _run(text).plan.parallel.world == 16


def test_an_example_with_a_trainer_of_its_own_begins_with_the_config_that_it_names() -> None:
    line = _PLAIN.replace("-m verl.trainer.main_ppo", "main_ppo_split.py")
    config = "actor_rollout_ref:\n  model: {path: a/b, enable_gradient_checkpointing: false}\n"
    folder = "examples/split_placement"
    files = {f"{folder}/run.sh": line, f"{folder}/config/ppo_trainer_split.yaml": config}
    run = run_of(files)
    assert {claim.path for claim in run.claims} == files.keys()
    assert run.plan.checkpointing.mode == "none"


def test_reads_a_config_of_ones_own() -> None:
    plan = _run(_YAML, "a.yaml").plan
    assert (plan.batch.micro, plan.seq.max_len, plan.parallel.world) == (8, 2048, 8)
    line = (
        "python3 -m verl.trainer.main_ppo --config-path conf --config-name mine trainer.nnodes=2\n"
    )
    (run,) = link({"conf/mine.yaml": _YAML, "run.sh": line}).runs
    assert (run.plan.batch.micro, run.plan.parallel.world) == (8, 16)


@pytest.mark.parametrize("folder", ["conf", "$CONF"])
def test_nobody_knows_what_a_config_of_ones_own_says_that_is_not_here(folder: str) -> None:
    line = f"python3 -m verl.trainer.main_ppo --config-path {folder} --config-name mine trainer.nnodes=2\n"
    base = "trainer: {n_gpus_per_node: 4}\nactor_rollout_ref: {model: {path: a/b}}\n"
    (run,) = link({"verl/trainer/config/ppo_trainer.yaml": base, "run.sh": line}, "run.sh").runs
    levels = [run.level(field) for field in (f.parallel.nodes, f.parallel.gpus_per_node)]
    assert levels == [Level.STATED, Level.UNREAD]
    assert [claim.path for claim in run.claims] == ["run.sh"]
    (shipped,) = link({"run.sh": line.replace(f" --config-path {folder}", "")}).runs
    assert shipped.level(f.parallel.gpus_per_node) < Level.UNREAD


@pytest.mark.parametrize(
    ("text", "changes", "said"),
    [
        (_GRPO, {"batch.micro": 8, "batch.grad_accum": 10}, "ppo_micro_batch_size_per_gpu=8 "),
        (_DYNAMIC, {"batch.micro": 8, "batch.grad_accum": 10}, "max_token_len_per_gpu=12288"),
        (_GRPO, {"checkpointing.mode": "full"}, "enable_gradient_checkpointing=True"),
        (_GRPO, {"loss.logits_materialised": "fused"}, "model.use_fused_kernels=true"),
        (_GRPO, {"offload.activations": "cpu"}, "model.enable_activation_offload=true"),
        (_GRPO, {"optimizer.kind": "adamw8bit"}, "optim.optimizer=AdamW8bit"),
        (_GRPO, {"seq.max_len": 1024}, "max_response_length=512"),
        (_GRPO, {"save.every": 50}, "save_freq=50"),
        (_GRPO, {"data.workers": 2}, "data.dataloader_num_workers=2"),
        (_GRPO, {"objective.rollout.gpu_mem_util": 0.4}, "gpu_memory_utilization=0.4"),
        (_SFT, {"batch.micro": 4, "batch.grad_accum": 16}, "micro_batch_size_per_gpu=4"),
        (_SFT, {"seq.max_len": 512}, "data.max_length=512"),
        (_SFT_FSDP1, {"offload.params": "cpu", "offload.optimizer": "cpu"}, "offload_params=true"),
    ],
)
def test_fixes(text: str, changes: dict[str, Any], said: str) -> None:
    assert said in fixed(partial(_run, release="0.7.0"), text, changes)


_EIGHT_BITS = {"optimizer.kind": "adamw8bit"}
_LATE = _GRPO.replace(
    "trainer.nnodes=2", "trainer.nnodes=2 actor_rollout_ref.actor.fsdp_config.dtype=bfloat16"
)


@pytest.mark.parametrize(
    ("text", "release", "is_given"),
    [(_GRPO, "0.6.1", True), (_GRPO, "0.6.0", False), (_GRPO, None, False), (_LATE, None, True)],
)
def test_gives_no_key_that_its_release_may_lack(
    text: str, release: str | None, is_given: bool
) -> None:
    run = _run(text, release=release)
    if release == "0.6.0":
        with pytest.raises(CannotEdit, match=r"from 0\.6\.1 on"):
            run.what_if(_EIGHT_BITS)
        return
    fix = make_fix(run, Proposal.set("title", _EIGHT_BITS), None)
    assert fix is not None
    assert bool(fix.edits) is is_given
    assert is_given or "nothing tells" in str(fix.reason)


def test_gives_a_key_that_the_copy_here_has() -> None:
    config = "actor_rollout_ref: {actor: {optim: {optimizer: AdamW, optimizer_impl: torch.optim}}}"
    for text, is_given in ((config, True), ("actor_rollout_ref: {actor: {optim: {}}}", False)):
        files = {"run.sh": _GRPO, "verl/trainer/config/optim/fsdp.yaml": text}
        (run,) = link(files, "run.sh").runs
        fix = make_fix(run, Proposal.set("title", _EIGHT_BITS), None)
        assert fix is not None
        assert bool(fix.edits) is is_given


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (_GRPO, {"parallel.zero.stage": 3}),
        (_GRPO, {"offload.optimizer": "cpu"}),
        (_GRPO, {"quant.method": "bnb4"}),
        (_GRPO, {"model.attn_impl": "sdpa"}),
        (_GRPO, {"optimizer.kind": "adafactor"}),
        (_GRPO, {"batch.grad_accum": 7}),
        (_MEGATRON, {"checkpointing.mode": "full"}),
        (_SFT, {"loss.logits_materialised": "fused"}),
        (_SFT, {"data.workers": 1}),
        (_SFT, {"offload.params": "cpu"}),
    ],
)
def test_says_what_it_cannot_write(text: str, changes: dict[str, Any]) -> None:
    with pytest.raises(CannotEdit):
        _run(text).what_if(changes)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.sh", "python3 -m verl.trainer.main_generation model.path=a/b\n"),
        ("verl/trainer/config/ppo_trainer.yaml", _YAML),
        ("actor.yaml", "_target_: verl.workers.config.FSDPActorConfig\nstrategy: fsdp\n"),
    ],
)
def test_is_aside(name: str, text: str) -> None:
    assert not link({name: text}).runs
    document = Workspace(Path("/x"), {name: text.encode()}).document(name)
    assert [claim.kind for claim in Verl().recognise(document)] == ["aside"]


def test_leaves_others_alone() -> None:
    assert not link({"run.sh": "python3 -m mine.trainer.sft_trainer model.path=a/b\n"}).runs


@pytest.mark.skipif(not _CORPUS.is_dir(), reason="the corpus is not here")
def test_parts_of_the_framework_are_no_runs() -> None:
    for path in sorted(_CORPUS.rglob("*.yaml")):
        name = path.relative_to(_CORPUS).as_posix()
        linked = Linker(Workspace(_CORPUS), registry(), LinkOptions()).link([name])
        if "trainer/config/" in name:
            assert not linked.runs, name


@pytest.mark.skipif(not _CORPUS.is_dir(), reason="the corpus is not here")
def test_knows_the_keys_of_a_shipped_config() -> None:
    listed = [json.loads(line) for line in (_SHARED / "index.jsonl").open(encoding="utf-8")]
    assert any(entry["repo"] == "verl" for entry in listed)
    name = "examples/split_placement/config/ppo_trainer_split.yaml"
    text = (_CORPUS / name).read_text(encoding="utf-8")
    run = run_of({name: text.replace("~/models/", "deepseek-ai/")})
    assert run.framework == "verl"
    assert len(run.stray) <= 5


def test_the_entropy_of_an_update_is_taken_where_it_counts() -> None:
    plain = _run(_GRPO).plan
    assert (plain.loss.entropy, plain.objective.rollout.entropy) == ("none", "fused")
    weighed = " actor_rollout_ref.actor.entropy_coeff=0.001"
    padded = " actor_rollout_ref.model.use_remove_padding=False"
    line = _GRPO.replace(" $@", weighed)
    assert _run(line).plan.loss.entropy == "fused"
    # Only joined samples' is compiled.
    rows = _run(line.replace(weighed, weighed + padded)).plan
    assert (rows.loss.entropy, rows.objective.rollout.entropy) == ("whole", "whole")
    eager = " actor_rollout_ref.actor.use_torch_compile=False"
    assert _run(line.replace(weighed, weighed + eager)).plan.loss.entropy == "whole"
    assert _run(_MEGATRON).plan.objective.rollout.entropy == "whole"
    # In chunks an update keeps as much, and log probabilities nothing.
    chunked = eager + " actor_rollout_ref.actor.entropy_from_logits_with_chunking=True"
    plan = _run(line.replace(weighed, weighed + chunked)).plan
    assert (plan.loss.entropy, plan.objective.rollout.entropy) == ("whole", "fused")


def test_before_release_0_4_every_update_took_the_entropy() -> None:
    files = {"run.sh": _GRPO, "requirements.txt": "verl==0.3.0.post1\n"}
    (run,) = link(files).runs
    assert run.plan.loss.entropy == "whole"  # samples were padded by default too


def test_megatron_splits_sequences_wherever_it_splits_layers() -> None:
    assert _run(_MEGATRON).plan.parallel.sp is True
    key = "actor_rollout_ref.actor.megatron.tensor_model_parallel_size"
    assert _run(_MEGATRON.replace(f"{key}=2", f"{key}=1")).plan.parallel.sp is False
    assert _run(_GRPO).plan.parallel.sp is False


def test_megatron_makes_the_logits_fp32() -> None:
    assert _run(_MEGATRON).plan.loss.upcast_fp32 is True
    assert _run(_GRPO).plan.loss.upcast_fp32 is False


def test_megatron_names_the_modules_that_it_runs_again() -> None:
    under = "+actor_rollout_ref.actor.megatron.override_transformer_config"
    said = f" {under}.recompute_granularity=selective '{under}.recompute_modules=[core_attn,moe]'"
    plan = _run(_MEGATRON.replace(" $@", said)).plan
    assert plan.checkpointing.mode == "selective_op"
    assert plan.checkpointing.recompute_modules == ("core_attn", "moe")


def test_a_reward_model_is_on_the_gpu_under_megatron_alone() -> None:
    said = " reward_model.enable=True reward_model.model.path=Qwen/Qwen2.5-14B-Instruct"
    fsdp, megatron = _run(_GRPO.replace(" $@", said)), _run(_MEGATRON.replace(" $@", said))
    assert fsdp.plan.objective.reward_model == "none"
    assert megatron.plan.objective.reward_model == "Qwen/Qwen2.5-14B-Instruct"
    away = said + " reward_model.megatron.param_offload=True"
    assert _run(_MEGATRON.replace(" $@", away)).plan.objective.reward_model == "none"
    unasked = said.replace("True", "False")
    assert _run(_MEGATRON.replace(" $@", unasked)).plan.objective.reward_model == "none"


def _pointed_at(text: str) -> str:
    """The words that a finding on the tokens of a scoring pass stands at."""
    run = _run(text)
    span = run.location(f.objective.rollout.scored_tokens).span
    return run.claims[0].document.source.text[span.start : span.end]


def test_log_probabilities_have_a_budget_of_their_own() -> None:
    rollout = _run(_DYNAMIC.replace(" $@", " data.train_batch_size=1024")).plan.objective.rollout
    # 320 samples of 1,536 tokens in 20 batches of 24,576.
    assert rollout.scored_tokens == 24_576
    key = "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu"
    wider = _DYNAMIC.replace(" $@", f" data.train_batch_size=1024 {key}=49152")
    assert _run(wider).plan.objective.rollout.scored_tokens == 49_152
    assert _pointed_at(wider) == f"{key}=49152"
    shared = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu"
    assert _pointed_at(_DYNAMIC).startswith(shared)
    alone = _GRPO.replace(" $@", " actor_rollout_ref.rollout.log_prob_micro_batch_size=64")
    assert _run(alone).plan.objective.rollout.rollout_micro_batch == 4
    assert _run(alone).plan.objective.rollout.scored_tokens is None


def test_what_is_changed_need_not_be_possible_on_the_other_side_of_a_release() -> None:
    """Fused logits want joined samples, which are the default since 0.7 alone."""
    run = _run(_GRPO)
    assert run.alternatives
    assert not run.what_if({"loss.logits_materialised": "fused"}).alternatives


def test_what_was_changed_stays_where_a_fact_leaves_no_other_way_to_say_it() -> None:
    """A fix was thought out at one length of the samples; at another verl would split the mini batch
    otherwise, but the file says what the fix wrote."""
    run = _run(_DYNAMIC).placed
    micro, steps = run.plan.batch.micro, run.plan.batch.grad_accum
    assert micro is not None
    assert steps is not None
    changed = run.what_if({f.batch.micro: micro // 2, f.batch.grad_accum: steps * 2})
    shorter = changed.assuming({f.seq.max_len: 700})
    assert shorter.plan.seq.max_len == 700
    assert shorter.wished == changed.wished


_SFT_OFFLOADED = _SFT.replace(
    "trainer.default",
    "++model.fsdp_config.cpu_offload=true ++model.fsdp_config.offload_params=true trainer.default",
)


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("0.3.0", ("fsdp1", "cpu", "none")),
        ("0.4.0", ("fsdp2", "none", "none")),
        ("0.4.1", ("fsdp2", "none", "full")),
    ],
)
def test_what_the_sft_trainer_of_a_release_does_by_default(
    release: str, expected: tuple[str, str, str]
) -> None:
    plan = run_of({"run.sh": _SFT_OFFLOADED, "requirements.txt": f"verl=={release}\n"}).plan
    assert (plan.parallel.backend, plan.offload.params, plan.checkpointing.mode) == expected


# -- programs of projects that train by verl's workers ---------------------------------------------

_OWN_LINE = """\
python3 -m agent.src.main_agent data.max_prompt_length=512 trainer.n_gpus_per_node=2 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-1.5B-Instruct \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2
"""
_OWN_PROGRAM = """\
import hydra
from verl import DataProto
from .trainer import AgentTrainer

@hydra.main(config_path='config', config_name='agent_trainer', version_base=None)
def main(config):
    AgentTrainer(config=config).fit()
"""


def test_a_program_of_the_projects_own_begins_with_the_config_that_it_names() -> None:
    files = {
        "run.sh": _OWN_LINE,
        "agent/src/main_agent.py": _OWN_PROGRAM,
        "agent/src/config/agent_trainer.yaml": _YAML,
    }
    run = run_of(files)
    assert set(run.files) == set(files)
    plan = run.plan
    # From the line, which counts for more, and from the config.
    assert (plan.model.id, plan.batch.micro) == ("Qwen/Qwen2.5-1.5B-Instruct", 2)
    assert plan.objective.rollout.max_completion_tokens is not None


@pytest.mark.parametrize(
    "program",
    [
        {},
        {"agent/src/main_agent.py": _OWN_PROGRAM},
        {"agent/src/main_agent.py": _OWN_PROGRAM.replace("config_name='agent_trainer'", "None")},
    ],
)
def test_a_program_whose_config_is_not_here_is_what_its_line_says(program: dict[str, str]) -> None:
    run = run_of({"run.sh": _OWN_LINE, **program}, "run.sh")
    assert (run.framework, run.plan.parallel.gpus_per_node) == ("verl", 2)
    assert not run.missing


@pytest.mark.parametrize(
    "line",
    [
        "python3 -m agent.src.main_generation actor_rollout_ref.model.path=a\n",
        "python3 -m agent.src.main_agent model.path=a data.train_files=b\n",
    ],
)
def test_a_program_that_trains_by_other_words_is_not_verls(line: str) -> None:
    assert not link({"run.sh": line}).runs


_SELF_PLAY = """\
import hydra
from verl.trainer.ppo.ray_trainer import RayPPOTrainer

@hydra.main(config_path="configs", config_name="self_play", version_base=None)
def main(config):
    RayPPOTrainer(config).fit()
"""
_SELF_PLAY_CONFIG = """\
data: {max_prompt_length: 512, max_response_length: 1024}
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-7B, enable_gradient_checkpointing: true}
  actor: {strategy: fsdp, ppo_micro_batch_size_per_gpu: null}
  rollout: {name: vllm, gpu_memory_utilization: 0.5}
trainer: {nnodes: 1, n_gpus_per_node: 8}
"""
_SELF_PLAY_LINE = """\
PYTHON=${PYTHON:-python}
"${PYTHON}" -m play.main_self \\
  actor_rollout_ref.model.path=Qwen/Qwen3-4B actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \\
  trainer.n_gpus_per_node=4
"""


@pytest.mark.parametrize("program", ["-m play.main_self", "play/main_self.py"])
def test_a_trainer_of_the_projects_own_takes_the_config_that_hydra_names(program):
    """By the worker's section, which only verl has: what the program is called tells nothing."""
    files = {
        "play/main_self.py": _SELF_PLAY,
        "play/configs/self_play.yaml": _SELF_PLAY_CONFIG,
        "a.sh": _SELF_PLAY_LINE.replace("-m play.main_self", program),
    }
    (run,) = link(files).runs
    assert run.plan.model.id == "Qwen/Qwen3-4B"
    assert (run.plan.parallel.world, run.plan.batch.micro) == (4, 2)
    assert run.plan.seq.max_len == 1536


@pytest.mark.parametrize(
    ("model", "loads_once"),
    [("Qwen/Qwen2.5-7B-Instruct", True), ("Qwen/Qwen2.5-1.5B-Instruct", False), ("our/tuned-32b", True),
     ("our/tuned-1b", None)],
)  # fmt: skip
def test_one_rank_loads_what_is_not_tied(model: str, loads_once: bool | None) -> None:
    """Of a model of which the size alone is known, that follows from what others of its size do."""
    text = _GRPO.replace("$HOME/models/Qwen/Qwen2.5-7B-Instruct", model)
    run = run_of({"train.sh": text}, hardware="8xA100-80GB")
    assert run.plan.load.cpu_ram_efficient is loads_once
    origin = run.origin(f.load.cpu_ram_efficient)
    is_assumed = origin is not None and origin.kind == "assumed"
    assert is_assumed is model.startswith("our/tuned-3")


@pytest.mark.parametrize(
    ("model", "runs"),
    [("~/models/deepseek-llm-7b-chat", 0), ("deepseek-ai/deepseek-llm-7b-chat", 1)],
)
def test_a_config_that_leaves_verls_own_model_in_its_place_is_what_commands_begin_with(
    model: str, runs: int
) -> None:
    config = _BASE.replace("~/models/deepseek-llm-7b-chat", model)
    assert len(link({"src/config/agent_trainer.yaml": config}).runs) == runs
    command = _PLAIN.replace(
        "main_ppo ", "main_ppo --config-path=src/config --config-name=agent_trainer "
    )
    files = {"src/config/agent_trainer.yaml": config, "run.sh": command}
    run = run_of(files, "run.sh")
    assert (run.plan.model.id, run.plan.checkpointing.mode) == ("Qwen/Qwen2.5-7B-Instruct", "none")


_ALONE = """\
data:
  train_files: train.parquet
  train_batch_size: 64
actor_rollout_ref:
  model:
    path: Qwen/Qwen2.5-7B-Instruct
  actor:
    optim:
      lr: 1.0e-6
  rollout:
    name: vllm
trainer:
  n_gpus_per_node: 2
"""


@pytest.mark.parametrize(
    ("config", "severity"),
    [
        (_ALONE, Severity.INFO),
        (_ALONE.replace("  actor:\n", "  actor:\n    strategy: fsdp\n"), Severity.ERROR),
        (f"defaults:\n  - ppo_trainer\n  - _self_\n{_ALONE}", Severity.ERROR),
    ],
)
def test_what_a_config_is_composed_with_that_is_not_whole(config: str, severity: Severity) -> None:
    found = report_of({"configs/grpo.yaml": config}, hardware="2xRTX-4090-24GB").diagnoses
    assert {each.severity for each in found if each.rule.code == "OOM100"} == {severity}


def test_rollouts_of_their_own_take_gpus_from_the_same_machine() -> None:
    apart = _GRPO.replace("main_ppo", "main_ppo actor_rollout_ref.hybrid_engine=False").replace(
        "trainer.n_gpus_per_node=8", "trainer.n_gpus_per_node=4 rollout.n_gpus_per_node=4"
    )
    one = {"run.sh": apart.replace("trainer.nnodes=2", "trainer.nnodes=1")}
    found = _beside_pool(one, "4xRTX-4090-24GB")
    assert found == ["Ray is asked for 8 GPUs in all, and the machine has 4"]
    assert not _beside_pool(one, "8xRTX-4090-24GB")
    assert not _beside_pool({"run.sh": apart}, "4xRTX-4090-24GB")  # on how many nodes is open
    shared = one["run.sh"].replace("hybrid_engine=False", "hybrid_engine=True")
    assert not _beside_pool({"run.sh": shared}, "4xRTX-4090-24GB")


def _beside_pool(files: dict[str, str], hardware: str) -> list[str]:
    """What is said of the GPUs that Ray is asked for; a need of memory stands beside that as a remark."""
    report = report_of(files, hardware=hardware)
    of_pool = [each for each in report.diagnoses if "in all" in each.finding.message]
    others = [each for each in report.diagnoses if each not in of_pool and of_pool]
    assert all(each.severity is Severity.INFO for each in others)
    return [each.finding.message for each in of_pool]
