"""Recipes of TRL-like scripts: which file is one, and what the script makes of its keys."""

import pytest
from tests.linked import link, run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

SCRIPT = """\
from {home} import get_peft_config
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser

parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
script_args, training_args, model_args = parser.parse_args_and_config()
SFTTrainer(
    model=model_args.model_name_or_path,
    args=training_args,
    peft_config=get_peft_config(model_args),
).train()
"""
RECIPE = """\
model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
dataset_name: a/b
max_length: 1024
output_dir: out
per_device_train_batch_size: 1
"""
LINE = "accelerate launch --num_processes 8 sft.py --config sft.yaml\n"


def _run(home: str, more: str = ""):
    files = {"sft.py": SCRIPT.format(home=home), "sft.yaml": RECIPE + more, "a.sh": LINE}
    return run_of(files)


@pytest.mark.parametrize("home", ["trl", "alignment", "trl.trainer.utils"])
def test_the_keys_of_the_model_config_say_whether_there_is_an_adapter(home):
    full = _run(home)
    assert full.plan.trainable.method == "full"
    assert full.level(f.trainable.method) <= Level.DEFAULT
    lora = _run(home, "use_peft: true\nlora_r: 8\n")
    assert (lora.plan.trainable.method, lora.plan.trainable.r) == ("lora", 8)


@pytest.mark.parametrize(
    ("said", "method", "rank"),
    [("use_peft=True, lora_r=32", "lora", 32), ("use_peft=True", "lora", 16), ("", "full", None)],
)
def test_a_model_config_that_the_script_itself_makes_says_whether_there_is_an_adapter(
    said, method, rank
):
    script = f"""\
from trl import GRPOConfig, GRPOTrainer, ModelConfig, get_peft_config

told = ModelConfig(model_name_or_path="Qwen/Qwen2.5-1.5B-Instruct", {said})
GRPOTrainer(
    model=told.model_name_or_path,
    reward_funcs=[len],
    args=GRPOConfig(output_dir="out", beta=0.01),
    train_dataset=data,
    peft_config=get_peft_config(told),
).train()
"""
    run = run_of({"grpo.py": script})
    assert run.plan.trainable.method == method
    assert run.level(f.trainable.method) <= Level.DEFAULT
    assert run.plan.objective.ref_model == ("copy" if method == "full" else "shared_adapter_off")
    assert method == "full" or run.plan.trainable.r == rank


def test_pefts_own_function_of_that_name_always_makes_one():
    assert _run("peft").plan.trainable.method == "lora"


def test_the_config_of_a_launch_is_its_config_though_the_line_names_the_model():
    line = LINE.strip() + " --model_name_or_path Qwen/Qwen2.5-1.5B-Instruct\n"
    recipe = "gradient_checkpointing: true\nattn_implementation: flash_attention_2\nseed: 1\n"
    run = run_of({"sft.py": SCRIPT.format(home="trl"), "sft.yaml": recipe, "a.sh": line})
    assert run.plan.checkpointing.mode == "full"
    assert run.plan.model.attn_impl == "flash2"


def test_a_yaml_that_another_program_is_given_is_not():
    recipe = "gradient_checkpointing: true\nseed: 1\n"
    files = {"a.sh": "python serve.py --config app.yaml\n", "app.yaml": recipe}
    assert not link(files).runs


OWN_TRAINER = """\
import trl
from trl import ModelConfig, ScriptArguments, {parser}
from replay import ReplayTrainer

@dataclass
class ReplayConfig(trl.GRPOConfig):
    num_replays: int = 0

parser = {parser}((ScriptArguments, ReplayConfig, ModelConfig))
script_args, training_args, model_args = parser.{parse}()
ReplayTrainer(model=model_args.model_name_or_path, args=training_args).train()
"""
WHOLE_LINE = """\
accelerate launch --num_processes 4 src/train.py{config} --model_name_or_path Qwen/Qwen3-1.7B \\
  --output_dir out --per_device_train_batch_size 8 --learning_rate 1e-6 --num_train_epochs 3 \\
  --logging_steps 5 --max_prompt_length 512 --max_completion_length 1024 --num_generations 8
"""


def _with_own_trainer(parser: str, parse: str, config: str):
    return {
        "src/train.py": OWN_TRAINER.format(parser=parser, parse=parse),
        "a.sh": WHOLE_LINE.format(config=config),
        "configs/base.yaml": "gradient_checkpointing: true\nbf16: true\n",
    }


def test_a_script_whose_parser_is_trls_takes_the_yaml_whatever_it_is_called():
    """Nothing in the file tells, and the trainer is of the project's own: the parser's class does."""
    config = " --config configs/base.yaml"
    run = run_of(_with_own_trainer("TrlParser", "parse_args_and_config", config))
    assert run.plan.checkpointing.mode == "full"
    assert run.plan.objective.kind == "grpo"
    assert run.plan.seq.max_len == 1536


def test_what_counts_in_a_batch_of_a_trainer_of_the_projects_own_is_assumed():
    config = " --config configs/base.yaml"
    run = run_of(_with_own_trainer("TrlParser", "parse_args_and_config", config))
    assert run.level(f.objective.pairs_per_sample) is Level.ASSUMED


