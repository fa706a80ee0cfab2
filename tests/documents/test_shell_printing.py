"""What functions of a script print in ``$(...)``."""

from __future__ import annotations

import pytest

from oomlint.documents.base import UNKNOWN, Scalar
from oomlint.documents.shell.document import parse_shell
from oomlint.documents.text import Source

_PICKS = """\
pick() {
    if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
        echo "$CUDA_VISIBLE_DEVICES"
        return
    fi
    echo "${CARDS:-0,1}"  # those that nobody else is on
    echo "never printed" >&2
}
"""
_COUNTS = """\
count() {
    local n=0 part parts
    IFS=',' read -ra parts <<< "$1"
    for part in "${parts[@]}"; do
        [ -n "$part" ] && n=$((n + 1))
    done
    echo "$n"
}
"""


def _value(text: str) -> object:
    """What ``--x`` is in the last command that has it."""
    commands = parse_shell(Source("run.sh", text)).commands
    (*_, value) = (c.flags.entries["x"].value for c in commands if "x" in c.flags.entries)
    assert isinstance(value, Scalar)
    return value.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f'{_PICKS}D="$(pick)"\npython a.py --x "$D"\n', "0,1"),
        (f'{_PICKS}CARDS=3\npython a.py --x "$(pick)"\n', "3"),
        (f"export CUDA_VISIBLE_DEVICES=2,3,4\n{_PICKS}python a.py --x $(pick | tr ',' ' ' | wc -w)\n", "3"),
        (f'{_COUNTS}python a.py --x "$(count 0,1,,2)"\n', "3"),
        ("n() {\n  c=1\n  ((c++))\n  echo $c\n}\nc=9\npython a.py --y $(n) --x $c\n", "9"),
        ("n() {\n  c=1\n  ((c++))\n  echo $c\n}\npython a.py --x $(n)\n", "2"),
        ("size() {\n  case $1 in\n  8b) echo 2 ;;\n  *) echo 4 ;;\n  esac\n}\npython a.py --x $(size 8b)\n", "2"),
        ("inner() { echo $1; }\nouter() { echo 1$(inner $1); }\npython a.py --x $(outer 2)\n", "12"),
        # What only running tells: another program, a test of the machine, a function that calls itself.
        ("n() { nvidia-smi; echo 2; }\npython a.py --x $(n)\n", UNKNOWN),
        ('n() { if [ "$(hostname)" = a ]; then echo 2; else echo 4; fi; }\npython a.py --x $(n)\n', UNKNOWN),
        ("n() { while true; do echo 2; done; }\npython a.py --x $(n)\n", UNKNOWN),
        ("n() { echo $(n); }\npython a.py --x $(n)\n", UNKNOWN),
        ("n() { echo 2 > file; }\npython a.py --x $(n)\n", UNKNOWN),
    ],
)  # fmt: skip
def test_what_a_function_prints(text: str, value: object) -> None:
    assert _value(text) == value
