"""Runs for accelerators of another maker than the machine is said to have: what they need there no figure here tells."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import scripts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import shared
from oomlint.dialects.machine.launcher_keys import ENVIRONMENT
from oomlint.dialects.meaning import Meaning
from oomlint.documents import YAML_SUFFIXES
from oomlint.documents.base import Mapping

other_cards = Meaning()

# torch 2.9 backends/mps: a script that asks for Apple's GPUs, and says nothing of CUDA's, is for a Mac.
_ASKS_APPLE = r"\btorch\.(?:backends\.)?mps\.is_(?:available|built)\("
_SPEAKS_OF_CUDA = r"(?i)cuda|nvidia"

# torch_npu 2.6 README and CANN docs, ROCm docs ("GPU isolation techniques"): which of them a process sees. A script
# for both kinds of cards sets the other, too.
_SHOWN = {"ASCEND_RT_VISIBLE_DEVICES": "Ascend NPUs", "HIP_VISIBLE_DEVICES": "AMD GPUs"}
_GPUS = "CUDA_VISIBLE_DEVICES"
# torch_xla 2.7 docs/source/learn/pjrt.md: the device that PyTorch/XLA runs on. Its other values are CPU and CUDA.
_XLA_DEVICE = "PJRT_DEVICE"
# Not below an ``if`` or a ``try``, as where there are both.
_IMPORTS = r"(?m)^(?:import|from) (torch_npu|torch_xla|intel_extension_for_pytorch|ipex_llm)\b"
# Intel Extension for PyTorch, README: for Intel's CPUs and GPUs; IPEX-LLM, README: the same.
_MAKERS = {
    "torch_npu": "Ascend NPUs",
    "torch_xla": "TPUs",
    "intel_extension_for_pytorch": "Intel's CPUs and GPUs",
    "ipex_llm": "Intel's CPUs and GPUs",
}
# accelerate 1.12 utils/dataclasses.py DistributedType, commands/config/cluster.py (ipex_config).
_TYPES = {
    "MULTI_NPU": "Ascend NPUs",
    "MULTI_XPU": "Intel GPUs",
    "MULTI_MLU": "Cambricon MLUs",
    "MULTI_HPU": "Gaudi HPUs",
}
# LLaMA-Factory ff6d4d12 examples/ascend: its configs say nothing of the cards themselves.
_FOLDERS = {"ascend": "Ascend NPUs"}


@other_cards.derive(shared.other_cards)
def for_others(run: Cells) -> Any:
    return (run.once(_said) or None) if is_on_nvidia(run) else None


def is_on_nvidia(run: Cells) -> bool:
    """Whether the machine is said to have NVIDIA's cards."""
    hardware = run.known.hardware
    return hardware is not None and hardware.gpu.vendor == "NVIDIA"


def _said(blocks: list[Block]) -> str:
    for block in blocks:
        names = block.mapping.entries if block.table is ENVIRONMENT else ()
        for name, cards in _SHOWN.items():
            if name in names and _GPUS not in names:
                return f"{name} is for {cards}"
        if _XLA_DEVICE in names and str(block.mapping.said(_XLA_DEVICE)).upper() == "TPU":
            return f"{_XLA_DEVICE}=TPU is for TPUs"
        for cards in (_of_accelerate(block), _of_folder(block)):
            if cards:
                return cards
    for document in scripts_of(blocks):
        text = document.source.text
        found = re.search(_IMPORTS, text)
        if found is not None:
            return f"{found[1]}, which {document.source.path} imports, is for {_MAKERS[found[1]]}"
        if re.search(_ASKS_APPLE, text) and not re.search(_SPEAKS_OF_CUDA, text):
            return f"torch.backends.mps, which {document.source.path} asks for, is for Apple's GPUs"
    return ""


def _of_accelerate(block: Block) -> str:
    """By the kind of processes in a config of Accelerate's, or by what it says of Intel's extension."""
    kind = block.mapping.said("distributed_type")
    if isinstance(kind, str) and kind.upper() in _TYPES:
        return f"distributed_type {kind} is for {_TYPES[kind.upper()]}"
    ipex = block.mapping.entries.get("ipex_config")
    if (
        ipex is not None
        and isinstance(ipex.value, Mapping)
        and str(ipex.value.said("use_xpu")).lower() == "true"
    ):
        return "ipex_config with use_xpu is for Intel GPUs"
    return ""


def _of_folder(block: Block) -> str:
    """By the folder that a config lies in; a script of such a folder says in its environment what it is for."""
    path = PurePosixPath(block.path)
    if path.suffix not in YAML_SUFFIXES:
        return ""
    folder = next((part for part in reversed(path.parts[:-1]) if part.lower() in _FOLDERS), None)
    return "" if folder is None else f"what lies in {folder} is for {_FOLDERS[folder.lower()]}"
