"""Shell habits that cost a run its settings, and what mends them."""

from __future__ import annotations

import os

import pytest

from oomlint.documents.base import Fact
from oomlint.documents.shell.document import ShellScript, parse_shell
from oomlint.documents.shell.facts import nearest_name
from oomlint.documents.text import Source

LINE_ENDS = pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])


def read(text: str, newline: str = "\n") -> ShellScript:
    return parse_shell(Source.from_bytes("run.sh", text.replace("\n", newline).encode()))


def facts_of(document: ShellScript) -> list[Fact]:
    """All but what its line ends come to."""
    return [fact for fact in document.facts if fact.detail.get("reason") != "carriage-return"]


def the_fact(document: ShellScript) -> Fact:
    (fact,) = facts_of(document)
    return fact


def mended(document: ShellScript) -> str:
    return document.source.edited(the_fact(document).mend).text.replace("\r\n", "\n")


@LINE_ENDS
@pytest.mark.parametrize(
    ("script", "name", "expected"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1 && torchrun t.py\n", "CUDA_VISIBLE_DEVICES",
         "CUDA_VISIBLE_DEVICES=0,1 torchrun t.py\n"),
        ("MAX_PIXELS=100; swift sft --x 1\n", "MAX_PIXELS", "MAX_PIXELS=100 swift sft --x 1\n"),
        ("NPROC_PER_NODE=8\necho hi\nswift sft\n", "NPROC_PER_NODE",
         "export NPROC_PER_NODE=8\necho hi\nswift sft\n"),
        ("PYTORCH_CUDA_ALLOC_CONF=a OMP_NUM_THREADS=1\npython t.py\n", "PYTORCH_CUDA_ALLOC_CONF",
         "export PYTORCH_CUDA_ALLOC_CONF=a OMP_NUM_THREADS=1\npython t.py\n"),
    ],
)  # fmt: skip
def test_a_variable_that_no_command_sees(
    script: str, name: str, expected: str, newline: str
) -> None:
    document = read(script, newline)
    fact = the_fact(document)
    assert (fact.kind, fact.detail["name"]) == ("env-not-exported", name)
    assert mended(document) == expected
    assert not facts_of(parse_shell(document.source.edited(fact.mend)))


@pytest.mark.parametrize(
    "script",
    [
        "CUDA_VISIBLE_DEVICES=0 torchrun t.py",
        "export CUDA_VISIBLE_DEVICES\nCUDA_VISIBLE_DEVICES=0\ntorchrun t.py",
        "CUDA_VISIBLE_DEVICES=0\nexport CUDA_VISIBLE_DEVICES\ntorchrun t.py",
        "set -a\nCUDA_VISIBLE_DEVICES=0\ntorchrun t.py",
        "NPROC_PER_NODE=8\ntorchrun --nproc_per_node $NPROC_PER_NODE t.py",
        "CUDA_VISIBLE_DEVICES=0\necho nothing is launched",
        "torchrun t.py\nCUDA_VISIBLE_DEVICES=0",
        "MY_OWN=1; torchrun t.py",
    ],
)
def test_variables_that_are_seen_or_meant_for_the_script_are_no_fact(script: str) -> None:
    assert not read(script).facts


@LINE_ENDS
@pytest.mark.parametrize(
    ("script", "reason", "expected"),
    [
        ("python t.py \\\n  --a 1\n  --b 2 \\\n  --c\n", "no-backslash",
         "python t.py \\\n  --a 1 \\\n  --b 2 \\\n  --c\n"),
        ("python t.py \\ \n  --a 1\n", "blank-after-backslash", "python t.py \\\n  --a 1\n"),
        ("python t.py --a 1 \\\n\n  --b 2\n", "blank-line", "python t.py --a 1 \\\n  --b 2\n"),
        ("python t.py --a 1 \\\n  # --b 2 \\\n  --c 3\n", "comment",
         "# --b 2 \\\npython t.py --a 1 \\\n  --c 3\n"),
        ("if x; then\n  python t.py \\\n    --a 1 \\  # one\n    --b 2 \\  # two\n    --c 3\nfi\n",
         "blank-after-backslash",
         "if x; then\n  # one\n  # two\n  python t.py \\\n    --a 1 \\\n    --b 2 \\\n    --c 3\nfi\n"),
        ("python t.py \\\n  --a 1 \\  # why\n  --b 2\n", "blank-after-backslash",
         "# why\npython t.py \\\n  --a 1 \\\n  --b 2\n"),
        ("python -m m \\\n  a.b=1\n  c.d=2\n", "no-backslash",
         "python -m m \\\n  a.b=1 \\\n  c.d=2\n"),
        ("MAX_PIXELS=1 \\\n# FPS=2 \\\nswift sft --x 1\n", "comment",
         "# FPS=2 \\\nMAX_PIXELS=1 \\\nswift sft --x 1\n"),
    ],
)  # fmt: skip
def test_a_line_that_lost_its_command(
    script: str, reason: str, expected: str, newline: str
) -> None:
    document = read(script, newline)
    fact = the_fact(document)
    assert (fact.kind, fact.detail["reason"]) == ("broken-continuation", reason)
    assert mended(document) == expected
    assert not facts_of(parse_shell(document.source.edited(fact.mend)))


