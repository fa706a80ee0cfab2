"""``oomlint diagnose --keep``: what a log measured moves later predictions."""

import json

import pytest

GIB = 2**30
NAME = ".oomlint-measured.jsonl"
DIED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of "
    "79.10 GiB of which 1.00 GiB is free.\n"
)
HARDWARE = ("--hardware", "8xA100-80GB")


@pytest.fixture
def config(project):
    file = project / "train.yaml"
    file.write_text(
        "base_model: meta-llama/Llama-3.2-3B\ndatasets:\n  - path: tatsu-lab/alpaca\n    type: alpaca\n"
        "sequence_len: 4096\nsample_packing: true\npad_to_sequence_len: true\nmicro_batch_size: 2\n"
        "gradient_accumulation_steps: 4\noptimizer: adamw_torch_fused\nbf16: true\nflash_attention: true\n"
    )
    return file


def run_of(oomlint, *more):
    result = oomlint("estimate", "train.yaml", *HARDWARE, "--output-format", "json", *more)
    return json.loads(result.stdout)["runs"][0]


def log_of(project, allocated, reserved):
    text = f"{{'memory/max_allocated (GiB)': {allocated / GIB}, 'memory/device_reserved (GiB)': {reserved / GIB}}}\n"
    (project / "train.log").write_text(text)


@pytest.fixture
def kept(oomlint, project, config):
    """The prediction as it was, after 4 GiB less than it were measured and kept."""
    before = run_of(oomlint)
    gpu = before["gpu"]
    allocated = gpu["peak_bytes"] - gpu["components"]["context"] - 4 * GIB
    log_of(project, allocated, gpu["reserved_bytes"] - 4 * GIB)
    result = oomlint("diagnose", "train.log", "--config", "train.yaml", *HARDWARE, "--keep")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == f"kept in {NAME}:1: runs like train.yaml are predicted from it\n"
    return before


def test_the_very_run_is_predicted_as_it_was_measured(oomlint, kept):
    run = run_of(oomlint)
    assert run["gpu"]["peak_bytes"] == pytest.approx(kept["gpu"]["peak_bytes"] - 4 * GIB, abs=4096)
    assert run["gpu"]["reserved_bytes"] == pytest.approx(
        kept["gpu"]["reserved_bytes"] - 4 * GIB, abs=4096
    )
    assert sum(run["gpu"]["components"].values()) == run["gpu"]["peak_bytes"]
    widths = [each["gpu"]["high_bytes"] - each["gpu"]["low_bytes"] for each in (run, kept)]
    assert widths[0] < widths[1]
    assert run["evidence"] == {"level": "measured", "rests_on": [], "otherwise": []}
    assert kept["evidence"]["level"] != "measured"
    text = oomlint("estimate", "train.yaml", *HARDWARE).stdout
    assert "GiB measured of this very run (.oomlint-measured.jsonl:1)" in text


def test_what_was_measured_moves_the_phases_that_hold_what_is_least_sure(oomlint, kept):
    now, before = run_of(oomlint)["gpu"], kept["gpu"]
    # The weights, their gradients and the optimizer's states are known: 4 GiB less were measured of the rest.
    for phase in ("load", "optimizer_step"):
        assert now["phases"][phase] == pytest.approx(before["phases"][phase], rel=0.02)
    assert now["phases"]["forward"] < before["phases"]["forward"] - 1 * GIB


def test_no_phase_needs_more_than_the_peak_that_was_measured(oomlint, project, config):
    config.write_text(
        config.read_text().replace("micro_batch_size: 2", "micro_batch_size: 1")
        + "gradient_checkpointing: true\n"
    )
    before = run_of(oomlint)["gpu"]
    step = before["phases"]["optimizer_step"] - before["components"]["context"]
    log_of(project, step - 2 * GIB, step - 1 * GIB)
    assert (
        "kept in"
        in oomlint("diagnose", "train.log", "--config", "train.yaml", *HARDWARE, "--keep").stderr
    )
    now = run_of(oomlint)["gpu"]
    assert max(now["phases"].values()) == now["peak_bytes"]
    assert all(phase > 0 for phase in now["phases"].values())


def test_a_release_that_nobody_pins_is_no_question_of_the_very_run(oomlint, project):
    (project / "sft.py").write_text(
        "from trl import SFTConfig, SFTTrainer\n"
        "args = SFTConfig(per_device_train_batch_size=2, bf16=True, max_length=2048, packing=True)\n"
        "SFTTrainer('Qwen/Qwen2.5-1.5B', train_dataset=data, args=args).train()\n"
    )
    asked = ("estimate", "sft.py", *HARDWARE)
    assert "versions.trl" in oomlint(*asked).stdout
    log_of(project, 40 * GIB, 44 * GIB)
    assert (
        "kept in"
        in oomlint("diagnose", "train.log", "--config", "sft.py", *HARDWARE, "--keep").stderr
    )
    assert "versions.trl" not in oomlint(*asked).stdout


