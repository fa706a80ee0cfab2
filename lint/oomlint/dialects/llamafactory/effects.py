"""What LLaMA-Factory makes of its keys.

Read from LLaMA-Factory ff6d4d12 (2026-08-18); ``LF`` below is ``src/llamafactory``. Allowed
are transformers 4.55 to 5.8, whose defaults hold.
"""

from __future__ import annotations

from oomlint.dialects.draft import Draft
from oomlint.dialects.law import finish_batch, finish_quant, is_adapter_run
from oomlint.dialects.liger import liger_patches
from oomlint.dialects.llamafactory.keys import CLI_ENVIRONMENT
from oomlint.dialects.machine.launcher_keys import PLAIN
from oomlint.dialects.machine.ranks import finish_launch, launcher_of, settle
from oomlint.dialects.machine.scene import visible_gpus

NEWEST_TRANSFORMERS = (5, 8)
"""LLaMA-Factory ff6d4d12 pyproject.toml:43."""


def finish_ranks(draft: Draft) -> None:
    """LF/launcher.py:51-63: llamafactory-cli has torchrun start one process for each visible
    GPU, or NPROC_PER_NODE, on NNODES nodes."""
    by_cli = any(block.table is CLI_ENVIRONMENT for block in draft.blocks)
    if by_cli and launcher_of(draft) is PLAIN:
        alone = draft.get("lf.env.ktransformers") or draft.get("lf.env.ray")
        ranks = draft.get("env.nproc_per_node") or (None if alone else visible_gpus(draft))
        source = "LLaMA-Factory ff6d4d12 src/llamafactory/launcher.py:60"
        inputs = ("env.nproc_per_node", "env.cuda_visible_devices")
        settle(draft, "parallel.gpus_per_node", ranks, source, *inputs)
        settle(draft, "parallel.nodes", draft.get("env.nnodes"), source, "env.nnodes")
    unseen = not any(block.table.section == "launcher" for block in draft.blocks)
    if (by_cli or unseen) and draft.get("lf.env.optim_torch") is not False:
        # A config whose launch line is not at hand is started with llamafactory-cli, as a rule.
        source = "LLaMA-Factory ff6d4d12 src/llamafactory/launcher.py:74"
        draft.default("env.expandable_segments", True, source)
    finish_launch(draft, one_process=not by_cli)
    if draft.get("lf.env.ray") and draft.get("lf.ray_workers"):
        draft.derive("launch.total_processes", draft.get("lf.ray_workers"), "lf.ray_workers")


_KINDS = {
    "pt": "pretrain",
    "sft": "sft",
    "rm": "rm",
    "ppo": "ppo",
    "dpo": "dpo",
    "kto": "kto",
    "orpo": "orpo",
}


def finish_objective(draft: Draft) -> None:
    stage, loss = draft.get("lf.stage"), draft.get("lf.pref_loss")
    kind = _KINDS.get(str(stage))
    if stage == "dpo" and loss in ("orpo", "simpo"):
        kind = loss
    draft.derive("objective.kind", kind, "lf.stage", "lf.pref_loss")
    if stage in ("dpo", "kto"):
        draft.derive("objective.loss", loss, "lf.pref_loss")
    # LF/data/collator.py PairwiseDataCollatorWithPadding: chosen and rejected in one batch.
    pairs = 2 if kind in ("dpo", "orpo", "simpo", "rm") else 1
    draft.derive("objective.pairs_per_sample", pairs, "lf.stage")
    needs = kind in ("dpo", "kto", "ppo") or bool(draft.get("lf.asft"))
    # LF/train/trainer_utils.py create_ref_model: LoRA turns its adapter off instead.
    if not needs:
        reference = "none"
    elif draft.get("lf.ref_model") is None and draft.get("trainable.method") == "lora":
        reference = "shared_adapter_off"
    else:
        reference = "copy"
    inputs = ("lf.ref_model", "lf.stage", "trainable.method")
    draft.derive("objective.ref_model", reference, *inputs)
    if reference == "copy":
        dtype = {4: "nf4", 8: "int8"}.get(draft.get("lf.ref_bits") or 0)
        draft.derive("objective.ref_dtype", dtype, "lf.ref_model_quantization_bit")
    if kind == "ppo" and draft.get("lf.reward_type") == "full":
        draft.derive("objective.reward_model", draft.get("lf.reward_model"), "lf.reward_model")


