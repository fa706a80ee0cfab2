"""Scripts that train in a loop of their own: what is one, what its calls say, where fixes go."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fixing import fixed
from tests.linked import link, run_of

from oomlint.dialects import registry
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.judgement.plausible import plausible_of
from oomlint.memory import state_bytes
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_ACCELERATE = """\
import argparse

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="meta-llama/Llama-2-7b-hf")
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--gradient-checkpointing", action="store_true")
args = parser.parse_args()

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=8)
tokenizer = AutoTokenizer.from_pretrained(args.model)
model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
if args.gradient_checkpointing:
    model.gradient_checkpointing_enable()


def tokenize(rows):
    return tokenizer(rows["text"], truncation=True, max_length=2048)


loader = DataLoader(data.map(tokenize), batch_size=args.batch_size, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
"""
_ZERO_3 = """\
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 3}
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""


def _run(text: str, **options: str) -> Run:
    return run_of({"train.py": text}, hardware="8xA100-80GB", **options)


def _claimed(text: str) -> list[str]:
    workspace = Workspace(Path("/x"), {"train.py": text.encode()})
    claims = Linker(workspace, registry(), LinkOptions()).claims("train.py")
    return [claim.dialect.name for claim in claims]


# -- what is one -----------------------------------------------------------------------------------


def test_a_loop_is_a_run_of_the_library_that_runs_backward() -> None:
    run = _run(_ACCELERATE)
    assert run.framework == "accelerate"
    assert run.plan.model.id == "meta-llama/Llama-2-7b-hf"


@pytest.mark.parametrize(
    "text",
    [
        # nothing runs backward
        _ACCELERATE.replace("        accelerator.backward(loss)\n", ""),
        # no optimizer steps: gradients are looked at
        _ACCELERATE.replace("        optimizer.step()\n", ""),
        # models of images
        _ACCELERATE.replace(
            "import torch\n", "import torch\nfrom diffusers import DDPMScheduler\n"
        ),
        _ACCELERATE.replace("AutoModelForCausalLM", "CLIPModel"),
        # a config that is joined out of sight
        _ACCELERATE.replace("import torch\n", "import hydra\nimport torch\n"),
        # two models, of which nothing tells what they are to each other
        _ACCELERATE.replace(
            "loader = ", 'teacher = AutoModelForCausalLM.from_pretrained("gpt2")\nloader = '
        ),
    ],
)
def test_what_is_no_loop_that_can_be_read(text: str) -> None:
    assert text != _ACCELERATE
    assert _claimed(text) == []


def test_a_script_over_the_trainer_stays_the_trainers() -> None:
    trainer = (
        "from transformers import Trainer, TrainingArguments\n"
        'arguments = TrainingArguments("out", per_device_train_batch_size=2)\n'
        "Trainer(model=model, args=arguments, train_dataset=data).train()\n"
    )
    assert _claimed(_ACCELERATE + trainer) == ["hf-trainer"]


def test_evaluation_that_loads_the_model_again_is_no_second_one() -> None:
    again = '\nbest = AutoModelForCausalLM.from_pretrained("out")\nbest.generate(prompt)\n'
    assert _run(_ACCELERATE + again).plan.model.id == "meta-llama/Llama-2-7b-hf"


# -- what its calls say ----------------------------------------------------------------------------


def test_what_the_calls_of_a_loop_say() -> None:
    plan = _run(_ACCELERATE).plan
    assert (plan.batch.micro, plan.batch.grad_accum, plan.seq.max_len) == (4, 8, 2048)
    assert (plan.optimizer.kind, plan.trainable.method) == ("adamw", "full")
    assert (plan.precision.param, plan.precision.compute) == ("bf16", "bf16")
    assert plan.checkpointing.mode == "none"


def test_the_command_says_what_the_options_are_that_the_calls_take() -> None:
    files = {
        "train.py": _ACCELERATE,
        "zero3.yaml": _ZERO_3,
        "run.sh": "accelerate launch --config_file zero3.yaml train.py --batch-size 2"
        " --gradient-checkpointing --model Qwen/Qwen2.5-7B\n",
    }
    run = run_of(files)
    plan = run.plan
    assert (plan.model.id, plan.batch.micro) == ("Qwen/Qwen2.5-7B", 2)
    assert plan.checkpointing.mode == "full"
    assert (plan.parallel.backend, plan.parallel.zero.stage, plan.parallel.world) == ("zero", 3, 8)


def test_an_option_that_no_call_takes_says_nothing() -> None:
    command = (
        "accelerate launch --num_processes 8 train.py --per_device_train_batch_size 64"
        " --num_train_epochs 1 --learning_rate 1e-5 --output_dir out\n"
    )
    assert run_of({"train.py": _ACCELERATE, "run.sh": command}).plan.batch.micro == 4


def test_options_of_the_scripts_own_parser_are_its_own_whatever_they_are_called() -> None:
    script = _ACCELERATE.replace(
        "args = parser",
        "".join(
            f"parser.add_argument('--{name}', default={default!r})\n"
            for name, default in (
                ("output_dir", "out"), ("bf16", True), ("warmup_ratio", 0.1), ("log_steps", 10),
                ("save_steps", 50), ("eval_steps", 50), ("gradient_accumulation_steps", 4),
            )
        )
        + "args = parser",
    ).replace("torch_dtype=torch.bfloat16", "torch_dtype=torch.bfloat16 if args.bf16 else torch.float32")  # fmt: skip
    line = (
        "torchrun --nproc_per_node 8 train.py --output_dir out --gradient_accumulation_steps 4"
        " --save_steps 50 --eval_steps 50 --warmup_ratio 0.1 --log_steps 10 --bf16 1\n"
    )
    run = run_of({"train.py": script, "run.sh": line})
    assert (run.plan.load.dtype, run.level(f.load.dtype)) == ("bf16", Level.STATED)
    assert not run.misspelt


