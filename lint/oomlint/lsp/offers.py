"""The values that a key can be given, ranked by what the run would then need.

Each is tried on the text itself, as it would be with the value accepted; what does not make the
document readable is offered without a prediction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from time import monotonic
from typing import Any

from msgspec import Struct

from oomlint.dialects.common.fields import ref
from oomlint.dialects.index import SIGNATURES
from oomlint.dialects.kinds import Kind
from oomlint.dialects.table import Row
from oomlint.documents import JSON_SUFFIXES
from oomlint.documents.text import Edit, Span
from oomlint.files.disk import walk
from oomlint.judgement import Forecast, judgement_of
from oomlint.lsp.help import spelled
from oomlint.lsp.project import Analysis, Project, files_of
from oomlint.models import all_ids
from oomlint.plan.fields import f

# While somebody waits for a list, this long; what is left then is offered untried.
_SECONDS = 0.8
_MOST_MODELS = 40
_MOST_FILES = 60

_FILES = (ref.deepspeed, ref.fsdp_config)
_LENGTHS = (
    f.seq.max_len,
    f.objective.rollout.max_completion_tokens,
    f.objective.rollout.max_prompt_tokens,
    f.objective.rollout.max_model_len,
)


class Offer(Struct, frozen=True):
    """One value: as people say it, as the file writes it, and the run with it."""

    value: str
    written: str
    forecast: Forecast | None = None
    is_default: bool = False

    @property
    def peak(self) -> int | None:
        return None if self.forecast is None else self.forecast.estimate.gpu.peak_bytes


def offers(
    analysis: Analysis, row: Row, spot: Span, typed: str, *, before: str = "", quotes: bool = False
) -> list[Offer]:
    """What a row's key can be given at a spot of the document, the cheapest first; ``before`` is what is
    written with it, and ``quotes`` whether texts take quotes there."""
    found: dict[str, Offer] = {}
    end = monotonic() + _SECONDS
    present = None
    # What is typed already comes first: on a busy machine not all are tried.
    values = sorted(_values(analysis, row, typed), key=lambda v: typed not in spelled(v[0]))
    for value, must_matter in values:
        text = spelled(value)
        if text in found:
            continue
        written = json.dumps(text) if quotes and isinstance(value, str) else text
        edit = Edit(analysis.name, spot.start, spot.end, before + written)
        if edit not in analysis.cache and monotonic() < end:
            named = text if row.field in _FILES else None
            analysis.cache[edit] = _tried(analysis, edit, named)
        forecast = analysis.cache.get(edit)  # asked again, the next ones are tried
        assert forecast is None or isinstance(forecast, Forecast)
        found[text] = Offer(text, written, forecast, value == row.default)
        present = present if must_matter else text
    peaks = {offer.peak for offer in found.values()} - {None}
    if present is None and len(peaks) < 2:  # numbers that move nothing are nobody's choice
        return []
    return sorted(found.values(), key=lambda offer: (offer.peak is None, offer.peak or 0))


def _tried(analysis: Analysis, edit: Edit, named: str | None) -> Forecast | None:
    """The run of the document that needs most, with an edit; ``named`` is a file that it has to read."""
    report = Project.tried(analysis, [edit])
    mine = [run for run in report.runs if analysis.name in files_of(run)]
    if named is not None:
        base = named.rpartition("/")[2]
        mine = [run for run in mine if any(p.rpartition("/")[2] == base for p in files_of(run))]
    spoken = [judgement_of(run).spoken for run in mine]
    known = [one for one in spoken if one.estimate.gpu.peak_bytes is not None]
    return max(known, key=lambda one: one.estimate.gpu.peak_bytes or 0, default=None)


def _values(analysis: Analysis, row: Row, typed: str) -> Iterator[tuple[Any, bool]]:
    """Values to offer, and whether they are only worth it where they move the peak."""
    if row.field == f.model.id:
        yield from ((name, False) for name in _models(typed))
    elif row.field in _FILES:
        yield from ((name, False) for name in _files(analysis))
    else:
        choices = list(choices_of(row.kind))
        yield from ((choice, False) for choice in choices)
        if not choices:
            yield from ((number, True) for number in _numbers(row))


def choices_of(kind: Kind) -> Iterator[Any]:
    """The values that a key is known to take, each spelling once."""
    found = [*_listed(kind.schema or {}), *kind.spellings]
    yield from {spelled(value): value for value in found if value is not None}.values()


def _listed(schema: Mapping[str, Any]) -> Iterator[Any]:
    if "const" in schema:
        yield schema["const"]
    yield from schema.get("enum", ())
    if schema.get("type") == "boolean":
        yield from (True, False)
    for inner in schema.get("anyOf", ()):
        yield from _listed(inner)


def _numbers(row: Row) -> Iterator[int]:
    schema = dict(row.kind.schema or {})
    if row.field in _LENGTHS:
        yield from (512, 1024, 2048, 4096, 8192, 16384, 32768)
    elif schema.get("type") == "integer" and schema.get("minimum", 0) in (0, 1):
        yield from (1, 2, 4, 8, 16, 32, 64)


def _models(typed: str) -> list[str]:
    """Ids of the catalogue with what is typed in them, those that begin so first."""
    wanted = typed.lower()
    near = [name for name in all_ids() if wanted in name.lower() and "/" in name]
    return sorted(near, key=lambda name: not name.lower().startswith(wanted))[:_MOST_MODELS]


def _files(analysis: Analysis) -> Iterator[str]:
    """The DeepSpeed configs and other JSON files of the folder, as the document can name them."""
    workspace = analysis.workspace
    here = PurePosixPath(analysis.name).parent
    markers = SIGNATURES["DeepSpeed"][2]
    root = workspace.cwd
    for number, path in enumerate(walk(root, JSON_SUFFIXES, deepest=4)):
        if number >= _MOST_FILES:
            return
        name = workspace.name(path)
        data = workspace.read_or_none(name) or b""
        if any(marker in data for marker in markers):
            file = PurePosixPath(name)
            yield str(file.relative_to(here) if file.is_relative_to(here) else file)
