"""TRL YAML and command lines: what they mean together, and what a fix writes where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fixing import fixed, fixed_files
from tests.linked import link, report_of, run_of

from oomlint.dialects import registry
from oomlint.dialects.common.fields import shared
from oomlint.dialects.trl.releases import CHUNKS_LOSS, FUSES_HEAD
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.judgement.evidence import assumed_otherwise
from oomlint.linting.rule import Severity
from oomlint.memory.facts import Facts
from oomlint.memory.logits import logits_of
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_SFT = """\
model_name_or_path: Qwen/Qwen2.5-7B
dataset_name: trl-lib/Capybara
learning_rate: 2.0e-5
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
output_dir: out
"""
_ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  zero3_init_flag: true
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""


def _runs(files: dict[str, str]) -> list[Run]:
    return link(files).runs


def _run(files: dict[str, str] | str) -> Run:
    (run,) = _runs({"c.yaml": files} if isinstance(files, str) else files)
    return run


def test_defaults_are_those_of_trl_and_not_of_transformers() -> None:
    run = _run(_SFT)
    plan = run.plan
    assert run.framework == "trl"
    assert plan.objective.kind == "sft"
    assert (plan.load.dtype, plan.precision.param, plan.precision.compute) == (
        "fp32",
        "fp32",
        "bf16",
    )
    assert plan.checkpointing.mode == "full"
    assert (plan.seq.max_len, plan.seq.packing, plan.seq.pad) == (1024, "none", "longest")
    assert (plan.loss.logits_materialised, plan.loss.algorithm) == ("fused", "kernel_tiles")
    assert (plan.loss.words, plan.loss.tile_tokens, plan.loss.chunks) == (32768, 4096, None)
    assert plan.parallel.world is None
    assert run.open[CHUNKS_LOSS]
    assert run.open[FUSES_HEAD]


def test_before_the_head_was_fused_the_loss_came_in_chunks() -> None:
    run = _run({"c.yaml": _SFT, "requirements.txt": "trl==1.14.2\n"})
    assert (run.plan.loss.logits_materialised, run.plan.loss.chunks) == ("chunked", 16)
    (older,) = [other for changes, other in _run(_SFT).alternatives if changes[0] is FUSES_HEAD]
    assert older.plan.loss == run.plan.loss


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"environment.yml": "dependencies:\n  - python=3.10\n  - pip\n"}, "chunked"),
        ({"environment.yml": "dependencies:\n  - python=3.11\n  - pip\n"}, "fused"),
        ({"README.md": "conda create -n llm python=3.10 -y\n"}, "chunked"),
        ({"Dockerfile": "FROM python:3.10-slim\n"}, "chunked"),
        ({"pyproject.toml": "[project]\nrequires-python = '>=3.9,<3.11'\n"}, "chunked"),
        ({"pyproject.toml": "[project]\nrequires-python = '>=3.9'\n"}, "fused"),
        ({"requirements.txt": "transformers==4.56.1\n"}, "full"),
        ({"requirements.txt": "transformers==4.56.2\n"}, "fused"),
        ({"requirements.txt": "transformers==4.46.3\ntrl==1.15.0\n"}, "fused"),
        ({"requirements.txt": "accelerate==1.3.0\n"}, "full"),
    ],
)
def test_an_installation_has_the_newest_release_that_takes_the_rest(
    files: dict[str, str], kind: str
) -> None:
    assert _run({"c.yaml": _SFT, **files}).plan.loss.logits_materialised == kind


def test_a_key_that_went_gives_the_release_away() -> None:
    run = _run(_SFT + "use_liger_loss: true\n")
    assert run.plan.loss.logits_materialised == "full"
    assert FUSES_HEAD not in run.open


def test_liger_is_no_way_out_where_the_head_is_fused() -> None:
    wish = {"loss.logits_materialised": "fused"}
    run = _run({"c.yaml": _SFT, "requirements.txt": "trl==1.14.2\n"}).what_if(wish)
    assert run.plan.loss.liger.flce
    smoothed = _run(_SFT + "label_smoothing_factor: 0.1\n")
    with pytest.raises(CannotEdit, match="tile by tile"):
        smoothed.what_if(wish)


@pytest.mark.parametrize(
    ("objective", "kind"), [("SFT", "full"), ("DPO", "full"), ("KTO", "fused")]
)
def test_a_loss_of_the_scripts_own_takes_its_logits_beside_a_fused_head(
    objective: str, kind: str
) -> None:
    own = """
class Own(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, **more):
        logits = model(**inputs).logits
        return cross_entropy(logits, inputs["labels"])
""".replace("SFT", objective)
    script = f"""\
