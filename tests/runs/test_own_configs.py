"""What a script takes from a config file that it loads itself is read there, and mended there."""

from __future__ import annotations

import json

import pytest
from tests.fixing import fixed
from tests.linked import link, report_of, run_of

from oomlint.linting.rule import Severity
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

HEAD = """\
import argparse, json, os, sys, yaml, torch
from pathlib import Path
from omegaconf import OmegaConf
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
"""
TRAIN = """\
model = AutoModelForCausalLM.from_pretrained(cfg["model"]["name"])
args = TrainingArguments(output_dir="out", per_device_train_batch_size=cfg["training"]["batch"])
Trainer(model=model, args=args, train_dataset=data).train()
"""
YAML = """\
model:
  name: Qwen/Qwen2.5-7B  # ours
training:
  batch: 4
lora: {use: true, r: 8, target: [q_proj, v_proj]}
"""


def _files(script: str, config: str = YAML, **more: str) -> dict[str, str]:
    files = {"train.py": HEAD + script, "configs/a.yaml": config}
    return files | {name.replace("__", "/").replace("_sh", ".sh"): t for name, t in more.items()}


def _run(script: str, config: str = YAML) -> Run:
    return run_of(_files(script, config), "train.py")


def _loads(text: str) -> str:
    return f"cfg = {text}\n{TRAIN}"


@pytest.mark.parametrize(
    "loaded",
    [
        'yaml.safe_load(open("configs/a.yaml"))',
        'yaml.load(open("configs/a.yaml"), Loader=yaml.FullLoader)',
        'yaml.safe_load(Path("configs/a.yaml").read_text())',
        'yaml.safe_load((Path(__file__).resolve().parent / "configs" / "a.yaml").open())',
        'yaml.safe_load(open(os.path.join(os.path.dirname(__file__), "configs", "a.yaml")))',
        'OmegaConf.load("configs/a.yaml")',
        'OmegaConf.to_container(OmegaConf.load("configs/a.yaml"), resolve=True)',
        'yaml.safe_load(open(sys.argv[1] if len(sys.argv) > 1 else "configs/a.yaml"))',
    ],
)
def test_a_file_is_followed_however_it_is_opened(loaded: str) -> None:
    run = _run(_loads(loaded))
    assert run.plan.model.id == "Qwen/Qwen2.5-7B"
    assert run.plan.batch.micro == 4
    assert run.level(f.batch.micro) is Level.STATED


def test_the_name_that_a_with_gives_a_file_is_that_of_its_own_block() -> None:
    other = 'with open("other.yaml") as file:\n    other = yaml.safe_load(file)\n'
    script = f'{other}with open("configs/a.yaml") as file:\n    cfg = yaml.safe_load(file)\n{TRAIN}'
    assert _run(script).plan.batch.micro == 4


def test_a_function_of_the_project_loads_it() -> None:
    script = f'from conf.load import read\ncfg = read("configs/a.yaml")\n{TRAIN}'
    reader = "import yaml\ndef read(path):\n    with open(path) as f:\n        return yaml.safe_load(f)\n"
    files = _files(script) | {"conf/load.py": reader}
    assert run_of(files, "train.py").plan.model.id == "Qwen/Qwen2.5-7B"


_KEEPS_A_DICT = """\
class Config:
    def __init__(self, data):
        self._data = data

    def __getattr__(self, key):
        value = {looked_up}
        return Config(value) if isinstance(value, dict) else value
"""
_IS_A_DICT = """\
class Config(dict):
    __getattr__ = dict.get
"""
_LOAD = """\

    @classmethod
    def load(cls, path):
        path = Path(path)
        if not path.is_absolute():
            path = ROOT / path
        with open(path) as file:
            return cls(yaml.safe_load(file))
"""
_BY_ATTRIBUTES = """\
def main(cfg):
    model = AutoModelForCausalLM.from_pretrained(cfg.model.name)
    args = TrainingArguments(output_dir="out", per_device_train_batch_size=cfg.training.batch)
    Trainer(model=model, args=args, train_dataset=data).train()
main({made})
"""
_HELD = {
    "_data": _KEEPS_A_DICT.format(looked_up="self._data[key]"),
    "get": _KEEPS_A_DICT.format(looked_up="self._data.get(key)"),
    "dict": _IS_A_DICT,
}


