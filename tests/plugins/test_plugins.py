"""Rules and dialects of installed packages and of folders; consent; what goes wrong with them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.command import oomlint

from oomlint import plugins
from oomlint.dialects.profiles import known
from oomlint.files import entry_points

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugin"

CONFIG = """\
base_model: meta-llama/Llama-3.2-1B
datasets:
  - path: tatsu-lab/alpaca
sequence_len: 512
micro_batch_size: 1
gradient_checkpointing: true
bf16: true
output_dir: /dev/shm/out
"""

RULE = """\
from oomlint import Rule, Severity
class {cls}(Rule):
    code, name, summary = {code!r}, {name!r}, 'speaks always'
    def check(self, run):
        {body}
"""
SPEAKS = "yield self.finding(run, Severity.WARNING, 'hello', at='batch.micro')"


def rule(code="ACM901", name="acme-hello", body=SPEAKS):
    return RULE.format(
        cls="".join(w.title() for w in name.split("-")), code=code, name=name, body=body
    )


CACHES = (
    known.usual,
    known.of_packages,
    entry_points._declarations,
    entry_points.entry_points,
    plugins._rules,
    plugins._dialects,
)


class Machine:
    """A working directory, a user's home, and packages installed beside oomlint."""

    def __init__(self, folder):
        self.folder_of_all = folder
        self.site = folder / "site"
        self.home = folder / "home"
        self.project = folder / "project"
        for path in (self.site, self.home, self.project):
            path.mkdir()

    def install(self, name, entry_points, files):
        info = self.site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = []
        for group, points in entry_points.items():
            lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        for file, text in files.items():
            path = self.site / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def folder(self, name, files):
        """A folder of rules in the project, named by its settings."""
        for file, text in files.items():
            path = self.project / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.project / "oomlint.toml").write_text(f'plugins = ["{name}"]\n')

    def __call__(self, *arguments):
        """``oomlint ARGUMENTS`` in the project, as a process that starts now would run it."""
        for cache in CACHES:
            cache.cache_clear()
        loaded = set(sys.modules)
        result = oomlint(*arguments)
        for name in set(sys.modules) - loaded:
            if str(self.folder_of_all) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
        return result

    def findings(self, *arguments):
        result = self("check", "--output-format", "json", *arguments)
        assert result.stdout, result.stderr
        return json.loads(result.stdout)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    machine = Machine(tmp_path)
    (machine.project / "train.yaml").write_text(CONFIG)
    monkeypatch.chdir(machine.project)
    monkeypatch.syspath_prepend(str(machine.site))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in ("HOME", "USERPROFILE", "APPDATA"):
        monkeypatch.setenv(name, str(machine.home))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield machine
    for cache in CACHES:
        cache.cache_clear()


def names(report):
    return {finding["name"] for finding in report["findings"]}


# -- installed packages ------------------------------------------------------------------


@pytest.fixture
def with_example(machine):
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
    machine.install(project["name"], project["entry-points"], {})
    shutil.copytree(EXAMPLE / "acme_oomlint", machine.site / "acme_oomlint")
    return machine


def test_the_example_speaks_and_is_fixed_beside_ours(with_example):
    report = with_example.findings("--select", "ACM")
    (finding,) = report["findings"]
    assert (finding["code"], finding["name"]) == ("ACM501", "checkpoints-in-shared-memory")
    assert finding["range"]["start"]["line"] == 8
    assert finding["url"].endswith("/docs/plugins.md")
    assert report["errors"] == []
    with_example("--fix", "--unsafe-fixes", "--select", "ACM5")
    fixed = (with_example.project / "train.yaml").read_text()
    assert fixed == CONFIG.replace("/dev/shm/out", "outputs/out")


def test_the_example_passes_the_harness(with_example):
    for package in ("acme_oomlint", str(EXAMPLE / "acme_oomlint")):
        result = with_example("test-rules", package)
        assert result.exit_code == 0, result.stdout + result.stderr
        assert result.stdout == "passed  ACM501  checkpoints-in-shared-memory\n"


