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