@pytest.mark.parametrize("holder", list(_HELD.values()), ids=list(_HELD))
@pytest.mark.parametrize(
    "made", ['Config(yaml.safe_load(open("configs/a.yaml")))', 'Config.load("configs/a.yaml")']
)
def test_a_class_of_the_project_s_gives_items_as_attributes(holder: str, made: str) -> None:
    script = holder + _LOAD + _BY_ATTRIBUTES.format(made=made)
    assert _run(script).plan.batch.micro == 4
    elsewhere = f"from settings import Config\n{_BY_ATTRIBUTES.format(made=made)}"
    files = _files(elsewhere) | {"settings.py": HEAD + holder + _LOAD}
    run = run_of(files, "train.py")
    assert (run.plan.model.id, run.plan.batch.micro) == ("Qwen/Qwen2.5-7B", 4)
    assert run.level(f.batch.micro) is Level.STATED


@pytest.mark.parametrize(
    "looked_up", ["compute(key)", "TABLE[key]", "self._data[PREFIX + key]", "other._data[key]"]
)
def test_an_object_that_makes_its_attributes_otherwise_is_not_followed(looked_up: str) -> None:
    holder = _KEEPS_A_DICT.format(looked_up=looked_up)
    made = 'Config(yaml.safe_load(open("configs/a.yaml")))'
    script = holder + _BY_ATTRIBUTES.format(made=made)
    assert _run(script).level(f.batch.micro) is Level.UNREAD


def test_a_value_stands_where_the_file_has_it() -> None:
    run = _run(_loads('yaml.safe_load(open("configs/a.yaml"))'))
    setting = run.settings[f.batch.micro]
    location = setting.origin.value_location
    assert location is not None
    assert location.path == "configs/a.yaml"
    assert YAML[location.span.start : location.span.end] == "4"
    assert setting.origin.key == "training.batch"


@pytest.mark.parametrize(("path", "sign"), [("configs/a.yaml", ": "), ("configs/a.json", ": ")])
def test_a_fix_goes_into_the_file(path: str, sign: str) -> None:
    text = (
        YAML
        if path.endswith("yaml")
        else json.dumps({"model": {"name": "Qwen/Qwen2.5-7B"}, "training": {"batch": 4}}, indent=2)
    )
    loader = "yaml.safe_load" if path.endswith("yaml") else "json.load"
    script = HEAD + _loads(f'{loader}(open("{path}"))')

    def read(config: str) -> Run:
        return run_of({"train.py": script, path: config}, "train.py")

    after = fixed(read, text, {f.batch.micro: 2})
    assert after == text.replace(
        f"batch{'' if sign in YAML and path.endswith('yaml') else chr(34)}: 4",
        f"batch{'' if path.endswith('yaml') else chr(34)}: 2",
    )


def test_a_section_that_is_unpacked_is_read_and_grows() -> None:
    script = HEAD + _loads('yaml.safe_load(open("configs/a.yaml"))').replace(
        'output_dir="out", per_device_train_batch_size=cfg["training"]["batch"]',
        '**cfg["training"]',
    )
    config = "model: {name: Qwen/Qwen2.5-7B}\ntraining:\n  output_dir: out\n  per_device_train_batch_size: 4\n"

    def read(text: str) -> Run:
        return run_of({"train.py": script, "configs/a.yaml": text}, "train.py")

    assert read(config).plan.batch.micro == 4
    after = fixed(read, config, {f.batch.micro: 2, f.batch.grad_accum: 2})
    assert after == config.replace("size: 4", "size: 2") + "  gradient_accumulation_steps: 2\n"


def test_get_gives_what_the_script_says_where_the_file_is_silent() -> None:
    script = _loads('yaml.safe_load(open("configs/a.yaml"))').replace(
        'cfg["training"]["batch"]', 'cfg.get("optim", {}).get("batch", 16)'
    )
    assert _run(script).plan.batch.micro == 16
    assert _run(script, YAML + "optim: {batch: 2}\n").plan.batch.micro == 2


