"""Options at which a script's parser stops before anything trains, and those that it misses."""

from __future__ import annotations

import pytest
from tests.linked import report_of, run_of

from oomlint.dialects.common.fields import shared
from oomlint.linting.rule import Severity

_OWN = """\
import argparse
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def add_sizes(parser):
    parser.add_argument("--batch", type=int, default=4)

{parser}
args = {parse}
model = AutoModelForCausalLM.from_pretrained("NousResearch/Llama-2-7b-hf", torch_dtype=torch.float32)
options = TrainingArguments(output_dir="out", per_device_train_batch_size=4)
Trainer(model=model, args=options, train_dataset=data, data_collator=collator).train()
"""
_PARSER = """\
parser = argparse.ArgumentParser()
group = parser.add_argument_group("data")
group.add_argument("--data-path", {path})
parser.add_argument("--rate", type=float, default=1e-5)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--kind", choices=["a", "b"], default="a")
parser.add_argument("--use-lora", action="store_true")
parser.add_argument("--layers", type=int, nargs="+")
add_sizes(parser)"""


def _refused(files: dict[str, str]) -> str:
    found = run_of(files, hardware="1xRTX-4090-24GB").settings.get(shared.refused)
    return "" if found is None else str(found.value)


def _own(command: str, parser: str = "", parse: str = "parser.parse_args()", path: str = "") -> str:
    text = _OWN.format(parser=parser or _PARSER.format(path=path or "default=None"), parse=parse)
    return _refused({"train.py": text, "run.sh": f"{command}\n"})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--use_fp8", "train.py stops at --use_fp8, which its parser does not know"),
        ("--steps 1e3", "train.py stops at --steps 1e3: it is no whole number"),
        ("--rate fast", "train.py stops at --rate fast: it is no number"),
        ("--layers 1 2 x", "train.py stops at --layers x: it is no whole number"),
        ("--kind c", "train.py stops at --kind c: it is no choice of a, b"),
        ("--batch 2.5", "train.py stops at --batch 2.5: it is no whole number"),
        ("--kind --steps 3", "train.py stops at --kind, which gets no value"),
        ("--use-lora --layers", "train.py stops at --layers, which gets no value"),
        ("--kind $KIND --steps 3", "train.py stops at --kind: nothing sets $KIND"),
        ("--use-lora --steps ${STEPS}", "train.py stops at --steps: nothing sets $STEPS"),
    ],
)
def test_what_a_parser_does_not_take_ends_the_program(options: str, reason: str) -> None:
    assert _own(f"python train.py {options}") == reason


@pytest.mark.parametrize(
    "options",
    [
        "--steps 10 --rate 1e-5 --rate .5 --rate 2. --kind b --use-lora --data-path x --batch 8 --layers 1 2",
        '--steps "$STEPS" --kind "${KIND}"',  # another script may set them
        "--steps $STEPS_PER_NODE --rate ${RATE:-1e-5} --kind ${KIND:?} $EXTRA",
        "--ste 5",  # argparse takes a beginning
        "--rate 1E5 --steps -1",
        "--steps <number>",
    ],
)
def test_what_a_parser_takes_does_not(options: str) -> None:
    assert _own(f"python train.py {options}") == ""


@pytest.mark.parametrize(
    ("parser", "parse"),
    [
        ("", "parser.parse_known_args()[0]"),
        ("", "parser.parse_args([])"),
        ("parser = argparse.ArgumentParser(parents=[base])\nparser.add_argument('--a')", ""),
        ("parser = argparse.ArgumentParser()\nparser.add_argument('--a')\nextend(parser)", ""),
        ("parser = argparse.ArgumentParser()\nparser.add_argument('--a')\nimport x\nx.more(parser)", ""),
        ("import sys\nsys.argv.remove('--use_fp8')\nparser = argparse.ArgumentParser()\nparser.add_argument('--a')", ""),
        ("parser = argparse.ArgumentParser()\nfor n in names:\n    parser.add_argument('--' + n)", ""),
    ],
)  # fmt: skip
def test_a_parser_of_which_not_all_is_known(parser: str, parse: str) -> None:
    assert _own("python train.py --use_fp8", parser, parse or "parser.parse_args()") == ""


