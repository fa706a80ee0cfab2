"""Finding, reading and checking the settings; what they do to a lint."""

import json

import pytest
from jsonschema import Draft202012Validator
from tests.configs import AXOLOTL

from oomlint.cli import main
from oomlint.config.settings import Settings, discover, load
from oomlint.errors import UsageError
from oomlint_schemas import NAMES, load as load_schema, path_of
from oomlint_schemas.generate import schemas, text_of


def test_the_nearest_file_counts_and_files_are_not_mixed(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "oomlint.toml").write_text('hardware = "T4"\nmargin = 0.5\n')
    (tmp_path / "a" / "pyproject.toml").write_text('[tool.oomlint]\nhardware = "L4"\n')
    found = discover(inner)
    assert found.file == tmp_path / "a" / "pyproject.toml"
    assert (found.settings.hardware, found.settings.margin) == ("L4", 0.85)
    assert discover(tmp_path).settings.margin == 0.5


def test_a_pyproject_without_our_table_is_passed_over(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "oomlint.toml").write_text("margin = 0.5\n")
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'oomlint-user'\n")
    assert discover(tmp_path / "a").settings.margin == 0.5
    with pytest.raises(UsageError, match=r"no \[tool\.oomlint\]"):
        load(tmp_path / "a" / "pyproject.toml")


def test_oomlint_toml_comes_before_the_others(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.oomlint]\nmargin = 0.1\n")
    (tmp_path / ".oomlint.toml").write_text("margin = 0.2\n")
    assert discover(tmp_path).settings.margin == 0.2
    (tmp_path / "oomlint.toml").write_text("margin = 0.3\n")
    assert discover(tmp_path).settings.margin == 0.3


def test_every_key_is_read(tmp_path):
    (tmp_path / "oomlint.toml").write_text(
        '\ufeffhardware = "big"\nhost-memory = "1TiB"\ngpus = "2x8"\nframework = "trl"\n'
        'project-root = "."\nselect = ["OOM1"]\nextend-select = ["OOM8"]\nignore = ["OOM9"]\n'
        'exclude = ["old"]\nfail-level = "error"\nmargin = 1\noutput-format = "concise"\n'
        '[per-file-ignores]\n"*.json" = ["OOM801"]\n'
        '[profiles.big]\nhardware = "8xH100-80GB"\n'
    )
    settings = discover(tmp_path).settings
    assert settings.select == ("OOM1",)
    assert settings.profiles["big"].hardware == "8xH100-80GB"
    assert settings.per_file_ignores == {"*.json": ("OOM801",)}
    assert (settings.fail_level, settings.gpus, settings.margin) == ("error", "2x8", 1.0)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("oomlint.toml", "\nhardwear = 'T4'\n", r"oomlint\.toml:2: .*did you mean hardware\?"),
        ("oomlint.toml", "[profile.x]\nhardware = 'T4'\n", r":1: .*did you mean profiles\?"),
        ("oomlint.toml", "[profiles.x]\nhardware = 'T4'\nram = 1\n", r":3: profiles\.x\.ram"),
        ("oomlint.toml", "[profiles.x]\n", r":1: profiles\.x"),
        ("oomlint.toml", "fail-level = 'fatal'\n", r":1: fail-level: should be one of error, "),
        ("oomlint.toml", "select = 'OOM1'\n", r":1: select: "),
        ("oomlint.toml", "margin = 0\n", r":1: margin should be above 0"),
        ("oomlint.toml", "margin = true\n", r":1: margin: "),
        ("oomlint.toml", "fail_level = 'error'\n", r":1: .*did you mean fail-level\?"),
        ("pyproject.toml", "[tool.oomlint]\nmargn = 1\n", r"pyproject\.toml:2: .*margin\?"),
        ("pyproject.toml", "[tool]\noomlint = 3\n", "should be a table"),
        ("oomlint.toml", "hardware = \n", "not valid TOML"),
        ("oomlint.toml", "a = " + "[" * 100_000, "not valid TOML"),
    ],
)
def test_errors_name_file_line_and_key(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        discover(tmp_path)


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "oomlint.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        discover(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "path", "excluded"),
    [
        ("old", "old/a.yaml", True),
        ("old", "x/old/a.yaml", True),
        ("old", "older/a.yaml", False),
        ("*.tmpl.yaml", "x/a.tmpl.yaml", True),
        ("x/*.yaml", "x/a.yaml", True),
        ("x/*.yaml", "y/x/a.yaml", False),
        ("x/old/", "x/old/deep/a.yaml", True),
    ],
)
def test_exclude(tmp_path, pattern, path, excluded):
    (tmp_path / "oomlint.toml").write_text(f'exclude = ["{pattern}"]\n')
    assert discover(tmp_path).excludes(tmp_path / path) is excluded