from trl import {objective}Config, {objective}Trainer
{own if kind == "full" else ""}
args = {objective}Config(output_dir="out", per_device_train_batch_size=4, max_length=512)
trainer = {"Own" if kind == "full" else objective + "Trainer"}(
    model="Qwen/Qwen2.5-0.5B-Instruct", args=args, train_dataset=data
)
trainer.train()
"""
    assert _run({"train.py": script}).plan.loss.logits_materialised == kind


def test_a_smoothed_loss_takes_logits_beside_a_fused_head() -> None:
    plan = _run(_SFT + "label_smoothing_factor: 0.1\n").plan
    assert (plan.loss.logits_materialised, plan.loss.algorithm) == ("full", None)


def test_beside_a_fused_head_liger_leaves_the_loss_alone() -> None:
    plan = _run(_SFT + "use_liger_kernel: true\n").plan
    assert (plan.loss.liger.flce, plan.loss.liger.rms, plan.loss.algorithm) == (
        False,
        True,
        "kernel_tiles",
    )


def test_the_keys_of_older_versions_bring_their_defaults() -> None:
    plan = _run(_SFT + "max_seq_length: 2048\n").plan
    assert plan.seq.max_len == 2048
    assert plan.checkpointing.mode == "none"
    assert plan.loss.logits_materialised == "full"


def test_a_wish_leaves_the_release_as_the_keys_tell_it() -> None:
    run = _run(_SFT + "max_seq_length: 2048\n").what_if({"seq.max_len": 512})
    assert (run.plan.seq.max_len, run.plan.checkpointing.mode) == (512, "none")


def test_adapters_that_are_asked_for_have_the_ranks_of_its_config() -> None:
    trainable = _run(_SFT).assuming({"trainable.method": "lora"}).plan.trainable
    assert (trainable.r, trainable.alpha, trainable.dropout) == (16, 32, 0.05)


def test_qlora_trains_bf16_adapters() -> None:
    plan = _run(_SFT + "use_peft: true\nload_in_4bit: true\nlora_target_modules: all-linear\n").plan
    assert (plan.trainable.method, plan.trainable.r, plan.trainable.targets) == (
        "qlora", 16, "all_linear",
    )  # fmt: skip
    assert (plan.quant.method, plan.precision.param) == ("bnb4", "nf4")
    assert (plan.trainable.adapter_dtype, plan.precision.optim_state) == ("bf16", "bf16")
    assert plan.save.contents[0] == "adapter" if plan.save.contents else False


def test_adapter_keys_mean_nothing_without_use_peft() -> None:
    plan = _run(_SFT + "lora_r: 64\nlora_target_modules: [q_proj]\n").plan
    assert plan.trainable.method == "full"
    assert plan.trainable.r is None


@pytest.mark.parametrize(
    ("path", "extra", "kind", "pairs", "reference"),
    [
        ("recipes/z/dpo/config_full.yaml", "", "dpo", 2, "copy"),
        ("recipes/z/orpo/config_full.yaml", "beta: 0.1\n", "orpo", 2, "none"),
        ("c.yaml", "beta: 0.1\nuse_peft: true\n", "dpo", 2, "shared_adapter_off"),
        ("c.yaml", "precompute_ref_log_probs: true\n", "dpo", 2, "precomputed"),
        ("c.yaml", "desirable_weight: 1.0\n", "kto", None, "copy"),
        ("c.yaml", "num_generations: 4\nmax_completion_length: 256\n", "grpo", None, "none"),
        ("c.yaml", "reward_funcs: [accuracy]\nbeta: 0.04\n", "grpo", None, "copy"),
        ("c.yaml", "packing: true\n", "sft", None, "none"),
    ],
)
def test_tells_the_objective(
    path: str, extra: str, kind: str, pairs: int | None, reference: str
) -> None:
    plan = _run({path: _SFT + extra}).plan
    assert plan.objective.kind == kind
    assert plan.objective.pairs_per_sample == pairs
    assert plan.objective.ref_model == reference


@pytest.mark.parametrize(
    ("extra", "model", "is_read"),
    [
        ("reward_model_path: rewards/small.pt\n", None, False),
        ("reward_model_path: rewards/small.pt\nuse_reward_model: false\n", None, True),
        ("reward_model_name_or_path: org/reward-7b\n", "org/reward-7b", True),
    ],
)
def test_a_reward_model_that_grpo_has_no_key_for_is_the_scripts_own(
    extra: str, model: str | None, is_read: bool
) -> None:
    run = _run(_SFT + "reward_funcs: [accuracy]\nbeta: 0.04\n" + extra)
    assert run.plan.objective.kind == "grpo"
    assert run.plan.objective.reward_model == model
    assert (run.level(f.objective.reward_model) is not Level.UNREAD) is is_read


def test_ppo_has_that_key_for_a_reward_model() -> None:
    run = _run({"ppo/config.yaml": _SFT + "reward_model_path: org/reward-7b\n"})
    assert (run.plan.objective.kind, run.plan.objective.reward_model) == ("ppo", "org/reward-7b")


def test_simpo_has_no_reference() -> None:
    run = _run(_SFT + "gamma_beta_ratio: 0.5\nbeta: 2.0\npreprocessing_num_workers: 12\n")
    assert (run.plan.objective.kind, run.plan.objective.ref_model) == ("simpo", "none")
    assert (run.plan.objective.pairs_per_sample, run.plan.data.preprocess_workers) == (2, 12)
    assert not run.stray


def test_rollouts_count_completions() -> None:
    plan = _run(
        _SFT + "use_vllm: true\nvllm_mode: colocate\nmax_prompt_length: 256\n"
        "max_completion_length: 1024\nnum_generations: 8\n"
    ).plan
    rollout = plan.objective.rollout
    assert (rollout.engine, rollout.gpu_mem_util, rollout.n) == ("vllm_colocate", 0.3, 8)
    assert (plan.seq.max_len, plan.batch.micro_unit) == (1280, "completions")
    assert plan.loss.logits_materialised == "completion_only"


@pytest.mark.parametrize(
    ("script", "files", "completions"),
    [
        ("trl/scripts/grpo.py", {}, 4),
        ("grpo.py", {}, None),
        ("grpo.py", {"grpo.py": "from trl import GRPOTrainer\ntrainer_cls = Ours if x else GRPOTrainer\ntrainer_cls(args=a)\n"}, None),
        ("grpo.py", {"grpo.py": "from trl import GRPOTrainer\nm, a = load()\nGRPOTrainer(model=m, args=a)\n"}, 4),
    ],
    ids=["TRL's script", "no script here", "its own trainer", "TRL's trainer"],
)  # fmt: skip
def test_only_trls_trainer_surely_counts_completions(
    script: str, files: dict[str, str], completions: int | None
) -> None:
    line = (
        f"torchrun --nproc_per_node 4 {script} --model_name_or_path Qwen/Qwen2.5-3B --output_dir o"
        " --per_device_train_batch_size 1 --gradient_accumulation_steps 1 --num_generations 8\n"
    )
    run = _run({"run.sh": line, **files})
    assert run.plan.objective.rollout.generation_batch == completions


def test_a_trainer_of_its_own_may_count_prompts() -> None:
    line = (
        "torchrun --nproc_per_node 8 grpo.py --model_name_or_path Qwen/Qwen2.5-3B --output_dir o"
        " --per_device_train_batch_size 1 --num_generations 4 --bf16\n"
    )
    run = _run({"run.sh": line})
    assert run.plan.objective.pairs_per_sample == 1
    assert run.level(f.objective.pairs_per_sample) is Level.ASSUMED
    told = [words for choices in assumed_otherwise(run.placed) for words, _ in choices]
    assert any(words.endswith("is 4") for words in told)


def test_a_launch_line_joins_yaml_and_accelerate_config() -> None:
    files = {
        "acc.yaml": _ACCELERATE,
        "c.yaml": _SFT,
        "run.sh": "accelerate launch --config_file acc.yaml --num_processes 4 scripts/dpo.py "
        "--config c.yaml --per_device_train_batch_size 1\n",
    }
    run = _run(files)
    plan = run.plan
    assert set(run.files) == {"c.yaml", "run.sh", "acc.yaml"}
    assert plan.objective.kind == "dpo"
    assert (plan.batch.micro, plan.batch.grad_accum) == (1, 2)
    assert (plan.parallel.world, plan.parallel.zero.stage) == (4, 3)
    assert (plan.precision.param, plan.precision.master) == ("bf16", "fp32")
    changed = fixed_files(_run, files, {"batch.grad_accum": 4, "batch.micro": 2})
    assert "gradient_accumulation_steps: 4" in changed["c.yaml"]
    assert changed["run.sh"].endswith("--per_device_train_batch_size 2\n")


_OWN_SCRIPT = """\
from dataclasses import dataclass, field
from trl import SFTConfig, SFTTrainer
@dataclass
class Arguments:
    model_name_or_path: str = field(default=None)
    max_length: int = field(default=512)
