"""``--baseline``: what is known is not reported, what is new is, and the file keeps up."""

import json

import pytest

from oomlint.linting.baseline import DEFAULT_NAME, fingerprint

HARDWARE = ("--hardware", "1xH100-80GB")


@pytest.fixture
def check(oomlint):
    def run(*arguments):
        options = ("--output-format", "concise", "--fail-level", "info")
        return oomlint("check", *HARDWARE, *options, *arguments)

    return run


def listed(file):
    return [(e["path"], e["name"], e["count"]) for e in json.loads(file.read_text())["findings"]]


def test_what_was_written_is_not_reported_and_what_is_new_is(check, axolotl, project):
    before = check()
    assert before.exit_code == 1
    wrote = check("--baseline", "write")
    assert (wrote.exit_code, wrote.stdout) == (0, "")
    number = sum(" OOM" in line for line in before.stdout.splitlines())
    assert wrote.stderr == f"wrote {number} findings to {DEFAULT_NAME}\n"

    after = check("--baseline", DEFAULT_NAME)
    assert (after.exit_code, after.stdout) == (0, "")
    axolotl.write_text(axolotl.read_text() + "wramup_steps: 10\n")
    new = check("--baseline", DEFAULT_NAME)
    assert new.exit_code == 1
    assert [line.split()[3] for line in new.stdout.splitlines()] == ["unknown-key-ignored"]


def test_lines_and_numbers_may_change(check, axolotl, project):
    check("--baseline", "write=known.json")
    text = axolotl.read_text()
    axolotl.write_text("# a comment\n\n" + text.replace("4096", "4352"))
    result = check("--baseline", "known.json")
    assert (result.exit_code, result.stdout) == (0, "")


def test_of_findings_that_look_alike_only_so_many_are_known(check, project):
    one = "base_model: x/Llama-3.2-1B\nadapter: lora\nsequence_len: 64\nlora_r: 8\n"
    file = project / "a.yaml"
    file.write_text(one + "# oomlint: ignore[no-such-rule]\nmicro_batch_size: 1\n")
    options = ("--select", "unused-suppression")
    assert check(*options).exit_code == 1
    check(*options, "--baseline", "write")
    assert check(*options, "--baseline", DEFAULT_NAME).exit_code == 0
    file.write_text(file.read_text() + "# oomlint: ignore[no-such-rule]\nlora_alpha: 16\n")
    result = check(*options, "--baseline", DEFAULT_NAME)
    assert len(result.stdout.splitlines()) == 1


def test_the_file_is_sorted_and_has_a_finding_a_line(check, axolotl, project):
    (project / "b.yaml").write_text(axolotl.read_text())
    check("--baseline", "write")
    file = project / DEFAULT_NAME
    entries = json.loads(file.read_text())["findings"]
    assert [(e["path"], e["code"]) for e in entries] == sorted(
        (e["path"], e["code"]) for e in entries
    )
    lines = [line for line in file.read_text().splitlines() if '"fingerprint"' in line]
    assert len(lines) == len(entries)
    text = file.read_text()
    check("--baseline", "write")
    assert file.read_text() == text, "writing again changes nothing"


def test_prune_drops_what_is_gone_and_adds_nothing(check, axolotl, project):
    other = project / "other.yaml"
    other.write_text(axolotl.read_text())
    check("--baseline", "write")
    file = project / DEFAULT_NAME
    before = listed(file)
    axolotl.write_text(axolotl.read_text() + "gradient_checkpointing: true\nwramup_steps: 10\n")
    result = check("--baseline", "prune", "axolotl.yaml")
    assert result.exit_code == 1
    assert "unknown-key-ignored" in result.stdout, "what is new is reported"
    after = listed(file)
    gone = [entry for entry in before if entry not in after]
    assert ("axolotl.yaml", "no-gradient-checkpointing", 1) in gone
    assert all(path == "axolotl.yaml" for path, _, _ in gone)
    assert not [entry for entry in after if entry not in before]
    assert f"dropped {len(gone)} finding" in result.stderr


