"""What LitGPT makes of its keys about the model and where it lies, for each of its sub-commands, and
how its configs say what a change wants.

Read from litgpt 26857050 (2026-06-29); ``LG`` below is its ``litgpt`` package.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.world import batch, express_global_batch, world
from oomlint.dialects.litgpt.keys import LITGPT, LORA_PARTS, SOURCE, given, own
from oomlint.dialects.litgpt.training import training
from oomlint.dialects.machine.meaning import launch_all_visible
from oomlint.dialects.machine.visible import visible_gpus
from oomlint.dialects.meaning import Left, Meaning, Said, Sourced, Wishes
from oomlint.dialects.setting import Setting
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange
from oomlint.plan.model import ModelDims

meaning = Meaning(training, world, launch_all_visible, batch)

# -- the sub-command -------------------------------------------------------------------------------

_OF_MODEL_CONFIG = frozenset(given.all())


@meaning.derive(own.command)
def command(run: Cells) -> Any:
    """Launched, else told by keys of its own: ``lora``, ``full``, ``adapter``, ``adapter_v2`` or ``pretrain``."""
    if run[f.trainable.r] if run.says(f.trainable.r) else None:
        return "lora"
    if any(map(run.says, LORA_PARTS.values())):
        return "lora"
    stated = (row.field for row in LITGPT.rows if row.field in _OF_MODEL_CONFIG)
    if run[own.model_name] is not None or any(map(run.says, stated)):
        return "pretrain"
    return _suggested(run) if run.says(own.resume) else None


@meaning.assume(own.command, why="no key of the file belongs to one sub-command")
def likely_command(run: Cells) -> Any:
    return _suggested(run)


def _suggested(run: Cells) -> str:
    return run[own.named_command] or ("lora" if run[own.quantize] else "full")


def _setup(run: Cells) -> str:
    """Where the ``setup`` of the sub-command stands, whose arguments have the defaults."""
    name = run[own.command]
    return f"{SOURCE} {'pretrain' if name == 'pretrain' else f'finetune/{name}'}.py setup"


def _pretrains(run: Cells) -> bool:
    return run[own.command] == "pretrain"


@meaning.default(f.batch.micro, own.global_batch, f.save.every, f.eval.every, f.optimizer.name)
def arguments(run: Cells) -> Any:
    pretrains = _pretrains(run)
    values = {
        f.batch.micro: 4 if pretrains else 1,
        own.global_batch: 512 if pretrains else 16,
        f.save.every: 1000,
        f.eval.every: {"pretrain": 1000, "full": 600}.get(run[own.command], 100),
        f.optimizer.name: "AdamW",
    }
    return {field: Sourced(value, _setup(run)) for field, value in values.items()}


@meaning.default(f.data.workers, source="LG/data: num_workers")
def workers(run: Cells) -> Any:
    if run[own.package]:
        return 0  # get_batch of the script takes samples from a list
    return 8 if _pretrains(run) else 4


@meaning.written(f.data.workers)
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run[own.data] is None:
        raise CannotEdit("num_workers belongs to the data module, which nothing here names")
    return {f.data.workers: count}


@meaning.default(f.trainable.r, f.trainable.alpha, f.trainable.dropout, *LORA_PARTS.values())
def arguments_of_lora(run: Cells) -> Any:
    if run[own.command] != "lora":
        return None
    values: dict[Any, Any] = {
        f.trainable.r: 8,
        f.trainable.alpha: 16.0,
        f.trainable.dropout: 0.05,
        **{field: part in ("query", "value") for part, field in LORA_PARTS.items()},
    }
    return {field: Sourced(value, _setup(run)) for field, value in values.items()}


# -- devices ---------------------------------------------------------------------------------------


@meaning.said(f.parallel.gpus_per_node)
def later_auto(run: Cells, field: Any, said: Said) -> Said:
    """``--devices auto`` on the command line replaces a number in the file."""
    auto = run.given.auto.get(field)
    if not isinstance(said, Setting) or auto is None or auto.block is None:
        return said
    block = said.origin.block
    if block is None or run.blocks.index(auto.block) < run.blocks.index(block):
        return said
    return Left(auto)


@meaning.derive(f.parallel.gpus_per_node)
def devices(run: Cells) -> Any:
    all_visible = run.is_auto(f.parallel.gpus_per_node) or _pretrains(run)
    return Sourced(visible_gpus(run) if all_visible else 1, _setup(run))


@meaning.derive(f.parallel.nodes)
def nodes(run: Cells) -> Any:
    return Sourced(1, _setup(run))


@meaning.derive(f.batch.grad_accum, source="LG/args.py:56")
def accumulation(run: Cells) -> Any:
    """LG/args.py TrainArgs.gradient_accumulation_iters; a remainder is dropped."""
    total, ranks, micro = run[own.global_batch], run[f.parallel.world], run[f.batch.micro]
    if run[own.device_batch] is not None:
        return max(1, int(run[own.device_batch] // micro)) if micro else None
    if total is None or ranks is None or micro is None:
        return None
    return max(1, total // ranks // micro)


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    """``global_batch_size`` = micro batch x accumulation x ranks."""
    micro = wishes.get(f.batch.micro, run[f.batch.micro])
    if run[own.package] and micro is not None:
        return {own.device_batch: steps * micro}
    unknown = "train.global_batch_size depends on the number of devices"
    return express_global_batch(steps, run, wishes, own.global_batch, unknown)


# -- the model -------------------------------------------------------------------------------------


@meaning.derive(f.model.dims)
def spelled_out(run: Cells) -> Any:
    """The dimensions that ``model_config`` gives; LG/config.py has the defaults."""
    layers, hidden, heads = run[given.n_layer], run[given.n_embd], run[given.n_head]
    if not (layers and hidden and heads):
        return None
    mlp = run[given.mlp_class_name] or "GptNeoxMLP"
    act = {"LLaMAMLP": "swiglu", "GemmaMLP": "geglu"}.get(mlp, "gelu")
    return ModelDims(
        arch="llama" if act == "swiglu" else "gpt_neox",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=run[given.n_query_groups] or heads,
        head_dim=run[given.head_size] or hidden // heads,
        ffn=run[given.intermediate_size] or 4 * hidden,
        vocab=run[given.padded_vocab_size] or run[given.vocab_size] or 50_254,
        tie_embeddings=False,
        norm="rms" if run[given.norm_class_name] == "RMSNorm" else "ln",
        act=act,  # type: ignore[arg-type]
        ctx=run[given.block_size] or 4096,
    )


@meaning.override(f.model.dims, source="LG/model.py:28")
def own_head(run: Cells) -> Any:
    """The head is a layer of its own whatever the Hub's model shares."""
    dims = run[f.model.dims]
    if dims is None or not dims.tie_embeddings or run[own.tie_embeddings]:
        return None
    extra = (dims.vocab or 0) * (dims.hidden or 0)
    return replace(
        dims,
        tie_embeddings=False,
        params_total=dims.params_total + extra if dims.params_total else None,
        params_active=dims.params_active + extra if dims.params_active else None,
        params_lm_head=extra or None,
    )


