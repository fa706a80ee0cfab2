"""Suggestions that are all taken, and diffs that are applied, make the files that ``--fix`` makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.review.conftest import BAD, RUN, SETTINGS, fixed, oomlint

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(p.name for p in (ROOT / "examples").iterdir() if (p / "oomlint.toml").is_file())
CORPUS = ROOT / "../shared/corpus"


def as_it_is(data: bytes) -> bytes:
    return data


def with_crlf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def without_end(data: bytes) -> bytes:
    return data.rstrip(b"\r\n")


def with_mark(data: bytes) -> bytes:
    return b"\xef\xbb\xbf" + data


def read(folder: Path) -> dict[str, bytes]:
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def assert_as_fixed(fake, tmp_path, *options, expect_suggestions=True):
    """Take all that the review offers, and compare bytes."""
    result = oomlint("review", "--max-comments", "500", *options)
    assert result.exit_code in (0, 1), result.output
    head = fake.repository.files(fake.head)
    wanted = fixed(head, tmp_path / "fixed", *options)
    if wanted == head:
        return
    assert any("suggestion\n" in t.body for t in fake.threads) or not expect_suggestions
    assert fake.with_everything(tmp_path / "taken") == wanted


@pytest.mark.parametrize("form", [as_it_is, with_crlf, without_end])
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_shipped_examples(pull_request, tmp_path, name, form):
    def formed(path: str, data: bytes) -> bytes:
        # A command that goes on over CR LF ends there, and a suggestion has no line ends.
        is_left = path == "oomlint.toml" or (form is with_crlf and path.endswith(".sh"))
        return data if is_left else form(data)

    files = {path: formed(path, data) for path, data in read(ROOT / "examples" / name).items()}
    # A file that is called by its stage keeps it: what a fix adds is a file, which no suggestion can.
    adds_a_file = "ds_z2.json" in files
    fake = pull_request({"README.md": "x"}, files)
    assert_as_fixed(fake, tmp_path, expect_suggestions=not adds_a_file)


@pytest.mark.parametrize("form", [as_it_is, with_crlf, without_end, with_mark])
def test_forms_of_one_config(pull_request, tmp_path, form):
    data = form(BAD.encode())
    fake = pull_request({"README.md": "x"}, {**RUN, "train.yaml": data})
    assert_as_fixed(fake, tmp_path)


def test_a_fix_of_the_first_line_behind_a_mark_is_no_suggestion(pull_request, tmp_path):
    data = (
        b"\xef\xbb\xbf"
        b"gradient_checkpointing: false\n"
        + BAD.replace("gradient_checkpointing: false\n", "").encode()
    )
    fake = pull_request({"README.md": "x"}, {**RUN, "train.yaml": data})
    oomlint("review")
    for thread in fake.threads:
        assert thread.first > 1 or "```suggestion" not in thread.body


def test_tabs_and_odd_characters_survive(pull_request, tmp_path):
    text = BAD.replace("micro_batch_size: 8", "micro_batch_size: 8\t# ```tick``` ünï 😀 end  ")
    fake = pull_request({"README.md": "x"}, {**RUN, "train.yaml": text})
    assert_as_fixed(fake, tmp_path)
    assert any("````suggestion" in t.body for t in fake.threads)


def test_line_ends_that_are_mixed_where_the_fix_is_go_into_the_summary(pull_request, tmp_path):
    data = BAD.encode().replace(b"micro_batch_size: 8\n", b"micro_batch_size: 8\r\n")
    fake = pull_request({"README.md": "x"}, {**RUN, "train.yaml": data})
    assert_as_fixed(fake, tmp_path, expect_suggestions=False)
    assert all("```suggestion" not in t.body for t in fake.threads)


def test_a_json_of_one_line(pull_request, tmp_path):
    text = '{"zero_optimization": {"stage": 2, "cpu_offload": true}, "train_batch_size": "auto"}'
    fake = pull_request({"README.md": "x"}, {**RUN, "ds.json": text})
    assert_as_fixed(fake, tmp_path)


_ZERO_2 = '{"zero_optimization": {"stage": 2}, "train_batch_size": "auto"}'
_LARGE = """\
base_model: meta-llama/Meta-Llama-3-70B
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
sequence_len: 1024
micro_batch_size: 1
optimizer: adamw_torch_fused
bf16: true
gradient_checkpointing: true
flash_attention: true
deepspeed: NAMED
"""


def test_a_copy_that_a_fix_makes_is_a_new_file_in_the_summary(pull_request, tmp_path):
    # A file that is called by its stage keeps it.
    after = {
        "oomlint.toml": SETTINGS.replace("1TiB", "2TiB"),
        "large.yaml": _LARGE.replace("NAMED", "zero2.json"),
        "zero2.json": _ZERO_2,
    }
    fake = pull_request({"README.md": "x"}, after)
    assert_as_fixed(fake, tmp_path, expect_suggestions=False)
    assert "+++ b/zero3_offload_optimizer.json" in fake.summary


def test_a_file_that_another_run_uses_stays_and_no_copy_is_suggested(pull_request, tmp_path):
    # ZeRO-2 is enough for the small model, which was there before.
    large = _LARGE.replace("NAMED", "shared.json")
    before = {**RUN, "small.yaml": large.replace("Meta-Llama-3-70B", "Llama-3.2-1B")}
    before["shared.json"] = _ZERO_2
    before["oomlint.toml"] = SETTINGS.replace("1TiB", "2TiB")
    fake = pull_request(before, {**before, "large.yaml": large})
    assert_as_fixed(fake, tmp_path, expect_suggestions=False)
    assert "+++ b/" not in fake.summary


@pytest.mark.parametrize("form", [as_it_is, with_crlf, without_end])
@pytest.mark.parametrize("framework", ["DeepSpeed", "accelerate", "trl"])
def test_configs_of_the_frameworks(pull_request, tmp_path, framework, form):
    if not (CORPUS / framework).is_dir():
        pytest.skip("needs the corpus beside the checkout")
    files = {path: form(data) for path, data in read(CORPUS / framework).items()}
    fake = pull_request({"README.md": "x"}, files)
    assert_as_fixed(fake, tmp_path, "--hardware", "8xA100-40GB")
