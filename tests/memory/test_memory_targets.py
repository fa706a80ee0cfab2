"""Encoder-decoders whose targets are shorter than what the encoder reads."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.linked import link

from oomlint.memory import estimate, traits
from oomlint.memory.facts import Facts
from oomlint.memory.logits import logits_of
from oomlint.memory.step import stack_of
from oomlint.models import from_config_json
from oomlint.plan import Plan

BART = {
    "model_type": "bart", "d_model": 256, "encoder_layers": 4, "decoder_layers": 4, "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024, "encoder_attention_heads": 8, "decoder_attention_heads": 8, "vocab_size": 4000,
    "max_position_embeddings": 1024,
}  # fmt: skip


def plan(target: int | None, **more: object) -> Plan:
    return Plan().with_values(
        {
            "model.dims": from_config_json(BART).dims, "batch.micro": 2, "seq.max_len": 512,
            "seq.target_len": target, "trainable.method": "full", "precision.param": "bf16",
            "precision.compute": "bf16", "precision.grad": "bf16", "model.attn_impl": "eager",
            "checkpointing.mode": "none", "optimizer.kind": "adamw", "parallel.backend": "none", **more,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("target", "kept"), [(None, 190_771_202), (128, 95_705_090), (32, 77_836_802)]
)
def test_what_is_kept_follows_the_target(
    target: int | None, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that autograd keeps besides parameters (torch 2.15 saved_tensors_hooks, transformers 5.24
    BartForConditionalGeneration in bf16 with eager attention and no dropout, 2 samples of 512 tokens)."""
    undropped = replace(traits._TRAITS["bart"], dropout=False)
    monkeypatch.setitem(traits._TRAITS, "bart", undropped)
    monkeypatch.setattr("oomlint.memory.build._SEEN", {})
    f = Facts(plan(target))
    stack = stack_of(f)
    assert stack.saved + logits_of(f, stack.written).kept == pytest.approx(kept, rel=0.015)


def test_inputs_of_recomputed_decoder_layers_are_those_of_the_target() -> None:
    """Four layers of either stack keep 2 samples of 512 and of 128 tokens, 256 wide in bf16; the keys and values that
    they make of the encoder's output are computed again."""
    f = Facts(plan(128, **{"checkpointing.mode": "full"}))
    assert stack_of(f).saved == 4 * 2 * (512 + 128) * 256 * 2


def test_a_decoder_alone_writes_all_that_it_reads() -> None:
    alone = from_config_json({"model_type": "llama", "num_hidden_layers": 2}).dims
    peaks = {
        estimate(plan(target, **{"model.dims": alone})).gpu.peak_bytes for target in (None, 128)
    }
    assert len(peaks) == 1


def test_a_script_says_how_long_targets_are() -> None:
    """transformers' own run_summarization.py and its many copies."""
    line = "python run_summarization.py --model_name_or_path google-t5/t5-base --max_source_length 1024 --output_dir o --do_train"
    script = """\
from dataclasses import dataclass, field
from transformers import AutoModelForSeq2SeqLM, HfArgumentParser, Seq2SeqTrainer, Seq2SeqTrainingArguments

@dataclass
class Arguments:
    model_name_or_path: str = field(default=None)
    max_source_length: int = field(default=512)
    max_target_length: int = field(default=128)

parser = HfArgumentParser((Arguments, Seq2SeqTrainingArguments))
args, training_args = parser.parse_args_into_dataclasses()
model = AutoModelForSeq2SeqLM.from_pretrained(args.model_name_or_path)
trainer = Seq2SeqTrainer(model=model, args=training_args)
trainer.train()
"""
    (run,) = link(
        {"run_summarization.py": script, "run.sh": f"{line} --max_target_length 64\n"}
    ).runs
    assert (run.plan.seq.max_len, run.plan.seq.target_len) == (1024, 64)
    (run,) = link({"run_summarization.py": script, "run.sh": f"{line}\n"}).runs
    assert run.plan.seq.target_len == 128
    longer = estimate(run.plan.with_values({"seq.target_len": 1024})).gpu.peak_bytes
    assert longer is not None
    assert (estimate(run.plan).gpu.peak_bytes or 0) < 0.75 * longer
