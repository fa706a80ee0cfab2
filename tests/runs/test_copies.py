"""A project's copy of a framework, held against what the framework's files ever were."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.linked import hardware_of, report_of, run_of, workspace_of

from oomlint.dialects.upstream import PACKAGES, known as upstream
from oomlint.dialects.upstream.frameworks import FRAMEWORKS
from oomlint.dialects.upstream.known import DATA, Known, blob_id, packed, unpacked
from oomlint.dialects.upstream.statements import digests, pieces
from oomlint.files.workspace import Workspace
from oomlint.judgement import judgement_of, words
from oomlint.judgement.evidence import rests_on
from oomlint.linting.engine import Options, lint
from oomlint.linting.rule import Severity
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

LOOP = "model = model_cls(model_args)\nloss = loss_fn(model(inputs), labels)\nloss.backward()\n"
MODEL = "class FeedForward(nn.Module):\n    def __init__(self, dim, hidden_dim):\n        hidden_dim = int(2 * hidden_dim / 3)\n        self.w1 = nn.Linear(dim, hidden_dim)\n"
SHARDS = "for block in model.layers:\n    fully_shard(block, mesh=mesh)\n"
EXAMPLE = '[model]\nname = "llama3"\nflavor = "70B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n[parallelism]\ndata_parallel_shard_degree = -1\n'
OWN = EXAMPLE.replace("8192", "4096")
GUIDE = "# Beispiele\n\n    torchrun train.py train.toml\n"
SHOWN = "accelerate launch --config_file examples/gone.yaml train.py\n"
COPY = {
    "torchtitan/train.py": LOOP,
    "torchtitan/models/llama3/model/model.py": MODEL,
    "torchtitan/models/llama3/infra/parallelize.py": SHARDS,
}
CARDS = "4xRTX-4090-24GB"
DAY = 20_000


@pytest.fixture(autouse=True)
def _framework(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torchtitan whose whole history is the files above."""
    texts = [text.encode() for text in COPY.values()]
    data = packed(
        ("pytorch/torchtitan", "0000000", "2026-01-01"),
        {blob_id(text): DAY for text in texts},
        {blob_id(EXAMPLE.encode()), blob_id(SHOWN.encode()), blob_id(GUIDE.encode())},
        {each for text in COPY.values() for each in digests(text).values()},
        [("0.1.0", DAY - 100), ("0.2.0", DAY + 5), ("0.3.0", DAY + 90)],
    )
    of_none = unpacked(packed(("", "", ""), {}, (), ()))
    one = unpacked(data)

    def known(name: str) -> Known:
        return one if name == "torchtitan" else of_none

    monkeypatch.setattr("oomlint.runs.copies.known", known)


def _severity(files: dict[str, str], *, explicit: tuple[str, ...] = ()) -> Severity | None:
    report = report_of(files, "train.toml", hardware=CARDS, explicit=explicit)
    return max((d.severity for d in report.diagnoses if d.rule.code == "OOM105"), default=None)


def test_copy_as_released_is_the_framework() -> None:
    run = run_of({"train.toml": OWN, **COPY}, "train.toml", hardware=CARDS)
    assert run.parts.changed == {}
    assert _severity({"train.toml": OWN, **COPY}) is Severity.ERROR
    assert run.parts.versions["torchtitan"] == ("0.2.0", "torchtitan/train.py")


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("torchtitan/models/llama3/model/model.py", "int(2 * hidden_dim / 3)", "4 * dim"),
        ("torchtitan/models/llama3/model/model.py", "        hidden_dim = int(2 * hidden_dim / 3)\n", ""),
        ("torchtitan/train.py", "model_cls(model_args)", "AutoModelForCausalLM.from_pretrained(path)"),
    ],
    ids=["other width", "a line less", "another model"],
)  # fmt: skip
def test_another_model_leaves_open_what_it_needs(path: str, old: str, new: str) -> None:
    assert old in COPY[path]
    files = {"train.toml": OWN, **COPY, path: COPY[path].replace(old, new)}
    (basis,) = (b for b in rests_on(run_of(files, "train.toml", hardware=CARDS)) if b.leaf == f.model.dims)  # fmt: skip
    assert basis.level is Level.UNREAD
    assert basis.why == f"{path} of this copy of torchtitan is changed"
    assert _severity(files) is Severity.INFO


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("torchtitan/train.py", LOOP + "logger.info(f'{loss} of {vocab_size} {dim}')\nbatch = next(data)\n"),
        ("torchtitan/models/llama3/model/model.py", MODEL.replace("dim, hidden_dim)\n", "dim,\n            hidden_dim,  # theirs\n        )\n")),
        ("torchtitan/models/qwen3/model/model.py", MODEL.replace("2 *", "3 *")),
    ],
    ids=["what is logged", "how it is written", "a model of another name"],
)  # fmt: skip
def test_fork_that_changes_something_else_is_still_the_framework(path: str, text: str) -> None:
    assert _severity({"train.toml": OWN, **COPY, path: text}) is Severity.ERROR


