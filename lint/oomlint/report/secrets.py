"""What looks like a secret is masked, whatever the format: reports are pasted into issues and kept by CI.

By the shapes that their makers publish (GitHub's "supported secret scanning patterns", 2026: Hugging
Face, OpenAI and its like, GitHub, GitLab, Slack, AWS, Google), and by the name of the setting.
"""

from __future__ import annotations

import re
from functools import cache

# How secrets begin, and how they go on. Most texts have no such beginning, and it takes longer to compile the pattern of
# them all than to look for each.
_SHAPES = {
    "hf_": "[A-Za-z0-9]{16,}",
    "sk-": "[A-Za-z0-9_-]{16,}",
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), "[A-Za-z0-9]{20,}"),
    "github_pat_": "[A-Za-z0-9_]{20,}",
    "glpat-": "[A-Za-z0-9_-]{16,}",
    **dict.fromkeys(("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-"), "[A-Za-z0-9-]{10,}"),
    "AKIA": "[0-9A-Z]{16}",
    "AIza": "[A-Za-z0-9_-]{30,}",
}
# Names of settings that hold secrets. Those of special tokens (pad_token) do not.
_NAMES = (
    r"\w*api[_-]?key|\w*password|\w*passwd|\w*secret(?:[_-](?:access[_-])?key)?"
    r"|(?:\w*(?:hf|hub|hugging_?face|auth|access|api|github|wandb|refresh|bearer)[_-])?token"
)
# Words of which one stands in each name: most texts have none, and looking for names takes fifty times as long.
_WORDS = ("key", "passw", "secret", "token")
_MASK = "****"


def masked(text: str) -> str:
    """Text without what looks like a secret; of one whose shape tells its kind the kind stays."""
    seen = text
    if any(head in text for head in _SHAPES):
        seen = _shaped().sub(lambda found: found[0][:3] + _MASK, text)
    lower = seen.lower()
    if not any(word in lower for word in _WORDS):
        return seen
    return _named().sub(lambda found: found[1] + _MASK, seen)


@cache
def _shaped() -> re.Pattern[str]:
    shapes = "|".join(head + tail for head, tail in _SHAPES.items())
    return re.compile(rf"(?<![\w-])(?:{shapes})(?![\w-])")


@cache
def _named() -> re.Pattern[str]:
    # A value stands on the line of its name: what begins the next line of a report is a path.
    return re.compile(
        rf"(?i)(?<![\w-])((?:--)?(?:{_NAMES})[\"']?(?:[^\S\n]*[:=][^\S\n]*|[^\S\n]+)[\"']?)(?=\S*\d)([\w+/.~-]{{12,}}=*)"
    )