args, training_args = H4ArgumentParser((Arguments, SFTConfig)).parse()
model = args.model_name_or_path
trainer = SFTTrainer(model=model, args=training_args, train_dataset=d, packing=True)
"""


def test_a_yaml_says_over_the_defaults_of_the_script_that_reads_it() -> None:
    line = "accelerate launch --num_processes 4 scripts/run_sft.py c.yaml\n"
    config = _SFT + "max_length: 2048\npacking: false\n"
    run = _run({"run.sh": line, "c.yaml": config, "scripts/run_sft.py": _OWN_SCRIPT})
    assert (run.plan.model.id, run.plan.seq.max_len) == ("Qwen/Qwen2.5-7B", 2048)
    assert run.plan.seq.packing == "bfd"  # the trainer's own call says so


_DPO = """\
from trl import DPOConfig, ModelConfig, TrlParser
from ours import Arguments, train
train(*TrlParser((Arguments, DPOConfig, ModelConfig)).parse_args_into_dataclasses())
"""
_VISION = (
    "accelerate launch --num_processes 8 {script} --model_name_or_path Qwen/Qwen2.5-7B-Instruct "
    "--output_dir out --per_device_train_batch_size 1 --max_length 2048 {option}\n"
)


@pytest.mark.parametrize(
    ("script", "option", "is_unread"),
    [
        ("src/dpo_vision.py", "--freeze_llm True", True),
        ("src/dpo_vision.py", "--freeze_llm False", False),
        ("src/dpo_vision.py", "--use_peft True --freeze_llm True", False),
        ("src/dpo_vision.py", "--use_peft False --freeze_llm True", True),
        # TRL's own script stops there.
        ("trl/scripts/dpo.py", "--freeze_llm True", False),
    ],
)
def test_options_of_a_script_of_the_projects_own_are_not_followed(
    script: str, option: str, is_unread: bool
) -> None:
    run = _run({"run.sh": _VISION.format(script=script, option=option), script: _DPO})
    assert (run.level(f.trainable.method) is Level.UNREAD) is is_unread


def test_trl_commands_and_the_configs_that_trl_ships() -> None:
    run = _run(
        {"run.sh": "trl sft --model_name_or_path m --dataset_name d --accelerate_config zero2\n"}
    )
    assert (run.plan.parallel.zero.stage, run.plan.parallel.world) == (2, 8)
    run = _run(
        {
            "run.sh": "trl grpo --model_name_or_path m --num_processes 2 --no_gradient_checkpointing\n"
        }
    )
    assert run.plan.objective.kind == "grpo"
    assert (run.plan.parallel.world, run.plan.parallel.backend) == (2, "ddp")
    assert run.plan.checkpointing.mode == "none"
    assert run.stray == ()


def test_a_missing_yaml_is_reported() -> None:
    run = _run({"run.sh": "accelerate launch sft.py --config gone.yaml\n"})
    assert [m.reference for m in run.missing] == ["gone.yaml"]


def test_one_process_with_a_string_for_a_model_spreads_layers() -> None:
    files = {"c.yaml": _SFT, "run.sh": "CUDA_VISIBLE_DEVICES=0,1 trl sft --config c.yaml\n"}
    plan = _run(
        {**files, "run.sh": "CUDA_VISIBLE_DEVICES=0,1 python sft.py --config c.yaml\n"}
    ).plan
    assert (plan.parallel.backend, plan.load.device_map, plan.parallel.dp) == (
        "device_map_pp", "auto", 1,
    )  # fmt: skip
    # The command of TRL goes through `accelerate launch`, which starts a process for each GPU.
    plan = _run(files).plan
    assert (plan.parallel.backend, plan.load.device_map, plan.parallel.dp) == ("ddp", "none", 2)


@pytest.mark.parametrize(
    ("release", "launcher", "placed"),
    [
        ("0.28.0", "torchrun --nproc_per_node 2", "none"),
        ("0.24.0", "torchrun --nproc_per_node 2", "auto"),
        ("0.28.0", "python", "auto"),
    ],
)
def test_a_map_of_model_init_kwargs_gives_way_to_ranks(
    release: str, launcher: str, placed: str
) -> None:
    files = {
        "train.py": "from trl import GRPOConfig, GRPOTrainer\n"
        "args = GRPOConfig(output_dir='out', model_init_kwargs={'device_map': 'auto', 'dtype': 'bfloat16'})\n"
        "GRPOTrainer(model='Qwen/Qwen2.5-7B', args=args, reward_funcs=[f], train_dataset=d).train()\n",
        "run.sh": f"{launcher} train.py\n",
        "requirements.txt": f"trl=={release}\n",
    }
    assert _run(files).plan.load.device_map == placed


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"batch.micro": 2, "batch.grad_accum": 4}, "per_device_train_batch_size: 2"),
        ({"checkpointing.offload": "cpu"}, "activation_offloading: true"),
        ({"optimizer.kind": "paged_adamw8bit"}, "optim: paged_adamw_8bit"),
        ({"quant.method": "bnb4"}, "load_in_4bit: true"),
        ({"trainable.method": "lora"}, "use_peft: true"),
        ({"model.attn_impl": "flash2"}, "attn_implementation: flash_attention_2"),
        ({"save.save_only_model": True}, "save_only_model: true"),
        ({"seq.max_len": 512}, "max_length: 512"),
        ({"load.dtype": "bf16"}, "dtype: bfloat16"),
        ({"data.workers": 2}, "dataloader_num_workers: 2"),
        ({"batch.eval_micro": 1}, "per_device_eval_batch_size: 1"),
        ({"save.every": 1000}, "save_steps: 1000"),
    ],
)
def test_fixes_speak_trl(changes: dict[str, Any], line: str) -> None:
    text = fixed(_run, _SFT, changes)
    assert line in text.splitlines()
    plan = _run(text).plan
    for field, value in changes.items():
        if field == "trainable.method":
            continue
        assert plan.get(field) == value


def test_wishes_without_a_key_are_refused() -> None:
    run = _run(_SFT)
    for wish in (
        {"parallel.zero.stage": 3},
        {"offload.optimizer": "cpu"},
        {"parallel.fsdp.state_dict": "sharded"},
        {"quant.method": "gptq"},
    ):
        with pytest.raises(CannotEdit):
            run.what_if(wish)


@pytest.mark.parametrize(
    "extra",
    [
        "stage: sft\n",
        "lora_rank: 8\n",
        "cutoff_len: 1024\n",
        "train_type: lora\n",
        "base_model: x\n",
    ],
)
def test_configs_of_others_are_left_alone(extra: str) -> None:
    runs = _runs({"c.yaml": _SFT + extra})
    assert all(run.framework != "trl" for run in runs)


def test_misspelt_keys_are_found() -> None:
    run = _run(_SFT + "gradient_checkpoint: false\n")
    assert [(s.path, s.nearest[0]) for s in run.stray] == [
        ("gradient_checkpoint", "gradient_checkpointing")
    ]


_CORPUS = Path(__file__).parents[2] / "../shared/corpus"


@pytest.mark.slow
@pytest.mark.skipif(not _CORPUS.is_dir(), reason="the corpus of framework configs is not here")
def test_recognises_the_corpus() -> None:
    workspace = Workspace(_CORPUS.resolve())
    names = [str(p.relative_to(_CORPUS)) for p in sorted(_CORPUS.rglob("*.y*ml"))]
    linked = Linker(workspace, registry(), LinkOptions()).link(names)
    ours = {run.name.split(" ")[0] for run in linked.runs if run.framework == "trl"}
    expected = {
        name
        for name in names
        if name.startswith("alignment-handbook/recipes/") and "accelerate_configs" not in name
    }
    expected.add("trl/examples/cli_configs/example_config.yaml")
    assert ours == expected
    kinds = {run.name: run.plan.objective.kind for run in linked.runs if run.framework == "trl"}
    for name, kind in kinds.items():
        folder = {"sft", "dpo", "orpo"} & set(name.split("/"))
        assert not folder or kind in folder


@pytest.mark.parametrize(
    ("trainer", "kind", "pairs"),
    [("RewardTrainer", "rm", 2), ("trl.DPOTrainer", "dpo", 2), ("SFTTrainer", "sft", None)],
)
def test_the_trainer_that_a_script_makes_says_what_it_optimises(
    trainer: str, kind: str, pairs: int | None
) -> None:
    """Where its arguments come from the command line, and its name speaks of nothing."""
    script = (
        "import trl\nfrom transformers import HfArgumentParser\n"
        "from trl import RewardConfig, RewardTrainer, SFTTrainer\n"
        "args, = HfArgumentParser(RewardConfig).parse_args_into_dataclasses()\n"
        f"{trainer}(model=m, args=args, train_dataset=d).train()\n"
    )
    line = (
        "python pairwise_model.py --model_name_or_path Qwen/Qwen2.5-0.5B --output_dir out"
        " --per_device_train_batch_size 4 --learning_rate 1e-5 --num_train_epochs 1 --bf16\n"
    )
    run = next(r for r in _runs({"run.sh": line, "pairwise_model.py": script}) if "run" in r.name)
    assert run.framework == "trl"
    assert (run.plan.objective.kind, run.plan.objective.pairs_per_sample) == (kind, pairs)


_OWN_TRAINER = (
    "from trl import GRPOConfig, SFTConfig\nfrom own_trainer import RankingTrainer\n"
    "args = {config}(output_dir='o', per_device_train_batch_size=8, max_completion_length=32)\n"
    "RankingTrainer(model='Qwen/Qwen3-0.6B', args=args, train_dataset=d).train()\n"
)


@pytest.mark.parametrize(("config", "kind"), [("GRPOConfig", "grpo"), ("SFTConfig", "sft")])
def test_arguments_of_trls_tell_what_a_trainer_of_the_projects_own_optimises(
    config: str, kind: str
) -> None:
    run = _run({"rl.py": _OWN_TRAINER.format(config=config)})
    assert (run.framework, run.plan.objective.kind) == ("trl", kind)


def test_grpo_makes_logits_of_answers_alone() -> None:
    text = _OWN_TRAINER.format(config="GRPOConfig")
    short, long = (
        _run({"rl.py": text.replace("=32", f"={answer}, max_prompt_length={prompt}")})
        for answer, prompt in ((32, 992), (992, 32))
    )
    kept = [logits_of(Facts(run.plan), 1024).kept for run in (short, long)]
    assert kept[0] == pytest.approx(kept[1] * 33 / 993)


def test_generate_gathers_the_model_unless_it_is_told_not_to() -> None:
    config = f"{_SFT}num_generations: 4\nmax_completion_length: 256\n"
    launch = "accelerate launch --config_file a.yaml -m trl.scripts.grpo --config c.yaml\n"
    files = {"a.yaml": _ACCELERATE, "run.sh": launch}
    field = "objective.rollout.gathers"
    assert _run(files | {"c.yaml": config}).plan.get(field) is True
    told = f"{config}ds3_gather_for_generation: false\n"
    assert _run(files | {"c.yaml": told}).plan.get(field) is False
    with_engine = f"{config}use_vllm: true\n"
    assert _run(files | {"c.yaml": with_engine}).plan.get(field) is None


@pytest.mark.parametrize(
    ("more", "pinned", "parts"),
    [
        ("use_peft: true\n", "0.23.1", 1),
        ("", "0.23.1", None),
        ("", "0.15.2", 1),
    ],
)
def test_a_sharded_model_is_put_together_for_vllm(
    more: str, pinned: str, parts: int | None
) -> None:
    config = f"{_SFT}num_generations: 4\nmax_completion_length: 256\nuse_vllm: true\n{more}"
    plan = _run({"c.yaml": config, "requirements.txt": f"trl=={pinned}\n"}).plan
    assert plan.objective.rollout.sync_batches == parts


@pytest.mark.parametrize(("pinned", "in_parts"), [("0.24.0", False), ("0.25.1", True)])
def test_vllm_wakes_in_parts_from_trl_0_25_on(pinned: str, in_parts: bool) -> None:
    config = (
        f"{_SFT}num_generations: 4\nmax_completion_length: 256\nuse_vllm: true\n"
        "vllm_mode: colocate\nvllm_enable_sleep_mode: true\n"
    )
    plan = _run({"c.yaml": config, "requirements.txt": f"trl=={pinned}\n"}).plan
    assert plan.objective.rollout.wakes_in_parts is in_parts


@pytest.mark.parametrize(
    ("pinned", "together", "unit"), [("0.14.0", 4, None), ("0.15.2", None, "completions")]
)
def test_a_micro_batch_counted_prompts_before_trl_0_15(
    pinned: str, together: int | None, unit: str | None
) -> None:
    config = f"{_SFT}num_generations: 4\nmax_completion_length: 256\n"
    plan = _run({"c.yaml": config, "requirements.txt": f"trl=={pinned}\n"}).plan
    assert plan.objective.kind == "grpo"
    assert (plan.objective.pairs_per_sample, plan.batch.micro_unit) == (together, unit)


@pytest.mark.parametrize(("ranks", "together", "level"), [(3, 8, "default"), (8, 1, "assumed")])
def test_batches_that_trl_would_refuse_count_prompts(ranks: int, together: int, level: str) -> None:
    """Video-R1's and R1-V's own trainers: with three ranks no round of TRL's is whole groups of eight."""
    launch = (
        f"torchrun --nproc_per_node={ranks} src/open_r1/grpo.py --output_dir out"
        " --model_name_or_path Qwen/Qwen2-VL-2B-Instruct --dataset_name d --max_prompt_length 1024"
        " --per_device_train_batch_size 1 --gradient_accumulation_steps 1 --num_generations 8\n"
    )
    run = _run({"run.sh": launch})
    assert run.plan.objective.pairs_per_sample == together
    assert run.level("objective.pairs_per_sample").name.lower() == level
    words = [words for others in assumed_otherwise(run) for words, _ in others]
    assert any("number of answers trained on at once is 8" in each for each in words) is (
        level == "assumed"
    )