def test_how_an_accelerator_is_launched_is_open_where_no_line_does() -> None:
    run = _run(_ACCELERATE)
    assert run.level(f.parallel.backend) is Level.UNREAD
    line = {"train.py": _ACCELERATE, "run.sh": "accelerate launch --num_processes 8 train.py\n"}
    whole = run_of(line)
    assert (whole.plan.parallel.backend, whole.plan.parallel.world) == ("ddp", 8)
    assert whole.level(f.parallel.backend) is Level.DEFAULT
    told = {**line, "run.sh": "accelerate launch --multi_gpu --num_processes 8 train.py\n"}
    assert run_of(told).plan.parallel.backend == "ddp"
    alone = _run(
        _ACCELERATE.replace(
            "Accelerator(", "Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=2), "
        )
    )
    assert (alone.plan.parallel.backend, alone.plan.parallel.zero.stage) == ("zero", 2)
    assert alone.level(f.parallel.backend) < Level.ASSUMED


def test_what_a_function_is_given_is_followed_to_the_call() -> None:
    text = _ACCELERATE.replace(
        "loader = DataLoader(data.map(tokenize), batch_size=args.batch_size, shuffle=True)",
        "def batches(rows, size):\n    return DataLoader(rows, batch_size=size)\n\n\n"
        "loader = batches(data.map(tokenize), args.batch_size)",
    )
    assert _run(text).plan.batch.micro == 4
    with_line = run_of({"train.py": text, "run.sh": "accelerate launch train.py --batch-size 3\n"})
    assert with_line.plan.batch.micro == 3


def test_a_branch_that_only_running_takes_is_open() -> None:
    text = _ACCELERATE.replace("if args.gradient_checkpointing:", "if torch.cuda.is_available():")
    assert _run(text).level(f.checkpointing.mode) is Level.UNREAD


def test_of_alternatives_the_one_counts_that_the_options_lead_to() -> None:
    text = _ACCELERATE.replace(
        "model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)\n",
        "quantization = BitsAndBytesConfig(load_in_4bit=True)\n"
        "if args.qlora:\n"
        "    model = AutoModelForCausalLM.from_pretrained(args.model, quantization_config=quantization)\n"
        "    model = get_peft_model(model, LoraConfig(r=16))\n"
        "else:\n"
        "    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)\n",
    ).replace("args = ", 'parser.add_argument("--qlora", action="store_true")\nargs = ')
    plan = _run(text).plan
    assert (plan.quant.method, plan.trainable.method) == ("none", "full")
    asked = run_of({"train.py": text, "run.sh": "accelerate launch train.py --qlora\n"}).plan
    assert (asked.quant.method, asked.trainable.method) == ("bnb4", "qlora")


@pytest.mark.parametrize(
    ("chosen", "plain", "asked"),
    [
        ("BitsAndBytesConfig(load_in_4bit=True) if args.small else None", "none", "bnb4"),
        ("None if args.small else BitsAndBytesConfig(load_in_4bit=True)", "bnb4", "none"),
        ("BitsAndBytesConfig(load_in_8bit=True)", "bnb8", "bnb8"),
    ],
)
def test_an_option_decides_whether_the_model_is_quantized(
    chosen: str, plain: str, asked: str
) -> None:
    text = _ACCELERATE.replace(
        "from_pretrained(args.model, torch_dtype=torch.bfloat16)\n",
        f"from_pretrained(args.model, quantization_config={chosen})\n",
    ).replace("args = ", 'parser.add_argument("--small", action="store_true")\nargs = ')
    assert _run(text).plan.quant.method == plain
    launched = {"train.py": text, "run.sh": "accelerate launch train.py --small\n"}
    assert run_of(launched).plan.quant.method == asked


def test_of_alternatives_that_take_one_option_the_command_fills_the_one_that_it_leads_to() -> None:
    text = (
        _ACCELERATE.replace('"--model", default="meta-llama/Llama-2-7b-hf"', '"--model"')
        .replace(
            "model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)\n",
            "if args.liger:\n"
            "    model = AutoLigerKernelForCausalLM.from_pretrained(args.model)\n"
            "else:\n"
            "    model = AutoModelForCausalLM.from_pretrained(args.model)\n",
        )
        .replace("args = ", 'parser.add_argument("--liger", action="store_true")\nargs = ')
    )
    for switch in ("", "--liger"):
        line = f"accelerate launch train.py --model Qwen/Qwen2.5-7B {switch}\n"
        assert run_of({"train.py": text, "run.sh": line}).plan.model.id == "Qwen/Qwen2.5-7B"


_SWITCH = 'parser.add_argument("--gradient-checkpointing", action="store_true")\n'
_OFF_TWIN = """\
parser.add_argument("--gradient-checkpointing", action="store_true", default=True)
parser.add_argument("--no-gradient-checkpointing", dest="gradient_checkpointing", action="store_false")
"""
_BOTH = """\
parser.add_argument("--gradient-checkpointing", action=argparse.BooleanOptionalAction, default=True)
"""