@pytest.mark.parametrize(
    ("command", "misses"),
    [
        ("python train.py --rate 1e-5", True),
        ("python train.py --data-path x", False),
        ("python train.py --data x", False),
        ("python train.py --rate 1e-5 $EXTRA", False),
        ('python train.py --rate 1e-5 "$@"', False),
        ("python train.py --rate $JOB_RATE", False),  # whatever stands behind it
        ("python train.py --rate 1e-5 ...", False),
    ],
)
def test_what_a_parser_requires(command: str, misses: bool) -> None:
    reason = "train.py requires --data_path, which the command does not give"
    assert _own(command, path="required=True") == (reason if misses else "")


@pytest.mark.parametrize(
    ("declared", "misses"),
    [
        ('"fast", action="store_true"', False),  # takes no word, and so nothing is missed
        ('"fast", action="append_const", const=1, dest="many"', False),
        ('"fast", action=Fast', True),
        ('"fast"', True),
    ],
)
def test_an_argument_that_takes_no_word_is_not_missed(declared: str, misses: bool) -> None:
    parser = f"parser = argparse.ArgumentParser()\nparser.add_argument({declared})\nparser.add_argument('--rate')"
    reason = "train.py requires fast, which the command does not give"
    assert _own("python train.py --rate 1", parser=parser) == (reason if misses else "")


_STARTS = "python train.py --kind $KIND --steps 3\n"


@pytest.mark.parametrize(
    ("files", "is_unset"),
    [
        ({}, True),
        ({"other.sh": "KIND=a\npython other.py --kind $KIND\n"}, True),
        ({"other.sh": "export KIND=a\n"}, False),
        ({"all.sh": "KIND=a bash run.sh\n"}, False),
        ({"README.md": "Set `KIND` first.\n"}, False),
        ({"start.py": "os.environ['KIND'] = 'a'\n"}, False),
        ({"run.sh": f"# KIND=a for small ones\n{_STARTS}"}, False),
        ({"run.sh": f"source settings.sh\n{_STARTS}"}, False),
        ({"run.sh": f"source activate tune\n{_STARTS}"}, True),
        ({"run.sh": f'[ -z "$KIND" ] && exit 1\n{_STARTS}'}, False),
        ({"run.sh": f'for word in "$@"; do declare "$word"; done\n{_STARTS}'}, False),
    ],
)
def test_what_may_set_a_variable(files: dict[str, str], is_unset: bool) -> None:
    text = _OWN.format(parser=_PARSER.format(path="default=None"), parse="parser.parse_args()")
    every = {"train.py": text, "run.sh": _STARTS, **files}
    found = run_of(every, "run.sh").settings.get(shared.refused)
    assert (found is not None) is is_unset


_TWICE = """\
from dataclasses import dataclass, field
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class DataArguments:
    data_path: str = field(default=None)
@dataclass
class DataArguments:
    data_path: str = field(default=None)
    eval_data_path: str = field(default=None)
{behind}
data, args = HfArgumentParser((DataArguments, TrainingArguments)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
Trainer(model=model, args=args, train_dataset=data, data_collator=pad).train()
"""
_AGAIN = "@dataclass\nclass DataArguments:\n    data_path: str = field(default=None)\n"


@pytest.mark.parametrize(("behind", "is_refused"), [("", False), (_AGAIN, True)])
def test_a_class_that_is_defined_twice_is_the_last_of_them(behind: str, is_refused: bool) -> None:
    command = "python train.py --output_dir out --data_path a --eval_data_path b\n"
    files = {"train.py": _TWICE.format(behind=behind), "run.sh": command}
    assert (run_of(files, "run.sh").settings.get(shared.refused) is not None) is is_refused


