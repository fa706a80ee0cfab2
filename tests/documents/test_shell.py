"""Shell scripts: what a command runs with, and what an edit changes."""

from __future__ import annotations

import pytest

from oomlint.documents.base import UNKNOWN, Command, Mapping, Node, Scalar, Sequence
from oomlint.documents.shell.document import ShellScript, parse_shell
from oomlint.documents.text import Edit, Source
from oomlint.errors import CannotEdit, ParseError

LINE_ENDS = pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])


def read(text: str, newline: str = "\n", *, bom: bool = False) -> ShellScript:
    data = text.replace("\n", newline).encode()
    return parse_shell(Source.from_bytes("run.sh", b"\xef\xbb\xbf" * bom + data))


def command(document: ShellScript, program: str) -> Command:
    (found,) = [c for c in document.commands if c.words and c.words[0].value == program]
    return found


def plain(node: Node) -> object:
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    assert isinstance(node, Scalar)
    return node.value


def values(mapping: Mapping) -> dict[str, object]:
    return {key: plain(entry.value) for key, entry in mapping.entries.items()}


def words(found: Command) -> list[object]:
    return [word.value for word in found.words]


def after(document: ShellScript, edits: list[Edit]) -> str:
    return document.source.edited(edits).text.replace("\r\n", "\n")


SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH -G 16   # all
export WANDB_MODE=offline
torchrun --standalone --nproc_per_node 8 train.py \\
    --per_device_train_batch_size 4 \\
    --learning-rate=1e-5 --bf16 \\
    --target_modules q_proj v_proj \\
    --output "out dir" > log.txt 2>&1 &
