from __future__ import annotations

import pytest

from oomlint.documents.base import UNKNOWN, Scalar
from oomlint.documents.shell.document import ShellScript, parse_shell
from oomlint.documents.shell.values import arithmetic, operated, output_of
from oomlint.documents.text import Source, apply_edits
from oomlint.errors import CannotEdit


def _document(text: str, **others: str) -> ShellScript:
    files = {name.replace("_", "."): Source(name, body) for name, body in others.items()}
    return parse_shell(Source("jobs/run.sh", text), files.get)


def _values(text: str, **others: str) -> list[object]:
    """What ``--x`` is in each ``python`` command, in the order in which they run."""
    document = _document(text, **others)
    values = [c.flags.entries["x"].value for c in document.commands if "x" in c.flags.entries]
    return [value.value for value in values if isinstance(value, Scalar)]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("128 / ( 8 * 2 )", 8),
        ("- 7 / 2", -3),
        ("2 ** 3 ** 2", 512),
        ("8 > 4 ? 1 : 0", 1),
        ("0x10", 16),
        ("1 / 0", None),
        ("1 +", None),
        ("n", None),
        ("9 ** 9 ** 9", None),
    ],
)
def test_arithmetic(expression: str, value: int | None) -> None:
    assert arithmetic(expression) == value


@pytest.mark.parametrize(
    ("value", "operation", "result"),
    [
        ("meta/Llama-8B", "##*/", "Llama-8B"),
        ("a/b/c", "%/*", "a/b"),
        ("a/b/c", "%%/*", "a"),
        ("x.yaml", "%.yaml", "x"),
        ("0,1,2", "//,/ ", "0 1 2"),
        ("a-b-c", "/-/_", "a_b-c"),
        ("ABC", ",,", "abc"),
        ("abcdef", ":1:3", "bcd"),
        ("abc", ":-x", None),
        ("abc", "#$p", None),
    ],
)
def test_parameter_operations(value: str, operation: str, result: str | None) -> None:
    assert operated(value, operation) == result