def finish_trainable(draft: Draft) -> None:
    method = draft.get("trainable.method")
    if method in ("lora", "oft"):
        rank = draft.get("lf.lora_rank" if method == "lora" else "lf.oft_rank")
        draft.derive("trainable.r", rank or None, "lf.lora_rank", "lf.oft_rank")
        named = draft.get("lf.lora_target") if method == "lora" else draft.get("lf.oft_target")
        targets = "all_linear" if named == ("all",) else named
        draft.derive("trainable.targets", targets, f"lf.{method}_target")
        if method == "lora":
            # LF/hparams/finetuning_args.py:585.
            draft.default(
                "trainable.alpha", 2 * rank if rank else None, "LF finetuning_args.py:585"
            )
        if draft.get("lf.resize_vocab"):
            # LF/model/adapter.py: a resized vocabulary trains its embedding and head.
            draft.default(
                "trainable.modules_to_save", ("embed_tokens", "lm_head"), "LF/model/adapter.py"
            )
        if draft.get("lf.dora"):
            draft.override("trainable.method", "dora", "lf.dora")
    elif method == "freeze":
        # Negative: as many layers from the front.
        layers = draft.get("lf.freeze_layers")
        draft.derive(
            "trainable.last_layers", None if layers is None else abs(layers), "lf.freeze_layers"
        )
        # Of such a layer only these modules are trained (LF/model/adapter.py:106).
        whole = "all" in (draft.get("lf.freeze_modules") or ())
        draft.derive("parallel.fsdp.isolates_trainable", whole, "lf.freeze_modules")
    frozen = tuple(
        part
        for part, field in (
            ("vision", "model.vision.freeze_tower"),
            ("projector", "lf.freeze_projector"),
            ("llm", "lf.freeze_language"),
        )
        if draft.get(field)
    )
    draft.derive("trainable.frozen", frozen or None, "model.vision.freeze_tower")


def finish_quantization(draft: Draft) -> None:
    """LF/model/model_utils/quantization.py configure_quantization."""
    native = draft.get("model.native_quant")
    bits, method = draft.get("lf.quant_bits"), draft.get("lf.quant_method")
    draft.derive("quant.requested_bits", bits, "lf.quant_bits")
    if native in ("mxfp4", "fp8", "fp8_block", "fp8_weight"):
        # Such checkpoints are dequantized on loading.
        draft.derive("quant.method", "none", "model.native_quant")
        draft.derive("quant.dequantised_on_load", True, "model.native_quant")
        return
    if native not in (None, "none"):
        # "`quantization_bit` will not affect on the PTQ-quantized models."
        finish_quant(draft, bits=None)
    elif method in ("hqq", "eetq") and bits is not None:
        finish_quant(draft, bits=bits, method=method)
        draft.derive("quant.bits", float(bits), "lf.quant_bits")
    else:
        finish_quant(draft, bits=bits)
    if draft.get("quant.method") == "bnb4":
        draft.derive("quant.double", draft.get("lf.double_quant"), "lf.double_quant")
        half = "fp16" if draft.get("hf.fp16") else "bf16"
        draft.derive("quant.compute_dtype", half, "hf.bf16", "hf.fp16", "lf.pure_bf16")
        draft.derive("quant.storage_dtype", half, "hf.bf16", "hf.fp16", "lf.pure_bf16")
        if draft.get("trainable.method") == "lora":
            draft.override("trainable.method", "qlora", "trainable.method", "lf.quant_bits")
    # peft's prepare_model_for_kbit_training is never called (LF/model/adapter.py).
    draft.derive("quant.prepares_kbit", False, "lf.quant_bits")


def finish_load(draft: Draft) -> str | None:
    """LF/model/loader.py: ``torch_dtype="auto"``, the dtype of the checkpoint."""
    stored = draft.get("model.ckpt_dtype")
    if draft.get("quant.dequantised_on_load") or stored == "fp8":
        stored = "bf16"
    if stored in ("fp32", "bf16", "fp16"):
        draft.derive("load.dtype", stored, "model.ckpt_dtype", source="LF/model/loader.py")
    else:
        draft.assume("load.dtype", "bf16", "the checkpoint's dtype is not known; most are bf16")
    dtype = draft.get("load.dtype")
    return None if dtype is None else str(dtype)


def upcasts_trainable(draft: Draft) -> bool:
    """LF/model/adapter.py:338-355: what is trained becomes fp32, unless the run is pure bf16,
    uses BAdam, or shards a model that is not quantized with ZeRO-3."""
    if draft.get("lf.pure_bf16") or draft.get("lf.badam"):
        return False
    return draft.get("parallel.zero.stage") != 3 or draft.get("lf.quant_bits") is not None


