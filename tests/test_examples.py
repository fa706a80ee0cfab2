"""The shipped examples, through the whole command: findings, figures, fix, a clean second run."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from oomlint.cli.group import app

EXAMPLES = Path(__file__).parent.parent / "examples"
GIB = 2**30


@pytest.fixture
def project(tmp_path, monkeypatch, request):
    """A copy of one example, as the working directory."""
    shutil.copytree(EXAMPLES / request.param, tmp_path / request.param)
    monkeypatch.chdir(tmp_path / request.param)
    return tmp_path / request.param


def check(*options):
    result = CliRunner().invoke(app, ["check", "--output-format", "json", *options, "."])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return json.loads(result.stdout)


def by_name(report):
    return {finding["name"]: finding for finding in report["findings"]}


def said(finding):
    """The title and the details, a sentence each."""
    return ". ".join((finding["message"], *finding["details"]))


def run_of(report, name="train.yaml"):
    return next(run for run in report["runs"] if name in run["name"])


@pytest.mark.parametrize("project", ["llama-factory-13b-offload"], indirect=True)
def test_13b_offload_names_the_host_ram_it_needs(project):
    report = check()
    finding = by_name(report)["offload-host-ram-exceeded"]
    assert finding["severity"] == "error"
    assert finding["resource"] == "host"
    # 13.0e9 parameters x 18 bytes = 234e9 bytes, and the processes.
    assert finding["predicted_bytes"] > 234e9
    assert finding["limit_bytes"] == 128 * GIB
    assert any("13B parameters × 18 bytes" in said for said in finding["details"])
    assert run_of(report)["verdict"] == "does_not_fit"


@pytest.mark.parametrize("project", ["llama-factory-70b-zero2"], indirect=True)
def test_70b_zero2_says_what_stage_3_leaves_and_what_is_enough(project):
    report = check()
    found = by_name(report)
    stage = found["zero-stage-too-low"]
    assert stage["severity"] == "error"
    # Two bytes for each of 70.6e9 parameters stay whole on every card.
    assert stage["message"] == "ZeRO stage 2 keeps all 131 GiB of weights on every card"
    assert "131 GiB a card (16 bytes x 70.6B parameters / 8 GPUs)" in said(stage)
    assert "host RAM" in said(stage)
    assert "LoRA" in said(stage)
    # Stage 3 alone is not enough: the headline carries what is.
    assert stage["fix"]["applicability"] == "display"
    assert stage["limit_bytes"] < stage["fix"]["predicted_bytes_after"] < stage["predicted_bytes"]
    way = found["gpu-memory-at-risk"]["fix"]
    assert way["applicability"] == "safe"
    copied = "(in a copy, ds_z3_offload_optimizer.json, since ds_z2.json is called z2)"
    said_way = "shard with ZeRO stage 3; keep the optimizer in host RAM"
    assert way["title"] == f"{said_way} {copied}"
    assert way["predicted_bytes_after"] <= stage["limit_bytes"]
    assert found["micro-batch-too-large"]["fix"]["predicted_bytes_after"]
    lighter = found["adam-fp32-states-dominant"]
    # With it alone the run dies all the same.
    assert lighter["fix"]["applicability"] == "display"
    # ZeRO's partitions are flat: Adafactor keeps its second moment whole there.
    assert "Adafactor" not in said(lighter)

    fixed = check("--fix")
    assert fixed["summary"]["fixed"] >= 1
    # A file that is called by its stage keeps it: the run names another.
    assert json.loads((project / "ds_z2.json").read_text())["zero_optimization"]["stage"] == 2
    copy = json.loads((project / "ds_z3_offload_optimizer.json").read_text())
    zero = copy["zero_optimization"]
    assert zero["stage"] == 3
    assert zero["offload_optimizer"] == {"device": "cpu"}
    plan = run_of(fixed)["plan"]
    assert plan["batch"]["micro"] * plan["batch"]["grad_accum"] == 16
    assert run_of(fixed)["verdict"] in ("fits", "tight")
    assert fixed["summary"]["error"] == 0
    assert check("--fix")["summary"]["fixed"] == 0


@pytest.mark.parametrize("project", ["deepseek-coder-v2-save"], indirect=True)
def test_deepseek_dies_at_the_first_checkpoint(project):
    report = check()
    finding = by_name(report)["zero3-save-gpu-headroom"]
    run = run_of(report)
    assert run["gpu"]["peak_bytes"] < run["hardware"]["usable_gpu_bytes"]
    assert finding["predicted_bytes"] > finding["limit_bytes"]
    assert any(said.endswith("the gather remains") for said in finding["details"])
    assert finding["fix"]["title"] == "keep the inputs of layers in host RAM"
    # What the thread was told does not remove the gather; it is shown for what it does.
    others = by_name(report)["save-optimizer-states"]
    assert others["fix"]["applicability"] == "display"
    assert "save_only_model: true" in others["fix"]["edits"][0]["replacement"]


@pytest.mark.parametrize("project", ["deepseek-coder-v2-save"], indirect=True)
def test_of_a_run_that_rather_survives_what_would_help_is_shown(project):
    """Nothing is rewritten for it, but whoever reads that it may not fit wants to know what to do."""
    text = " ".join(CliRunner().invoke(app, ["check", "train.yaml"]).stdout.split())
    assert "gpu-memory-at-risk: needs 73.1 of 79.1 GiB per GPU" in text
    assert "may not fit" in text
    assert "what lowers it: a fused loss, or fewer tokens a micro batch" in text


@pytest.mark.parametrize("project", ["llama-recipes-fsdp"], indirect=True)
def test_llama_recipes_reads_once_and_exports(project):
    found = by_name(check())
    assert "2 × 15.0 GiB" in said(found["llama-recipes-low-cpu-fsdp"])
    assert "Cannot flatten integer dtype tensors" in said(found["fsdp-int8-flatten"])
    # Its two cards are all of the machine: a list of them changes nothing, exported or not.
    assert "shell-env-not-exported" not in found

    fixed = check("--fix")
    script = (project / "finetune.sh").read_text()
    assert "--low_cpu_fsdp" in script
    variables = "CUDA_VISIBLE_DEVICES=0,1 && ACCELERATE_USE_FSDP=1 FSDP_CPU_RAM_EFFICIENT_LOADING=1"
    assert f"{variables} torchrun" in script
    assert subprocess.run(["bash", "-n", "finetune.sh"], check=False).returncode == 0
    # It fits then, unless a release that nobody pins loads the weights in fp32.
    left = {f["name"]: f["severity"] for f in fixed["findings"] if f["path"] == "finetune.sh"}
    assert left == {"gpu-memory-at-risk": "info"}
    assert run_of(fixed, "finetune.sh")["verdict"] == "tight"
    assert check("--fix")["summary"]["fixed"] == 0


@pytest.mark.parametrize("project", ["llama-recipes-fsdp"], indirect=True)
def test_where_no_rule_names_a_cause_the_parts_of_the_riskier_need_are_told(project):
    check("--fix")
    text = CliRunner().invoke(app, ["check", "finetune.sh"], env={"COLUMNS": "100"}).stdout
    assert "info OOM100 gpu-memory-at-risk: needs 17.4 of 23.6 GiB per GPU, and 24.9 if" in text
    assert "risk 34 %" in text
    assert "keep the frozen base in 4 bit" in text


@pytest.mark.parametrize("project", ["axolotl-no-checkpointing"], indirect=True)
def test_axolotl_gets_its_key_and_checkpointing(project):
    before = (project / "config.yaml").read_text()
    found = by_name(check())
    assert "sequence_len" in found["unknown-key-ignored"]["message"]
    assert found["no-gradient-checkpointing"]["predicted_bytes"] > 80e9
    assert "Liger" in found["logits-materialized-large-vocab"]["fix"]["title"]

    fixed = check("--fix")
    after = (project / "config.yaml").read_text()
    for line in ("sequence_len: 4096", "micro_batch_size: 2", "gradient_accumulation_steps: 8"):
        assert line in after.splitlines()
    assert "sequence_length" not in after
    assert len(after.splitlines()) == len(before.splitlines())
    assert fixed["findings"] == []
    assert run_of(fixed, "config.yaml")["verdict"] == "fits"