@pytest.mark.parametrize(
    ("program", "given", "printed"),
    [
        (["dirname", "a/b.sh"], None, "a"),
        (["dirname", "b.sh"], None, "."),
        (["basename", "a/b.sh", ".sh"], None, "b"),
        (["expr", "8", "*", "4"], None, "32"),
        (["command", "-v", "python3"], None, "python3"),
        (["which", "torchrun"], None, "torchrun"),
        (["which", "-a", "torchrun"], None, None),
        (["git", "rev-parse", "--show-toplevel"], None, "."),
        (["git", "rev-parse", "HEAD"], None, None),
        (["wc", "-l"], "a\nb\n", "2"),
        (["awk", "-F,", "{print NF}"], "0,1,2", "3"),
        (["cut", "-d,", "-f2"], "a,b", "b"),
        (["nproc"], None, None),
        (["wc", "-l"], None, None),
    ],
)
def test_small_programs(program: list[str], given: str | None, printed: str | None) -> None:
    assert output_of(program, given) == printed


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("N=2\nG=8\npython t.py --x $((128 / (N * $G)))", ["8"]),
        ("L=0,1,2\npython t.py --x $(echo $L | tr ',' '\\n' | wc -l)", ["3"]),
        ("L=0,1,2\nIFS=',' read -ra A <<< \"$L\"\npython t.py --x ${#A[@]}", ["3"]),
        ("L=0,1\nA=(${L//,/ })\npython t.py --x ${#A[@]}", ["2"]),
        ("A=(a b)\npython t.py --x ${A[1]}", ["b"]),
        ("A=(--x 1)\nA+=(--y 2 # why\n)\npython t.py \"${A[@]}\"", ["1"]),
        ('E="--x 1"\nC="python t.py --y=${N:-1} ${E}"\n$C', ["1"]),
        ("M=${A:-${B:-c}}\npython t.py --x $M", ["c"]),
        ("python t.py --x ${HOME}/m", ["~/m"]),
        ("python t.py --x $(cd $(dirname $0)/.. && pwd)/m", ["jobs/../m"]),
        ("D=ds.json\npython t.py ${D:+--x $D}", ["ds.json"]),
        ("python t.py ${D:+--y 1} --x 1", ["1"]),
        (": ${X:=4}\npython t.py --x $X", ["4"]),
        # A script is read as if it was started without arguments.
        ("X=$1\nif [ -z $X ]; then X=4; fi\npython t.py --x $X", ["4"]),
        ('[ -z "$X" ] && X=5\npython t.py --x $X', ["5"]),
        ("X=1\n[ $# -ge 1 ] && X=$1\npython t.py --x $X", ["1"]),
        ("X=1\nwhile [[ $# -gt 0 ]]; do X=$2; shift; done\npython t.py --x $X", ["1"]),
        ('X=1\nif (( "$#" )); then X=2; fi\npython t.py --x $X', ["1"]),
        ('f() { if (( "$#" > 1 )); then python t.py --x "$2"; fi; }\nf a 3\nf 4', ["3"]),
        # What must be given is not known.
        ('X=""\nwhile [[ $# -gt 0 ]]; do X=$2; shift; done\npython t.py --x "$X"', [UNKNOWN]),
        ('X=""\nif [ -z "$X" ]; then echo usage; exit 1; fi\npython t.py --x "$X"', [UNKNOWN]),
        ("S=7b\nif [[ $S == 7b ]]; then X=1; else X=2; fi\npython t.py --x $X", ["1"]),
        ('S=dpo-b\nif [[ $S == *"sft"* ]]; then X=1; else X=2; fi\npython t.py --x $X', ["2"]),
        ('S=sft-b\nif [[ $S == *"sft"* ]]; then X=1; else X=2; fi\npython t.py --x $X', ["1"]),
        ('S=sft\nif [[ $S != *"*"* ]]; then X=1; else X=2; fi\npython t.py --x $X', ["1"]),
        ('S=sft\nif [[ $S == *"$Y"* ]]; then X=1; else X=2; fi\npython t.py --x $X', [UNKNOWN]),
        ("S=7b\ncase $S in\n13b) X=1;;\n7b|8b) X=2;;\nesac\npython t.py --x $X", ["2"]),
        ("if nvidia-smi; then X=1; else X=2; fi\npython t.py --x $X", [UNKNOWN]),
        ("if command -v nvidia-smi >/dev/null; then X=1; else X=2; fi\npython t.py --x $X", ["1"]),
        ("N=$(nvidia-smi -L | wc -l)\nX=1\nif [ -z $N ]; then X=2; fi\npython t.py --x $X", ["1"]),
        ("N=$(nvidia-smi -L | wc -l)\nif [ $N -gt 0 ]; then X=1; else X=2; fi\npython t.py --x $X", ["1"]),
        ("N=$(nvidia-smi -L | wc -l)\nif [ $N -gt 4 ]; then X=1; else X=2; fi\npython t.py --x $X", [UNKNOWN]),
        ("X=1\nif (( X > 2 )); then X=3; else X=4; fi\npython t.py --x $X", ["4"]),
        ("X=\nfor ((i=0; i<3; i++)); do X+=$i; done\npython t.py --x $X", ["012"]),
        ("X=\nN=2\nfor ((i=1; i<=N; i+=1)); do X+=$i; done\npython t.py --x $X", ["12"]),
        ("for ((i=0; i<N; i++)); do X=$i; done\npython t.py --x $X", [UNKNOWN]),
        ("for ((i=0; i<9999; i++)); do X=$i; done\npython t.py --x $X", [UNKNOWN]),
        ("printf -v X '%s-%d' a 2\npython t.py --x $X", ["a-2"]),
        ("printf -v X '%s' $Y\npython t.py --x $X", [UNKNOWN]),
        ("a=(1 2)\nX=$(IFS=', '; echo \"${a[*]}\")\npython t.py --x $X", ["1,2"]),
        ("X=$(cd -- /a/b &>/dev/null && pwd)\npython t.py --x $X", ["/a/b"]),
        ("X=$(dirname -- /a/b.sh)\npython t.py --x $X", ["/a"]),
        ("N=3\nA=(--x [0]*$N+[1]*$N --y 1)\npython t.py ${A[@]}", ["[0]*3+[1]*3"]),
        ("A=(--x [0]*$N --y 1)\npython t.py ${A[@]}", [UNKNOWN]),
        # Items of associative arrays, and elements under a number that a variable holds.
        ('declare -A m\nm["a"]=1\nm[b]="2 3"\nk=b\npython t.py --x "${m[$k]}"', ["2 3"]),
        ('declare -A m=([a]=1 ["b c"]="/w/$N" [d]=\'x\')\npython t.py --x ${m["b c"]}', [UNKNOWN]),
        ("N=2\ndeclare -A m=([a]=1 ['b c']=\"/w/$N\" [d]='x')\npython t.py --x ${m['b c']},${m[d]}", ["/w/2,x"]),
        ("typeset -A m=([a]=1)\npython t.py --x ${m[c]:-9}", ["9"]),
        ("declare -A m=([a]=1)\nm[b]+=2\npython t.py --x ${m[a]}", [UNKNOWN]),
        ("declare -A m=([a]=1)\nm[$K]=2\npython t.py --x ${m[a]}", [UNKNOWN]),
        ("declare -A m=([a]=1)\nif $R; then m[a]=2; fi\npython t.py --x ${m[a]}", [UNKNOWN]),
        ("declare -A m=([a]=1)\npython t.py --x ${m[$K]}", [UNKNOWN]),
        ("a=(1 2 4)\ni=1\npython t.py --x ${a[$i]},${a[i+1]}", ["2,4"]),
        ("a=(1 2 4)\npython t.py --x ${a[$i]}", [UNKNOWN]),
        # A folder, or else the hub: one model.
        ("M=/w/big-7b\nif [[ ! -d $M ]]; then M=org/big-7b; fi\npython t.py --x $M", ["org/big-7b"]),
        ("M=models/big-7b\n[ -d $M ] || M=org/big-7b\npython t.py --x $M", ["org/big-7b"]),
        ("M=/w/big-7b\nif [[ ! -d $M ]]; then M=org/big-13b; fi\npython t.py --x $M", [UNKNOWN]),
        ("M=a/big-7b\nif [[ ! -d $M ]]; then M=b/big-7b; fi\npython t.py --x $M", [UNKNOWN]),
        ("for x in 1 2; do python t.py --x $x; done", ["1", "2"]),
        # The first round runs as things stand; what later ones make of them is not known.
        ("N=3\nX=a\ni=0\nwhile (($i < $N)); do\n if ((i > 0)); then X=b; fi\n python t.py --x $X\n i=$((i + 1))\ndone", ["a"]),
        ("i=0\nwhile [ $i -lt 2 ]; do X=1; i=$((i + 1)); done\npython t.py --x $X", [UNKNOWN]),
        ("while [ $i -lt 2 ]; do X=$i; python t.py --x $X; i=2; done", [UNKNOWN]),
        ("f() {\n local m=$1\n python t.py --x $m\n}\nf 1\nf 2", ["1", "2"]),
        ("f() { python t.py --x ${1:-9}; }", ["9"]),
        ('C="python t.py --x 1"\neval $C', ["1"]),
        ('bash -c "python t.py --x \\"a b\\""', ["a b"]),
        ("python t.py --y 1 `# why` \\\n --x 2", ["2"]),
        ("ssh host 'cd /w && python t.py --x 2'", ["2"]),
        ("tmux new-session -d -s t 'python t.py --x 2'", ["2"]),
        ('sbatch --mem=4G --wrap="python t.py --x 2"', ["2"]),
        ("sbatch <<EOF\npython t.py --x \\$N\nEOF", [UNKNOWN]),
    ],
)  # fmt: skip
def test_values_as_the_shell_makes_them(text: str, values: list[object]) -> None:
    assert [value for value in _values(text) if value is not True] == values


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('if $R; then A=(--d 1 --f b); else A=(--d 0); fi\npython t.py "${A[@]}" --x 2', {"d": UNKNOWN, "f": UNKNOWN, "x": "2"}),
        ('if $R; then A=(--d 1 --f b); else A=(--d $N); fi\npython t.py "${A[@]}" --x 2', {"d": UNKNOWN, "f": UNKNOWN, "x": "2"}),
        ('if $R; then A=(--d --f b); else A=(--d); fi\npython t.py "${A[@]}" --x 2', {"d": True, "f": UNKNOWN, "x": "2"}),
        ('A=(--y 3)\nif [ $B = 1 ]; then A+=(--d a.json); elif [ $B = 2 ]; then A+=(--f b); fi\npython t.py "${A[@]}" --x 2', {"y": "3", "d": UNKNOWN, "f": UNKNOWN, "x": "2"}),
        ('A=()\n[ -n "$S" ] && A+=(--d "$S")\npython t.py --x 2 "${A[@]}"', {"x": "2", "d": UNKNOWN}),
        # The value that the first guard leaves unknown is still the option's behind the second.
        ('A=()\nS="${S:-}"\nif [[ -n "${S}" ]]; then A+=(--d "${S}"); fi\n[ -n "$T" ] && A+=(--f "$T")\n[[ -z "$U" ]] || A+=(--g "$U")\npython t.py --x 2 "${A[@]}"', {"x": "2", "d": UNKNOWN, "f": UNKNOWN, "g": UNKNOWN}),
        ('A=\nif [ $B = 1 ]; then A="--d a.json --p"; fi\npython t.py $A --x 2', {"d": UNKNOWN, "p": UNKNOWN, "x": "2"}),
        ("if [ $B = 1 ]; then M=a; else M=b; fi\npython t.py --x $M", {"x": UNKNOWN}),
        ('if [ $B = 1 ]; then A=(--d 1 --f 2); else A=(--d 0); fi\npython t.py --x 2 "${A[@]}"', {"x": "2", "d": UNKNOWN, "f": UNKNOWN}),
        ('if [ $B = 1 ]; then A=(--d --f 2); else A=(--d); fi\npython t.py --x 2 "${A[@]}"', {"x": "2", "d": True, "f": UNKNOWN}),
    ],
)  # fmt: skip
def test_options_that_a_branch_may_add_are_there_without_a_value(
    text: str, options: dict[str, object]
) -> None:
    (command,) = (c for c in _document(text).commands if len(c.flags.entries))
    values = {key: entry.value for key, entry in command.flags.entries.items()}
    assert {k: getattr(v, "value", v) for k, v in values.items()} == options