@pytest.mark.parametrize("twins", [_OFF_TWIN, _BOTH])
def test_a_switch_is_on_by_its_default_until_its_twin_is_given(twins: str) -> None:
    text = _ACCELERATE.replace(_SWITCH, twins)
    assert _run(text).plan.checkpointing.mode == "full"
    for option, mode in (("", "full"), ("--no-gradient-checkpointing", "none")):
        line = f"accelerate launch train.py {option}\n"
        run = run_of({"train.py": text, "run.sh": line})
        assert run.plan.checkpointing.mode == mode


def test_a_length_that_is_only_named_so_is_assumed() -> None:
    text = _ACCELERATE.replace("truncation=True, max_length=2048", "").replace(
        "args = ", 'parser.add_argument("--max-seq-length", type=int, default=4096)\nargs = '
    )
    run = _run(text)
    assert (run.plan.seq.max_len, run.level(f.seq.max_len)) == (4096, Level.ASSUMED)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (
            "loss = model(**batch).loss",
            "loss = grpo(model(**batch).logits, batch)",
            f.objective.kind,
        ),
        (
            "optimizer = ",
            "for weight in model.parameters():\n    weight.requires_grad = False\noptimizer = ",
            f.trainable.method,
        ),
        ("for batch in", "apply_seq_parallel_monkey_patch(model)\nfor batch in", f.parallel.cp),
    ],
)
def test_what_code_of_its_own_does_is_open(old: str, new: str, field: str) -> None:
    assert _run(_ACCELERATE).level(field) is not Level.UNREAD
    assert _run(_ACCELERATE.replace(old, new)).level(field) is Level.UNREAD


_BY_NAME = """\
kept = ["layers.30.", "layers.31."]
for name, weight in model.named_parameters():
    if not any(part in name for part in kept):
        weight.requires_grad = False
optimizer = """


@pytest.mark.parametrize(
    "loop",
    [
        _BY_NAME,
        _BY_NAME.replace("    if not any(part in name for part in kept):\n    ", "").replace(
            "= False", "= any(part in name for part in kept)"
        ),
    ],
)
def test_a_loop_over_names_says_what_is_left_to_train(loop: str) -> None:
    run = _run(_ACCELERATE.replace("optimizer = ", loop, 1))
    assert run.level(f.trainable.method) is not Level.UNREAD
    assert (run.plan.trainable.method, run.plan.trainable.names) == (
        "freeze",
        (r".*layers\.30\.", r".*layers\.31\."),
    )
    states = state_bytes(run.plan)
    # Llama-2 7B has 32 blocks of 202,383,360 parameters.
    assert states is not None
    assert states.gradients == 2 * 202_383_360 * 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kept = [", "kept = open(path).read().split() or ["),
        ("for name", "if args.gradient_checkpointing:\n  for name"),
        ("in name for", "in other for"),
        ("optimizer = ", "model.lm_head.requires_grad_(args.head)\noptimizer = "),
        ("requires_grad = False", "requires_grad = False\n    print(name, weight.shape)"),
    ],
)
def test_a_loop_over_names_that_may_do_otherwise_is_open(old: str, new: str) -> None:
    loop = _BY_NAME.replace(old, new, 1)
    run = _run(_ACCELERATE.replace("optimizer = ", loop, 1))
    assert run.level(f.trainable.method) is Level.UNREAD
    assert run.plan.trainable.names is None


_HEAD_ALONE = """\
for weight in model.parameters():
    weight.requires_grad = False
for weight in model.lm_head.parameters():
    weight.requires_grad = True
optimizer = """


@pytest.mark.parametrize(
    "freeze",
    [
        _HEAD_ALONE,
        "model.requires_grad_(False)\nmodel.lm_head.requires_grad_(True)\noptimizer = ",
        _HEAD_ALONE.replace("weight.requires_grad = True", "weight.requires_grad_(True)"),
    ],
)
def test_what_is_switched_on_again_behind_all_is_left_to_train(freeze: str) -> None:
    run = _run(_ACCELERATE.replace("optimizer = ", freeze, 1))
    assert (run.plan.trainable.method, run.plan.trainable.names) == ("freeze", (r".*lm_head\.",))
    states = state_bytes(run.plan)
    # Llama-2 7B has an output projection of 32,000 x 4,096.
    assert states is not None
    assert states.gradients == 32_000 * 4_096 * 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model.lm_head.p", "model.model.norm.p"),
        ("for weight in model.lm_head", "if args.head:\n  for weight in model.lm_head"),
        ("requires_grad = True", "requires_grad = args.head"),
        ("optimizer = ", "for layer in last(model):\n    layer.requires_grad_(True)\noptimizer = "),
    ],
)
def test_what_else_is_switched_on_again_is_open(old: str, new: str) -> None:
    run = _run(_ACCELERATE.replace("optimizer = ", _HEAD_ALONE.replace(old, new, 1), 1))
    assert run.level(f.trainable.method) is Level.UNREAD
    # What is left may be the end of the model.
    assert {f.trainable.method: "freeze", f.trainable.last_layers: 1} in plausible_of(
        run, f.trainable.method
    )