def test_rules_and_explain_know_the_example(with_example):
    listed = with_example("rules").stdout
    assert "checkpoints are written to a folder that lives in RAM  (of acme-oomlint 1.0)" in listed
    rules = json.loads(with_example("rules", "--output-format", "json").stdout)
    origins = {rule["name"]: rule["origin"] for rule in rules}
    assert origins["checkpoints-in-shared-memory"] == "acme-oomlint 1.0"
    assert origins["zero-stage-too-low"] == "oomlint"
    assert "/dev/shm" in with_example("explain", "ACM501").stdout
    assert with_example("plugins").stdout == "acme-oomlint 1.0: 1 rule\n"


def test_its_findings_can_be_suppressed(with_example):
    file = with_example.project / "train.yaml"
    file.write_text(CONFIG.replace("/out\n", "/out # oomlint: ignore[ACM501] small\n"))
    assert (
        names(with_example.findings()) & {"checkpoints-in-shared-memory", "unused-suppression"}
        == set()
    )
    assert "ACM501" not in with_example("--ignore", "ACM").stdout


PROFILE = """
project = "Acme"
repository = "https://github.com/acme/tuner"
read = 2026-11-22
source = "acme train.py"

[scripts.train]
match = [{ stems = ["acme_train"] }]
options = { base = { field = "model.id" }, length = { field = "seq.max_len", kind = "length", default = 64 } }
defaults = { "batch.micro" = 3 }
"""


def test_a_package_brings_profiles(machine):
    points = {"oomlint.profiles": {"a": "acme_profiles"}}
    files = {"acme_profiles/__init__.py": "", "acme_profiles/acme.toml": PROFILE}
    machine.install("acme", points, files)
    script = machine.project / "train.sh"
    script.write_text("python acme_train.py --base meta-llama/Llama-2-7b-hf --length 128\n")
    assert "seq.max_len = 128  stated" in machine("why", "train.sh", "seq.max_len").stdout
    assert "acme train.py" in machine("why", "train.sh", "batch.micro").stdout
    assert machine("plugins").stdout == "acme 1.0: 1 profile\n"


def test_a_profile_that_is_broken_costs_nobody_the_rest(machine):
    points = {"oomlint.profiles": {"a": "acme_profiles"}}
    broken = PROFILE.replace("batch.micro", "batch.mirco")
    files = {"__init__.py": "", "a.toml": broken, "b.toml": PROFILE}
    machine.install("acme", points, {f"acme_profiles/{name}": files[name] for name in files})
    (error,) = machine.findings()["errors"]
    assert error["path"] == "acme 1.0"
    assert error["message"] == (
        "a profile is left out: a.toml: Acme's train.py: defaults: there is no field batch.mirco"
    )
    assert machine("plugins").stdout == "acme 1.0: 1 profile\n"


def test_a_package_that_cannot_be_imported_costs_nobody_the_rest(with_example):
    with_example.install(
        "broken-rules",
        {"oomlint.rules": {"b": "broken_rules"}},
        {"broken_rules.py": "import nowhere_to_be_found\n"},
    )
    report = with_example.findings()
    (error,) = report["errors"]
    assert error["path"] == "broken-rules 1.0"
    assert error["message"].endswith("(ModuleNotFoundError)")
    assert error["kind"] == "internal"
    assert "checkpoints-in-shared-memory" in names(report)
    result = with_example("--output-format", "concise")
    assert result.exit_code == 3
    assert result.stderr.count("broken-rules 1.0: error: the plug-in cannot be loaded") == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (rule("OOM301"), "OOM301 is taken by zero-stage-too-low (OOM301) of oomlint"),
        (
            rule(name="zero-stage-too-low"),
            "zero-stage-too-low is taken by zero-stage-too-low (OOM301)",
        ),
        (rule("A1"), "has a rule with the code 'A1'"),
        (rule(name="Not_Kebab"), "has a rule with the name 'Not_Kebab'"),
        (
            rule("ACM501"),
            "ACM501 is taken by checkpoints-in-shared-memory (ACM501) of acme-oomlint 1.0",
        ),
        ("from oomlint import Rule\nclass Bare(Rule):\n    pass\n", "has a rule Bare without code"),
        ("x = 1\n", "brings nothing through oomlint.rules (other)"),
        ("raise SystemExit\n", "cannot be loaded: no reason given (SystemExit)"),
    ],
)
def test_what_is_refused(with_example, text, says):
    with_example.install("other", {"oomlint.rules": {"o": "other"}}, {"other.py": text})
    report = with_example.findings()
    (error,) = report["errors"]
    assert error["path"] == "other 1.0"
    assert says in error["message"]
    assert "hello" not in {finding["message"] for finding in report["findings"]}
    assert "checkpoints-in-shared-memory" in names(report)