def run(capsysbinary, *arguments):
    status = main([*arguments])
    return status, capsysbinary.readouterr().out.decode()


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "run.yaml").write_text(AXOLOTL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_settings_decide_about_a_lint(project, capsysbinary):
    (project / "oomlint.toml").write_text(
        'hardware = "mine"\nselect = ["OOM101"]\noutput-format = "concise"\n'
        '[profiles.mine]\nhardware = "H100-80GB"\nhost-memory = "64GiB"\n'
    )
    status, out = run(capsysbinary)
    assert status == 1
    assert out.count("\n") == 1
    assert ": error OOM101" in out
    _, out = run(capsysbinary, "--output-format", "json", "--hardware", "B200-180GB")
    assert json.loads(out)["runs"][0]["hardware"]["gpu"] == "B200-180GB"
    _, out = run(capsysbinary, "--output-format", "json")
    hardware = json.loads(out)["runs"][0]["hardware"]
    assert (hardware["name"], hardware["host_bytes_per_node"]) == ("mine", 64 * 2**30)
    _, out = run(capsysbinary, "--isolated", "--output-format", "json")
    assert json.loads(out)["runs"][0]["hardware"] is None


@pytest.mark.parametrize(
    ("pattern", "cwd", "silent"),
    [
        ("run.yaml", ".", True),
        ("sub/*.yaml", ".", True),
        ("sub/*.yaml", "sub", True),
        ("*/run.yaml", "sub", True),
        ("**/run.yaml", "sub", True),
        ("other/*.yaml", ".", False),
        ("other/*.yaml", "sub", False),
    ],
)
def test_per_file_ignores_are_relative_to_the_settings(
    project, monkeypatch, capsysbinary, pattern, cwd, silent
):
    (project / "oomlint.toml").write_text(
        f'hardware = "H100-80GB"\n[per-file-ignores]\n"{pattern}" = ["OOM"]\n'
    )
    monkeypatch.chdir(project / cwd)
    status, _ = run(capsysbinary, str(project / "sub" / "run.yaml"))
    assert status == (0 if silent else 1)


def test_excluded_files_are_left_out_even_if_named(project, capsysbinary):
    (project / "oomlint.toml").write_text('hardware = "T4"\nexclude = ["sub"]\n')
    status, out = run(capsysbinary, "sub/run.yaml")
    assert (status, "no training run found" in out) == (0, True)


def test_folders_with_settings_of_their_own(project, capsysbinary):
    (project / "oomlint.toml").write_text('hardware = "H100-80GB"\n')
    (project / "own").mkdir()
    (project / "own" / "oomlint.toml").write_text('hardware = "B300"\n')
    (project / "own" / "run.yaml").write_text(AXOLOTL)
    _, out = run(capsysbinary, "--output-format", "json")
    data = json.loads(out)
    gpus = {r["name"]: r["hardware"]["gpu"] for r in data["runs"]}
    assert gpus == {"own/run.yaml": "B300-288GB", "sub/run.yaml": "H100-80GB"}
    assert data["summary"]["runs"] == 2


def test_broken_settings_are_a_usage_error(project, capsysbinary):
    (project / "oomlint.toml").write_text("marginn = 1\n")
    assert main(["sub"]) == 2
    assert b"did you mean margin?" in capsysbinary.readouterr().err


@pytest.fixture(scope="module")
def generated():
    return schemas()


@pytest.mark.parametrize("name", NAMES)
def test_schema_files_are_what_the_code_says(name, generated):
    assert path_of(name).read_text("utf-8") == text_of(generated[name]), (
        "run `python -m oomlint_schemas`"
    )
    Draft202012Validator.check_schema(load_schema(name))


def test_the_schema_of_the_settings_agrees_with_the_reader():
    validator = Draft202012Validator(load_schema("oomlint"))
    assert validator.is_valid({"select": ["OOM1"], "profiles": {"x": {"hardware": "T4"}}})
    for wrong in ({"selct": []}, {"margin": 2}, {"profiles": {"x": {}}}, {"fail-level": "x"}):
        assert not validator.is_valid(wrong)
    assert set(load_schema("oomlint")["properties"]) == set(Settings.__struct_encode_fields__)