@pytest.mark.parametrize(
    "script",
    [
        "python t.py --a 1\n# --b 2\n",
        "python t.py --a 1 \\\n  # --b 2 \\\n\necho\n",
        "ARGS=(\n --a 1 \\\n # no\n --b\n)\npython t.py ${ARGS[@]}\n",
        "cat <<EOF\npython t.py\n --a\nEOF\n",
        "python t.py \\\n  --a 1\n\npython u.py\n",
    ],
)
def test_comments_and_lists_that_break_nothing(script: str) -> None:
    assert not read(script).facts


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("IMAGAE_MAX_PIXELS", "IMAGE_MAX_PIXELS"),
        ("PYTORCH_CUDA_ALLOC_CONFIG", "PYTORCH_CUDA_ALLOC_CONF"),
        ("CUDA_VISABLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        ("FORCE_TROCHRUN", "FORCE_TORCHRUN"),
        ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_a_name_that_misses_a_known_one(written: str, known: str) -> None:
    for script in (f"{written}=1 python t.py\n", f"export {written}=1\npython t.py\n"):
        document = read(script)
        fact = the_fact(document)
        assert (fact.kind, fact.detail) == (
            "unknown-env",
            {"name": written, "known": known, "value": "1"},
        )
        assert mended(document) == script.replace(written, known)


@pytest.mark.parametrize(
    "name", ["HCCL_SOCKET_IFNAME", "RCCL_DEBUG_X", "NUM_CPUS", "MY_MODEL_PATH", "NNODE"]
)
def test_names_of_ones_own_are_not_corrected(name: str) -> None:
    assert not read(f"export {name}=1\npython t.py\n").facts
    assert name in ("HCCL_SOCKET_IFNAME",) or nearest_name(name) is None


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("sudo sysctl -w vm.overcommit_memory=2\n", "sudo sysctl -w vm.overcommit_memory=0\n"),
        ("echo 2 > /proc/sys/vm/overcommit_memory\n", "echo 0 > /proc/sys/vm/overcommit_memory\n"),
        (
            "echo 'vm.overcommit_memory = 2' >> /etc/sysctl.conf\n",
            "echo 'vm.overcommit_memory = 0' >> /etc/sysctl.conf\n",
        ),
        (
            "python ck/zero_to_fp32.py ck out\n",
            "python ck/zero_to_fp32.py --exclude_frozen_parameters ck out\n",
        ),
    ],
)
def test_what_a_script_does_around_training(script: str, expected: str) -> None:
    assert mended(read(script)) == expected


def test_kernel_settings_in_comments_are_nobodys() -> None:
    assert not read("# sysctl -w vm.overcommit_memory=2\npython train.py\n").facts


@LINE_ENDS
@pytest.mark.parametrize(
    ("script", "cuts", "expected"),
    [
        ("torchrun t.py\n  --a 1\n  --b 2 \\\n  --c 3\n  --d 4\n", 3,
         "torchrun t.py \\\n  --a 1 \\\n  --b 2 \\\n  --c 3 \\\n  --d 4\n"),
        ("torchrun t.py \\ \n  --a 1 \\  # one\n  --b 2 \\\n\n  --c 3 \\\n\n  --d 4\n", 4,
         "# one\ntorchrun t.py \\\n  --a 1 \\\n  --b 2 \\\n  --c 3 \\\n  --d 4\n"),
        ("torchrun t.py\n  --a 1 \\\n  # two\n  --b 2\n", 2,
         "# two\ntorchrun t.py \\\n  --a 1 \\\n  --b 2\n"),
    ],
    ids=["no-backslash", "blanks", "mixed"],
)  # fmt: skip
def test_a_command_that_is_cut_again_and_again_is_one_fact(
    script: str, cuts: int, expected: str, newline: str
) -> None:
    document = read(script, newline)
    assert the_fact(document).detail["cuts"] == cuts
    assert mended(document) == expected
    assert not facts_of(parse_shell(document.source.edited(the_fact(document).mend)))


