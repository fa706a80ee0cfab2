"""``oomlint estimate MODEL`` and ``oomlint new MODEL``: an answer without a config, and a config."""

import json

import pytest
from tests.command import oomlint

from oomlint_schemas.validation import problems

MODEL = "Qwen/Qwen2.5-1.5B"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_estimate_answers_for_a_model():
    done = oomlint("estimate", MODEL, "--method", "qlora", "--hardware", "T4")
    assert done.exit_code == 0, done.stderr
    said = done.stdout
    assert said.startswith(f"{MODEL} (trl)\n  on T4-16GB")
    assert "verdict: fits T4-16GB" in said
    assert "  seq.max_len = 2048: usual for instructions; --length says otherwise" in said
    assert "smallest common cards that hold it:\n" in said
    assert "what lowers it most, each alone:\n" in said


def test_the_json_is_that_of_estimate_and_more():
    done = oomlint("estimate", MODEL, "--method", "full", "--output-format", "json")
    said = json.loads(done.stdout)
    assert problems("estimate", done.stdout_bytes) == []
    (run,) = said["runs"]
    assert (run["name"], run["files"], run["verdict"]) == (MODEL, [], "unknown")
    assert run["plan"]["trainable"]["method"] == "full"
    assert sum(run["gpu"]["components"].values()) == run["gpu"]["peak_bytes"]
    assert {"field": "framework", "value": "trl"}.items() <= run["assumptions"][0].items()
    assert said["model"]["name"] == MODEL
    card = said["cards"][0]
    assert card["gpu_bytes"] < card["usable_gpu_bytes"]
    assert said["lowers"][0]["saving_bytes"] > 0


def test_estimate_and_the_file_that_new_writes_say_the_same(folder):
    options = ("--method", "lora", "--length", "4096", "--framework", "axolotl")
    asked = oomlint("estimate", MODEL, *options, "--hardware", "L4", "--output-format", "json")
    written = oomlint("new", MODEL, *options, "--hardware", "L4", "--output", "a.yaml")
    assert written.exit_code == 0, written.stderr
    linted = oomlint("estimate", "a.yaml", "--hardware", "L4", "--output-format", "json")
    (mine,), (theirs,) = (json.loads(done.stdout)["runs"] for done in (asked, linted))
    assert mine["gpu"] == theirs["gpu"]
    assert mine["host"] == theirs["host"]


def test_a_folder_of_a_model_is_no_run(folder):
    config = {
        "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "vocab_size": 1000,
        "num_attention_heads": 8, "intermediate_size": 512, "max_position_embeddings": 512,
    }  # fmt: skip
    (folder / "mine").mkdir()
    (folder / "mine" / "config.json").write_text(json.dumps(config))
    for word in ("mine", "./mine", "mine/config.json", str(folder / "mine")):
        done = oomlint("estimate", word, "--method", "full")
        assert done.exit_code == 0, done.stderr
        assert "seq.max_len = 512: all that the model takes" in done.stdout
    done = oomlint("new", "./mine", "--framework", "trl", "--hardware", "T4")
    assert "model_name_or_path: ./mine\n" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("Qwen/Qwen2.5-1.5X",), "nearest: Qwen/Qwen2.5-1.5B"),
        (("nothing.yaml",), "nothing.yaml does not exist"),
        (("./nothing",), "./nothing does not exist"),
        ((MODEL, "--rank", "8", "--method", "full"), "a rank is that of an adapter"),
        ((MODEL, "other/model"), "does not exist"),
        ((MODEL, "--framework", "verl"), "writes no config of verl; it does of trl"),
        ((MODEL, "--shard", "zero3", "--hardware", "T4"), "here is one"),
        ((MODEL, "--set", "seq.max_length=1"), "did you mean seq.max_len?"),
    ],
)
def test_wrong_words_are_refused(words, said):
    done = oomlint("estimate", *words)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_model_that_nobody_knows_is_asked_for_by_a_folder(folder):
    done = oomlint("estimate", "lama-3.1-8b")
    assert done.exit_code == 2
    assert "nearest: meta-llama/Llama-3.1-8B" in done.stderr
    assert "download its config.json" in done.stderr
    assert done.stderr.endswith("and name the folder\n")


def test_options_of_a_model_with_files_are_refused(folder):
    (folder / "a.yaml").write_text("base_model: x\nmicro_batch_size: 1\n")
    done = oomlint("estimate", "a.yaml", "--method", "lora")
    assert done.exit_code == 2
    assert "a.yaml says itself how it trains" in done.stderr
    done = oomlint("estimate", "--plan", "p.json", "--rank", "4")
    assert "--plan goes without --method" in done.stderr


def test_new_writes_to_standard_output_and_tells_on_standard_error():
    done = oomlint("new", MODEL, "--framework", "llama-factory", "--hardware", "2xRTX-4090")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"# {MODEL} with LoRA on 2xRTX-4090-24GB: ")
    assert "finetuning_type: lora\n" in done.stdout
    assert "  start it with: llamafactory-cli train llama-factory.yaml\n" in done.stderr
    quiet = oomlint("new", MODEL, "--framework", "trl", "--hardware", "T4", "--quiet")
    assert quiet.stderr == ""


def test_new_overwrites_nothing_without_being_told(folder):
    (folder / "a.yaml").write_text("mine\n")
    words = ("new", MODEL, "--framework", "trl", "--hardware", "T4", "--output", "a.yaml")
    refused = oomlint(*words)
    assert refused.exit_code == 2
    assert "a.yaml is there already; --overwrite replaces it" in refused.stderr
    assert (folder / "a.yaml").read_text() == "mine\n"
    assert oomlint(*words, "--overwrite").exit_code == 0
    assert "model_name_or_path" in (folder / "a.yaml").read_text()


def test_new_writes_nothing_where_nothing_fits(folder):
    words = ("meta-llama/Llama-3.1-70B", "--framework", "trl", "--hardware", "T4")
    done = oomlint("new", *words, "--output", "a.yaml")
    assert (done.exit_code, done.stdout) == (1, "")
    assert (
        "nothing was written: meta-llama/Llama-3.1-70B with QLoRA fits T4 in no way" in done.stderr
    )
    assert not (folder / "a.yaml").exists()
