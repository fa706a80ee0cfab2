"""A config that scripts hand to a program which trains nothing, and that nothing else names."""

import pytest
from tests.linked import report_of

from oomlint.linting.rule import Severity

_CONFIG = """\
name: pretraining
trainer:
  devices: 1
  num_nodes: 1
  accelerator: gpu
  precision: 32
  max_steps: 1000
model:
  mcore_gpt: true
  micro_batch_size: 1
  global_batch_size: 8
  tensor_model_parallel_size: 1
  pipeline_model_parallel_size: 1
  encoder_seq_length: 4096
  num_layers: 40
  hidden_size: 5120
  ffn_hidden_size: 13824
  num_attention_heads: 40
  optim:
    name: fused_adam
    lr: 1.0e-4
"""
_CONVERT = """\
from argparse import ArgumentParser
from omegaconf import OmegaConf
from pytorch_lightning.trainer.trainer import Trainer

parser = ArgumentParser()
parser.add_argument("--template")
args = parser.parse_args()
config = OmegaConf.load(args.template).model
model = made(config, Trainer(accelerator="cpu"))
model.save_to("out.nemo")
"""
_TRAIN = """\
from nemo.core.config import hydra_runner
from pytorch_lightning import Trainer

@hydra_runner(config_path="configs", config_name="sft")
def main(cfg):
    Trainer(**cfg.trainer).fit(made(cfg.model))

main()
"""
_SHELL = """\
TEMPLATE=/home/me/project/templates/large.yaml
mkdir -p out
python tools/to_nemo.py --template ${TEMPLATE}
"""
_FILES = {
    "templates/large.yaml": _CONFIG,
    "tools/to_nemo.py": _CONVERT,
    "train.py": _TRAIN,
    "convert.sh": _SHELL,
}


def _told(files: dict[str, str]) -> tuple[set[str], list[str]]:
    """The configs of which more than a remark is said, and why of the others no more is."""
    report = report_of(files, hardware="8xA100-80GB")
    loud = [each for each in report.diagnoses if each.severity > Severity.INFO]
    details = (detail for each in report.diagnoses for detail in each.finding.details)
    return (
        {each.finding.location.path for each in loud},
        [each for each in details if "trains nothing" in each],
    )


def test_a_config_that_only_a_conversion_reads_is_no_run() -> None:
    assert _told(_FILES) == (
        set(),
        [
            "convert.sh hands it to tools/to_nemo.py, which trains nothing, and no other file names it"
        ],
    )


def test_neither_is_one_beside_it_that_nobody_names() -> None:
    loud, why = _told(_FILES | {"templates/larger.yaml": _CONFIG})
    assert not loud
    assert why[-1] == (
        "no file names it, and convert.sh hands templates/large.yaml beside it to tools/to_nemo.py,"
        " which trains nothing"
    )


@pytest.mark.parametrize(
    "more",
    [
        {"README.md": "torchrun train.py --config-path templates --config-name large\n"},
        {"README.md": "Train by `templates/large.yaml`.\n"},
        {"run.sh": "torchrun pretrain.py --config templates/large.yaml\n"},
        {"run.sh": "python /opt/NeMo/examples/pretrain.py --config templates/large.yaml\n"},
        {"convert.sh": f"{_SHELL}python train.py --config ${{TEMPLATE}}\n"},
        {"convert.sh": "nemo_train --config templates/large.yaml\n"},
        {"convert.sh": "python tools/to_nemo.py\n"},
        {"train.py": _TRAIN.replace("configs", "templates")},
        {"train.py": "import yaml\ncfg = yaml.safe_load(open(argv[1]))\nTrainer(**cfg).fit()\n"},
        {"train.py": "print('nothing here trains')\n"},
        {"tools/to_nemo.py": f"{_CONVERT}Trainer().fit(model)\n"},
        {"tools/to_nemo.py": f"from verl.trainer.main_ppo import run_ppo\n{_CONVERT}run_ppo(config)\n"},
        {"tools/to_nemo.py": f"import subprocess\n{_CONVERT}subprocess.run(args)\n"},
    ],
)  # fmt: skip
def test_one_that_somebody_may_train_by_stays_one(more: dict[str, str]) -> None:
    loud, why = _told(_FILES | more)
    assert "templates/large.yaml" in loud
    assert not why


def test_one_that_the_user_named_stays_one() -> None:
    report = report_of(_FILES, explicit=["templates/large.yaml"], hardware="8xA100-80GB")
    assert any(each.severity > Severity.INFO for each in report.diagnoses)


_OPENS = _CONVERT.replace(
    "args.template", "os.path.join(os.path.dirname(__file__), 'large.yaml')"
).replace("from argparse", "import os\nfrom argparse")
_READS_ANY = "import yaml\ncfg = yaml.safe_load(open(argv[1]))\nTrainer(**cfg).fit()\n"
_TEMPLATE = {
    "lab/tools/large.yaml": _CONFIG,
    "lab/tools/to_nemo.py": _OPENS,
    "train.py": _READS_ANY,
}


def test_a_config_that_a_conversion_opens_beside_itself_is_its_own() -> None:
    """Whatever else trains, and however often the folder is named: the program asks for that one file."""
    loud, why = _told(_TEMPLATE | {"README.md": "All of `lab` is installed.\n"})
    assert not loud
    assert why == [
        "lab/tools/to_nemo.py beside it opens it, which trains nothing, and no other file names it"
    ]
    for more in (
        {"README.md": "Train by `lab/tools/large.yaml`.\n"},
        {"lab/tools/to_nemo.py": f"{_OPENS}Trainer().fit(model)\n"},
    ):
        assert _told(_TEMPLATE | more)[0]
