"""What every script over transformers' Trainer says of its model: who is trained, in which types.

Read from transformers 5.23 ``examples/pytorch``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import ADAPTER_METHODS, is_adapter_run, uses_deepspeed
from oomlint.dialects.common.fields import asked, fsdp, machine, shared
from oomlint.dialects.machine.colab import runs_in_kernel
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.machine.launcher_keys import PLAIN
from oomlint.dialects.machine.launcher_meaning import launcher_of, own_starter
from oomlint.dialects.machine.visible import listed
from oomlint.dialects.meaning import NOTHING, Meaning, Said, Sourced, Wishes
from oomlint.dialects.releases import CHECKPOINT_DTYPE, INPUT_GRADS, NUMBERED_DEVICE, SDPA
from oomlint.dialects.setting import Setting
from oomlint.dialects.trainer.fields import hf, script
from oomlint.dialects.trainer.unfollowed import of_unread_program
from oomlint.documents.base import PythonDocument, Scalar
from oomlint.errors import CannotEdit
from oomlint.models.architectures import own_dtype
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange

model = Meaning()
"""Who is trained, and what the frozen weights are stored in."""
loading = Meaning()
"""The dtype that weights are loaded in, by transformers' ``from_pretrained``. A framework that loads
otherwise says so by a default of its own for ``load.dtype``."""
one_process = Meaning()
"""One process that sees several GPUs: torch's DataParallel, or layers spread by a device map."""

# -- adapters --------------------------------------------------------------------------------------


def bits_of(run: Cells) -> int | None:
    """The bits that a script's ``--bits`` asks for, unless a switch of its own is off."""
    is_off = run.says(hf.load_4bit) and not run[hf.load_4bit]
    return None if is_off else run[hf.bits]


@model.derive(f.quant.requested_bits, asked.bits)
def requested_bits(run: Cells) -> Any:
    bits = bits_of(run)
    if bits is None:
        bits = 4 if run[hf.load_4bit] else 8 if run[hf.load_8bit] else None
    return {f.quant.requested_bits: bits, asked.bits: bits if bits in (4, 8) else None}


@model.default(f.quant.double, source="transformers 5.23 utils/quantization_config.py")
def quantizes_once(run: Cells) -> Any:
    return False if run[f.quant.method] == "bnb4" else None


def _names(run: Cells, field: Any) -> bool:
    return isinstance(run.stated(field), Setting)


def _is_rank_zero(run: Cells) -> bool:
    """Scripts guard their LoraConfig with ``if args.lora_r > 0``: PEFT itself takes no rank of 0."""
    said = run.stated(f.trainable.r)
    return isinstance(said, Setting) and said.value == 0


@model.derive(f.trainable.method)
def method(run: Cells) -> Any:
    if _is_rank_zero(run):
        return "full"
    wants = run[hf.use_peft]
    if wants is None:
        # Scripts without a switch of their own adapt where they name a rank or quantize.
        bits = run[f.quant.requested_bits]
        wants = bits in (4, 8) or (bits is not None and not run[hf.full])
        wants = wants or _names(run, f.trainable.r) or run.says(hf.lora_targets)
    if not wants:
        return run[script.method] or "full"
    if run[hf.use_dora]:
        return "dora"
    return "qlora" if run[f.quant.method] == "bnb4" else "lora"


@model.derive(script.method, f.trainable.params, source="peft 0.21.2 tuners/prefix_tuning/model.py")
def prefix(run: Cells) -> Any:
    """Prefix tuning trains a table of keys and values of every layer, and nothing of the model."""
    tokens, dims = run[script.virtual_tokens], run[f.model.dims]
    if not tokens or dims is None or not (dims.layers and dims.head_dim):
        return None
    width = (dims.kv_heads or dims.heads or 1) * dims.head_dim
    return {script.method: "freeze", f.trainable.params: 2 * tokens * dims.layers * width}


@method.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted not in ADAPTER_METHODS:
        raise CannotEdit(f"there is no switch here for {wanted}")
    if run.block_with(hf.use_peft) is None:
        raise CannotEdit("the script itself has to wrap the model with a LoraConfig")
    return {hf.use_peft: True}


@model.written(f.quant.method)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    switch = {"bnb4": hf.load_4bit, "bnb8": hf.load_8bit}.get(wanted)
    if switch is None:
        raise CannotEdit(f"there is no switch here for {wanted} quantization")
    if run.block_with(switch) is None:
        raise CannotEdit("the script itself has to load the model with a BitsAndBytesConfig")
    if is_adapter_run(run):
        return {switch: True}
    if run.block_with(hf.use_peft) is None:
        raise CannotEdit("the script itself has to wrap the model with a LoraConfig")
    return {switch: True, hf.use_peft: True}


_OF_ADAPTERS = (
    f.trainable.r,
    f.trainable.alpha,
    f.trainable.dropout,
    f.trainable.modules_to_save,
)


