"""The cheapest change that makes a run fit: moves, what they cost, and the search over them."""

from oomlint.planner.aims import Aim
from oomlint.planner.hardware_options import HardwareOption, hardware_options
from oomlint.planner.levers import Lever, levers
from oomlint.planner.maximise import largest
from oomlint.planner.moves import Move
from oomlint.planner.search import Accepts, Way, seconds_of, ways_to_fit

__all__ = [
    "Accepts",
    "Aim",
    "HardwareOption",
    "Lever",
    "Move",
    "Way",
    "hardware_options",
    "largest",
    "levers",
    "seconds_of",
    "ways_to_fit",
]