@pytest.mark.parametrize(
    ("call", "body", "is_open"),
    [
        ("adapt(model, r=16)", "weight.requires_grad_(False)", True),
        ("adapt(model, r=16)", "weight.requires_grad = 'lora' in name", True),
        ("adapt(model, r=16)", "weight.requires_grad = True", False),
        ("adapt(model, r=16)", "print(name, weight.shape)", False),
        ("reference = adapt(model, r=16)", "weight.requires_grad_(False)", False),
        ("adapt(tokenizer, r=16)", "weight.requires_grad_(False)", False),
    ],
)
def test_a_function_of_another_file_may_choose_what_is_trained(
    call: str, body: str, is_open: bool
) -> None:
    script = "from adapters import adapt\n" + _ACCELERATE.replace(
        "optimizer = torch", f"{call}\noptimizer = torch"
    )
    adapters = (
        f"def adapt(model, r):\n    for name, weight in model.named_parameters():\n        {body}\n"
    )
    run = run_of({"train.py": script, "adapters.py": adapters}, "train.py")
    assert (run.level(f.trainable.method) is Level.UNREAD) is is_open


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ("bnb.optim.PagedAdamW8bit(model.parameters())", "paged_adamw8bit"),
        ("bnb.optim.AdamW(model.parameters(), optim_bits=8)", "adamw8bit"),
        ("DeepSpeedCPUAdam(model.parameters())", "adamw"),
        ("torch.optim.SGD(model.parameters(), lr=1)", "sgd"),
        ("make_optimizer(model)", "adamw"),
    ],
)
def test_optimizers_by_their_class(made: str, kind: str) -> None:
    run = _run(_ACCELERATE.replace("torch.optim.AdamW(model.parameters(), lr=1e-5)", made))
    assert run.plan.optimizer.kind == kind
    assert (run.level(f.optimizer.kind) is Level.ASSUMED) is made.startswith("make")


# -- plain torch -----------------------------------------------------------------------------------

_FSDP = """\
import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", torch_dtype=torch.float32)
policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Layer})
model = FSDP(
    model,
    auto_wrap_policy=policy,
    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
loader = DataLoader(data, batch_size=2)
for batch in loader:
    outputs = model(**batch)
    outputs.loss.backward()
    optimizer.step()
"""


def test_fsdp_keeps_its_shards_in_the_dtype_that_was_loaded() -> None:
    plan = run_of({"train.py": _FSDP, "run.sh": "torchrun --nproc_per_node 8 train.py\n"}).plan
    assert (plan.parallel.backend, plan.parallel.fsdp.wrap) == ("fsdp1", "transformer")
    assert (plan.precision.param, plan.precision.compute, plan.precision.comm) == (
        "fp32",
        "bf16",
        "fp32",
    )
    assert plan.precision.autocast is False
    assert plan.loss.outputs_kept is True


_OF_BF16 = (
    "    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),\n"
)


@pytest.mark.parametrize(
    ("policy", "gathered", "reduced"),
    [
        ("", "fp32", "fp32"),
        ("    mixed_precision=None,\n", "fp32", "fp32"),
        ("    mixed_precision=MixedPrecision(reduce_dtype=torch.bfloat16),\n", "fp32", "bf16"),
        ("    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),\n", "bf16", "bf16"),
        ("    mixed_precision=policy_of(args),\n", None, "bf16"),
    ],
)
def test_autocast_leaves_what_fsdp_gathers_as_it_is_stored(
    policy: str, gathered: str | None, reduced: str
) -> None:
    text = _FSDP.replace(_OF_BF16, policy).replace(
        "    outputs = model(**batch)\n",
        "    with torch.autocast('cuda', dtype=torch.bfloat16):\n        outputs = model(**batch)\n",
    )
    plan = run_of({"train.py": text, "run.sh": "torchrun --nproc_per_node 8 train.py\n"}).plan
    dtypes = plan.precision
    assert (dtypes.param, dtypes.compute, dtypes.autocast) == ("fp32", "bf16", True)
    assert (dtypes.gathered, dtypes.comm) == (gathered, reduced)


_CLEARED_LATE = """\
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in torch.utils.data.DataLoader(data, batch_size=2):
    loss = model(**batch).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_gradients_that_go_between_forward_and_backward_are_there_in_forward() -> None:
    assert _run(_CLEARED_LATE).plan.optimizer.clears_late is True
    clear, loss = "    optimizer.zero_grad()\n", "    loss = model(**batch).loss\n"
    first = _CLEARED_LATE.replace(loss + clear, clear + loss)
    assert _run(first).plan.optimizer.clears_late is None
    assert _run(_CLEARED_LATE + clear).plan.optimizer.clears_late is None
    after = _CLEARED_LATE.replace(clear, "").replace("step()\n", "step()\n" + clear)
    assert _run(after).plan.optimizer.clears_late is None


_OWN_CROSS_ENTROPY = """\
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", torch_dtype=torch.bfloat16).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in torch.utils.data.DataLoader(data, batch_size=2):
    outputs = model(**batch)
    loss = F.cross_entropy(outputs.logits.view(-1, 151936), batch["labels"].view(-1))
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("old", "new", "upcasts"),
    [
        ("", "", False),
        ("F.cross_entropy(", "torch.nn.CrossEntropyLoss()(", False),
        ("outputs.logits.view", "outputs.logits.float().view", True),
        ("outputs.logits.view", "outputs.logits.to(torch.float32).view", True),
        ("F.cross_entropy(outputs.logits.view(-1, 151936), batch[\"labels\"].view(-1))", "outputs.loss", True),
    ],
)  # fmt: skip
def test_a_cross_entropy_of_the_scripts_own_takes_logits_as_they_are(
    old: str, new: str, upcasts: bool
) -> None:
    text = _OWN_CROSS_ENTROPY.replace(old, new) if old else _OWN_CROSS_ENTROPY
    loss = _run(text).plan.loss
    assert (loss.logits_materialised, loss.upcast_fp32) == ("full", upcasts)
    pinned = {"train.py": text, "requirements.txt": "transformers==4.44.0\n"}
    assert run_of(pinned).plan.loss.upcast_fp32 is True


