"""Profiles: what a file of one may say, and that generic code names no project."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.linked import run_of

from oomlint.dialects import profiles as folder_of_profiles
from oomlint.dialects.cells import Cells
from oomlint.dialects.profiles import known
from oomlint.dialects.profiles.build import script_table
from oomlint.dialects.profiles.formulas import BadFormula, formula
from oomlint.dialects.profiles.load import ProfileError, parsed
from oomlint.plan.fields import declared, f

SCRIPTS = [script for profile in known.profiles() for script in profile.scripts if script.match]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_every_profile_of_ours_is_sound(script: Any) -> None:
    assert script_table(script).meaning


# -- files ---------------------------------------------------------------------------------------

_HEAD = 'project = "Acme"\nsource = "acme"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("project = ", "a.toml: Invalid value"),
        ('source = "x"\n', "a.toml: project: is missing"),
        (_HEAD + "colour = 1\n", "a.toml: colour: a profile has no such key here"),
        (_HEAD + '[scripts.t]\nlike = "u"\n', "a.toml: scripts.t.like: there is no other script 'u'"),
        (_HEAD + "[scripts.t]\nmatch = [{}]\n", "a.toml: scripts.t.match[0]: says nothing"),
        (_HEAD + "[scripts.t.match]\n", "a.toml: scripts.t.match: expected a list"),
        (_HEAD + "[scripts.t.options]\nx = 1\n", "a.toml: scripts.t.options.x: expected a table"),
        (_HEAD + '[scripts.t.derive]\n"seq.pad" = { when = "True" }\n', 'a.toml: scripts.t.derive."seq.pad": has no value'),
    ],
)  # fmt: skip
def test_a_fault_names_file_and_key(text: str, says: str) -> None:
    with pytest.raises(ProfileError) as error:
        parsed(text, "a.toml")
    assert str(error.value).startswith(says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[scripts.t.options]\nx = { kind = "colour" }\n', "there is no kind 'colour'"),
        ('[scripts.t.options]\nx = { field = "seq.maxlen" }\n', "there is no field seq.maxlen"),
        ("[scripts.t.options]\nmethod = {}\n", "script.method means something else"),
        ('[scripts.t.facts]\n"seq.maxlen" = 1\n', "there is no field seq.maxlen"),
        ('[scripts.t.derive]\n"seq.max_len" = "script.tune_mm_mlp"\n', "there is no field script.tune_mm_mlp"),
        ('[scripts.t.derive]\n"seq.max_len" = "open(1)"\n', "'open' is no function"),
    ],
)  # fmt: skip
def test_a_profile_names_only_what_there_is(text: str, says: str) -> None:
    (script,) = parsed(_HEAD + text, "a.toml").scripts
    with pytest.raises(ProfileError, match=r"^a\.toml: Acme's t\.py: ") as error:
        script_table(script)
    assert says in str(error.value)


def test_a_script_takes_from_the_one_that_it_is_like() -> None:
    text = _HEAD + (
        '[scripts.a]\nmatch = [{ stems = ["a"] }]\n'
        'facts = { "seq.pad" = "none", "seq.packing" = "none" }\n'
        '[scripts.b]\nlike = "a"\nfacts = { "seq.pad" = "longest" }\n'
    )
    _, script = parsed(text, "a.toml").scripts
    assert script.facts.of == {"seq.pad": "longest", "seq.packing": "none"}
    assert script.match == ()


def test_the_example_of_the_documentation_is_a_profile() -> None:
    page = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text("utf-8")
    (script,) = parsed(page.split("```toml\n")[1].split("```")[0], "profiles.md").scripts
    assert script_table(script).by_field[f.batch.micro].default == 4


# -- formulas --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run() -> Cells:
    line = "torchrun train.py --model_name_or_path meta-llama/Llama-2-7b-hf --output_dir out"
    options = "--per_device_train_batch_size 2 --num_train_epochs 1 --bf16 --max_seq_length $LENGTH"
    completed = run_of({"t.sh": f"{line} {options}\n"}).parts.completed
    assert isinstance(completed, Cells)
    return completed


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("batch.micro * 3 + 1", 7),
        ("-batch.micro // 2", -1),
        ("model.dims.hidden", 4096),
        ("model.dims.vision.hidden", None),
        ("model.dims.vision.hidden * 2", None),
        ("max(1, model.dims.vision.hidden)", None),
        ("model.dims.vision.hidden < 5", False),
        ("1 <= batch.micro < 3", True),
        ("batch.micro / 0", None),
        ("'a' * 1000", None),
        ("'a' if hf.bf16 else 'b'", "a"),
        ("says(batch.micro) and not says(batch.grad_accum)", True),
        ("unread(seq.max_len)", True),
        ("'x' in ('x', 'y')", True),
        ("None in ('x',)", False),
        ("number('12') + number_after('mlp', 'mlp2x_gelu')", 14),
        ("number('epoch')", None),
        ("sum(numbers(('8', 'x', '4')))", 12),
    ],
)
def test_formulas(run: Cells, text: str, value: Any) -> None:
    assert formula(text, declared)(run) == value


@pytest.mark.parametrize(
    "text",
    [
        "", "a b", "batch.mirco", "__import__('os')", "batch.micro.real", "model.dims.__class__",
        "(1).real", "[x for x in ()]", "lambda: 1", "2 ** 9", "f'{1}'", "b''", "max(1, key=2)",
        "says(1)", "says(model.dims.hidden)", "true", "~1", "(x := 1)", "1" * 2000, "not " * 300 + "1",
    ],
)  # fmt: skip
def test_what_is_no_formula(text: str) -> None:
    with pytest.raises(BadFormula):
        formula(text, declared)


def test_an_option_of_a_profile_is_a_field() -> None:
    run = run_of({"t.sh": "python qlora.py --model_name_or_path a/b --source_max_len 1000\n"})
    assert run.plan.seq.max_len == 1256
    cells = run.parts.completed
    assert isinstance(cells, Cells)
    assert cells.reads(f.seq.max_len) == ("script.source_max_len", "script.target_max_len")


# -- generic code ----------------------------------------------------------------------------------

_DIALECTS = Path(folder_of_profiles.__file__).parents[1]
_PROJECTS = (
    "llava", "internvl", "fastchat", "qlora.py", "alpaca", "firefly", "chatglm", "open_instruct",
    "open-instruct", "deepspeed-chat", "qwenvl", "minicpm",
)  # fmt: skip


def _words(file: Path) -> Iterator[str]:
    """Names and texts of a module's code, but for what stands in docstrings."""
    tree = ast.parse(file.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            yield str(node.value)
        for attribute in ("id", "name", "attr", "arg"):
            yield str(getattr(node, attribute, ""))


@pytest.mark.parametrize(
    "file",
    [file for name in ("profiles", "trainer", "trl") for file in sorted((_DIALECTS / name).rglob("*.py"))],
    ids=lambda file: file.relative_to(_DIALECTS).as_posix(),
)  # fmt: skip
def test_generic_code_names_no_project(file: Path) -> None:
    named = {project for word in _words(file) for project in _PROJECTS if project in word.lower()}
    assert not named
