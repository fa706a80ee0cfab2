"""``oomlint compare``: the table, the JSON, several runs, paths without one."""

import json

import pytest
from jsonschema import Draft202012Validator

from oomlint_schemas import load


@pytest.fixture
def other(project, axolotl):
    """The same run with activation checkpointing, which fits."""
    file = project / "other.yaml"
    file.write_text(axolotl.read_text() + "gradient_checkpointing: true\nsave_steps: 7\n")
    return file


@pytest.fixture
def script(project):
    """Two runs in one file."""
    file = project / "train.sh"
    line = "torchrun --nproc_per_node=8 sft.py --model_name_or_path meta-llama/Llama-3.2-1B"
    file.write_text(
        "#!/bin/bash\n"
        f"{line} --bf16 True --per_device_train_batch_size 1 --output_dir a\n"
        f"{line} --bf16 True --per_device_train_batch_size 4 --output_dir b\n"
    )
    return file


def test_text_says_why_one_fits_and_the_other_does_not(oomlint, axolotl, other):
    result = oomlint(
        "compare",
        "axolotl.yaml",
        "other.yaml",
        "--hardware",
        "8xH100-80GB",
        "--set",
        "batch.micro=4",
    )
    assert result.exit_code == 0
    text = result.stdout
    assert "A: axolotl.yaml (axolotl)\n   does not fit 8xH100-80GB" in text
    assert "B: other.yaml (axolotl)\n   fits 8xH100-80GB" in text
    (row,) = (line for line in text.splitlines() if "checkpointing.mode" in line)
    assert (
        row.split()
        == (
            "checkpointing.mode none full default of gradient_checkpointing"
            " | from other.yaml:11 gradient_checkpointing"
        ).split()
    )
    assert "per GPU B needs " in text
    assert " less than A: activation checkpointing -" in text
    assert "without effect on the prediction: " in text
    assert "GiB too much" in text
    assert "\x1b" not in text


def test_json_follows_the_schema_and_adds_up(oomlint, axolotl, other):
    arguments = ("axolotl.yaml", "other.yaml", "--output-format", "json", "--gpus", "4")
    result = oomlint("compare", *arguments, "--set", "seq.max_len=1024")
    found = json.loads(result.stdout)
    Draft202012Validator(load("compare")).validate(found)
    for resource in ("gpu", "host"):
        total = found["b"][resource]["peak_bytes"] - found["a"][resource]["peak_bytes"]
        assert found[resource]["change_bytes"] == total
        assert total == sum(step[resource]["change_bytes"] for step in found["steps"])
    assert found["a"]["plan"]["parallel"]["gpus_per_node"] == 4
    assert {s["group"] for s in found["steps"]} == {"checkpointing"}
    estimated = oomlint(
        "estimate", "other.yaml", "--output-format", "json", "--gpus", "4", "--set", "seq.max_len=1024"
    )  # fmt: skip
    assert json.loads(estimated.stdout)["runs"] == [found["b"]]


def test_each_side_has_the_settings_beside_it(oomlint, project, axolotl):
    for name, card in (("x", "RTX-3090-24GB"), ("y", "H200-141GB")):
        (project / name).mkdir()
        (project / name / "train.yaml").write_text(axolotl.read_text().replace("8\n", "1\n"))
        (project / name / "oomlint.toml").write_text(f'hardware = "8x{card}"\n')
    text = oomlint("compare", "x", "y").stdout
    assert "does not fit 8xRTX-3090-24GB" in text
    assert "fits 8xH200-141GB" in text
    assert "device.type" in text


def test_of_several_runs_the_first_is_taken_and_said_so(oomlint, axolotl, script):
    result = oomlint("compare", "train.sh", "axolotl.yaml")
    assert result.exit_code == 0
    assert "A: train.sh describes 2 runs; compared is the first, " in result.stderr
    assert "train.sh:3" in result.stderr
    listed = json.loads(oomlint("estimate", "train.sh", "--output-format", "json").stdout)
    first, second = (run["name"] for run in listed["runs"])
    chosen = oomlint("compare", "train.sh", "axolotl.yaml", "--run", second)
    assert f"A: {second}" in chosen.stdout
    assert chosen.stderr == ""
    both = oomlint(
        "compare", "train.sh", "train.sh", "--run", first, "--run", second, "--output-format", "json"
    )  # fmt: skip
    found = json.loads(both.stdout)
    assert (found["a"]["name"], found["b"]["name"]) == (first, second)
    assert found["steps"][0]["group"] == "batch"
    wrong = oomlint("compare", "train.sh", "axolotl.yaml", "--run", "third")
    assert wrong.exit_code == 2
    assert "no run is called 'third'; there are" in wrong.stderr
    swapped = oomlint(
        "compare", "train.sh", "axolotl.yaml", "--run", "axolotl.yaml", "--run", first
    )
    assert swapped.exit_code == 2
    assert "A: no run in train.sh is called 'axolotl.yaml'" in swapped.stderr


def test_a_side_without_a_run_is_refused(oomlint, project, axolotl):
    (project / "notes.yaml").write_text("x: 1\n")
    (project / "broken.yaml").write_text("base_model: [\n")
    nothing = oomlint("compare", "axolotl.yaml", "notes.yaml")
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert "no training run found in notes.yaml" in nothing.stderr
    assert oomlint("compare", "axolotl.yaml", "missing.yaml").exit_code == 2
    assert oomlint("compare", "axolotl.yaml").exit_code == 2
    broken = oomlint("compare", "axolotl.yaml", "broken.yaml")
    assert (broken.exit_code, broken.stdout) == (3, "")
    assert "broken.yaml" in broken.stderr


def test_a_model_that_nobody_knows_leaves_the_settings(oomlint, project, axolotl):
    text = axolotl.read_text().replace("meta-llama/Llama-3.2-3B", "acme/unheard-of")
    (project / "unheard.yaml").write_text(text)
    result = oomlint("compare", "axolotl.yaml", "unheard.yaml")
    assert result.exit_code == 0
    assert "no comparison in GiB: unheard.yaml cannot be predicted" in result.stdout
    assert "acme/unheard-of" in result.stdout


def test_the_report_goes_to_a_file(oomlint, project, axolotl, other):
    result = oomlint("compare", "axolotl.yaml", "other.yaml", "--output-file", "out.txt")
    assert result.stdout == ""
    assert "activation checkpointing" in (project / "out.txt").read_text()
