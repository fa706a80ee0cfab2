"""Images keep their full size: one photo can be sixteen thousand tokens.

## What it finds

Training of a vision model that takes images at their own resolution (Qwen2-VL and its
successors) where no limit on pixels is set, or one that is the processor's own, in a framework that
has a key or variable for it. A limit of one's own above 1.5 million is named where a run dies of it. Where neither a limit nor the name of a data set tells that there are images at
all, it is a remark: such models are trained on text and sound too.

## Why it runs out of memory

Qwen2-VL makes a token of every 28 x 28 pixels, Qwen3-VL of every 32 x 32; the processors' own limits,
12845056 and 16777216 pixels, are 16384 tokens an image, and four times as many patches in the vision
tower, whose attention works on all of them at once: 23 GiB in one allocation in ms-swift
issue 3456. A limit on the length of samples does not reach the vision tower.

## How to fix it

Cap the pixels: `MAX_PIXELS=1003520` (1280 tokens) or `IMAGE_MAX_TOKEN_NUM=1280` for ms-swift, `image_max_pixels: 589824` in
LLaMA-Factory, where 768 x 768 is the default. Images are scaled down and fine print is
lost, so the fix is unsafe.

## When not to

Data without images, or with images that were made small before; documents that have to be read
at full size, on cards that hold them.

## Sources

* Qwen2-VL `preprocessor_config.json` (`max_pixels` 12845056), Qwen3-VL's (`longest_edge` 16777216)
* https://github.com/modelscope/ms-swift/issues/2010, https://github.com/modelscope/ms-swift/issues/2743,
  https://github.com/modelscope/ms-swift/issues/3456
* LLaMA-Factory `hparams/model_args.py:305` (`image_max_pixels`)
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from oomlint.judgement import relief
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity
from oomlint.models.pictures import cut_of
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import ONE_SAMPLE_OF_LF, example, line, llama_factory, mended

_SWIFT = line(
    """
    {env}swift sft --model Qwen/Qwen2-VL-7B-Instruct --dataset our/images.jsonl
    --tuner_type lora --torch_dtype bfloat16 --max_length 4096
    --per_device_train_batch_size 1 --gradient_accumulation_steps 8
    """
)
_LLAMA_FACTORY = llama_factory(
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "cutoff_len: 4096\nimage_max_pixels: {pixels}\n",
    ONE_SAMPLE_OF_LF,
    template="qwen2_vl",
    lora="all",
    dataset="mllm_demo",
)

# Tokens an image, the value that ms-swift's and Qwen's own examples use.
_PROPOSED = 1280
_LARGE = 1_500_000

# Words in the names of data sets that show images: of the 40 sets that ms-swift tags as multimodal 24 have one,
# of its other 156 a set of captions alone (ms-swift 3602360a docs/source_en/Instruction/
# Supported-models-and-datasets.md).
_OF_IMAGES = (
    r"(?i)(?<![a-z])(?:images?|imgs?|pictures?|photos?|screenshots?|vision|visual|multi-?modal|mllm|mm|vlm?"
    r"|[a-z]*vqa|ocr|(?:ref)?coco[a-z]*|llava|(?:share)?gpt4v|captions?|text-?caps|charts?|videos?(?:chat[a-z]*)?)"
    r"(?![a-z])"
)


class VlmPixelsUncapped(Rule, code="OOM108", fixes=Applicability.UNSAFE, cost=8):
    summary = "images are not scaled down before the vision model sees them"
    explains = ("activations",)

    bad = (
        example({"train.sh": _SWIFT.format(env="")}),
        mended("train.yaml", _LLAMA_FACTORY, pixels=(12845056, 1003520)),
    )
    good = (
        example({"train.sh": _SWIFT.format(env="MAX_PIXELS=1003520 ")}),
        example({"train.yaml": _LLAMA_FACTORY.format(pixels=589824)}),
        example(
            {
                "train.sh": _SWIFT.format(env="IMAGE_MAX_TOKEN_NUM=1024 ").replace(
                    "Qwen2-VL-7B", "Qwen3-VL-8B"
                )
            }
        ),
        example(
            {"train.sh": _SWIFT.format(env="MAX_PIXELS=2822400 ")},
            why="a limit that somebody chose, and no machine that it would be too much for",
        ),
        example(
            {"train.sh": _SWIFT.format(env="").replace("Qwen2-VL", "Qwen2.5")},
            why="a model of text alone",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        dims = plan.model.dims
        cut = cut_of(dims) if dims is not None else None
        # What scales each picture to its own limit is told to (Qwen, GLM); Mistral's processor bounds it by itself.
        if cut is None or cut.side or cut.frames == 1 or run.is_fragment:
            return
        # Rollouts of RL and distillation bring their own limits on prompts.
        if plan.objective.kind in ("grpo", "gkd", "ppo", "rloo"):
            return
        if run.block_with(f.model.vision.max_pixels) is None:
            return
        pixels = plan.model.vision.max_pixels
        proposed = _PROPOSED * cut.pixels_a_token
        if pixels is not None and pixels < cut.most and not _dies_of(run, pixels, proposed):
            return
        tokens = (pixels or cut.most) // cut.pixels_a_token
        limit = plan.seq.max_len
        caught = limit is not None and not plan.seq.unbounded and limit < tokens
        what = (
            f"images may have {pixels:,} pixels" if pixels else "nothing limits an image's pixels"
        )
        shown = pixels is not None or _names_images(run)
        yield self.finding(
            run,
            Severity.WARNING if shown and not caught else Severity.INFO,
            f"{what}: up to {tokens:,} tokens each",
            at=(f.model.vision.max_pixels, f.model.id),
            details=(
                *(() if shown else ("that the data show images at all is assumed",)),
                "the vision tower's attention sees four times as many patches, all at once",
                f"{proposed:,} pixels are {_PROPOSED:,} tokens",
            ),
            confidence="medium",
            resource="gpu",
            proposals=[
                Proposal.set(
                    f"scale images down to {proposed} pixels",
                    {f.model.vision.max_pixels: proposed},
                    Applicability.UNSAFE,
                )
            ],
        )


def _dies_of(run: Run, pixels: int, proposed: int) -> bool:
    """Whether a limit that somebody chose, perhaps since the data have coordinates of that size, is why a run dies."""
    found = relief(run, {f.model.vision.max_pixels: proposed}) if pixels > _LARGE else None
    return found is not None and found.is_worthwhile and found.suffices


def _names_images(run: Run) -> bool:
    """Whether the name of a data set says that it shows images."""
    sets = run.plan.data.sets or ()
    return any(re.search(_OF_IMAGES, name.replace("_", "-")) for name in sets)