def test_what_the_script_changes_is_not_read() -> None:
    loads = 'yaml.safe_load(open("configs/a.yaml"))\n'
    changed = _run(_loads(loads + 'cfg["training"]["batch"] = len(sys.argv)'))
    assert changed.plan.batch.micro is None
    assert f.batch.micro in changed.unreadable
    assert changed.plan.model.id == "Qwen/Qwen2.5-7B"
    renamed = _run(_loads(loads + 'part = cfg["training"]\npart.update(batch=len(sys.argv))'))
    assert renamed.plan.batch.micro is None
    same = _run(_loads(loads + 'cfg["training"]["batch"] = int(cfg["training"]["batch"])'))
    assert same.plan.batch.micro == 4


OPTION = """\
parser = argparse.ArgumentParser()
parser.add_argument("-c", "--config", {default})
parser.add_argument("--batch", type=int)
options = parser.parse_args()
"""


def test_an_option_that_nobody_gives_changes_nothing() -> None:
    script = OPTION.format(default='default="configs/a.yaml"') + _loads(
        "yaml.safe_load(open(options.config))\n"
        'if options.batch is not None:\n    cfg["training"]["batch"] = options.batch'
    )
    assert _run(script).plan.batch.micro == 4
    files = _files(script) | {"run.sh": "python train.py --batch 2\n"}
    assert run_of(files).plan.batch.micro is None


def test_each_launch_is_a_run_with_the_config_that_it_names() -> None:
    script = OPTION.format(default="required=True") + _loads("yaml.safe_load(open(options.config))")
    files = _files(script) | {
        "configs/b.yaml": YAML.replace("7B", "14B"),
        "run.sh": "python train.py --config configs/a.yaml\ncd configs\npython ../train.py -c b.yaml\n",
    }
    models = [run.plan.model.id for run in link(files).runs]
    assert models == ["Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-14B"]
    assert run_of(_files(script), "train.py").plan.model.id is None


def test_a_file_decides_on_branches() -> None:
    adapter = 'LoraConfig(r=cfg["lora"]["r"], target_modules=cfg["lora"]["target"])'
    script = _loads('yaml.safe_load(open("configs/a.yaml"))').replace(
        "args = ", f'if cfg["lora"]["use"]:\n    model = get_peft_model(model, {adapter})\nargs = '
    )
    assert _run(script).plan.trainable.method == "lora"
    assert _run(script, YAML.replace("true", "false")).plan.trainable.method == "full"
    choice = script.replace(
        '["name"])', '["name"], dtype=torch.bfloat16 if cfg["lora"]["use"] else torch.float32)'
    )
    assert _run(choice).plan.load.dtype == "bf16"
    assert _run(choice, YAML.replace("true", "false")).plan.load.dtype == "fp32"


@pytest.mark.parametrize(("use", "bits"), [("true", 4), ("false", None)])
def test_a_file_decides_which_of_its_values_a_name_has(use: str, bits: int | None) -> None:
    script = """\
from transformers import BitsAndBytesConfig
cfg = yaml.safe_load(open("configs/a.yaml"))
packed = None
if cfg["lora"]["use"]:
    packed = BitsAndBytesConfig(load_in_4bit=True)
model = AutoModelForCausalLM.from_pretrained(cfg["model"]["name"], quantization_config=packed)
size = 1
if os.cpu_count() > 8:
    size = 8
args = TrainingArguments(output_dir="out", per_device_train_batch_size=size)
Trainer(model=model, args=args, train_dataset=data).train()
"""
    run = _run(script, YAML.replace("use: true", f"use: {use}"))
    assert run.plan.quant.requested_bits == bits
    assert run.level(f.batch.micro) is Level.UNREAD


def test_no_dialect_takes_the_file_of_a_script_for_its_own() -> None:
    recipe = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: a\noutput_dir: out\nper_device_train_batch_size: 4\nuse_peft: true\n"
    script = (
        _loads('yaml.safe_load(open("configs/a.yaml"))')
        .replace('["model"]["name"]', '["model_name_or_path"]')
        .replace('["training"]["batch"]', '["per_device_train_batch_size"]')
    )
    assert len(link({"configs/a.yaml": recipe}).runs) == 1
    run = run_of(_files(script, recipe))
    assert run.name == "train.py"