_OWN_LOOP = """\
import yaml
from accelerate import Accelerator

def main(path):
    config = yaml.safe_load(open(path))
    loader = build(config["per_device_batch_size"])
"""
_OWN_CONFIG = "learning_rate: 1e-4\nmax_length: 4096\nper_device_batch_size: 1\nbf16: true\n"
_OWN_LINE = "torchrun --nproc_per_node 2 -m own.sft_official --config configs/sft.yaml\n"


@pytest.mark.parametrize(
    ("imports", "runs"), [("", 0), ("from trl import SFTTrainer\n", 1)], ids=["own", "trl"]
)
def test_a_program_that_never_names_trl_is_none_of_its_scripts(imports: str, runs: int) -> None:
    files = {
        "run.sh": _OWN_LINE,
        "own/sft_official.py": imports + _OWN_LOOP,
        "configs/sft.yaml": _OWN_CONFIG,
    }
    assert len(link(files).runs) == runs


_OWN_CLASS = """\
import torch
from trl import ModelConfig, ScriptArguments, SFTConfig, {base}, TrlParser, get_peft_config

class Own{base}({base}):
    def log(self, logs):
        super().log(logs)

parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
script_args, training_args, model_config = parser.parse_args_and_config()
dtype = (
    model_config.{attribute}
    if model_config.{attribute} in ["auto", None]
    else getattr(torch, model_config.{attribute})
)
model = Qwen2ForCausalLM.from_pretrained(model_config.model_name_or_path, torch_dtype=dtype)
trainer = Own{base}(model=model, args=training_args, peft_config=get_peft_config(model_config))
trainer.train()
"""
_CLASS_LINE = (
    "torchrun --nproc_per_node 4 training/run.py --model_name_or_path Qwen/Qwen2.5-3B"
    " --output_dir o --per_device_train_batch_size 1 --learning_rate 1e-6"
    " --gradient_accumulation_steps 1 --logging_steps 1 --bf16 true{more}\n"
)


