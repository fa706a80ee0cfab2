"""align-anything's trainers by their launch lines."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.fix.edits import make_fix
from oomlint.judgement.forecast import forecast_of
from oomlint.judgement.unpredicted import why_unpredicted
from oomlint.linting.rule import Applicability, Proposal, SetFields
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_MODEL = "--model_name_or_path meta-llama/Llama-3.1-8B-Instruct --train_datasets d --output_dir o"
_ACTORS = (
    "--actor_model_name_or_path meta-llama/Llama-3.1-8B-Instruct --reward_model_name_or_path o/r"
    " --reward_critic_model_name_or_path o/r --train_datasets d --output_dir o"
)


def _run(algorithm: str, options: str) -> Run:
    line = f"deepspeed --num_gpus 8 --module align_anything.trainers.text_to_text.{algorithm} {options}\n"
    run = run_of({"train.sh": line}, "train.sh")
    assert run.framework == "align-anything"
    assert not run.stray
    return run


def test_what_its_yaml_and_its_deepspeed_file_say() -> None:
    plan = _run("sft", _MODEL).plan
    assert (plan.seq.max_len, plan.batch.micro, plan.checkpointing.mode) == (4096, 1, "full")
    zero = plan.parallel.zero
    assert (zero.stage, zero.persistence_threshold, zero.reduce_bucket_elems) == (
        3,
        10_000,
        500_000_000,
    )
    assert (plan.load.dtype, plan.precision.master, plan.optimizer.fused) == ("bf16", "fp32", True)
    # The option is read after the file has been opened.
    assert _run("sft", f"{_MODEL} --ds_cfgs ds_z2_config.json").plan.parallel.zero.stage == 3


def test_an_adapter_is_not_checkpointed() -> None:
    plan = _run("sft", f"{_MODEL} --use_lora True --r 8").plan
    assert (plan.trainable.method, plan.trainable.r, plan.checkpointing.mode) == ("lora", 8, "none")
    assert _run("rm", f"{_MODEL} --use_lora True").plan.trainable.method == "full"


@pytest.mark.parametrize(
    ("algorithm", "kind"), [("dpo", "dpo"), ("simpo", "simpo"), ("orpo", "orpo")]
)
def test_pairs_and_the_reference_that_all_load(algorithm: str, kind: str) -> None:
    run = _run(algorithm, _MODEL)
    objective = run.plan.objective
    assert (objective.kind, objective.ref_model, objective.pairs_per_sample) == (kind, "copy", 2)
    assert run.level(f.seq.max_len) is Level.ASSUMED


def test_its_classes_are_not_trls_of_the_same_name() -> None:
    line = f"deepspeed --num_gpus 8 --module align_anything.trainers.text_to_text.orpo {_MODEL}\n"
    code = (
        "from align_anything.trainers.text_to_text.dpo import DPOTrainer\n\n\n"
        "class ORPOTrainer(DPOTrainer):\n    pass\n\n\ntrainer = ORPOTrainer(cfgs=cfgs, ds_cfgs=ds)\ntrainer.train()\n"
    )
    files = {"train.sh": line, "align_anything/trainers/text_to_text/orpo.py": code}
    plan = run_of(files, "train.sh").plan
    assert (plan.load.dtype, plan.parallel.zero.stage, plan.objective.kind) == ("bf16", 3, "orpo")


def test_models_of_ppo_and_the_answers_of_grpo() -> None:
    objective = _run("ppo", _ACTORS).plan.objective
    assert (objective.kind, objective.critic, objective.reward_model) == ("ppo", "o/r", "o/r")
    plan = _run("grpo", f"{_ACTORS} --num_generations 8 --per_device_prompt_batch_size 2").plan
    assert (plan.objective.kind, plan.batch.micro, plan.objective.ref_model) == ("grpo", 16, "copy")


def test_no_option_changes_how_it_shards() -> None:
    wish = Proposal("offload", (SetFields({f.offload.optimizer: "cpu"}),), Applicability.SAFE)
    fix = make_fix(_run("sft", _MODEL), wish, None)
    assert fix is not None
    assert (fix.edits, fix.reason is not None and "the package's own" in fix.reason) == ((), True)


def test_towers_are_frozen_and_adapters_are_void() -> None:
    options = _MODEL.replace("Llama-3.1-8B-Instruct", "Llama-2-7b-hf")
    line = f"deepspeed --num_gpus 8 --module align_anything.trainers.text_image_to_text.sft {options} --use_lora True"
    plan = run_of({"train.sh": f"{line}\n"}, "train.sh").plan
    assert (plan.trainable.method, plan.trainable.frozen, plan.batch.grad_accum) == (
        "full",
        ("vision",),
        16,
    )
    ppo = run_of(
        {"a.sh": line.replace("sft", "ppo").replace(_MODEL, _ACTORS).replace(options, _ACTORS)},
        "a.sh",
    ).plan
    assert (ppo.objective.kind, ppo.trainable.method, ppo.objective.critic) == (
        "ppo",
        "full",
        "o/r",
    )
    part = run_of({"train.sh": f"{line} --freeze_language_model True\n"}, "train.sh")
    assert part.level(f.trainable.method) is Level.UNREAD


@pytest.mark.parametrize(
    ("trainer", "options", "why"),
    [
        ("text_to_text.kto", _MODEL, "a KL pass over 64 samples"),
        ("text_to_text.multi_ppo", _ACTORS, "scorers and critics"),
        (
            "text_image_to_text.saferlhf",
            f"{_ACTORS} --cost_model_name_or_path o/c",
            "scorers and critics",
        ),
    ],
)
def test_what_is_not_counted_is_said(trainer: str, options: str, why: str) -> None:
    line = f"deepspeed --module align_anything.trainers.{trainer} {options}\n"
    run = run_of({"train.sh": line}, "train.sh")
    assert (run.framework, run.stray) == ("align-anything", ())
    assert why in why_unpredicted(forecast_of(run))


@pytest.mark.parametrize("trainer", ["text_to_image.dpo_diffusion", "janus.sft_gen"])
def test_other_models_are_open_and_said_so(trainer: str) -> None:
    run = run_of(
        {"train.sh": f"deepspeed --module align_anything.trainers.{trainer} {_MODEL}\n"}, "train.sh"
    )
    assert (run.framework, run.plan.model.dims) == ("align-anything", None)
    assert "writes pictures" in why_unpredicted(forecast_of(run))


def test_a_reward_model_elsewhere_takes_no_memory() -> None:
    objective = _run("ppo_remote_rm", _ACTORS).plan.objective
    assert (objective.kind, objective.critic, objective.reward_model) == ("ppo", "o/r", "none")
    unnamed = "--actor_model_name_or_path o/a"
    assert _run("ppo_remote_rm", unnamed).plan.objective.critic == "o/a"
    assert _run("ppo_vllm", _ACTORS).plan.objective.rollout.engine == "vllm_server"
