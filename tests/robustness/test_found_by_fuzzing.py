"""What the fuzzer found, cut down to what shows it: the smallest input for each mended fault."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from msgspec.structs import replace

from oomlint.errors import ReadError
from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware
from oomlint.linting.engine import Options, lint

AXOLOTL = b"base_model: ./model\nmicro_batch_size: 4\nsequence_len: 2048\n"
PROJECTS = {
    "more heads than width": {
        "train.yaml": AXOLOTL,
        "model/config.json": b'{"model_type": "mixtral", "num_attention_heads": 128256}',
    },
    "options of a switch in a variable": {
        "train.sh": b'A="--micro-batch-size --global-batch-size --train-iters --bf16"\n'
        b"torchrun pretrain_gpt.py $A --add_qkv_bias e --tensor-model-parallel-size\n",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PROJECTS)
def test_a_project_that_broke(name: str) -> None:
    files = PROJECTS[name]
    options = Options(hardware=parse_hardware("8xA100-80GB"))
    report = lint(Workspace(Path("/nowhere"), files), sorted(files), options)
    assert not [error.message for error in report.errors if error.kind == "internal"]
    assert report.runs


TUNE = "tune run --nproc_per_node 8 full_finetune_distributed --config llama3/8B_full"
LAUNCH = "torchrun --nproc_per_node 8 -m llama_recipes.finetuning --enable_fsdp"
VARIABLES = "ACCELERATE_USE_FSDP=1 FSDP_CPU_RAM_EFFICIENT_LOADING=1"
ACCELERATED = (
    "accelerate launch --config_file acc.yaml run_clm.py --do_train --dataset_name tatsu-lab/alpaca "
    "--model_name_or_path meta-llama/Llama-3.1-8B --torch_dtype bfloat16 --bf16 --output_dir out\n"
)
ACC = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\nnum_processes: 8\n"
FIXED: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
    "a key of a config that is shipped cannot be taken out": (
        {"train.sh": f"{TUNE}\n"}, "A10G-24GB", {},
    ),
    "nor one that stands on the command line too": (
        {"train.sh": f"{TUNE} optimizer.fused=True\n"}, "A10G-24GB", {},
    ),
    "an option behind an assignment": (
        {"pretrain.sh": "SIZE=(-num-layers -hidden-size -num-attention-heads -seq-length )\n-d\n"
         "torchrun -r traingpt.py ${SIZE[@]} $CH --tensor-model-parallel-size 2\n"},
        "8xA100-80GB", {},
    ),
    "variables in front of the second line of a recipe": (
        {"Makefile": f"n:\n\techo a\n\t{LAUNCH}\n"}, "8xT4-16GB",
        {"Makefile": f"n:\n\techo a\n\t{VARIABLES} {LAUNCH} --low_cpu_fsdp\n"},
    ),
    "variables in front of the second command of a cell": (
        {"x.ipynb": f'{{"cells": [{{"cell_type": "code", "source": ["!echo a\\n", "!{LAUNCH}\\n"]}}]}}'}, "8xT4-16GB",
        {"x.ipynb": f'{{"cells": [{{"cell_type": "code", "source": ["!echo a\\n", "!{VARIABLES} {LAUNCH} --low_cpu_fsdp\\n"]}}]}}'},
    ),
    "stages beside a file of DeepSpeed that is broken": (
        {"train.sh": ACCELERATED, "acc.yaml": ACC, "ds.json": ""}, "8xT4-16GB", {},
    ),
    "two byte order marks": (
        {"finetune.yaml": "\ufeff\ufeffcheckpoint_dir:\ntrain:\n  global_batch_size:\n  mi&a cro_batch_size:\n"},
        "8xA100-80GB", {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIXED)
def test_a_fix_that_broke(name: str) -> None:
    """``{}``: what is written matters less than that nothing had to be taken back."""
    from oomlint.fix.apply import fix_all

    texts, hardware, wanted = FIXED[name]
    files = {file: text.encode() for file, text in texts.items()}
    # What a load takes of the host is mended where somebody says what the host has.
    machine = replace(parse_hardware(hardware), host_bytes_per_node=64 * 2**30)
    result = fix_all(
        Workspace(Path("/nowhere"), files), sorted(files), Options(hardware=machine),
        explicit=frozenset(files), unsafe=True,
    )  # fmt: skip
    assert not [error.message for error in result.report.errors if error.kind == "internal"]
    if wanted:
        assert {file: text.decode() for file, text in result.texts.items()} == wanted


@pytest.mark.parametrize("data", [b"\x1f\x8b\x08", b"\x1f\x8b\x08\x08", b"\x1f\x8b", b""])
def test_an_archive_that_is_cut_off(data: bytes) -> None:
    from oomlint.review.trees import unpacked

    with pytest.raises(ReadError, match="cannot be read"):
        list(unpacked(io.BytesIO(data), "forge"))


def _without_comment(name: str, text: str) -> str:
    """The text once its suppression, which nothing uses, has been removed."""
    from oomlint.fix.apply import fix_all

    workspace = Workspace(Path("/nowhere"), {name: text.encode()})
    result = fix_all(workspace, [name], Options(), explicit=frozenset([name]))
    assert not result.report.errors
    return result.texts[name].decode()


def _hosted(name: str, lines: str) -> str:
    """The lines as a script, or as the recipe of a Makefile."""
    return f"n:\n{lines}" if name == "Makefile" else lines.replace("\t", "")


LAUNCHED = "torchrun -m llama_recipes.finetuning\n"


@pytest.mark.parametrize("name", ["Makefile", "train.sh"])
def test_a_comment_that_ends_a_continued_command(name: str) -> None:
    """With its whole line gone the backslash would join the line below."""
    text = _hosted(name, f"\td \\\n# oomlint: ignore\n\t{LAUNCHED}")
    assert _without_comment(name, text) == text.replace("# oomlint: ignore", "")


@pytest.mark.parametrize("name", ["Makefile", "train.sh"])
def test_a_comment_behind_an_escaped_blank(name: str) -> None:
    """Without the blank the backslash would join the next line to this one."""
    text = _hosted(name, f"\td\\  #oomlint:ignore\n\t{LAUNCHED}")
    assert _without_comment(name, text) == text.replace(" #oomlint:ignore", "")
