"""What predictions rest on, and how firmly findings speak of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.linked import report_of

from oomlint.dialects.unsloth.keys import unsloth
from oomlint.files.workspace import Workspace
from oomlint.fix.planned import with_plans
from oomlint.hardware import parse_hardware
from oomlint.judgement import EVEN, judgement_of
from oomlint.judgement.evidence import evidence_of, moves, rests_on, weakest
from oomlint.judgement.forecast import Risk
from oomlint.judgement.words import basis_words
from oomlint.linting.engine import Options, Report, lint
from oomlint.linting.rule import Applicability, Severity
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.report.runs import evidence_object
from oomlint.report.why import account, render
from oomlint.runs.run import Run

_NODE = "8xA100-80GB"
_SFT = (
    "base_model: {model}\ndatasets:\n  - path: a\nsequence_len: 4096\nmicro_batch_size: {micro}\n"
    "bf16: true\nadapter: lora\nlora_r: 16\nlora_target_linear: true\ngradient_checkpointing: true\n"
)


def _lint(text: str, name: str = "axolotl.yaml", hardware: str = _NODE) -> Report:
    return report_of({name: text}, hardware=hardware, explicit=[name])


def _run(text: str, name: str = "axolotl.yaml", hardware: str = _NODE) -> Run:
    (run,) = _lint(text, name, hardware).runs
    return run


def test_what_files_and_catalogue_say_rests_on_nothing() -> None:
    run = _run(_SFT.format(model="meta-llama/Llama-2-7b-hf", micro=1))
    assert rests_on(run) == ()
    assert evidence_of(run).level <= Level.DEFAULT
    assert weakest(run, "gpu") == (Level.DEFAULT, ())


def test_what_is_missing_is_said_once_whatever_would_have_said_it() -> None:
    """Of a config for DeepSpeed alone the micro batch would follow from three keys."""
    run = _run('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}', "ds_config.json")
    said = [(b.subject, b.why) for b in rests_on(run) if b.path is None]
    assert (f.batch.micro, "the micro batch size is not known") in said
    assert len(said) == len(set(said))


@pytest.mark.parametrize(("micro", "decides"), [(1, False), (16, True), (64, False)])
def test_the_shape_of_a_model_known_by_its_size_decides_only_between_its_bounds(
    micro: int, decides: bool
) -> None:
    run = _run(_SFT.format(model="/models/ours-7b-secret", micro=micro))
    (basis,) = (basis for basis in rests_on(run) if basis.leaf == f.model.dims)
    assert basis.level is Level.UNREAD
    assert basis.key == "base_model"
    assert basis.value == "7B"
    assert basis.swing_bytes
    assert ("gpu" in basis.decides) is decides


def test_what_a_guessed_vocabulary_decides_is_no_more_than_a_note() -> None:
    about = {"gpu-memory-at-risk", "micro-batch-too-large", "logits-materialized-large-vocab"}
    between = _lint(_SFT.format(model="/models/ours-7b-secret", micro=16)).diagnoses
    packed = _SFT.format(model="/models/ours-7b-secret", micro=64) + "sample_packing: true\n"
    surely = _lint(packed).diagnoses
    noted = [d for d in between if d.rule.name in about]
    assert noted
    for diagnosis in noted:
        assert diagnosis.severity is Severity.INFO
        assert diagnosis.finding.evidence is Level.UNREAD
        assert "the model's config.json was not read" in diagnosis.finding.text
    sizes = {d.finding.evidence for d in surely if d.rule.name in about}
    assert sizes == {Level.ASSUMED}  # by each vocabulary it dies, if its name tells its size


_UNREAD_BATCH = (
    "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-2-7b-hf "
    "--per_device_train_batch_size $1 --output_dir out --model_max_length 4096 --bf16 True "
    "--fsdp 'full_shard auto_wrap' --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer "
    "--num_train_epochs 1 --learning_rate 1e-5\n"
)


def test_nobody_calls_open_what_another_calls_too_large() -> None:
    """The report, the run and its fixes go by one verdict."""
    text = _SFT.format(model="/models/ours-7b-secret", micro=16)
    report = _lint(text)
    (run,) = report.runs
    risk = Risk.by(run.estimate, run.limits.gpu_bytes, run.limits.host_bytes)
    assert risk.any >= EVEN
    assert judgement_of(run).verdict == "unknown"
    assert judgement_of(run).risk is None
    planned = with_plans(report, Options(hardware=parse_hardware(_NODE)), Applicability.UNSAFE)
    assert [d.finding for d in planned] == [d.finding for d in report.diagnoses]
    assert not any(diagnosis.is_planned for diagnosis in planned)


def test_a_value_that_only_running_the_script_tells_is_where_evidence_ends() -> None:
    run = _run(_UNREAD_BATCH, "train.sh")
    bases = {basis.leaf: basis for basis in rests_on(run)}
    assert bases[f.batch.micro].level is Level.UNREAD
    assert bases[f.batch.micro].line == 1
    assert evidence_of(run).level is Level.UNREAD


def test_evidence_can_be_written_as_json() -> None:
    run = _run(_SFT.format(model="/models/ours-7b-secret", micro=16))
    written = json.loads(json.dumps(evidence_object(evidence_of(run))))
    assert written["level"] == "unread"
    assert {"field": "model.dims", "value": "7B"}.items() <= written["rests_on"][0].items()


_UNSLOTH = (
    "from unsloth import FastLanguageModel\nfrom trl import SFTConfig, SFTTrainer\n"
    "model, tokenizer = FastLanguageModel.from_pretrained(\n"
    "    'unsloth/Llama-3.2-3B', max_seq_length=2048\n)\n"
    "model = FastLanguageModel.get_peft_model(model, r=16)\n"
    "SFTTrainer(model=model, train_dataset=data, args=SFTConfig(output_dir='out')).train()\n"
)


def test_why_shows_that_a_value_is_stated_and_by_what_it_counts() -> None:
    run = _run(_UNSLOTH, "train.py")
    told = account(run, unsloth.max_len)
    assert told.sentence == "stated, and counts by default: train.py:4  max_seq_length"
    assert told.conditions == (unsloth.tiled_mlp,)
    assert render(run, unsloth.max_len).splitlines()[1:5] == [
        "  unsloth.max_len = 2048  stated, and counts by default",
        "    train.py:4  max_seq_length",
        "    it counts by",
        "      unsloth.tiled_mlp = false  default",
    ]
    named = account(run, f.model.id)
    assert (named.word, named.place) == ("stated", "train.py:4  model_name")


def test_a_model_is_not_tried_with_a_vocabulary_larger_than_itself() -> None:
    run = _run(_SFT.format(model="/models/tiny-20m-secret", micro=1))
    (basis,) = (basis for basis in rests_on(run) if basis.leaf == f.model.dims)
    assert basis.value == "0.02B"
    assert basis.decides == frozenset()


def test_a_run_that_is_tight_only_by_a_guess_is_no_more_than_a_note() -> None:
    """It fits whatever the vocabulary is, so nobody asks whether it does."""
    run = _run(_SFT.format(model="/models/ours-7b-secret", micro=6))
    (basis,) = (basis for basis in rests_on(run) if basis.leaf == f.model.dims)
    assert judgement_of(run).peaks
    assert basis.decides == frozenset()
    assert basis.eases == {"gpu"}
    found = _lint(_SFT.format(model="/models/ours-7b-secret", micro=6)).diagnoses
    assert {d.severity for d in found if d.finding.resource == "gpu"} == {Severity.INFO}


def test_where_no_gpu_is_named_a_guess_is_held_against_the_largest_usual_one() -> None:
    text = _SFT.format(model="/models/ours-7b-secret", micro=16)
    files = Workspace(Path("/project"), {"axolotl.yaml": text.encode()})
    (run,) = lint(files, ["axolotl.yaml"], Options()).runs
    (basis,) = (basis for basis in rests_on(run) if basis.leaf == f.model.dims)
    assert basis.decides == {"gpu"}


_OWN_LENGTHS = """\
from trl import SFTConfig, SFTTrainer
from unsloth import FastLanguageModel

