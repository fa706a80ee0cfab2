"""Spellings of GPUs, counts and instances."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, strategies as st

from oomlint.errors import UsageError
from oomlint.hardware import (
    find_gpu,
    find_gpus,
    find_instance,
    list_gpus,
    list_instances,
    parse_bytes,
    parse_hardware,
)

GIB = 2**30

# The names that the public contract writes out.
CONTRACT = (
    "A100-80GB A100-40GB A800-80GB H100-80GB H100-NVL-94GB H200-141GB H20-96GB B200-180GB L4-24GB "
    "L20-48GB L40S-48GB A10-24GB A10G-24GB A40-48GB RTX-A6000-48GB RTX-6000-Ada-48GB RTX-3090-24GB "
    "RTX-4090-24GB RTX-5090-32GB T4-16GB V100-16GB V100-32GB P100-16GB MI250X-64GB MI300X-192GB "
    "910B-64GB Gaudi2-96GB"
).split()


@pytest.mark.parametrize("name", CONTRACT)
def test_contract_names(name: str) -> None:
    assert parse_hardware(name).gpu.name == name
    assert parse_hardware(name.lower()).gpu.name == name


def test_every_listed_name_means_itself() -> None:
    for gpu in list_gpus():
        assert find_gpu(gpu.name).name == gpu.name


def test_a_size_may_be_left_out_where_there_is_one() -> None:
    for gpu in list_gpus():
        short = gpu.name.rpartition("-")[0]
        assert gpu.name in [found.name for found in find_gpus(short)], short


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A100 80GB", "A100-80GB"),
        ("a100-80g", "A100-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB"),
        ("A100-PCIE-40GB", "A100-40GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100-80GB"),
        ("nvidia-h100-mega-80gb", "H100-80GB"),
        ("h100", "H100-80GB"),
        ("H100 PCIe", "H100-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL-94GB"),
        ("NVIDIA H200", "H200-141GB"),
        ("rtx 4090", "RTX-4090-24GB"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090-24GB"),
        ("RTX4090D", "RTX-4090D-24GB"),
        ("Tesla-T4", "T4-16GB"),
        ("TESLA-T4", "T4-16GB"),
        ("Tesla V100-SXM2-32GB", "V100-32GB"),
        ("NVIDIA RTX A6000", "RTX-A6000-48GB"),
        ("a6000", "RTX-A6000-48GB"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada-48GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX-PRO-6000-Blackwell-96GB"),
        ("NVIDIA GH200 480GB", "GH200-96GB"),
        ("B200-192GB", "B200-180GB"),
        ("AMD Instinct MI300X", "MI300X-192GB"),
        ("Ascend910B3", "910B-64GB"),
        ("gpu:a10g", "A10G-24GB"),
        ("H20", "H20-96GB"),
        ("H20-141GB", "H20-141GB"),
        ("910B", "910B-64GB"),
        ("Ascend 910B4", "910B-32GB"),
        ("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", "A100-80GB-MIG-3g.40gb"),
    ],
)
def test_spellings(text: str, name: str) -> None:
    assert parse_hardware(text).gpu.name == name


@pytest.mark.parametrize(
    ("text", "nodes", "gpus", "name"),
    [
        ("A100-80GB", 1, 1, "A100-80GB"),
        ("8xA100-80GB", 1, 8, "8xA100-80GB"),
        ("2x8xH100-80GB", 2, 8, "2x8xH100-80GB"),
        ("4 x L40S", 1, 4, "4xL40S-48GB"),
        ("4×L4", 1, 4, "4xL4-24GB"),
        ("A100-80GB:8", 1, 8, "8xA100-80GB"),
        ("gpu:h100:4", 1, 4, "4xH100-80GB"),
        ("p4d.24xlarge", 1, 8, "p4d.24xlarge"),
        ("2xp5.48xlarge", 2, 8, "2xp5.48xlarge"),
        ("ND96asr_v4", 1, 8, "Standard_ND96asr_v4"),
        ("gpu_8x_h100_sxm5", 1, 8, "gpu_8x_h100_sxm5"),
        ("DGX H100", 1, 8, "DGX H100"),
    ],
)
def test_counts_and_instances(text: str, nodes: int, gpus: int, name: str) -> None:
    hardware = parse_hardware(text)
    assert (hardware.nodes, hardware.gpus_per_node, hardware.name) == (nodes, gpus, name)
    assert hardware.world == nodes * gpus
    assert hardware.source


def test_instances_know_their_ram() -> None:
    """Without what Linux keeps to describe its pages: 64 bytes of every 4,096."""
    assert parse_hardware("p4d.24xlarge").host_bytes_per_node == 1152 * GIB * 63 // 64
    assert parse_hardware("P5.48XLARGE").host_bytes_per_node == 2016 * GIB
    assert parse_hardware("8xA100-80GB").host_bytes_per_node is None
    pod = find_instance("p4d.24xlarge")
    assert pod is not None
    assert pod.host_bytes is not None
    assert pod.allocatable_bytes is not None
    assert pod.allocatable_bytes < pod.host_bytes


def test_every_instance_parses() -> None:
    instances = list_instances()
    assert len(instances) > 200
    for instance in instances:
        hardware = parse_hardware(instance.name)
        assert hardware.gpu == instance.gpu
        assert hardware.gpus_per_node == instance.gpus


def test_a_virtual_gpu_has_a_share() -> None:
    slice_, whole = find_instance("NV6ads_A10_v5"), find_gpu("A10")
    assert slice_ is not None
    assert 0.15 < slice_.gpu.total_bytes / whole.total_bytes < 0.18


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("A100", "write A100-40GB or A100-80GB"),
        ("gpu:a100:4", "write 4xA100-40GB or 4xA100-80GB"),
        ("2x8xA100", "write 2x8xA100-40GB or 2x8xA100-80GB"),
        ("80", "80GB"),
        ("p5", "p5.48xlarge"),
        ("kagle", "kaggle"),
        ("colab pro", "Colab L4"),
        ("0GB", "no GPU has 0 GB"),
        ("99999GB", "no GPU has 99999 GB"),
        ("A100-60GB", "A100-80GB"),
        ("H1000", "H100-80GB"),
        ("p4d.24xlarg", "p4d.24xlarge"),
        ("RTX 4091", "RTX-4090-24GB"),
        ("trn1.32xlarge", "cannot be predicted"),
        ("TPU-v4", "cannot be predicted"),
        ("2x2x2xH100", "too many counts"),
        ("0xA100-80GB", "not a number of GPUs"),
        ("0x8xA100-80GB", "not a number of nodes"),
        ("99999xA100-80GB", "not a number of GPUs"),
        ("", "8xA100-80GB"),
        ("x" * 500, "8xA100-80GB"),
        ("A100-80GB-MIG-9g.90gb", "A100-80GB"),
    ],
)
def test_errors_help(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_hardware(text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "text", ["A100", "RTX", "a", "8", "H", "p", "gpu", "A10O", "dgx", "M", "B"]
)
def test_errors_name_three_at_most(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_hardware(text)
    said = str(caught.value)
    assert "\n" not in said
    assert said.count(", ") + said.count(" or ") <= 4
    assert len(said) < 250


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A100-80", "A100-80GB"),
        ("a100 40", "A100-40GB"),
        ("8xA10080", "8xA100-80GB"),
        ("h100x8", "8xH100-80GB"),
        ("L40S x 4", "4xL40S-48GB"),
        ("A100-80GBx8", "8xA100-80GB"),
        ("8 A100-80GB", "8xA100-80GB"),
        ("colab", "Colab T4"),
        ("Google Colab", "Colab T4"),
        ("kaggle", "Kaggle T4 x2"),
    ],
)
def test_slips_with_one_meaning(text: str, name: str) -> None:
    assert parse_hardware(text).name == name


@pytest.mark.parametrize("text", ["RTX4090", "RTX 3090", "RTX8000", "GH200 480GB", "RTX 4090 D"])
def test_no_count_is_read_out_of_a_name(text: str) -> None:
    assert parse_hardware(text).gpus_per_node == 1


def test_what_notebooks_give_away_has_its_source() -> None:
    colab, kaggle = parse_hardware("colab"), parse_hardware("kaggle")
    assert (colab.gpus_per_node, colab.gpu.name) == (1, "T4-16GB")
    assert (kaggle.gpus_per_node, kaggle.gpu.name) == (2, "T4-16GB")
    for found in (colab, kaggle):
        assert found.host_bytes_per_node is not None
        assert "http" in found.source or ".co" in found.source


@pytest.mark.parametrize(
    ("text", "name", "gpus"),
    [
        ("24GB", "custom-24GB", 1),
        ("24 gib", "custom-24GB", 1),
        ("24g", "custom-24GB", 1),
        ("8x80GB", "8xcustom-80GB", 8),
        ("80GBx8", "8xcustom-80GB", 8),
        ("2x8x80GB", "2x8xcustom-80GB", 8),
    ],
)
def test_any_card_of_a_size(text: str, name: str, gpus: int) -> None:
    found = parse_hardware(text)
    assert (found.name, found.gpus_per_node) == (name, gpus)
    assert parse_hardware(found.name).gpu == found.gpu, "its own name means itself"


@pytest.mark.parametrize("gigabytes", [16, 24, 48, 80])
def test_a_card_of_a_size_is_like_those_that_are_sold(gigabytes: int) -> None:
    card = parse_hardware(f"{gigabytes}GB").gpu
    sold = [g for g in list_gpus() if g.vendor == "NVIDIA" and g.nameplate_gb == gigabytes]
    assert min(g.total_bytes for g in sold) <= card.total_bytes <= max(g.total_bytes for g in sold)
    assert card.total_low <= card.total_bytes <= card.total_high < gigabytes * GIB


def test_a_size_that_nobody_sells_loses_what_drivers_take() -> None:
    card = parse_hardware("7GB").gpu
    assert 0.96 * 7 * GIB < card.total_bytes < 7 * GIB
    assert parse_hardware("23.6GiB").gpu.total_bytes == round(23.6 * GIB), "torch's own word"


@given(st.text(max_size=60))
def test_any_text_parses_or_is_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert parse_hardware(text).gpus_per_node >= 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512GiB", 512 * GIB),
        ("512 gib", 512 * GIB),
        ("2TB", 2048 * GIB),
        ("1.5TiB", 1536 * GIB),
        ("64G", 64 * GIB),
        ("64Gi", 64 * GIB),
        ("4294967296", 4 * GIB),
        ("100m", 100 * 2**20),
    ],
)
def test_amounts(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1G", "0", "1e9", "12QB", "1..5G", "٣G", "9" * 40])
def test_no_amounts(text: str) -> None:
    with pytest.raises(UsageError):
        parse_bytes(text)


def test_a_bare_number_that_no_machine_has_means_gibibytes() -> None:
    with pytest.raises(UsageError, match="did you mean 512GiB"):
        parse_bytes("512")
