"""Defaults that changed: pinned before, pinned after, and with bounds over both where nothing pins."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from msgspec.structs import replace
from tests.linked import run_of

from oomlint.dialects.trl.releases import CHECKPOINTS, CHUNKS_LOSS, MIXES_PRECISION
from oomlint.files.requirements import floors
from oomlint.hardware import parse_hardware
from oomlint.judgement import judge_gpu
from oomlint.judgement.evidence import evidence_of, left_open
from oomlint.judgement.forecast import Forecast, forecast_of
from oomlint.linting.rule import Severity
from oomlint.plan.library_changes import LibraryChange, release_of
from oomlint.runs.run import Run

_TRAINER = (
    "per_device_train_batch_size: 2\nlearning_rate: 1e-5\nnum_train_epochs: 1\noutput_dir: out\n"
)
SFT = "model_name_or_path: Qwen/Qwen2.5-1.5B\ndataset_name: x/y\nmax_length: 2048\n" + _TRAINER
LORA = SFT + "use_peft: true\nlora_target_modules: all-linear\nbf16: true\ndtype: bfloat16\n"
GRPO = "model_name_or_path: Qwen/Qwen2.5-1.5B\ndataset_name: x/y\nreward_funcs: r\n" + _TRAINER
FSDP = "fsdp: full_shard auto_wrap\ndtype: bfloat16\n"
FSDP2 = FSDP + "fsdp_config:\n  version: 2\n"
AXOLOTL = (
    "base_model: meta-llama/Llama-3.2-1B\ndatasets:\n  - path: x\n    type: alpaca\n"
    "sequence_len: 2048\nmicro_batch_size: 2\nbf16: true\n"
)
AXOLOTL_FSDP2 = AXOLOTL + (
    "fsdp_version: 2\nfsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
)
LLAMA_FACTORY = (
    "model_name_or_path: meta-llama/Llama-3.2-1B\nstage: sft\ndo_train: true\ndataset: d\n"
    "finetuning_type: lora\ntemplate: llama3\nbf16: true\noutput_dir: out\n"
)
SWIFT = (
    "model: Qwen/Qwen2.5-1.5B\ntrain_type: lora\ndataset: d\ntorch_dtype: bfloat16\n"
    "max_length: 2048\nper_device_train_batch_size: 1\n"
)
TORCHTUNE = (
    "# tune run --nproc_per_node 4 full_finetune_distributed --config c\n"
    "tokenizer:\n  _component_: torchtune.models.llama3.llama3_tokenizer\n"
    "model:\n  _component_: torchtune.models.llama3_2.llama3_2_1b\n"
    "checkpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\n"
    "optimizer:\n  _component_: torch.optim.AdamW\n"
    "loss:\n  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss\n"
    "dataset:\n  _component_: torchtune.datasets.alpaca_dataset\n"
    "dtype: bf16\nbatch_size: 2\nfsdp_reshard_after_forward: true\n"
)


def _run(text: str, requirements: str = "", **options: Any) -> Run:
    texts = {"c/run.yaml": text, "c/requirements.txt": requirements}
    return run_of(texts, "c/run.yaml", values=options)


def _forecast(text: str, requirements: str = "") -> Forecast:
    return forecast_of(_run(text, requirements, **{"parallel.gpus_per_node": 4}))


def _names(forecast: Forecast) -> dict[str, str]:
    return {a.field: a.why for a in forecast.assumptions if a.field.startswith("versions.")}


# Text, a field, its value before and after, the pin before, the pin after.
CASES = [
    (SFT, "loss.logits_materialised", "chunked", "fused", "trl==1.14.2", "trl==1.15.0"),
    (SFT, "checkpointing.mode", "none", "full", "trl==0.21.0", "trl==0.22.0"),
    (SFT, "precision.autocast", False, True, "trl==0.18.2", "trl==0.19.0"),
    (GRPO, "objective.ref_model", "copy", "none", "trl==0.18.2", "trl==0.19.0"),
    (
        GRPO, "objective.rollout.max_completion_tokens", 256, 512, "trl==1.9.0", "trl==1.10.0",
    ),
    (
        GRPO + "use_vllm: true\n", "objective.rollout.engine", "vllm_server", "vllm_colocate",
        "trl==0.29.1", "trl==1.0.0",
    ),
    (
        LORA + "load_in_4bit: true\n", "quant.prepares_kbit", True, False,
        "trl==0.24.0", "trl==0.25.0",
    ),
    (SFT, "optimizer.fused", False, True, "transformers==4.53.3", "transformers==4.54.0"),
    (SFT, "optimizer.fused", False, True, "torch==2.7.1", "torch==2.8.0"),
    (SFT + FSDP, "parallel.backend", "fsdp1", "fsdp2", "transformers==5.9.0", "transformers==5.10.1"),
    (SFT + FSDP2, "precision.param", "bf16", "fp32", "accelerate==1.13.0", "accelerate==1.14.0"),
    (SFT + FSDP2, "parallel.fsdp.wrap", "transformer", "ends", "accelerate==1.13.0", "accelerate==1.14.0"),
    (LORA + FSDP2, "precision.param", "fp32", "bf16", "accelerate==1.12.0", "accelerate==1.14.0"),
    (
        SFT + FSDP + "bf16: true\nfsdp_config:\n  version: 1\n", "precision.param", "bf16", "fp32",
        "transformers==4.40.0\naccelerate==0.29.3", "transformers==4.40.0\naccelerate==0.30.1",
    ),
    (
        LORA, "trainable.adapter_dtype", "bf16", "fp32",
        "transformers==4.40.0\npeft==0.11.1", "transformers==4.40.0\npeft==0.12.0",
    ),
    (AXOLOTL, "optimizer.fused", False, True, "axolotl==0.7.1", "axolotl==0.8.0"),
    (AXOLOTL, "data.prefetch", None, 256, "axolotl==0.10.1", "axolotl==0.11.0"),
    (AXOLOTL_FSDP2, "precision.param", "fp32", "bf16", "axolotl==0.11.0", "axolotl==0.12.0"),
    (LLAMA_FACTORY, "seq.max_len", 1024, 2048, "llamafactory==0.9.0", "llamafactory==0.9.1"),
    (LLAMA_FACTORY, "optimizer.fused", False, True, "llamafactory==0.9.3", "llamafactory==0.9.5"),
    (LLAMA_FACTORY, "env.expandable_segments", None, True, "llamafactory==0.9.2", "llamafactory==0.9.3"),
    (SWIFT, "eval.enabled", True, False, "ms-swift==3.5.3", "ms-swift==3.6.0"),
    (TORCHTUNE, "parallel.backend", "fsdp1", "fsdp2", "torchtune==0.2.1", "torchtune==0.3.0"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "field", "before", "after", "old", "new"), CASES)
def test_a_pin_tells_which_side_of_a_change(
    text: str, field: str, before: Any, after: Any, old: str, new: str
) -> None:
    gpus: dict[str, Any] = {"parallel.gpus_per_node": 4}
    assert _run(text, old, **gpus).plan.get(field) == before
    assert _run(text, new, **gpus).plan.get(field) == after
    assert _run(text, **gpus).plan.get(field) == after


@pytest.mark.parametrize(("text", "field", "before", "after", "old", "new"), CASES)
def test_bounds_without_a_pin_hold_for_both(
    text: str, field: str, before: Any, after: Any, old: str, new: str
) -> None:
    if "\n" in old:  # two libraries, of which one decides whether the other's past counts
        return
    unpinned, pinned = _forecast(text), _run(text, old, **{"parallel.gpus_per_node": 4})
    for name in ("gpu", "host"):
        device = getattr(unpinned.bounded.estimate, name)
        other = getattr(pinned.estimate, name)
        assert device.low_bytes <= other.peak_bytes <= device.high_bytes, name


def test_what_differs_is_said_with_what_it_would_be() -> None:
    text = SFT.replace("per_device_train_batch_size: 2", "per_device_train_batch_size: 16")
    said = _names(_forecast(text))["versions.trl"]
    assert "no file pins trl; before" in said
    assert "GiB per GPU instead of" in said
    assert "versions.trl" not in _names(_forecast(text, "trl==1.8.0\n"))


def test_a_floor_closes_what_lies_below_it() -> None:
    assert floors("requirements.txt", "trl>=1.7,<2\npeft~=0.12\ntorch\n") == {
        "trl": "1.7", "peft": "0.12",
    }  # fmt: skip
    assert not any(c.package == "trl" and c.since <= (1, 7) for c in _run(SFT, "trl>=1.7\n").open)


@pytest.mark.parametrize(
    ("required", "is_open"),
    [
        ("trl>=0.20,<1.16\n", True),
        ("trl<1.16\n", True),
        ("trl>=1.15,<1.16\n", False),
        ("trl==1.15.2\n", False),
        ("trl>=0.20,<1.6\n", False),
    ],
)
def test_of_a_range_of_releases_the_older_ones_count_too(required: str, is_open: bool) -> None:
    """It is computed with the newest of them, as an installation of today would get it."""
    run = _run(SFT, required)
    assert (CHUNKS_LOSS in run.open) is is_open
    if is_open:
        text = SFT.replace("per_device_train_batch_size: 2", "per_device_train_batch_size: 16")
        said = _names(_forecast(text, required))["versions.trl"]
        assert "requirements.txt allows several releases of trl; before" in said


def test_what_the_newest_release_requires_is_no_alternative() -> None:
    packages = {(c.package, c.since) for c in _run(LORA).open}
    assert ("peft", (0, 12)) not in packages  # transformers 5 requires 0.18
    assert ("transformers", (4, 54)) not in packages  # TRL 1.9 requires 4.56


def test_axolotl_brings_its_libraries() -> None:
    plan = _run(AXOLOTL, "axolotl==0.13.2\n").plan
    assert plan.versions["transformers"] == "4.57.6"
    said = _run(AXOLOTL, "axolotl==0.13.2\ntransformers==4.57.1\n").plan
    assert said.versions["transformers"] == "4.57.1"
    assert not _run(AXOLOTL).plan.versions


def test_a_setting_that_a_file_states_leaves_nothing_open() -> None:
    stated = SFT + "gradient_checkpointing: true\nbf16: true\nloss_type: nll\noptim: adamw_torch\n"
    assert not {CHUNKS_LOSS, CHECKPOINTS, MIXES_PRECISION} & set(_run(stated).open)
    assert not [a for a in _names(_forecast(stated)) if a in ("versions.trl", "versions.torch")]


def test_no_error_where_another_release_fits() -> None:
    # With all logits at once the run needs far more than the card has, in chunks far less.
    text = LORA.replace(
        "per_device_train_batch_size: 2", "packing: true\nper_device_train_batch_size: 32"
    )
    alone: dict[str, Any] = {"parallel.world": 1}
    in_chunks: dict[str, Any] = {"versions.trl": "1.14.2"}
    all_logits = _on(_run(text + "loss_type: nll\n", **alone, **in_chunks), "A100-40GB")
    usable = all_logits.limits.gpu_bytes
    needed, spared = (r.estimate.gpu.peak_bytes for r in (all_logits, _run(text, **in_chunks)))
    assert usable is not None
    assert needed is not None
    assert spared is not None
    assert spared < usable < needed / 1.25
    certain = judge_gpu(all_logits)
    open_still = _on(_run(text, **alone, **{"versions.trl": "1.6"}), "A100-40GB")
    cells = copy(open_still.cells)
    vars(cells)["open"] = {CHUNKS_LOSS: False}
    doubted = judge_gpu(replace(open_still, resolved=cells, _cache={}))
    assert certain is not None
    assert doubted is not None
    assert (certain.severity, doubted.severity) == (Severity.ERROR, Severity.INFO)


def _on(run: Run, name: str) -> Run:
    return replace(run, hardware=parse_hardware(name), _cache={})


@pytest.mark.parametrize(
    ("since", "below"), [((1, 7), "1.6.9999"), ((5, 0), "4.9999"), ((0, 9, 1), "0.9.0.9999")]
)
def test_a_version_just_below_a_change(since: tuple[int, ...], below: str) -> None:
    change = LibraryChange("trl", since, "", "")
    assert change.last_without == below
    assert (release_of(below) or ()) < since


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("1.10.0.dev0", (1, 10, 0)), ("v0.9.1", (0, 9, 1)), ("main", None), ("", None), (None, None)],
)
def test_the_numbers_of_a_version(version: str | None, numbers: tuple[int, ...] | None) -> None:
    assert release_of(version) == numbers


@pytest.mark.parametrize(
    ("requirement", "why"),
    [
        (
            "trl@git+https://github.com/huggingface/trl.git@019fc6d#egg=trl\n",
            "trl is installed from commit 019fc6d, of which no file tells the release",
        ),
        ("trl\n", ""),
        ("trl==1.8.0\n", ""),
    ],
)
def test_a_commit_pins_a_release_that_nobody_tells(requirement: str, why: str) -> None:
    text = SFT.replace("per_device_train_batch_size: 2", "per_device_train_batch_size: 16")
    cards = "8xA100-80GB"
    files = {"c.yaml": text, "requirements.txt": requirement}
    run = run_of(files, "c.yaml", hardware=cards)
    assert left_open(evidence_of(run)) == why
    said = _names(forecast_of(run)).get("versions.trl", "")
    assert said.startswith(f"{why}; before") if why else "pinned to" not in said
