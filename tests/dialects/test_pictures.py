"""How frameworks are told how large pictures may be, and into how many tiles they are cut."""

from __future__ import annotations

import pytest
from tests.linked import link

from oomlint.plan.model import Vision
from oomlint.runs.run import Run

SWIFT = "{env}swift sft --model {model} --dataset a --tuner_type lora --torch_dtype bfloat16 --max_length 4096{more}\n"
FACTORY = """\
model_name_or_path: {model}
stage: sft
do_train: true
finetuning_type: lora
dataset: mllm_demo
template: x
cutoff_len: 4096
output_dir: saves/x
bf16: true
"""
SCRIPT = """\
from transformers import AutoModelForImageTextToText, AutoProcessor, Trainer, TrainingArguments
SIDE = 28
model = AutoModelForImageTextToText.from_pretrained("Qwen/Qwen2.5-VL-3B-Instruct")
{processor}
args = TrainingArguments("out", per_device_train_batch_size=1)
Trainer(model=model, args=args, train_dataset=data).train()
"""


def _vision(files: dict[str, str]) -> Vision:
    run: Run
    (run,) = link(files).runs
    return run.plan.model.vision


@pytest.mark.parametrize(
    ("model", "env", "more", "pixels", "tiles"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", "MAX_PIXELS=1003520 ", "", 1003520, None),
        # A token is 28 x 28 pixels, 32 x 32 from Qwen3-VL on; a number of tokens goes before one of pixels.
        ("Qwen/Qwen2.5-VL-7B-Instruct", "IMAGE_MAX_TOKEN_NUM=1024 ", "", 1024 * 28 * 28, None),
        ("Qwen/Qwen3-VL-8B-Instruct", "IMAGE_MAX_TOKEN_NUM=1024 MAX_PIXELS=99 ", "", 1024 * 32 * 32, None),
        ("Qwen/Qwen3-VL-8B-Instruct", "", " --max_pixels 4000", 4000, None),
        # Only qwen_vl_utils reads these variables.
        ("zai-org/GLM-4.1V-9B-Base", "MAX_PIXELS=1003520 ", "", None, None),
        ("zai-org/GLM-4.1V-9B-Base", "MAX_PIXELS=99 ", " --max_pixels 4000", 4000, None),
        ("OpenGVLab/InternVL3-8B", "MAX_NUM=6 MAX_SLICE_NUMS=4 IMAGE_MAX_TOKEN_NUM=8 ", "", None, 6),
        ("openbmb/MiniCPM-o-2_6", "MAX_NUM=6 MAX_SLICE_NUMS=4 ", "", None, 4),
        ("openbmb/MiniCPM-o-2_6", "", "", None, None),
    ],
)  # fmt: skip
def test_ms_swift_reads_variables_that_the_models_template_asks_for(
    model: str, env: str, more: str, pixels: int | None, tiles: int | None
) -> None:
    vision = _vision({"run.sh": SWIFT.format(env=env, model=model, more=more)})
    assert (vision.max_pixels, vision.max_tiles) == (pixels, tiles)


@pytest.mark.parametrize(
    ("model", "more", "tiles"),
    [
        ("OpenGVLab/InternVL3-8B-hf", "", 1),
        ("OpenGVLab/InternVL3-8B-hf", "crop_to_patches: true\n", 12),
        ("google/gemma-3-4b-it", "", None),
        ("google/gemma-3-4b-it", "image_do_pan_and_scan: true\n", 4),
        ("google/gemma-3-4b-it", "crop_to_patches: true\n", None),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "crop_to_patches: true\n", None),
    ],
)
def test_llama_factory_cuts_no_picture_unless_it_is_told_to(
    model: str, more: str, tiles: int | None
) -> None:
    vision = _vision({"a.yaml": FACTORY.format(model=model) + more})
    assert vision.max_tiles == tiles
    assert vision.max_pixels == 768 * 768


@pytest.mark.parametrize(
    ("processor", "pixels"),
    [
        ("p = AutoProcessor.from_pretrained('q', max_pixels=1280 * SIDE**2)", 1280 * 28 * 28),
        ("p = AutoProcessor.from_pretrained('q')", None),
        ("p = AutoProcessor.from_pretrained('q', max_pixels=data.pixels)", None),
        ("p = AutoTokenizer.from_pretrained('q', max_pixels=4)", None),
        (
            (
                "p = AutoProcessor.from_pretrained('q', max_pixels=4)\n"
                "o = AutoProcessor.from_pretrained('q', max_pixels=5)"
            ),
            None,
        ),
        (
            (
                "p = AutoProcessor.from_pretrained('q', max_pixels=4)\n"
                "o = Qwen2VLProcessor.from_pretrained('q', max_pixels=4)"
            ),
            4,
        ),
    ],
)
def test_a_script_tells_its_processor(processor: str, pixels: int | None) -> None:
    assert _vision({"train.py": SCRIPT.format(processor=processor)}).max_pixels == pixels


@pytest.mark.parametrize(
    ("option", "pixels"), [("", 16384 * 28 * 28), (" --max_pixels 2116800", 2_116_800)]
)
def test_a_command_says_more_than_the_default_of_the_scripts_option(
    option: str, pixels: int
) -> None:
    script = SCRIPT.format(
        processor=(
            "parser = argparse.ArgumentParser()\n"
            "parser.add_argument('--max_pixels', type=int, default=16384 * 28 * 28)\n"
            "opts = parser.parse_args()\n"
            "p = AutoProcessor.from_pretrained('q', max_pixels=opts.max_pixels)"
        )
    )
    files = {"train.py": f"import argparse\n{script}", "run.sh": f"python train.py{option}\n"}
    assert _vision(files).max_pixels == pixels


@pytest.mark.parametrize(
    ("release", "more", "beside"),
    [
        # Compared with the text alone, image and all placeholders (3.3.0 template/base.py _encode), then with all
        # (3.3.1 encode); samples that are cut are so before the image is put in until 3.4.
        ("2.6.1", "", True),
        ("3.2.1", "", True),
        ("3.3.0", "", True),
        ("3.3.1", "", False),
        ("3.3.1", " --truncation_strategy right", True),
        ("3.4.1", " --truncation_strategy left", False),
        ("3.8.0", "", False),
        # Packs are filled with what samples have become.
        ("3.2.1", " --packing true", None),
    ],
)
def test_older_ms_swift_limits_samples_before_images_become_tokens(
    release: str, more: str, beside: bool | None
) -> None:
    line = SWIFT.format(env="", model="Qwen/Qwen2-VL-7B-Instruct", more=more)
    files = {"run.sh": line, "requirements.txt": f"ms-swift=={release}\n"}
    assert _vision(files).beside_limit is beside


def test_a_model_of_text_alone_has_no_images_beside_its_limit() -> None:
    line = SWIFT.format(env="", model="Qwen/Qwen2.5-7B-Instruct", more="")
    assert _vision({"run.sh": line, "requirements.txt": "ms-swift==3.2.1\n"}).beside_limit is None
