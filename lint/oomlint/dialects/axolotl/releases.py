"""What Axolotl does otherwise from a release on, and the libraries that a release brings along."""

from __future__ import annotations

from collections.abc import Mapping

from oomlint.plan.library_changes import LibraryChange, Release

FUSED_BY_DEFAULT = LibraryChange(
    "axolotl", (0, 8), "the default optimizer is adamw_hf",
    "axolotl 0.7.1 utils/config/models/input/v0_4_1 and 0.8.0 utils/schemas/training.py",
    was="adamw_hf",
)  # fmt: skip
LOADS_WITH_WORKERS = LibraryChange(
    "axolotl", (0, 11), "no worker processes load data unless a key asks for them",
    "axolotl 0.10.1 and 0.11.0 utils/schemas/config.py default_dataloader_opts",
)  # fmt: skip
OWN_FSDP2 = LibraryChange(
    "axolotl", (0, 12), "Accelerate prepares FSDP2, which makes the whole model fp32",
    "axolotl 0.11.0 and 0.12.0 monkeypatch/accelerate/fsdp2.py fsdp2_prepare_model",
)  # fmt: skip
KERNELS_WITH_DROPOUT = LibraryChange(
    "axolotl", (0, 16), "LoRA kernels run only without dropout",
    "axolotl 0.15.0 and 0.16.0 monkeypatch/lora_kernels.py apply_lora_kernel_patches",
)  # fmt: skip
KERNELS_BY_DEFAULT = LibraryChange(
    "axolotl", (0, 10), "LoRA kernels run only where a key asks for them",
    "axolotl 0.9.2 and 0.10.0 utils/schemas/config.py check_auto_enable_lora_kernels",
)  # fmt: skip
STACKS_EXPERTS = LibraryChange(
    "axolotl", (0, 14), "experts are linear layers of their own, which bitsandbytes quantizes",
    "axolotl 0.13.2 and 0.14.0 requirements.txt: transformers 4.57.6 and 5.0.0",
)  # fmt: skip

# requirements.txt of the last release of each minor version, pyproject.toml from 0.17 on.
_REQUIRED = {
    (0, 4): {"transformers": "4.37.0", "accelerate": "0.26.1", "peft": "0.7.0"},
    (0, 5): {"transformers": "4.46.3", "accelerate": "1.1.0", "peft": "0.13.2"},
    (0, 6): {"accelerate": "1.2.0", "peft": "0.14.0"},
    (0, 7): {"transformers": "4.49.0", "accelerate": "1.3.0", "peft": "0.14.0"},
    (0, 8): {"transformers": "4.51.0", "accelerate": "1.6.0", "peft": "0.15.1"},
    (0, 9): {"transformers": "4.51.3", "accelerate": "1.6.0", "peft": "0.15.2"},
    (0, 10): {"transformers": "4.52.4", "accelerate": "1.7.0", "peft": "0.15.2"},
    (0, 11): {"transformers": "4.53.1", "accelerate": "1.8.1", "peft": "0.15.2"},
    (0, 12): {"transformers": "4.55.2", "accelerate": "1.10.0", "peft": "0.17.0"},
    (0, 13): {"transformers": "4.57.6", "accelerate": "1.12.0"},
    (0, 14): {"transformers": "5.0.0", "accelerate": "1.12.0"},
    (0, 15): {"transformers": "5.3.0", "accelerate": "1.13.0"},
    (0, 16): {"transformers": "5.5.0", "accelerate": "1.13.0"},
    (0, 17): {"transformers": "5.9.0", "accelerate": "1.13.0"},
    (0, 18): {"transformers": "5.14.1", "accelerate": "1.13.0", "peft": "0.19.1"},
}


def required(own: Release | None) -> Mapping[str, str]:
    """The libraries that a release of Axolotl pins; those of the newest where none is known."""
    minor = max((m for m in _REQUIRED if own is None or m <= own), default=min(_REQUIRED))
    return _REQUIRED[minor]
