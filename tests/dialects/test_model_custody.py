"""The model is accounted for from where it is loaded to where it is trained, or what was done to it is open."""

from __future__ import annotations

import pytest
from tests.linked import report_of, run_of, workspace_of

from oomlint.dialects.common.fields import shared
from oomlint.linting.rule import Severity
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_FIELDS = {
    "trainable": f.trainable.method,
    "dtype": f.load.dtype,
    "quantization": f.quant.method,
    "checkpointing": f.checkpointing.mode,
    "attention": f.model.attn_impl,
    "loss": f.loss.logits_materialised,
}
_ALL = {"trainable", "dtype", "quantization", "checkpointing", "attention"}
_SCRIPT = """\
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, modeling_llama
{imports}
{load}
{body}
trainer = Trainer(model={name}, train_dataset=data,
    args=TrainingArguments(output_dir='o', per_device_train_batch_size=2, bf16=True))
{before}
trainer.train()
{behind}
"""
_LOAD = "{} = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', torch_dtype='bfloat16')"


def _files(
    body: str = "",
    *,
    imports: str = "",
    load: str = "",
    name: str = "model",
    before: str = "",
    behind: str = "",
    **files: str,
) -> dict[str, str]:
    text = _SCRIPT.format(
        imports=imports,
        load=load or _LOAD.format(name),
        body=body,
        name=name,
        before=before,
        behind=behind,
    )
    return {"train.py": text, **{f"{module}.py": code for module, code in files.items()}}


def _run(body: str = "", **given: str) -> Run:
    return run_of(_files(body, **given), "train.py")


def _decided(body: str = "", **given: str) -> set[str]:
    """What the script's own facts leave open, whatever else of the run is not known."""
    document = workspace_of(_files(body, **given)).document("train.py")
    assert document is not None
    facts = [fact for fact in document.facts if fact.kind == "unaccounted"]
    return {aspect for fact in facts for aspect in fact.detail["decides"]}


def _open(run: Run) -> set[str]:
    return {aspect for aspect, field in _FIELDS.items() if run.level(field) is Level.UNREAD}


@pytest.mark.parametrize(
    "body",
    [
        "model.config.use_cache = False\nmodel.resize_token_embeddings(len(tokenizer))",
        "model.gradient_checkpointing_enable()\nmodel.enable_input_require_grads()",
        "print(model, sum(p.numel() for p in model.parameters()))",
        "model = torch.compile(model.to('cuda').train())",
        "print_trainable(model)",
        "count = get_size(model)\nassert isinstance(model, object)",
        "collator = Collator(tokenizer, model=model)",
        "reference = freeze(model)",
        "model.generation_config.max_length = 5\nmodel.save_pretrained('x')",
        "text = text.replace('flash', 'attention')",
    ],
)
def test_what_is_known_to_decide_nothing_leaves_nothing_open(body: str) -> None:
    assert _open(_run(body)) == set()


@pytest.mark.parametrize(
    ("body", "decided"),
    [
        ("apply(model)", _ALL),
        ("model = surgery.apply(model, 4)", _ALL),
        ("freeze_top(model)", {"trainable"}),
        ("model.unfreeze_projector()", {"trainable"}),
        ("to_half_precision(model=model)", {"dtype"}),
        ("model.forward = forward", {"loss", "attention"}),
        ("model.model.norm = Norm(8)\nclass Norm:\n    pass", _ALL),
        ("setattr(model, 'forward', forward)", {"loss", "attention"}),
        ("modeling_llama.eager_attention_forward = attend", {"attention"}),
        ("modeling_llama.cross_entropy = own", {"loss"}),
    ],
)
def test_what_is_not_known_leaves_open_what_it_may_decide(body: str, decided: set[str]) -> None:
    assert _open(_run(body)) == decided


def test_under_whatever_name_the_model_goes() -> None:
    assert _open(_run("wrapped = net\nfreeze_top(wrapped)", name="net")) == {"trainable"}
    assert _open(_run("def adapt(it):\n    freeze_top(it)\nadapt(net)", name="net")) == {
        "trainable"
    }
    assert _open(_run("freeze_top(other)", name="net")) == set()
    assert _run("net.half()", name="net").plan.load.dtype == "fp16"