"""


@LINE_ENDS
@pytest.mark.parametrize("bom", [False, True])
def test_a_launch_line_is_read_with_exact_spans(newline: str, bom: bool) -> None:
    document = read(SCRIPT, newline, bom=bom)
    found = command(document, "torchrun")
    assert words(found) == ["torchrun", "train.py"]
    assert values(found.flags) == {
        "standalone": True,
        "nproc_per_node": "8",
        "per_device_train_batch_size": "4",
        "learning_rate": "1e-5",
        "bf16": True,
        "target_modules": ["q_proj", "v_proj"],
        "output": "out dir",
    }
    assert values(found.environment) == {"WANDB_MODE": "offline"}
    text = document.source.text
    for key, written in [
        ("learning_rate", "1e-5"),
        ("output", '"out dir"'),
        ("nproc_per_node", "8"),
    ]:
        span = found.flags.entries[key].value.span
        assert text[span.start : span.end] == written
    key_span = found.flags.entries["learning_rate"].key_span
    assert text[key_span.start : key_span.end] == "--learning-rate"
    assert not found.flags.open_ended


@LINE_ENDS
def test_sbatch_directives_fold_to_long_names_and_can_be_set(newline: str) -> None:
    document = read(SCRIPT, newline)
    assert values(document.sbatch) == {"nodes": "2", "gpus": "16"}
    edits = document.set_value(document.sbatch.entries["nodes"].value, 4)
    assert after(document, edits) == SCRIPT.replace("--nodes=2", "--nodes=4")


def test_several_sbatch_options_on_a_line() -> None:
    script = "#SBATCH -N 2 --exclusive --gres=gpu:8 # all\n#SBATCH --mem=0\n"
    document = read(script)
    assert values(document.sbatch) == {"nodes": "2", "exclusive": True, "gres": "gpu:8", "mem": "0"}
    assert after(document, document.remove_entry(document.sbatch, "gres")) == script.replace(
        " --gres=gpu:8", ""
    )
    assert after(document, document.remove_entry(document.sbatch, "mem")) == script[:44]
    assert after(document, document.add_entry(document.sbatch, "cpus_per_task", 8)) == (
        script + "#SBATCH --cpus-per-task=8\n"
    )


def test_sbatch_lines_after_the_first_command_do_not_count() -> None:
    assert not read("#SBATCH --nodes=2\necho\n#SBATCH --ntasks=3\n").sbatch.entries.get("ntasks")


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("N=4\npython t.py --x $N", "4"),
        ("N=4\npython t.py --x=${N}", "4"),
        ('N="4"\npython t.py --x "$N"', "4"),
        ("python t.py --x ${N:-4}", "4"),
        ("N=${N:-4}\npython t.py --x $N", "4"),
        ("A=1\nB=$A\npython t.py --x run-$B", "run-1"),
        ("export N=4; python t.py --x $N", "4"),
        ("for N in 4; do python t.py --x $N; done", "4"),
        ("for N in {4..4}; do python t.py --x $N; done", "4"),
        ("N={4..5}\npython t.py --x \"$N\"", "{4..5}"),
        ("for N in run{1..3}; do python t.py --x $N; done", UNKNOWN),
        ("python t.py --x 'a b'", "a b"),
        ("python t.py --x a\\ b", "a b"),
        ('python t.py --x "a\\"b"', 'a"b'),
        ('ARGS="--w 1 --x 2"\npython t.py $ARGS', "2"),
        ('ARGS="--w 1"\nARGS="$ARGS --x 2"\npython t.py $ARGS', "2"),
        ('ARGS="--w 1"\nARGS+=" --x 2"\npython t.py $ARGS', "2"),
        ('ARGS=(--w 1 # note\n --x "a b")\npython t.py "${ARGS[@]}"', "a b"),
        ("ARGS=(--w 1)\nARGS+=(--x 2)\npython t.py ${ARGS[@]}", "2"),
        ("read -r -d '' ARGS <<EOF\n t.py \\\n --x 2\nEOF\npython $ARGS", "2"),
        ('CMD="python t.py --x 2"\neval $CMD', "2"),
        ('CMD="python t.py \\\n --x 2"\necho "$CMD"\neval "$CMD"', "2"),
        ('CMD="python t.py --x 2"\n$CMD', "2"),
        ("srun -N 1 bash -c 'python t.py --x 2'", "2"),
        ("bash <<EOF\npython t.py --x 2\nEOF", "2"),
        ("cat > job.sh <<'EOF'\npython t.py --x 2\nEOF\nsbatch job.sh", "2"),
        ("f() { python t.py --x 2; }\nf", "2"),
        ("true && python t.py --x 2 | tee log", "2"),
        ("if true; then python t.py --x 2; fi", "2"),
        ("nohup time env A=1 python t.py --x 2 &", "2"),
        ("python t.py --x -1", "-1"),
        ("A=1\nB=2\npython t.py --x $A/$B/c", "1/2/c"),
        ("A=1\nB=2\nX=o/$A-$B.json\npython t.py --x $X", "o/1-2.json"),
        ("A=é\npython t.py --o ü$A/$B/$C --x $A/$2-$A,d", UNKNOWN),
        ("python t.py --o $A/$B/$C --x 2", "2"),
        ('bash -c "python t.py --o \\$A/\\$B/\\$C --x 2"', "2"),
        # What only the run can tell is never guessed.
        ("python t.py --x 2 ...", "2"),
        ("python t.py --x $N", UNKNOWN),
        ("python t.py --x $1", UNKNOWN),
        ("python t.py --x $(nproc)", UNKNOWN),
        ("python t.py --x $((1 + 1))", "2"),
        ("N=$(nproc)\npython t.py --x $N", UNKNOWN),
        ("if test $A; then N=1; else N=2; fi\npython t.py --x $N", UNKNOWN),
        ("N=1\n[ -z $A ] && N=2\npython t.py --x $N", UNKNOWN),
        ("for N in $(ls); do python t.py --x $N; done", UNKNOWN),
        ("N=1\nwhile true; do python t.py --x $N; N=2; done", UNKNOWN),
        ("N=1\nread N\npython t.py --x $N", UNKNOWN),
        ("python t.py --x ${N%.json}", UNKNOWN),
    ],
)  # fmt: skip
def test_values_are_followed_to_where_they_are_written(script: str, value: object) -> None:
    found = command(read(script), "python")
    assert plain(found.flags.entries["x"].value) == value


def test_both_branches_are_read_each_with_its_own_variables() -> None:
    document = read("if [ $A ]; then N=1; python a.py --x $N; else python b.py --x $N; fi")
    assert [
        plain(c.flags.entries["x"].value) for c in document.commands if "x" in c.flags.entries
    ] == [
        "1",
        UNKNOWN,
    ]


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ('if [ "$W" -gt 1 ]; then N=8; M=$W; else N=8; M=1; fi', "8"),
        ('N=8\nif [ "$W" -gt 1 ]; then N=8; fi', "8"),
        ('if [ "$W" -gt 1 ]; then N=8; else N=4; fi', UNKNOWN),
        ('N=4\nif [ "$W" -gt 1 ]; then N=8; fi', UNKNOWN),
        ('if [ "$W" -gt 1 ]; then N=8; fi', UNKNOWN),
        ('if [ "$W" -gt 1 ]; then N=8; else M=8; fi', UNKNOWN),
    ],
)
def test_what_all_branches_set_alike_is_known(script: str, value: object) -> None:
    found = command(read(f"W=$(nproc_of_cluster)\n{script}\npython a.py --x $N"), "python")
    assert plain(found.flags.entries["x"].value) == value


def test_a_subshell_keeps_its_variables_to_itself() -> None:
    document = read("N=1\n(N=2; python a.py --x $N)\ntorchrun b.py --x $N")
    assert plain(command(document, "python").flags.entries["x"].value) == "2"
    assert plain(command(document, "torchrun").flags.entries["x"].value) == "1"


@pytest.mark.parametrize(
    "script",
    ['python t.py "$@"', "python t.py $EXTRA", 'python t.py --a 1 "${ARR[@]}"', "python t.py $*"],
)
def test_words_that_nobody_can_see_leave_the_options_open(script: str) -> None:
    assert command(read(script), "python").flags.open_ended


def test_hydra_overrides_are_assignments() -> None:
    document = read(
        "python -m verl.trainer.main a.b=1 +c.d=\"x y\" ++e=[1,2] 'f=g h' --config-name q"
    )
    found = command(document, "python")
    assert values(found.assignments) == {"a.b": "1", "c.d": "x y", "e": "[1,2]", "f": "g h"}
    assert words(found) == ["python", "verl.trainer.main"]
    assert values(found.flags) == {"m": "verl.trainer.main", "config_name": "q"}
    key = found.assignments.entries["c.d"].key_span
    assert document.source.text[key.start : key.end] == "c.d"


def test_quotes_that_reach_the_reader_of_overrides_are_its_own() -> None:
    script = 'llamafactory-cli train x.yaml $ARGS c="\'2\'" d=\'"it is"\' e=\'["a","b"]\' f=\'a"b\' --g \'"no"\'\n'
    document = read(f'ARGS="a=\\"no\\" b=true"\n{script}')
    found = command(document, "llamafactory-cli")
    assert values(found.assignments) == {
        "a": "no", "b": "true", "c": "2", "d": "it is", "e": '["a","b"]', "f": 'a"b',
    }  # fmt: skip
    assert values(found.flags) == {"g": '"no"'}
    kept = {key: entry.value for key, entry in found.assignments.entries.items()}
    assert isinstance(kept["a"], Scalar)
    assert not kept["a"].plain
    assert "a=steps b=true" in after(document, document.set_value(kept["a"], "steps"))


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("accelerate launch --multi_gpu --config_file a.yaml train.py", ["accelerate", "launch", "train.py"]),
        ("python -u -m torch.distributed.run --nproc_per_node 8 train.py a.yaml",
         ["python", "torch.distributed.run", "train.py", "a.yaml"]),
        ("tune run --nproc_per_node 8 full --config x batch_size=4", ["tune", "run", "full"]),
        ("srun -n 8 torchrun --nnodes 2 x.py", ["srun", "torchrun", "x.py"]),
        ("deepspeed --num_gpus 8 --module pkg.cli --x 1", ["deepspeed", "pkg.cli"]),
        ("swift sft --model m", ["swift", "sft"]),
    ],
)  # fmt: skip
def test_launchers_options_end_where_the_script_stands(script: str, expected: list[str]) -> None:
    assert words(read(script).commands[0]) == expected


@pytest.mark.parametrize(
    "count", ["$N", "${N}", "$((8 * SLURM_NNODES))", "$(nvidia-smi -L | wc -l)"]
)
def test_what_only_running_tells_may_stand_right_behind_a_letter(count: str) -> None:
    document = read(f"srun -n{count} python t.py --a 1\n")
    found = command(document, "srun")
    assert words(found) == ["srun", "python", "t.py"]
    assert values(found.flags) == {"n": UNKNOWN, "a": "1"}


@pytest.mark.parametrize("between", [" ", " \\\n   "])
def test_blanks_between_the_variables_of_a_command_in_quotes_part_its_words(between: str) -> None:
    script = f'A=1\nB="--b 2"\ncmd="python t.py --a $A{between}$B --c $(nproc) $A"\n$cmd\n'
    assert values(command(read(script), "python").flags) == {
        "a": "1",
        "b": "2",
        "c": [UNKNOWN, "1"],
    }


def test_the_environment_is_what_the_command_sees() -> None:
    document = read("A=0\nexport B=1\nC=2 D=$B env E=3 python t.py\nexport F=4\n")
    assert values(command(document, "python").environment) == {
        "B": "1",
        "C": "2",
        "D": "1",
        "E": "3",
    }


def test_exported_after_assignment_counts_too() -> None:
    document = read("A=1\nexport A\nset -a\nB=2\npython t.py\n")
    assert values(command(document, "python").environment) == {"A": "1", "B": "2"}


# -- edits ------------------------------------------------------------------------------


@LINE_ENDS
@pytest.mark.parametrize(
    ("script", "key", "value", "expected"),
    [
        ("python t.py --x 1", "x", 2, "python t.py --x 2"),
        ("python t.py --x=1 --y", "x", 2.5e-5, "python t.py --x=2.5e-05 --y"),
        ('python t.py --x="a"', "x", 'q "$', 'python t.py --x="q \\"\\$"'),
        ("python t.py --x='a'", "x", "b c", "python t.py --x='b c'"),
        ("python t.py --x a", "x", "b c", "python t.py --x 'b c'"),
        ("python t.py --x a", "x", "it's", 'python t.py --x "it\'s"'),
        ("python t.py --x", "x", False, "python t.py --x False"),
        ("python t.py --x", "x", True, "python t.py --x"),
        ("python t.py --x true", "x", False, "python t.py --x false"),
        ("python t.py --x 1 2 --y", "x", ["3", "4", "5"], "python t.py --x 3 4 5 --y"),
        # A variable that serves only this option is changed where it is defined.
        ("N='1'\npython t.py --x $N", "x", 2, "N='2'\npython t.py --x $N"),
        ("python t.py --x ${N:-1}", "x", 2, "python t.py --x ${N:-2}"),
        ('A="--x 1 --y"\npython t.py $A', "x", 2, 'A="--x 2 --y"\npython t.py $A'),
        ('A="--y --x"\npython t.py $A', "x", False, 'A="--y --x False"\npython t.py $A'),
        ('A=(--x "1")\npython t.py "${A[@]}"', "x", "2 3", 'A=(--x "2 3")\npython t.py "${A[@]}"'),
        # One that serves several is left alone.
        ("N=1\npython t.py --x $N --y $N", "x", 2, "N=1\npython t.py --x 2 --y $N"),
        ("N=1\npython t.py --x=$N --y $N", "x", 2, "N=1\npython t.py --x=2 --y $N"),
        ("bash -c 'python t.py --x 1'", "x", 2, "bash -c 'python t.py --x 2'"),
        ("python t.py -o é$A/$B/c --x 1", "x", 2, "python t.py -o é$A/$B/c --x 2"),
        (
            'bash -c "python t.py --y \\$A/\\$B/c --x 1"',
            "x",
            2,
            'bash -c "python t.py --y \\$A/\\$B/c --x 2"',
        ),
    ],
)  # fmt: skip
def test_set_value(script: str, key: str, value: object, expected: str, newline: str) -> None:
    document = read(script + "\n", newline)
    edits = document.set_value(command(document, "python").flags.entries[key].value, value)
    assert after(document, edits) == expected + "\n"
    again = parse_shell(document.source.edited(edits))
    old = values(command(document, "python").flags)
    new = values(command(again, "python").flags)
    assert {k: v for k, v in new.items() if k != key} == {k: v for k, v in old.items() if k != key}
    assert len(again.commands) == len(document.commands)


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("python t.py --x $1", 2),
        ('A="--x 1 --y 2"\npython t.py $A', "a b"),
        ('A="--x 1 --y 2"\npython a.py $A\npython2 b.py $A', 2),
        ("bash -c 'python t.py --x 1'", "it's"),
        ("python t.py --x 1", None),
        ("A=1\npython t.py --x $A", "a b"),
    ],
)
def test_what_cannot_be_written_is_refused(script: str, value: object) -> None:
    document = read(script)
    node = command(document, "python").flags.entries["x"].value
    with pytest.raises(CannotEdit):
        document.set_value(node, value)


LONG = """\
torchrun train.py \\
    --a-b 1 \\
    --c-d \\
    --e-f 2 3
