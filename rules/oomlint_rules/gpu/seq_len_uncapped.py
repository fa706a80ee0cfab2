"""No limit on the length of samples: the longest one of the data decides.

## What it finds

Runs that neither cut nor drop long samples (`max_length` absent in ms-swift,
`tokenizer.max_seq_len: null` in torchtune, padding without a context length in llama-recipes)
and whose card would be full at a length that text reaches: 4096 tokens, and 16384 where images
count too. It says from what length on a sample ends the run. On unknown hardware it speaks
only of models that see images.

## Why it runs out of memory

Activations and logits grow with the longest sample of a batch. Without a limit one document
of 30000 tokens among thousands of short ones sets the peak, and it may come hours into
training. Models allow 32768 or 131072 tokens, so the model's own limit does not help.

## How to fix it

Set a limit that fits. Longer samples are then cut or dropped, which changes what is learned, and how long they
may be nobody but the author decides: the fix is shown and not applied. The number it proposes is the longest that
fits with room.

## When not to

Where the data is known to be short (Alpaca's samples have a few hundred tokens), or was cut
before. Recipes for such data are right as they are: the rule warns of data sets that are known to have longer samples, and
remarks on all others.

## Sources

* ms-swift `arguments/base_args/base_args.py` (`max_length` falls back to the model's maximum)
* torchtune `data/_utils.py` (`max_seq_len` of `None` never truncates);
  https://github.com/pytorch/torchtune/issues/2830
* https://github.com/unslothai/unsloth/issues/1624, https://github.com/modelscope/ms-swift/issues/7162
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import confidence, settled
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import example, line, text
from oomlint_rules._remedies import longest_that_fits

_SWIFT = line(
    """
    swift sft --model Qwen/Qwen2.5-7B-Instruct --dataset our/instructions
    --tuner_type lora --torch_dtype bfloat16 --per_device_train_batch_size 2
    --gradient_accumulation_steps 8{length}
    """
)
_TORCHTUNE = text(
    """
    tokenizer:
      _component_: torchtune.models.llama3.llama3_tokenizer
      path: /tmp/Meta-Llama-3.1-8B-Instruct/original/tokenizer.model
      max_seq_len: {length}
    dataset:
      _component_: torchtune.datasets.text_completion_dataset
      packed: False
    seed: null
    shuffle: True
    model:
      _component_: torchtune.models.llama3_1.llama3_1_8b
    checkpointer:
      _component_: torchtune.training.FullModelHFCheckpointer
      checkpoint_dir: /tmp/Meta-Llama-3.1-8B-Instruct/
      model_type: LLAMA3
    optimizer:
      _component_: bitsandbytes.optim.PagedAdamW8bit
      lr: 2e-5
    loss:
      _component_: torch.nn.CrossEntropyLoss
    batch_size: 4
    epochs: 1
    gradient_accumulation_steps: 1
    enable_activation_checkpointing: False
    device: cuda
    dtype: bf16
    """
)

# Texts longer than this are rare outside of data made for long contexts; an image alone can
# have as many tokens again.
_USUAL = 4096
_SEEN = 16384


class SeqLenUncapped(Rule, code="OOM107", fixes=Applicability.DISPLAY, cost=8):
    summary = "nothing limits the length of samples, and a long one would not fit"
    explains = ("activations", "logits")
    only_where = (Where(plan={f.seq.unbounded: (True,)}),)

    bad = (
        example({"train.sh": _SWIFT.format(length="")}, on="1xRTX-4090-24GB"),
        example({"recipe.yaml": _TORCHTUNE.format(length="null")}, on="1xH100-80GB"),
    )
    good = (
        example({"train.sh": _SWIFT.format(length=" --max_length 512")}, on="1xRTX-4090-24GB"),
        example({"recipe.yaml": _TORCHTUNE.format(length="1024")}, on="1xH100-80GB"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        known = run.hardware is not None
        sees = plan.model.dims is not None and plan.model.dims.vision is not None
        if not (known or sees):
            return
        if settled(run).estimate.gpu.peak_bytes is None:
            return
        most = _SEEN if sees else _USUAL
        fits = longest_that_fits(run, most)
        if fits >= most:
            return
        longest = plan.seq.longest
        if longest is not None and longest <= fits:
            return
        limit = longest_that_fits(run, most, share=run.margin)
        where = f"on {run.hardware.gpu.name}" if run.hardware else "on an 80 GB card"
        # Nothing says how long the data is, unless its sets are known.
        severe = known and fits > 0 and longest is not None
        details = (
            (
                f"a micro batch with a sample of more than about {fits:,} tokens does not fit {where}",
            )
            if fits
            else (
                "the longest one sets the peak",
                f"the prediction takes samples of at most {min(most, 2048):,} tokens",
            )
        )
        yield self.finding(
            run,
            Severity.WARNING if severe else Severity.INFO,
            f"nothing limits the length of samples: {run.key(f.seq.max_len)} is not set",
            at=(f.seq.max_len, f.model.id),
            details=details,
            confidence="low" if confidence(run) == "low" else "medium",
            resource="gpu",
            limit=run.limits.gpu_bytes,
            proposals=[
                Proposal.set(
                    f"limit samples to {limit} tokens",
                    {f.seq.max_len: limit},
                    Applicability.DISPLAY,
                )
            ]
            if limit >= 512
            else (),
        )