def test_a_rule_that_raises_is_an_error_of_its_plug_in(with_example):
    text = rule(body="raise KeyError('x')") + rule("ACM902", "acme-fine").partition("\n")[2]
    with_example.install("other", {"oomlint.rules": {"o": "other"}}, {"other.py": text})
    report = with_example.findings()
    (error,) = report["errors"]
    assert (
        error["message"]
        == "rule acme-hello of the plug-in other 1.0 failed: there is no 'x' (KeyError)"
    )
    assert {"acme-fine", "checkpoints-in-shared-memory"} <= names(report)


@pytest.mark.parametrize(
    ("value", "more"),
    [
        ("other:rules", "def rules():\n    yield AcmeHello\n"),
        ("other:AcmeHello", ""),
        ("other", "def rules():\n    return [AcmeHello]\nclass Helper(Rule):\n    pass\n"),
    ],
)
def test_what_an_entry_point_may_name(machine, value, more):
    machine.install("other", {"oomlint.rules": {"o": value}}, {"other.py": rule() + more})
    report = machine.findings("--select", "ACM")
    assert (names(report), report["errors"]) == ({"acme-hello"}, [])


def test_words_in_settings_may_name_rules_of_a_broken_plug_in(machine):
    machine.install("other", {"oomlint.rules": {"o": "other"}}, {"other.py": "1/0\n"})
    (machine.project / "oomlint.toml").write_text('ignore = ["acme-hello"]\n')
    result = machine("--output-format", "concise")
    assert result.exit_code == 3, "an error of the plug-in, not of the settings"
    assert "ZeroDivisionError" in result.stderr


# -- dialects ----------------------------------------------------------------------------

DIALECT = """\
from oomlint import Block, Claim, Dialect, Row, Table
from oomlint.documents.base import Mapping

TABLE = Table(
    "Acme config",
    (Row("acme.batch", "batch.micro"), Row("acme.model", "model.id")),
    section="training",
)

class Acme(Dialect):
    name = {name!r}
    markers = (b"acme:",)

    def recognise(self, document):
        {first}
        for root in document.roots:
            if isinstance(root, Mapping) and "acme" in root.entries:
                block = Block(document, root, TABLE, root.entries["acme"].key_span)
                yield Claim(self, "run", document, (block,))
"""


def install_dialect(machine, name="acme-trainer", first="pass"):
    text = DIALECT.format(name=name, first=first)
    machine.install("acme", {"oomlint.dialects": {"a": "acme_dialect"}}, {"acme_dialect.py": text})
    (machine.project / "acme.yaml").write_text(
        "acme:\n  model: meta-llama/Llama-3.2-1B\n  batch: 4\n"
    )


def test_a_dialect_of_a_package_reads_its_files(machine):
    install_dialect(machine)
    shown = machine("--show-files").stdout.splitlines()
    assert shown == ["acme.yaml\tacme-trainer", "train.yaml\taxolotl"]
    only = machine("--show-files", "--framework", "acme-trainer").stdout.splitlines()
    assert only[0] == "acme.yaml\tacme-trainer"
    near = machine("--framework", "acme-trainor")
    assert (near.exit_code, "did you mean acme-trainer?" in near.stderr) == (2, True)
    (machine.project / "oomlint.toml").write_text('framework = "acme-trainer"\n')
    assert machine("--show-files").stdout.splitlines()[0] == "acme.yaml\tacme-trainer"
    assert machine("plugins").stdout == "acme 1.0: 1 dialect\n"


def test_the_dialect_that_the_page_shows_reads_its_files(machine):
    page = (ROOT / "docs/plugins.md").read_text("utf-8")
    shown = next(text for text in page.split("```python\n")[1:] if "(Dialect)" in text)
    files = {"acme_dialect.py": shown.partition("```")[0]}
    machine.install("acme", {"oomlint.dialects": {"a": "acme_dialect:AcmeTrainer"}}, files)
    (machine.project / "acme.yaml").write_text("acme_model: meta-llama/Llama-3.2-1B\nlength: 64\n")
    report = machine.findings("--hardware", "1xT4-16GB", "acme.yaml")
    assert {run["framework"] for run in report["runs"]} == {"acme"}
    assert "gpu-memory-at-risk" in names(report)