def test_interpolations_are_those_of_omegaconf() -> None:
    config = YAML.replace("batch: 4", "batch: ${lora.r}")
    assert _run(_loads('OmegaConf.load("configs/a.yaml")'), config).plan.batch.micro == 8
    plain = _run(_loads('yaml.safe_load(open("configs/a.yaml"))'), config)
    assert plain.plan.batch.micro is None


def test_a_later_file_is_laid_over_an_earlier() -> None:
    script = _loads(
        'OmegaConf.merge(OmegaConf.load("base.yaml"), OmegaConf.load("configs/a.yaml"))'
    )
    files = _files(script, "training: {batch: 2}\n") | {"base.yaml": YAML}
    run = run_of(files, "train.py")
    assert (run.plan.model.id, run.plan.batch.micro) == ("Qwen/Qwen2.5-7B", 2)


def test_an_argument_that_has_another_name_now_is_wrong_in_the_call() -> None:
    script = _loads('yaml.safe_load(open("configs/a.yaml"))').replace(
        'output_dir="out"',
        'output_dir="out", evaluation_strategy=cfg.get("evaluation_strategy", "no")',
    )
    run = _run(script, YAML + "evaluation_strategy: steps\n")
    renamed = [stray for block, _ in run.parts.blocks for stray, _ in block.renamed()]
    assert [stray.location.path for stray in renamed] == ["train.py"]


FILLED = """\
from tools.fill import fill
cfg = yaml.safe_load(open("configs/a.yaml"))
fill(cfg, sys.argv[1])
"""
FILL = """\
import os

def fill(given, key):
    note(given["model"])
    {}

def note(section):
    section["seen"] = True
"""


@pytest.mark.parametrize(
    ("statement", "model"),
    [
        ('given["model"]["name"] = os.environ["MODEL"]', None),
        ('given["model"][key] = os.environ["MODEL"]', None),
        ('given["lora"]["r"] = 16', "Qwen/Qwen2.5-7B"),
    ],
)
def test_what_a_function_of_another_file_changes_is_not_read(
    statement: str, model: str | None
) -> None:
    files = _files(FILLED + TRAIN) | {"tools/fill.py": FILL.format(statement)}
    assert run_of(files, "train.py").plan.model.id == model


MADE = """\
def made():
    return AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")

model = made()
args = TrainingArguments(output_dir="out", per_device_train_batch_size=size())
Trainer(model=model, args=args, train_dataset=data).train()
"""


def test_a_function_is_followed_only_to_what_a_file_says() -> None:
    plain = run_of(_files(MADE + "\ndef size():\n    return 8\n"), "train.py")
    assert plain.plan.batch.micro is None
    asked = 'cfg = yaml.safe_load(open("configs/a.yaml"))\ndef size():\n    return cfg["training"]["batch"]\n'
    assert run_of(_files(asked + MADE), "train.py").plan.batch.micro == 4


@pytest.mark.parametrize(
    ("command", "model"),
    [
        ("--config $CONFIG", None),
        ("--config=configs/$NAME.yaml", None),
        ("--config ${CONFIG:-configs/a.yaml}", "Qwen/Qwen2.5-7B"),
        ("--seed $SEED", "Qwen/Qwen2.5-7B"),
    ],
)
@pytest.mark.parametrize("path", ["args.config", 'args.config or "configs/a.yaml"'])
def test_what_only_the_shell_knows_is_not_the_default(
    command: str, path: str, model: str | None
) -> None:
    script = (
        "parser = argparse.ArgumentParser()\n"
        'parser.add_argument("--config", default="configs/a.yaml")\n'
        'parser.add_argument("--seed", type=int, default=1)\n'
        "args = parser.parse_args()\n"
        f"cfg = yaml.safe_load(open({path}))\n{TRAIN.replace('args', 'how').replace('how=', 'args=')}"
    )
    files = _files(script, run_sh=f"python train.py {command}\n")
    assert run_of(files).plan.model.id == model