def test_what_comes_when_the_model_is_trained_decides_nothing() -> None:
    assert _open(_run(behind="apply(model)")) == set()
    assert _open(_run(before="freeze_top(trainer.model)")) == {"trainable"}


def test_what_is_loaded_when_the_model_is_trained_is_another() -> None:
    merged = (
        "folder = os.path.join('o', 'merged')\n"
        "model = AutoPeftModelForCausalLM.from_pretrained(folder, device_map='auto')\n"
        "model = fuse(model)"
    )
    assert _decided(imports="import os", behind=merged) == set()
    assert _decided("model = fuse(model)") == _ALL
    # In a loop what stands behind comes before as well.
    around = "for turn in range(3):\n    print(trainer.model)\n    model = fuse(model)"
    assert _decided(before=around) == _ALL


def test_python_s_own_texts_and_paths_are_no_models() -> None:
    assert _decided(load="model = os.path.join(folder, 'best')", imports="import os") == set()
    assert _decided(load="model = runpy.run_path(name)", imports="import runpy") >= _ALL
    # What goes by such a name is something else unless it is imported.
    assert _decided("re.adapt(model)") == _ALL


_PARSER = """
from transformers import HfArgumentParser

class OwnParser(HfArgumentParser):
    def read(self, path):
        return path

    def parse(self):
        self.file = self.read("settings.yaml")
        return self.parse_args_into_dataclasses()

class Wrapped:
    def __init__(self, name):
        self.model = load(name)
"""


def test_the_name_of_a_model_that_a_parser_of_the_project_s_own_gives_is_no_model() -> None:
    parsed = "model_args, data_args = OwnParser((ModelArguments, DataArguments)).parse()"
    imports = f"{_PARSER}\n{parsed}"
    assert _decided(imports=imports, load="pass", name="model_args.model_name_or_path") == set()
    wrapped = "net = Wrapped('x')"
    assert _decided(imports=_PARSER, load=wrapped, name="net.inner") >= _ALL


_RECORDER = """
class Recorder:
    def __init__(self, path):
        self.path = path

    def {method}(self, model):
        {body}
"""


@pytest.mark.parametrize(
    ("body", "method", "decided"),
    [
        ("self.model = model", "bind_to", set()),
        ("model.requires_grad_(False)", "bind_to", {"trainable"}),
        ("pass", "other", set()),  # of a class that has no such method nobody calls it
    ],
)
def test_what_a_method_of_the_project_s_own_objects_does_is_looked_up(
    body: str, method: str, decided: set[str]
) -> None:
    recorder = _RECORDER.format(method=method, body=body)
    made = "recorder = None\nif asks():\n    recorder = Recorder('x')\n"
    bound = f"{made}recorder.bind_to(model)"
    assert _decided(bound, imports="from recorder import Recorder", recorder=recorder) == decided


def test_an_object_that_another_class_stands_above_may_do_anything() -> None:
    recorder = "from elsewhere import Base\nclass Recorder(Base):\n    pass\n"
    bound = "recorder = Recorder('x')\nrecorder.bind_to(model)"
    imports = "from recorder import Recorder"
    assert _decided(bound, imports=imports, recorder=recorder) == _ALL
    assert _decided("recorder = make()\nrecorder.bind_to(model)") == _ALL


@pytest.mark.parametrize(
    ("code", "decided"),
    [
        ("for p in model.parameters():\n        p.requires_grad = False", {"trainable"}),
        ("for p in ref_model.parameters():\n        p.requires_grad = False", set()),
        ("if asks():\n        model.gradient_checkpointing_enable()", {"checkpointing"}),
        (
            "if asks():\n        return model\n    model.gradient_checkpointing_enable()",
            {"checkpointing"},
        ),
        ("model.to(torch.float16)", {"dtype"}),
        ("model.to('cuda')\n    print(model)", set()),
        ("deeper(model)\ndef deeper(it):\n    it.requires_grad_(False)", {"trainable"}),
        ("if args.use_lora:\n        model = get_peft_model(model, config)", set()),
        ("if args.deep:\n        model = get_peft_model(model, config)", {"trainable"}),
        ("unknown(model)", _ALL),
    ],
)
def test_a_function_of_another_file_is_entered(code: str, decided: set[str]) -> None:
    ways = f"def prepare(model):\n    {code}\n"
    run = _run("prepare(model)", imports="from ways import prepare", ways=ways)
    assert _open(run) == decided


