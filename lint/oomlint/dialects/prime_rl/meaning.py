"""What prime-rl makes of its keys, and how they say a wish.

Read from PrimeIntellect-ai/prime-rl 559b4477 (2026-08-21); ``PT`` below is its ``src/prime_rl/trainer``.
Trainer and inference have cards of their own, always: what is predicted is a card that trains.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.common.world import batch, express_global_batch, world
from oomlint.dialects.machine.meaning import launch_all_visible
from oomlint.dialects.meaning import NOTHING, Bounds, Meaning, Wishes
from oomlint.dialects.prime_rl.keys import (
    EXPANDS,
    ORCHESTRATOR,
    RL_CONFIG,
    SFT_CONFIG,
    SOURCE,
    SPREADS_EXPERTS,
    TRAINER,
    own,
)
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(world, launch_all_visible, batch)

_CODE = f"{SOURCE} src/prime_rl/trainer"
_MODEL = f"{_CODE}/model.py"
_HEAD = f"{_CODE}/models/layers/lm_head.py"
_RL = f"{_CODE}/rl/train.py"
_SFT = f"{_CODE}/sft/train.py"


def _is_on(section: Any) -> bool:
    """A section is on where it is there, and ``"None"`` turns it off."""
    return section is not None and section != "None"


_SECTIONS = {
    own.lora: (f.trainable.r, f.trainable.alpha, f.trainable.dropout, own.targets, own.saved_modules),
    own.ac: (own.ac_mode, own.ac_every, own.ac_targets),
    own.ckpt: (own.interval, own.keep),
}  # fmt: skip


def _has(run: Cells, section: Any) -> bool:
    """So is one that an option says a key of: ``--model.lora.rank 16``."""
    return _is_on(run[section]) or (
        not run.says(section) and any(run.says(key) for key in _SECTIONS[section])
    )


def _is_sft(run: Cells) -> bool:
    return run[own.kind] == "sft"


@meaning.requires
def releases(run: Cells) -> Iterator[Bounds]:
    """Those that have the keys: ``tp`` and ``trainer_gpu_ids`` went before 0.5.0 (2026-03-30), ``fp8`` became a section
    on 2026-07-16, ``full_offload`` came on 2026-08-15 (configs/trainer.py)."""
    if run.says(f.parallel.tp) or run.says(own.gpu_ids):
        yield "prime-rl", (), (0, 5)
    if run.says(own.early_fp8):
        yield "prime-rl", (), (0, 8)
    if run.says(own.quantization):
        yield "prime-rl", (0, 8), ()
    if run.says(own.full_offload):
        yield "prime-rl", (0, 8, 1), ()


# -- the model and the objective -------------------------------------------------------------------

_O = f.objective
_R = _O.rollout


@meaning.derive(_O.kind, source=f"{SOURCE} src/prime_rl/entrypoints")
def objective(run: Cells) -> Any:
    """Distillation trains on log-probabilities of the same kind (configs/algorithm.py)."""
    return "sft" if _is_sft(run) else "grpo"


@meaning.derive(_O.ref_model, _O.critic, _O.reward_model, _O.teacher, source=_RL)
def models_beside(run: Cells) -> Any:
    """What judges answers, or is imitated, is served elsewhere."""
    return dict.fromkeys((_O.ref_model, _O.critic, _O.reward_model, _O.teacher), "none")


@meaning.override(f.model.dims, source=f"{_MODEL}: debug.num_layers")
def cut_short(run: Cells) -> Any:
    layers, dims = run[own.layers], run[f.model.dims]
    if layers is None or dims is None or not dims.layers or layers >= dims.layers:
        return None
    unknown = dict.fromkeys((n for n in dims.__struct_fields__ if n.startswith("params_")), None)
    return replace(dims, layers=layers, **unknown)


meaning.takes(f.model.from_scratch, own.random_init, f"{_MODEL}:1000")


@meaning.derive(f.model.attn_impl, source=f"{_MODEL}:1303")
def attention(run: Cells) -> Any:
    return run[own.attention] or "flash2"


@attention.written
def _(kernel: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kernel not in ("flash2", "flash3"):
        raise CannotEdit("prime-rl attends with flash attention")
    return {own.attention: kernel}


meaning.always(f.load.meta_init, True, f"{_MODEL}:985: the meta device, then DCP shard by shard")
meaning.always(f.load.device_map, "none", _MODEL)
meaning.cannot_say("prime-rl loads shard by shard", f.load.cpu_ram_efficient)


@meaning.derive(f.load.resume, source=f"{TRAINER}: TrainerConfig.resume")
def resumes(run: Cells) -> Any:
    return _is_on(run[own.resume])


# -- ranks -----------------------------------------------------------------------------------------


@meaning.derive(
    f.parallel.gpus_per_node,
    f.parallel.nodes,
    source=f"{RL_CONFIG}:160-215, {SOURCE} src/prime_rl/entrypoints/rl.py:130",
)
def ranks(run: Cells) -> Any:
    """Of the trainer: the cards that answers are written on come besides."""
    if run[own.kind] == "trainer":
        return None
    if run[own.deployment] == "multi_node":
        return {
            f.parallel.gpus_per_node: run[own.node_gpus],
            f.parallel.nodes: run[own.train_nodes],
        }
    named = run[own.gpu_ids]
    return {
        f.parallel.gpus_per_node: len(named) if named else run[own.train_gpus],
        f.parallel.nodes: 1,
    }


@meaning.override(
    f.parallel.dp_replicate, source=f"{RL_CONFIG}:692, {SFT_CONFIG}: auto_setup_deployment"
)
def islands(run: Cells) -> Any:
    nodes, island = run[own.train_nodes], run[own.island]
    is_split = run[own.deployment] == "multi_node" and nodes and island and nodes % island == 0
    return nodes // island if is_split else None


_DIMS = f"{_CODE}/parallel_dims.py"


@meaning.derive(f.parallel.dp_shard, source=f"{_DIMS}:326")
def shards_over_rest(run: Cells) -> Any:
    total = run[f.parallel.world]
    others = (run[f.parallel.dp_replicate] or 1) * (run[f.parallel.cp] or 1)
    return None if total is None else max(1, total // (others * (run[f.parallel.tp] or 1)))


@meaning.derive(f.parallel.ep, source=f"{_DIMS}:281")
def spreads_experts(run: Cells) -> Any:
    """By itself as far as there are ranks, up to eight."""
    if run[own.experts] is not None:
        return run[own.experts]
    dims, total = run[f.model.dims], run[f.parallel.world]
    asked = run.is_auto(own.experts) or run.has(SPREADS_EXPERTS)
    if not asked or run[own.implementation] == "hf" or dims is None or dims.moe is None:
        return 1
    return min(total // (run[f.parallel.dp_replicate] or 1), 8) if total else None


@spreads_experts.written
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    if count > 1 and run[own.implementation] == "hf":
        raise CannotEdit("experts are spread in prime-rl's own models alone (impl)")
    return {own.experts: count}


@meaning.written(f.parallel.cp)
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    """PR/trainer.py validate_cp, PR/sft.py validate_cp_seq_len and validate_cp_micro_batch_size."""
    length, micro = wishes.get(f.seq.max_len) or run[f.seq.max_len], run[f.batch.micro]
    if count > 1 and run[own.implementation] == "hf":
        raise CannotEdit("context parallelism takes prime-rl's own models (impl)")
    if count > 1 and length and length % count:
        raise CannotEdit("the length must be divisible by the ranks that share a sample")
    if count > 1 and (wishes.get(f.batch.micro) or micro or 1) > 1:
        raise CannotEdit("the micro batch must be 1 where ranks share a sample")
    return {f.parallel.cp: count}


# -- sharding --------------------------------------------------------------------------------------

_F = f.parallel.fsdp
meaning.always(f.parallel.backend, "fsdp2", f"{_MODEL}:823 setup_fsdp")
meaning.always(_F.version, 2, _MODEL)
meaning.always(_F.wrap, "ends", f"{_MODEL}:883: the embedding, and the head with the last norm")
meaning.always(_F.state_dict, "sharded", f"{_CODE}/ckpt.py: DCP")
meaning.always(_F.sync_every_micro, True, _MODEL)
meaning.cannot_say("prime-rl always saves sharded", _F.state_dict)
meaning.cannot_say("prime-rl knows no DeepSpeed; it shards with FSDP2", f.parallel.zero.stage)
meaning.cannot_say("prime-rl knows no DeepSpeed", f.load.zero3_init)
meaning.cannot_say("prime-rl pins what it offloads", f.offload.pin_memory)


@meaning.derive(_F.strategy, source=f"{_MODEL}:833")
def strategy(run: Cells) -> Any:
    return "hybrid" if (run[f.parallel.dp_replicate] or 1) > 1 else "full"


@strategy.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted != "full":
        raise CannotEdit("dp_replicate says over how many groups of ranks prime-rl shards")
    return {f.parallel.dp_replicate: 1}


def _steps_on_cpu(run: Cells) -> bool:
    return _is_on(run[own.full_offload])


@meaning.derive(
    _F.cpu_offload, f.offload.params, f.offload.optimizer, f.offload.grads, f.offload.between_steps,
    f.optimizer.in_backward, source=f"{_MODEL}:824, {_CODE}/optim/state_offload.py, {_CODE}/optim/offload.py",
)  # fmt: skip
def offloading(run: Cells) -> Any:
    """``optim_cpu_offload`` brings states to the GPU for the step; with ``full_offload`` fp32 weights, states
    and sums of gradients are in RAM, where each part is stepped as soon as its gradients are there."""
    whole, steps = bool(run[own.fsdp_offload]), _steps_on_cpu(run)
    visits = bool(run[own.optim_offload]) and not (whole or steps)
    return {
        _F.cpu_offload: whole,
        f.offload.params: "cpu" if whole else "none",
        f.offload.optimizer: "cpu" if whole or steps else "none",
        f.offload.grads: "cpu" if whole or steps else "none",
        f.offload.between_steps: "cpu" if visits else "none",
        f.optimizer.in_backward: steps,
    }


_ALL = (own.fsdp_offload, own.optim_offload, own.full_offload)


@meaning.written(f.offload.params, _F.cpu_offload)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    """They exclude one another (PR/trainer.py cpu_offload_mutual_exclusion)."""
    wanted = device if isinstance(device, bool) else to_cpu(device, "prime-rl offloads")
    if not wanted:
        return {own.fsdp_offload: False}
    if run[f.optimizer.kind] == "muon":
        raise CannotEdit("Muon does not step what FSDP offloads")
    return _only(run, own.fsdp_offload)


def _only(run: Cells, key: Any) -> Wishes:
    """One way of offloading, the others off where they are on."""
    said: dict[Any, Any] = {key: {} if key is own.full_offload else True}
    if key is not own.full_offload and _steps_on_cpu(run):
        said[own.full_offload] = "None"
    for other in (own.fsdp_offload, own.optim_offload):
        if other is not key and (run[other] or other is own.optim_offload):
            said[other] = False
    return said


@meaning.written(f.offload.optimizer)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wishes.get(f.offload.params) == "cpu":
        return _only(run, own.fsdp_offload)
    if not to_cpu(device, "prime-rl offloads"):
        return {own.full_offload: "None"} if _steps_on_cpu(run) else {}
    if run[f.optimizer.kind] not in ("adamw", "sgd"):
        raise CannotEdit("full_offload steps AdamW and sign_sgd alone")
    return _only(run, own.full_offload)


@meaning.written(f.offload.between_steps)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not to_cpu(device, "prime-rl offloads"):
        return {own.optim_offload: False}
    return _only(run, own.optim_offload)


meaning.follows(f.offload.grads, f.optimizer.in_backward)

# -- dtypes ----------------------------------------------------------------------------------------

_P = f.precision


@meaning.derive(
    _P.param, _P.grad, _P.master, _P.optim_state, _P.compute, _P.autocast, _P.logits, f.load.dtype,
    f.trainable.adapter_dtype, source=f"{_MODEL}:824, {_CODE}/optim/offload.py:1554",
)  # fmt: skip
def dtypes(run: Cells) -> Any:
    """FSDP2 computes in bf16 whatever weights are kept in; stepped on the CPU they are bf16 on the GPU."""
    steps = _steps_on_cpu(run)
    kept = "bf16" if steps else run[own.dtype]
    return {
        _P.param: kept, _P.grad: kept, _P.master: "fp32" if steps else "none",
        _P.optim_state: "fp32" if steps else kept, _P.compute: "bf16", _P.autocast: False, _P.logits: "bf16",
        f.load.dtype: run[own.dtype], f.trainable.adapter_dtype: kept if is_adapter_run(run) else None,
    }  # fmt: skip


@meaning.written(_P.param)
def _(dtype: Any, run: Cells, wishes: Wishes) -> Wishes:
    if dtype not in ("bf16", "fp32"):
        raise CannotEdit("prime-rl keeps weights in bf16 or fp32")
    return {own.dtype: dtype}


meaning.follows(_P.optim_state)


@meaning.derive(_P.fp8_train, source=f"{TRAINER}: QuantizationConfig")
def trains_in_fp8(run: Cells) -> Any:
    return "torchao" if run[own.quantization] or run[own.early_fp8] else "none"


meaning.always(f.quant.method, "none", _MODEL)
meaning.cannot_say("prime-rl trains no quantized weights", f.quant.method)

# -- the optimizer ---------------------------------------------------------------------------------


@meaning.derive(f.optimizer.fused, source=f"{_CODE}/optim/__init__.py:56")
def is_fused(run: Cells) -> Any:
    return run[f.optimizer.kind] == "adamw" and not run[own.optim_offload]


@meaning.override(
    f.optimizer.clip_norm, source=f"{TRAINER}: full_optimizer_offload_disables_grad_clipping"
)
def clips_nothing(run: Cells) -> Any:
    """With a warning, whatever the file says; so does DeepEP."""
    is_off = _steps_on_cpu(run) or run[own.exchange] == "deepep"
    return NOTHING if is_off else None


@meaning.written(f.optimizer.kind)
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind not in ("adamw", "muon", "momentum_sgd", "sgd"):
        raise CannotEdit("prime-rl has AdamW, Muon, SGD and sign_sgd")
    if kind == "muon" and run[own.fsdp_offload]:
        raise CannotEdit("Muon does not step what FSDP offloads")
    if kind in ("muon", "momentum_sgd") and _steps_on_cpu(run):
        raise CannotEdit("full_offload steps AdamW and sign_sgd alone")
    return {f.optimizer.kind: kind}


meaning.cannot_say("whether AdamW is fused follows from optim_cpu_offload", f.optimizer.fused)

# -- what is trained -------------------------------------------------------------------------------


@meaning.derive(f.trainable.method, source=f"{TRAINER}:256")
def method(run: Cells) -> Any:
    return "lora" if _has(run, own.lora) else "full"


@method.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted != "lora":
        raise CannotEdit("prime-rl trains the whole model, or LoRA")
    if run[own.broadcast] in ("nccl", "nixl"):
        raise CannotEdit("adapters go to inference by way of the file system (weight_broadcast)")
    rank = wishes.get(f.trainable.r) or 16
    return {own.lora: {"rank": rank}, f.trainable.r: rank}


_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "experts")


@meaning.derive(
    f.trainable.targets,
    f.trainable.target_params,
    f.trainable.modules_to_save,
    source=f"{TRAINER}:114",
)
def adapted(run: Cells) -> Any:
    """``experts`` are stacked matrices, which have adapters of their own."""
    if run[f.trainable.method] != "lora":
        return None
    named = tuple(run[own.targets] or _TARGETS)
    dims = run[f.model.dims]
    has_experts = "experts" in named and dims is not None and dims.moe is not None
    return {
        f.trainable.targets: tuple(name for name in named if name != "experts"),
        f.trainable.target_params: "experts" if has_experts else None,
        f.trainable.modules_to_save: run[own.saved_modules] or None,
    }


@meaning.written(f.trainable.targets)
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted == "all_linear":
        return {own.targets: None} if run.says(own.targets) else {}
    return {own.targets: tuple(wanted)}


# -- activations -----------------------------------------------------------------------------------

_C = f.checkpointing
_PARTS = {"mlp": "mlp", "routed_experts": "moe", "norm": "layernorm", "mla_up_proj": "mla_up_proj"}


@meaning.derive(
    _C.mode, _C.every_n, _C.source, _C.reentrant, _C.recompute_modules, _C.offload, f.offload.activations,
    source=f"{_MODEL}:1133 apply_ac, {SOURCE} src/prime_rl/utils/act_offloading.py",
)  # fmt: skip
def checkpointing(run: Cells) -> Any:
    """Offloading turns recomputation on. Blocks of transformers' own have no parts to choose from."""
    offloads = _is_on(run[own.ac_offload])
    common = {
        _C.source: "framework", _C.reentrant: False,
        _C.offload: "cpu" if offloads else "none", f.offload.activations: "none",
    }  # fmt: skip
    if not _has(run, own.ac):
        return {**common, _C.mode: "full" if offloads else "none"}
    if run[own.ac_mode] == "selective" and run[own.implementation] != "hf":
        parts = tuple(_PARTS.get(each, each) for each in run[own.ac_targets])
        return {**common, _C.mode: "selective_op", _C.recompute_modules: parts}
    every = run[own.ac_every] or 1
    return {**common, _C.mode: "every_n" if every > 1 else "full", _C.every_n: every}