# Classes whose norms, caps or experts LG/model.py follows in its own way, unread.
_OWN_WAYS = frozenset({"gemma2", "gemma3", "gemma3_text", "mixtral", "qwen3_moe", "deepseek_v3"})


@meaning.override(f.model.dims, source="LG/model.py GPT")
def own_class(run: Cells) -> Any:
    """One class for all models: heads in one projection, rotated by torch.cat."""
    dims = run[f.model.dims]
    if dims is not None and dims.norm == "rms" and dims.arch not in _OWN_WAYS:
        return replace(dims, arch="litgpt")
    return replace(dims, arch="litgpt_phi") if dims is not None and dims.arch == "phi" else None


@meaning.default(f.model.id, source="lit-gpt d5d37141 finetune: checkpoint_dir")
def default_checkpoint(run: Cells) -> Any:
    return "stabilityai/stablelm-base-alpha-3b" if run[own.package] == "lit_gpt" else None


meaning.always(f.model.attn_impl, "sdpa", "LG/model.py scaled_dot_product_attention")
meaning.always(f.objective.ref_model, "none", "LG: no objective has a reference")


@meaning.derive(f.objective.kind)
def objective(run: Cells) -> Any:
    return "pretrain" if _pretrains(run) else "sft"


@meaning.derive(f.model.from_scratch)
def from_scratch(run: Cells) -> Any:
    return run[own.initial_checkpoint] is None if _pretrains(run) else None


@meaning.derive(f.seq.max_len, source="LG/pretrain.py: block_size")
def block_size(run: Cells) -> Any:
    dims = run[f.model.dims]
    return dims.ctx or None if _pretrains(run) and dims is not None else None