@pytest.mark.parametrize("word", ["$CONFIG", "configs/$NAME.yaml", '"$@"'])
def test_a_word_that_only_the_shell_knows_is_not_the_default(word: str) -> None:
    default = 'sys.argv[1] if len(sys.argv) > 1 else "configs/a.yaml"'
    files = _files(_loads(f"yaml.safe_load(open({default}))"), run_sh=f"python train.py {word}\n")
    assert run_of(files).plan.model.id is None


def test_omegaconf_changes_what_it_is_given() -> None:
    update = 'OmegaConf.update(cfg, "model.name", os.environ["MODEL"])\n'
    loads = 'cfg = OmegaConf.load("configs/a.yaml")\n'
    assert _run(loads + TRAIN).plan.model.id == "Qwen/Qwen2.5-7B"
    assert _run(loads + update + TRAIN).plan.model.id is None


def test_a_notebook_takes_its_values_from_the_file_too() -> None:
    helper = "import yaml\n\ndef load(name):\n    return yaml.safe_load(open('configs/' + name))\n"
    code = f"from own.settings import load\n{HEAD}cfg = load('a.yaml')\n{TRAIN}"
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": code}
    files = {
        "notebooks/train.ipynb": json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4}),
        "src/own/settings.py": helper,
    }

    def read(config: str) -> Run:
        return run_of({**files, "configs/a.yaml": config}, "notebooks/train.ipynb")

    assert (read(YAML).plan.model.id, read(YAML).plan.batch.micro) == ("Qwen/Qwen2.5-7B", 4)
    assert fixed(read, YAML, {f.batch.micro: 1}) == YAML.replace("batch: 4", "batch: 1")


_READER = """\
from pathlib import Path
from omegaconf import OmegaConf
FOLDER = Path(__file__).resolve().parents[1] / "configs"

def read(path, said=None):
    path = Path(path)
    if not path.is_absolute() and not path.exists():
        there = FOLDER / path
        if there.exists():
            path = there
    merged = OmegaConf.merge(OmegaConf.load(FOLDER / "base.yaml"), OmegaConf.load(path))
    if said:
        merged = OmegaConf.merge(merged, OmegaConf.from_dotlist(list(said)))
    merged.training.origin = str(path)
    OmegaConf.resolve(merged)
    return merged
"""
_ASKS = (
    "from conf.load import read\np = argparse.ArgumentParser()\np.add_argument('--config')\n"
    "p.add_argument('said', nargs='*')\ngiven = p.parse_args()\n"
)


@pytest.mark.parametrize(
    ("line", "micro", "level"),
    [
        ("", 4, Level.STATED),
        ("training.batch=8", 1, Level.UNREAD),
        ("--said $MORE", 1, Level.UNREAD),
    ],
)
def test_words_of_the_command_are_laid_over_a_merged_config(
    line: str, micro: int, level: Level
) -> None:
    script = f"{_ASKS}cfg = read(given.config, given.said if given.said else None)\n{TRAIN}"
    more = {"conf/load.py": _READER, "configs/base.yaml": "training:\n  batch: 32\n"}
    command = f"python train.py --config configs/a.yaml {line}\n"
    run = run_of({**_files(script), **more, "run.sh": command})
    assert run.level(f.batch.micro) is level
    if level is Level.STATED:
        assert run.plan.batch.micro == micro


@pytest.mark.parametrize(
    "respelt",
    [
        "path = Path(path)",
        "path = path.resolve()",
        "path = Path(path).resolve()",
        "path = Path(os.path.expanduser(str(path))).absolute()",
    ],
)
def test_a_path_is_the_same_however_often_it_is_respelt(respelt: str) -> None:
    reader = (
        "import os\nfrom pathlib import Path\nfrom omegaconf import OmegaConf\n"
        f"def read(path):\n    {respelt}\n    return OmegaConf.load(path)\n"
    )
    script = f"{_ASKS}cfg = read(given.config)\n{TRAIN}"
    files = _files(script) | {"conf/load.py": reader}
    run = run_of({**files, "run.sh": "python train.py --config configs/a.yaml\n"})
    assert (run.level(f.batch.micro), run.plan.batch.micro) == (Level.STATED, 4)