def _own_class(base: str = "SFTTrainer", attribute: str = "torch_dtype", more: str = "") -> Run:
    script = _OWN_CLASS.format(base=base, attribute=attribute)
    return _run({"run.sh": _CLASS_LINE.format(more=more), "training/run.py": script})


@pytest.mark.parametrize(("base", "kind"), [("SFTTrainer", "sft"), ("DPOTrainer", "dpo")])
def test_a_class_of_the_scripts_own_trains_what_trls_does(base: str, kind: str) -> None:
    run = _own_class(base)
    assert (run.framework, run.plan.objective.kind) == ("trl", kind)


@pytest.mark.parametrize(
    ("attribute", "more", "dtype", "level"),
    [
        ("torch_dtype", " --torch_dtype float16", "fp16", Level.STATED),
        ("torch_dtype", "", "bf16", Level.ASSUMED),  # as transformers has it: none is asked for
        ("dtype", "", "fp32", Level.DEFAULT),  # as ModelConfig has it, from TRL 0.27 on
    ],
)
def test_a_dtype_that_no_line_says_is_model_configs(
    attribute: str, more: str, dtype: str, level: Level
) -> None:
    run = _own_class(attribute=attribute, more=more)
    assert run.plan.load.dtype == dtype
    assert run.level(f.load.dtype) is level