def test_prune_forgets_files_that_are_no_more(check, axolotl, project):
    other = project / "other.yaml"
    other.write_text(axolotl.read_text())
    check("--baseline", "write")
    other.unlink()
    check("--baseline", "prune", "axolotl.yaml")
    assert {path for path, _, _ in listed(project / DEFAULT_NAME)} == {"axolotl.yaml"}


def test_writing_for_some_files_keeps_what_is_known_of_others(check, axolotl, project):
    other = project / "other.yaml"
    other.write_text(axolotl.read_text())
    check("--baseline", "write", "other.yaml")
    check("--baseline", "write", "axolotl.yaml")
    assert check("--baseline", DEFAULT_NAME).stdout == ""


def test_the_folder_it_is_called_from_does_not_matter(
    check, oomlint, axolotl, project, monkeypatch
):
    folder = project / "configs"
    folder.mkdir()
    axolotl.rename(folder / "axolotl.yaml")
    check("--baseline", "write")
    monkeypatch.chdir(folder)
    assert check("--baseline", f"../{DEFAULT_NAME}").stdout == ""


def test_the_settings_may_name_it(check, axolotl, project):
    (project / "oomlint.toml").write_text('baseline = "known.json"\n')
    missing = check()
    assert missing.exit_code == 2
    assert "--baseline write=" in missing.stderr
    check("--baseline", "write")
    assert (project / "known.json").exists()
    assert check().stdout == ""
    assert check("--isolated").stdout


def test_a_json_report_serves_as_one(check, oomlint, axolotl, project):
    oomlint("check", *HARDWARE, "--output-format", "json", "--output-file", "main.json")
    assert check("--baseline", "main.json").stdout == ""
    assert check("--baseline", "prune=main.json").exit_code == 2


def test_what_is_known_is_not_fixed(check, axolotl, project):
    check("--baseline", "write")
    text = axolotl.read_text()
    check("--fix", "--unsafe-fixes", "--baseline", DEFAULT_NAME)
    assert axolotl.read_text() == text
    check("--fix", "--unsafe-fixes")
    assert axolotl.read_text() != text


def test_people_are_told_how_much_is_kept_back(oomlint, axolotl, project):
    oomlint("check", *HARDWARE, "--baseline", "write")
    number = len(listed(project / DEFAULT_NAME))
    said = oomlint("check", *HARDWARE, "--baseline", DEFAULT_NAME).stderr
    assert said == f"{number} findings known from the baseline\n"
    axolotl.write_text(axolotl.read_text() + "gradient_checkpointing: true\n")
    said = oomlint("check", *HARDWARE, "--baseline", DEFAULT_NAME).stderr
    assert "listed but not found: --baseline prune" in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is no baseline"),
        ('{"version": 2, "findings": []}', "is of version 2"),
        ('{"version": 1, "findings": [{"path": 1}]}', "is no baseline"),
        (
            '{"version": 1, "findings": [\n {"path": 1}]}',
            "b.json:2:3: findings[0].path: should be a text, not 1",
        ),
        ('{"version": 1, "findings": 3}', "is no baseline"),
    ],
)
def test_a_file_that_is_none(check, axolotl, project, text, says):
    (project / "b.json").write_text(text)
    result = check("--baseline", "b.json")
    assert result.exit_code == 2
    assert says in result.stderr


def test_writing_excludes_fixing(check, axolotl):
    assert check("--baseline", "write", "--fix").exit_code == 2
    assert check("--baseline", "missing.json").exit_code == 2


def test_fingerprints():
    first = fingerprint("OOM101", "a.yaml", "needs 88.7 GiB of 79.1 GiB (12 layers)")
    assert first == fingerprint("OOM101", "a.yaml", "needs 90 GiB of 79.1 GiB (32 layers)")
    assert first != fingerprint("OOM101", "b.yaml", "needs 88.7 GiB of 79.1 GiB (12 layers)")
    models = [fingerprint("OOM903", "a", f"Llama-2-{n}b is unknown") for n in (7, 13)]
    assert models[0] != models[1], "a number inside a name tells things apart"
