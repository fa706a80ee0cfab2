"""Scripts that do not name their model where they load it: in the environment, another module, a config file."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

_SCRIPT = """\
import argparse, os, sys
from pathlib import Path
import torch, yaml
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
{above}
model = AutoModelForCausalLM.from_pretrained({model}, torch_dtype=torch.bfloat16)
how = TrainingArguments("out", per_device_train_batch_size=4, bf16=True)
Trainer(model=model, args=how, train_dataset=data).train()
"""
_QWEN, _LLAMA = "Qwen/Qwen2.5-7B", "meta-llama/Llama-2-7b-hf"


def _script(model: str, above: str = "") -> str:
    return _SCRIPT.format(model=model, above=above)


@pytest.mark.parametrize(
    ("line", "model", "level"),
    [
        ("python train.py", _QWEN, Level.ASSUMED),
        (f"export BASE={_LLAMA}\npython train.py", _LLAMA, Level.STATED),
        (f"BASE={_LLAMA} python train.py", _LLAMA, Level.STATED),
        ("export BASE=$1\npython train.py", None, Level.UNREAD),
    ],
)
def test_a_variable_of_the_environment_is_what_the_command_sets_or_its_default(
    line: str, model: str | None, level: Level
) -> None:
    text = _script("BASE", f'BASE = os.environ.get("BASE", "{_QWEN}")')
    run = run_of({"train.py": text, "run.sh": line})
    assert (run.plan.model.id, run.level(f.model.id)) == (model, level)


def test_of_two_options_the_first_counts_that_the_command_gives() -> None:
    above = (
        "p = argparse.ArgumentParser()\np.add_argument('--path')\n"
        f"p.add_argument('--name', default='{_QWEN}')\nargs = p.parse_args()"
    )
    text = _script("args.path or args.name", above)
    for said, model in (("", _QWEN), (f"--name {_LLAMA}", _LLAMA), (f"--path {_LLAMA}", _LLAMA)):
        run = run_of({"train.py": text, "run.sh": f"python train.py {said}\n"})
        assert run.plan.model.id == model


def test_modules_are_found_in_the_folders_that_the_script_adds() -> None:
    above = 'sys.path.insert(0, str(Path(__file__).parent / "conf"))\nfrom settings import BASE'
    files = {
        "conf/settings.py": f'BASE = "{_QWEN}"\n',
        "settings.py": f'BASE = "{_LLAMA}"\n',
        "train.py": _script("BASE", above),
    }
    assert run_of(files).plan.model.id == _QWEN
    files["train.py"] = files["train.py"].replace("insert(0, ", "append(")
    assert run_of(files).plan.model.id == _LLAMA


_IN_A_BRANCH = """\
CONFIG = {}
if os.path.exists("c.yaml"):
    with open("c.yaml") as file:
        CONFIG = yaml.safe_load(file)"""
_IN_A_FUNCTION = """\
def load(path):
    if not path.exists():
        return {}
    return yaml.safe_load(path.read_text())