def test_ppo_never_comes_to_the_trainers_data_parallel() -> None:
    """Its trainer has an Accelerator of its own: a lone process trains on the first card; nor are its
    completions compared in groups."""
    line = "CUDA_VISIBLE_DEVICES=0,1 python {0}.py --config c.yaml\n"
    files = {"c.yaml": _SFT, "run.sh": line.format("ppo"), "ppo.py": _OWN.format("PPO")}
    plan = _run(files).plan
    assert (plan.parallel.world, plan.objective.rollout.n) == (1, 1)
    assert plan.parallel.backend != "dp"
    files = {"c.yaml": _SFT, "run.sh": line.format("dpo"), "dpo.py": _OWN.format("DPO")}
    assert _run(files).plan.parallel.backend == "dp"


_OWN = """\
from transformers import AutoModelForCausalLM
from trl import {0}Config, {0}Trainer, TrlParser, ModelConfig
args, model_args = TrlParser(({0}Config, ModelConfig)).parse_args_and_config()
model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)
{0}Trainer(model=model, args=args).train()
"""


@pytest.mark.parametrize(
    ("release", "length", "strays"),
    [
        ("trl==0.15.2", 1024, ["max_length"]),
        ("trl==0.16.0", 4096, []),
        ("trl", 4096, []),
    ],
)
def test_a_release_of_sft_without_max_length_drops_it(
    release: str, length: int, strays: list[str]
) -> None:
    files = {"c.yaml": _SFT + "packing: true\nmax_length: 4096\n", "requirements.txt": release}
    run = run_of(files, "c.yaml")
    assert run.plan.seq.max_len == length
    assert [stray.path for stray in run.stray] == strays


@pytest.mark.parametrize(
    ("release", "packing"),
    [
        ("trl==0.18.2", "concat"),
        ("trl==0.19.0", "bfd"),
        ("trl", "bfd"),
        # Of which release a commit is, no file tells: what is said of its masks would be a guess.
        ("trl @ git+https://github.com/huggingface/trl.git@0123456789abcdef", "concat"),
    ],
)
def test_packed_samples_are_told_apart_from_a_release_on(release: str, packing: str) -> None:
    files = {"c.yaml": _SFT + "packing: true\nmax_length: 4096\n", "requirements.txt": release}
    assert _run(files).plan.seq.packing == packing


def test_the_older_name_counts_where_the_release_drops_the_newer() -> None:
    text = _SFT + "packing: true\nmax_length: 4096\nmax_seq_length: 2048\n"
    run = run_of({"c.yaml": text, "requirements.txt": "trl==0.15.2\n"}, "c.yaml")
    assert run.plan.seq.max_len == 2048
    with pytest.raises(CannotEdit, match="has no max_length"):
        run.what_if({f.seq.max_len: 512})


def test_other_objectives_have_had_max_length_before() -> None:
    files = {"c.yaml": _SFT + "precompute_ref_log_probs: true\nmax_length: 4096\n"}
    run = run_of({**files, "requirements.txt": "trl==0.15.2\n"}, "c.yaml")
    assert run.plan.seq.max_len == 4096
    assert not run.stray


_LOOP_OF_PPO = """\
from trl import AutoModelForCausalLMWithValueHead, PPOConfig, PPOTrainer

config = PPOConfig(
    model_name="meta-llama/Llama-2-7b-hf",
    batch_size=64,
    mini_batch_size=4,
    gradient_accumulation_steps=2,
)
model = AutoModelForCausalLMWithValueHead.from_pretrained(config.model_name)
trainer = PPOTrainer(config, model, None, tokenizer, dataset=data)
for batch in trainer.dataloader:
    answers = trainer.generate(batch["input_ids"], max_new_tokens=64)
    trainer.step(batch["input_ids"], answers, rewards(answers))
"""


_TODAYS_PPO = """\
from transformers import AutoModelForCausalLM
from trl import PPOConfig, PPOTrainer

config = PPOConfig(output_dir="o", per_device_train_batch_size=64, {more})
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
PPOTrainer(config, tokenizer, model, None, rewards, data, critic).train()
"""
_PARTS_OF_PPO = [
    (1, 1, 64),
    (1, 4, 16),
    (2, 4, 32),
    (8, 4, 64),
]


@pytest.mark.parametrize(("steps", "parts", "rows"), _PARTS_OF_PPO)
def test_ppo_learns_from_a_part_of_a_mini_batch_at_a_time(
    steps: int, parts: int, rows: int
) -> None:
    more = f"gradient_accumulation_steps={steps}, num_mini_batches={parts}"
    run = _run({"ppo.py": _TODAYS_PPO.format(more=more), "requirements.txt": "trl==0.20.0\n"})
    assert run.plan.batch.micro == rows


def test_no_smaller_micro_batch_is_written_beside_mini_batches() -> None:
    run = _run({"ppo.py": _TODAYS_PPO.format(more="num_mini_batches=4")})
    with pytest.raises(CannotEdit, match="num_mini_batches together"):
        run.what_if({"batch.micro": 8})


@pytest.mark.parametrize("pinned", ["trl==0.9.4\n", ""])
def test_ppo_in_a_loop_of_the_scripts_own(pinned: str) -> None:
    """Up to TRL 0.11 PPOConfig names the model, and how long samples are is the loop's affair."""
    run = _run({"ppo.py": _LOOP_OF_PPO, "requirements.txt": pinned})
    assert run.plan.model.id == "meta-llama/Llama-2-7b-hf"
    assert run.plan.batch.micro == 4
    assert run.cells.level(f.seq.max_len) is Level.UNREAD
    assert not [stray for stray in run.stray if stray.path == "model_name"]