def test_a_run_that_differs_a_little_starts_from_it(oomlint, config, kept, project):
    longer = config.read_text().replace("sequence_len: 4096", "sequence_len: 4608")
    config.write_text(longer)
    started = run_of(oomlint)
    (project / NAME).rename(project / "elsewhere.jsonl")
    alone = run_of(oomlint)
    less = alone["gpu"]["peak_bytes"] - started["gpu"]["peak_bytes"]
    assert 1 * GIB < less < 4 * GIB
    assert started["evidence"]["level"] != "measured"
    (project / "elsewhere.jsonl").rename(project / NAME)
    assert (
        "measured with sequence_len 4096 (" in oomlint("estimate", "train.yaml", *HARDWARE).stdout
    )


def test_a_run_of_another_model_does_not(oomlint, config, kept, project):
    config.write_text(config.read_text().replace("Llama-3.2-3B", "Llama-3.2-1B"))
    with_it = run_of(oomlint)
    (project / NAME).unlink()
    assert with_it == run_of(oomlint)


def test_a_second_reading_of_the_same_run_replaces_the_first(oomlint, kept, project):
    oomlint("diagnose", "train.log", "--config", "train.yaml", *HARDWARE, "--keep")
    assert len((project / NAME).read_text().splitlines()) == 1


def test_a_run_that_was_measured_is_not_at_risk_where_it_ran(oomlint, config):
    """It went through; a prediction at the limit does not outweigh that."""
    config.write_text(
        config.read_text().replace("micro_batch_size: 2", "micro_batch_size: 8")
        + "gradient_checkpointing: true\n"
    )
    before = run_of(oomlint)
    usable = before["hardware"]["usable_gpu_bytes"]
    log_of(config.parent, 0.95 * usable, 0.97 * usable)
    arguments = ("train.log", "--config", "train.yaml", *HARDWARE, "--keep")
    assert "kept in" in oomlint("diagnose", *arguments).stderr
    run = run_of(oomlint)
    assert run["gpu"]["peak_bytes"] > 0.95 * usable
    assert run["verdict"] == "fits"
    # Of a smaller card it says what is needed there.
    smaller = oomlint("check", "train.yaml", "--hardware", "8xA100-40GB").stdout
    assert "does not fit: needs 76" in smaller


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ("all is well\n", "the logs print no peak of the training that oomlint knows"),
        ("{'memory/max_allocated (GiB)': 700.0}\n", "it seems to be of another run"),
        (
            f"{DIED}{{'memory/max_allocated (GiB)': 60.0}}\n",
            "the run died before it came to its peak",
        ),
    ],
)
def test_what_tells_nothing_is_not_kept_and_that_is_said(oomlint, project, config, log, why):
    (project / "train.log").write_text(log)
    result = oomlint("diagnose", "train.log", "--config", "train.yaml", *HARDWARE, "--keep")
    assert result.exit_code == 2
    assert "nothing was kept: " in result.stderr
    assert why in result.stderr
    assert not (project / NAME).exists()


def test_a_log_is_of_one_run(oomlint, project, config):
    (project / "other.yaml").write_text(config.read_text())
    (project / "train.log").write_text("{'memory/max_allocated (GiB)': 60.0}\n")
    result = oomlint("diagnose", "train.log", "--config", ".", *HARDWARE, "--keep")
    assert result.exit_code == 2
    assert "the config describes 2 runs (other.yaml, train.yaml): name its file" in result.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is no line of JSON"),
        ('{"run": "a", "date": "2026-01-01", "source": "x"}', "hardware"),
        (
            '{"run": "a", "date": "d", "source": "x", "hardware": "8xA100-80GB", "plan": {"bach": 1}}',
            "bach",
        ),
        (
            '{"run": "a", "date": "d", "source": "x", "hardware": "8xNothing", "plan": {}}',
            "Nothing",
        ),
    ],
)
def test_a_bad_line_is_an_error_with_its_place_and_the_rest_counts(
    oomlint, project, kept, line, message
):
    file = project / NAME
    file.write_text(f"{line}\n{file.read_text()}")
    result = oomlint("check", "train.yaml", *HARDWARE)
    assert result.exit_code == 3
    assert f"{NAME}:1" in result.stderr
    assert message in result.stderr
    assert run_of(oomlint)["evidence"]["level"] == "measured"