@pytest.mark.parametrize(
    "respelt", ["path = FOLDER / path", "if path.exists():\n        path = FOLDER / path"]
)
def test_a_path_that_is_given_anew_elsewhere_is_not_followed(respelt: str) -> None:
    reader = (
        "from pathlib import Path\nfrom omegaconf import OmegaConf\nFOLDER = Path('deep')\n"
        f"def read(path):\n    {respelt}\n    return OmegaConf.load(path)\n"
    )
    script = f"{_ASKS}cfg = read(given.config)\n{TRAIN}"
    command = "python train.py --config configs/a.yaml\n"
    run = run_of({**_files(script), "conf/load.py": reader, "run.sh": command})
    assert run.level(f.batch.micro) is Level.UNREAD


# -- a config in a framework's keys that a program of the project's own reads ----------------------------

_OWN = """\
import yaml
with open("configs/train.yaml") as file:
    config = yaml.safe_load(file)
use_lora, effective = config.get("use_lora"), config["training"].get("effective_batch_size")
"""
_AXOLOTL = "base_model: Qwen/Qwen2.5-7B\nbatch_size: 4\ngradient_accumulation_steps: 4\nsequence_len: 512\nuse_lora: true\nnum_epochs: 1\n"
_AUTO = "base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: auto\nsequence_len: 512\nuse_lora: true\nnum_epochs: 1\n"


@pytest.mark.parametrize("is_own", [True, False])
def test_what_a_framework_refuses_another_reader_may_take(is_own: bool) -> None:
    files = {"configs/train.yaml": _AXOLOTL} | ({"train.py": _OWN} if is_own else {})
    (found,) = (x for x in report_of(files).diagnoses if x.rule.code == "OOM807")
    assert found.severity is (Severity.INFO if is_own else Severity.ERROR)


_REFUSED = (
    "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: lora\ndataset: alpaca\ntemplate: qwen\n"
    "output_dir: out\n{more}"
)
_SLIP = "per_device_train_batch_sizes: 4\n"


@pytest.mark.parametrize(
    ("config", "code", "unstarted"),
    [
        (_AUTO, "OOM904", Severity.INFO),
        (_REFUSED.format(more="our_own_key: 4\n"), "OOM801", Severity.INFO),
        # One slip of the pen in a file of which all else is the framework's.
        (_REFUSED.format(more=_SLIP), "OOM801", Severity.ERROR),
        (_REFUSED.format(more=f"{_SLIP}cutoff_len: auto\n"), "OOM801", Severity.INFO),
    ],
)
def test_what_nothing_starts_the_framework_with_may_be_anothers(
    config: str, code: str, unstarted: Severity
) -> None:
    files = {"configs/train.yaml": config}
    start = "axolotl train" if config == _AUTO else "llamafactory-cli train"
    command = {"train.sh": f"{start} configs/train.yaml\n"}
    guide = {"README.md": f"```sh\n{start} configs/train.yaml\n```\n"}
    for report, severity in (
        (report_of(files), unstarted),
        (report_of(files | command), Severity.ERROR),
        (report_of(files | guide), Severity.ERROR),
        (report_of(files, explicit=files), None),
    ):
        (found,) = (each for each in report.diagnoses if each.rule.code == code)
        # Named, a key that is like none of the framework's is still a warning.
        assert (
            found.severity >= Severity.WARNING if severity is None else found.severity is severity
        )


_TRAINS = "Trainer(model=model, args=args, train_dataset=data).train()\n"


@pytest.mark.parametrize(
    ("program", "command", "severity"),
    [
        ("import yaml\nconfig = yaml.safe_load(open(path))\n", "", Severity.INFO),
        ("import hydra\n@hydra.main(config_path='configs')\ndef main(config): ...\n", "", Severity.INFO),
        # What starts the framework with the file settles who reads it.
        ("import yaml\nconfig = yaml.safe_load(open(path))\n", "axolotl train configs/train.yaml\n", Severity.ERROR),
    ],
)  # fmt: skip
def test_a_program_that_loads_yaml_may_read_what_nothing_starts(
    program: str, command: str, severity: Severity
) -> None:
    stray = (
        "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: lora\ndataset: alpaca\n"
        "template: qwen\noutput_dir: out\nper_device_train_batch_sizes: 4\n"
    )
    command = command.replace("axolotl train", "{start}")
    for config, codes, start in (
        (_AXOLOTL, {"OOM807"}, "axolotl train"),
        (stray, {"OOM801"}, "llamafactory-cli train"),
    ):
        files = {"configs/train.yaml": config, "tools/own.py": f"{program}{_TRAINS}"}
        files |= {"train.sh": command.format(start=start)} if command else {}
        found = [x for x in report_of(files).diagnoses if x.rule.code in codes]
        assert {x.rule.code for x in found} == codes
        assert {x.severity for x in found} == {severity}


