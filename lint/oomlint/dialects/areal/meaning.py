"""What AReaL makes of its keys, and how they say a wish.

Read from inclusionAI/AReaL 4aef98d8 (2026-05-21); ``AR`` below is its ``areal`` package.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.areal.allocation import Allocation, served, trained
from oomlint.dialects.areal.keys import ARGS, SOURCE, own
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.adapters import checkpoint_layers, names_of, targets_of
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import machine
from oomlint.dialects.common.generation import engine_called
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(world, launch_one_process, batch)

_ALLOC = f"{SOURCE} areal/api/alloc_mode.py"
_FSDP = f"{SOURCE} areal/engine/fsdp_engine.py"
_MEGATRON = f"{SOURCE} areal/engine/megatron_engine.py"
_RL = f"{SOURCE} areal/trainer/rl_trainer.py"
_DPO = f"{SOURCE} areal/trainer/dpo_trainer.py"
_DATA = f"{SOURCE} areal/utils/data.py"


def _place(run: Cells) -> Allocation | None:
    """Where the role that trains stands."""
    found: Allocation | None = run[own.place]
    return found or trained(run[own.mode] or ())


def _serving(run: Cells) -> Allocation | None:
    found: Allocation | None = run[own.serving]
    return found or served(run[own.mode] or ())


def _backend(run: Cells) -> str:
    place = _place(run)
    return place.backend if place is not None else "fsdp"


def is_megatron(run: Cells) -> bool:
    return _backend(run) == "megatron"


def _is_rl(run: Cells) -> bool:
    return run[f.objective.kind] in ("grpo", "ppo")


# -- the objective and the models beside -----------------------------------------------------------

_O = f.objective
_R = _O.rollout


@meaning.derive(_O.kind, source=f"{ARGS}:2758-2883")
def objective(run: Cells) -> Any:
    """A file with an engine is for RL, whichever program reads it."""
    if run.mentions(own.rollout) or _serving(run) is not None:
        return "ppo" if run.mentions(own.critic) else "grpo"
    return {"dpo": "dpo", "rw": "rm", "rl": "grpo"}.get(str(run[own.kind]).lower(), "sft")


@meaning.derive(_O.pairs_per_sample, source=f"{_DPO}, {SOURCE} areal/trainer/rw")
def pairs(run: Cells) -> Any:
    """A budget of tokens has both answers of a pair in it."""
    return 1 if run[_O.kind] in ("dpo", "rm") else None


def _is_beside(run: Cells, place: Any) -> bool:
    return bool(run[place] == "actor")


@meaning.derive(_O.ref_model, _O.ref_dtype, source=f"{_RL}:179, {_DPO}:114")
def reference(run: Cells) -> Any:
    """RL has one where ``kl_ctl`` is above 0; on the actor's cards it stays there unless its own ``offload``."""
    kind = run[_O.kind]
    wanted = run.mentions(own.ref) and (kind == "dpo" or (_is_rl(run) and (run[own.kl] or 0) > 0))
    if not wanted:
        return {_O.ref_model: "none"}
    stays = _is_beside(run, own.ref_place) and not (run[own.ref_offload] and run[own.offloads])
    return {_O.ref_model: "copy" if stays else "precomputed", _O.ref_dtype: run[own.ref_dtype]}


@meaning.derive(_O.critic, _O.teacher, _O.reward_model, source=f"{_RL}:172-190")
def models_beside(run: Cells) -> Any:
    """Those on the actor's cards; rewards are functions."""
    critic = run[own.critic_path] or run[f.model.id]
    teacher = run[own.teacher_path]
    has_critic = run.mentions(own.critic) and _is_beside(run, own.critic_place)
    has_teacher = run.mentions(own.teacher) and _is_beside(run, own.teacher_place)
    return {
        _O.critic: critic if has_critic else "none",
        _O.teacher: teacher if has_teacher else "none",
        _O.reward_model: "none",
    }


# -- ranks -----------------------------------------------------------------------------------------


