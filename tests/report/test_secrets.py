"""What looks like a secret reaches nobody's eyes; what only sounds like one stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.command import oomlint

from oomlint.report.runs import as_json
from oomlint.report.secrets import masked

HF = "hf_" + "AbCdEfGhIjKlMnOpQrStUv0123456789"
KEY = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (f"export HF_TOKEN={HF}", "export HF_TOKEN=hf_****"),
        (f"--hub_token {HF} --lr 1", "--hub_token hf_**** --lr 1"),
        (f"login('{HF}')", "login('hf_****')"),
        (f'"wandb_api_key": "{KEY}",', '"wandb_api_key": "****",'),
        ("OPENAI_API_KEY=sk-proj-abcdefghijklmnop1234", "OPENAI_API_KEY=sk-****"),
        ("git clone https://ghp_abcdefghijklmnopqrstuv0123@x", "git clone https://ghp****@x"),
        ("db_password: correct-horse-1", "db_password: ****"),
        ("max_new_tokens: 123456789012345", "max_new_tokens: 123456789012345"),
        ("pad_token: <|reserved_special_token_250|>", "pad_token: <|reserved_special_token_250|>"),
        ("pad_token: reserved_special_250", "pad_token: reserved_special_250"),
        ("HF_TOKEN=$HF_TOKEN_OF_THE_CLUSTER_1", "HF_TOKEN=$HF_TOKEN_OF_THE_CLUSTER_1"),
        (
            "16 bytes a token\nruns/qwen3moe_full.yaml:1",
            "16 bytes a token\nruns/qwen3moe_full.yaml:1",
        ),
        ("token 4096 of 8192", "token 4096 of 8192"),
        ("model: hf_internal/tiny-random", "model: hf_internal/tiny-random"),
    ],
)
def test_masked(text: str, seen: str) -> None:
    assert masked(text) == seen


def test_no_report_shows_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "axolotl.yaml").write_text(
        "base_model: meta-llama/Llama-2-70b-hf\ndatasets:\n  - path: tatsu-lab/alpaca\n"
        f"micro_batch_size: 8\nsequence_len: 4096\nhf_use_auth_toke: {HF}\n"
    )
    shown = oomlint("axolotl.yaml", "--hardware", "8xA100-80GB")
    assert "hf_use_auth_toke: hf_****" in " ".join(shown.output.split())
    assert HF not in shown.output


@pytest.mark.parametrize(
    "form", ["text", "json", "jsonl", "sarif", "github", "gitlab", "junit", "rdjson", "lsp"]
)
def test_no_format_shows_a_token(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "axolotl.yaml").write_text(
        "base_model: meta-llama/Llama-2-70b-hf\ndatasets:\n  - path: tatsu-lab/alpaca\n"
        f"micro_batch_size: 8\nsequence_len: {HF}\n"
    )
    shown = oomlint("axolotl.yaml", "--output-format", form)
    # A terminal of any width breaks lines between words.
    assert "sequence_len cannot be hf_****" in " ".join(shown.output.split())
    assert HF not in shown.output


def test_what_a_fix_writes_is_no_report() -> None:
    told = as_json({"message": f"token {HF}", "edits": [{"path": "a", "replacement": HF}]})
    assert json.loads(told) == {
        "message": "token hf_****",
        "edits": [{"path": "a", "replacement": HF}],
    }