meaning.takes(f.seq.max_len, own.device_longest, "lit-llama finetune/full.py: block_size")


# The most tokens that any of four tokenizers makes of a sample of Alpaca: Llama 2's.
_LONGEST_OF_ALPACA = 1304


@meaning.default(f.seq.max_len, source="LG tutorials/resource-tables.md, and LG/finetune: Alpaca")
def longest_sample(run: Cells) -> Any:
    """Fine-tuning cuts nothing, and its data is Alpaca unless it is told."""
    data = run[own.data]
    knows = not run.is_unread(own.data) and (data is None or data.rsplit(".", 1)[-1] == "Alpaca")
    return _LONGEST_OF_ALPACA if knows and not _pretrains(run) else None


@meaning.derive(f.seq.unbounded, source="LG/finetune: the longest sample of the data decides")
def unbounded(run: Cells) -> Any:
    return True if not _pretrains(run) and run[f.seq.max_len] is None else None


@meaning.derive(f.seq.packing, f.seq.pad)
def packing(run: Cells) -> Any:
    if _pretrains(run):
        return {f.seq.packing: "concat", f.seq.pad: "none"}
    return {f.seq.packing: "none", f.seq.pad: "longest"}


# -- sharding --------------------------------------------------------------------------------------

_F = f.parallel.fsdp


@meaning.derive(f.offload.params, f.offload.optimizer, source="LG: cpu_offload=False")
def offloading(run: Cells) -> Any:
    ranks = run[f.parallel.world]
    if ranks is None:
        return None
    # A script may give its strategy, which is that of several devices, cpu_offload=True.
    where = "cpu" if run[own.offloads] and ranks > 1 else "none"
    return {f.offload.params: where, f.offload.optimizer: where}


@meaning.derive(f.parallel.backend)
def backend(run: Cells) -> Any:
    """ModelParallelStrategy with fully_shard on every block for LoRA (LG/finetune/lora.py
    parallelize_fn), Lightning Fabric's FSDPStrategy for the others and before."""
    ranks = run[f.parallel.world]
    if ranks is None or ranks == 1:
        return None if ranks is None else "none"
    name = run[own.command]
    return Sourced("fsdp2" if _is_second(run) else "fsdp1", f"{SOURCE} {name}.py: strategy")


LORA_SHARDS_WITH_FSDP2 = LibraryChange(
    "litgpt",
    (0, 5, 11),
    "Lightning Fabric's FSDPStrategy shards LoRA too, with FSDP1",
    "litgpt 0.5.10 and 0.5.11 finetune/lora.py setup: strategy",
)


def _is_second(run: Cells) -> bool:
    is_lora = run[own.command] == "lora" and run[own.package] is None
    return is_lora and run.has(LORA_SHARDS_WITH_FSDP2)


@meaning.derive(
    f.load.unshards, source="lightning 2.6 fabric/strategies/fsdp.py _load_raw_module_state"
)
def unshards(run: Cells) -> Any:
    """LG/utils.py load_checkpoint: FSDPStrategy loads a raw checkpoint under summon_full_params."""
    ranks = run[f.parallel.world]
    if ranks is None or ranks == 1 or _is_second(run) or run[f.model.from_scratch]:
        return None
    return True


@meaning.derive(
    _F.version, _F.strategy, _F.reshard_after_forward, _F.wrap, _F.state_dict, _F.cpu_offload,
    _F.sync_every_micro,
)  # fmt: skip
def sharding(run: Cells) -> Any:
    if (run[f.parallel.world] or 1) == 1:
        return None
    values = {
        _F.version: 2 if _is_second(run) else 1,
        _F.strategy: "hybrid" if _pretrains(run) else "full",
        _F.reshard_after_forward: True,
        _F.wrap: "transformer",
        _F.state_dict: "full",
        _F.cpu_offload: bool(run[own.offloads]),
        # fabric.no_backward_sync between optimizer steps.
        _F.sync_every_micro: False,
    }
    source = f"{SOURCE} {run[own.command]}.py: strategy"
    return {field: Sourced(value, source) for field, value in values.items()}


@meaning.derive(
    _F.use_orig_params,
    _F.limit_all_gathers,
    _F.backward_prefetch,
    _F.forward_prefetch,
    source="Lightning Fabric's FSDPStrategy, and torch 2.9 FSDP below it",
)
def sharding_by_fabric(run: Cells) -> Any:
    if (run[f.parallel.world] or 1) == 1 or _is_second(run):
        return None
    return {
        _F.use_orig_params: True,
        _F.limit_all_gathers: True,
        _F.backward_prefetch: "pre",
        _F.forward_prefetch: False,
    }


