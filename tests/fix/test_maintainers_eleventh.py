"""What an eleventh reading of diffs in public repositories found; the projects here are written anew."""

from __future__ import annotations

import pytest
from tests.fixing import repaired
from tests.linked import link

_FOUR_ON_TWO = (
    "BATCH=$(cat batch.txt)\nSTEPS=$(cat steps.txt)\n"
    "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 4 train.py {options} --bf16 True\n"
)
_PARSED = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments
from ours import model_of
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
Trainer(model=model_of(), args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("options", "becomes", "said"),
    [
        ("--gradient_accumulation_steps 3", "--gradient_accumulation_steps 6", "over 6 micro"),
        ("--gradient_accumulation_steps $STEPS", "$STEPS", "with 1/2 of the global batch"),
    ],
)
def test_fewer_processes_keep_a_batch_that_nobody_knows_or_say_what_becomes_of_it(
    options: str, becomes: str, said: str
) -> None:
    batch = f"--output_dir out --per_device_train_batch_size $BATCH {options}"
    command = _FOUR_ON_TWO.format(options=batch)
    result = repaired({"train.py": _PARSED, "run.sh": command}, unsafe=True)
    (applied,) = (d for d in result.report.applied if d.rule.code == "OOM706")
    assert applied.fix is not None
    assert said in applied.fix.title
    text = result.texts["run.sh"].decode()
    assert "--nproc_per_node 2" in text
    assert becomes in text


_TRL = """\
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser
parser = TrlParser((SFTConfig, ModelConfig))
args, model_args = parser.parse_args_and_config()
print(args.{key})
{more}SFTTrainer(model=model_args.model_name_or_path, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("more", "is_mended"), [("", True), ("report(lambda: args.max_seq_length)\n", False)]
)
def test_code_asks_for_what_the_pinned_release_calls_otherwise(more: str, is_mended: bool) -> None:
    command = "python sft.py --output_dir out --model_name_or_path Qwen/Qwen2.5-0.5B --{key} 512\n"
    files = {
        "sft.py": _TRL.format(key="max_seq_length", more=more),
        "run.sh": command.format(key="max_seq_length"),
        "requirements.txt": "trl==0.21.0\n",
    }
    texts = repaired(files, unsafe=True).texts
    # The option is mended whatever the code asks for, on request where the program stops at that.
    assert ("run.sh" in repaired(files).texts) is is_mended
    assert texts["run.sh"].decode() == command.format(key="max_length")
    code = texts.get("sft.py", b"").decode()
    assert (code == _TRL.format(key="max_length", more=more)) is is_mended


_METRICS = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B", torch_dtype="bfloat16")
args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=4,
    per_device_eval_batch_size=8,
    gradient_checkpointing=True,
    bf16=True,{argument}
    eval_strategy="steps",
)
Trainer(
    model=model, args=args, train_dataset=train, eval_dataset=held_out, compute_metrics=accuracy
).train()
"""


@pytest.mark.parametrize(
    ("argument", "is_moved"), [("", True), ("\n    no_such_argument=1,", False)]
)
def test_logits_stay_where_another_error_stops_the_run(argument: str, is_moved: bool) -> None:
    files = {"train.py": _METRICS.format(argument=argument)}
    result = repaired(files, hardware="1xRTX-4090-24GB", unsafe=True)
    text = result.texts.get("train.py", b"").decode()
    assert ("eval_accumulation_steps=1" in text) is is_moved


_QUANTIZED = """\
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, HfArgumentParser, TrainingArguments
from trl import DPOTrainer

@dataclass
class ScriptArguments:
    beta: float = 0.1

(own,) = HfArgumentParser(ScriptArguments).parse_args_into_dataclasses()
{before}model = AutoModelForCausalLM.from_pretrained(
    "bigcode/starcoder2-3b",
    quantization_config=BitsAndBytesConfig(load_in_4bit=True),
    device_map="auto",
)
{behind}DPOTrainer(model, args=args, beta=own.beta, train_dataset=pairs).train()
"""
_ARGUMENTS = 'args = TrainingArguments("out", bf16=True, per_device_train_batch_size=1)\n'


