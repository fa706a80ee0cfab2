"""How far a run had come: steps in progress bars and in the lines that frameworks log."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct


class RunPosition(Struct, frozen=True):
    """A position in the run; ``total`` is ``None`` where the line does not say."""

    done: int
    total: int | None = None

    @property
    def words(self) -> str:
        """``after step 238 of 447``"""
        if self.done == 0:
            return "in the first step"
        of = f" of {self.total}" if self.total is not None else ""
        return f"after step {self.done}{of}"


# Each with bytes that it cannot be without: looking for those is what makes it quick.
_BAR = (
    r"(?:^|[\s\]])(?:Train(?:ing)?|Steps|Total|Epoch \d+)?:? *\d{1,3}%\|[^|]{0,400}\| "
    r"(\d{1,12})/(\d{1,12}) \[[^\]]*?(?:it/s|s/it|\?it/s)"
)
_FORMS: tuple[tuple[bytes, re.Pattern[str]], ...] = tuple(
    (needle, re.compile(pattern))
    for needle, pattern in (
        # tqdm: transformers' Trainer, Axolotl, LLaMA-Factory, TRL, ms-swift, torchtune, OpenRLHF.
        # Bars of shards, files, examples and tokens have a description or another unit.
        (b"%|", _BAR),
        # ... and the Trainer's in notebooks.
        (b" it/s", r"\[ *(\d{1,12})/(\d{1,12}) [\d:]+ < [\d:]+, [\d.]+ it/s"),
        # torchtune: a bar described as `epoch|step|Loss: …`.
        (b"|Loss: ", r"\d+\|(\d{1,12})\|Loss: "),
        # torchtitan/components/metrics.py.
        (b"step: ", r"\bstep: +(\d{1,12}) .*\bloss: "),
        # Megatron-LM and NeMo: megatron/training/training.py.
        (b" iteration ", r"\biteration +(\d{1,12})/ *(\d{1,12}) \|"),
        # Composer: composer/loggers/console_logger.py.
        (b"[batch=", r"\[batch=(\d{1,12})/(\d{1,12})\]"),
        # litgpt/finetune/*.py and pretrain.py.
        (b" step ", r"\biter \d+ step (\d{1,12})\b"),
        # PyTorch Lightning's bar.
        (b"global_step=", r"\bglobal_step=(\d{1,12}(?:\.\d+)?(?:e\+\d{1,2})?)\b"),
        # verl: verl/utils/tracking.py, console.
        (b"step:", r"\bstep:(\d{1,12}) - "),
    )
)  # fmt: skip
_NOT_TRAINING = re.compile(
    r"shards|checkpoint|Downloading|tokeniz|Map|Filter|Generating|Saving|Loading|Converting|"
    r"Fetching|Packing|Evaluat|eval|Predict|Valid|Formatting|Format|Running tokenizer|Group|"
    r"Capturing|Profil|Rollout|examples/s|B/s",
    re.IGNORECASE,
)

NEEDLES: tuple[bytes, ...] = tuple(needle for needle, _ in _FORMS)


def step_in(line: str) -> RunPosition | None:
    """The step that a line tells of; ``None`` where it is about something else."""
    found = None
    for _, pattern in _FORMS:
        for match in pattern.finditer(line):
            if not _NOT_TRAINING.search(line, max(0, match.start() - 60), match.start() + 30):
                step = RunPosition(*map(_count, match.groups()))
                found = step if found is None or step.total is not None else found
    return found


def _count(digits: str) -> int:
    return int(float(digits))


def last_step(lines: Iterable[str]) -> RunPosition | None:
    found = None
    for line in lines:
        found = step_in(line) or found
    return found
