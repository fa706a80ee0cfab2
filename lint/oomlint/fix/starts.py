"""From which folder a command starts, as far as the files that it names tell."""

from __future__ import annotations

from pathlib import PurePosixPath

from oomlint.runs.run import Run


def why_from_nowhere(run: Run) -> str | None:
    """Why a command starts from no folder here: of two files that it names by relative paths none has both. ``None``
    where one may have."""
    started = {claim.path for claim in run.claims if claim.is_launched}
    named = [
        (claim.named.path, claim.path)
        for claim in run.claims
        if claim.named is not None and claim.named.location.path in started
    ]
    places = [(written, place) for written, path in named if (place := _start(written, path))]
    for one, (ups, above) in places:
        for other, (fewer, start) in places:
            if ups >= fewer and _above(start, ups - fewer) != above:
                return f"no folder here has both {one} and {other}, so that nobody knows where it starts"
    return None


def _start(written: str, path: str) -> tuple[int, str] | None:
    """How many folders up a relative path begins, and in which folder that is; ``None`` where it does not end as the
    file that was found for it."""
    parts = PurePosixPath(written).parts
    ups = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    rest = "/".join(parts[ups:])
    if written.startswith(("/", "~", "$")) or not rest or not f"/{path}".endswith(f"/{rest}"):
        return None
    return ups, path[: -len(rest)].rstrip("/")


def _above(folder: str, levels: int) -> str | None:
    """The folder so many levels up; ``None`` outside of the project."""
    for _ in range(levels):
        if not folder:
            return None
        folder = folder.rpartition("/")[0]
    return folder