def test_overrides_that_a_branch_may_add_are_there_without_a_value() -> None:
    text = 'A=()\nif [ $B = 1 ]; then A+=(a.b=1); fi\npython t.py c=1 "${A[@]}"'
    (command,) = (c for c in _document(text).commands if c.assignments.entries)
    entries = command.assignments.entries
    assert {k: getattr(e.value, "value", e) for k, e in entries.items()} == {
        "c": "1",
        "a.b": UNKNOWN,
    }


def test_variables_of_a_sourced_file_are_known_and_edited_at_their_use() -> None:
    text = "set -a; source common.sh\npython t.py --x $N"
    document = _document(text, common_sh="N=4\n")
    (command,) = [c for c in document.commands if "x" in c.flags.entries]
    assert command.environment.entries["N"].value.value == "4"  # type: ignore[union-attr]
    value = command.flags.entries["x"].value
    assert isinstance(value, Scalar)
    assert value.value == "4"
    edited = apply_edits(text, document.set_value(value, 2))
    assert edited.endswith("--x 2")
    assert document.sourced == ("common_sh",)


def test_options_in_arrays_of_a_sourced_file_say_which_it_is() -> None:
    document = _document(
        "source outer.sh\npython t.py ${A[@]} --z 3",
        outer_sh="source inner.sh\nA+=(--y 2)",
        inner_sh="A=(--x 1)",
    )
    (command,) = [c for c in document.commands if "z" in c.flags.entries]
    files = {key: getattr(entry, "file", None) for key, entry in command.flags.entries.items()}
    assert files == {"x": "inner_sh", "y": "outer_sh", "z": ""}