@pytest.mark.parametrize(
    ("given", "decided"),
    [
        ("", set()),
        ("torch_dtype=torch.float16", {"dtype"}),
        ("load_in_4bit=True", {"quantization"}),
        ("attn_implementation='sdpa' if asks() else 'flash_attention_2'", set()),
        ("attn_implementation='eager'", {"attention"}),
        ("device_map='auto'", {"placement"}),
        ("**settings", {"dtype", "quantization", "checkpointing", "attention", "placement"}),
        ("torch_dtype=args.torch_dtype, attn_implementation=args.attn_implementation", set()),
    ],
)
def test_what_one_of_several_loads_of_another_file_decides(given: str, decided: set[str]) -> None:
    ways = (
        "from transformers import AutoModelForCausalLM\ndef load(name, args):\n"
        "    if asks():\n        return AutoModelForCausalLM.from_pretrained(name)\n"
        f"    return AutoModelForCausalLM.from_pretrained(name, {given})\n"
    )
    load = "model = load('Qwen/Qwen2.5-7B', args)"
    assert _decided(imports="from ways import load", load=load, ways=ways) == decided


_LOADS = """\
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
def load(name, four=False, rank=8, dtype=torch.float16, checkpoints=False):
    quantizer = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4') if four else None
    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=dtype, quantization_config=quantizer)
    if checkpoints:
        model.gradient_checkpointing_enable()
    if not rank:
        return model
    return get_peft_model(model, LoraConfig(r=2 * rank, target_modules=['q_proj']))
"""


def _loaded(call: str) -> Run:
    return _run(
        imports="from ways import load",
        load=f"model = load('Qwen/Qwen2.5-7B', {call})",
        ways=_LOADS,
    )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("", {"method": "lora", "r": 16, "dtype": "fp16", "quant": "none", "mode": "none"}),
        ("rank=None", {"method": "full", "dtype": "fp16", "mode": "none"}),
        ("dtype=torch.bfloat16", {"dtype": "bf16"}),
        ("four=True, rank=32", {"r": 64, "quant": "bnb4"}),
        ("checkpoints=True", {"mode": "full"}),
    ],
)
def test_what_another_file_makes_of_the_model_is_known(call: str, said: dict[str, object]) -> None:
    run = _loaded(call)
    fields = {
        "method": f.trainable.method,
        "r": f.trainable.r,
        "dtype": f.load.dtype,
        "quant": f.quant.method,
        "mode": f.checkpointing.mode,
    }
    assert run.plan.model.id == "Qwen/Qwen2.5-7B"
    assert {name: run.cells[fields[name]] for name in said} == said
    assert _open(run) == set()


@pytest.mark.parametrize(
    ("given", "decided"),
    [
        ("", set()),
        ("four=True", {"quantization"}),
        ("four=False, kind=None", set()),
        ("kind=args.torch_dtype", set()),
        ("kind=torch.float16", {"dtype"}),
        ("attn_implementation='sdpa', trust_remote_code=True", set()),
        ("attn_implementation='eager'", {"attention"}),
        ("**more", {"dtype", "quantization", "checkpointing", "attention", "placement"}),
    ],
)
def test_what_a_call_hands_on_to_the_loader(given: str, decided: set[str]) -> None:
    ways = (
        "from transformers import AutoModelForCausalLM\ndef load(name, four=False, *, kind=None, **rest):\n"
        "    return AutoModelForCausalLM.from_pretrained(name, load_in_4bit=four, torch_dtype=kind, **rest)\n"
    )
    load = f"model = load('Qwen/Qwen2.5-7B', {given})"
    assert _decided(imports="from ways import load", load=load, ways=ways) == decided


@pytest.mark.parametrize(
    ("makes", "decided"),
    [
        ("return {load}", set()),
        ("self.model = {load}\n        return wrap(self.model)", _ALL),
    ],
)
def test_a_method_of_the_script_that_makes_the_model(makes: str, decided: set[str]) -> None:
    load = "AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')"
    method = f"class App:\n    def make(self):\n        {makes.format(load=load)}\n"
    body = "    def run(self):\n        model = self.make()\n        trainer = Trainer(model=model, args=args)\n"
    text = f"from transformers import AutoModelForCausalLM, Trainer\n{method}{body}        trainer.train()\n"
    document = workspace_of({"train.py": f"{text}App().run()\n"}).document("train.py")
    assert document is not None
    facts = [fact for fact in document.facts if fact.kind == "unaccounted"]
    assert {aspect for fact in facts for aspect in fact.detail["decides"]} == decided


