"""``rules``, ``explain``, ``hardware``, ``models``, ``config``, ``init``, ``test-rules``."""

import json
import re

import pytest

from oomlint.config.settings import kebab_keys
from oomlint.linting.engine import all_rules


def test_rules_lists_every_rule(oomlint):
    lines = oomlint("rules").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[r.code, r.name] for r in all_rules()]
    listed = json.loads(oomlint("rules", "--output-format", "json").stdout)
    assert [rule["code"] for rule in listed] == [rule.code for rule in all_rules()]
    assert all(rule["url"].endswith(f"/docs/rules/{rule['name']}.md") for rule in listed)


@pytest.mark.parametrize("word", ["OOM101", "oom101", "no-gradient-checkpointing"])
def test_explain_prints_the_page_and_an_example(oomlint, word):
    page = oomlint("explain", word).stdout
    assert page.startswith("# no-gradient-checkpointing (OOM101)")
    assert "## How to fix it" in page
    assert "+gradient_checkpointing: true" in page


def test_explain_offers_the_nearest_name(oomlint):
    result = oomlint("explain", "no-gradient-checkpoint")
    assert result.exit_code == 2
    assert "did you mean no-gradient-checkpointing?" in result.stderr


def test_hardware(oomlint):
    every = oomlint("hardware").stdout
    assert "A100-80GB" in every
    assert "p4d.24xlarge" in every
    one = oomlint("hardware", "8xa100-80gb").stdout
    assert "A100-80GB (NVIDIA)" in one
    assert "source" in one
    data = json.loads(oomlint("hardware", "p4d.24xlarge", "--output-format", "json").stdout)
    assert data["gpus_per_node"] == 8
    assert data["gpu"]["name"] == "A100-40GB"
    listed = json.loads(oomlint("hardware", "--output-format", "json").stdout)
    assert {gpu["name"] for gpu in listed["gpus"]} >= {"H100-80GB", "MI300X-192GB"}
    assert oomlint("hardware", "A1000").exit_code == 2


def test_a_card_of_several_sizes_is_shown_in_each(oomlint):
    both = oomlint("hardware", "A100")
    assert both.exit_code == 0
    assert "A100-40GB (NVIDIA)" in both.stdout
    assert "A100-80GB (NVIDIA)" in both.stdout
    data = json.loads(oomlint("hardware", "A100", "--output-format", "json").stdout)
    assert [gpu["name"] for gpu in data["gpus"]] == ["A100-40GB", "A100-80GB"]
    assert "GPUs per node" in oomlint("hardware", "H20").stdout, "the usual one of its name"
    assert oomlint("hardware", "8xA100").exit_code == 2, "a run has one of them"


def test_models(oomlint):
    assert "Qwen/Qwen2.5-7B" in oomlint("models").stdout
    one = oomlint("models", "meta-llama/Llama-3.1-8B").stdout
    assert "8.03B" in one
    sizes = [line for line in one.splitlines() if " GiB on one GPU, micro batch 1" in line]
    assert [line.split("  ")[0] for line in sizes] == [
        "all weights trained",
        "LoRA, rank 16",
        "QLoRA, rank 16",
    ]
    assert "weights in 16 bits   15.0 GiB" in one
    assert "oomlint estimate meta-llama/Llama-3.1-8B --method lora" in one
    assert "source" in one
    data = json.loads(
        oomlint("models", "meta-llama/Llama-3.1-8B", "--output-format", "json").stdout
    )
    assert data["dims"]["params_total"] == 8030261248
    result = oomlint("models", "meta-llama/Llama-3.1-8Bx")
    assert "meta-llama" in result.output


def test_a_model_of_which_the_name_tells_only_the_size_has_others_beside_it(oomlint):
    result = oomlint("models", "lama-3.1-8b")
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in result.stdout.splitlines())
    assert rows["parameters"] == "8B"
    assert rows["nearest"].startswith("meta-llama/Llama-3.1-8B")
    assert (
        "more" not in rows
    )  # `oomlint estimate lama-3.1-8b` would say that it knows no such model