def finish_precision(draft: Draft, load: str | None, upcasts: bool) -> None:
    source = "LLaMA-Factory ff6d4d12 src/llamafactory/model/adapter.py:338"
    inputs = ("lf.pure_bf16", "trainable.method", "hf.bf16", "hf.fp16")
    backend = draft.get("parallel.backend")
    sharded = backend == "zero" and draft.get("parallel.zero.stage") != 0
    if draft.get("trainable.method") == "freeze" and not sharded:
        trained = "fp32" if upcasts else load
        draft.derive("precision.param", load, *inputs, source=source)
        draft.derive("precision.grad", trained, *inputs, source=source)
        draft.derive("precision.optim_state", trained, *inputs, source=source)
    # LF/model/patcher.py patch_config: loading straight onto the GPU, except for shards.
    stage3 = draft.get("parallel.zero.stage") == 3
    if stage3:
        draft.override("load.low_cpu_mem", False, "parallel.zero.stage")
    single = bool(draft.get("load.low_cpu_mem")) and not draft.get("fsdp.enabled")
    draft.derive("load.device_map", "single" if single else "none", "load.low_cpu_mem")
    if draft.get("lf.export_dir"):
        if not draft.get("lf.adapters"):
            draft.override("trainable.method", "none", "lf.adapters")
        # LF/train/tuner.py export_model: the whole model is loaded, merged and written; to
        # quantize it GPTQModel spreads it as it sees fit.
        if not draft.get("lf.export_bits"):
            draft.derive("save.merge", "whole", "lf.export_dir")
        dtype = draft.get("lf.infer_dtype")
        draft.derive("save.dtype", "bf16" if dtype == "auto" else dtype, "lf.infer_dtype")
    if draft.get("lf.logits_fp32"):
        draft.derive("precision.logits", "fp32", "lf.logits_fp32")
    if draft.get("lf.fp8"):
        named = draft.get("lf.fp8_backend")
        engine = {"te": "te", "torchao": "torchao", "msamp": "msamp", "auto": "torchao"}.get(named)
        draft.derive("precision.fp8_train", engine, "lf.fp8", "lf.fp8_backend")


def finish_checkpointing(draft: Draft) -> None:
    """LF/model/model_utils/checkpointing.py prepare_model_for_training: on by default."""
    if draft.get("lf.ktransformers"):
        # LF/hparams/model_args.py: experts live and are computed on the CPU. How much of the
        # model is left on the GPU depends on kt-kernel's own weights, so nothing is predicted.
        draft.derive("offload.layers", "cpu", "lf.ktransformers")
        draft.forget("model.dims")
    by_fsdp = draft.get("checkpointing.source") == "fsdp"
    if not by_fsdp and "lf.no_checkpointing" not in draft.unknown:
        off = bool(draft.get("lf.no_checkpointing")) and not draft.get("hf.checkpointing")
        # LF/model/patcher.py patch_model: Gemma 3n cannot be checkpointed.
        off = off or draft.get("model.arch") == "gemma3n"
        inputs = ("lf.no_checkpointing", "hf.checkpointing")
        draft.derive("checkpointing.mode", "none" if off else "full", *inputs)
        draft.derive("checkpointing.skips_frozen_layers", True, "lf.no_checkpointing")
        # checkpointing.py:168: FSDP2 needs the other kind.
        reentrant = bool(draft.get("lf.reentrant")) and draft.get("parallel.backend") != "fsdp2"
        draft.derive("checkpointing.reentrant", reentrant, "lf.reentrant")
    # transformers 5.8 trainer.py, and LF/hparams/parser.py for LoRA: who looks for unused ones.
    unused = draft.get("checkpointing.mode") == "none" and not is_adapter_run(draft)
    draft.derive("parallel.ddp.find_unused", unused, "checkpointing.mode", "trainable.method")
    # checkpointing.py:61 keeps the inputs of layers in host memory, as Unsloth's own does.
    moves = bool(draft.get("lf.unsloth_gc") or draft.get("lf.unsloth"))
    moves = moves and draft.get("checkpointing.mode") != "none"
    for name in ("checkpointing.offload", "offload.activations"):
        draft.derive(name, "cpu" if moves else "none", "lf.unsloth_gc", "lf.unsloth")


OPTIMIZER_SWITCHES = {
    "lf.galore": "galore",
    "lf.apollo": "apollo",
    "lf.badam": "badam",
    "lf.adam_mini": "adam_mini",
    "lf.muon": "muon",
}


def finish_optimizer(draft: Draft) -> None:
    """LF/train/trainer_utils.py create_custom_optimizer: these replace ``optim``."""
    for switched, kind in OPTIMIZER_SWITCHES.items():
        if not draft.get(switched):
            continue
        draft.override("optimizer.kind", kind, switched)
        if kind in ("galore", "apollo"):
            draft.derive("optimizer.rank", draft.get(f"{switched}_rank"), f"{switched}_rank")
            layerwise = draft.get(f"{switched}_layerwise")
            draft.derive("optimizer.in_backward", layerwise, f"{switched}_layerwise")
        if kind != "badam":
            draft.derive("optimizer.fused", False, switched)
        return