@pytest.mark.parametrize("pinned", ["trl==0.12.0\n", "trl>=0.11.0\n"])
def test_ppo_of_today_has_no_such_keys(pinned: str) -> None:
    run = _run({"ppo.py": _LOOP_OF_PPO, "requirements.txt": pinned})
    assert run.cells.level(f.seq.max_len) is Level.ASSUMED
    assert "model_name" in {stray.path for stray in run.stray}


_COMPARES = """\
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
other = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
args = DPOConfig(output_dir="out", precompute_ref_log_probs={precomputes})
trainer = DPOTrainer({arguments}, train_dataset=data)
trainer.train()
"""


@pytest.mark.parametrize(
    ("arguments", "precomputes", "reference"),
    [
        ("model, other, args", True, "copy"),
        ("model, ref_model=other, args=args", True, "copy"),
        ("model, None, args", True, "precomputed"),
        ("model, args=args", True, "precomputed"),
        ("model, args=args", False, "copy"),
    ],
)
def test_a_reference_that_the_trainer_is_given_stays_in_memory(
    arguments: str, precomputes: bool, reference: str
) -> None:
    text = _COMPARES.format(arguments=arguments, precomputes=precomputes)
    run = run_of({"dpo.py": text})
    assert run.plan.objective.ref_model == reference
    if precomputes and reference == "copy":
        with pytest.raises(CannotEdit, match="stays in memory"):
            run.what_if({f.objective.ref_model: "precomputed"})


@pytest.mark.parametrize(
    ("release", "reference"),
    [("0.28.0", "precomputed"), ("0.29.0", "copy"), ("1.1.0", "copy"), ("1.2.0", "precomputed")],
)
def test_what_is_computed_beforehand_kept_its_reference_for_a_while(
    release: str, reference: str
) -> None:
    files = {
        "c.yaml": _SFT + "precompute_ref_log_probs: true\n",
        "requirements.txt": f"trl=={release}\n",
    }
    assert run_of(files, "c.yaml").plan.objective.ref_model == reference


def test_behind_a_recipe_words_with_an_equals_sign_are_options() -> None:
    files = {
        "recipe.yaml": "model_name_or_path: Qwen/Qwen2.5-0.5B\nbeta: 0.1\nmax_length: 512\n"
        "output_dir: out\nper_device_train_batch_size: 8\nlearning_rate: 1.0e-6\n",
        "train.sh": "accelerate launch --num_processes 2 scripts/run_dpo.py recipe.yaml "
        "model_name_or_path=Qwen/Qwen2.5-7B per_device_train_batch_size=4 run_name=x\n",
    }
    (run,) = link(files).runs
    assert run.plan.model.id == "Qwen/Qwen2.5-7B"
    assert run.plan.batch.micro == 4
    assert run.plan.seq.max_len == 512
    files["train.sh"] = files["train.sh"].replace("recipe.yaml", "--config recipe.yaml")
    (run,) = link(files).runs
    assert run.plan.batch.micro == 8


def test_what_hooks_leave_on_the_gpu_depends_on_the_release() -> None:
    """trl 0.24.0 and 0.25.0 models/activation_offloading.py."""
    text = _SFT + "activation_offloading: true\n"
    for pinned, keeps in (("0.24.0", False), ("0.25.0", True)):
        offload = _run({"c.yaml": text, "requirements.txt": f"trl=={pinned}\n"}).plan.offload
        assert (offload.activations, offload.keeps_shared, offload.takes_loss) == (
            "cpu",
            keeps,
            True,
        )
    off = _run(_SFT).plan.offload
    assert (off.keeps_shared, off.takes_loss) == (None, None)


def test_checkpointing_asks_gradients_of_patches_since_transformers_5() -> None:
    text = _SFT.replace("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-VL-7B-Instruct")
    for pinned, asks in (("4.57.1", False), ("5.0.0", True)):
        plan = _run({"c.yaml": text, "requirements.txt": f"transformers=={pinned}\n"}).plan
        assert plan.checkpointing.input_grads is asks
    assert _run(_SFT).plan.checkpointing.input_grads is None


@pytest.mark.parametrize(
    ("pin", "why"),
    [
        ("trl>=0.27", "RLOOConfig of TRL 0.25.0 and later has no dataset_num_proc"),
        ("trl==0.24.0", ""),
        ("trl", ""),
    ],
)
def test_an_argument_that_the_release_has_no_more(pin: str, why: str) -> None:
    files = {
        "train.py": "from trl import RLOOConfig, RLOOTrainer\n"
        "args = RLOOConfig(output_dir='out')\n"
        "rows = rows.map(f, num_proc=args.dataset_num_proc)\n"
        "RLOOTrainer(model='Qwen/Qwen2.5-7B', args=args, reward_funcs=[f], train_dataset=rows).train()\n",
        "requirements.txt": f"{pin}\n",
    }
    refused = _run(files).settings.get(shared.refused)
    assert (refused.value if refused is not None else "") == why


@pytest.mark.parametrize(
    ("pin", "why"),
    [
        ("trl==0.8.0", "TRL up to 0.8 has no ORPOConfig"),
        ("trl==0.8.6", ""),
        ("trl==0.9.2", ""),
    ],
)
def test_what_came_with_a_patch_between_two_that_were_read(pin: str, why: str) -> None:
    """ORPOTrainer came with 0.8.2, and 0.8.0 and 0.9.2 were read."""
    files = {
        "train.py": "from trl import ORPOConfig, ORPOTrainer\n"
        "args = ORPOConfig(output_dir='out')\n"
        "ORPOTrainer(model='Qwen/Qwen2.5-7B', args=args, train_dataset=rows).train()\n",
        "requirements.txt": f"{pin}\n",
    }
    refused = _run(files).settings.get(shared.refused)
    assert (refused.value if refused is not None else "") == why


def test_objectives_with_a_weight_for_each_epoch() -> None:
    """NashMDConfig and XPOConfig are made from OnlineDPOConfig, whose ``beta`` is a list."""
    files = {
        "train.py": "from trl import NashMDConfig, NashMDTrainer\n"
        "args = NashMDConfig(output_dir='out', beta=[0.1, 0.2])\n"
        "NashMDTrainer(model='Qwen/Qwen2.5-7B', args=args, train_dataset=rows, judge=judge).train()\n",
    }
    assert not _run(files).wrong