@meaning.derive(f.load.meta_init, source="LG: init_module(empty_init)")
def loads_empty(run: Cells) -> Any:
    return True if (run[f.parallel.world] or 1) > 1 else None


meaning.cannot_say(
    "LitGPT shards with FSDP by itself where devices is above 1", f.parallel.zero.stage
)
meaning.cannot_say("LitGPT always saves whole checkpoints", _F.state_dict)
meaning.cannot_say("LitGPT has no CPU offloading", f.offload.params, f.offload.optimizer)
meaning.cannot_say("LitGPT computes attention with PyTorch's own kernels", f.model.attn_impl)
meaning.cannot_say("LitGPT maps checkpoint files into memory as it is", f.load.cpu_ram_efficient)

# -- what is trained -------------------------------------------------------------------------------

_ROLES = {
    "query": ("q_proj", "qkv_proj", "query_key_value"),
    "key": ("k_proj",),
    "value": ("v_proj",),
    "projection": ("o_proj", "dense"),
    "mlp": (
        "gate_proj", "up_proj", "down_proj", "gate_up_proj", "fc1", "fc2", "dense_h_to_4h",
        "dense_4h_to_h",
    ),
    "head": ("lm_head",),
}  # fmt: skip


def _adapts(run: Cells) -> bool:
    return run[own.command] not in ("full", "pretrain")


@meaning.derive(f.trainable.method)
def method(run: Cells) -> Any:
    if not _adapts(run):
        return "full"
    if str(run[own.command]).startswith("adapter"):
        return "adapter"
    return "qlora" if run[own.quantize] else "lora"


meaning.constant(f.trainable.target_params, "none", "litgpt lora.py: linear layers alone")


@meaning.derive(f.trainable.targets)
def targets(run: Cells) -> Any:
    """LG/adapter_v2.py: a scale and a bias on every linear layer."""
    if run[own.command] == "adapter_v2":
        return "all_linear"
    if run[own.command] != "lora":
        return None
    chosen = [part for part, field in LORA_PARTS.items() if run[field]]
    return tuple(name for part in chosen for name in _ROLES[part])


def _quantizes(run: Cells) -> str | None:
    return run[own.quantize] if _adapts(run) else None


@meaning.derive(f.quant.method)
def quantization(run: Cells) -> Any:
    if _adapts(run) and run.is_unread(own.quantize):
        return None
    asked = _quantizes(run)
    return "none" if asked is None else "bnb8" if asked == "int8" else "bnb4"


@quantization.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    """LG/finetune/lora.py: quantization needs one device and no mixed precision."""
    spelled = {"bnb4": "nf4", "bnb8": "int8"}.get(wanted)
    if spelled is None:
        raise CannotEdit(f"LitGPT quantizes with bitsandbytes only, not {wanted}")
    if not is_adapter_run(run):
        raise CannotEdit("LitGPT quantizes weights only under LoRA or adapters")
    if run[f.parallel.world] != 1:
        raise CannotEdit("LitGPT quantizes on a single device only")
    changes = {own.quantize: spelled}
    if str(run[own.precision]).endswith("-mixed"):
        changes[own.precision] = "bf16-true"
    return changes


@meaning.derive(f.quant.double, f.quant.storage_dtype)
def four_bits(run: Cells) -> Any:
    """Fabric keeps the packed weights in uint8 (fabric/plugins/precision/bitsandbytes.py)."""
    asked = _quantizes(run)
    if asked is None or asked == "int8":
        return None
    return {f.quant.double: asked.endswith("-dq"), f.quant.storage_dtype: "uint8"}


@meaning.derive(
    f.quant.skip_modules,
    source="lightning 2.6 fabric/plugins/precision/bitsandbytes.py _convert_layers",
)
def skips_nothing(run: Cells) -> Any:
    """Fabric replaces every linear layer, the head included."""
    return () if _quantizes(run) else None


@meaning.derive(f.trainable.unstepped, source=SOURCE)
def stable_embedding(run: Cells) -> Any:
    """The StableEmbedding put in place after the rest was frozen (LG/finetune/lora.py)."""
    return "embeddings" if _quantizes(run) and run[own.command] == "lora" else None