def finish_sequences(draft: Draft) -> None:
    neat, packing = bool(draft.get("lf.neat_packing")), draft.get("lf.packing")
    if packing is None:
        # LF/hparams/parser.py: pre-training packs unless it is told not to.
        packing = draft.get("lf.stage") == "pt"
    kind = "neat" if neat else "concat" if packing else "none"
    inputs = ("lf.packing", "lf.neat_packing", "lf.stage")
    draft.derive("seq.packing", kind, *inputs)
    draft.derive("seq.pad", "longest" if kind == "none" else "max_len", *inputs)
    draft.default("seq.truncation", "cut", "LF/data/processor")
    arch = draft.get("model.arch")
    attention = {"gemma2": "flash2", "gpt_oss": "flash3"}.get(str(arch), "sdpa")
    if arch == "gpt_oss":
        draft.override("model.attn_impl", "flash3", "model.arch", source="LF attention.py:36")
    draft.default("model.attn_impl", attention, "LF/model/model_utils/attention.py:31")


# LF/model/model_utils/liger_kernel.py apply_liger_kernel.
LIGER_PATCHES = frozenset(
    "gemma gemma2 gemma3 gemma3_text glm glm4 glm4v gpt_oss granite llama llava mistral mixtral mllama "
    "olmo2 paligemma phi3 qwen2 qwen2_5_vl qwen2_vl qwen3 qwen3_5 qwen3_5_moe qwen3_moe qwen3_next".split()
)


def finish_loss(draft: Draft) -> None:
    liger = bool(draft.get("lf.liger") or draft.get("hf.liger"))
    liger = liger and liger_patches(draft, LIGER_PATCHES)
    # LF/model/loader.py: stages that need the logits keep liger's other kernels only.
    plain = draft.get("lf.stage") in ("pt", "sft") and not draft.get("loss.label_smoothing")
    fused = plain and (liger or bool(draft.get("lf.unsloth")))
    inputs = ("lf.liger", "lf.stage", "lf.unsloth", "model.arch")
    draft.derive("loss.logits_materialised", "fused" if fused else "full", *inputs)
    draft.derive("loss.liger.flce", fused and liger, *inputs)
    if draft.get("lf.stage") == "rm":
        # LF/train/rm/trainer.py:98: the value head stands beside the model's own head.
        draft.derive("loss.algorithm", "dropped", "lf.stage")
    for part in ("rope", "rms", "swiglu"):
        draft.derive(f"loss.liger.{part}", liger, "lf.liger")


def finish_eval(draft: Draft) -> None:
    if draft.get("eval.generate"):
        draft.derive("eval.max_new_tokens", draft.get("lf.max_new_tokens"), "lf.max_new_tokens")


def finish_megatron(draft: Draft) -> None:
    """Megatron Bridge or mcore_adapter, which the environment chooses and whose degrees stand
    in the same file (LF/hparams/megatron_bridge_args.py)."""
    degrees = {name: draft.get(f"lf.megatron.{name}") for name in ("tp", "pp", "cp", "ep")}
    chosen = draft.get("lf.env.bridge") or draft.get("lf.env.mca")
    if not chosen and all(degree is None for degree in degrees.values()):
        return
    draft.derive("parallel.backend", "megatron", "lf.env.bridge", "lf.megatron.tp")
    for name, degree in degrees.items():
        draft.derive(f"parallel.{name}", degree or 1, f"lf.megatron.{name}")
    world = draft.get("parallel.world")
    if world is not None:
        divided = (degrees["tp"] or 1) * (degrees["pp"] or 1) * (degrees["cp"] or 1)
        draft.derive("parallel.dp", max(1, world // divided), "parallel.world")
        finish_batch(draft)
    if (degrees["ep"] or 1) > 1 and draft.get("seq.pad") == "longest":
        source = "LF/train/mca/workflow.py:243: pad_to_max"
        draft.derive("seq.pad", "max_len", "lf.megatron.ep", source=source)
    mode = draft.get("lf.recompute") or "none"
    draft.derive("checkpointing.mode", mode, "lf.recompute")
    draft.derive("checkpointing.source", "megatron", "lf.recompute")
    if draft.get("amp") in ("bf16", "fp16") and draft.get("trainable.method") == "full":
        # Megatron-LM core/optimizer: 16-bit weights, fp32 main gradients, master and states.
        half = draft.get("amp")
        for name, dtype in (
            ("param", half), ("compute", half), ("grad", "fp32"), ("master", "fp32"),
            ("optim_state", "fp32"),
        ):  # fmt: skip
            draft.derive(f"precision.{name}", dtype, "amp", "lf.env.bridge")
        draft.derive("precision.autocast", False, "lf.env.bridge")