def test_package_of_the_same_name_is_no_copy() -> None:
    others = {path: f"import os\nx = nn.Linear({n}, 2)\n" for n, path in enumerate(COPY)}
    assert _severity({"train.toml": OWN, **others}) is Severity.ERROR


@pytest.mark.parametrize(
    ("beside", "explicit", "expected"),
    [
        ({}, (), Severity.INFO),
        ({}, ("train.toml",), Severity.ERROR),
        ({"README.md": "We train with train.toml.\n"}, (), Severity.ERROR),
        ({"README.md": "Ours. Features: [long](./train.toml), [t](x) and\n"}, (), Severity.INFO),
        ({"README.md": f"# Ours\n{GUIDE}", "README_de.md": GUIDE}, (), Severity.INFO),
        ({"README.md": f"{GUIDE}We run train.toml.\n", "README_de.md": GUIDE}, (), Severity.ERROR),
        ({"docs/README.md": "See train.toml.\n"}, (), Severity.INFO),
        ({"torchtitan/README.txt": "See train.toml.\n"}, (), Severity.INFO),
    ],
    ids=[
        "nobody's",
        "named by the user",
        "named by a guide",
        "by a link",
        "in a line of the framework's",
        "in another line",
        "by a manual",
        "by the package",
    ],
)
def test_example_as_it_ships(
    beside: dict[str, str], explicit: tuple[str, ...], expected: Severity
) -> None:
    files = {"train.toml": EXAMPLE, **COPY, **beside}
    assert _severity(files, explicit=explicit) is expected
    report = report_of(files, "train.toml", hardware=CARDS, explicit=explicit)
    judgement = judgement_of(report.runs[0])
    is_own = expected is Severity.ERROR
    assert judgement.verdict == ("does_not_fit" if is_own else "unknown")
    assert "ships this example as it is" in words.left_open(judgement.spoken) or is_own
    assert _severity({"train.toml": EXAMPLE, **beside}) is Severity.ERROR


_TRAINS = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
Trainer(model=model, args=TrainingArguments(output_dir="o"), train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("more", "expected"), [("", Severity.INFO), ("# ours\n", Severity.ERROR)], ids=["its", "ours"]
)
def test_example_that_names_a_file_which_is_not_there(more: str, expected: Severity) -> None:
    files = {"run.sh": SHOWN + more, "train.py": _TRAINS, **COPY}
    found = [d for d in report_of(files, "run.sh").diagnoses if d.rule.code == "OOM902"]
    assert [each.severity for each in found] == [expected]


@pytest.mark.parametrize(("named", "expected"), [("configs", Severity.ERROR), ("", Severity.INFO)])
def test_folder_of_examples_that_the_user_named(named: str, expected: Severity) -> None:
    plain = workspace_of({"configs/train.toml": EXAMPLE, **COPY})
    folder = plain.file(named) if named else plain.project_root
    workspace = Workspace(plain.cwd, plain.overlay, plain.project_root, [folder], plain.disk)
    report = lint(workspace, ["configs/train.toml"], Options(hardware=hardware_of(CARDS)))
    assert max(d.severity for d in report.diagnoses if d.rule.code == "OOM105") is expected


def test_pieces_survive_a_formatter() -> None:
    text = "self.w1 = nn.Linear(dim, hidden_dim * 2, bias=False)  # up\nprint('nn.Linear')\n"
    wrapped = (
        'self.w1 = nn.Linear(\n    dim,\n    hidden_dim * 2,\n    bias=False,\n)\n"nn.Linear"\n'
    )
    assert digests(text) == digests(wrapped)
    assert ("self.w1=nn.Linear", "model") in set(pieces(text))


