"""What a project says that a run ran on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.wording.amounts import gib

if TYPE_CHECKING:
    from oomlint.hardware import Hardware
    from oomlint.memory.measured import Measurement


class Attested(Struct, frozen=True, eq=False):
    """What a project says that a run ran on; ``said`` goes on before "on 4xH800-80GB"."""

    hardware: Hardware
    said: str

    @property
    def words(self) -> str:
        """``docs/tuning.rst:164 lists it on 4xH800-80GB``"""
        return f"{self.said} on {self.hardware.name}"


def attested_by(measurement: Measurement) -> Attested:
    """A run that was measured did run."""
    size = measurement.gpu
    took = "a node's RAM" if size is None else gib(size)
    return Attested(measurement.hardware, f"{measurement.place} has {took} measured")
