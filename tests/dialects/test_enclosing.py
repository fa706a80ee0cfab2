"""What stands around a command, in scripts of any length."""

from __future__ import annotations

import pytest

from oomlint.dialects.machine import docker_run
from oomlint.dialects.machine.docker_run import inner_commands
from oomlint.dialects.machine.enclosing import Enclosing
from oomlint.dialects.machine.launches import launches
from oomlint.documents.base import Command
from oomlint.documents.shell.document import ShellScript, parse_shell
from oomlint.documents.text import Source, Span


def commands_of(text: str) -> tuple[Command, ...]:
    return parse_shell(Source("run.sh", text)).commands


def programs(commands: tuple[Command, ...]) -> list[str]:
    return [str(command.words[0].value) for command in commands]


def test_around_a_command_stand_all_that_hold_it_and_no_other() -> None:
    text = 'srun a\nsbatch --wrap "docker run image train"\nsrun b\n'
    enclosing = Enclosing(reversed(commands_of(text)))
    at = text.index("image")
    assert programs(enclosing.around(Span(at, at + 5))) == ["sbatch", "docker"]
    assert not enclosing.around(Span(at, len(text)))
    assert not enclosing.around(Span(len(text), len(text)))


def test_each_docker_run_has_its_own_options_and_command() -> None:
    text = "".join(
        f"N={number}\ndocker run --gpus {number} image \\\n  torchrun --nproc_per_node $N train{number}.py\n"
        for number in (1, 2, 3)
    )
    script: ShellScript = parse_shell(Source("run.sh", text))
    found = launches(script)
    assert [launch.name for launch in found] == ["train1.py", "train2.py", "train3.py"]
    for number, launch in enumerate(found, start=1):
        said = {block.table.name: block.mapping.entries for block in launch.blocks}
        assert said["docker run"]["gpus"].value.value == str(number)  # type: ignore[union-attr]
        assert said["torchrun"]["nproc_per_node"].value.value == str(number)  # type: ignore[union-attr]
    assert programs(inner_commands(script, script.commands[0])) == ["torchrun"]


def test_a_command_is_asked_a_few_times_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each command asked about each other one took minutes in a long script."""
    asked = []

    def is_docker_run(command: Command) -> bool:
        asked.append(command)
        return original(command)

    original = docker_run.is_docker_run
    monkeypatch.setattr(docker_run, "is_docker_run", is_docker_run)
    script = parse_shell(Source("run.sh", "docker run image torchrun train.py\n" * 100))
    assert len(launches(script)) == 100
    assert len(asked) <= 3 * 100