def test_the_shell_sets_variables_of_its_own() -> None:
    text = _OWN.format(parser=_PARSER.format(path="default=None"), parse="parser.parse_args()")
    files = {"train.py": text, "run.sh": "python train.py --kind a --steps $RANDOM\n"}
    assert run_of(files, "run.sh").settings.get(shared.refused) is None


def test_the_parser_of_the_file_that_a_script_calls() -> None:
    text = _OWN.format(parser=_PARSER.format(path="default=None"), parse="parser.parse_args()")
    top, _, rest = text.partition("parser = argparse")
    body = "\n".join(f"    {line}" for line in f"parser = argparse{rest}".splitlines())
    files = {
        "tune/train.py": f"{top}def train():\n{body}\n",
        "tune/train_mem.py": "from train import train\n\ntrain()\n",
        "run.sh": "python tune/train_mem.py --kind $KIND --steps 3\n",
    }
    assert _refused(files) == "train_mem.py stops at --kind: nothing sets $KIND"


def test_what_is_cut_off_of_a_command_is_not_missed() -> None:
    cut = "python train.py --rate 1e-5 \\\n#    --steps 4 \\\n    --data-path x"
    assert not _own(cut, path="required=True")
    assert _own(cut.replace("#", ""), path="required=True") == ""


_FIRE = """\
import fire
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

{head}def train(data_path: str, rate: float = 1e-5{more}):
    model = AutoModelForCausalLM.from_pretrained("NousResearch/Llama-2-7b-hf", torch_dtype=torch.float32)
    options = TrainingArguments(output_dir="out", per_device_train_batch_size=4)
    Trainer(model=model, args=options, train_dataset=load(data_path), data_collator=collator).train()

fire.Fire({made})
"""


@pytest.mark.parametrize(
    ("command", "parts", "misses"),
    [
        ("python train.py", {}, "data_path"),
        ("deepspeed train.py", {}, "data_path"),
        ("python train.py --rate 1e-4", {}, "data_path"),
        ("python train.py --data_path x", {"more": ", *, seed"}, "seed"),
        ("python train.py --data-path x --rate fast --unheard_of 1", {}, ""),  # it stops there after the training
        ("python train.py x", {}, ""),
        ("python train.py $1", {}, ""),
        ("python train.py", {"made": "{'train': train}"}, ""),
        ("python train.py", {"made": ""}, ""),
        ("python train.py", {"head": "@told\n"}, ""),
    ],
)  # fmt: skip
def test_what_a_function_that_fire_makes_a_command_of_requires(
    command: str, parts: dict[str, str], misses: str
) -> None:
    text = _FIRE.format(**{"head": "", "more": "", "made": "train", **parts})
    reason = f"train.py requires --{misses}, which the command does not give"
    assert _refused({"train.py": text, "run.sh": f"{command}\n"}) == (reason if misses else "")


_CLASSES = """\
from dataclasses import dataclass, field
from typing import Optional
import torch
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Model:
    model: str
    rank: Optional[int] = field(default=8)
    lora: bool = True

model, options = HfArgumentParser((Model, TrainingArguments)).parse_args_into_dataclasses({rest})
model = AutoModelForCausalLM.from_pretrained("NousResearch/Llama-2-7b-hf", torch_dtype=torch.float32)
Trainer(model=model, args=options, train_dataset=data, data_collator=collator).train()
"""
_SIZES = "--per_device_train_batch_size 1 --num_train_epochs 1 --learning_rate 1e-5"


