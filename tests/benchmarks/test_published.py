"""Published figures go the way of a user's file: what a row says, in its framework's own words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks.accuracy import counters, facts, published
from benchmarks.accuracy.dialects import read_plan
from benchmarks.accuracy.facts import Fact, Known
from benchmarks.accuracy.languages import LANGUAGES
from benchmarks.accuracy.languages.ms_swift import as_measured
from benchmarks.accuracy.languages.words import command, toml_text, yaml_text
from benchmarks.accuracy.published import plan_of, said_outright, why_unplanned

from oomlint.memory import GpuLimits, estimate
from oomlint.plan.fields import f

_ACCURACY = Path(published.__file__).parent

# What every row below says.
_ROW: dict[str, Any] = {
    "id": "a-1", "source": "nobody:README.md", "framework": "nobody's", "model": "meta-llama/Llama-2-7b-hf",
    "method": "lora", "gpus": 2, "strategy": "none", "dtype": "bf16", "optimizer": "AdamW", "micro_batch": 2,
    "grad_accum": 4, "seq_len": 1024, "seq_len_kind": "actual", "gradient_checkpointing": True,
    "attention": "sdpa", "packing": False, "compile": False, "lora": {"r": 16, "targets": ["q", "v"]},
}  # fmt: skip
_LORA_OF_PEFT = {"r": 16, "targets": ["q_proj", "v_proj"]}

# A publisher's calls with their keyword arguments.
_CALLS: dict[str, Any] = {
    "model": {"torch_dtype": "torch.bfloat16"},
    "quantization": {"load_in_4bit": True, "bnb_4bit_compute_dtype": "torch.bfloat16"},
    "prepared": {}, "lora": {"r": 16, "target_modules": ["q_proj"]}, "checkpointing": {},
    "arguments_class": "SFTConfig", "trainer_class": "SFTTrainer", "trainer": {"peft_config": "peft_config"},
    "arguments": {"per_device_train_batch_size": 2, "max_length": 1024, "deepspeed": "ds.json"},
    "launch": "torchrun --nproc_per_node=2",
    "files": {"ds.json": {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}},
}  # fmt: skip


def _row(**said: Any) -> dict[str, Any]:
    return {**_ROW, **said}


def _read(language: str, row: dict[str, Any], **versions: str) -> Any:
    return read_plan(LANGUAGES[language](row), versions)


# -- languages -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "row", "backend", "method"),
    [
        ("litgpt", _row(), "fsdp2", "lora"),
        ("ms-swift", _row(method="full", strategy="zero3", attention="flash_attn"), "zero", "full"),
        ("ms-swift", _row(method="full", strategy="megatron", parallel={"tp": 2}), "megatron", "full"),
        ("ms-swift-2", _row(lora=_LORA_OF_PEFT, strategy="ddp"), "ddp", "lora"),
        ("ms-swift-2", _row(lora=_LORA_OF_PEFT, strategy="device_map"), "device_map_pp", "lora"),
        ("qwen", _row(lora=None, strategy="zero2"), "zero", "lora"),
        ("fsdp_qlora", _row(method="qlora", strategy="fsdp full_shard"), "fsdp1", "qlora"),
        ("torchtune", _row(lora={"r": 8, "targets": ["q", "v", "mlp"]}), "fsdp2", "lora"),
        ("llm-foundry", _row(model="mpt-1b", strategy="fsdp FULL_SHARD", dtype="amp_bf16; mixed precision DEFAULT"), "fsdp1", "full"),
        ("torchtitan", _row(model="meta-llama/Llama-3.1-8B", parallel={"dp_shard": 2}), "fsdp2", "full"),
        ("torchtitan-2024", _row(model="meta-llama/Llama-3.1-8B", parallel={"dp_shard": 1, "tp": 2}), None, "full"),
        ("torchtitan-registry", _row(model="Qwen/Qwen3-8B", parallel={"dp_shard": 2}), "fsdp2", "full"),
        ("peft-example", _row(lora=_LORA_OF_PEFT, strategy="fsdp full_shard"), "fsdp1", "lora"),
        ("accelerate", _row(strategy="zero2"), "zero", "full"),
        ("alignment-handbook", _row(method="full", strategy="zero3", config_path="r/dpo/c.yaml"), "zero", "full"),
        ("deepspeed", _row(method="full", strategy="zero3"), "zero", "full"),
        ("minicpm", _row(strategy="zero3 offload"), "zero", "lora"),
        ("chatglm3", _row(model="THUDM/chatglm3-6b", lora={"r": 8}, gpus=1), "none", "lora"),
        ("trainer", _row(method="full", gpus=1), None, "full"),
        ("trainer", _row(gpus=1, dtype="nf4 bf16"), "none", "qlora"),
        ("prime-rl", _row(task="sft", method="full", model="Qwen/Qwen3-0.6B", lora=None), "fsdp2", "full"),
        ("command", _row(raw_args={"command": "torchrun --nproc_per_node 2 llama_finetuning.py --model_name meta-llama/Llama-2-7b-hf --enable_fsdp --use_peft --batch_size_training 2 --context_length 1024"}), "fsdp1", "lora"),
        ("script", _row(raw_args=_CALLS), "zero", "qlora"),
        ("loop", _row(raw_args={**_CALLS, "trainer": {}, "deepspeed": "ds.json"}), "zero", "qlora"),
        ("llama-factory", _row(model="Qwen/Qwen3-30B-A3B", method="full", parallel={"tp": 1, "pp": 2, "ep": 1}), "megatron", "full"),
    ],
)  # fmt: skip
def test_a_dialect_reads_what_a_row_says(
    language: str, row: dict[str, Any], backend: str | None, method: str
) -> None:
    plan = _read(language, row)
    assert plan is not None
    assert plan.trainable.method == method
    assert (plan.batch.micro, plan.seq.max_len) in {(2, 1024), (2, None), (2, 1025), (1, 1024)}
    if backend is not None:
        assert (plan.parallel.backend or "none") == backend


def test_a_loop_of_peft_is_read_with_its_adapter() -> None:
    settings = {
        "model_id": "meta-llama/Llama-3.2-3B", "dtype": "bfloat16", "batch_size": 4,
        "max_seq_length": 768, "grad_norm_clip": 1.0, "optimizer_kwargs": {"lr": 1e-4},
    }  # fmt: skip
    row = _row(
        gpus=1, lora={**_LORA_OF_PEFT, "use_dora": True}, raw_args={"train_config": settings}
    )
    plan = _read("peft-loop", row)
    assert (plan.trainable.method, plan.trainable.r) == ("dora", 16)
    assert plan.loss.outputs_kept
    assert _read("peft-loop", {**row, "method": "full"}).trainable.method == "full"


def test_a_release_of_the_day_decides_what_a_row_does_not_say() -> None:
    row = _row(lora={"r": 8, "targets": ["q", "v"]})
    old = _read("torchtune", row, torchtune="0.2.1")
    new = _read("torchtune", row, torchtune="0.7.0")
    assert (old.parallel.backend, old.env.expandable_segments) == ("fsdp1", False)
    assert (new.parallel.backend, new.env.expandable_segments) == ("fsdp2", True)


def test_a_variant_of_a_script_is_what_its_row_says() -> None:
    raw = {"use_liger_kernel": "true", "packing": "true", "lora_rank": "8"}
    assert as_measured(_row(raw_args=raw)) == raw
    variant = _row(raw_args=raw, is_one_of_several=True, liger=False, packing=True)
    assert as_measured(variant) == {"packing": "true", "lora_rank": "8"}


def test_words_of_toml() -> None:
    text = toml_text({"model": {"name": "a", "ac": {}}, "steps": 4, "compiles": True})
    assert text == 'steps = 4\ncompiles = true\n[model]\nname = "a"\n[model.ac]\n'


def test_words_of_a_command_and_of_yaml() -> None:
    line = command(
        ["run"], {"a": None, "b": True, "c": ["x", "y"], "d": '{"e": 1}', "f": "two words"}
    )
    assert line == "run --b --c x y --d '{\"e\": 1}' --f two words\n"
    assert yaml_text({"a": {"b": None}, "c": [True]}) == "a:\n  b: null\nc: [true]\n"


# -- facts -----------------------------------------------------------------------------------------


def test_a_later_fact_counts_more(monkeypatch: pytest.MonkeyPatch) -> None:
    told = (
        Fact({"framework": "*"}, "s", language="plan", plan={"seq.pad": "none"}, versions={"a": "1"}),
        Fact({"framework": "nobody's", "lora.r": ["8", "1?"]}, "s", plan={"seq.pad": "max_len"}),
        Fact({"framework": "nobody's", "quant": "?*"}, "s", plan={"seq.pad": "longest"}),
    )  # fmt: skip
    monkeypatch.setattr(facts, "read", lambda: facts._File(told, ()))
    known = facts.known_of(_ROW)
    assert (known.language, known.plan, known.versions) == (
        "plan",
        {"seq.pad": "max_len"},
        {"a": "1"},
    )
    plan = plan_of(_ROW)
    assert plan is not None
    assert (plan.seq.pad, plan.eval.enabled, plan.parallel.world) == ("max_len", False, 2)


def test_every_fact_names_a_language_that_there_is_and_where_it_was_read() -> None:
    for fact in facts.read().facts:
        assert fact.source
        assert fact.language in {"", "plan", *LANGUAGES}
        assert fact.language or fact.said or fact.versions or fact.plan
    assert all(facts.left_out().values())


def test_a_row_without_a_plan_says_what_it_lacks() -> None:
    assert why_unplanned(_row(seq_len=None)) == "no length is said"
    assert why_unplanned(_row(micro_batch=None)) == "no batch size is said"
    assert "nobody has written down" in str(why_unplanned(_ROW))
    assert plan_of(_ROW) is None


def test_what_no_dialect_reads_is_said_outright() -> None:
    plan = said_outright(_ROW, Known("plan", {}, {"torch": "1.8"}, {}, None))
    assert (plan.batch.micro, plan.seq.max_len, plan.versions["torch"]) == (2, 1024, "1.8")


def test_a_card_that_was_read_bare_gives_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    told = (Fact({"framework": "nobody's"}, "s", context_mib=100),)
    monkeypatch.setattr(facts, "read", lambda: facts._File(told, ()))
    plan = said_outright(_ROW, facts.known_of(_ROW))
    limits = counters.limits_of(_ROW, plan)
    assert limits is not None
    assert limits.context == 100 << 20


def _told(monkeypatch: pytest.MonkeyPatch, **said: Any) -> None:
    told = (Fact({"framework": "nobody's"}, "s", said=said),)
    monkeypatch.setattr(facts, "read", lambda: facts._File(told, ()))


def test_a_program_tells_which_counter_its_figure_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counters.kind_of(_ROW) == "device"
    _told(monkeypatch, measure="max_memory_allocated")
    assert counters.kind_of(_ROW) == "allocated"


def test_a_trainer_beside_an_engine_counts_its_own_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of a card of 80 GiB that another process has is in neither of torch's counters of this one."""
    own = _read("litgpt", _row())
    shared = own.with_values(
        {f.objective.rollout.engine: "vllm_colocate", f.objective.rollout.gpu_mem_util: 0.1}
    )
    limits = GpuLimits(usable=80 << 30)
    alone, beside = estimate(own, limits).gpu, estimate(shared, limits).gpu
    assert alone.allocated_bytes is not None
    assert beside.allocated_bytes == alone.allocated_bytes + (8 << 30)
    assert counters.counted(_row(), shared) is shared
    _told(monkeypatch, engine_apart=True)
    apart = estimate(counters.counted(_row(), shared), limits).gpu
    assert apart.allocated_bytes == alone.allocated_bytes
    assert (apart.reserved_bytes, apart.reserved) == (alone.reserved_bytes, alone.reserved)