def test_a_command_line_alone_fills_trls_class_too():
    run = run_of(_with_own_trainer("HfArgumentParser", "parse_args_into_dataclasses", ""))
    assert (run.plan.objective.kind, run.plan.seq.max_len) == ("grpo", 1536)


def test_a_yaml_of_a_script_with_another_parser_is_not_trls():
    """``HfArgumentParser`` has no ``--config``: what the script does with it nobody here knows."""
    config = " --config configs/base.yaml"
    (run,) = link(_with_own_trainer("HfArgumentParser", "parse_args_into_dataclasses", config)).runs
    assert "configs/base.yaml" not in {claim.path for claim in run.claims}


def test_a_command_that_a_config_bears_out_is_one_run():
    """The line alone would do for a run of transformers' Trainer, without what the YAML says."""
    config = " --config configs/base.yaml"
    files = _with_own_trainer("TrlParser", "parse_args_and_config", config)
    files["configs/base.yaml"] += "model_name_or_path: Qwen/Qwen3-1.7B\ndataset_name: a/b\n"
    assert run_of(files).framework == "trl"


@pytest.mark.parametrize(
    ("sampler", "level"),
    [("class RepeatRandomSampler(Sampler): ...\n", Level.DEFAULT), ("", Level.ASSUMED)],
)
def test_the_sampler_of_the_projects_own_trainer_tells_what_a_batch_counts(sampler, level):
    """TRL's own trainer has had it since a batch counts completions."""
    files = _with_own_trainer("TrlParser", "parse_args_and_config", " --config configs/base.yaml")
    files["src/replay.py"] = f"{sampler}class ReplayTrainer(Trainer): ...\n"
    run = run_of(files)
    assert run.plan.objective.pairs_per_sample == 1
    assert (run.level(f.objective.pairs_per_sample) is Level.ASSUMED) == (level is Level.ASSUMED)


def test_a_recipe_that_limits_prompts_beside_samples_trains_on_pairs() -> None:
    recipe = (
        "model_name_or_path: Qwen/Qwen2.5-7B\nbf16: true\nmax_length: 2048\noutput_dir: out\n"
        "per_device_train_batch_size: 4\neta: 0.0075\nmax_prompt_length: 1800\n"
    )
    run = run_of({"own.yaml": recipe})
    assert run.plan.objective.kind == "cpo"
    assert run.level(f.objective.kind) is Level.ASSUMED
    assert run.plan.objective.pairs_per_sample == 2
    assert run.plan.objective.ref_model in (None, "none")
    alone = run_of({"own.yaml": recipe.replace("max_prompt_length: 1800\n", "")})
    assert alone.plan.objective.kind == "sft"


_ANY_CONFIG = """\
CONFIG=""
while [ $# -gt 0 ]; do
  case $1 in
    --config) CONFIG=$2; shift 2 ;;
    *) shift ;;
  esac
done
accelerate launch --config_file zero3.yaml --num_processes 8 sft.py --config "$CONFIG"
"""


@pytest.mark.parametrize(
    ("line", "backend"),
    [(_ANY_CONFIG, "zero"), (_ANY_CONFIG.replace('--config "$CONFIG"', ""), None)],
    ids=["any-config", "no-config"],
)
def test_a_line_that_starts_the_config_it_is_given_starts_those_below_it(line, backend):
    files = {
        "job/run.sh": line,
        "job/zero3.yaml": "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\n"
        "mixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n",
        "job/sft.py": "from trl import ModelConfig, SFTConfig, TrlParser\n"
        "parser = TrlParser((ModelConfig, SFTConfig))\n",
        "job/recipes/full.yaml": "model_name_or_path: meta-llama/Llama-2-7b-hf\n"
        "dataset_name: a/b\nlearning_rate: 1.0e-5\noutput_dir: out\nmax_length: 2048\n",
    }
    run = next(r for r in link(files).runs if r.name.startswith("job/recipes/full.yaml"))
    assert run.plan.parallel.backend == backend
    if backend is not None:
        assert run.level(f.parallel.backend) is Level.ASSUMED


def test_how_many_ranks_a_launcher_starts_hangs_on_no_guess_of_what_they_train():
    """A trainer of the project's own, of which nobody says what it optimises."""
    script = """\
from trl import ModelConfig, ScriptArguments, TrlParser
from own import OwnConfig, OwnTrainer

parser = TrlParser((ScriptArguments, OwnConfig, ModelConfig))
script_args, args, model_args = parser.parse_args_and_config()
OwnTrainer(model=model_args.model_name_or_path, args=args).train()
"""
    run = run_of(
        {
            "own.py": script,
            "conf.yaml": RECIPE,
            "a.sh": "CUDA_VISIBLE_DEVICES=0,1,2 accelerate launch --num_processes 4 own.py --config conf.yaml\n",
        }
    )
    assert run.level(f.objective.kind) is Level.ASSUMED
    assert run.plan.parallel.gpus_per_node == 4
    assert run.level(f.parallel.gpus_per_node) <= Level.DEFAULT
