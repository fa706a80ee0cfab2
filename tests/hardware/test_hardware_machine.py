"""`--hardware auto`: nvidia-smi's text, /proc and control groups of a made-up machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomlint.hardware import detect, host_bytes
from oomlint.hardware.machine import _nvidia_smi

MIB = 2**20
GIB = 2**30


@pytest.fixture(autouse=True)
def _all_gpus_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def write(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return str(root)


MEMINFO = {"proc/meminfo": "MemTotal:       1048576000 kB\nMemFree: 1 kB\n"}


def test_a_node_of_h100s(tmp_path: Path) -> None:
    hardware = detect(
        root=write(tmp_path, MEMINFO), smi=lambda: "NVIDIA H100 80GB HBM3, 81559\n" * 8
    )
    assert hardware is not None
    assert hardware.name == "8xH100-80GB"
    assert (hardware.nodes, hardware.gpus_per_node) == (1, 8)
    assert hardware.host_bytes_per_node == 1048576000 * 1024


def test_the_machines_own_total_counts(tmp_path: Path) -> None:
    """An A100 with an old driver shows 40536 MiB; the 80 GB card is not meant."""
    hardware = detect(root=str(tmp_path), smi=lambda: "NVIDIA A100-SXM4-40GB, 40536\n")
    assert hardware is not None
    assert hardware.gpu.name == "A100-40GB"
    assert hardware.gpu.driver_total_mib == 40536
    assert 0.97 * 40536 * MIB < hardware.gpu.total_bytes < 40536 * MIB
    assert hardware.host_bytes_per_node is None


def test_the_size_tells_gpus_of_one_name_apart(tmp_path: Path) -> None:
    hardware = detect(root=str(tmp_path), smi=lambda: "NVIDIA H20, 143771\n")
    assert hardware is not None
    assert hardware.gpu.name == "H20-141GB"


def test_an_unknown_gpu_is_known_by_its_memory(tmp_path: Path) -> None:
    hardware = detect(root=str(tmp_path), smi=lambda: "NVIDIA Wonder 9000, 50000\n")
    assert hardware is not None
    assert hardware.gpu.name.startswith("custom-")
    assert hardware.gpu.total_high == 50000 * MIB
    assert hardware.gpu.total_bytes < 50000 * MIB


def test_of_different_gpus_the_smallest_counts(tmp_path: Path) -> None:
    text = "NVIDIA A100-SXM4-80GB, 81920\nNVIDIA GeForce RTX 3090, 24576\n"
    hardware = detect(root=str(tmp_path), smi=lambda: text)
    assert hardware is not None
    assert hardware.gpu.name == "RTX-3090-24GB"
    assert hardware.gpus_per_node == 2
    assert "smallest" in hardware.source


@pytest.mark.parametrize(
    ("visible", "count"), [("0", 1), ("0,2", 2), ("1,9,0", 1), ("GPU-a,GPU-b", 2)]
)
def test_visible_devices(
    visible: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    hardware = detect(root=str(tmp_path), smi=lambda: "NVIDIA L4, 23034\n" * 4)
    assert hardware is not None
    assert hardware.gpus_per_node == count


def test_no_visible_device_is_no_hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert detect(root=str(tmp_path), smi=lambda: "NVIDIA L4, 23034\n") is None


@pytest.mark.parametrize(
    "text", [None, "", "No devices were found\n", "NVIDIA GB10, [N/A]\n", "x, -1", ",", "L4, ٣"]
)
def test_no_gpu(text: str | None, tmp_path: Path) -> None:
    assert detect(root=str(tmp_path), smi=lambda: text) is None


def test_a_missing_nvidia_smi_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert _nvidia_smi() is None


def test_version_2_limit_of_an_ancestor_binds(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "0::/slurm/job_7/step_0\n",
            "sys/fs/cgroup/slurm/job_7/step_0/memory.max": "max\n",
            "sys/fs/cgroup/slurm/job_7/memory.max": f"{64 * GIB}\n",
            "sys/fs/cgroup/slurm/memory.max": f"{500 * GIB}\n",
        },
    )
    assert host_bytes(root=root) == 64 * GIB


def test_version_2_inside_a_container(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "0::/../../kubepods/pod1\n",
            "sys/fs/cgroup/memory.max": f"{32 * GIB}\n",
        },
    )
    assert host_bytes(root=root) == 32 * GIB


def test_version_1(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "4:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n",
            "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": f"{16 * GIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert host_bytes(root=root) == 16 * GIB


def test_no_limit_leaves_the_machine(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "garbage\n0::/\n",
            "sys/fs/cgroup/memory.max": "max\n",
        },
    )
    assert host_bytes(root=root) == 1048576000 * 1024


def test_nothing_to_read(tmp_path: Path) -> None:
    assert host_bytes(root=str(tmp_path)) is None
