"""The cheapest change that makes a run fit: moves, what they cost, and the search over them."""

from oomlint.judgement.planner.aims import Aim
from oomlint.judgement.planner.hardware_options import HardwareOption, hardware_options
from oomlint.judgement.planner.levers import Lever, levers
from oomlint.judgement.planner.maximise import largest
from oomlint.judgement.planner.moves import Move
from oomlint.judgement.planner.search import Accepts, Effort, Way, seconds_of, ways_to_fit

__all__ = [
    "Accepts",
    "Aim",
    "Effort",
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