@model.override(*_OF_ADAPTERS)
def of_adapters(run: Cells) -> Any:
    """What a config says of adapters means nothing where none is trained."""
    return None if is_adapter_run(run) else dict.fromkeys(_OF_ADAPTERS, NOTHING)


@model.derive(f.trainable.targets)
def targets(run: Cells) -> Any:
    if not is_adapter_run(run) or run.is_unread(hf.lora_targets):
        return None
    named = run[hf.lora_targets]
    if not named:
        return "peft_default"
    return "all_linear" if named in (("all-linear",), ("all_linear",), ("all",)) else named


@model.written(f.trainable.targets)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {hf.lora_targets: _named(wanted)}


def _named(wanted: Any) -> Any:
    """What the key takes for layers that are wanted."""
    if wanted == "peft_default":
        raise CannotEdit("PEFT's own choice of layers has no name")
    return wanted if wanted == "all_linear" else tuple(wanted)


@model.default(
    f.trainable.r,
    f.trainable.alpha,
    f.trainable.dropout,
    source="peft 0.21.2 tuners/lora/config.py",
)
def defaults_of_peft(run: Cells) -> Any:
    if not is_adapter_run(run):
        return None
    return {f.trainable.r: 8, f.trainable.alpha: 8, f.trainable.dropout: 0.0}


# -- attention -------------------------------------------------------------------------------------


@model.derive(f.model.attn_impl)
def attention(run: Cells) -> Any:
    return "flash2" if run[hf.use_flash] else None


@attention.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted == "flash2" and run.says(hf.use_flash):
        return {hf.use_flash: True}
    return {f.model.attn_impl: wanted}


_TORCH_SDPA = LibraryChange(
    "torch", (2, 0), "attention is computed step by step, with all its scores in memory",
    "torch 2.0 nn/functional.py scaled_dot_product_attention; THUDM/chatglm2-6b modeling_chatglm.py CoreAttention asks for 2",
)  # fmt: skip
# Classes of transformers itself in which 4.35 has no scaled_dot_product_attention; Falcon's has,
# and so has the code that several models bring along.
_STEP_BY_STEP = frozenset(
    "bert blenderbot bloom codegen deberta-v2 gpt2 gpt_bigcode gpt_neo gpt_neox gptj llama mistral mixtral mt5 opt phi "
    "roberta t5 xlm-roberta".split()
)


@model.default(f.model.attn_impl)
def default_attention(run: Cells) -> Any:
    dims = run[f.model.dims]
    if run.made(_TORCH_SDPA) is False:
        return Sourced("eager", _TORCH_SDPA.source)
    if run.made(SDPA) is False and dims is not None and dims.arch in _STEP_BY_STEP:
        return Sourced("eager", SDPA.source)
    return Sourced("sdpa", "transformers 5.23 takes sdpa where the model has it")


# -- loading ---------------------------------------------------------------------------------------


@loading.derive(f.load.dtype)
def load_dtype(run: Cells) -> Any:
    said = run[hf.load_dtype]
    if said is None:
        dims = run[f.model.dims]
        return own_dtype(dims.arch) if dims is not None else None
    return run[f.model.ckpt_dtype] if said == "auto" else said


@load_dtype.written
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {hf.load_dtype: dtype}


def packs_at_load(run: Cells) -> bool:
    """Whether bitsandbytes quantizes what is loaded: what it leaves is fp16 then where no dtype is named, up to
    transformers 4.57 (4.36.2 modeling_utils.py:2909, 4.57.3 quantizers/quantizer_bnb_4bit.py update_dtype)."""
    return run[f.quant.requested_bits] in (4, 8) and run[f.quant.method] in ("bnb4", "bnb8")


_OF_PACKED = "transformers 4.57.3 quantizers/quantizer_bnb_4bit.py update_dtype: fp16"


@loading.default(f.load.dtype)
def usual_dtype(run: Cells) -> Any:
    """The checkpoint's from transformers 5.0 on, fp32 before, or fp16 beside quantized weights."""
    if run[hf.load_dtype] is not None or run.is_unread(hf.load_dtype):
        return None
    if run.made(CHECKPOINT_DTYPE) is False and packs_at_load(run):
        return Sourced("fp16", _OF_PACKED)
    if run.has(CHECKPOINT_DTYPE, otherwise=False):
        return Sourced(run[f.model.ckpt_dtype], "transformers 5.23 modeling_utils.py:4178")
    if run.made(CHECKPOINT_DTYPE) is None:
        return None
    return Sourced("fp32", CHECKPOINT_DTYPE.source)


