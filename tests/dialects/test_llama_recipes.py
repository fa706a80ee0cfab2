"""llama-recipes command lines: what they mean, and what a fix writes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.linked import link

from oomlint.errors import CannotEdit
from oomlint.runs.run import Run

_SEED = (
    "CUDA_VISIBLE_DEVICES=0,1 && torchrun --nnodes 1 --nproc_per_node 4 finetuning.py "
    "--enable_fsdp --use_peft --peft_method lora --model_name /models/Llama-2-70b-hf "
    "--fsdp_config.pure_bf16 --output_dir out\n"
)


def _runs(script: str) -> list[Run]:
    return link({"run.sh": script}).runs


def _run(script: str) -> Run:
    (run,) = _runs(script)
    return run


def _after(script: str, run: Run, changes: dict[str, Any]) -> str:
    """The script once the run says ``changes``."""
    wished = run.what_if(changes).wished
    edits = []
    for field, value in wished.items():
        origin = run.origin(field)
        explicit = origin is not None and origin.kind == "explicit"
        block = origin.block if origin is not None and explicit else run.block_with(field)
        assert block is not None
        edits += block.write({field: value})
    for edit in sorted(edits, key=lambda e: -e.start):
        script = script[: edit.start] + edit.replacement + script[edit.end :]
    return script


def test_reads_launcher_and_options() -> None:
    run = _run(_SEED)
    plan = run.plan
    assert run.framework == "llama-recipes"
    assert (plan.parallel.gpus_per_node, plan.parallel.nodes, plan.parallel.world) == (4, 1, 4)
    assert plan.parallel.backend == "fsdp1"
    assert plan.model.id == "/models/Llama-2-70b-hf"
    assert plan.trainable.method == "lora"
    assert (plan.trainable.r, plan.trainable.targets) == (8, ("q_proj", "v_proj"))
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.eval_micro) == (4, 1, 1)
    assert (plan.seq.max_len, plan.seq.packing) == (4096, "concat")
    assert plan.precision.param == "bf16"
    assert plan.precision.optim_state == "fp32"
    assert plan.checkpointing.mode == "full"
    assert plan.save.contents == ("adapter",)
    # The variable is not exported: the command does not see it.
    assert plan.env.cuda_visible_devices is None


def _pinned(script: str, release: str) -> Run:
    files = {"run.sh": script, "requirements.txt": f"llama-recipes=={release}\n"}
    (run,) = link(files).runs
    return run


@pytest.mark.parametrize(("release", "dtype"), [("0.0.2", "fp32"), ("0.0.3", "bf16")])
def test_weights_were_loaded_in_fp32(release: str, dtype: str) -> None:
    script = "python -m llama_recipes.finetuning --model_name meta-llama/Llama-2-7b-hf\n"
    assert _pinned(script, release).plan.precision.param == dtype


@pytest.mark.parametrize(
    ("release", "option", "attention"),
    [("4.35.2", "", "eager"), ("4.36.0", "", "sdpa"), ("4.35.2", " --use_fast_kernels", "sdpa")],
)
def test_attention_is_what_transformers_takes(release: str, option: str, attention: str) -> None:
    script = f"python -m llama_recipes.finetuning --model_name meta-llama/Llama-2-7b-hf{option}\n"
    files = {"run.sh": script, "requirements.txt": f"transformers=={release}\n"}
    (run,) = link(files).runs
    assert run.plan.model.attn_impl == attention


@pytest.mark.parametrize(("release", "device"), [("0.0.3", "gpu"), ("0.0.4", None)])
def test_adapters_were_saved_through_the_whole_state_dict(release: str, device: str | None) -> None:
    save = _pinned(_SEED, release).plan.save
    assert (save.gather_device, save.full_gather) == (device, True if device else None)


@pytest.mark.parametrize(("release", "once"), [("0.0.2", True), ("0.0.3", False)])
def test_the_flag_alone_was_enough(release: str, once: bool) -> None:
    script = _SEED.replace("--enable_fsdp", "--enable_fsdp --low_cpu_fsdp")
    assert _pinned(script, release).plan.load.cpu_ram_efficient is once


@pytest.mark.parametrize(
    "script",
    [
        "cd recipes/finetuning\npython3 finetuning.py --model_name /models/7b --output_dir out\n",
        "python llama-recipes/examples/finetuning.py --model_name /models/7b\n",
    ],
)
def test_the_folder_tells_the_script(script: str) -> None:
    assert _run(script).framework == "llama-recipes"


_CALL = """\
from llama_recipes{0}