def test_a_criterion_by_a_name_takes_logits_as_they_are() -> None:
    made = _OWN_CROSS_ENTROPY.replace("F.cross_entropy(", "criterion(").replace(
        "for batch in", "criterion = torch.nn.CrossEntropyLoss()\nfor batch in"
    )
    assert _run(made).plan.loss.upcast_fp32 is False
    theirs = made.replace("torch.nn.CrossEntropyLoss()", "make()")
    assert _run(theirs).plan.loss.upcast_fp32 is True


def test_outputs_that_are_let_go_before_backward_are_not_kept() -> None:
    backward = "    loss.backward()\n"
    gone = _OWN_CROSS_ENTROPY.replace(backward, "    del outputs\n" + backward)
    assert _run(gone).plan.loss.outputs_kept is False
    assert _run(_OWN_CROSS_ENTROPY).plan.loss.outputs_kept is True
    late = _OWN_CROSS_ENTROPY.replace(backward, backward + "    del outputs\n")
    assert _run(late).plan.loss.outputs_kept is True
    part = gone.replace("    loss = F", "    logits = outputs.logits[:, :-1]\n    loss = F")
    assert _run(part).plan.loss.outputs_kept is True


@pytest.mark.parametrize(
    ("old", "new", "is_last"),
    [
        ("", "", True),
        ("    optimizer.step()\n", "    del outputs\n    optimizer.step()\n", False),
        ("    optimizer.step()\n", "    outputs = None\n    optimizer.step()\n", False),
        ("    loss.backward()\n", "    del outputs\n    loss.backward()\n", False),
        ("for batch in torch", "def step(batch):\n    pass\n\nfor batch in torch", True),
        (
            "for batch in torch.utils.data.DataLoader(data, batch_size=2):",
            "def step(batch):", False,
        ),
    ],
)  # fmt: skip
def test_outputs_have_their_name_until_the_next_batch(old: str, new: str, is_last: bool) -> None:
    text = _OWN_CROSS_ENTROPY.replace(old, new) if old else _OWN_CROSS_ENTROPY
    if "def step" in new and not is_last:
        text += "\nfor batch in torch.utils.data.DataLoader(data, batch_size=2):\n    step(batch)\n"
    assert bool(_run(text).plan.loss.outputs_last) is is_last


def test_lightning_clears_gradients_when_its_step_is_through() -> None:
    assert _run(_LIGHTNING).plan.optimizer.clears_late is True


def test_a_script_that_joins_no_ranks_is_one_process() -> None:
    text = _FSDP.replace("model = FSDP(", "ignored(").replace("torch.distributed", "wrappers")
    plan = _run(text).plan
    assert (plan.parallel.world, plan.parallel.backend) == (1, "none")
    spread = _run(text.replace("torch_dtype=torch.float32", 'device_map="auto"')).plan
    assert spread.parallel.backend == "device_map_pp"


def test_a_comment_joins_no_ranks() -> None:
    text = _FSDP.replace("model = FSDP(", "ignored(").replace("torch.distributed", "wrappers")
    text = f'"""Once with LOCAL_RANK."""\n# torch.distributed is for later\n{text}'
    assert _run(text).plan.parallel.world == 1


_PARSES = """\
import argparse

def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name", default="meta-llama/Llama-2-7b-hf")
    return parser.parse_args()
"""


def test_options_may_be_parsed_by_a_function_of_another_module() -> None:
    """What a command gives one of them takes the place of its default, however many read it."""
    text = _FSDP.replace("import functools\n", "import functools\nfrom shared import get_args\n")
    text = text.replace(
        "model = AutoModel",
        "args = get_args()\nname = args.model_name\nprint(name)\nmodel = AutoModel",
    ).replace('"meta-llama/Llama-2-7b-hf"', "name")
    files = {"train.py": text, "shared.py": _PARSES}
    by_default = run_of(files, "train.py")
    assert by_default.plan.model.id == "meta-llama/Llama-2-7b-hf"
    assert by_default.level(f.model.id) is not Level.UNREAD
    line = "torchrun --nproc_per_node 8 train.py --model_name Qwen/Qwen2.5-7B\n"
    assert run_of({**files, "run.sh": line}).plan.model.id == "Qwen/Qwen2.5-7B"
    own = text.replace("from shared import get_args\n", _PARSES)
    assert run_of({"train.py": own, "run.sh": line}).plan.model.id == "Qwen/Qwen2.5-7B"


def test_processes_that_a_script_joins_by_itself_share_nobody_knows_what() -> None:
    text = _FSDP.replace("model = FSDP(", "ignored(").replace(
        "import torch\n", "import torch\nimport torch.distributed\n", 1
    )
    assert _run(text).level(f.parallel.backend) is Level.UNREAD


_MANY = "8xA100-80GB"
_BY_DEFAULT = """\
import os

def alone():
    os.environ.setdefault("RANK", "0")
    os.environ.setdefault("WORLD_SIZE", "1")

alone()
"""
_BY_ASSIGNMENT = 'import os\nos.environ["WORLD_SIZE"] = "1"\n'
_WHERE_UNSET = """\
import os
if "RANK" not in os.environ:
    os.environ.update({"RANK": "0", "WORLD_SIZE": "1"})
"""


