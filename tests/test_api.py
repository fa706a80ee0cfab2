"""``oomlint.check``: findings from texts alone, the same as from files, and nothing but the texts looked at."""

import json
import os
import subprocess
import sys

import pytest
from tests import command

import oomlint
from oomlint.errors import UsageError

CONFIG = """\
base_model: meta-llama/Llama-3.1-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
micro_batch_size: 1
gradient_accumulation_steps: 8
sequence_len: 4096
bf16: true
learning_rate: 1e-5
deepspeed: ds.json
"""
DEEPSPEED = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}\n'
FILES = {"runs/config.yaml": CONFIG, "runs/ds.json": DEEPSPEED}


def test_says_what_the_command_says_of_the_same_files(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    printed = command.oomlint(
        "check", "runs", "--hardware", "2xA100-80GB", "--output-format", "json"
    ).stdout
    report = oomlint.check(FILES, "2xA100-80GB")
    assert json.loads(json.dumps(report)) == json.loads(printed)
    assert report["runs"][0]["verdict"] == "does_not_fit"


def test_edits_of_a_way_make_the_run_fit():
    report = oomlint.check(FILES, "2xA100-80GB", host_memory="512GiB")
    way = report["runs"][0]["way"]
    texts = dict(FILES)
    for edit in sorted(way["edits"], key=lambda edit: -edit["start"]):
        text = texts[edit["path"]]
        texts[edit["path"]] = text[: edit["start"]] + edit["replacement"] + text[edit["end"] :]
    after = oomlint.check(texts, "2xA100-80GB", host_memory="512GiB")
    assert after["runs"][0]["verdict"] == "fits"
    assert after["runs"][0]["gpu"]["peak_bytes"] == way["gpu_bytes"]


def test_what_files_name_is_found_among_them_or_missing():
    report = oomlint.check({"runs/config.yaml": CONFIG})
    assert "referenced-file-missing" in {finding["name"] for finding in report["findings"]}
    assert report["runs"][0]["hardware"] is None


def test_a_model_may_be_among_the_files():
    config = json.dumps(
        {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 100}
        | {"num_attention_heads": 4, "intermediate_size": 128}
    )
    text = CONFIG.replace("meta-llama/Llama-3.1-8B", "./tiny").replace("deepspeed: ds.json\n", "")
    report = oomlint.check({"config.yaml": text, "tiny/config.json": config})
    assert report["runs"][0]["plan"]["model"]["dims"]["hidden"] == 64


def test_broken_text_is_an_error_of_the_report():
    report = oomlint.check({"oops.yaml": "a: [1\n"})
    assert [(error["path"], error["kind"]) for error in report["errors"]] == [
        ("oops.yaml", "parse")
    ]


def test_options_count():
    on_more = oomlint.check(FILES, "A100-80GB", gpus=8, values={"seq.max_len": 1024})
    run = on_more["runs"][0]
    assert (run["hardware"]["gpus_per_node"], run["plan"]["seq"]["max_len"]) == (8, 1024)
    chosen = oomlint.check(FILES, "2xA100-80GB", select=["gpu-memory-at-risk"])
    assert {finding["name"] for finding in chosen["findings"]} == {"gpu-memory-at-risk"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hardware": "8xA1000-80GB"}, "A100"),
        ({"values": {"seq.max_length": 1}}, "did you mean seq.max_len?"),
        ({"values": {"seq.max_len": "long"}}, "seq.max_len"),
        ({"values": {"seq.max_len": -1}}, "negative"),
        ({"framework": "axolotle"}, "did you mean axolotl?"),
        ({"ignore": ["OOM1000"]}, "no rule is called"),
        ({"gpus": "many"}, "GPUs per node"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        oomlint.check(FILES, **options)


def test_two_names_of_one_file_are_refused():
    with pytest.raises(UsageError, match="named twice"):
        oomlint.check({"a.yaml": "", "./a.yaml": ""})


_WATCHED = """
import os, sys, sysconfig
import oomlint
from oomlint.plugins import rules_in_force
oomlint.check(FILES, "2xA100-80GB", host_memory="512GiB")   # what is imported is read from disk
ours = (sys.prefix, sys.base_prefix, *filter(None, sys.path))
seen = []
def watch(event, args):
    if event in ("open", "os.listdir", "os.scandir", "os.link", "os.rename", "os.remove", "os.mkdir"):
        path = os.fspath(args[0]) if isinstance(args[0], (str, os.PathLike)) else str(args[0])
        if not os.path.abspath(path).startswith(ours):
            seen.append((event, path))
    elif event.startswith(("subprocess.", "_thread.start", "socket.")):
        seen.append((event, args))
texts = {name.replace("runs", "other"): text for name, text in FILES.items()}
for name in ("isfile", "isdir", "lexists", "exists"):
    setattr(os.path, name, lambda path: seen.append((name, path)))
sys.addaudithook(watch)
found = oomlint.check(texts, "2xA100-80GB", host_memory="512GiB")
assert found["runs"][0]["way"]
print(seen)
"""


def test_looks_at_nothing_else(tmp_path):
    script = _WATCHED.replace("FILES", repr(FILES))
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[]\n", done.stderr


def test_models_without_a_config():
    said = oomlint.estimate_model("Qwen/Qwen2.5-1.5B", "T4", method="qlora")
    assert said["runs"][0]["verdict"] == "fits"
    written = oomlint.new_config("Qwen/Qwen2.5-1.5B", "axolotl", "T4", method="qlora")
    assert written["run"]["verdict"] == "fits"
    report = oomlint.check({written["file"]: written["text"]}, "T4")
    assert report["runs"][0]["gpu"] == written["run"]["gpu"]
    assert oomlint.new_config("meta-llama/Llama-3.1-70B", "axolotl", "T4") is None


def test_a_model_that_nobody_knows_is_asked_for_by_its_text_and_not_by_a_folder():
    with pytest.raises(UsageError, match=r"nearest: .*Llama-3\.1-8B.* give its config\.json$"):
        oomlint.estimate_model("lama-3.1-8b")


def test_a_model_by_the_text_of_its_config():
    config = {
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 100,
        "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 256,
    }  # fmt: skip
    said = oomlint.estimate_model("mine", config=json.dumps(config))
    assert said["runs"][0]["plan"]["model"]["dims"]["hidden"] == 64


def test_what_cannot_be_read_here_is_an_error_that_says_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "tree_sitter_bash", None)
    report = oomlint.check({**FILES, "train.sh": "axolotl train runs/config.yaml\n"}, "2xA100-80GB")
    assert report["runs"][0]["verdict"] == "does_not_fit"
    (error,) = report["errors"]
    assert error["path"] == "train.sh"
    assert "tree_sitter_bash is not installed" in error["message"]


def test_code_is_not_edited_without_what_writes_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "libcst", None)
    monkeypatch.delitem(sys.modules, "oomlint.documents.python.edit", raising=False)
    # What an earlier test has imported the package still holds by name.
    monkeypatch.delattr("oomlint.documents.python.edit", raising=False)
    script = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")\n'
        "arguments = TrainingArguments(output_dir='out', per_device_train_batch_size=8)\n"
        "Trainer(model=model, args=arguments).train()\n"
    )
    report = oomlint.check({"train.py": script}, "H200")
    assert report["errors"] == []
    assert report["runs"][0]["gpu"]["peak_bytes"]


def test_what_is_chosen_for_a_model_names_no_option_of_the_command_line():
    found = oomlint.estimate_model("Qwen/Qwen2.5-0.5B")
    reasons = [each["why"] for each in found["runs"][0]["assumptions"]]
    assert len(reasons) >= 5
    assert not [why for why in reasons if "--" in why]
    with pytest.raises(oomlint.errors.UsageError, match="a rank is that of an adapter"):
        oomlint.estimate_model("Qwen/Qwen2.5-0.5B", method="full", rank=8)