def test_a_dialect_that_fails_costs_nobody_the_other_dialects(machine):
    install_dialect(machine, first="raise ValueError('odd')")
    (machine.project / "train.yaml").write_text(CONFIG + "# acme:\n")
    report = machine.findings("train.yaml")
    (error,) = report["errors"]
    assert error["message"] == "acme-trainer of the plug-in acme 1.0 failed: odd (ValueError)"
    assert [run["framework"] for run in report["runs"]] == ["axolotl"]


def test_a_dialect_whose_name_is_taken_is_left_out(machine):
    install_dialect(machine, name="axolotl")
    report = machine.findings()
    (error,) = report["errors"]
    assert (
        "has a dialect axolotl, which is left out: oomlint has one of that name" in error["message"]
    )
    assert [run["framework"] for run in report["runs"]] == ["axolotl"]


# -- folders and consent -----------------------------------------------------------------

TRACE = "import pathlib\npathlib.Path(__file__).with_name('trace').write_text('ran')\n"


def test_code_of_a_repository_does_not_run_unasked(machine):
    machine.folder("tools/rules", {"hello.py": TRACE + rule()})
    result = machine("--output-format", "concise")
    assert result.exit_code == 3
    assert (
        "tools/rules: error: the plug-in is left out: it is named by the settings" in result.stderr
    )
    assert f"`oomlint plugins allow {machine.project / 'tools/rules'}`" in result.stderr
    for command in ("rules", "config", "plugins", "estimate"):
        machine(command, *(["."] if command == "estimate" else []))
    assert not list(machine.project.rglob("trace"))
    assert names(machine.findings("--isolated", "--select", "OOM9")) == set()


def test_consent_is_given_once_and_for_what_is_there(machine):
    machine.folder("rules", {"hello.py": rule()})
    allowed = machine("plugins", "allow", "rules")
    assert allowed.exit_code == 0, allowed.stderr
    assert "  hello.py\n" in allowed.stdout
    report = machine.findings()
    assert ("acme-hello" in names(report), report["errors"]) == (True, [])
    assert "acme-hello" in machine("rules").stdout
    assert machine("explain", "acme-hello").exit_code == 0

    (machine.project / "rules" / "hello.py").write_text(rule(body=SPEAKS + " # changed"))
    report = machine.findings()
    assert "has changed since you allowed it" in report["errors"][0]["message"]
    assert "acme-hello" not in names(report)

    machine("plugins", "allow", "rules")
    assert "acme-hello" in names(machine.findings())
    assert machine("plugins", "forget", "rules").exit_code == 0
    assert "acme-hello" not in names(machine.findings())
    assert machine("plugins", "forget", "rules").exit_code == 2


def test_consent_is_for_a_place(machine):
    machine.folder("rules", {"hello.py": rule()})
    machine("plugins", "allow", "rules")
    shutil.copytree(machine.project / "rules", machine.project / "copy")
    (machine.project / "oomlint.toml").write_text('plugins = ["copy"]\n')
    assert "acme-hello" not in names(machine.findings())


def test_consent_lies_outside_of_the_repository(machine):
    machine.folder("rules", {"hello.py": rule()})
    before = sorted(machine.project.rglob("*"))
    machine("plugins", "allow", "rules")
    assert sorted(machine.project.rglob("*")) == before
    (file,) = [path for path in machine.home.rglob("*") if path.is_file()]
    assert list(json.loads(file.read_text())["folders"]) == [str(machine.project / "rules")]
    file.write_text("{broken")
    assert "acme-hello" not in names(machine.findings()), "an unusable file is no consent"