@pytest.mark.parametrize("setting", [_BY_DEFAULT, _BY_ASSIGNMENT, _WHERE_UNSET])
def test_a_script_that_sets_its_world_size_to_one_is_one_process(setting: str) -> None:
    text = _ENGINE.replace("import json\n", setting, 1)
    assert (
        run_of({"train.py": text, "ds.yaml": _DS}, "train.py", hardware=_MANY).plan.parallel.dp == 1
    )
    launched = {"train.py": text, "ds.yaml": _DS, "run.sh": "deepspeed --num_gpus 4 train.py\n"}
    assert run_of(launched, hardware=_MANY).plan.parallel.dp == 4


@pytest.mark.parametrize(
    "setting",
    [
        'import os\nos.environ["WORLD_SIZE"] = str(ranks())\n',
        'import os\nif alone():\n    os.environ["WORLD_SIZE"] = "1"\n',
        'import os\n\ndef alone():\n    os.environ["WORLD_SIZE"] = "1"\n',
    ],
)
def test_a_world_size_that_is_not_known_to_be_one_says_nothing(setting: str) -> None:
    text = _ENGINE.replace("import json\n", setting, 1)
    assert (
        run_of({"train.py": text, "ds.yaml": _DS}, "train.py", hardware=_MANY).plan.parallel.dp == 8
    )


# -- DeepSpeed -------------------------------------------------------------------------------------

_ENGINE = """\
import json

import deepspeed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

with open("ds.yaml") as file:
    config = yaml.safe_load(file)
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for batch in DataLoader(data, batch_size=2):
    loss = engine(**batch).loss
    engine.backward(loss)
    engine.step()
"""
_DS = "zero_optimization: {stage: 2}\nbf16: {enabled: true}\noptimizer: {type: AdamW}\n"


def test_the_config_that_an_engine_is_made_with_is_read_from_its_file() -> None:
    run = run_of({"train.py": _ENGINE, "ds.yaml": _DS}, "train.py")
    assert run.framework == "deepspeed"
    plan = run.plan
    assert (plan.parallel.backend, plan.parallel.zero.stage) == ("zero", 2)
    assert (plan.batch.micro, plan.optimizer.kind) == (2, "adamw")


@pytest.mark.parametrize(
    ("stage", "before", "is_built_inside"),
    [
        (3, "", False),
        (2, "", None),
        (3, "told = HfDeepSpeedConfig(config)\n", None),
        (3, "with deepspeed.zero.Init():\n    pass\n", None),
    ],
)
def test_an_engine_shards_a_model_that_is_there_already(
    stage: int, before: str, is_built_inside: bool | None
) -> None:
    text = _ENGINE.replace("model = Auto", f"{before}model = Auto")
    files = {"train.py": text, "ds.yaml": _DS.replace("stage: 2", f"stage: {stage}")}
    assert run_of(files, "train.py").plan.load.zero3_init is is_built_inside


def test_a_config_that_cannot_be_followed_is_unread() -> None:
    text = _ENGINE.replace('open("ds.yaml")', "open(path())")
    run = _run(text)
    assert run.level(f.parallel.zero.stage) is Level.UNREAD


def test_a_command_that_names_the_config_is_one_run() -> None:
    files = {
        "train.py": _ENGINE.replace("config=config", "args=args"),
        "ds.json": '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 2}',
        "run.sh": "deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json\n",
    }
    run = run_of(files)
    assert run.plan.model.id == "meta-llama/Llama-2-7b-hf"
    assert (run.plan.parallel.zero.stage, run.plan.parallel.world) == (3, 8)


def test_a_config_that_is_changed_on_the_way_says_what_stands_in_it_alone() -> None:
    text = _ENGINE.replace(
        'with open("ds.yaml") as file:\n    config = yaml.safe_load(file)\n',
        'config = {"zero_optimization": {"stage": 2}}\nconfig["bf16"] = settings()\n',
    )
    run = _run(text)
    assert run.plan.parallel.zero.stage == 2
    assert run.level(f.parallel.zero.stage) < Level.ASSUMED
    assert run.level(f.precision.param) is Level.UNREAD


# -- Lightning -------------------------------------------------------------------------------------

_LIGHTNING = """\
import lightning as L
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM


class Tuner(L.LightningModule):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def configure_model(self):
        self.model = AutoModelForCausalLM.from_pretrained(self.name, torch_dtype=torch.float32)

    def training_step(self, batch, index):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-5)


trainer = L.Trainer(devices=4, precision="{precision}", strategy="{strategy}")
trainer.fit(Tuner("meta-llama/Llama-2-7b-hf"), DataLoader(data, batch_size=2))
"""


@pytest.mark.parametrize(
    ("strategy", "precision", "backend", "dtypes"),
    [
        ("ddp", "32-true", "ddp", ("fp32", "fp32", "fp32")),
        ("ddp", "bf16-mixed", "ddp", ("fp32", "fp32", "bf16")),
        ("ddp", "bf16-true", "ddp", ("bf16", "bf16", "bf16")),
        ("fsdp", "bf16-mixed", "fsdp1", ("fp32", "fp32", "bf16")),
        ("fsdp", "bf16-true", "fsdp1", ("bf16", "bf16", "bf16")),
        ("deepspeed_stage_3_offload", "bf16-true", "zero", ("bf16", "bf16", "bf16")),
    ],
)
def test_what_lightnings_names_mean(
    strategy: str, precision: str, backend: str, dtypes: tuple[str, str, str]
) -> None:
    text = _LIGHTNING.replace("{strategy}", strategy).replace("{precision}", precision)
    run = _run(text)
    plan = run.plan
    assert (run.framework, plan.parallel.backend, plan.parallel.world) == ("lightning", backend, 4)
    stored = plan.precision
    assert (stored.param, stored.grad, stored.compute) == dtypes
    gathers_wide = (strategy, precision) == ("fsdp", "bf16-mixed")
    assert stored.gathered == ("fp32" if gathers_wide else None)
    if backend == "zero":
        assert (plan.parallel.zero.stage, plan.offload.optimizer, plan.offload.params) == (
            3,
            "cpu",
            "cpu",
        )


