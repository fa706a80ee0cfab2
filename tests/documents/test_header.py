"""Launch lines in the comment at the head of a config: taken where they are commands, not prose."""

import pytest

from oomlint.documents.header import start_in_header
from oomlint.documents.text import Source


def words(text):
    document = start_in_header(Source("run.yaml", text))
    commands = () if document is None else document.commands
    return [[word.value for word in command.words] for command in commands]


def test_launch_line_with_its_continuation_and_its_place():
    text = (
        "# Don't forget the env:\n#   $ NCCL_DEBUG=INFO accelerate launch \\\n"
        "#       --config_file a.yaml train.py run.yaml\n# It's slow on `one` card\nstage: sft\n"
    )
    assert words(text) == [["accelerate", "launch", "train.py", "run.yaml"]]
    document = start_in_header(Source("run.yaml", text))
    span = document.commands[0].words[-1].span
    assert text[span.start : span.end] == "run.yaml"


@pytest.mark.parametrize(
    "text",
    [
        "# Start training on 8 GPUs\nstage: sft\n",
        "stage: sft\n# accelerate launch train.py run.yaml\n",
        "# torchrun\nstage: sft\n",
        "",
    ],
    ids=["prose", "below the first key", "a program alone", "empty"],
)
def test_nothing_else_is_a_command(text):
    assert words(text) == []


def test_byte_order_mark_line_endings_and_document_start():
    text = "\ufeff---\r\n# accelerate launch \\\r\n#   train.py run.yaml\r\nstage: sft\r\n"
    assert words(text) == [["accelerate", "launch", "train.py", "run.yaml"]]


def test_commands_for_other_files_are_left_out_and_two_for_this_one_decide_nothing():
    fetch = "# tune download x/y --output-dir /tmp/y\n"
    start = "# tune run --nproc_per_node 4 full --config run"
    assert words(f"{fetch}{start}\nlr: 1\n") == [["tune", "run", "full"]]
    assert words(f"{fetch}{start} lr=1\n#\n{start} lr=2\nlr: 1\n") == []


def test_what_could_be_added_to_a_command_is_an_example_of_it():
    start = "# tune run --nproc_per_node 4 full --config run"
    assert words(f"{start}\n#\n{start} lr=2\nlr: 1\n") == [["tune", "run", "full"]]
    assert words(start.replace("run", "other") + "\nlr: 1\n") == []