@loading.assume(f.load.dtype)
def likely_dtype(run: Cells) -> Any:
    if run.is_unread(hf.load_dtype):
        unread = run.given.unread.get(hf.load_dtype)
        if (
            unread is None
            or unread.block is None
            or isinstance(unread.block.document, PythonDocument)
        ):
            return None  # a script may pass None as well
        return Sourced("bf16", "a dtype is named that was not read: most are of 16 bits")
    if run[hf.load_dtype] == "auto":
        return Sourced("bf16", "dtype auto: most checkpoints are 16 bit")
    if run[hf.load_dtype] is not None or run.made(CHECKPOINT_DTYPE) is not None:
        return None
    if packs_at_load(run):
        return Sourced("fp16", f"{_OF_PACKED}; from 5.0 on that of the checkpoint")
    return Sourced(
        "fp32",
        "nothing names a dtype: transformers loads in fp32 up to 4.57, and wherever a script "
        "passes None; from 5.0 on in that of the checkpoint",
    )


# -- one process -----------------------------------------------------------------------------------


def _is_one_process(run: Cells) -> bool:
    """Whether no launcher starts several: nobody does, the cells of a notebook run in its kernel, or no line here starts
    a script that spreads its model over GPUs itself, with which Accelerate refuses to train in several processes
    (accelerate 1.12 accelerator.py prepare_model)."""
    run[launch.unseen]
    if launcher_of(run) is None:
        return _spreads(run) or run.once(runs_in_kernel)
    return launcher_of(run) is PLAIN and run[launch.total_processes] is None


@one_process.said(launch.unseen)
def starts_ranks_itself(run: Cells, field: Any, said: Said) -> Said:
    """A package's own command (``name-cli sft``) usually calls torchrun for itself."""
    return said if said is not None else own_starter(run)


def _spreads(run: Cells) -> bool:
    return run[f.load.device_map] in ("auto", "balanced", "explicit")


def asks_gradients_of_patches(run: Cells) -> bool | None:
    """Whether checkpointing makes a frozen vision tower keep its graph; ``None`` for a model without one."""
    dims = run[f.model.dims]
    if not run[hf.checkpointing] or dims is None or dims.vision is None:
        return None
    return run.has(INPUT_GRADS)


def is_whole_on_one(run: Cells) -> bool:
    """Whether a single process trains, whose model no device map spreads over GPUs."""
    return _is_one_process(run) and not _spreads(run)


@one_process.derive(f.parallel.gpus_per_node, source="one process uses one GPU")
def uses_one(run: Cells) -> Any:
    if not is_whole_on_one(run):
        return None
    if run[f.quant.method] in ("bnb4", "bnb8") or run[script.own_loop]:
        return 1
    return 1 if uses_deepspeed(run) or run[hf.fsdp_words] or _is_on_no_number(run) else None


@one_process.derive(f.parallel.gpus_per_node, source="the script lists the GPUs that it sees")
def shown_by_itself(run: Cells) -> Any:
    """Of a script that no line here starts, which uses all that it sees, in one process or in one each."""
    shown, there = listed(run[f.env.cuda_visible_devices]), run[machine.gpus_per_node]
    if launcher_of(run) is not None or shown is None:
        return None
    return shown if there is None else min(shown, there)


def _is_on_no_number(run: Cells) -> bool:
    """Whether ``device_map="cuda"`` makes a model one that the Trainer leaves where it is."""
    said = run.given.said(f.load.device_map)
    entry = said.origin.entry if isinstance(said, Setting) else None
    value = entry.value if entry is not None else None
    is_bare = isinstance(value, Scalar) and value.value == "cuda"
    return is_bare and not run.has(NUMBERED_DEVICE)


def _spans(run: Cells) -> bool:
    """Whether one process holds several GPUs that nothing else shards over."""
    if not _is_one_process(run):
        return False
    ranks = run[f.parallel.world]
    if ranks == 1 or (ranks is None and launcher_of(run) is not None):
        return False
    return not uses_deepspeed(run) and not run[fsdp.enabled]


@one_process.derive(f.parallel.backend, source="transformers 5.23 trainer.py:2666")
def spans_gpus(run: Cells) -> Any:
    """A Trainer wraps the model in ``nn.DataParallel`` unless it is quantized or already spread."""
    if not _spans(run) or run[script.own_loop] or run[script.parallelizable]:
        return None
    return "device_map_pp" if _spreads(run) else "dp"


@one_process.said(script.parallelizable)
def of_a_program(run: Cells, field: Any, said: Said) -> Said:
    """``model.is_parallelizable``, by which ChatGLM's program trains in one process without the wrapper."""
    return said if said is not None else of_unread_program(run)


@one_process.default(script.parallelizable, source="transformers 5.23 trainer.py:2666")
def usually_none(run: Cells) -> Any:
    return False


@one_process.derive(f.parallel.dp, source="transformers 5.23 trainer.py:2666")
def one_replica(run: Cells) -> Any:
    return 1 if _spans(run) and _spreads(run) else None


# -- mixed precision that only running tells -------------------------------------------------------


@model.derive(shared.amp_is_open)
def amp_is_open(run: Cells) -> Any:
    """Where only running tells whether mixed precision is on, what follows from it is unknown."""
    return True if run.is_unread(hf.bf16) and not run[hf.fp16] else None