_TWO = """\
if {test}:
    model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B'{one})
else:
    model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B'{other})
"""


@pytest.mark.parametrize(
    ("test", "one", "other", "decided"),
    [
        ("asks() > 1", ", torch_dtype='bfloat16'", ", torch_dtype='bfloat16'", set()),
        ("asks() > 1", ", torch_dtype='bfloat16'", "", {"dtype"}),
        ("asks() > 1", ", load_in_4bit=True", ", load_in_4bit=False", {"quantization"}),
        (
            "asks() > 1",
            ", attn_implementation='eager'",
            ", attn_implementation='sdpa'",
            {"attention"},
        ),
        ("args.small", ", load_in_4bit=True", "", set()),
    ],
)
def test_what_loads_in_two_branches_say_otherwise(
    test: str, one: str, other: str, decided: set[str]
) -> None:
    assert _decided(load=_TWO.format(test=test, one=one, other=other)) == decided


def test_what_is_loaded_behind_the_training_is_another_model() -> None:
    again = (
        "if asks() > 1:\n    model = AutoModelForCausalLM.from_pretrained('o', load_in_4bit=True)"
    )
    assert _decided(behind=again) == set()


def test_a_model_that_nobody_knows_who_makes() -> None:
    every = {*_ALL, "placement"}
    assert _decided(imports="from elsewhere import build", load="model = build()") == every
    assert _decided(load="name = args.model", name="name") == set()


_PATCHING = """\
from transformers.models.llama import modeling_llama
def patch_all():
    modeling_llama.eager_attention_forward = own
"""


def test_a_library_whose_code_is_replaced() -> None:
    imports = "from patching import patch_all"
    assert _open(_run("patch_all()", imports=imports, patching=_PATCHING)) == {"attention"}
    assert _open(_run("pass", imports=imports, patching=_PATCHING)) == set()
    assert _open(_run("replace_llama_attn()", imports="from own import replace_llama_attn")) == {
        "attention"
    }


@pytest.mark.parametrize(
    ("end", "stops"),
    [
        ("# trainer.train()\ntrainer.log({})", True),
        ("# trainer.train()", True),
        ("trainer.train()", False),
        ("start(trainer)", False),
        ("trainer.hyperparameter_search()", False),
        ("run = trainer.train\nrun()", False),
    ],
)
def test_a_trainer_that_nobody_asks_to_train(end: str, stops: bool) -> None:
    text = _SCRIPT.format(
        imports="", load=_LOAD.format("model"), body="", name="model", before="", behind=""
    ).replace("trainer.train()", end)
    run = run_of({"train.py": text + "\ntrainer.save_model('o')\n"}, "train.py")
    assert (run.settings.get(shared.stops) is not None) is stops


@pytest.mark.parametrize(
    ("source", "end", "stops"),
    [
        ("transformers", "", True),
        ("transformers", ".train()", False),
        ("own", "", False),  # one of the project's own may train as it is made
    ],
)
def test_a_trainer_that_nobody_keeps(source: str, end: str, stops: bool) -> None:
    text = (
        f"from transformers import AutoModelForCausalLM, TrainingArguments\nfrom {source} import Trainer\n"
        f"{_LOAD.format('model')}\nargs = TrainingArguments(output_dir='o')\n"
        f"Trainer(model=model, args=args, train_dataset=data){end}\nmodel.save_pretrained('o')\n"
    )
    run = run_of({"train.py": text}, "train.py")
    assert (run.settings.get(shared.stops) is not None) is stops


def test_a_class_around_another_model_is_loaded_with_it() -> None:
    """Where that lies is what the function decides that loads it."""
    run = _run(
        imports="from own import load, Around",
        load="model = load('Qwen/Qwen2.5-7B')\nwhole = Around.from_pretrained('logs/x', base=model)",
        name="whole",
        own="from transformers import AutoModelForCausalLM, PreTrainedModel\n"
        "def load(name, device_map='auto'):\n"
        "    return AutoModelForCausalLM.from_pretrained(name, device_map=device_map, **more)\n"
        "class Around(PreTrainedModel):\n    pass\n",
    )
    assert run.cells.is_unread(f.load.device_map)