@pytest.mark.parametrize(
    ("options", "release", "reason"),
    [
        ("--warmup_steps 0.1", "<5.0.0", "stops at --warmup_steps 0.1: it is no whole number"),
        ("--warmup_steps 0.1", "==5.1.0", ""),
        ("--warmup_steps 0.1", "", ""),
        ("--warmup_steps 10", "<5.0.0", ""),
        ("--push_to_hub_model_id x", "==5.0.0", "stops at --push_to_hub_model_id, which"),
        ("--push_to_hub_model_id x", "==4.57.1", ""),
        ("--push_to_hub_model_id x", ">=4.50", ""),
        ("--push_to_hub_model_id x", ">=5.1", "stops at --push_to_hub_model_id, which"),
        ("--evaluation_strategy no", "==4.52.4", "stops at --evaluation_strategy, which"),
        ("--evaluation_strategy no", "==4.40.0", ""),
        ("--evaluation_strategy no", ">=4.40,<4.53", ""),
        ("--eos_token x", "", "stops at --eos_token, which"),
        ("--no_lora --rank 4", "", ""),
        ("--rank four", "", "stops at --rank four: it is no whole number"),
        ("--rank --bf16", "", "stops at --rank, which gets no value"),
        ("--lora --bf16 --fp16_full_eval", "", ""),
        ("--report_to --bf16", "==4.57.1", "stops at --report_to, which gets no value"),
        ("--run_name $NAME --bf16", "==4.57.1", "stops at --run_name: nothing sets $NAME"),
        ("--include_num_input_tokens_seen --bf16", "==4.57.1", ""),
    ],
)
def test_options_of_a_library_by_its_releases(options: str, release: str, reason: str) -> None:
    files = {
        "train.py": _CLASSES.format(rest=""),
        "run.sh": f"python train.py --output_dir out --model x {_SIZES} {options}\n",
        "requirements.txt": f"transformers{release}\n",
    }
    found = _refused(files)
    assert reason in found if reason else not found
    files["train.py"] = _CLASSES.format(rest="return_remaining_strings=True")
    assert not _refused(files)


@pytest.mark.parametrize(
    ("asked", "readme", "severity"),
    [
        ("transformers", "", Severity.INFO),
        ("transformers>=4.40", "", Severity.INFO),
        ("transformers>=4.51", "", Severity.ERROR),
        ("transformers", "pip install transformers==4.36.2", None),
        ("transformers", "pip install transformers==4.51.3", Severity.ERROR),
        ("transformers==4.40.0", "", None),
        ("trl\ngit+https://github.com/huggingface/transformers.git", "", Severity.INFO),
        ("transformers\ntrl==0.29.0", "", None),
    ],
)
def test_what_only_the_newest_of_an_unpinned_library_refuses_is_a_remark(
    asked: str, readme: str, severity: Severity | None
) -> None:
    """The newest TRL needs a transformers without ``evaluation_strategy``; of another TRL nobody says that."""
    script = _CLASSES.format(rest="").replace("Trainer, Train", "Train")
    script = script.replace("import torch\n", "import torch\nfrom trl import DPOTrainer\n")
    options = "--model x --evaluation_strategy no --output_dir out"
    files = {
        "train.py": script.replace("Trainer(model=", "DPOTrainer(model="),
        "run.sh": f"python train.py {_SIZES} {options}\n",
        "requirements.txt": f"{asked}\n",
        "README.md": f"{readme}\n",
    }
    found = report_of(files, hardware="1xRTX-4090-24GB").diagnoses
    told = [each for each in found if each.rule.code == "OOM905"]
    assert [each.severity for each in told] == ([] if severity is None else [severity])
    if severity is not None:
        (one,) = told
        assert one.finding.location.path == "run.sh"
        assert "--evaluation_strategy, which its parser does not know" in one.finding.text
    errors = {each.rule.code for each in found if each.severity is Severity.ERROR}
    assert ("OOM100" in errors or "OOM105" in errors) is (severity is not Severity.ERROR)


