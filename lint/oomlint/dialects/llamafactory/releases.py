"""What LLaMA-Factory does otherwise from a release on, and the libraries that a release allows."""

from __future__ import annotations

from collections.abc import Mapping

from oomlint.plan.library_changes import LibraryChange, Release

LONGER_CUTOFF = LibraryChange(
    "llamafactory", (0, 9, 1), "cutoff_len is 1024 by default",
    "LLaMA-Factory 0.9.0 and 0.9.1 hparams/data_args.py", was=1024,
)  # fmt: skip
LARGER_IMAGES = LibraryChange(
    "llamafactory", (0, 9, 2), "images have up to 512 x 512 pixels by default",
    "LLaMA-Factory 0.9.1 and 0.9.2 hparams/model_args.py", was=512 * 512,
)  # fmt: skip
MORE_FRAMES = LibraryChange(
    "llamafactory", (0, 9, 2), "videos have up to 64 frames by default",
    "LLaMA-Factory 0.9.1 and 0.9.2 hparams/model_args.py", was=64,
)  # fmt: skip

EXPANDS_SEGMENTS = LibraryChange(
    "llamafactory", (0, 9, 3), "llamafactory-cli leaves PyTorch's allocator without expandable segments",
    "LLaMA-Factory 0.9.2 and 0.9.3 src/llamafactory/cli.py, 3ef36d00 (2025-04-14)",
)  # fmt: skip
LOADS_ONTO_GPU = LibraryChange(
    "llamafactory", (0, 6), "the model is read into RAM, and made fp32 there",
    "LLaMA-Factory 0.5.3 and 0.6.0 model/patcher.py, 9a69cadab (2024-03-07)",
)  # fmt: skip
STARTS_TORCHRUN = LibraryChange(
    "llamafactory", (0, 8), "llamafactory-cli is one process, whatever GPUs it sees",
    "LLaMA-Factory 0.7.1 and 0.8.0 cli.py, 9138a7a5 (2024-05-28)",
)  # fmt: skip
REFUSES_DATA_PARALLEL = LibraryChange(
    "llamafactory", (0, 8, 2), "one process that sees several GPUs wraps the model in nn.DataParallel",
    "LLaMA-Factory 0.8.1 and 0.8.2 hparams/parser.py, 2af932d9 (2024-06-15)",
)  # fmt: skip
DROPS_LABELS = LibraryChange(
    "llamafactory", (0, 9, 4), "preference training hands the labels on, of which the model computes its own loss",
    "LLaMA-Factory 0.9.3 and 0.9.4 train/dpo/trainer.py, 0894b4f3 (2025-12-20)",
)  # fmt: skip

TRAINS_ON_TOKENS = LibraryChange(
    "llamafactory", (0, 9, 2), "the run ends once tokenized_path is written",
    "LLaMA-Factory 0.9.1 and 0.9.2 data/loader.py, 478e8194 (2025-03-11)",
)  # fmt: skip

BEYOND_TRANSFORMERS = (5, 9)
"""The first release of transformers that no release of LLaMA-Factory allows."""

# requirements.txt, pyproject.toml from 0.9.4 on, which it checks when it starts
# (hparams/parser.py): the oldest release, and the first that is too new.
_ALLOWED: dict[Release, dict[str, tuple[Release, Release]]] = {
    (0, 9, 0): {"transformers": ((4, 41), (4, 46)), "accelerate": ((0, 30), (0, 34))},
    (0, 9, 1): {"transformers": ((4, 41), (4, 47)), "accelerate": ((0, 34), (1, 1))},
    (0, 9, 2): {"transformers": ((4, 41), (4, 50)), "accelerate": ((0, 34), (1, 3))},
    (0, 9, 3): {"transformers": ((4, 45), (4, 53)), "accelerate": ((0, 34), (1, 8))},
    (0, 9, 4): {"transformers": ((4, 51), (4, 58)), "accelerate": ((1, 3), (1, 12))},
    (0, 9, 5): {"transformers": ((4, 55), (5, 7)), "accelerate": ((1, 3), (1, 12))},
}

# The newest checkout, ff6d4d12 pyproject.toml:43.
_NEWEST: dict[str, tuple[Release, Release]] = {
    "transformers": ((4, 55), BEYOND_TRANSFORMERS),
    "accelerate": ((1, 3), (1, 12)),
}


def allowed(own: Release | None) -> Mapping[str, tuple[Release, Release]]:
    """Which libraries a release of LLaMA-Factory allows, the newest where none is known."""
    if own is None:
        return _NEWEST
    release = max((release for release in _ALLOWED if release <= own), default=None)
    return {} if release is None else _ALLOWED[release]
