"""The shape of the JSON that ``diagnose`` prints; its schema comes from here.

A number that is not known is ``None``, never 0. Bytes are integers; lines count from 1.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from oomlint.report.shapes import ErrorShape, FindingShape, ToolShape


class LogShape(TypedDict):
    """A log that was read; ``signs`` counts its telling lines by name."""

    path: str
    signs: dict[str, int]


class SignShape(TypedDict):
    """One telling line. ``bytes`` are the amounts in the message, by name."""

    name: str
    role: Literal["cause", "death", "follower", "outside", "hint"]
    title: str
    path: str
    line: int
    text: str
    time: str | None
    rank: int | None
    local_rank: int | None
    node: str | None
    pid: int | None
    gpu: int | None
    bytes: dict[str, int]


class FrameShape(TypedDict):
    """The frame of the traceback that decides the cause: ``what`` happens there, and the ``code`` that
    the traceback quotes."""

    name: str
    what: str
    file: str
    function: str
    code: str | None


class VerdictShape(TypedDict):
    """What killed the run. ``because`` is the frame or line that ``phase`` is known from;
    ``step`` the last one that was done, ``is_late`` whether whole steps had gone well."""

    outcome: Literal["memory", "killed", "disk", "settings", "stopped", "hang", "other", "nothing"]
    message: str
    confidence: Literal["high", "medium", "low"]
    resource: Literal["gpu", "host", "disk", "shm"] | None
    scope: Literal["device", "process", "container", "job", "node"] | None
    phase: Literal[
        "data", "load", "train", "forward", "backward", "optimizer_step", "evaluation", "save",
        "rollout",
    ] | None  # fmt: skip
    because: str | None
    frame: FrameShape | None
    step: int | None
    total_steps: int | None
    is_late: bool
    cause: SignShape | None
    confirmed_by: list[SignShape]
    notes: list[str]
    advice: list[str]


class ExplanationShape(TypedDict):
    """A rule that explains the death; ``finding`` is what it says of the config, if that was
    given."""

    code: str
    name: str
    summary: str
    url: str
    finding: FindingShape | None


class ComparisonShape(TypedDict):
    """A measured peak. ``is_floor``: the run died, or was not training yet, and may have needed more. ``low_bytes``
    and ``high_bytes`` bound the prediction for ``run``."""

    what: str
    source: str
    path: str
    line: int
    kind: Literal["allocated", "active", "reserved", "device", "host"]
    measured_bytes: int
    is_floor: bool
    run: str | None
    predicted_bytes: int | None
    low_bytes: int | None
    high_bytes: int | None
    result: Literal["agrees", "above", "below", "open"]


class DiagnoseShape(TypedDict):
    """What ``oomlint diagnose --output-format json`` prints."""

    version: Literal[1]
    tool: ToolShape
    logs: list[LogShape]
    verdict: VerdictShape
    order: list[SignShape]
    survived: list[SignShape]
    explanations: list[ExplanationShape]
    comparisons: list[ComparisonShape]
    errors: list[ErrorShape]
