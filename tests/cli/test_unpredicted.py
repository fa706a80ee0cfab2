"""A run of which nothing is predicted: every surface says why in the same words."""

import json

import pytest

from oomlint.judgement import judgement_of_plan
from oomlint.judgement.unpredicted import why_unpredicted
from oomlint.plan import Plan

CONFIG = "base_model: acme/house-model\ndatasets:\n  - path: a\nmicro_batch_size: 1\n"
WHY = (
    "the model acme/house-model is not known: state --set model.id=… with the model that it "
    "derives from, or put its config.json into acme/house-model/"
)


@pytest.mark.parametrize(
    "words",
    [
        ("check", "train.yaml", "--hardware", "H100", "--verbose"),
        ("check", "train.yaml", "--verbose"),
        ("check", "train.yaml"),
        ("estimate", "train.yaml"),
        ("fit", "train.yaml", "--hardware", "H100"),
        ("fit", "train.yaml"),
        ("why", "train.yaml"),
        ("compare", "train.yaml", "axolotl.yaml"),
    ],
)
def test_every_command_says_why_there_is_no_prediction(oomlint, axolotl, project, words):
    (project / "train.yaml").write_text(CONFIG)
    text = " ".join(oomlint(*words).stdout.split())
    assert WHY in text
    assert "unknown: model.dims" not in text


def test_the_page_says_it_too(oomlint, project):
    (project / "train.yaml").write_text(CONFIG)
    oomlint("estimate", "train.yaml", "--html", "page.html")
    assert f"No prediction: {WHY}" in (project / "page.html").read_text()


def test_the_config_json_that_is_asked_for_is_found_there(oomlint, project):
    (project / "train.yaml").write_text(CONFIG)
    folder = project / "acme" / "house-model"
    folder.mkdir(parents=True)
    config = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192}
    config |= {"num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 128256}))
    assert "per GPU: " in oomlint("estimate", "train.yaml").stdout


def test_the_model_that_is_asked_for_is_enough(oomlint, project):
    (project / "train.yaml").write_text(CONFIG)
    stated = ("--set", "model.id=meta-llama/Llama-3.2-1B")
    assert "per GPU: " in oomlint("estimate", "train.yaml", *stated).stdout


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({}, "names no model that is known"),
        ({"model.id": "acme/house-model"}, "names no model that is known"),
    ],
)
def test_a_plan_is_told_what_a_plan_can_say(plan, says):
    told = why_unpredicted(judgement_of_plan(Plan().with_values(plan)).spoken)
    assert says in told
    assert "--set" not in told


def test_nobody_is_sent_to_a_folder_that_is_none(oomlint, project):
    (project / "train.yaml").write_text(CONFIG.replace("acme/house-model", "$MODEL"))
    told = oomlint("estimate", "train.yaml").stdout
    assert "--set model.id=" in told
    assert "config.json" not in told


def test_the_summary_counts_such_runs_by_name(oomlint, project):
    (project / "train.yaml").write_text(CONFIG)
    told = oomlint("train.yaml", "--hardware", "H100").stdout
    assert told.splitlines()[-1].startswith("1 run: without a prediction; ")


@pytest.mark.parametrize("command", ["check", "estimate"])
def test_json_says_why_there_is_no_prediction(oomlint, axolotl, project, command):
    (project / "train.yaml").write_text(CONFIG)
    (unknown,) = json.loads(oomlint(command, "train.yaml", "--output-format", "json").stdout)[
        "runs"
    ]
    assert unknown["unpredicted"] == WHY
    (known,) = json.loads(oomlint(command, "axolotl.yaml", "--output-format", "json").stdout)[
        "runs"
    ]
    assert known["unpredicted"] is None