_WRAPPED = """\
from transformers import AutoModelForCausalLM
class Wrapped:
    def __init__(self, name, load_in_4bit=False):
        settings = {"quantization_config": packed()} if load_in_4bit else {}
        self.model = AutoModelForCausalLM.from_pretrained(name, **settings)
    def prepare(self):
        self.model = get_peft_model(self.model, LoraConfig(r=16))
"""
_USES_WRAPPED = """\
import argparse
from transformers import Trainer, TrainingArguments
from own import Wrapped
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="Qwen/Qwen2.5-7B")
parser.add_argument("--max_length", type=int, default=1024)
args = parser.parse_args()
whole = Wrapped(args.model, load_in_4bit=True)
whole.prepare()
data = cut(args.max_length)
Trainer(model=whole.model, args=TrainingArguments(output_dir='o'), train_dataset=data).train()
"""


def test_what_an_object_of_the_projects_own_makes_of_its_model_is_not_known() -> None:
    run = run_of({"train.py": _USES_WRAPPED, "own.py": _WRAPPED}, "train.py")
    assert _open(run) >= {"trainable", "dtype", "quantization", "checkpointing"}
    assert run.cells.is_unread(f.load.device_map)


@pytest.mark.parametrize(("option", "length"), [("", 1024), (" --max_length 256", 256)])
def test_a_command_says_over_the_default_how_long_samples_are(option: str, length: int) -> None:
    line = f"python train.py --model Qwen/Qwen2.5-7B{option}\n"
    run = run_of({"train.py": _USES_WRAPPED, "own.py": _WRAPPED, "run.sh": line})
    assert run.plan.seq.max_len == length
    assert run.level(f.seq.max_len) is Level.ASSUMED


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("meta-llama/Llama-3.1-8B", "torchrun --nproc_per_node=4"),
        ("meta-llama/Llama-3.3-70B-Instruct", "python"),
    ],
)
def test_fields_that_nobody_read_are_tried_at_what_weighs_least_together(
    model: str, line: str
) -> None:
    """In 4 bit, with an adapter, recomputed and spread, where none of them alone suffices."""
    report = report_of(
        {
            "train.py": _USES_WRAPPED,
            "own.py": _WRAPPED,
            "run.sh": f"{line} train.py --model {model} --max_length 256\n",
        },
        hardware="4xRTX-4090-24GB",
    )
    assert {each.finding.severity for each in report.diagnoses} <= {Severity.INFO}


_OPTIONS_OF_ITS_OWN = """\
import argparse
from dataclasses import dataclass
from trl import GRPOConfig, GRPOTrainer

@dataclass
class Options:
    model: str
    batch: int

def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument('--model', {how})
    parser.add_argument('--batch', type=int, default=2)
    return {given}

def main():
    args = parse_args()
    trainer = GRPOTrainer(model=args.model, reward_funcs=score, train_dataset=data,
        args=GRPOConfig(output_dir='o', per_device_train_batch_size=2, bf16=True))
    trainer.train()

main()
"""


@pytest.mark.parametrize("given", ["parser.parse_args()", "Options(**vars(parser.parse_args()))"])
def test_the_name_of_a_model_among_options_is_no_object_that_makes_it(given: str) -> None:
    text = _OPTIONS_OF_ITS_OWN.format(how="default='Qwen/Qwen2.5-7B'", given=given)
    run = run_of({"train.py": text}, "train.py")
    assert run.plan.model.id == "Qwen/Qwen2.5-7B"
    assert not _open(run)


def test_a_required_option_names_the_model_too() -> None:
    text = _OPTIONS_OF_ITS_OWN.format(how="required=True", given="parser.parse_args()")
    files = {"train.py": text, "train.sh": "python train.py --model Qwen/Qwen2.5-7B\n"}
    run = run_of(files, "train.sh", "train.py")
    assert run.plan.model.id == "Qwen/Qwen2.5-7B"
    assert not _open(run)