@meaning.written(_C.mode)
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode == "none":
        return {own.ac: "None", own.ac_offload: "None"}
    if mode != "full":
        raise CannotEdit("prime-rl recomputes blocks, or parts of them by name")
    if not _has(run, own.ac):
        return {own.ac: {"mode": "full"}}
    said: dict[Any, Any] = {}
    if run[own.ac_mode] != "full":
        said[own.ac_mode] = "full"
    if (run[own.ac_every] or 1) > 1:
        said[own.ac_every] = 1
    return said


@meaning.written(_C.offload, f.offload.activations)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    wanted = to_cpu(device, "prime-rl keeps the inputs of layers")
    if wanted == _is_on(run[own.ac_offload]):
        return {}
    return {own.ac_offload: {"pin_memory": True} if wanted else "None"}


meaning.follows(_C.every_n)


@meaning.derive(f.compile.enabled, source=f"{TRAINER}:188")
def compiles(run: Cells) -> Any:
    return _is_on(run[own.compile])


# -- lengths and batches ---------------------------------------------------------------------------

_PACKS = f"{_CODE}/batch.py:645-815"


@meaning.derive(f.seq.max_len, source=f"{ORCHESTRATOR}: seq_len, {_PACKS}")
def length(run: Cells) -> Any:
    """In RL of what the orchestrator packs; the trainer's own sizes made-up data alone (PT/rl/train.py:240)."""
    if _is_sft(run):
        return None
    if run[own.kind] == "trainer":
        return run[own.trainer_len]
    return run[own.answer_len] or run[own.shared_len] or 2048


