"""What the catalogue says about each GPU, against readings that anybody can repeat."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from oomlint.errors import UsageError
from oomlint.hardware import (
    Range,
    common_cards,
    custom_gpu,
    find_gpu,
    nccl_bytes,
    tables,
    usable_bytes,
    usable_high,
    usable_low,
)

MIB = 2**20
DATA = Path(tables.__file__).parent / "data"


def test_data_is_compact_and_names_no_workplace() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in DATA.iterdir())
    assert len(text) < 160 * 1024
    for word in ("shared/", "reference/models", "reference/hardware", "index id"):
        assert word not in text


LINES = (DATA / "gpus.tsv").read_text(encoding="utf-8").splitlines()
_EVERY = {"name", "vendor", "arch", "cc", "gb", "total", "low", "high", "context", "flags", "src", "context_src"}  # fmt: skip
_SOME = {
    "bandwidth", "driver_mib", "fp16_tflops", "bf16_tflops", "pcie", "nvlink", "note", "partial", "variants", "rare",
}  # fmt: skip
_FLAGS = {"bf16", "fp8", "flash2", "tf32", "unified"}


@pytest.mark.parametrize("line", LINES, ids=[re.sub(r'.*"name":"([^"]*)".*', r"\1", line) for line in LINES])  # fmt: skip
def test_each_line_has_spellings_and_facts(line: str) -> None:
    *spellings, facts = line.split("\t")
    assert not spellings[0], "a line begins with a tab"
    assert spellings[1:], "it is found by nothing"
    assert spellings == [word.lower() for word in spellings], "spellings are in lower case"
    entry = json.loads(facts)
    missing, unread = _EVERY - entry.keys(), entry.keys() - _EVERY - _SOME
    assert not missing, f"every GPU has these: {missing}"
    assert not unread, f"nothing reads these: {unread}"
    assert set(entry["flags"]) <= _FLAGS, f"flags are of {_FLAGS}"


def test_no_gpu_stands_there_twice() -> None:
    names = Counter(json.loads(line.split("\t")[-1])["name"] for line in LINES)
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("name", re.findall(r'"name":"([^"]*)"', "\n".join(LINES)))
def test_bounds_and_sources(name: str) -> None:
    gpu = find_gpu(name)
    assert usable_low(gpu) <= usable_bytes(gpu) <= usable_high(gpu)
    assert gpu.context_mib.low <= gpu.context_mib.typical <= gpu.context_mib.high
    assert gpu.source
    assert gpu.context_source
    if gpu.driver_total_mib is not None:
        # torch never sees more than the driver, and loses at most a few percent to it.
        assert usable_bytes(gpu) <= gpu.driver_total_mib * MIB
        assert usable_bytes(gpu) >= 0.92 * gpu.driver_total_mib * MIB


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("A100-40GB", (39.38, 39.71)),
        ("A100-80GB", (79.13, 79.35)),
        ("H100-80GB", (79.09, 79.20)),
        ("H200-141GB", (139.7, 139.82)),
        ("B200-180GB", (178.34, 178.37)),
        ("RTX-3090-24GB", (23.55, 23.70)),
        ("RTX-4090-24GB", (23.51, 23.66)),
        ("T4-16GB", (14.55, 14.76)),
    ],
)
def test_totals_of_out_of_memory_messages(name: str, gib: tuple[float, float]) -> None:
    gpu = find_gpu(name)
    assert gib[0] <= gpu.total_low / 2**30
    assert gpu.total_high / 2**30 <= gib[1]


def test_capabilities() -> None:
    v100, a100, h100, ada = (find_gpu(n) for n in ("V100-32GB", "A100-80GB", "H100", "L40S"))
    assert (v100.bf16, v100.fp8, v100.flash2) == (False, False, False)
    assert (a100.bf16, a100.fp8, a100.flash2) == (True, False, True)
    assert (h100.bf16, h100.fp8, h100.flash2) == (True, True, True)
    assert ada.fp8
    assert find_gpu("910B-64GB").supported == "partial"
    assert a100.interconnect == "NVLink 600 GB/s"
    assert find_gpu("L4").interconnect == "PCIe gen 4"


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("A100-80GB", 8_519_680),
        ("RTX-4090-24GB", 8_519_680),
        ("H100-80GB", 32 * MIB),
        ("B200-180GB", 32 * MIB),
        ("RTX-5090-32GB", 32 * MIB),
        ("MI250X-64GB", 32 * MIB),
        ("MI300X-192GB", 128 * MIB),
        ("910B-64GB", 0),
    ],
)
def test_cublas_workspaces(name: str, size: int) -> None:
    assert find_gpu(name).cublas_workspace_bytes == size


def test_mig_slices_are_smaller_than_their_profile() -> None:
    gpu = find_gpu("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb")
    # torch saw 9728 MiB on such a slice.
    assert usable_low(gpu) <= 9728 * MIB <= usable_high(gpu)
    assert gpu.driver_total_mib == 9856


def test_common_cards_go_up() -> None:
    cards = common_cards()
    sizes = [usable_bytes(card) for card in cards]
    assert sizes == sorted(sizes)
    assert {"RTX-4090-24GB", "A100-80GB", "H100-80GB"} <= {card.name for card in cards}
    assert all(card.supported == "yes" for card in cards)


def test_custom_gpus() -> None:
    gpu = custom_gpu(40 * 2**30)
    assert usable_bytes(gpu) == usable_low(gpu) == usable_high(gpu) == 40 * 2**30
    with pytest.raises(UsageError):
        custom_gpu(0)


def test_nccl_grows_with_link_and_groups() -> None:
    pcie, ampere, hopper = find_gpu("L4"), find_gpu("A100-80GB"), find_gpu("H100")
    assert nccl_bytes(ampere, 1, 1) == Range(0, 0, 0)
    assert nccl_bytes(ampere, 8, 0) == Range(0, 0, 0)
    pair, node = nccl_bytes(ampere, 2, 1), nccl_bytes(ampere, 8, 1)
    assert nccl_bytes(pcie, 8, 1).typical < node.typical < nccl_bytes(hopper, 8, 1).typical
    assert pair.typical < node.typical
    assert node.typical < nccl_bytes(ampere, 8, 3).typical
    assert nccl_bytes(hopper, 16, 1) == nccl_bytes(hopper, 512, 1)
    for gpu in (pcie, ampere, hopper):
        found = nccl_bytes(gpu, 8, 2)
        assert found.low <= found.typical <= found.high


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('\tfoo-1000\t{"name": "FOO-1000",', "gpus.tsv: the entry of foo-1000 is no JSON: "),
        ('foo-1000\t{"name": "FOO-1000"}', "gpus.tsv: no tab and key begin the line foo-1000"),
    ],
)
def test_a_line_that_is_none_says_which(
    line: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_data", lambda _table: line.encode())
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        tables.entries("gpus")
