"""What a finding says of samples whose length no file tells."""

from __future__ import annotations

import pytest
from tests.linked import report_of

from oomlint.judgement.peak import Peak
from oomlint.linting.rule import Rule, Severity
from oomlint_rules.gpu.attention_quadratic_fallback import AttentionQuadraticFallback
from oomlint_rules.gpu.logits_materialized_large_vocab import LogitsMaterializedLargeVocab
from oomlint_rules.gpu.long_context_over_budget import LongContextOverBudget
from oomlint_rules.gpu.micro_batch_too_large import MicroBatchTooLarge
from oomlint_rules.gpu.no_gradient_checkpointing import NoGradientCheckpointing
from oomlint_rules.gpu.seq_len_uncapped import SeqLenUncapped

_AXOLOTL = """\
base_model: NousResearch/Meta-Llama-3-8B
datasets:
  - path: {data}
    type: alpaca
adapter: lora
lora_r: 16
lora_target_linear: true
sequence_len: {length}
sample_packing: {packing}
micro_batch_size: {micro}
gradient_accumulation_steps: 1
gradient_checkpointing: true
bf16: true
flash_attention: true
"""


def _severities(rule: type[Rule], hardware: str, **said: object) -> list[Severity]:
    told = {"data": "our/data", "packing": "false", "length": 4096, "micro": 32} | said
    files = {"axolotl.yaml": _AXOLOTL.format(**told)}
    return [each.severity for each in report_of(files, hardware=hardware, rules=[rule]).diagnoses]


_BY_SAMPLES = [MicroBatchTooLarge, LogitsMaterializedLargeVocab]


@pytest.mark.parametrize("rule", _BY_SAMPLES)
def test_what_is_large_with_long_samples_alone_is_a_remark(rule: type[Rule]) -> None:
    """32 samples of some 230 tokens are 7,000: their logits and activations fit, while 256 of them are 59,000, of which
    the logits alone take 12 bytes x 59,000 x 128,256."""
    assert all(each is Severity.INFO for each in _severities(rule, "1xA100-80GB"))
    assert _severities(rule, "1xA100-80GB", packing="true") == [Severity.ERROR]
    assert _severities(rule, "1xA100-80GB", micro=256) == [Severity.ERROR]


@pytest.mark.parametrize("rule", _BY_SAMPLES)
def test_it_is_no_cause_where_something_else_is_too_much(rule: type[Rule]) -> None:
    """15 GiB of weights on a card of 16: with short samples no smaller batch and no fused loss helps."""
    found = _severities(rule, "1xT4-16GB", micro=8)
    assert found
    assert all(each is Severity.INFO for each in found)


def test_checkpointing_that_long_samples_alone_need_is_a_remark() -> None:
    none = _AXOLOTL.replace("gradient_checkpointing: true", "gradient_checkpointing: false")

    def severities(**said: object) -> list[Severity]:
        told = {"data": "our/data", "packing": "false", "length": 4096, "micro": 8} | said
        files = {"axolotl.yaml": none.format(**told)}
        found = report_of(files, hardware="1xA100-80GB", rules=[NoGradientCheckpointing])
        return [each.severity for each in found.diagnoses]

    assert severities() == [Severity.INFO]
    assert severities(packing="true") == [Severity.ERROR]


def test_a_limit_that_no_sample_is_known_to_reach_is_a_remark() -> None:
    many = {"length": 131_072, "micro": 1}
    assert _severities(LongContextOverBudget, "1xA100-40GB", **many) == [Severity.INFO]
    (packed,) = _severities(LongContextOverBudget, "1xA100-40GB", packing="true", **many)
    assert packed > Severity.INFO


_SWIFT = (
    "swift sft --model Qwen/Qwen2.5-7B-Instruct --dataset {data} --tuner_type lora"
    " --torch_dtype bfloat16 --per_device_train_batch_size 2 --gradient_accumulation_steps 8\n"
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("our/instructions", [Severity.INFO]),
        # The longest of AI-ModelScope/LongAlpaca-12k has 78,925 tokens, that of alpaca-cleaned 1,044.
        ("AI-ModelScope/LongAlpaca-12k", [Severity.WARNING]),
        ("AI-ModelScope/alpaca-cleaned", []),
    ],
)
def test_only_data_that_are_known_to_be_long_want_a_limit(
    data: str, expected: list[Severity]
) -> None:
    files = {"train.sh": _SWIFT.format(data=data)}
    found = report_of(files, hardware="1xRTX-4090-24GB", rules=[SeqLenUncapped]).diagnoses
    assert [each.severity for each in found] == expected


def test_scores_of_a_length_that_nobody_says_have_no_number() -> None:
    config = (
        "recipe: TrainFinetuneRecipeForNextTokenPrediction\nstep_scheduler: {global_batch_size: 64, local_batch_size: 8}\n"
        "model:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
        "  pretrained_model_name_or_path: Qwen/QwQ-32B\n  attn_implementation: eager\n"
        "dataset: {_target_: our.data}\noptimizer: {_target_: torch.optim.Adam}\n"
    )
    report = report_of(
        {"train.yaml": config}, hardware="8xA100-40GB", rules=[AttentionQuadraticFallback]
    )
    assert [each.finding.message for each in report.diagnoses] == [
        "eager attention keeps a matrix of tokens x tokens for every head"
    ]


def test_a_batch_that_holds_nothing_at_the_peak_is_not_its_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a run needs most when it steps, no activations are left."""
    assert _severities(MicroBatchTooLarge, "1xA100-80GB", packing="true") == [Severity.ERROR]
    monkeypatch.setattr(Peak, "share_of", lambda _self, _kinds: 0)
    assert _severities(MicroBatchTooLarge, "1xA100-80GB", packing="true") == []