@length.written
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    if _is_sft(run):
        return {f.seq.max_len: tokens}
    if run[own.kind] == "trainer":
        return {own.trainer_len: tokens}
    if run.says(own.answer_len):
        return {own.answer_len: tokens}
    return {own.shared_len: tokens}


@meaning.derive(f.seq.packing, f.seq.pad, source=f"{_CODE}/sft/data.py:474,532, {_PACKS}")
def packing(run: Cells) -> Any:
    """Rows are filled up with samples; of SFT the rest of a row is padding."""
    return {f.seq.packing: "multipack", f.seq.pad: "max_len" if _is_sft(run) else "none"}


@meaning.derive(f.batch.micro, source=_PACKS)
def one_row(run: Cells) -> Any:
    return None if _is_sft(run) else 1


@meaning.written(f.batch.micro)
def _(rows: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not _is_sft(run):
        raise CannotEdit("a micro batch of RL is one packed row: seq_len says how long")
    return {f.batch.micro: rows}


@meaning.derive(f.batch.grad_accum, source=f"{_SFT}:113, {_PACKS}")
def accumulation(run: Cells) -> Any:
    """Of RL as many as rows of one answer each would be; they are fewer where several go into a row."""
    dp, micro = run[f.parallel.dp], run[f.batch.micro]
    if dp is None or not micro:
        return None
    if _is_sft(run):
        return max(1, run[own.rows] // (micro * dp))
    if run[own.kind] == "trainer" or run[own.answer_tokens]:
        length, tokens = run[f.seq.max_len], run[own.answer_tokens]
        return max(1, tokens // (length * dp)) if tokens and length else None
    return max(1, -(-(run[own.answers] or 128) // dp))


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not _is_sft(run):
        raise CannotEdit("how many rows a step of RL has follows from its answers")
    return express_global_batch(
        steps, run, wishes, own.rows, "data.batch_size is of all ranks, and how many is not known"
    )


# Words of the vocabulary that the head takes at a time (_HEAD: vocab_chunk_size).
_TILE = 8192

# -- the loss --------------------------------------------------------------------------------------


@meaning.derive(
    f.loss.logits_materialised, f.loss.algorithm, f.loss.chunks, f.loss.words, f.loss.upcast_fp32, f.loss.outputs_kept,
    source=f"{_HEAD}:89-202, {_SFT}:305",
)  # fmt: skip
def loss(run: Cells) -> Any:
    """Log-probabilities of some tokens and 8192 words of the vocabulary at a time; before 0.5 of all tokens. Logits that
    are all there are made fp32 (model.py cast_float_and_contiguous), and the loop's ``out`` holds them to the next."""
    chunk, micro, length = run[own.chunk], run[f.batch.micro], run[f.seq.max_len]
    words = 0 if _is_sft(run) or run[own.implementation] == "liger_kernel" else run[own.words]
    if not (chunk or words):
        return {
            f.loss.logits_materialised: "full",
            f.loss.upcast_fp32: True,
            f.loss.outputs_kept: True,
        }
    tokens = (micro or 1) * (length or chunk) // (run[f.parallel.cp] or 1)
    return {
        f.loss.logits_materialised: "fused",
        f.loss.algorithm: "tiles",
        f.loss.chunks: max(1, -(-tokens // chunk)) if chunk else 1,
        f.loss.words: _TILE if chunk else words,
        f.loss.upcast_fp32: True,
        f.loss.outputs_kept: False,
    }


@loss.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if f.loss.logits_materialised not in wishes:
        raise CannotEdit("fused_lm_head_token_chunk_size counts tokens")
    if wishes[f.loss.logits_materialised] not in ("fused", "chunked"):
        raise CannotEdit("prime-rl computes its loss in chunks, or from all logits")
    return {own.chunk: 1024}


# -- rollouts --------------------------------------------------------------------------------------


@meaning.derive(_R.engine, source=f"{SOURCE} src/prime_rl/entrypoints/rl.py:130")
def engine(run: Cells) -> Any:
    return None if _is_sft(run) else "vllm_server"


@meaning.derive(_R.sleep, source=f"{SOURCE} src/prime_rl/entrypoints/rl.py:130")
def never_sleeps(run: Cells) -> Any:
    return None if _is_sft(run) else False


meaning.cannot_say("prime-rl's inference has cards of its own", _R.sleep)


@meaning.derive(_R.generation_batch, source=f"{ORCHESTRATOR}: batch_size")
def answers(run: Cells) -> Any:
    if _is_sft(run) or run[own.answer_tokens] or run[own.kind] == "trainer":
        return None
    return run[own.answers] or 128


# -- evaluating and saving -------------------------------------------------------------------------


@meaning.derive(f.eval.enabled, f.eval.strategy, f.eval.every, source=f"{SFT_CONFIG}: SFTValConfig")
def evaluation(run: Cells) -> Any:
    if not _is_sft(run) or not _is_on(run[own.val]):
        return {f.eval.enabled: False, f.eval.strategy: "no"}
    every = float(run[own.val_every])
    return {f.eval.enabled: True, f.eval.strategy: "steps", f.eval.every: every}


meaning.always(f.eval.keeps_logits, False, _SFT)


@meaning.derive(f.save.strategy, f.save.every, f.save.keep, source=f"{TRAINER}: CheckpointConfig")
def saving(run: Cells) -> Any:
    if not _has(run, own.ckpt):
        return {f.save.strategy: "no"}
    every = run[own.interval]
    found = {f.save.strategy: "steps" if every else "end", f.save.keep: run[own.keep] or "all"}
    return {**found, f.save.every: float(every)} if every else found


@meaning.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.interval: int(steps)}


@meaning.written(f.save.keep)
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    if count == "all":
        raise CannotEdit("every checkpoint is kept where keep_last is not there")
    return {own.keep: count}


meaning.always(f.save.unit, "steps", f"{_CODE}/ckpt.py")
meaning.always(f.save.contents, ("model", "optimizer", "scheduler"), f"{_CODE}/ckpt.py:213")
meaning.always(f.save.format, "dcp", f"{_CODE}/ckpt.py")
meaning.always(f.save.full_gather, False, f"{_CODE}/ckpt.py")
meaning.cannot_say("prime-rl saves the optimizer with the model", f.save.save_only_model)


@meaning.default(
    f.env.expandable_segments,
    source=f"{SOURCE} src/prime_rl/utils/process.py:25, src/prime_rl/entrypoints",
)
def expands(run: Cells) -> Any:
    """``rl`` and ``sft`` set it for the ranks that they start; nobody does for a trainer that is started alone."""
    if run[own.kind] == "trainer":
        return False
    return not _is_sft(run) or run.has(EXPANDS)
