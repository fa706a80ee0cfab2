"""Peaks in logs, in the forms and units in which frameworks print them."""

import pytest

from oomlint.diagnose import examine
from oomlint.diagnose.scan import scan

GIB, MIB = 2**30, 2**20


def peaks_of(tmp_path, text):
    file = tmp_path / "train.log"
    file.write_text(text)
    return {(p.framework, p.kind): p.size for p in scan(str(file)).peaks}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            ("{'loss': 1.2, 'memory/max_active (GiB)': 21.5, 'memory/max_allocated (GiB)': 21.25, "
            "'memory/device_reserved (GiB)': 24.5, 'epoch': 0.1}\n"
            "{'loss': 1.1, 'memory/max_active (GiB)': 20.0, 'memory/max_allocated (GiB)': 19.0}\n"),
            {("axolotl", "active"): 21.5 * GIB, ("axolotl", "allocated"): 21.25 * GIB,
             ("axolotl", "reserved"): 24.5 * GIB},
        ),
        (
            ("Step 3 | loss:1.5 lr:2e-5 tokens_per_second_per_gpu:800 peak_memory_active:15.5 "
            "peak_memory_alloc:15.25 peak_memory_reserved:17.0\n"),
            {("torchtune", "active"): 15.5 * GIB, ("torchtune", "allocated"): 15.25 * GIB,
             ("torchtune", "reserved"): 17 * GIB},
        ),
        (
            ("INFO:torchtune.utils._logging:Memory stats after model init:\n"
            "\tGPU peak memory active: 6.25 GiB\n\tGPU peak memory alloc: 6.25 GiB\n"
            "\tGPU peak memory reserved: 6.50 GiB\n"),
            {("torchtune", "active"): 6.25 * GIB, ("torchtune", "reserved"): 6.5 * GIB},
        ),
        (
            ("[titan] \x1b[31mstep: 10  \x1b[32mloss:  7.9  \x1b[38;2;54;234;195mmemory: 42.50GiB"
            "(44.74%)  \x1b[34mtps: 5,900\x1b[39m\n"),
            {("torchtitan", "reserved"): 42.5 * GIB},
        ),
        (
            ("{'loss': 0.9, 'global_step/max_steps': '10/93', 'memory(GiB)': 61.75, "
            "'train_speed(s/it)': 4.2}\n"),
            {("ms-swift", "reserved"): 61.75 * GIB},
        ),
        (
            '{"current_steps": 5, "loss": 1.0, "vram_allocated": 30.5, "vram_reserved": 33.25}\n',
            {("llama-factory", "allocated"): 30.5 * GIB, ("llama-factory", "reserved"): 33.25 * GIB},
        ),
        ("Peak reserved memory = 7.375 GB.\nPeak reserved memory for training = 1.5 GB.\n",
         {("unsloth", "reserved"): 7.375 * GIB}),
        (
            ("[Rank 0] (after 1 iterations) memory (MB) | allocated: 100.00 | max allocated: 40960.00 "
            "| reserved: 41000.00 | max reserved: 45056.00\n"),
            {("megatron", "allocated"): 40 * GIB, ("megatron", "reserved"): 44 * GIB},
        ),
        (
            ("MA 1.5 GB         Max_MA 12.25 GB         CA 3.0 GB         Max_CA 14 GB \n"
            "CPU Virtual Memory:  used = 480.5 GB, percent = 47.8%\n"),
            {("deepspeed", "allocated"): 12.25 * GIB, ("deepspeed", "reserved"): 14 * GIB,
             ("deepspeed", "host"): 480.5 * GIB},
        ),
        ("| - Memory Used   : 21.50 GB\n", {("litgpt", "allocated"): 21.5e9}),
        ("\t Train memory/peak_reserved_mem: 33.5\n", {("llm-foundry", "reserved"): 33.5e9}),
        ("Max CUDA memory reserved was 38 GB\n", {("llama-recipes", "reserved"): 38 * GIB}),
        (
            ("| N/A   45C    P0   300W / 400W |  75213MiB / 81920MiB |     97%      Default |\n"
            "| N/A   45C    P0   300W / 400W |  76001MiB / 81920MiB |     97%      Default |\n"),
            {("nvidia-smi", "device"): 76001 * MIB},
        ),
        (  # transformers: differences that add up
            ("***** train metrics *****\n  before_init_mem_gpu        =      312MB\n"
            "  init_mem_gpu_alloc_delta   =      500MB\n  init_mem_gpu_peaked_delta  =        0MB\n"
            "  train_mem_gpu_alloc_delta  =     1000MB\n  train_mem_gpu_peaked_delta =     2012MB\n"),
            {("transformers", "allocated"): (312 + 500 + 1000 + 2012) * MIB},
        ),
        (
            "{'train_mem_gpu_alloc_delta': 1073741824, 'train_mem_gpu_peaked_delta': 2147483648}\n",
            {("transformers", "allocated"): 3 * GIB},
        ),
    ],
)  # fmt: skip
def test_peaks_have_the_units_of_their_framework(tmp_path, text, expected):
    found = peaks_of(tmp_path, text)
    assert {key: found.get(key) for key in expected} == expected


def test_the_line_of_the_highest_figure_is_kept(tmp_path):
    file = tmp_path / "train.log"
    file.write_text("".join(f"{{'memory(GiB)': {60 + n % 7}.0}}\n" for n in range(20)))
    (peak,) = scan(str(file)).peaks
    assert (peak.size, peak.line) == (66 * GIB, 7)


def test_figures_of_a_run_that_died_are_what_it_needed_at_least(tmp_path):
    file = tmp_path / "train.log"
    file.write_text(
        "{'memory(GiB)': 70.0}\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 "
        "GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free. Of the allocated "
        "memory 76.00 GiB is allocated by PyTorch, and 0.10 GiB is reserved by PyTorch but "
        "unallocated.\n"
    )
    found = {c.kind: (c.measured, c.is_floor) for c in examine([scan(str(file))]).comparisons}
    assert found == {"allocated": (78 * GIB, True), "reserved": (70 * GIB, True)}


def test_figures_of_loading_are_what_the_run_needed_at_least(tmp_path):
    file = tmp_path / "train.log"
    file.write_text(
        "Memory stats after model init:\n\tGPU peak memory alloc: 15.00 GiB\n"
        "Step 1 | loss:1.4 lr:1e-5 tokens_per_second_per_gpu:900 peak_memory_alloc:16.50\n"
    )
    found = {c.source: c.is_floor for c in examine([scan(str(file))]).comparisons}
    assert found == {"torchtune: peak memory alloc": True, "torchtune: peak_memory_alloc": False}
