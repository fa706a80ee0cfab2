"""Profiles: what a file of one may say, who brings them, and that generic code names no project."""

from __future__ import annotations

import ast
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.command import oomlint
from tests.linked import run_of

from oomlint.config.settings import Framework
from oomlint.dialects.__main__ import PROFILES, profiles_text
from oomlint.dialects.cells import Cells
from oomlint.dialects.profiles.build import script_table
from oomlint.dialects.profiles.check import checked
from oomlint.dialects.profiles.formulas import BadFormula, formula
from oomlint.dialects.profiles.load import DATA, parsed, shipped
from oomlint.dialects.profiles.records import ProfileError
from oomlint.files.workspace import Workspace
from oomlint.linting.engine import Options, Report, lint
from oomlint.plan.evidence import Level
from oomlint.plan.fields import declared, f

ROOT = Path(__file__).parents[2]
LINT = ROOT / "lint" / "oomlint"
FILES = sorted(DATA.glob("*.toml"))

# -- those of oomlint ------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_profile_of_ours_is_sound(file: Path) -> None:
    profile = checked(file.read_bytes(), file.name)
    for script in profile.scripts:
        assert script.source
        if script.match:
            assert script_table(script).meaning


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_profile_of_ours_says_what_was_read_and_when(file: Path) -> None:
    profile = shipped(file.stem)
    assert re.fullmatch(r"https://github\.com/[\w-]+/[\w-]+", profile.repository)
    assert re.fullmatch(r"[0-9a-f]{7,40}|\d+(\.\d+)+", profile.commit)
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", profile.read)


def test_the_index_is_what_the_profiles_say() -> None:
    assert PROFILES.read_text("utf-8") == profiles_text(), "run `python -m oomlint.dialects`"


# -- files ---------------------------------------------------------------------------------------

_HEAD = (
    'project = "Acme"\nsource = "acme"\nrepository = "https://github.com/acme/tuner"\n'
    "read = 2026-11-22\n"
)
_T = _HEAD + "[scripts.t]\nmatch = [{ stems = ['t'] }]\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("project = ", "a.toml: Invalid value"),
        (_HEAD, "a.toml: 'scripts' is a required property"),
        (_T.replace('project = "Acme"\n', ""), "a.toml: 'project' is a required property"),
        (_T.replace('source = "acme"\n', ""), "a.toml: scripts.t.source: is missing"),
        ("colour = 1\n" + _T, "a.toml: Additional properties are not allowed ('colour' was unexpected)"),
        (_HEAD + '[scripts.t]\nlike = "u"\n', "a.toml: scripts.t.like: there is no other script 'u'"),
        (_HEAD + "[scripts.t]\nmatch = [{}]\n", "a.toml: scripts.t.match[0]: "),
        (_HEAD + "[scripts.t.match]\n", "a.toml: scripts.t.match: {} is not of type 'array'"),
        (_HEAD + "[scripts.t]\ndrops = 1\n", "a.toml: scripts.t.drops: expected a list of texts, or a text of words"),
        (_T + "[scripts.t.options]\nx = 1\n", "a.toml: scripts.t.options.x: 1 is not of type 'object'"),
        (_T + '[scripts.t.options]\nx = { kind = "colour" }\n', "a.toml: scripts.t.options.x.kind: 'colour' is not one of"),
        (_T + '[scripts.t.options]\nx = { field = "seq.maxlen" }\n', "a.toml: Acme's t.py: options.x: there is no field seq.maxlen"),
        (_T + "[scripts.t.options]\nmethod = {}\n", "a.toml: Acme's t.py: options.method: script.method means something else"),
        (_T + '[scripts.t.options]\nx = { field = "batch.micro", default = "x" }\n', "a.toml: Acme's t.py: options.x.default: should be a whole number"),
        (_T + '[scripts.t.facts]\n"seq.maxlen" = 1\n', "a.toml: Acme's t.py: facts: there is no field seq.maxlen"),
        (_T + '[scripts.t.facts]\n"seq.pad" = 1\n', "a.toml: Acme's t.py: facts.seq.pad: should be"),
        (_T + '[scripts.t.derive]\n"seq.pad" = { when = "True" }\n', 'a.toml: scripts.t.derive."seq.pad": expected a formula, or a table'),
        (_T + '[scripts.t.derive]\n"seq.max_len" = "script.tune_mm_mlp"\n', "a.toml: Acme's t.py: derive.seq.max_len: there is no field script.tune_mm_mlp"),
        (_T + '[scripts.t.derive]\n"seq.max_len" = "open(1)"\n', "a.toml: Acme's t.py: derive.seq.max_len: 'open' is no function"),
    ],
)  # fmt: skip
def test_a_fault_names_file_and_key(text: str, says: str) -> None:
    with pytest.raises(ProfileError) as error:
        checked(text.encode(), "a.toml")
    assert str(error.value).startswith(says)