def test_projects_without_a_copy_load_nothing_of_them() -> None:
    code = (
        "import sys; from tests.linked import report_of; "
        f"report = report_of({{'train.toml': {OWN!r}}}, hardware={CARDS!r}); "
        "print(len(report.runs), [n for n in sys.modules if 'upstream.' in n or n.endswith('runs.copies')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1 []\n"


def test_data_of_each_framework() -> None:
    assert set(PACKAGES) == {each for framework in FRAMEWORKS for each in framework.packages}
    sizes = []
    for framework in FRAMEWORKS:
        header = upstream.known(framework.name).header
        assert header.repository == framework.repository
        assert header.modules or not framework.modules
        assert header.examples
        sizes.append((DATA / f"{framework.name}.bin").stat().st_size)
    assert sum(sizes) < 300_000


_SCRIPT = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n"
    "Trainer(model=model, args=TrainingArguments('o'), train_dataset=d).train()\n"
)
_LIBRARY = {
    "libs/transformers/setup.py": "setup(\n    name='transformers', version='4.57.0')\n",
    "libs/transformers/examples/README.md": "```bash\npython clm/run_clm.py --per_device_train_batch_size 8\n```\n",
    "libs/transformers/examples/clm/run_clm.py": _SCRIPT,
}


@pytest.mark.parametrize(
    ("more", "is_own"),
    [
        ({}, False),
        ({"README.md": "All we need is in libs/transformers.\n"}, False),
        ({"run.sh": "cd libs/transformers/examples && python clm/run_clm.py\n"}, True),
        ({"libs/transformers/setup.py": "setup(name='ours')\n"}, True),
        ({"libs/transformers/setup.py": "setup(name='trl')\n"}, True),
    ],
    ids=["nothing names it", "the library is named", "a script starts it", "a package of the project's", "of a framework each example is known"],
)  # fmt: skip
def test_examples_of_a_library_that_lies_in_a_folder(more: dict[str, str], is_own: bool) -> None:
    report = report_of({**_LIBRARY, **more}, hardware=CARDS)
    told = {d.severity for d in report.diagnoses if d.rule.code in ("OOM100", "OOM705")}
    assert told, "it dies, and that is told all the same"
    assert (max(told) > Severity.INFO) is is_own


def test_broken_lines_in_an_example_of_a_library_are_the_librarys() -> None:
    broken = "torchrun --nproc_per_node 2 train.py \\ \n  --bf16 True\n"
    files = {**_LIBRARY, "libs/transformers/examples/legacy/train.sh": broken, "own.sh": broken}
    told = {
        d.finding.location.path: d.severity
        for d in report_of(files).diagnoses
        if d.rule.code == "OOM703"
    }
    assert told["own.sh"] > Severity.INFO
    assert told["libs/transformers/examples/legacy/train.sh"] is Severity.INFO


def test_a_library_is_itself_a_project() -> None:
    files = {path.removeprefix("libs/transformers/"): text for path, text in _LIBRARY.items()}
    assert any(d.severity > Severity.INFO for d in report_of(files, hardware=CARDS).diagnoses)


@pytest.mark.parametrize(
    ("more", "place", "is_own"),
    [
        ({}, "ours/torchtitan", False),
        ({"run.sh": "python ours/torchtitan/tools/tune.py\n"}, "ours/torchtitan", True),
        ({}, "torchtitan", True),
        ({}, "src/torchtitan", True),
        ({}, "ours/titan", True),
    ],
    ids=["a part of another project", "started from outside", "a fork", "a fork with src", "of another name"],
)  # fmt: skip
def test_programs_of_a_framework_whose_package_lies_in_another_project(
    more: dict[str, str], place: str, is_own: bool
) -> None:
    files = {path.replace("torchtitan", place, 1): text for path, text in COPY.items()}
    shown = (
        f'"""Start it so:\n\n    python {place.rpartition("/")[2]}/tools/tune.py\n"""\n{_SCRIPT}'
    )
    report = report_of({**files, f"{place}/tools/tune.py": shown, **more}, hardware=CARDS)
    told = {d.severity for d in report.diagnoses if d.rule.code in ("OOM100", "OOM705")}
    assert told
    assert (max(told) > Severity.INFO) is is_own
