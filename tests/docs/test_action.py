"""The action runs what was looked at: other actions by commit, which nobody can move."""

import re
from pathlib import Path

ACTION = Path(__file__).parents[2] / "action.yml"


def test_other_actions_are_pinned_to_commits():
    used = re.findall(r"uses: *(\S+)", ACTION.read_text("utf-8"))
    assert used
    assert [name for name in used if not re.search(r"@[0-9a-f]{40}$", name)] == []