def test_a_model_that_nobody_knows(oomlint):
    result = oomlint("models", "nobody/knows-this")
    assert result.exit_code == 2
    assert "no model is known as 'nobody/knows-this'" in result.stderr


def test_init_writes_a_file_in_which_nothing_is_in_force(oomlint, project):
    assert oomlint("init").exit_code == 0
    text = (project / "oomlint.toml").read_text()
    assert all(f"# {key} = " in text or f"# [{key}" in text for key in kebab_keys())
    shown = oomlint("config").stdout
    assert str(project / "oomlint.toml") in shown.splitlines()[0]
    assert all(line.endswith("(default)") for line in shown.splitlines()[1:])
    assert oomlint("init").exit_code == 2, "an existing file is kept"


def test_every_example_of_the_template_is_valid(oomlint, project):
    oomlint("init")
    file = project / "oomlint.toml"
    lines = [
        line[2:] if line.startswith("# ") and (" = " in line or line.startswith("# [")) else line
        for line in file.read_text().splitlines()
        if "tool.oomlint" not in line
    ]
    file.write_text("\n".join(lines))
    result = oomlint("config")
    assert result.exit_code == 0, result.stderr
    origins = [line for line in result.stdout.splitlines()[1:] if "oomlint.toml:" in line]
    assert len(origins) == len(kebab_keys())


def test_config_says_where_each_value_comes_from(oomlint, project):
    (project / "pyproject.toml").write_text('[tool.oomlint]\n\nhardware = "8xA100-80GB"\n')
    (project / "sub").mkdir()
    shown = oomlint("config", "sub").stdout
    assert f'hardware           "8xA100-80GB"  ({project / "pyproject.toml"}:3)' in shown
    data = json.loads(oomlint("config", "sub", "--output-format", "json").stdout)
    assert data["settings"]["margin"] == {"value": 0.85, "origin": "default"}
    assert "hardware           -  (default)" in oomlint("config", "--isolated").stdout
    assert oomlint("config", "missing").exit_code == 2


def test_test_rules_passes_ours_and_fails_a_broken_one(oomlint, project, monkeypatch):
    (project / "my_rules.py").write_text(
        "from oomlint import Rule\n"
        "class Silent(Rule):\n"
        "    code = 'OOM199'\n"
        "    name = 'silent'\n"
        "    summary = 'never speaks.'\n"
        "    def check(self, run):\n"
        "        return ()\n"
    )
    monkeypatch.syspath_prepend(str(project))
    result = oomlint("test-rules", "my_rules")
    assert result.exit_code == 1
    assert "failed  OOM199  silent" in result.stdout
    assert "has no bad example" in result.stdout
    assert oomlint("test-rules", "no_such_package").exit_code == 2
    assert oomlint("test-rules", "oomlint_rules.settings.unknown_key_ignored").exit_code == 0


def test_help_lists_every_command(oomlint):
    text = oomlint("--help").stdout
    for command in (
        "check",
        "estimate",
        "rules",
        "explain",
        "hardware",
        "models",
        "config",
        "init",
    ):
        assert f"\n  {command}" in text


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("a100-80", "A100-80GB"),
        ("8x24GB", "8xcustom-24GB"),
        ("colab", "Colab T4"),
        ("auto", "auto"),
    ],
)
def test_init_keeps_the_hardware_by_its_name(oomlint, project, given, written):
    assert oomlint("init", "--hardware", given).exit_code == 0
    lines = (project / "oomlint.toml").read_text().splitlines()
    assert f'hardware = "{written}"' in lines
    assert not [line for line in lines if line and line[0] != "#" and "hardware" not in line]
    assert f'"{written}"' in oomlint("config").stdout


def test_what_init_kept_is_in_force(oomlint, project, axolotl):
    oomlint("init", "--hardware", "2x24GB")
    assert "does not fit 2xcustom-24GB" in " ".join(oomlint("-v").stdout.split())


def test_init_writes_no_hardware_that_there_is_not(oomlint, project):
    result = oomlint("init", "--hardware", "A100")
    assert result.exit_code == 2
    assert "A100-40GB or A100-80GB" in result.stderr
    assert not (project / "oomlint.toml").exists()