def collate(samples):
    return samples

model, tokenizer = FastLanguageModel.from_pretrained(
    "unsloth/Qwen3-14B", load_in_4bit=False, use_gradient_checkpointing=False
)
model = FastLanguageModel.get_peft_model(model, r=8, use_gradient_checkpointing=False)
trainer = SFTTrainer(
    model=model,
    args=SFTConfig(
        max_length=4096, per_device_train_batch_size=5, packing=True, dataset_kwargs={KWARGS}
    ),
    data_collator=collate,
    train_dataset=data,
)
trainer.train()
"""


@pytest.mark.parametrize(
    ("kwargs", "severity"),
    [("{'skip_prepare_dataset': True}", Severity.INFO), ("{}", Severity.WARNING)],
)
def test_a_finding_without_a_named_gpu_is_no_surer_than_what_it_rests_on(
    kwargs: str, severity: Severity
) -> None:
    text = _OWN_LENGTHS.replace("{KWARGS}", kwargs)
    files = Workspace(Path("/project"), {"train.py": text.encode()})
    found = lint(files, ["train.py"], Options()).diagnoses
    assert [(d.rule.name, d.severity) for d in found] == [("no-gradient-checkpointing", severity)]


def test_a_folder_named_after_a_mixture_may_hold_one_model_cut_into_its_experts() -> None:
    full = _SFT.replace("adapter: lora\nlora_r: 16\nlora_target_linear: true\n", "")
    model = "/models/Mixtral-8x7B-v0.1-Random-8Select2"
    run = _run(full.format(model=model, micro=1) + "deepspeed: deepspeed_configs/zero3.json\n")
    (basis,) = (basis for basis in rests_on(run) if basis.leaf == f.model.dims)
    assert "gpu" in basis.decides


_OWN_DATA_SET = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B-Instruct", torch_dtype="bfloat16")
args = TrainingArguments(
    output_dir="out", per_device_train_batch_size=32, bf16=True, save_strategy="no"
)
trainer = Trainer(model=model, args=args, train_dataset=samples)
trainer.train()
"""


