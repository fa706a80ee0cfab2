"""Names, reading and finding of files, whatever the file system holds."""

import os
from pathlib import Path

import pytest

from oomlint.documents.base import Mapping
from oomlint.errors import EncodingError, FileError, ParseError, ReadError
from oomlint.files.dependencies import recording, still_holds
from oomlint.files.disk import DISK, MAX_FILE_BYTES, walk
from oomlint.files.workspace import Workspace


@pytest.fixture
def project(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "run.yaml").write_text("a: 1\n")
    (tmp_path / "ds.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("./configs/../ds.json", "ds.json"),
        ("configs//run.yaml", "configs/run.yaml"),
        ("../elsewhere.yaml", "/home/me/elsewhere.yaml"),
        ("/home/me/project2/a.yaml", "/home/me/project2/a.yaml"),
        ("/home/me/project/a.yaml", "a.yaml"),
    ],
)
def test_display_paths(tmp_path, path, shown):
    from pathlib import Path

    assert Workspace(Path("/home/me/project")).name(path) == shown


def test_display_path_below_the_root_folder():
    from pathlib import Path

    assert Workspace(Path("/")).name("/a/b.yaml") == "a/b.yaml"


def test_overlay_stands_for_the_disk_and_documents_are_kept(project):
    first = Workspace(project)
    document = first.document("configs/run.yaml")
    second = first.with_overlay({"ds.json": b'{"a": 1}'})
    assert second.document("configs/run.yaml") is document
    assert first.read("ds.json") == b"{}"
    assert second.read("ds.json") == b'{"a": 1}'
    assert second.exists("ds.json")
    assert not second.exists("none.json")


def test_overlay_file_need_not_exist():
    from pathlib import Path

    workspace = Workspace(Path("/nowhere"), {"a/new.yaml": b"x: 1\n"})
    assert workspace.resolve("a/new.yaml", "run.yaml") == "a/new.yaml"
    assert isinstance(workspace.document("a/new.yaml").roots[0], Mapping)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f: None, "No such file"),
        (lambda f: f.mkdir(), "not a regular file"),
        (lambda f: os.mkfifo(f), "not a regular file"),
        (lambda f: f.write_bytes(b"#" * (MAX_FILE_BYTES + 1)), "reads configs up to 8 MiB"),
    ],
)
def test_what_cannot_be_read_is_a_read_error(tmp_path, make, words):
    make(tmp_path / "x.yaml")
    with pytest.raises(ReadError, match=words):
        Workspace(tmp_path).read("x.yaml")
    assert Workspace(tmp_path).read_or_none("x.yaml") is None


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"a: \xff\n", EncodingError),
        (b"\x00\x01\x02", ParseError),
        (b"a: [", ParseError),
        (b"[" * 5000, ParseError),
        (b"a:\n" + b"".join(b" " * i + b"a:\n" for i in range(2000)), ParseError),
    ],
)
def test_broken_files_raise_the_same_error_again(tmp_path, data, error):
    (tmp_path / "x.yaml").write_bytes(data)
    workspace = Workspace(tmp_path)
    for _ in range(2):
        with pytest.raises(error) as caught:
            workspace.document("x.yaml")
        assert caught.value.path == "x.yaml"


@pytest.mark.parametrize("name", ["x.yaml", "x.json", "x.py", "x.sh"])
@pytest.mark.parametrize(
    "data",
    [b"{" * 3000, b"(" * 3000, b"\x00" * 50, b"&a [*a]", b'{"a": ' + b"9" * 6000 + b"}", b"\xef\xbb\xbf"],
)  # fmt: skip
def test_odd_bytes_raise_file_errors_only(name, data):
    from pathlib import Path

    workspace = Workspace(Path("/nowhere"), {name: data})
    error = None
    try:
        workspace.document(name)
    except FileError as caught:
        error = caught
    assert error is None or error.kind != "internal", error


def test_reader_that_fails_is_an_internal_error(tmp_path, monkeypatch):
    monkeypatch.setattr("oomlint.files.workspace.parse", lambda *_: 1 / 0)
    (tmp_path / "x.yaml").write_text("a: 1\n")
    with pytest.raises(FileError, match="ZeroDivisionError") as caught:
        Workspace(tmp_path).document("x.yaml")
    assert caught.value.kind == "internal"


def test_references_are_sought_from_the_root_then_upwards(project):
    (project / ".git").mkdir()
    (project / "configs" / "ds.json").write_text("{}")
    workspace = Workspace(project / "configs", project_root=project)
    assert workspace.resolve("ds.json", "run.yaml") == str(project / "ds.json")
    assert Workspace(project / "configs").resolve("ds.json", "run.yaml") == "ds.json"
    assert Workspace(project).resolve("run.yaml", "configs/other.yaml") == "configs/run.yaml"
    assert workspace.resolve(str(project / "ds.json"), "run.yaml") == str(project / "ds.json")


@pytest.mark.parametrize("reference", ["", "  ", "a\0b", "x" * 5000, "configs", "no/such.json"])
def test_references_that_lead_nowhere(project, reference):
    assert Workspace(project).resolve(reference, "configs/run.yaml") is None