@meaning.derive(f.parallel.gpus_per_node, f.parallel.nodes, source=f"{_ALLOC}:152")
def ranks(run: Cells) -> Any:
    """As many as the degrees come to: the cluster's size makes no engine larger."""
    place = _place(run)
    if place is None:
        return None
    each = run[machine.gpus_per_node] or run[own.node_gpus]
    return {
        f.parallel.gpus_per_node: min(place.world, each),
        f.parallel.nodes: max(1, -(-place.world // each)),
    }


@meaning.derive(
    f.parallel.tp, f.parallel.pp, f.parallel.cp, f.parallel.ulysses, f.parallel.ep, f.parallel.etp, f.parallel.vpp,
    f.parallel.sp, f.parallel.pp_schedule, source=f"{_ALLOC}, {_MEGATRON}:1242",
)  # fmt: skip
def degrees(run: Cells) -> Any:
    """``c`` is Ulysses' for FSDP; sequences are split wherever tensors are."""
    place = _place(run)
    if place is None:
        return None
    has_stages = place.pp > 1
    return {
        f.parallel.tp: place.tp,
        f.parallel.pp: place.pp,
        f.parallel.cp: place.cp if is_megatron(run) else 1,
        f.parallel.ulysses: 1 if is_megatron(run) else place.cp,
        f.parallel.ep: place.ep,
        f.parallel.etp: place.etp,
        f.parallel.vpp: run[own.vpp]
        if is_megatron(run) and has_stages and run[own.vpp] > 1
        else None,
        f.parallel.sp: place.tp > 1,
        f.parallel.pp_schedule: "1F1B" if has_stages else None,
    }


_LETTERS = {
    f.parallel.tp: "tp",
    f.parallel.pp: "pp",
    f.parallel.cp: "cp",
    f.parallel.ulysses: "cp",
    f.parallel.ep: "ep",
}


@meaning.written(*_LETTERS)
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    """The cards stay as many as they are."""
    place, dims = run[own.place], run[f.model.dims]
    if place is None:
        raise CannotEdit("no key says of the actor alone which degrees it has")
    sizes = {name: wishes[field] for field, name in _LETTERS.items() if field in wishes}
    wanted = replace(place, **sizes)
    if not is_megatron(run) and (wanted.pp > 1 or wanted.ep > 1):
        raise CannotEdit("FSDP has neither stages nor spread experts in AReaL")
    others = wanted.tp * wanted.pp * wanted.cp
    if place.world % others:
        raise CannotEdit("the cards that there are cannot be divided so")
    if dims is not None and dims.heads and dims.heads % wanted.tp:
        raise CannotEdit("the heads cannot be divided so")
    return {own.place: replace(wanted, dp=place.world // others)}


meaning.cannot_say(
    "AReaL splits sequences wherever it splits tensors",
    f.parallel.sp,
    f.parallel.etp,
    f.parallel.vpp,
)

# -- sharding --------------------------------------------------------------------------------------

_F = f.parallel.fsdp


@meaning.derive(
    f.parallel.backend, _F.version, _F.wrap, _F.strategy, _F.state_dict, _F.reshard_after_forward,
    _F.sync_every_micro, source=f"{SOURCE} areal/engine/fsdp_utils/parallel.py:384, {_FSDP}",
)  # fmt: skip
def backend(run: Cells) -> Any:
    if is_megatron(run):
        return {f.parallel.backend: "megatron"}
    return {
        f.parallel.backend: "fsdp2", _F.version: 2, _F.wrap: "transformer", _F.strategy: "full",
        _F.state_dict: "full", _F.reshard_after_forward: True, _F.sync_every_micro: True,
    }  # fmt: skip


@meaning.override(f.parallel.megatron.dist_optimizer, source=f"{_MEGATRON}:1273")
def adapters_are_not_shared_out(run: Cells) -> Any:
    return False if run[own.lora] else None


@meaning.derive(
    _F.cpu_offload, f.offload.params, f.offload.optimizer, source=f"{_FSDP}:472, {ARGS}:421-444"
)
def offloading(run: Cells) -> Any:
    """FSDP's states go with the weights, or alone where they are stepped layer by layer."""
    if is_megatron(run):
        return {f.offload.params: "none", f.offload.optimizer: "none"}
    params = bool(run[own.offloads_params])
    states = params or bool(run[own.streams])
    return {
        _F.cpu_offload: params,
        f.offload.params: "cpu" if params else "none",
        f.offload.optimizer: "cpu" if states else "none",
    }


@offloading.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_megatron(run):
        raise CannotEdit("AReaL's Megatron keeps its optimizer's states on the GPU")
    place = "cpu" if device is True else "none" if device is False else device
    on_cpu = to_cpu(place, "AReaL's FSDP offloads")
    if f.offload.params in wishes or _F.cpu_offload in wishes:
        return {own.offloads_params: on_cpu}
    if on_cpu and str(run[own.optimizer]) != "adam":
        raise CannotEdit("per_layer_optim_step is for adam alone")
    return {own.streams: on_cpu}


meaning.cannot_say(
    "AReaL shards with FSDP2 or Megatron, not with DeepSpeed",
    f.parallel.zero.stage,
    f.load.zero3_init,
)
meaning.cannot_say(
    "AReaL's FSDP shards over all ranks", _F.strategy, _F.state_dict, _F.reshard_after_forward
)
meaning.cannot_say("AReaL pins what it offloads", f.offload.pin_memory)
meaning.always(f.quant.method, "none", f"{_FSDP}:1098")
meaning.cannot_say("AReaL trains no quantized weights", f.quant.method)


@meaning.derive(f.offload.idle, source=f"{_FSDP}:901, {_RL}:1208")
def leaves(run: Cells) -> Any:
    """The whole role, while answers are written on its cards."""
    away = run[own.offloads] and (run[own.role_offload] or _shares_cards(run))
    return "cpu" if _is_rl(run) and away else "none"


@leaves.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    wanted = to_cpu(device, "a role leaves its GPU")
    return {own.role_offload: wanted, own.offloads: True} if wanted else {own.role_offload: False}


# -- dtypes ----------------------------------------------------------------------------------------

_P = f.precision


@meaning.derive(
    _P.param, _P.grad, _P.master, _P.optim_state, _P.compute, _P.autocast, _P.logits, f.load.dtype,
    f.trainable.adapter_dtype, f.parallel.megatron.precision_aware_optim,
    source=f"{_FSDP}:1125, {_MEGATRON}:1131, {ARGS}:718,869",
)  # fmt: skip
def dtypes(run: Cells) -> Any:
    """FSDP steps weights in what they are; Megatron has fp32 ones beside, and sums of gradients in fp32."""
    kept, adapters = run[own.dtype], is_adapter_run(run)
    common = {
        _P.param: kept, _P.compute: kept, _P.autocast: False, f.load.dtype: kept,
        f.trainable.adapter_dtype: kept if adapters else None,
    }  # fmt: skip
    if not is_megatron(run):
        return {**common, _P.grad: kept, _P.master: "none", _P.optim_state: kept, _P.logits: kept}
    narrow = run[own.optimizer] == "adam_bf16"
    aware = bool(run[own.aware]) or narrow
    return {
        **common,
        _P.grad: "fp32" if run[own.wide_grads] else run[own.grads_kept] if aware else kept,
        _P.master: ("none" if kept == "fp32" else run[own.masters_kept] if aware else "fp32"),
        _P.optim_state: "bf16" if narrow else run[own.first_moments] if aware else "fp32",
        _P.logits: "fp32",
        f.parallel.megatron.precision_aware_optim: aware,
    }


@meaning.written(_P.param)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    if dtype not in ("bf16", "fp32"):
        raise CannotEdit("AReaL trains in bf16 or fp32")
    return {own.dtype: dtype}


@meaning.written(_P.optim_state)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not is_megatron(run) or dtype != "bf16":
        return {}
    return {own.optimizer: "adam_bf16"}


@meaning.derive(_P.fp8_train, source=f"{ARGS}: FP8EngineConfig")
def trains_in_fp8(run: Cells) -> Any:
    return "te" if is_megatron(run) and run[own.fp8] is not None else "none"


# -- the optimizer and what is trained -------------------------------------------------------------


@meaning.derive(
    f.optimizer.kind, f.optimizer.fused, f.optimizer.state_elems_per_param,
    source=f"{_FSDP}:1125, {SOURCE} areal/engine/fsdp_utils/optimizer.py:44",
)  # fmt: skip
def optimizer(run: Cells) -> Any:
    """FSDP's ``adam_bf16`` has a third buffer, for what rounding loses."""
    named = str(run[own.optimizer]).lower()
    if named == "sgd":
        return {f.optimizer.kind: "sgd", f.optimizer.fused: False}
    if named == "adam_bf16" and not is_megatron(run):
        return {
            f.optimizer.kind: "anyprecision_adamw",
            f.optimizer.fused: False,
            f.optimizer.state_elems_per_param: 3.0,
        }
    return {f.optimizer.kind: "adamw", f.optimizer.fused: True}


@meaning.written(f.optimizer.kind)
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind not in ("adamw", "sgd"):
        raise CannotEdit("AReaL has AdamW and SGD")
    return {own.optimizer: "adam" if kind == "adamw" else "sgd"}


meaning.cannot_say("AReaL's AdamW is fused", f.optimizer.fused)


@meaning.derive(f.trainable.method, source=f"{_FSDP}:1076")
def method(run: Cells) -> Any:
    return "lora" if run[own.lora] else "full"


@method.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted not in ("lora", "full"):
        raise CannotEdit("AReaL trains the whole model, or LoRA")
    if wanted == "lora" and is_megatron(run) and run[own.bridge] != "megatron-bridge":
        raise CannotEdit("LoRA on Megatron takes bridge_type megatron-bridge")
    return {own.lora: wanted == "lora"}


@meaning.derive(
    f.trainable.r, f.trainable.alpha, f.trainable.targets, source=f"{ARGS}:1130, {_FSDP}:1080"
)
def adapter(run: Cells) -> Any:
    if not run[own.lora]:
        return None
    named = run[own.targets]
    return {
        f.trainable.r: run[own.rank],
        f.trainable.alpha: run[own.alpha],
        f.trainable.targets: targets_of(checkpoint_layers(named)) if named else "all_linear",
    }


@meaning.written(f.trainable.r)
def _(rank: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.rank: rank}


@meaning.written(f.trainable.targets)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.targets: names_of(wanted)}


# -- activations -----------------------------------------------------------------------------------

_C = f.checkpointing


@meaning.derive(
    _C.mode, _C.source, _C.reentrant, _C.recompute_modules, _C.offload, f.offload.activations,
    source=f"{_FSDP}:1065, {_MEGATRON}:520, {SOURCE} areal/models/mcore/registry.py:218",
)  # fmt: skip
def checkpointing(run: Cells) -> Any:
    """``megatron-bridge`` recomputes whether ``gradient_checkpointing`` says so or not."""
    away = {_C.offload: "none", f.offload.activations: "none"}
    if not is_megatron(run):
        mode = "full" if run[own.gc] else "none"
        return {**away, _C.mode: mode, _C.source: "framework", _C.reentrant: False}
    is_on = run[own.gc] or run[own.bridge] == "megatron-bridge"
    mode = run[own.granularity] if is_on else "none"
    modules = run[own.modules] if mode == "selective_op" else None
    return {
        **away, _C.mode: mode, _C.source: "megatron", _C.reentrant: True, _C.recompute_modules: modules,
    }  # fmt: skip


@meaning.written(_C.mode)
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("AReaL recomputes every layer, or Megatron's modules by name")
    if mode == "none" and is_megatron(run) and run[own.bridge] == "megatron-bridge":
        raise CannotEdit("megatron-bridge recomputes whatever gradient_checkpointing says")
    said: dict[Any, Any] = {own.gc: mode == "full"}
    if mode == "full" and is_megatron(run) and run[own.granularity] != "full":
        said[own.granularity] = "full"
    return said


meaning.cannot_say("AReaL offloads no activations", _C.offload, f.offload.activations)

# -- lengths and batches ---------------------------------------------------------------------------


@meaning.derive(f.seq.max_len, source=f"{ARGS}:166-175, {SOURCE} areal/utils/seqpack.py:239")
def length(run: Cells) -> Any:
    """Of RL a prompt with its answer; where nothing bounds samples, more than a micro batch takes stops the run."""
    tokens, prompt = run[own.tokens], run[own.prompt_len]
    if not _is_rl(run):
        return prompt or tokens
    whole = run[own.whole_len]
    found = min(prompt + run[own.answer_len], whole) if prompt else whole
    return min(found, tokens) if tokens else found


@length.written
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not _is_rl(run):
        return {own.prompt_len: tokens}
    rest = tokens - (run[own.prompt_len] or 0)
    if not run[own.prompt_len]:
        return {own.whole_len: tokens}
    if rest < 1:
        raise CannotEdit("prompts alone are as long (train_dataset.max_length)")
    return {own.answer_len: rest}


@meaning.derive(_R.max_prompt_tokens, _R.max_completion_tokens, source=f"{ARGS}:169, 2613")
def parts_of_sample(run: Cells) -> Any:
    if not _is_rl(run):
        return None
    return {
        _R.max_prompt_tokens: run[own.prompt_len],
        _R.max_completion_tokens: run[own.answer_len],
    }


@meaning.written(_R.max_completion_tokens)
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.answer_len: tokens}


@meaning.derive(f.seq.packing, f.seq.pad, source=f"{_DATA}:815")
def packing(run: Cells) -> Any:
    return {f.seq.packing: "varlen", f.seq.pad: "max_len" if run[own.fills] else "none"}


def _rows(run: Cells) -> int | None:
    """Samples of one step on one data-parallel rank."""
    dp, samples = run[f.parallel.dp], run[own.prompts]
    if not dp or not samples:
        return None
    if _is_rl(run):
        samples = samples * (run[_R.n] or 1) // (run[own.minibatches] or 1)
    pairs = 2 if run[_O.kind] in ("dpo", "rm") else 1
    return max(1, samples * pairs // dp)


@meaning.derive(f.batch.max_tokens_per_gpu, source=f"{_DATA}:693, {_MEGATRON}:1955")
def budget(run: Cells) -> Any:
    """Of all ranks that share a sample; no step has more than its own samples."""
    tokens, rows, longest = run[own.tokens], _rows(run), run[f.seq.max_len]
    if not tokens:
        return None
    return min(tokens, rows * longest) if rows and longest and not run[own.fills] else tokens


@budget.written
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    longest = wishes.get(f.seq.max_len) or _floor(run)
    if longest and tokens < longest:
        raise CannotEdit("a micro batch must have room for the longest sample")
    return {own.tokens: tokens}


def _floor(run: Cells) -> int | None:
    """The longest sample that may come, whatever a micro batch has room for."""
    prompt = run[own.prompt_len]
    if not _is_rl(run):
        return prompt
    return min(prompt + run[own.answer_len], run[own.whole_len]) if prompt else None


@meaning.derive(f.batch.micro, f.batch.grad_accum, f.batch.micro_unit, source=f"{_DATA}:693-760")
def micro_batches(run: Cells) -> Any:
    """Without a budget all that a step has is one micro batch, or ``n_mbs``; a pipeline takes two a stage."""
    rows, tokens, longest = _rows(run), run[own.tokens], run[f.seq.max_len]
    unit = "completions" if _is_rl(run) else None
    if rows is None:
        return None
    stages = run[f.parallel.pp] or 1
    least = max(run[own.parts] or 1, 2 * stages if stages > 1 else 1)
    if tokens and longest:
        steps = max(least, -(-rows * longest // tokens))
        return {
            f.batch.micro: max(1, tokens // longest),
            f.batch.grad_accum: steps,
            f.batch.micro_unit: unit,
        }
    each = max(1, -(-rows // least))
    return {f.batch.micro: each, f.batch.grad_accum: least, f.batch.micro_unit: unit}


@meaning.written(f.batch.micro)
def _(rows: Any, run: Cells, wishes: Wishes) -> Wishes:
    longest = wishes.get(f.seq.max_len) or run[f.seq.max_len]
    if longest is None:
        raise CannotEdit("the budget of tokens depends on a length that is not known")
    pairs = 2 if run[_O.kind] in ("dpo", "rm") else 1
    return {own.tokens: max(rows, pairs) * longest}


meaning.follows(f.batch.grad_accum)


@meaning.derive(_R.scored_tokens, source=f"{SOURCE} areal/trainer/ppo/actor.py:80")
def scored(run: Cells) -> Any:
    """Old log-probabilities are taken in micro batches like those of training."""
    scores = _is_rl(run) and (run[own.scores] or run[own.decouples])
    return run[f.batch.max_tokens_per_gpu] if scores else None


@meaning.derive(_R.generation_batch, source=f"{SOURCE} areal/trainer/ppo/actor.py:80")
def answers(run: Cells) -> Any:
    return run[own.prompts] * (run[_R.n] or 1) if _is_rl(run) else None


meaning.follows(_R.scored_tokens)

# -- the loss --------------------------------------------------------------------------------------

_LOSS = f"{SOURCE} areal/utils/functional/vocab_parallel.py:15-81"
_ROWS = 1024


@meaning.derive(
    f.loss.logits_materialised, f.loss.algorithm, f.loss.chunks, f.loss.upcast_fp32, source=_LOSS
)
def loss(run: Cells) -> Any:
    """Log-probabilities of 1024 rows at a time; those of logits that ranks share by a softmax that is kept."""
    tokens = run[f.batch.max_tokens_per_gpu]
    if not tokens:
        micro, longest = run[f.batch.micro], run[f.seq.max_len]
        tokens = micro * longest if micro and longest else _ROWS
    if is_megatron(run) or (run[f.parallel.tp] or 1) > 1:
        kind = "loss_parallel" if is_megatron(run) else "full"
        return {
            f.loss.logits_materialised: kind,
            f.loss.algorithm: "softmax",
            f.loss.upcast_fp32: True,
        }
    return {
        f.loss.logits_materialised: "chunked",
        f.loss.algorithm: "slices",
        f.loss.chunks: max(1, -(-tokens // _ROWS)),
        f.loss.upcast_fp32: True,
    }


meaning.cannot_say(
    "AReaL computes its loss from all logits", f.loss.logits_materialised, f.loss.chunks
)
meaning.always(f.loss.outputs_kept, False, _LOSS)

# -- rollouts --------------------------------------------------------------------------------------


def _is_vllm(run: Cells) -> bool:
    place = _serving(run)
    return place is not None and place.backend == "vllm"


def _shares_cards(run: Cells) -> bool:
    return bool(run[own.target] == "rollout")


@meaning.derive(
    _R.engine,
    _R.tp,
    _R.gpu_mem_util,
    _R.max_model_len,
    _R.sleep,
    source=f"{_RL}:1208, {ARGS}:1657,1771",
)
def engine(run: Cells) -> Any:
    """On cards of its own, unless the actor is put where it is; the other engine's section counts for nothing."""
    if not _is_rl(run):
        return None
    place, is_vllm = _serving(run), _is_vllm(run)
    here = _shares_cards(run)
    return {
        _R.engine: engine_called("vllm" if is_vllm else "sglang", shares_cards=here),
        _R.tp: place.tp if place is not None else None,
        _R.gpu_mem_util: run[own.vllm_share if is_vllm else own.sglang_share],
        _R.max_model_len: run[own.vllm_len if is_vllm else own.sglang_len],
        _R.sleep: here,
    }


@meaning.written(_R.gpu_mem_util)
def _(share: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.vllm_share if _is_vllm(run) else own.sglang_share: share}


meaning.cannot_say("AReaL's engines sleep where they share cards, and never else", _R.sleep)

# -- loading, evaluating and saving ----------------------------------------------------------------


@meaning.derive(
    f.load.cpu_ram_efficient, f.load.device_map, f.load.meta_init, source=f"{_FSDP}:991-1062"
)
def loads(run: Cells) -> Any:
    """Each rank reads the whole model onto its card before it is sharded, unless one reads it in RAM."""
    if is_megatron(run):
        return None
    alone = bool(run[own.loads_once])
    return {
        f.load.cpu_ram_efficient: alone,
        f.load.device_map: "none" if alone else "single",
        f.load.meta_init: False,
    }


@loads.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if f.load.cpu_ram_efficient not in wishes or is_megatron(run):
        raise CannotEdit("AReaL loads onto the card, or once in RAM (memory_efficient_load)")
    return {own.loads_once: bool(wanted)}


@meaning.derive(f.eval.enabled, f.eval.strategy, source=f"{_RL}:980")
def evaluation(run: Cells) -> Any:
    """It generates on the engine's cards."""
    return {f.eval.enabled: False, f.eval.strategy: "no"}


@meaning.derive(f.save.strategy, f.save.every, f.save.unit, source=f"{ARGS}:2193")
def saving(run: Cells) -> Any:
    steps, epochs = run[own.steps], run[own.epochs]
    if steps:
        return {f.save.strategy: "steps", f.save.every: float(steps), f.save.unit: "steps"}
    if epochs:
        return {f.save.strategy: "epoch", f.save.every: float(epochs), f.save.unit: "epochs"}
    return {f.save.strategy: "no"}


@meaning.written(f.save.every)
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.steps: int(count)}


@meaning.derive(
    f.save.contents, f.save.full_gather, f.save.keep, source=f"{_FSDP}:1640, {ARGS}:2255"
)
def saved(run: Cells) -> Any:
    """The model comes together in the RAM of one rank; what a run goes on from is sharded."""
    kept = "adapter" if is_adapter_run(run) else "model"
    is_whole = run[own.recovers] in (None, "disabled", "off")
    return {
        f.save.contents: (kept,) if is_whole else (kept, "optimizer"),
        f.save.full_gather: not is_megatron(run),
        f.save.keep: "all",
    }


meaning.cannot_say("AReaL keeps every checkpoint of its saver", f.save.keep)
meaning.cannot_say("recover says what a run goes on from", f.save.save_only_model)