@LINE_ENDS
def test_comments_that_cut_one_command_again_and_again_are_one_fact(newline: str) -> None:
    script = (
        "torchrun t.py \\\n  # one\n  --a 1 \\\n  # two\n  # too\n  --b 2 \\\n  # three\n  --c 3\n"
    )
    document = read(script + "\n# apart\n" + script, newline)
    first, second = facts_of(document)
    assert first.detail["reason"] == second.detail["reason"] == "comment"
    once = "# one\n# two\n# too\n# three\ntorchrun t.py \\\n  --a 1 \\\n  --b 2 \\\n  --c 3\n"
    after = document.source.edited([*first.mend, *second.mend])
    assert after.text.replace("\r\n", "\n") == once + "\n# apart\n" + once
    assert not facts_of(parse_shell(after))


def test_what_hangs_on_a_lost_option_is_not_joined_to_it() -> None:
    """A comment and an empty line took ``--b`` from its command: a backslash behind it gives ``--c`` to nothing."""
    document = read("python t.py \\\n  --a 1 \\\n  # --x 1\n\n  --b 1\n  --c 2\n")
    assert (the_fact(document).detail["reason"], the_fact(document).mend) == ("no-backslash", ())


def test_a_command_that_a_terminal_wrapped_is_cut_where_it_first_is() -> None:
    """Lines that begin in the middle of a word are no commands; nothing tells how to join them."""
    head = "python train.py --model_name_or_path meta-llama/Llama-3.1-8B --output_dir out --max_le"
    text = f"{head}\nngth 1024 --lora_r 8\n--bf16 true\n"
    fact = the_fact(read(text))
    assert (fact.location.span.start, fact.detail["top"]) == (len(head) + 1, 1)
    assert (fact.detail["cuts"], fact.mend) == (2, ())
    other = f"python prepare.py --rows 10 --output_dir {'x' * 60}\npython train.py --lora_r 8\n--bf16 true\n"
    assert the_fact(read(other)).detail["top"] == 2


def test_a_command_that_had_ended_above_a_comment() -> None:
    """What cuts a line of options further down cuts no command any more: the first cut is told, once."""
    text = (
        "deepspeed train.py \\\n    --a 1 \\\n    --b 2\n# for the evaluation\n"
        "    --c 3 \\ \n    --d 4 \\\n    --e 5\n"
    )
    document = read(text)
    found = the_fact(document)
    assert found.detail["reason"] == "ended-above-comment"
    assert document.source.position(found.location.span.start)[0] == 5
    assert not found.mend


def test_a_carriage_return_behind_a_backslash_cuts_each_command_and_is_told_once() -> None:
    document = read(
        "#!/bin/bash\necho \\\n  a\ntorchrun \\\n  t.py \\\n  --a 1\npython t.py\n", "\r\n"
    )
    (fact,) = document.facts
    assert (fact.kind, fact.detail["reason"]) == ("broken-continuation", "carriage-return")
    assert document.source.position(fact.location.span.start) == (4, 10)
    assert fact.detail["names_interpreter"]
    assert document.source.edited(fact.mend).text == document.source.text.replace("\r", "")
    # What is meant is read all the same.
    assert document.commands[-2].flags.entries["a"].value.value == "1"


def test_line_ends_of_a_checkout_on_windows_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "linesep", "\r\n")
    assert not read("torchrun \\\n  t.py \\\n  --a 1\n", "\r\n").facts


def test_a_carriage_return_at_the_end_of_one_line() -> None:
    (fact,) = read("torchrun t.py --a 1\n", "\r\n").facts
    assert fact.kind == "return-at-end"


@pytest.mark.parametrize(
    "text",
    [
        "torchrun \\\n  t.py\r\n",
        "torchrun \\\n  t.py\n",
        "echo \\\r\n  a\r\n",
        "conda create \\\r\n  python=3\r\n",
    ],
)
def test_lines_that_go_on_or_launch_nothing(text: str) -> None:
    kinds = [fact.kind for fact in parse_shell(Source.from_bytes("run.sh", text.encode())).facts]
    assert "broken-continuation" not in kinds


@pytest.mark.parametrize("path", ["train.yaml", "Makefile", "README.md"])
def test_what_takes_carriage_returns_away_itself(path: str) -> None:
    text = "torchrun \\\r\n  t.py \\\r\n  --a 1\r\n"
    assert not parse_shell(Source.from_bytes(path, text.encode())).facts
