"""How far values are followed, and why some are not to be written."""

from __future__ import annotations

from typing import Final

# Values are followed through this many names; more is a program, not a setting.
DEEPEST: Final = 24
# A choice asks for its test and its sides several times over: of choices within choices, few are followed.
CHOICE: Final = 8
GIVEN: Final = "it is what the function is given"
BY_FILE: Final = "a config file decides on it"
SHARED: Final = "{} is used in several places"
