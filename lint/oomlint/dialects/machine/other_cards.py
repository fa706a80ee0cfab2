"""Runs for accelerators of another maker than the machine is said to have: what they need there no figure here tells."""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import shared
from oomlint.dialects.machine.launcher_keys import ENVIRONMENT
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.table import Block
from oomlint.documents.base import PythonDocument

other_cards = Meaning()

# torch 2.9 backends/mps: a script that asks for Apple's GPUs, and says nothing of CUDA's, is for a Mac.
_ASKS_APPLE = re.compile(r"\btorch\.(?:backends\.)?mps\.is_(?:available|built)\(")
_SPEAKS_OF_CUDA = re.compile(r"cuda|nvidia", re.IGNORECASE)

# torch_npu 2.6 README and CANN docs, ROCm docs ("GPU isolation techniques"): which of them a process sees. A script
# for both kinds of cards sets the other, too.
_SHOWN = {"ASCEND_RT_VISIBLE_DEVICES": "Ascend NPUs", "HIP_VISIBLE_DEVICES": "AMD GPUs"}
_GPUS = "CUDA_VISIBLE_DEVICES"
# Not below an ``if`` or a ``try``, as where there are both.
_IMPORTS = re.compile(r"^(?:import|from) (torch_npu|torch_xla)\b", re.MULTILINE)
_MAKERS = {"torch_npu": "Ascend NPUs", "torch_xla": "TPUs"}


@other_cards.derive(shared.other_cards)
def for_others(run: Cells) -> Any:
    hardware = run.known.hardware
    if hardware is None or hardware.gpu.vendor != "NVIDIA":
        return None
    return run.given.once(_said) or None


def _said(blocks: list[Block]) -> str:
    for block in blocks:
        names = block.mapping.entries if block.table is ENVIRONMENT else ()
        for name, cards in _SHOWN.items():
            if name in names and _GPUS not in names:
                return f"{name} is for {cards}"
    for document in {id(block.document): block.document for block in blocks}.values():
        text = document.source.text if isinstance(document, PythonDocument) else ""
        found = _IMPORTS.search(text)
        if found is not None:
            return f"{found[1]}, which {document.source.path} imports, is for {_MAKERS[found[1]]}"
        if _ASKS_APPLE.search(text) and not _SPEAKS_OF_CUDA.search(text):
            return f"torch.backends.mps, which {document.source.path} asks for, is for Apple's GPUs"
    return ""