def test_a_function_s_argument_is_edited_where_the_function_is_called() -> None:
    text = "f() {\n python t.py --x $1\n}\nf 1\nf 2\n"
    document = _document(text)
    last = [c for c in document.commands if "x" in c.flags.entries][-1].flags.entries["x"].value
    assert apply_edits(text, document.set_value(last, 3)) == text.replace("f 2", "f 3")


def test_many_rounds_end() -> None:
    words = " ".join(str(n) for n in range(2000))
    assert _values(f"for x in {words}; do python t.py --x $x; done") == [UNKNOWN]
    assert len(_values("f() { python t.py --x 1; f; }\nf")) < 50


def test_directives_of_a_job_that_is_handed_in() -> None:
    document = _document("sbatch <<EOF\n#!/bin/bash\n#SBATCH --mem=4G\npython t.py\nEOF\n")
    assert document.sbatch.entries["mem"].value.value == "4G"  # type: ignore[union-attr]


_DS = '{"zero_optimization": {"stage": 3}}'


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        (f"cat > ds.json <<EOF\n{_DS}\nEOF\n", "2"),
        (f"cat <<'EOF' > ./ds.json\n{_DS}\nEOF\n", "2"),
        (f"echo '{_DS}' > ds.json\n", "2"),
        ("tee ds.json <<EOF\n" + _DS + "\nEOF\n", "2"),
        ('echo "' + _DS.replace('"', '\\"') + '" > ds.json\n', "2"),
        ("Z=3\nD=ds.json\ncat > $D <<EOF\n" + _DS.replace("3", "$Z") + "\nEOF\n", None),
    ],
)
def test_configs_that_a_script_writes(text: str, edited: str | None) -> None:
    written = _document(text).files["ds.json"].parsed("ds.json")
    assert written is not None
    stage = written.root.entries["zero_optimization"].value.entries["stage"].value  # type: ignore
    assert stage.value == 3
    if edited is None:
        with pytest.raises(CannotEdit, match="when it runs"):
            written.set_value(stage, 2)
    else:
        result = apply_edits(text, written.set_value(stage, int(edited)))
        assert result == text.replace(": 3", f": {edited}")


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ('if [ "$LORA" = yes ]; then echo "--x 8"; fi', ["8"]),
        ('if [ "$LORA" = no ]; then echo "--x 8"; else echo "--x 4"; fi', ["4"]),
        ('if [ "$LORA" = no ]; then echo "--x 8"; fi', []),
        ('[ "$LORA" = yes ] && echo --x 8', ["8"]),
        ('[ "$LORA" = no ] && echo --x 8', []),
        ('[ "$LORA" = no ] && echo --x 8 || echo --x 2', ["2"]),
        ('if [ "$OTHER" = yes ]; then echo "--x 8"; fi', [UNKNOWN]),
        ('[ -n "$OTHER" ] && echo --x 8', [UNKNOWN]),
        ('[ -n "$OTHER" ] && echo --x 8 || echo --x 2', [UNKNOWN]),
        ('if [ "$OTHER" = yes ]; then echo "--x 8"; else echo "--x 8"; fi', ["8"]),
    ],
)
def test_options_that_a_test_within_a_substitution_prints(
    printed: str, value: list[object]
) -> None:
    assert _values(f"LORA=yes\npython train.py $({printed}) --y 1\n") == value
    assert _values(f'LORA=yes\nMORE="$({printed})"\npython train.py $MORE --y 1\n') == value


def test_what_is_printed_on_a_condition_leaves_the_rest_of_the_line() -> None:
    document = _document("python train.py --a 1 $([ $Z ] && echo --x) --y 2\n")
    (command,) = document.commands
    entries = command.flags.entries
    assert [getattr(entries[name].value, "value", None) for name in "axy"] == ["1", UNKNOWN, "2"]


@pytest.mark.parametrize(
    "counted",
    ["((N++))", "(( N += 1 ))", "(( M = 4, N = 4 ))", "((--N))", "let N=N+1", 'let "N += 1"'],
)
def test_what_arithmetic_makes_of_a_variable_is_not_what_it_was(counted: str) -> None:
    assert _values(f"N=3\n{counted}\npython a.py --x $N\n") == [UNKNOWN]
    may_run = f"N=3\nif nvidia-smi; then\n  {counted}\nfi\npython a.py --x $N\n"
    assert _values(may_run) == [UNKNOWN]


@pytest.mark.parametrize("asked", ["((N > 2))", "((N == 3))", "(( M = 1 ))", "let M=N"])
def test_arithmetic_that_only_asks_leaves_a_variable_as_it_is(asked: str) -> None:
    assert _values(f"N=3\n{asked}\npython a.py --x $N\n") == ["3"]