{1}(
    model_name="meta-llama/Llama-3.2-1B",
    enable_fsdp={2},
    batch_size_training=1,
    batching_strategy="padding",
)
"""


@pytest.mark.parametrize(
    ("imported", "called"),
    [
        (" import finetuning", "finetuning.main"),
        (".finetuning import main", "main"),
        (".finetuning import main as train", "train"),
    ],
)
def test_scripts_may_call_it(imported: str, called: str) -> None:
    files = {
        "train.py": _CALL.format(imported, called, True),
        "run.sh": "torchrun --nproc_per_node 2 train.py\n",
    }
    (run,) = link(files).runs
    assert run.framework == "llama-recipes"
    assert (run.plan.parallel.backend, run.plan.parallel.world) == ("fsdp1", 2)
    assert (run.plan.batch.micro, run.plan.seq.unbounded) == (1, True)
    assert run.plan.checkpointing.mode == "full"


def test_every_rank_loads_unless_told_otherwise() -> None:
    run = _run(_SEED)
    assert run.plan.load.per_rank_host_copies == 1
    assert run.plan.load.cpu_ram_efficient is False
    # The flag alone does not do from llama-recipes 0.0.3 on.
    changed_text = _after(_SEED, run, {"load.cpu_ram_efficient": True})
    assert changed_text == _SEED.replace("--enable_fsdp ", "--enable_fsdp --low_cpu_fsdp ").replace(
        "torchrun", "FSDP_CPU_RAM_EFFICIENT_LOADING=1 ACCELERATE_USE_FSDP=1 torchrun"
    )
    changed = run.what_if({"load.cpu_ram_efficient": True}).plan
    assert changed.load.per_rank_host_copies is None
    assert changed.load.cpu_ram_efficient is True


def test_bare_quantization_is_eight_bit() -> None:
    run = _run(_SEED.replace("--use_peft", "--quantization --use_peft"))
    assert run.plan.quant.method == "bnb8"
    assert run.plan.precision.param == "int8"
    text = "python -m llama_cookbook.finetuning --use_peft --quantization 4bit --model_name m\n"
    four = _run(text).plan
    assert (four.quant.method, four.trainable.method) == ("bnb4", "qlora")
    assert (four.precision.param, four.precision.grad) == ("nf4", "fp32")
    assert four.load.device_map == "auto"


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        (
            "pip install llama-recipes==0.0.1\npython -m llama_recipes.finetuning --quantization",
            "full",
        ),
        ("pip install llama-recipes==0.0.1\npython -m llama_recipes.finetuning", "none"),
        ("python -m llama_cookbook.finetuning --quantization 8bit", "none"),
    ],
)
def test_what_prepares_quantized_weights_checkpoints_them(line: str, mode: str) -> None:
    """prepare_model_for_kbit_training does so unless it is told not to; releases from 0.0.3 on call it no more."""
    plan = _run(f"{line} --use_peft --model_name meta-llama/Llama-2-7b-hf\n").plan
    assert (plan.quant.method or "none", plan.parallel.backend) == (
        "none" if "quantization" not in line else "bnb8", "none",
    )  # fmt: skip
    assert plan.checkpointing.mode == mode


def test_one_process_lays_quantized_weights_on_all_gpus_that_it_sees() -> None:
    text = "python -m llama_cookbook.finetuning --use_peft --quantization 4bit --model_name m\n"
    plan = _run(f"CUDA_VISIBLE_DEVICES=0,1 {text}").plan
    assert (plan.parallel.backend, plan.parallel.world) == ("device_map_pp", 2)
    assert (plan.parallel.dp, plan.batch.global_) == (1, 4)
    assert _run(f"CUDA_VISIBLE_DEVICES=0 {text}").plan.parallel.backend == "none"


def test_one_gpu_has_no_checkpointing_and_no_way_to_it() -> None:
    run = _run("python -m llama_recipes.finetuning --model_name meta-llama/Llama-3.2-1B\n")
    assert (run.plan.parallel.world, run.plan.parallel.backend) == (1, "none")
    assert run.plan.checkpointing.mode == "none"
    assert run.plan.trainable.method == "full"
    assert run.plan.trainable.r is None
    with pytest.raises(CannotEdit, match="enable_fsdp"):
        run.what_if({"checkpointing.mode": "full"})


def test_full_fine_tuning_under_fsdp_is_pure_16_bit() -> None:
    plan = _run(
        "torchrun --nproc_per_node 8 getting-started/finetuning/finetuning.py --enable_fsdp "
        "--model_name meta-llama/Meta-Llama-3-8B --dist_checkpoint_folder f\n"
    ).plan
    assert (plan.precision.param, plan.precision.grad, plan.precision.optim_state) == (
        "bf16", "bf16", "bf16",
    )  # fmt: skip
    assert (plan.precision.compute, plan.precision.comm) == ("bf16", "bf16")
    assert plan.save.contents == ("model",)
    assert plan.save.full_gather is False


def test_the_script_of_2023_loads_in_fp32() -> None:
    plan = _run(
        "torchrun --nnodes 1 --nproc_per_node 4 llama_finetuning.py --enable_fsdp "
        "--model_name m --fsdp_config.checkpoint_type StateDictType.FULL_STATE_DICT\n"
    ).plan
    assert (plan.load.dtype, plan.precision.param, plan.precision.compute) == (
        "fp32",
        "fp32",
        "bf16",
    )
    assert (plan.parallel.fsdp.state_dict, plan.save.full_gather) == ("full", True)


def test_padding_leaves_the_length_open() -> None:
    plan = _run("python -m llama_recipes.finetuning --batching_strategy padding\n").plan
    assert plan.seq.max_len is None
    assert plan.seq.unbounded is True
    assert plan.seq.packing == "none"


def test_finetuning_scripts_of_others_are_left_alone() -> None:
    assert _runs("python finetuning.py --lr 1e-4 --epochs 3\n") == []
    assert _runs("python -m other.finetuning --enable_fsdp\n") == []


def test_fixes_write_the_right_options() -> None:
    run = _run(_SEED)
    script = _SEED.replace("--use_peft", "--batch_size_training 4 --use_peft")
    text = _after(script, _run(script), {"batch.micro": 2, "batch.grad_accum": 2})
    assert "--batch_size_training 2 --gradient_accumulation_steps 2 --use_peft" in text
    text = _after(_SEED, run, {"offload.params": "cpu"})
    assert "--fsdp_config.fsdp_cpu_offload" in text
    back = _after(text, _run(text), {"offload.params": "none", "offload.optimizer": "none"})
    assert _run(back).plan.offload.params == "none"
    text = _after(_SEED, run, {"parallel.gpus_per_node": 8})
    assert "--nproc_per_node 8 finetuning.py" in text
    for wish in (
        {"parallel.zero.stage": 3},
        {"model.attn_impl": "flash2"},
        {"optimizer.kind": "adafactor"},
        {"loss.logits_materialised": "fused"},
        {"quant.method": "bnb8"},
    ):
        with pytest.raises(CannotEdit):
            run.what_if(wish)


def test_misspelt_options_are_found() -> None:
    run = _run(_SEED.replace("--enable_fsdp", "--enable_fsdp --low_cpu_fdsp"))
    assert [(s.path, s.nearest[0]) for s in run.stray] == [("low_cpu_fdsp", "low_cpu_fsdp")]


def test_every_linear_layer_is_said_in_pefts_word() -> None:
    line = "torchrun --nproc_per_node 2 finetuning.py --enable_fsdp --model_name meta-llama/Meta-Llama-3-8B\n"
    changes = {"trainable.method": "lora", "trainable.r": 16, "trainable.targets": "all_linear"}
    text = _after(line, _run(line), changes)
    assert "--lora_config.target_modules all-linear" in text
    assert _run(text).plan.trainable.targets == "all_linear"
    listed = line.replace(
        "--enable", '--lora_config.target_modules \'["q_proj","o_proj"]\' --use_peft --enable'
    )
    assert _run(listed).plan.trainable.targets == ("q_proj", "o_proj")


@pytest.mark.parametrize(("flags", "storage"), [("", "fp32"), (" --enable_fsdp", "bf16")])
def test_packed_weights_are_stored_as_asked_but_under_fsdp(flags: str, storage: str) -> None:
    line = "torchrun --nproc_per_node 2 finetuning.py --use_peft --peft_method lora --quantization 4bit"
    model = "--model_name meta-llama/Llama-2-7b-hf --quantization_config.quant_storage float32"
    run = _run(f"{line} {model}{flags}\n")
    assert run.plan.quant.storage_dtype == storage