def test_a_script_takes_from_the_one_that_it_is_like() -> None:
    text = _HEAD + (
        '[scripts.a]\nmatch = [{ stems = ["a"] }]\n'
        'facts = { "seq.pad" = "none", "seq.packing" = "none" }\n'
        '[scripts.b]\nlike = "a"\nfacts = { "seq.pad" = "longest" }\n'
    )
    _, script = parsed(text.encode(), "a.toml").scripts
    assert script.facts.of == {"seq.pad": "longest", "seq.packing": "none"}
    assert script.match == ()


def test_the_example_of_the_documentation_is_a_profile() -> None:
    page = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text("utf-8")
    example = page.split("```toml\n")[1].split("```")[0]
    (script,) = checked(example.encode(), "profiles.md").scripts
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
        ("len(numbers('0,10'))", 2),
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


# -- of a project ----------------------------------------------------------------------------------

ACME = """\
project = "Acme"
repository = "https://github.com/acme/tuner"
read = "2026-11-22"
source = "acme/train.py"
framework = "acme"

[scripts.train]
extends = "nothing"
match = [{ paths = ["acme/train"], needs = ["model_path"] }]
facts = { "seq.pad" = "max_len" }

[scripts.train.options]
model_path = { field = "model.id" }
micro = { field = "batch.micro", kind = "positive", default = 4 }
prompt_tokens = { kind = "length", default = 512 }
answer_tokens = { kind = "length", default = 256 }
tuning = { default = "lora" }

[scripts.train.derive]
"seq.max_len" = "script.prompt_tokens + script.answer_tokens"
"hf.use_peft" = "script.tuning == 'lora'"
"trainable.r" = { value = 32, when = "script.tuning == 'lora'" }
"""
LINE = (
    "torchrun --nproc_per_node 2 acme/train.py --model_path Qwen/Qwen2.5-7B --answer_tokens 512\n"
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose command the profile describes, which is not there yet."""
    (tmp_path / "oomlint.toml").write_text("")
    (tmp_path / "run.sh").write_text(LINE)
    (tmp_path / ".oomlint" / "profiles").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _linted(project: Path) -> Report:
    options = Options(profiles=str(project / ".oomlint" / "profiles"))
    return lint(Workspace(project), ["run.sh"], options)


def test_a_project_brings_a_profile_of_its_own(project: Path) -> None:
    assert not _linted(project).runs
    (project / ".oomlint" / "profiles" / "acme.toml").write_text(ACME)
    report = _linted(project)
    (run,) = report.runs
    assert not report.errors
    assert (run.framework, run.plan.model.id) == ("acme", "Qwen/Qwen2.5-7B")
    assert (run.plan.batch.micro, run.plan.seq.max_len, run.plan.seq.pad) == (4, 1024, "max_len")
    assert (run.plan.trainable.method, run.plan.trainable.r) == ("lora", 32)
    full = project / "run.sh"
    full.write_text(f"{LINE[:-1]} --tuning full\n")
    assert _linted(project).runs[0].plan.trainable.method == "full"


def test_a_projects_profile_counts_before_ours(project: Path) -> None:
    own = ACME.replace("acme/train", "qlora").replace("model_path", "model_name_or_path")
    (project / ".oomlint" / "profiles" / "own.toml").write_text(own)
    (project / "run.sh").write_text("python qlora.py --model_name_or_path Qwen/Qwen2.5-7B\n")
    (run,) = _linted(project).runs
    assert (run.framework, run.plan.batch.micro) == ("acme", 4)


def test_a_broken_profile_is_an_error_by_name_and_the_lint_goes_on(project: Path) -> None:
    folder = project / ".oomlint" / "profiles"
    (folder / "acme.toml").write_text(ACME)
    (folder / "broken.toml").write_text(ACME.replace("script.tuning ==", "script.tunning =="))
    (folder / "notes.md").write_text("no profile")
    result = oomlint("check", "--output-format", "concise")
    assert result.exit_code == 3
    assert (
        ".oomlint/profiles/broken.toml: error: a profile is left out: broken.toml: Acme's train.py: "
        "derive.hf.use_peft: there is no field script.tunning"
    ) in result.output.replace("\\", "/")
    assert len(_linted(project).runs) == 1
    listed = oomlint("plugins")
    assert listed.exit_code == 3
    assert f"{folder}: 1 profile\n" in listed.stdout


def test_an_answer_is_not_kept_beyond_a_change_of_a_profile(project: Path) -> None:
    def answer() -> str:
        return oomlint("check", "--output-format", "json").stdout

    file = project / ".oomlint" / "profiles" / "acme.toml"
    assert json.loads(answer())["runs"] == []
    file.write_text(ACME)
    (run,) = json.loads(answer())["runs"]
    file.write_text(ACME.replace("default = 512", "default = 4096"))
    assert json.loads(answer())["runs"] != [run]


def test_the_framework_of_a_profile_can_be_asked_for(project: Path) -> None:
    (project / ".oomlint" / "profiles" / "acme.toml").write_text(ACME)
    assert oomlint("check", "--framework", "acme").exit_code in (0, 1)
    assert oomlint("check", "--framework", "fastchat").exit_code == 0
    wrong = oomlint("check", "--framework", "acne")
    assert wrong.exit_code == 2
    assert "did you mean acme?" in wrong.stderr


# -- what oomlint itself knows of projects ---------------------------------------------------------

_OWN_FOLDERS = {
    folder.name
    for folder in (LINT / "dialects").iterdir()
    if folder.is_dir() and folder.name not in ("profiles", "common", "machine", "keys")
}
# Names of projects that are names of methods, libraries or families of models as well.
_FRAMEWORKS = set(get_args(Framework))
_NO_PROJECTS_ALONE = {
    "QLoRA",
    "Qwen",
    "transformers",
    "LLaVA",
    "InternVL",
    "Qwen-VL",
    "MiniCPM-V",
    "ChatGLM",
    "GLM-4",
}


def _generic() -> Iterator[Path]:
    for file in sorted(LINT.rglob("*.py")):
        parts = file.relative_to(LINT).parts
        is_own = parts[0] == "dialects" and parts[1] in _OWN_FOLDERS
        if not is_own and parts != ("dialects", "profiles", "index.py"):
            yield file


def _projects() -> set[str]:
    """Names of projects, of their repositories, and of folders that their scripts stand in."""
    names: set[str] = set()
    for file in FILES:
        profile = shipped(file.stem)
        names |= {profile.repository.removeprefix("https://github.com/"), profile.project}
        names |= {*profile.ignored, *(script.framework for script in profile.scripts)} - _FRAMEWORKS
        paths = (path for s in profile.scripts for match in s.match for path in match.paths)
        names |= {f"{path.rpartition('/')[0]}/" for path in paths if "/" in path}
    # A project that is a framework of its own (align-anything) is named where users name frameworks.
    return {name.lower() for name in names - _NO_PROJECTS_ALONE - _FRAMEWORKS if name}


@pytest.mark.slow
def test_generic_code_names_no_project() -> None:
    projects = _projects()
    assert {"fastchat", "open_instruct", "llava/train/", "thudm/chatglm2-6b"} <= projects
    texts = {file: file.read_text("utf-8").lower() for file in _generic()}
    found = [
        f"{file.relative_to(LINT)}: {name}"
        for file, text in texts.items()
        for name in projects
        if name in text and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
    ]
    assert not found


def test_generic_code_has_no_option_of_one_project() -> None:
    """What only a fingerprint tells stands in no text of the code."""
    told = {"mm_tunable_parts", "tune_mm_mlp_adapter", "prompt_column", "num_padding_at_beginning"}
    for file in _generic():
        with tokenize.open(file) as lines:
            texts = {
                node.value
                for node in ast.walk(ast.parse(lines.read()))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
        assert not told & texts, file


def test_a_profile_says_whose_parser_takes_values_of_any_type(project: Path) -> None:
    wrong = LINE.replace("\n", " --micro 0.5\n")
    (project / "run.sh").write_text(wrong)
    profile = project / ".oomlint" / "profiles" / "acme.toml"
    for checks, refused in (("", True), ("checks = false\n", False)):
        profile.write_text(ACME.replace("[scripts.train]\n", f"[scripts.train]\n{checks}"))
        (run,) = _linted(project).runs
        assert bool(run.wrong) is refused
        # Nobody knows what the script makes of half a sample.
        assert run.level(f.batch.micro) is Level.UNREAD