def test_a_length_that_nobody_says_is_no_fact() -> None:
    """The memory model takes 2,048 tokens where no file and no framework limits them."""
    run = _run(_OWN_DATA_SET, "train.py", "1xA100-80GB")
    assert run.plan.seq.max_len is None
    (basis,) = (basis for basis in rests_on(run) if basis.leaf == f.seq.max_len)
    assert (basis.value, basis.level) == (2048, Level.ASSUMED)
    assert "gpu" in basis.decides
    found = _lint(_OWN_DATA_SET, "train.py", "1xA100-80GB").diagnoses
    assert found
    assert all(diagnosis.severity < Severity.ERROR for diagnosis in found)


_FULL = (
    "torchrun --nproc_per_node 8 finetune.py --model_name_or_path {model} --output_dir out "
    "--per_device_train_batch_size 512 --model_max_length 4096 --bf16 True --fsdp full_shard\n"
)


def test_a_model_that_its_name_alone_tells_of_makes_but_a_remark() -> None:
    known = _run(_FULL.format(model="meta-llama/Meta-Llama-3-8B"), "train.sh")
    named = _run(_FULL.format(model="acme/house-llama3-8b-sft"), "train.sh")
    assert named.plan.model.dims == known.plan.model.dims
    assert named.level(f.model.dims) is Level.ASSUMED
    assert max(p.severity for p in judgement_of(known).peaks) is Severity.ERROR
    assert max(p.severity for p in judgement_of(named).peaks) is Severity.INFO
    assert judgement_of(known).written.verdict == "does_not_fit"
    assert judgement_of(named).written.verdict == "tight"
    (basis,) = (b for b in rests_on(named) if b.leaf == f.model.dims)
    assert basis.level is Level.ASSUMED
    assert "its name contains" in basis.why
    # What is open of the known one is as open of the other: it is no consequence of the model.
    others = {b.leaf: b.why for b in rests_on(named) if b is not basis}
    assert others == {b.leaf: b.why for b in rests_on(known)}


def _rests_in_words(files: dict[str, str], config: str) -> list[str]:
    texts = {name: text.encode() for name, text in files.items()}
    report = lint(
        Workspace(Path("/project"), texts), list(files), Options(hardware=parse_hardware(_NODE))
    )
    (run,) = (run for run in report.runs if run.claims[0].path == config)
    return [basis_words(basis) for basis in rests_on(run)]


