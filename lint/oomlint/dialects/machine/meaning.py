"""What launchers, schedulers and containers make of a run."""

from __future__ import annotations

from oomlint.dialects.meaning import Meaning

launch = Meaning()
scene = Meaning()