def test_an_absolute_path_into_the_project_is_looked_for_there_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "run.sh").touch()
    workspace = Workspace(tmp_path.parent, named=(tmp_path,))
    run = f"{tmp_path.name}/run.sh"
    assert workspace.resolve("/workspace/house/train.py", run) == f"{tmp_path.name}/train.py"
    assert workspace.resolve(str(tmp_path / "fastchat/train/train.py"), run) is None


def test_walk_takes_suffixes_in_order_and_leaves_tool_folders_and_loops(project):
    (project / "configs" / "loop").symlink_to(project)
    (project / ".git").mkdir()
    (project / ".git" / "x.yaml").write_text("")
    (project / "a.yaml").write_text("")
    (project / "a.txt").write_text("")
    found = [p.relative_to(project).as_posix() for p in walk(project, (".yaml", ".json"))]
    assert found == ["a.yaml", "ds.json", "configs/run.yaml"]


def test_a_check_looks_at_a_folder_once_and_notes_it_each_time(tmp_path: Path) -> None:
    (tmp_path / "configs" / "deep").mkdir(parents=True)
    (tmp_path / "configs" / "loop").symlink_to(tmp_path)
    for name in ("a.yaml", "configs/run.yaml", "configs/deep/ds.json"):
        (tmp_path / name).write_text("")
    disk = DISK.at_a_glance()
    with recording() as plain:
        found = list(DISK.walk(tmp_path, (".yaml", ".json")))
    with recording() as first:
        assert list(disk.walk(tmp_path, (".yaml", ".json"))) == found
    (tmp_path / "configs" / "late.yaml").write_text("")
    with recording() as second:
        assert list(disk.walk(tmp_path, (".yaml", ".json"))) == found
    assert plain == first == second
    assert not still_holds(second)
    assert list(disk.walk(tmp_path, (".yaml",), 0)) == [str(tmp_path / "a.yaml")]
    assert len(list(DISK.walk(tmp_path, (".yaml", ".json")))) == 1 + len(found)


def test_a_check_that_cannot_look_into_a_folder_finds_nothing_there(tmp_path: Path) -> None:
    disk = DISK.at_a_glance()
    assert list(disk.walk(tmp_path / "absent", (".yaml",))) == []
    assert disk.size(str(tmp_path / "absent")) is None
    (tmp_path / "here.yaml").write_text("a: 1\n")
    assert disk.size(str(tmp_path / "here.yaml")) == 5


def _recorded(run: Path) -> None:
    (run / ".hydra").mkdir(parents=True)
    for name in ("config.yaml", "hydra.yaml", "overrides.yaml"):
        (run / ".hydra" / name).write_text("")


def _walked(folder: Path) -> list[str]:
    return [p.relative_to(folder).as_posix() for p in walk(folder, (".yaml",))]


def test_walk_leaves_what_hydra_recorded_of_past_runs(tmp_path: Path) -> None:
    _recorded(tmp_path / "outputs" / "2025-07-17" / "15-30-34")
    sweep = tmp_path / "multirun" / "2025-07-17" / "15-30-34"
    _recorded(sweep / "0")
    (sweep / "multirun.yaml").write_text("")
    (tmp_path / "multirun.yaml").write_text("")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("")
    (tmp_path / "odd" / ".hydra").mkdir(parents=True)
    (tmp_path / "odd" / ".hydra" / "config.yaml").write_text("")
    (tmp_path / "{{cookiecutter.name}}").mkdir()
    (tmp_path / "{{cookiecutter.name}}" / "run.yaml").write_text("")
    (tmp_path / "run_{{ name }}.yaml").write_text("")
    assert _walked(tmp_path) == ["multirun.yaml", "conf/config.yaml", "odd/.hydra/config.yaml"]


def test_walk_leaves_what_setuptools_built_of_a_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    for folder in ("build/lib/conf", "build/lib.linux-x86_64-cpython-312", "build/own", "lib"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "run.yaml").write_text("")
    assert _walked(tmp_path) == ["build/own/run.yaml", "lib/run.yaml"]
    assert _walked(tmp_path / "build") == [
        "lib/conf/run.yaml", "lib.linux-x86_64-cpython-312/run.yaml", "own/run.yaml",
    ]  # fmt: skip
    assert _walked(tmp_path / "build" / "lib") == ["conf/run.yaml"]


def test_walk_takes_a_folder_called_build_of_no_package_for_the_projects_own(
    tmp_path: Path,
) -> None:
    (tmp_path / "build" / "lib").mkdir(parents=True)
    (tmp_path / "build" / "lib" / "run.yaml").write_text("")
    assert _walked(tmp_path) == ["build/lib/run.yaml"]


def test_walk_looks_into_a_record_of_hydra_that_somebody_names(tmp_path: Path) -> None:
    _recorded(tmp_path)
    assert _walked(tmp_path / ".hydra") == ["config.yaml", "hydra.yaml", "overrides.yaml"]


def test_a_folder_that_the_user_names_is_a_project(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    project = tmp_path / "there"
    (project / "examples").mkdir(parents=True)
    (project / "requirements.txt").write_text("trl==0.15.2\n")
    file = str(project / "examples" / "sft.yaml")
    assert Workspace(tmp_path / "here").versions(file) == {}
    named = Workspace(tmp_path / "here", named=(project,))
    assert [version for version, _ in named.versions(file).values()] == ["0.15.2"]
    assert named.project_around(file) == project