@pytest.mark.parametrize(
    ("release", "reason"),
    [
        ("==0.11.4", ""),  # has no such class: whatever ends the program, no option does
        ("==0.20.0", "train.py stops at --eos_token, which its parser does not know"),
    ],
)
def test_of_a_class_that_the_release_lacks_no_option_is_known(release: str, reason: str) -> None:
    script = _CLASSES.format(rest="").replace("TrainingArguments)", "Own)")
    script = script.replace("Trainer, TrainingArguments\n", "Trainer\nimport trl\n")
    own = "@dataclass\nclass Own(trl.GRPOConfig):\n    cache_dir: Optional[str] = None\n\nmodel, options"
    files = {
        "train.py": script.replace("model, options", own, 1),
        "run.sh": f"python train.py --output_dir out --model x {_SIZES} --eos_token x\n",
        "requirements.txt": f"trl{release}\n",
    }
    assert _refused(files) == reason


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--rank 8", "train.py requires --model, which the command does not give"),
        ("--model x", ""),
        ("--model x --rank 8", ""),
    ],
)
def test_fields_without_a_default_are_required(options: str, reason: str) -> None:
    files = {
        "train.py": _CLASSES.format(rest=""),
        "run.sh": f"python train.py --output_dir out {_SIZES} {options}\n",
    }
    assert _refused(files) == reason


def test_memory_is_a_remark_beside_it() -> None:
    for given, is_sure in (("--use_fp8", True), ("--use-lora", False)):
        text = _OWN.format(parser=_PARSER.format(path="default=None"), parse="parser.parse_args()")
        files = {"train.py": text, "run.sh": f"python train.py {given}\n"}
        found = report_of(files, hardware="1xRTX-4090-24GB").diagnoses
        errors = [each for each in found if each.severity is Severity.ERROR]
        assert ([each.rule.code for each in errors] == ["OOM905"]) is is_sure
        assert errors
        assert not is_sure or errors[0].finding.location.path == "run.sh"


_AROUND = """\
def parse_args({taken}):
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float)
    return parser.parse_args({taken})"""


@pytest.mark.parametrize(("taken", "is_known"), [("", True), ("words", False)])
def test_a_function_of_the_script_around_its_parser(taken: str, is_known: bool) -> None:
    parser, parse = _AROUND.format(taken=taken), f"parse_args({'command()' if taken else ''})"
    found = _own("python train.py --speed 1", parser, parse)
    assert bool(found) is is_known


@pytest.mark.parametrize(
    ("name", "options", "is_told"),
    [("README.md", "", False), ("README.md", " --rate 1e-5", True), ("run.sh", "", True)],
)
def test_a_guide_that_only_names_the_program(name: str, options: str, is_told: bool) -> None:
    script = _OWN.format(parser=_PARSER.format(path="required=True"), parse="parser.parse_args()")
    line = f"python train.py{options}\n"
    text = f"Start it:\n\n```sh\n{line}```\n" if name == "README.md" else line
    assert bool(_refused({"train.py": script, name: text})) is is_told


_REQUIRES = f'{_PARSER.format(path="default=None")}\nparser.add_argument("--name", required=True)'
_OF_FIELDS = """\
from dataclasses import dataclass
import transformers
@dataclass
class Script:
    name: str
(args, _) = transformers.HfArgumentParser((Script, transformers.TrainingArguments)).parse_args_into_dataclasses()"""


@pytest.mark.parametrize(
    ("parser", "parse"), [(_REQUIRES, "parser.parse_args()"), (_OF_FIELDS, "args")]
)
def test_an_end_is_sure_whatever_else_the_program_may_end_of(parser: str, parse: str) -> None:
    """Whether the release knows the model hangs on the very option that is not given, and so does which release it is."""
    text = _OWN.format(parser=parser, parse=parse)
    text = text.replace('"NousResearch/Llama-2-7b-hf"', "args.name")
    command = "python train.py --learning_rate 1e-5 --output_dir out\n"
    command = "python train.py --steps 3\n" if parser is _REQUIRES else command
    report = report_of({"train.py": text, "run.sh": command})
    (found,) = (each for each in report.diagnoses if each.rule.code == "OOM905")
    assert "--name" in found.finding.message
    assert found.severity is Severity.ERROR