_NAMED = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: a\noutput_dir: out\nload_in_4bit: true\nmax_seq_length: 2048\nlora:\n  r: 16\n"
_OPENS = """\
import argparse, yaml
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--config", default="configs/sft.yaml")
with Path(parser.parse_args().config).open() as file:
    config = yaml.safe_load(file)
print(config["model_name_or_path"])
"""


@pytest.mark.parametrize(
    ("program", "severities"),
    [
        (_OPENS, {"OOM816": Severity.INFO, "OOM801": Severity.INFO}),
        (
            _OPENS.replace("sft.yaml", "b.yaml"),
            {"OOM816": Severity.ERROR, "OOM801": Severity.WARNING},
        ),
        (
            f"{_OPENS}import subprocess\nsubprocess.run(config['command'])\n",
            {"OOM816": Severity.ERROR, "OOM801": Severity.WARNING},
        ),
    ],
    ids=["named", "another", "starter"],
)
def test_a_file_that_a_program_loads_by_itself_need_not_be_a_framework_s(
    program: str, severities: dict[str, Severity]
) -> None:
    files = {
        "configs/sft.yaml": _NAMED,
        "training/sft.py": program,
        "requirements.txt": "trl==0.14.0\n",
    }
    found = {x.rule.code: x.severity for x in report_of(files).diagnoses}
    assert {code: found.get(code) for code in severities} == severities


SET_DEFAULTS = """\
def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config"{default})
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--batch", type=int, default=1)
    first, _ = parser.parse_known_args()
    if first.config is not None:
        with open(first.config) as file:
            loaded = yaml.safe_load(file) or {{}}
        parser.set_defaults(**loaded)
    return parser.parse_args()

args = parse()
model = AutoModelForCausalLM.from_pretrained(args.model)
training = TrainingArguments(output_dir="out", per_device_train_batch_size=args.batch)
Trainer(model=model, args=training, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("default", "words", "expected"),
    [
        ("", "", ("gpt2", 1)),
        ("", "--config configs/a.yaml", ("Qwen/Qwen2.5-7B", 4)),
        ("", "--config configs/a.yaml --batch 2", ("Qwen/Qwen2.5-7B", 2)),
        (', default="configs/a.yaml"', "--model gpt2-xl", ("gpt2-xl", 4)),
    ],
)
def test_a_file_of_defaults_is_below_what_the_command_says(
    default: str, words: str, expected: tuple[str | None, int | None]
) -> None:
    script = SET_DEFAULTS.format(default=default)
    config = "model: Qwen/Qwen2.5-7B\nbatch: 4\n"
    files = _files(script, config, run_sh=f"torchrun --nproc_per_node=2 train.py {words}\n")
    plan = run_of(files, "train.py", "run.sh").plan
    assert (plan.model.id, plan.batch.micro) == expected


ELSEWHERE = """\
import json, yaml
from pathlib import Path

def load(path):
    if path is None:
        return {}
    path = Path(path)
    if path.suffix == ".json":
        with path.open() as file:
            data = json.load(file)
    else:
        with path.open() as file:
            data = yaml.safe_load(file)
    return data