def test_a_file_that_only_may_count_is_named_and_not_said_to_be_of_another_fields_value() -> None:
    recipe = (
        "model_name_or_path: alignment-handbook/zephyr-7b-sft-full\nbf16: true\nbeta: 0.1\n"
        "max_length: 1024\noutput_dir: out\nper_device_train_batch_size: 1\n"
    )
    words = _rests_in_words(
        {
            "a.sh": "accelerate launch --config_file zero3.yaml run_mine.py configs/a.yaml\n",
            "zero3.yaml": "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\n"
            "mixed_precision: bf16\nnum_machines: 1\nnum_processes: 4\n",
            "configs/a.yaml": recipe,
            "configs/b.yaml": recipe,
        },
        "configs/b.yaml",
    )
    assert "zero3.yaml is taken to count for this run, which no file says" in words
    assert not any("distributed_type" in said or "num_machines" in said for said in words)


def test_the_value_that_is_shown_is_that_of_the_field_named() -> None:
    run = _run(
        "model_name_or_path: Qwen/Qwen2.5-7B\nbf16: true\nbeta: 0.1\nmax_length: 1024\n"
        "output_dir: out\nper_device_train_batch_size: 8\n",
        "train.yaml",
    )
    shown = evidence_object(evidence_of(run))["rests_on"]
    assert shown
    for basis, each in zip(rests_on(run), shown, strict=True):
        assert each["field"] == basis.subject
        if basis.level is Level.ASSUMED:
            assert run.plan.get(basis.subject) in (None, basis.value)


_DTYPE_OF_A_FUNCTION = """\
from own import pick
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B-Instruct", dtype=pick())
args = TrainingArguments(output_dir="out", per_device_train_batch_size=1, gradient_checkpointing=True)
Trainer(model=model, args=args, train_dataset=data).train()
"""


def test_of_a_value_that_nobody_read_the_likeliest_claims_nothing() -> None:
    """In fp32 the states alone are 23 GiB; in bf16, which the function may return as well, it may be enough."""
    report = _lint(_DTYPE_OF_A_FUNCTION, "train.py", "1x13GB")
    assert {d.severity for d in report.diagnoses} == {Severity.INFO}
    (run,) = report.runs
    assert judgement_of(run).verdict == "unknown"
    assert weakest(run, "gpu")[0] is Level.UNREAD


@pytest.mark.parametrize(
    ("model", "pixels"),
    [
        # A photo of COCO, a page of A4 at 200 dots an inch, and what the processor lets through.
        ("Qwen/Qwen2-VL-7B-Instruct", [1_003_520, 307_200, 3_868_706, 12_845_056]),
        ("Qwen/Qwen3-VL-8B-Instruct", [1_003_520, 307_200, 3_868_706, 16_777_216]),
        ("mistral-community/pixtral-12b", [1_003_520, 307_200, 1_048_576]),
    ],
)
def test_images_that_nothing_scales_down_are_tried_at_other_sizes(
    model: str, pixels: list[int]
) -> None:
    command = (
        f"swift sft --model {model} --dataset a --train_type lora --torch_dtype bfloat16"
        " --max_length {length} --per_device_train_batch_size 1\n"
    )
    tried = {}
    for length in (2048, 32_768):
        run = _run(command.format(length=length), "run.sh")
        (basis,) = (each for each in rests_on(run) if each.leaf == f.model.vision.max_pixels)
        assert basis.level is Level.ASSUMED
        assert basis.value == pixels[0]
        _, most = basis.otherwise["gpu"]
        own = run.estimate.gpu.peak_bytes or 0
        tried[length] = most - own
        assert [value for value, _ in moves(run, f.model.vision.max_pixels)] == pixels[1:]
    # The more a sample may have, the larger an image in it may be.
    assert tried[32_768] >= tried[2048]


def test_pictures_that_are_cut_into_tiles_have_no_size_of_their_own() -> None:
    run = _run(
        "swift sft --model OpenGVLab/InternVL3-8B --dataset a --train_type lora --max_length 4096\n",
        "run.sh",
    )
    assert all(basis.leaf != f.model.vision.max_pixels for basis in rests_on(run))
