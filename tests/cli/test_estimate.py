"""``oomlint estimate`` on configs and on plans, and ``oomlint.estimate``."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

import oomlint as package
from oomlint.errors import UsageError
from oomlint.memory import DeviceEstimate
from oomlint.report.estimates import reserved_words
from oomlint_schemas import load

PLAN = {
    "name": "llama3-8b-lora",
    "model": {"id": "meta-llama/Meta-Llama-3-8B", "attn_impl": "flash2"},
    "trainable": {"method": "lora", "r": 16, "targets": "all_linear", "adapter_dtype": "fp32"},
    "quant": {"method": "none"},
    "precision": {
        "param": "bf16",
        "grad": "fp32",
        "master": "none",
        "optim_state": "fp32",
        "compute": "bf16",
        "autocast": True,
    },
    "optimizer": {"kind": "adamw", "fused": True},
    "parallel": {"backend": "zero", "nodes": 1, "gpus_per_node": 8, "zero": {"stage": 2}},
    "batch": {"micro": 1, "grad_accum": 8, "global": 64},
    "seq": {"max_len": 4096},
    "checkpointing": {"mode": "full"},
    "save": {"contents": ["adapter"]},
    "device": {"type": "A100-80GB"},
    "host": {"ram_gib": 1024},
}

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN_KEYS = {
    "name", "framework", "files", "plan", "hardware", "gpu", "host", "disk", "assumptions",
    "verdict", "unpredicted", "evidence", "risk", "as_meant", "endings", "causes",
    "way",
}  # fmt: skip


def runs(result):
    return json.loads(result.stdout)["runs"]


def test_config_as_json_follows_the_schema(oomlint, axolotl):
    result = oomlint(
        "estimate", "axolotl.yaml", "--output-format", "json", "--hardware", "H100-80GB"
    )
    assert result.exit_code == 0
    Draft202012Validator(load("estimate")).validate(json.loads(result.stdout))
    (run,) = runs(result)
    assert set(run) == RUN_KEYS
    assert run["framework"] == "axolotl"
    assert run["files"] == ["axolotl.yaml"]
    assert run["gpu"]["peak_bytes"] == sum(run["gpu"]["components"].values())
    assert run["gpu"]["peak_bytes"] == run["gpu"]["phases"][run["gpu"]["peak_phase"]]
    assert run["gpu"]["low_bytes"] <= run["gpu"]["peak_bytes"] <= run["gpu"]["high_bytes"]
    assert run["verdict"] == "does_not_fit"


def test_check_lists_the_same_run(oomlint, axolotl):
    options = ("axolotl.yaml", "--output-format", "json", "--hardware", "8xA100-80GB")
    assert runs(oomlint("estimate", *options)) == runs(oomlint("check", *options))


def test_text_has_phases_components_limit_and_what_fits(oomlint, axolotl):
    text = oomlint("estimate", "axolotl.yaml", "--hardware", "8xH100-80GB").stdout
    for word in (
        "per GPU:",
        "backward",
        "← peak",
        "activations",
        "▲ limit",
        "verdict:",
        "fits on:",
    ):
        assert word in text
    assert "does not fit 8xH100-80GB" in text


def test_cards_that_are_no_larger_are_no_answer_to_a_run_that_may_not_fit(oomlint):
    """An H100 of 80 GB has a thousandth more memory than an A100."""
    changes = ("--set", "trainable.method=qlora")
    text = oomlint("estimate", str(EXAMPLES / "axolotl-no-checkpointing"), *changes).stdout
    assert "verdict: may not fit 8xA100-80GB" in text
    (cards,) = [line for line in text.splitlines() if line.startswith("fits on:")]
    assert cards.startswith("fits on: H200-141GB;")


def test_where_the_host_is_too_small_no_card_is_the_answer_alone(oomlint, axolotl):
    asked = ("estimate", "axolotl.yaml", "--hardware", "8xB300", "--host-memory", "16GiB")
    text = oomlint(*asked).stdout
    assert "verdict: does not fit" in text
    (cards,) = [line for line in text.splitlines() if line.startswith("fits on:")]
    host = json.loads(oomlint(*asked, "--output-format", "json").stdout)["runs"][0]["host"]
    assert cards.endswith(f"(with more than {host['peak_bytes'] / 2**30:.1f} GiB of RAM a node)")


def test_what_torch_reserves_is_shown_as_its_parts() -> None:
    """The peak has a context that torch does not reserve, and not what it keeps of freed blocks: either may be larger."""
    gib = 2**30
    parts = {"backward": {"parameters": 10 * gib, "context": gib / 2}}
    gpu = DeviceEstimate(
        peak_bytes=10 * gib + gib // 2, peak_phase="backward", parts=parts,
        reserved_bytes=12 * gib, least_reserved_bytes=11 * gib,
    )  # fmt: skip
    assert reserved_words(gpu) == (
        "torch reserves 12.0 GiB: 10.0 GiB of the peak, without the context, and 2.0 GiB of freed blocks"
        " that it keeps, of which a full card gets 1.0 GiB back"
    )
    bare = replace(gpu, reserved_bytes=10 * gib, least_reserved_bytes=10 * gib)
    assert reserved_words(bare) == (
        "torch reserves 10.0 GiB: 10.0 GiB of the peak, without the context"
    )


def test_without_hardware_the_smallest_cards_are_named(oomlint, axolotl):
    text = oomlint("estimate", "axolotl.yaml", "--set", "batch.micro=1").stdout
    assert "hardware unknown; the smallest common cards that hold it: " in text
    assert "▲" not in text


def test_nothing_to_estimate_is_a_usage_error(oomlint, project):
    (project / "a.yaml").write_text("x: 1\n")
    result = oomlint("estimate", "a.yaml")
    assert result.exit_code == 2
    assert "no training run found in a.yaml" in result.stderr
    assert oomlint("estimate").exit_code == 2
    assert oomlint("estimate", "missing.yaml").exit_code == 2


def test_a_plan_from_a_file_from_stdin_and_from_python_agree(oomlint, project):
    (project / "plan.json").write_text(json.dumps(PLAN))
    (from_file,) = runs(oomlint("estimate", "--plan", "plan.json", "--output-format", "json"))
    (from_stdin,) = runs(
        oomlint(
            "estimate", "--plan", "-", "--output-format", "json", stdin=json.dumps(PLAN).encode()
        )
    )
    assert from_file == from_stdin == package.estimate(PLAN)
    assert from_file["name"] == "llama3-8b-lora"
    assert from_file["hardware"]["name"] == "8xA100-80GB"
    assert from_file["hardware"]["host_bytes_per_node"] == 2**40
    assert from_file["plan"]["batch"]["global"] == 64
    assert from_file["plan"]["model"]["dims"]["layers"] == 32
    assert from_file["verdict"] == "fits"
    Draft202012Validator(load("plan")).validate(PLAN)
    Draft202012Validator(load("plan")).validate(from_file["plan"])


def test_jsonl_answers_line_by_line_and_goes_on_after_a_bad_one(oomlint):
    lines = [PLAN, {"nam": 1}, {"batch": {"micro": "1"}}, [], {**PLAN, "name": "last"}]
    text = "".join(json.dumps(line) + "\n" for line in lines) + "{\n"
    result = oomlint("estimate", "--plan", "-", "--jsonl", stdin=text.encode())
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 3
    assert [answer.get("name") for answer in answers] == [
        "llama3-8b-lora", None, None, None, "last", None,
    ]  # fmt: skip
    assert answers[1] == {"error": "nam: unknown key; did you mean name?"}
    assert "batch.micro: should be a whole number or null" in answers[2]["error"]
    assert answers[3] == {"error": "a plan is a JSON object"}
    assert "not valid JSON" in answers[5]["error"]
    good = oomlint("estimate", "--plan", "-", "--jsonl", stdin=json.dumps(PLAN).encode())
    assert good.exit_code == 0
    assert set(json.loads(good.stdout)) == RUN_KEYS


def test_all_that_is_wrong_with_a_plan_is_told_at_once(oomlint, project):
    (project / "p.json").write_text('{"batch": {"micr": 2},\n "seq": {"max_len": "long"}}')
    result = oomlint("estimate", "--plan", "p.json")
    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        "p.json:1:12: error: batch.micr: unknown key; did you mean micro?",
        'p.json:2:10: error: seq.max_len: should be a whole number or null, not "long"',
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"dims": {"moe": {"expert": 8}}}}, "did you mean experts"),
        ({"trainable": {"targets": 5}}, "trainable.targets: should be"),
        ({"precision": {"param": "float32"}}, "precision.param: should be"),
        ({"parallel": {"zero": {"stage": 4}}}, "parallel.zero.stage"),
        (
            {"trainable": {"method": "qlora"}, "quant": {"method": "none"}},
            "trains over a quantized base",
        ),
        ({"batch": {"micro": -1}}, "batch.micro: -1 is negative"),
        ({"batch": {"micro": 1.5}}, "batch.micro"),
        ({"host": {"ram_gib": float("inf")}}, "ram_gib"),
        ({"device": {"type": "H1000"}}, "nearest"),
        ({"batch": 3}, "batch"),
    ],
)
def test_wrong_plans_are_refused_with_the_place(change, message):
    with pytest.raises(UsageError, match=message.replace(".", r"\.")):
        package.estimate(change)


def test_a_plan_nested_without_end_is_refused():
    deep: dict = {}
    for _ in range(100_000):
        deep = {"model": deep}
    with pytest.raises(UsageError):
        package.estimate(deep)


def test_given_dimensions_go_over_those_of_the_catalogue():
    half = package.estimate({**PLAN, "model": {**PLAN["model"], "dims": {"layers": 16}}})
    whole = package.estimate(PLAN)
    dims = half["plan"]["model"]["dims"]
    assert (dims["layers"], dims["hidden"]) == (16, 4096)
    assert half["gpu"]["components"]["parameters"] < 0.65 * whole["gpu"]["components"]["parameters"]


def test_memory_of_a_device_alone_is_enough():
    run = package.estimate({**PLAN, "device": {"mem_bytes": 16 * 2**30}})
    assert run["hardware"]["usable_gpu_bytes"] == 16 * 2**30
    assert run["verdict"] == "does_not_fit"


def test_hardware_given_replaces_the_device_but_not_the_rank_count():
    run = package.estimate(PLAN, "H100-80GB", host_memory="64GiB")
    assert (run["hardware"]["gpu"], run["hardware"]["gpus_per_node"]) == ("H100-80GB", 8)
    assert run["hardware"]["host_bytes_per_node"] == 64 * 2**30
    assert run["verdict"] == "does_not_fit", "eight ranks load the model into 64 GiB"


def test_unknown_model_has_no_numbers():
    run = package.estimate({"model": {"id": "nobody/knows"}})
    assert run["gpu"]["peak_bytes"] is None
    assert set(run["gpu"]["components"].values()) == {None}
    assert run["verdict"] == "unknown"


def test_options_reach_a_plan(oomlint, project):
    (project / "plan.json").write_text(json.dumps(PLAN))
    (run,) = runs(
        oomlint(
            "estimate", "--plan", "plan.json", "--output-format", "json",
            "--set", "seq.max_len=8192", "--gpus", "2x4", "--hardware", "H200-141GB",
        )
    )  # fmt: skip
    assert run["plan"]["seq"]["max_len"] == 8192
    assert run["hardware"]["name"] == "2x4xH200-141GB"


def layers_and_parameters(run):
    return run["plan"]["model"]["dims"]["layers"], run["gpu"]["components"]["parameters"]


def test_set_reaches_single_dimensions(oomlint, project, axolotl):
    (project / "plan.json").write_text(json.dumps(PLAN))
    for source in (["axolotl.yaml"], ["--plan", "plan.json"]):
        arguments = ("estimate", *source, "--output-format", "json")
        (whole,) = runs(oomlint(*arguments))
        layers, size = layers_and_parameters(whole)
        (half,) = runs(oomlint(*arguments, "--set", f"model.dims.layers={layers // 2}"))
        halved, smaller = layers_and_parameters(half)
        assert halved == layers // 2
        assert 0.4 * size < smaller < 0.7 * size, "published counts no longer hold"
        (sparse,) = runs(oomlint(*arguments, "--set", "model.dims.moe.experts=4"))
        assert layers_and_parameters(sparse)[1] > 2 * size


def test_set_names_a_model_that_is_looked_up(oomlint, project):
    (project / "plan.json").write_text(json.dumps(PLAN))
    (run,) = runs(
        oomlint(
            "estimate", "--plan", "plan.json", "--output-format", "json",
            "--set", "model.id=meta-llama/Llama-3.2-1B",
        )
    )  # fmt: skip
    assert layers_and_parameters(run)[0] == 16


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.dims=3", "group of fields; name one of them: arch, layers, hidden"),
        ("model.dims.layer=3", "did you mean model.dims.layers?"),
        ("model.dims.layers=many", "model.dims.layers should be a whole number or null"),
        ("batch.micro=-1", "batch.micro: -1 is negative"),
        ("=3", "has no field ''"),
    ],
)
def test_wrong_settings_are_explained(oomlint, axolotl, setting, message):
    result = oomlint("estimate", "axolotl.yaml", "--set", setting)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("\n", " ").split())


def test_every_phase_is_told_by_component_and_when(oomlint, axolotl):
    (run,) = runs(oomlint("estimate", "axolotl.yaml", "--output-format", "json"))
    for device in (run["gpu"], run["host"]):
        assert device["phase_components"].keys() == device["first_seen"].keys()
        for phase, size in device["phases"].items():
            assert sum(device["phase_components"][phase].values()) == size
        assert device["phase_components"][device["peak_phase"]] == device["components"]
    assert run["gpu"]["first_seen"]["optimizer_step"] == "step 1"
    text = oomlint("estimate", "axolotl.yaml").stdout
    for seen in run["gpu"]["first_seen"].values():
        assert (seen or "never") in text