CONFIG = load(Path("c.yaml"))"""


@pytest.mark.parametrize("above", [_IN_A_BRANCH, _IN_A_FUNCTION])
def test_nothing_is_what_a_script_takes_where_there_is_no_file(above: str) -> None:
    text = _script('CONFIG.get("model", "gpt2")', above)
    assert run_of({"train.py": text, "c.yaml": f"model: {_QWEN}\n"}).plan.model.id == _QWEN


def test_a_branch_that_a_config_file_decides_is_none() -> None:
    text = _script('CONFIG["model"]', 'CONFIG = yaml.safe_load(open("c.yaml"))').replace(
        "how =", 'if CONFIG["lora"]:\n    model = get_peft_model(model, LoraConfig(r=8))\nhow ='
    )
    for said, method in (("true", "lora"), ("false", "full")):
        run = run_of({"train.py": text, "c.yaml": f"model: {_QWEN}\nlora: {said}\n"})
        assert (run.plan.trainable.method, run.level(f.trainable.method)) != (None, Level.UNREAD)
        assert run.plan.trainable.method == method


_UNFOLLOWED = """\
p = argparse.ArgumentParser()
p.add_argument("--config", default="c.yaml")
p.add_argument("--model_name", default="{default}")
args = p.parse_args()
settings = Settings.load(args.config, args.model_name)"""


@pytest.mark.parametrize(
    ("line", "config", "model"),
    [
        ("python train.py", f"model: {{base_model: {_QWEN}}}", _QWEN),
        ("python train.py", f"teacher_model: {_QWEN}", _LLAMA),
        ("python train.py --config d.yaml", f"model: {_QWEN}", "Qwen/Qwen3-4B"),
        ("python train.py --model_name Qwen/Qwen3-8B", f"model: {_QWEN}", "Qwen/Qwen3-8B"),
        ("python train.py --model_name $1", f"model: {_QWEN}", None),
        ("python train.py", f"model: {_QWEN}\nbase_model: {_LLAMA}", None),
    ],
)
def test_what_a_project_calls_its_model_is_taken_for_it_where_the_way_is_not_followed(
    line: str, config: str, model: str | None
) -> None:
    text = _script("settings.choose()", _UNFOLLOWED.format(default=_LLAMA))
    files = {"train.py": text, "c.yaml": config, "d.yaml": "model: {name: Qwen/Qwen3-4B}"}
    run = run_of({**files, "run.sh": f"{line}\n"})
    assert run.plan.model.id == model
    assert run.level(f.model.id) is (Level.UNREAD if model is None else Level.ASSUMED)


@pytest.mark.parametrize(
    "above",
    [
        f'BASE_MODEL = "{_QWEN}"',
        f'CONFIG = {{"model_name": "{_QWEN}", "embed_model": "gpt2"}}',
        f'def load(model_name="{_QWEN}"):\n    return model_name',
        f'class Settings:\n    model_id: str = "{_QWEN}"',
        f'args = argparse.Namespace(model="{_QWEN}", reward_model="gpt2")',
    ],
)
def test_what_the_script_itself_calls_so_is_taken_too(above: str) -> None:
    run = run_of({"train.py": _script("choose()", above)})
    assert (run.plan.model.id, run.level(f.model.id)) == (_QWEN, Level.ASSUMED)


def test_a_model_that_is_followed_is_not_what_else_is_called_so() -> None:
    text = _script(f'"{_QWEN}"', _UNFOLLOWED.format(default=_LLAMA))
    run = run_of({"train.py": text, "c.yaml": "model: gpt2"})
    assert (run.plan.model.id, run.level(f.model.id)) == (_QWEN, Level.STATED)


@pytest.mark.parametrize(
    ("loader", "is_ours"),
    [
        ("AutoModelForImageClassification", False),
        ("WhisperForConditionalGeneration", False),
        ("AutoModelForImageTextToText", True),
        ("Qwen2AudioForConditionalGeneration", True),
        ("AutoModelForSequenceClassification", True),
    ],
)
def test_of_models_of_images_and_sound_nothing_is_predicted(loader: str, is_ours: bool) -> None:
    text = _script('"org/base"').replace("AutoModelForCausalLM", loader)
    files = {"train.py": text, "run.sh": "torchrun --nproc_per_node 4 train.py\n"}
    assert run_of(files).is_fragment is not is_ours


@pytest.mark.parametrize(
    ("above", "length"),
    [
        ("from settings import MAX_SEQ_LENGTH\ndata = Data(MAX_SEQ_LENGTH)", 256),
        ("MAX_LEN = 512\ndata = Data(MAX_LEN)", 512),
        ("from settings import MAX_SEQ_LENGTH\nMAX_LEN = 512\nData(MAX_LEN, MAX_SEQ_LENGTH)", None),
        # What nothing reads cuts nothing.
        ("MAX_LEN = 512", None),
    ],
)
def test_what_a_script_calls_the_length_of_samples_is_assumed(
    above: str, length: int | None
) -> None:
    files = {"settings.py": "MAX_SEQ_LENGTH = 256\n", "train.py": _script(f'"{_QWEN}"', above)}
    run = run_of(files, "train.py")
    assert run.plan.seq.max_len == length
    assert length is None or run.level(f.seq.max_len) is Level.ASSUMED


def test_what_is_unpacked_unseen_into_the_loader_may_say_how_it_loads() -> None:
    text = _script(f'"{_QWEN}", **settings()')
    run = run_of({"train.py": text, "run.sh": "python train.py"}, hardware="4xA100-80GB")
    assert run.level(f.load.device_map) is Level.UNREAD
    assert run.level(f.load.dtype) is Level.STATED
