"""After any edits the diagnostics are those of the same texts that were never linted before."""

import gc
import json
from random import Random

import pytest
from pygls.protocol import default_converter

from oomlint.lsp.diagnostics import diagnostics
from oomlint.lsp.hints import status
from oomlint.lsp.pages import Pages
from oomlint.lsp.project import Project
from oomlint.lsp.view import Client, View
from oomlint.runs.run import Run
from oomlint.session.request import CheckRequest

RUN = """\
base_model: NousResearch/Meta-Llama-3-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: {length}
sample_packing: true
micro_batch_size: {micro}
gradient_accumulation_steps: 4
optimizer: {optimizer}
bf16: true
gradient_checkpointing: {checkpointing}
flash_attention: true
deepspeed: ds.json
output_dir: ./out
"""
SCRIPT = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("NousResearch/Meta-Llama-3-8B")
args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size={micro},
    bf16=True,
    deepspeed="ds.json",
    gradient_checkpointing={checkpointing},
)
Trainer(model=model, args=args, train_dataset=data).train()
"""


def _run(draw: Random) -> str:
    text = RUN.format(
        length=draw.choice((2048, 8192)),
        micro=draw.choice((1, 4, 16)),
        optimizer=draw.choice(("adamw_torch_fused", "adamw_8bit")),
        checkpointing=draw.choice(("true", "false")),
    )
    broken = "micro_batch_size: [\n" if draw.random() < 0.1 else ""
    return "# a note\n" * draw.randrange(3) + text + broken


def _script(draw: Random) -> str:
    values = {"micro": draw.choice((1, 8)), "checkpointing": draw.choice((True, False))}
    return SCRIPT.format(**values) + "# a note\n" * draw.randrange(2)


def _json(draw: Random) -> str:
    zero = {"stage": draw.choice((0, 2, 3)), "overlap_comm": draw.choice((True, False))}
    zero |= draw.choice(
        ({}, {"reduce_bucket_size": 500000000}, {"offload_optimizer": {"device": "cpu"}})
    )
    value = {"zero_optimization": zero, "bf16": {"enabled": draw.choice((True, "auto"))}}
    value |= draw.choice(({}, {"steps_per_print": draw.randrange(100)}, {"bf_16": True}))
    return json.dumps(value, indent=draw.choice((None, 2))) + " " * draw.randrange(2)


PAGES = Pages()
EDITS = {"ds.json": _json, "one.yaml": _run, "two.yaml": _run, "train.py": _script}


CONVERTER = default_converter()


def _told(project, name):
    analysis = project.analyse(name)
    return diagnostics(analysis, View(analysis, Client(), {}, PAGES)), status(analysis)


def _sent(told):
    """The bytes in which a client is told."""
    found, shown = told
    return json.dumps([CONVERTER.unstructure(found), CONVERTER.unstructure(shown)]).encode()


def _opened(folder, texts, request):
    project = Project(folder)
    project.configure(request)
    for name, text in texts.items():
        project.put(name, text.encode())
    return project


@pytest.mark.parametrize("seed", range(3))
def test_what_was_linted_before_leaves_no_trace(tmp_path, seed):
    draw = Random(seed)
    request = CheckRequest(hardware="8xA100-80GB", host_memory="512GiB")
    texts = {name: edit(draw) for name, edit in EDITS.items()}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    project = _opened(tmp_path, texts, request)
    heard = set()
    for _ in range(12):
        name = draw.choice([*EDITS, "ds.json", "ds.json"])
        texts[name] = EDITS[name](draw)
        project.put(name, texts[name].encode())
        fresh = _opened(tmp_path, texts, request)
        for each in (name, *(n for n in EDITS if draw.random() < 0.3)):
            told = _told(project, each)
            assert told == _told(fresh, each), (each, texts)
            heard |= {d.data["name"] for found in told[0].values() for d in found if d.data}
    assert {"gpu-memory-at-risk", "micro-batch-too-large"} <= heard


USERS = 4
SWEPT = """\
base_model: {model}
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: {length}
micro_batch_size: {micro}
optimizer: adamw_torch_fused
bf16: true
flash_attention: true
deepspeed: ds.json
output_dir: ./out-{number}
"""
TUNED = """\
model_name_or_path: {model}
stage: sft
do_train: true
finetuning_type: full
dataset: alpaca_en
cutoff_len: {length}
per_device_train_batch_size: {micro}
bf16: true
deepspeed: ds.json
output_dir: ./out-{number}
"""
ACCELERATED = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  deepspeed_config_file: ds.json
  zero3_init_flag: {init}
num_machines: 1
num_processes: {ranks}
"""
STARTED = "accelerate launch --config_file acc.yaml train.py {more}\ndeepspeed train.py {more}\n"