def test_an_engine_in_the_trainers_process_counts_while_it_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rollout = f.objective.rollout
    own = _read("litgpt", _row())
    asleep = own.with_values(
        {rollout.engine: "vllm_colocate", rollout.gpu_mem_util: 0.1, rollout.sleep: True}
    )
    limits = GpuLimits(usable=80 << 30)
    _told(monkeypatch, engine_inside=True)
    alone = estimate(own, limits).gpu
    counted = estimate(counters.counted(_row(), asleep), limits).gpu
    assert alone.allocated_bytes is not None
    assert counted.allocated_bytes == alone.allocated_bytes + (8 << 30)


def test_no_code_asks_who_published_a_row() -> None:
    """Rows are told apart by what they say, in ``facts.toml``; code neither names a publisher nor a row."""
    asks = re.compile(
        r"""["'](family|id|source)["'].*(==|\bif\b|startswith|endswith)|\bif\b.*["'](family|id|source)["']"""
    )
    for module in ("published", "counters", "dialects", "releases", "lengths", "host"):
        lines = (_ACCURACY / f"{module}.py").read_text("utf-8").splitlines()
        assert not [line for line in lines if asks.search(line)]
    for file in (_ACCURACY / "languages").glob("*.py"):
        assert not re.search(r"""["'](family|id|source)["']""", file.read_text("utf-8"))