@pytest.mark.parametrize(
    ("before", "behind", "is_removed"), [("", _ARGUMENTS, False), (_ARGUMENTS, "", True)]
)
def test_a_parser_of_a_scripts_own_options_picks_no_card(
    before: str, behind: str, is_removed: bool
) -> None:
    code = _QUANTIZED.format(before=before, behind=behind)
    files = {"train.py": code, "run.sh": "accelerate launch --num_processes 4 train.py\n"}
    after = repaired(files, hardware="4xA100-80GB").texts.get("train.py", code.encode()).decode()
    assert ("device_map" not in after) is is_removed


_SHARDED = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
args = TrainingArguments(
    output_dir="out", fsdp="full_shard auto_wrap", fsdp_config="fsdp.json", save_only_model=True
)
Trainer(model=model, args=args, train_dataset=rows).train()
"""


@pytest.mark.parametrize(("release", "is_refused"), [("4.46.1", False), ("5.23.0", True)])
def test_how_fsdp_saves_is_read_from_the_release_on_that_reads_it(
    release: str, is_refused: bool
) -> None:
    files = {
        "train.py": _SHARDED,
        "fsdp.json": '{"fsdp_state_dict_type": "SHARDED_STATE_DICT"}\n',
        "run.sh": "torchrun --nproc_per_node 4 train.py\n",
        "requirements.txt": f"transformers=={release}\n",
    }
    result = repaired(files, unsafe=True)
    found = {d.rule.code for d in (*result.report.applied, *result.report.diagnoses)}
    assert ("OOM507" in found) is is_refused


@pytest.mark.parametrize(
    ("start", "is_given"), [("torchrun --nproc_per_node 4", True), ("python", False)]
)
def test_a_container_of_one_process_gets_no_room_for_what_ranks_share(
    start: str, is_given: bool
) -> None:
    compose = (
        "services:\n  tune:\n    image: trainer\n"
        f"    command: {start} train.py\n"
        "    deploy: {resources: {reservations: {devices: "
        "[{driver: nvidia, count: all, capabilities: [gpu]}]}}}\n"
    )
    code = _METRICS.format(argument="").replace(", compute_metrics=accuracy", "")
    files = {"train.py": code, "docker-compose.yml": compose}
    result = repaired(files, hardware="4xRTX-4090-24GB")
    assert ("docker-compose.yml" in result.texts) is is_given


@pytest.mark.parametrize(("more", "is_known"), [("", False), ("micro_batch_size: 4\n", True)])
def test_a_model_and_its_epochs_are_no_config_of_axolotl(more: str, is_known: bool) -> None:
    config = f"base_model: mistralai/Mistral-7B-v0.1\nnum_epochs: 3\nbatch_size: 4\n{more}"
    assert bool(link({"train.yaml": config}).runs) is is_known


_STAGE_2 = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}\n'


@pytest.mark.parametrize(("config", "is_given"), [("./ds.json", False), ("../ds.json", True)])
def test_nothing_is_changed_for_a_command_that_starts_from_no_folder(
    config: str, is_given: bool
) -> None:
    code = (
        "from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
        "(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\n"
        'model = AutoModelForCausalLM.from_pretrained("openlm-research/open_llama_13b")\n'
        "Trainer(model=model, args=args, train_dataset=data).train()\n"
    )
    command = (
        f"deepspeed --num_gpus 8 ../src/train.py --deepspeed {config} --output_dir out --bf16 True "
        "--per_device_train_batch_size 1 --gradient_checkpointing True\n"
    )
    files = {"src/train.py": code, "scripts/run.sh": command, "ds.json": _STAGE_2}
    result = repaired(files, "scripts/run.sh", hardware="8xA100-40GB")
    assert bool(result.texts) is is_given