def _shared(draw):
    """Configs of two frameworks, a script with its launch lines and a config of Accelerate, all of which share a JSON."""
    models = ("NousResearch/Meta-Llama-3-8B", "Qwen/Qwen2.5-7B", "mistralai/Mistral-7B-v0.1")
    texts = {"ds.json": _json(draw), "train.py": _script(draw)}
    for number in range(USERS):
        name, text = (f"run{number}.yaml", SWEPT) if number % 2 else (f"sft{number}.yaml", TUNED)
        values = {"model": draw.choice(models), "micro": draw.choice((1, 8)), "number": number}
        texts[name] = text.format(length=draw.choice((2048, 8192)), **values)
    texts["acc.yaml"] = ACCELERATED.format(
        init=draw.choice(("true", "false")), ranks=draw.choice((2, 8))
    )
    texts["start.sh"] = STARTED.format(more=draw.choice(("", "--seed 1")))
    texts["requirements.txt"] = draw.choice(("", "transformers==4.46.0\n", "deepspeed==0.15.0\n"))
    return texts


def _edited(draw, name, text):
    """A text after an edit of some kind: other values, a note, a part that is gone, or as it was."""
    kind = draw.randrange(4)
    if kind == 0:
        return _shared(draw).get(name, text)
    if kind == 1:
        return " " + text if name.endswith(".json") else "# a note\n" + text
    if kind == 2:
        lines = text.splitlines(keepends=True)
        del lines[draw.randrange(len(lines)) : draw.randrange(len(lines) + 1)]
        return "".join(lines) or text
    return text


@pytest.mark.parametrize("seed", range(2))
def test_a_session_is_told_byte_for_byte_what_a_fresh_check_says(tmp_path, seed):
    draw = Random(seed)
    request = CheckRequest(hardware="8xA100-80GB", host_memory="512GiB")
    texts = _shared(draw)
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    opened = [name for name in texts if not name.endswith(".txt")]
    project = _opened(tmp_path, {name: texts[name] for name in opened}, request)
    told = [_sent(_told(project, "ds.json"))]
    for _ in range(10):
        name = draw.choice([*opened, "ds.json", "ds.json", "ds.json"])
        texts[name] = _edited(draw, name, texts[name])
        project.put(name, texts[name].encode())
        fresh = _opened(tmp_path, {name: texts[name] for name in opened}, request)
        for each in dict.fromkeys(("ds.json", name)):
            told.append(_sent(_told(project, each)))
            assert told[-1] == _sent(_told(fresh, each)), (each, texts)
    assert len(set(told)) > 2


def test_the_runs_of_an_edit_go_with_the_next(tmp_path):
    """Whatever was asked of them: in a ring they would stay until the collector looks for it."""
    draw = Random(4)
    texts = {name: edit(draw) for name, edit in EDITS.items()}
    project = _opened(tmp_path, texts, CheckRequest(hardware="1xT4-16GB", host_memory="64GiB"))
    counts = []
    gc.collect()
    gc.disable()
    try:
        for number in range(4):
            project.put("ds.json", (texts["ds.json"] + " " * number).encode())
            assert _told(project, "ds.json")
            counts.append(sum(isinstance(each, Run) for each in gc.get_objects()))
    finally:
        gc.enable()
    assert counts[1] == counts[-1] > 0  # the first may have been linted twice