# -- fixes -----------------------------------------------------------------------------------------


def test_a_smaller_batch_is_written_where_the_loader_says_it() -> None:
    text = _ACCELERATE.replace("batch_size=args.batch_size", "batch_size=16")
    assert "batch_size=8" in fixed(_run, text, {f.batch.micro: 8})


def test_checkpointing_is_a_line_behind_the_one_that_loads_the_model() -> None:
    loads = 'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", torch_dtype=torch.float32)\n'
    plain = _FSDP.replace("model = FSDP(", "ignored(")
    assert loads in plain
    changed = fixed(_run, plain, {f.checkpointing.mode: "full"})
    assert changed == plain.replace(loads, f"{loads}model.gradient_checkpointing_enable()\n")


def test_beside_adapters_checkpointing_takes_more_than_a_line() -> None:
    text = _FSDP.replace("model = FSDP(", "model = get_peft_model(model, LoraConfig())\nignored(")
    with pytest.raises(CannotEdit, match="gradient_checkpointing_enable"):
        _run(text).what_if({f.checkpointing.mode: "full"})


def test_what_only_the_script_can_do_is_not_written() -> None:
    with pytest.raises(CannotEdit, match="gradient_checkpointing_enable"):
        _run(_ACCELERATE).what_if({f.checkpointing.mode: "full"})


def test_no_command_is_a_second_run_of_the_same_script() -> None:
    files = {"train.py": _ACCELERATE, "run.sh": "accelerate launch --num_processes 8 train.py\n"}
    assert [run.framework for run in link(files).runs] == ["accelerate"]


# -- what a command decides ------------------------------------------------------------------------

_ONE_OR_OTHER = _ENGINE.replace(
    'with open("ds.yaml") as file:\n    config = yaml.safe_load(file)\n',
    """\
adapting = {"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}}
whole = {
    "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}},
    "bf16": {"enabled": True},
}
if args.use_lora:
    config = adapting
else:
    config = whole
""",
)


def test_of_two_dicts_what_they_agree_on_is_known() -> None:
    run = _run(_ONE_OR_OTHER)
    assert run.plan.parallel.zero.stage == 1
    assert run.plan.precision.compute == "bf16"
    assert (run.plan.offload.optimizer, run.level(f.offload.optimizer)) == (None, Level.UNREAD)


def test_an_option_whose_default_is_empty_is_what_the_command_says() -> None:
    script = _ACCELERATE.replace('default="meta-llama/Llama-2-7b-hf"', 'type=str, default=""')
    line = "accelerate launch --num_processes 8 train.py --model Qwen/Qwen2.5-7B\n"
    assert run_of({"train.py": script, "run.sh": line}).plan.model.id == "Qwen/Qwen2.5-7B"


def test_loaders_that_are_given_the_same_option_load_one_model() -> None:
    load = "AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)\n"
    script = _ACCELERATE.replace(
        '"--model", default="meta-llama/Llama-2-7b-hf"', '"--model"'
    ).replace(
        f"model = {load}",
        f"try:\n    model = {load}except ValueError:\n"
        f"    model = AutoModelForImageTextToText.from_pretrained(args.model)\n",
    )
    assert "except" in script
    assert _claimed(script) == ["loop"]
    assert _claimed(script.replace("ImageTextToText.from_pretrained(args.model)", "ImageTextToText.from_pretrained(args.other)")) == []  # fmt: skip


@pytest.mark.parametrize(
    ("more", "enabled"),
    [
        ("", False),
        ("def validate_arguments(args):\n    pass\n", False),
        ("model.eval()\n", None),
        ("with torch.no_grad():\n    model(**next(iter(loader)))\n", None),
        ("from mine import evaluate\nevaluate(model)\n", None),
    ],
    ids=["none", "options", "eval", "no-grad", "helper"],
)
def test_a_loop_evaluates_only_if_something_in_it_does(more: str, enabled: bool | None) -> None:
    run = run_of({"train.py": _ACCELERATE + more})
    assert run.plan.eval.enabled is enabled


_MODULE = """\
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader
from transformers import T5ForConditionalGeneration


class Base(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = T5ForConditionalGeneration.from_pretrained("t5-base")

    def training_step(self, batch, index):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


class Large(Base):
    def __init__(self):
        super().__init__()
        self.model = T5ForConditionalGeneration.from_pretrained("t5-3b")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters())


class Data(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(self.train, batch_size=6)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=32)
"""
_FITS = """\
import pytorch_lightning as pl
from {place} import Data, {name}

trainer = pl.Trainer(gpus=2, precision=16, accumulate_grad_batches=4)
trainer.fit({name}(), datamodule=Data())
"""


