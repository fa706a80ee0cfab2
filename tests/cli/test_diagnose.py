"""``oomlint diagnose`` on the command line: outputs, exit statuses, the run's config."""

import json

import pytest

from oomlint_schemas import load

OOM = (
    "[rank0]: Traceback (most recent call last):\n"
    '[rank0]:   File "/e/transformers/trainer.py", line 3698, in training_step\n'
    '[rank0]:   File "/e/accelerate/accelerator.py", line 2117, in backward\n'
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a "
    "total capacity of 79.10 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this "
    "process has 78.00 GiB memory in use. Of the allocated memory 76.00 GiB is allocated by PyTorch, "
    "and 0.25 GiB is reserved by PyTorch but unallocated.\n"
)


@pytest.fixture
def log(project):
    file = project / "train.log"
    file.write_text(OOM)
    return file


def test_a_death_is_told_with_its_place_and_the_status_is_1(oomlint, log):
    result = oomlint("diagnose", "train.log")
    assert result.exit_code == 1
    assert result.stdout.startswith(
        "GPU 0 (79.1 GiB) ran out of memory in the backward pass (rank 0)\n"
    )
    assert "train.log:4:" in result.stdout
    assert "What usually explains it" in result.stdout
    assert "OOM101 no-gradient-checkpointing" in result.stdout


def test_a_log_without_a_death_has_status_0(oomlint, project):
    (project / "train.log").write_text("all is well\n")
    result = oomlint("diagnose", "train.log")
    assert (result.exit_code, result.stdout) == (0, "nothing in these logs tells of a death\n")


def test_the_config_says_which_rule_it_is_and_what_was_predicted(oomlint, log, axolotl):
    result = oomlint("diagnose", "train.log", "--config", "axolotl.yaml", "--output-format", "json")
    shape = json.loads(result.stdout)
    explanations = shape["explanations"]
    assert explanations[0]["name"] == "no-gradient-checkpointing"
    assert explanations[0]["finding"]["path"] == "axolotl.yaml"
    # The card comes from the log: without one the finding would have no limit.
    assert explanations[0]["finding"]["limit_bytes"] is not None
    (comparison,) = shape["comparisons"]
    # What was in use, less what the allocator could still give back, and what was asked for.
    assert comparison["measured_bytes"] == (78 - 0.25 + 3) * 2**30
    assert comparison["is_floor"]
    assert comparison["low_bytes"] < comparison["predicted_bytes"] < comparison["high_bytes"]
    assert comparison["run"] is not None


LOGITS = OOM.replace(
    '[rank0]:   File "/e/accelerate/accelerator.py", line 2117, in backward\n',
    '[rank0]:   File "/e/transformers/loss/loss_utils.py", line 55, in ForCausalLMLoss\n'
    "[rank0]:     logits = logits.float()\n",
)


def test_the_frame_names_the_rule_without_a_config_and_with_one(oomlint, project, axolotl):
    (project / "train.log").write_text(LOGITS)
    (project / "unheard.yaml").write_text("base_model: a/b\ndatasets:\n  - path: a\n")
    explained = {}
    for config in (None, "axolotl.yaml", "unheard.yaml"):
        given = () if config is None else ("--config", config)
        result = oomlint("diagnose", "train.log", *given, "--output-format", "json")
        explained[config] = json.loads(result.stdout)["explanations"][0]
    assert {each["code"] for each in explained.values()} == {"OOM103"}
    assert explained["axolotl.yaml"]["finding"] is not None
    assert explained["unheard.yaml"]["finding"] is None
    told = oomlint("diagnose", "train.log", "--config", "unheard.yaml").stdout
    assert "OOM103 logits-materialized-large-vocab (by the traceback)" in told


def test_a_log_is_held_against_the_run_as_it_was_written(oomlint, project, axolotl):
    """What its author means by a misspelt key is not what ran: there is one number, that of the run as written."""
    (project / "train.log").write_text(LOGITS)
    axolotl.write_text(axolotl.read_text().replace("sequence_len:", "sequence_length:"))
    text = oomlint("diagnose", "train.log", "--config", "axolotl.yaml").stdout
    asked = ("estimate", "axolotl.yaml", "--hardware", "79.1GiB", "--output-format", "json")
    run = json.loads(oomlint(*asked).stdout)["runs"][0]
    written, meant = (
        f"{each['gpu']['peak_bytes'] / 2**30:.1f} GiB" for each in (run, run["as_meant"])
    )
    assert written != meant
    assert f"axolotl.yaml: predicted peak {written} per GPU" in text
    assert "(as written, where sequence_length does nothing)" in text
    assert f"predicted for axolotl.yaml: {written}" in text
    assert meant not in text
    assert "read as" not in text


def test_rules_that_are_about_something_else_are_left_out(oomlint, project, axolotl):
    (project / "kernel.log").write_text(
        "[ 7.1] Out of memory: Killed process 9 (python) total-vm:9kB, anon-rss:512kB, file-rss:0kB\n"
    )
    result = oomlint(
        "diagnose", "kernel.log", "--config", "axolotl.yaml", "--output-format", "json"
    )
    names = {e["name"] for e in json.loads(result.stdout)["explanations"]}
    assert "no-gradient-checkpointing" not in names


def test_hardware_given_wins_over_that_of_the_log(oomlint, log, axolotl):
    result = oomlint(
        "diagnose", "train.log", "--config", "axolotl.yaml", "--hardware", "A100-40GB",
        "--output-format", "json",
    )  # fmt: skip
    finding = json.loads(result.stdout)["explanations"][0]["finding"]
    assert finding["limit_bytes"] < 41 * 2**30


def test_the_json_is_as_its_schema_says(oomlint, log, axolotl):
    import jsonschema

    schema = load("diagnose")
    for arguments in ((), ("--config", "axolotl.yaml")):
        result = oomlint("diagnose", "train.log", *arguments, "--output-format", "json")
        jsonschema.validate(json.loads(result.stdout), schema)


def test_standard_input_is_a_log(oomlint):
    result = oomlint("diagnose", "-", stdin=OOM.encode())
    assert result.exit_code == 1
    assert "standard input:4" in result.stdout or "-:4:" in result.stdout


def test_an_annotation_for_github(oomlint, log):
    result = oomlint("diagnose", "train.log", "--output-format", "github")
    assert result.stdout.startswith("::error title=oomlint diagnose::GPU 0 (79.1 GiB) ran out")
    assert result.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a log"),
        (["gone.log"], "gone.log does not exist"),
        (["."], "is a folder"),
        (["-", "-"], "once"),
        (["train.log", "--hardware", "H100"], "--config"),
        (["train.log", "--config", "gone.yaml"], "gone.yaml does not exist"),
    ],
)
def test_wrong_usage_exits_with_2(oomlint, log, arguments, message):
    result = oomlint("diagnose", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_log_that_is_damaged_exits_with_3_and_says_what_it_can(oomlint, project):
    import gzip

    noise = b"".join(b"%d\n" % (n * 7919) for n in range(400_000))
    (project / "train.log.gz").write_bytes(gzip.compress(OOM.encode() + noise)[:-9000])
    result = oomlint("diagnose", "train.log.gz")
    assert result.exit_code == 3
    assert "ran out of memory in the backward pass" in result.stdout
    assert "damaged" in result.stderr


def test_control_characters_of_a_log_do_not_reach_the_terminal(oomlint, project):
    (project / "train.log").write_text(
        "\x1b]0;title\x07\x1b[2J" + "\x08\x08" + OOM.splitlines()[-1] + "\n"
    )
    assert "\x1b" not in oomlint("diagnose", "train.log").stdout