def test_the_class_that_trains_says_more_than_what_its_script_is_called() -> None:
    files = {
        "ppo_training.py": "from transformers import HfArgumentParser\n"
        "from trl import ModelConfig, RLOOConfig, RLOOTrainer\n"
        "args, model = HfArgumentParser((RLOOConfig, ModelConfig)).parse_args_into_dataclasses()\n"
        "RLOOTrainer(model=model.model_name_or_path, args=args, reward_funcs=[f], train_dataset=d).train()\n",
        "run.sh": "python ppo_training.py --model_name_or_path Qwen/Qwen2.5-7B --output_dir out\n",
    }
    (run,) = link(files, "run.sh").runs
    assert run.plan.objective.kind == "rloo"


_COLOCATED = """\
from trl import GRPOConfig, GRPOTrainer
args = GRPOConfig("out", use_vllm=True, vllm_mode="{mode}", per_device_train_batch_size=8)
GRPOTrainer(model="Qwen/Qwen2.5-7B-Instruct", args=args, reward_funcs=f, train_dataset=d).train()
"""


@pytest.mark.parametrize(
    ("command", "pin", "mode", "ends"),
    [
        ("python train.py", "==0.19.0", "colocate", True),
        ("python train.py", ">=0.18,<0.20", "colocate", True),
        ("python train.py", "==0.20.0", "colocate", False),
        ("python train.py", "", "colocate", False),
        ("python train.py", "==0.19.0", "server", False),
        ("torchrun --nproc_per_node 1 train.py", "==0.19.0", "colocate", False),
        ("accelerate launch train.py", "==0.19.0", "colocate", False),
        ("RANK=0 LOCAL_RANK=0 python train.py", "==0.19.0", "colocate", False),
    ],
)
def test_vllm_in_the_trainers_process_reads_ranks(
    command: str, pin: str, mode: str, ends: bool
) -> None:
    files = {
        "run.sh": f"{command}\n",
        "train.py": _COLOCATED.format(mode=mode),
        "requirements.txt": f"trl{pin}\n",
    }
    report = report_of(files, hardware="1xRTX-4090-24GB")
    told = {d.rule.code for d in report.diagnoses if d.severity > Severity.INFO}
    assert told == {"OOM905"} if ends else "OOM905" not in told


_PICTURES = _SFT.replace("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-VL-3B-Instruct") + "max_length: 4096\n"


@pytest.mark.parametrize(
    ("more", "is_unread"),
    [
        ({}, True),
        ({"requirements.txt": "trl==0.21.0\n"}, True),
        ({"requirements.txt": "trl==0.22.0\n"}, False),
        ({"run.sh": "trl sft --config c.yaml\n"}, False),
        ({"c.yaml": _PICTURES.replace("2.5-VL-3B-Instruct", "2.5-3B")}, False),
    ],
)
def test_a_program_that_no_file_names_puts_samples_with_pictures_together_itself(
    more: dict[str, str], is_unread: bool
) -> None:
    """TRL has a collator for them since 0.22."""
    (run,) = (run for run in _runs({"c.yaml": _PICTURES, **more}) if run.framework == "trl")
    assert (run.level(f.seq.max_len) is Level.UNREAD) is is_unread


_STEPS_ITSELF = """\
from peft import LoraConfig
from trl import AutoModelForCausalLMWithValueHead, PPOConfig, PPOTrainer
adapter = LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
model = AutoModelForCausalLMWithValueHead.from_pretrained("meta-llama/Llama-2-7b-hf"{adapter})
ppo_trainer = PPOTrainer(PPOConfig(batch_size=1, mini_batch_size=1), model, None, tokenizer)
for prompt in prompts:
    answer = ppo_trainer.generate(prompt, max_new_tokens=64)
    ppo_trainer.step([prompt], [answer], [reward(answer)])
"""


@pytest.mark.parametrize(
    ("given", "method", "rank"), [(", peft_config=adapter", "lora", 8), ("", "full", None)]
)
def test_a_trainer_that_is_asked_for_steps_trains_what_the_wrapper_adapts(
    given: str, method: str, rank: int | None
) -> None:
    files = {
        "rl.py": _STEPS_ITSELF.replace("{adapter}", given),
        "requirements.txt": "trl==0.11.4\n",
    }
    run = _run(files)
    assert run.settings.get(shared.stops) is None
    assert (run.plan.trainable.method, run.plan.trainable.r) == (method, rank)


_CLASSIFIES = """\
from transformers import AutoModelFor{task}, TrainingArguments
from trl import SFTTrainer
model = AutoModelFor{task}.from_pretrained("facebook/opt-350m")
args = TrainingArguments(output_dir="o", per_device_train_batch_size=8, eval_strategy="epoch")
SFTTrainer(model=model, args=args, train_dataset=data, eval_dataset=data, compute_metrics=score).train()
"""


@pytest.mark.parametrize(
    ("task", "kept", "logits"),
    [("SequenceClassification", False, "fused"), ("CausalLM", True, "full")],
)
def test_a_classifier_that_sfttrainer_trains_has_no_logits_of_words(
    task: str, kept: bool, logits: str
) -> None:
    files = {"train.py": _CLASSIFIES.format(task=task), "requirements.txt": "trl==0.9.4\n"}
    (run,) = link(files, "train.py").runs
    assert run.plan.eval.keeps_logits is kept
    assert run.plan.loss.logits_materialised == logits


@pytest.mark.parametrize(
    ("pinned", "algorithm"),
    [("1.5.1", "copied_rows"), ("1.6.0", "rows"), ("0.28.0", "rows"), ("1.15.0", "kernel_tiles")],
)
def test_dpo_copied_the_logits_that_it_cut(pinned: str, algorithm: str) -> None:
    script = """\
from trl import DPOConfig, DPOTrainer

args = DPOConfig(output_dir="out", per_device_train_batch_size=4, max_length=512)
trainer = DPOTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", args=args, train_dataset=data)
trainer.train()
"""
    plan = _run({"train.py": script, "requirements.txt": f"trl=={pinned}\n"}).plan
    assert plan.loss.algorithm == algorithm