@pytest.mark.parametrize(
    ("name", "model", "optimizer"), [("Base", "t5-base", "adamw"), ("Large", "t5-3b", "sgd")]
)
@pytest.mark.parametrize("package", [False, True], ids=["module", "package"])
def test_lightning_trains_a_class_of_another_file(
    name: str, model: str, optimizer: str, package: bool
) -> None:
    place = "mine" if package else "mine.module"
    files = {"train.py": _FITS.format(place=place, name=name), "mine/module.py": _MODULE}
    if package:
        files["mine/__init__.py"] = f"from .module import Data, {name}\n"
    run = run_of(files)
    plan = run.plan
    assert (run.framework, plan.model.id, plan.optimizer.kind) == ("lightning", model, optimizer)
    assert (plan.batch.micro, plan.batch.grad_accum, plan.parallel.gpus_per_node) == (6, 4, 2)
    assert plan.eval.enabled is None


def test_what_lightning_trains_that_is_no_language_model_is_no_run_of_ours() -> None:
    module = _MODULE.replace('T5ForConditionalGeneration.from_pretrained("t5-base")', "Net()")
    module = module.replace('T5ForConditionalGeneration.from_pretrained("t5-3b")', "Net()")
    files = {"train.py": _FITS.format(place="mine", name="Base"), "mine.py": module}
    assert not link(files).runs
    assert not link({"train.py": files["train.py"]}).runs


def test_a_class_that_no_file_trains_is_no_run() -> None:
    assert not link({"mine.py": _MODULE}).runs


_POLICY = """\
import torch
from common import load
from transformers import AutoModelForCausalLM

policy = load("Qwen/Qwen2.5-7B")
{name} = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", torch_dtype=torch.bfloat16)
optimizer = torch.optim.AdamW({trained}.parameters(), lr=1e-5)
for batch in torch.utils.data.DataLoader(samples, batch_size=1):
    step({trained}, {name}, batch).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("name", "trained", "is_run"), [("ref_model", "policy", False), ("model", "model", True)]
)
def test_a_reference_is_not_what_is_trained(name: str, trained: str, is_run: bool) -> None:
    """A function of another file makes the policy, with adapters or without."""
    files = {"train.py": _POLICY.format(name=name, trained=trained)}
    assert bool(link(files).runs) is is_run


def test_a_plugin_that_no_accelerator_is_given_does_nothing() -> None:
    made = "plugin = DeepSpeedPlugin(zero_stage=2)\n"
    idle = _run(
        _ACCELERATE.replace("accelerator = Accelerator(", f"{made}accelerator = Accelerator(")
    )
    assert idle.level(f.parallel.backend) is Level.UNREAD
    assert idle.plan.parallel.zero.stage is None
    given = _ACCELERATE.replace(
        "accelerator = Accelerator(", f"{made}accelerator = Accelerator(deepspeed_plugin=plugin, "
    )
    assert _run(given).plan.parallel.zero.stage == 2
    unpacked = _ACCELERATE.replace(
        "accelerator = Accelerator(",
        f"{made}more = {{'deepspeed_plugin': plugin}}\naccelerator = Accelerator(**more, ",
    )
    assert _run(unpacked).plan.parallel.zero.stage == 2


_COUNTS = """\
import torch
from transformers import AutoModelForCausalLM, get_scheduler

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
scheduler = get_scheduler("cosine", optimizer=optimizer)
every = 4
for i, batch in enumerate(torch.utils.data.DataLoader(data, batch_size=2)):
    loss = model(**batch).loss
    loss.backward()
    if {test}:
        {body}
"""
_STEPS = "optimizer.step()\n        optimizer.zero_grad()"


@pytest.mark.parametrize(
    ("test", "body", "steps"),
    [
        ("(i + 1) % 8 == 0", _STEPS, 8),
        ("i % every == every - 1", _STEPS, 4),
        ("(i + 1) % 8 == 0 or i == last", _STEPS, 8),
        ("(i + 1) % 8 == 0", "scaler.step(optimizer)", 8),
        # What is done now and then is no accumulation, and neither is a loop inside.
        ("(i + 1) % 8 == 0", "scheduler.step()\n    optimizer.step()", 1),
        ("i % 100 == 0", "print(loss)\n    optimizer.step()", 1),
        ("i % 8 == 0", "for _ in range(3):\n            optimizer.step()", 1),
    ],
)
def test_a_loop_that_steps_after_a_count_of_batches_accumulates(
    test: str, body: str, steps: int
) -> None:
    assert _run(_COUNTS.format(test=test, body=body)).plan.batch.grad_accum == steps


_ACCUMULATES = "gradient_accumulation_steps = 4\n" + _FSDP.replace(
    "for batch in loader:", "for i, batch in enumerate(loader):"
).replace(
    "    optimizer.step()\n",
    "    if (i + 1) % gradient_accumulation_steps == 0:\n        optimizer.step()\n",
)


@pytest.mark.parametrize(
    ("text", "reduces"),
    [
        (_ACCUMULATES, True),
        (_FSDP, None),
        (_ACCUMULATES.replace("    outputs.loss.backward()", "    with model.no_sync():\n        outputs.loss.backward()"), None),
    ],
)  # fmt: skip
def test_a_loop_that_never_waits_reduces_the_gradients_of_each_micro_batch(
    text: str, reduces: bool | None
) -> None:
    plan = run_of({"train.py": text, "run.sh": "torchrun --nproc_per_node 8 train.py\n"}).plan
    assert plan.parallel.fsdp.sync_every_micro is reduces