def test_new_files_and_data_need_a_new_consent_but_compiled_files_never_run(machine):
    machine.folder("rules", {"hello.py": rule(), "limits.json": "{}"})
    machine("plugins", "allow", "rules")
    folder = machine.project / "rules"
    cache = folder / "__pycache__"
    cache.mkdir()
    evil = machine.project / "evil.py"
    evil.write_text(TRACE + rule())
    script = (
        "import py_compile, sys; py_compile.compile(sys.argv[1], cfile=sys.argv[2], "
        "invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)"
    )
    compiled = cache / f"hello.{sys.implementation.cache_tag}.pyc"
    subprocess.run([sys.executable, "-c", script, str(evil), str(compiled)], check=True)
    report = machine.findings()
    assert ("acme-hello" in names(report), report["errors"]) == (True, [])
    assert not list(machine.project.rglob("trace"))
    (folder / "limits.json").write_text('{"a": 1}')
    assert machine.findings()["errors"]


def test_modules_of_a_folder_import_one_another(machine):
    files = {
        "_base.py": "WORDS = 'from the helper'\n",
        "deep/er.py": (
            "from oomlint import Rule, Severity\n"
            "from .._base import WORDS\n"
            "class Deep(Rule):\n"
            "    code, name, summary = 'ACM903', 'acme-deep', 'x'\n"
            "    def check(self, run):\n"
            "        yield self.finding(run, Severity.INFO, WORDS)\n"
        ),
    }
    machine.folder("rules", files)
    machine("plugins", "allow", "rules")
    report = machine.findings("--select", "acme-deep")
    assert [finding["message"] for finding in report["findings"]] == ["from the helper"]
    assert report["errors"] == []


def test_a_folder_with_a_listing_brings_what_it_lists(machine):
    listing = "from .one import AcmeHello\ndef rules():\n    return [AcmeHello]\n"
    machine.folder("rules", {"__init__.py": listing, "one.py": rule(), "test_one.py": "1/0\n"})
    machine("plugins", "allow", "rules")
    report = machine.findings("--select", "ACM")
    assert (names(report), report["errors"]) == ({"acme-hello"}, [])


def test_a_folder_that_is_none_or_breaks(machine):
    machine.folder("rules", {"hello.py": "1/0\n"})
    machine("plugins", "allow", "rules")
    (error,) = machine.findings()["errors"]
    assert (error["path"], "ZeroDivisionError" in error["message"]) == ("rules", True)
    (machine.project / "oomlint.toml").write_text('plugins = ["nowhere"]\n')
    (error,) = machine.findings()["errors"]
    assert "it is no folder" in error["message"]
    assert machine("plugins", "allow", "nowhere").exit_code == 2


def test_a_folder_that_is_far_too_large_is_none(machine):
    machine.folder("rules", {f"n{number}.txt": "" for number in range(501)})
    result = machine("plugins", "allow", "rules")
    assert (result.exit_code, "more than 500 files" in result.stderr) == (2, True)


def test_rules_of_a_folder_run_in_fixes_too(machine):
    shutil.copytree(EXAMPLE / "acme_oomlint", machine.project / "rules")
    machine.folder("rules", {})
    machine("plugins", "allow", "rules")
    machine("--fix", "--unsafe-fixes", "--select", "ACM")
    assert "output_dir: outputs/out\n" in (machine.project / "train.yaml").read_text()


def test_a_way_to_fit_obeys_the_rules_of_a_folder(machine):
    (machine.project / "train.yaml").write_text(
        CONFIG.replace("batch_size: 1", "batch_size: 32").replace("len: 512", "len: 4096")
    )
    fit = ("fit", "train.yaml", "--hardware", "RTX-3090-24GB", "--output-format", "json")
    free = json.loads(machine(*fit).stdout)["runs"][0]["ways"]
    assert any("micro batch" in c["title"] for way in free for c in way["changes"])
    small = "if run.plan.batch.micro < 32: yield self.finding(run, Severity.WARNING, 'small')"
    machine.folder("rules", {"small.py": rule("ACM902", "acme-small", small)})
    machine("plugins", "allow", "rules")
    bound = json.loads(machine(*fit).stdout)["runs"][0]["ways"]
    assert not any("micro batch" in c["title"] for way in bound for c in way["changes"])


def test_the_harness_refuses_what_linting_would(machine):
    (machine.project / "mine").mkdir()
    (machine.project / "mine" / "a.py").write_text(rule("OOM301"))
    result = machine("test-rules", "mine")
    assert result.exit_code == 1
    assert "OOM301 is taken by zero-stage-too-low" in result.stdout