def parse_with_config(parser):
    parser.add_argument("--config", default=None)
    first, _ = parser.parse_known_args()
    config = load(first.config)
    parser.set_defaults(**config)
    return parser.parse_args()
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [("", ("gpt2", 1)), ("--config configs/a.yaml", ("Qwen/Qwen2.5-7B", 4))],
)
def test_a_file_of_defaults_that_another_file_takes(words: str, expected: tuple[str, int]) -> None:
    parses = (
        SET_DEFAULTS.format(default="")
        .partition("    first")[0]
        .replace('    parser.add_argument("--config")\n', "")
    )
    script = f"from common import parse_with_config\n{parses}    return parse_with_config(parser)\n"
    script += SET_DEFAULTS.format(default="").partition("parse_args()\n\n")[2]
    config = "model: Qwen/Qwen2.5-7B\nbatch: 4\n"
    files = _files(script, config, run_sh=f"torchrun --nproc_per_node=2 train.py {words}\n")
    plan = run_of(files | {"common.py": ELSEWHERE}, "train.py", "run.sh").plan
    assert (plan.model.id, plan.batch.micro) == expected


def test_a_file_of_defaults_that_only_the_shell_knows_leaves_them_open() -> None:
    files = _files(
        SET_DEFAULTS.format(default=""), run_sh="torchrun --nproc_per_node=2 train.py --config $C\n"
    )
    run = run_of(files, "train.py", "run.sh")
    assert run.plan.batch.micro is None
    assert run.level(f.model.id) is Level.ASSUMED


def test_a_name_is_the_parsers_until_it_is_bound_again() -> None:
    head = OPTION.replace("options =", "args =").format(default='default="configs/a.yaml"')
    script = head + _loads("yaml.safe_load(open(args.config))")
    assert _run(script).plan.model.id == "Qwen/Qwen2.5-7B"
    again = "for turn in range(2):\n    args = TrainingArguments('x')\n    cfg = yaml.safe_load(open(args.config))\n"
    runs = link(_files(f"{head}{again}{TRAIN}"), "train.py").runs
    assert all(run.plan.model.id is None for run in runs)


def test_what_a_script_wrote_when_it_was_last_started_is_no_run_of_its_own() -> None:
    config = "model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_length: 512\nlearning_rate: 1.0e-6\noutput_dir: out\n"
    config += "per_device_train_batch_size: 2\nloss_type: sigmoid\n"
    script = f"cat <<EOT > dpo.yaml\n{config}EOT\naccelerate launch train.py dpo.yaml\n"
    program = (
        "from trl import DPOConfig, DPOTrainer, ModelConfig, TrlParser\n"
        "args, model = TrlParser((DPOConfig, ModelConfig)).parse_args_and_config()\n"
        "DPOTrainer(model.model_name_or_path, args=args, train_dataset=data).train()\n"
    )
    files = {"run.sh": script, "dpo.yaml": config, "train.py": program}
    assert [run.plan.objective.kind for run in link(files).runs] == ["dpo"]


_NAMED_LIKE_TRLS = """\
import argparse
import yaml
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def load_config(path):
    with open(path) as file:
        return yaml.safe_load(file)

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    args = parser.parse_args()
    config = load_config(args.config)
    model = AutoModelForCausalLM.from_pretrained(config["model"]["name"])
    options = TrainingArguments(output_dir="out", per_device_train_batch_size=config["batch"])
    Trainer(model=model, args=options, train_dataset=rows, data_collator=pad).train()

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("needs", ["transformers\n", "transformers\ntrl\n"])
@pytest.mark.parametrize("command", ["python src/lab/sft.py", "python -m lab.sft"])
def test_a_script_named_like_a_frameworks_reads_its_config_itself(command: str, needs: str) -> None:
    """TRL's scripts are called so and take ``--config``, too, be TRL somewhere in the project or not."""
    files = {
        "src/lab/sft.py": _NAMED_LIKE_TRLS,
        "src/lab/data.py": "import trl\n" if "trl" in needs else "",
        "configs/a.yaml": "model: {name: Qwen/Qwen2.5-1.5B}\nbatch: 4\n",
        "requirements.txt": needs,
        "run.sh": f"{command} --config configs/a.yaml\n",
    }
    run = run_of(files, "run.sh", "src/lab/sft.py", "configs/a.yaml")
    assert set(run.files) == {"run.sh", "src/lab/sft.py", "configs/a.yaml"}
    assert (run.plan.model.id, run.plan.batch.micro) == ("Qwen/Qwen2.5-1.5B", 4)