echo done
"""


@LINE_ENDS
@pytest.mark.parametrize(
    ("key", "value", "anchor", "expected"),
    [
        ("x_y", 5, "a_b", LONG.replace("--a-b 1 \\\n", "--a-b 1 \\\n    --x-y 5 \\\n")),
        ("x_y", 5, None, LONG.replace("--e-f 2 3\n", "--e-f 2 3 \\\n    --x-y 5\n")),
        ("x", True, None, LONG.replace("--e-f 2 3\n", "--e-f 2 3 \\\n    -x\n")),
        ("x_y", True, "c_d", LONG.replace("--c-d \\\n", "--c-d \\\n    --x-y \\\n")),
        (
            "x_y",
            ["p", "q r"],
            "c_d",
            LONG.replace("--c-d \\\n", "--c-d \\\n    --x-y p 'q r' \\\n"),
        ),
    ],
)
def test_options_are_added_on_lines_of_their_own(
    key: str, value: object, anchor: str | None, expected: str, newline: str
) -> None:
    document = read(LONG, newline)
    edits = document.add_entry(command(document, "torchrun").flags, key, value, after=anchor)
    assert after(document, edits) == expected
    assert document.source.edited(edits).text.count("\n") == document.source.edited(
        edits
    ).text.count(newline)
    again = parse_shell(document.source.edited(edits))
    assert key in command(again, "torchrun").flags.entries
    assert len(again.commands) == 2


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("python t.py --a 1 > log", "python t.py --a 1 --x True > log"),
        ("python t.py --a true", "python t.py --a true --x true"),
        ("python t.py --a=True --b=1", "python t.py --a=True --b=1 --x=True"),
        ("python t.py --b 1 --c", "python t.py --b 1 --c --x"),
        ("python t.py", "python t.py --x"),
        ('A="--b"\npython t.py $A', 'A="--b"\npython t.py $A --x'),
        ("A=(\n  --b 1 # n\n  --c\n)\npython t.py ${A[@]}", None),
    ],
)  # fmt: skip
def test_a_switch_is_added_as_its_neighbours_are_written(script: str, expected: str | None) -> None:
    document = read(script.replace("--a 1", "--a True") + "\n")
    edits = document.add_entry(command(document, "python").flags, "x", True)
    if expected is not None:
        wanted = expected.replace("--a 1", "--a True").replace("--x", "-x") + "\n"
        assert after(document, edits) == wanted
    again = command(parse_shell(document.source.edited(edits)), "python")
    assert plain(again.flags.entries["x"].value) in (True, "True", "true")


def test_an_entry_after_one_in_an_array_goes_into_the_array() -> None:
    document = read('A=(\n  --b 1  # why\n  --c\n)\npython t.py "${A[@]}"\n')
    edits = document.add_entry(command(document, "python").flags, "new", 5, after="b")
    assert (
        after(document, edits)
        == 'A=(\n  --b 1  # why\n  --new 5\n  --c\n)\npython t.py "${A[@]}"\n'
    )


@LINE_ENDS
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a_b", LONG.replace("    --a-b 1 \\\n", "")),
        ("c_d", LONG.replace("    --c-d \\\n", "")),
        ("e_f", LONG.replace(" \\\n    --e-f 2 3", "")),
    ],
)
def test_removal_takes_the_continuation_along(key: str, expected: str, newline: str) -> None:
    document = read(LONG, newline)
    edits = document.remove_entry(command(document, "torchrun").flags, key)
    assert after(document, edits) == expected


def test_removal_takes_every_repetition() -> None:
    document = read("python t.py --x 1 --y 2 --x 3\n")
    assert after(document, document.remove_entry(command(document, "python").flags, "x")) == (
        "python t.py --y 2\n"
    )


def test_removal_inside_quotes_and_arrays() -> None:
    document = read('A="--x 1 --y 2"\nB=(--z 3 --w)\npython t.py $A "${B[@]}"\n')
    flags = command(document, "python").flags
    assert '"--y 2"' in after(document, document.remove_entry(flags, "x"))
    assert "(--w)" in after(document, document.remove_entry(flags, "z"))


def test_rename_keeps_the_style() -> None:
    document = read("python t.py --a-b 1 --c_d=2 e.f=3\n")
    found = command(document, "python")
    assert "--x-y 1" in after(document, document.rename_entry(found.flags, "a_b", "x_y"))
    assert "--x_y=2" in after(document, document.rename_entry(found.flags, "c_d", "x_y"))
    assert " g.h=3" in after(document, document.rename_entry(found.assignments, "e.f", "g.h"))


def test_overrides_are_set_and_added() -> None:
    document = read('tune run full --config c a.b=1 \\\n  c="x y"\n')
    found = command(document, "tune").assignments
    assert "a.b=true " in after(document, document.set_value(found.entries["a.b"].value, True))
    assert 'c="z w"' in after(document, document.set_value(found.entries["c"].value, "z w"))
    edits = document.add_entry(found, "d", [1, None])
    assert after(document, edits).endswith("c=\"x y\" \\\n  d='[1,null]'\n")


def test_append_item() -> None:
    document = read("python t.py --x a b \\\n  --y\n")
    node = command(document, "python").flags.entries["x"].value
    assert isinstance(node, Sequence)
    assert "--x a b c \\\n" in after(document, document.append_item(node, "c"))


@LINE_ENDS
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("python t.py", "V=1 python t.py"),
        ("A=2 python t.py", "A=2 V=1 python t.py"),
        ("A=2 \\\nB=3 \\\npython t.py", "A=2 \\\nB=3 \\\nV=1 \\\npython t.py"),
        ("nohup python t.py &", "V=1 nohup python t.py &"),
        ("time python t.py", "time V=1 python t.py"),
    ],
)
def test_an_environment_variable_is_put_before_the_command(
    script: str, expected: str, newline: str
) -> None:
    document = read(script + "\n", newline)
    edits = document.add_entry(command(document, "python").environment, "V", 1)
    assert after(document, edits) == expected + "\n"
    seen = command(parse_shell(document.source.edited(edits)), "python").environment
    assert seen.entries["V"].value.value == "1"  # type: ignore[union-attr]


# -- odd input --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "\0",
        "((((",
        "python t.py --a 'x",
        "<<EOF",
        "é=1 ü --ö",
        "$(",
        "a() {",
        "\ufeff",
        "\\",
    ],
)
def test_odd_input_is_read_without_complaint(text: str) -> None:
    assert isinstance(read(text), ShellScript)


@pytest.mark.parametrize(
    ("script", "programs"),
    [
        ("python a.py --x 1\npython b.py --x ((1\n", ["a.py"]),
        ("python a.py\ncase x in (python b.py\n", []),
        ("if then python b.py --x 2 ))\n", []),
    ],
)
def test_nothing_on_lines_that_cannot_be_parsed_is_reported(
    script: str, programs: list[str]
) -> None:
    assert [words(c)[-1] for c in read(script).commands] == programs


def test_a_very_long_script_and_a_very_long_command() -> None:
    lines = "".join(f"export V{i}={i}\npython t{i}.py --x $V{i} \\\n  --y\n" for i in range(700))
    assert len(read(lines).commands) == 700
    long = "python t.py " + " ".join(f"--a{i} {i}" for i in range(2000))
    assert len(command(read(long), "python").flags.entries) == 2000


def test_variables_that_double_forever_end_as_unknown() -> None:
    script = "A=1\n" + 'A="$A $A"\n' * 64 + "python t.py --x $A\n"
    assert plain(command(read(script), "python").flags.entries["x"].value) is UNKNOWN


def test_nesting_without_end_is_a_parse_error() -> None:
    with pytest.raises(ParseError):
        read("if true; then\n" * 500 + "x\n" + "fi\n" * 500)


@pytest.mark.parametrize("end", ["\\", "\\\n", "\\\n\n", "\\\r\n"])
def test_a_backslash_behind_the_last_option_costs_nothing(end: str) -> None:
    document = read(f"python train.py \\\n    --lr 1e-4 \\\n    --bf16 {end}")
    found = command(document, "python")
    assert words(found) == ["python", "train.py"]
    assert list(found.flags.entries) == ["lr", "bf16"]
    added = after(document, document.add_entry(found.flags, "seed", 7, after="bf16"))
    assert "--seed 7" in added
    again = read(added)
    assert list(command(again, "python").flags.entries) == ["lr", "bf16", "seed"]


def test_a_comment_may_propose_a_variable_that_nothing_sets() -> None:
    document = read(
        '# MODEL="vicuna-7b"\n# MODEL="llama-2-7b"\n# export STEPS=4\n# SIZE=9\n# OTHER=1\nOTHER=2\n'
        "python train.py --model ./base/$MODEL --short ${MODEL##*-} --steps ${STEPS:-2} "
        "--other $OTHER --size\n"
    )
    flags = command(document, "python").flags
    assert values(flags) == {
        "model": "./base/vicuna-7b",
        "short": "7b",
        "steps": "2",
        "other": "2",
        "size": True,
    }
    differ = {key for key, e in flags.entries.items() if getattr(e.value, "may_differ", False)}
    assert differ == {"model", "short"}


def test_a_function_is_followed_for_each_run_of_an_ablation() -> None:
    calls = "".join(f"train configs/{number}.yaml\nevaluate {number}\n" for number in range(23))
    text = 'train() {\n  llamafactory-cli train "$1"\n}\nevaluate() {\n  echo $1\n}\n' + calls
    commands = parse_shell(Source("run.sh", text)).commands
    trained = [c.words[2].value for c in commands if c.words[0].value == "llamafactory-cli"]
    assert trained == [f"configs/{number}.yaml" for number in range(23)]


def test_what_a_function_is_handed_runs_where_the_function_runs_it() -> None:
    text = 'run() {\n  if has uv; then\n    uv run "$@"\n  else\n    "$@"\n  fi\n}\nrun python train.py --lr 1\n'
    started = [plain(c.words[0]) for c in read(text).commands if len(c.words) > 1]
    assert started == ["has", "uv", "python"]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("{2..4}", ["2", "3", "4"]),
        ("{3..1}", ["3", "2", "1"]),
        ("0 {4..8..2}", ["0", "4", "6", "8"]),
        ("{1e-4,2e-4}", ["1e-4", "2e-4"]),
    ],
)
def test_a_loop_over_braces_runs_once_for_each_word(words: str, values: list[str]) -> None:
    commands = read(f"for N in {words}; do python t.py --x $N; done").commands
    assert [plain(c.flags.entries["x"].value) for c in commands] == values


@pytest.mark.parametrize("default", ["$_d", "${_d}", "$d"])
def test_a_default_that_is_another_variable(default: str) -> None:
    text = f'_d=a.json\nd=a.json\nC="${{C:-{default}}}"\npython t.py --x "$C"\n'
    [command] = read(text).commands
    assert plain(command.flags.entries["x"].value) == "a.json"


@pytest.mark.parametrize(
    ("script", "is_own"),
    [
        ('cd "$(dirname "$0")"', True),
        ('cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1', True),
        ('HERE="$(cd "$(dirname "$0")" && pwd)"\nROOT="$(cd "$HERE/.." && pwd)"\ncd "$ROOT"', True),
        ('cd "$(dirname "$0")"\ncd inner', True),
        ('cd "$(dirname "$0")"\ncd "$INNER"', False),
        ('cd "$(dirname "$0")"\ncd -', False),
        ('(cd "$(dirname "$0")" && ls)', False),
        ('cd "$(dirname "$(dirname "$0")")"', False),
        ('HERE="$(dirname "$0")"\nHERE=/opt\ncd "$HERE"', False),
        ("cd inner", False),
        ('#SBATCH --nodes=1\ncd "$(dirname "$0")"', False),
    ],
)
def test_the_folder_of_the_script_itself(script: str, is_own: bool) -> None:
    found = command(read(f"{script}\npython train.py --a 1\n"), "python")
    assert found.folder_is_own is is_own


@pytest.mark.parametrize("comment", ["# C=3", "# C=3 \\"])
@LINE_ENDS
def test_variables_above_a_comment_are_no_environment(comment: str, newline: str) -> None:
    """A comment ends with its line, so that the command below it is one of its own and never sees the variables."""
    found = command(
        read(f"A=1 \\\nB=2 \\\n{comment}\ntrain --x $B \\\n  --y 1\n", newline), "train"
    )
    assert {key: plain(entry.value) for key, entry in found.flags.entries.items()} == {
        "x": "2",
        "y": "1",
    }
    assert not found.environment.entries
