"""Plans for published peaks and for documented facts that a run fits, field by field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from benchmarks.accuracy.dialects import plan_of_config
from benchmarks.accuracy.lengths import reached
from benchmarks.accuracy.releases import as_written, versions_of
from msgspec.structs import replace

from oomlint.errors import UsageError
from oomlint.hardware import Gpu, Hardware, find_gpu
from oomlint.memory import Bounds, DeviceEstimate, GpuLimits
from oomlint.memory.limits import gpu_limits
from oomlint.models import guess, lookup
from oomlint.plan import Plan
from oomlint.plan.model import Model, ModelDims, Moe, Precision, Quant, Trainable
from oomlint.plan.training import (
    Batch,
    Checkpointing,
    Compile,
    Eval,
    Fsdp,
    Loss,
    Objective,
    Offload,
    Optimizer,
    Parallel,
    Save,
    Seq,
    Zero,
)

# MPT as llm-foundry's benchmarks train it (scripts/train/benchmarking/README.md).
_MPT = {
    "125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12), "1b": (24, 2048, 16),
    "3b": (32, 2560, 20), "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56),
    "70b": (64, 8192, 64),
}  # fmt: skip


def dims_of(name: str) -> ModelDims | None:
    """The dimensions of a model by its published name."""
    match = re.fullmatch(r"mpt-(\w+)", name)
    if match and match[1] in _MPT:
        layers, hidden, heads = _MPT[match[1]]
        return ModelDims(
            arch="mpt", layers=layers, hidden=hidden, heads=heads, kv_heads=heads,
            head_dim=hidden // heads, ffn=4 * hidden, vocab=50368, tie_embeddings=True,
            attn_bias=False, mlp_bias=False, norm="ln", act="gelu", ctx=2048,
        )  # fmt: skip
    facts = lookup(name) or guess(name)
    return facts.dims if facts else None


def _number(value: Any, default: int) -> int:
    if isinstance(value, int | float):
        return int(value)
    found = re.search(r"\d+", str(value)) if value is not None else None
    return int(found[0]) if found else default


def _args(row: Mapping[str, Any]) -> Mapping[str, Any]:
    raw = row.get("raw_args")
    return raw if isinstance(raw, Mapping) else {}


def _precision(row: Mapping[str, Any], plan_method: str, backend: str) -> dict[str, Any]:
    dtype = str(row.get("dtype") or "bf16").lower()
    framework = str(row.get("framework") or "").lower()
    wide = dtype.startswith("fp32") or "fp32 params" in dtype or "mixed (fp32" in dtype
    wide = wide or "optimizer fp32" in dtype or "fp16 amp" in dtype
    autocast = any(w in framework for w in ("swift", "trainer", "axolotl", "trl", "foundry"))
    autocast = autocast or "mixed" in dtype or "amp" in dtype
    param = "fp32" if wide else "bf16"
    compute = "fp32" if dtype == "fp32" else "bf16"
    out: dict[str, Any] = {
        "param": param,
        "compute": compute,
        "autocast": autocast,
        "master": "none",
    }
    trained = param
    if plan_method != "full":
        # peft cast adapters to the base's half precision until 0.11 (May 2024).
        old = "1.x" in framework or "2.x" in framework or "qwen/finetune" in framework
        pure = "lit" in framework or "torchtune" in framework or "(pure)" in dtype or old
        trained = "bf16" if pure else "fp32"
    if backend == "zero":
        trained = "bf16"
        out |= {"param": "bf16", "autocast": False, "master": "fp32"}
    elif backend == "megatron":
        out |= {"param": "bf16", "autocast": False, "master": "fp32"}
        trained = "fp32"
    elif backend == "fsdp2" or (backend == "fsdp1" and autocast):
        out["autocast"] = False
        if plan_method == "full" and "torchtune" not in framework and "lit" not in framework:
            trained = out["param"] = "fp32"
    out["grad"] = trained
    out["optim_state"] = "fp32" if backend in ("zero", "megatron") else trained
    return out


def _optimizer(row: Mapping[str, Any]) -> Optimizer:
    text = str(row.get("optimizer") or "adamw").lower()
    in_backward = "in_bwd" in text or bool(_args(row).get("optimizer_in_bwd"))
    fused = "fused" in text or "mcore" in text or "megatron" in text
    kind: Any = "adamw"
    if "paged" in text and "8" in text:
        kind = "paged_adamw8bit"
    elif "paged" in text:
        kind = "paged_adamw"
    elif "4bit" in text:
        kind = "adamw4bit"
    elif "8bit" in text or "8-bit" in text:
        kind = "adamw8bit"
    elif "adafactor" in text:
        kind = "adafactor"
    elif "galore" in text:
        kind = "galore"
    elif "muon" in text:
        kind = "muon"
    elif "lomo" in text:
        kind = "lomo"
    return Optimizer(kind=kind, fused=fused, foreach=not fused, in_backward=in_backward)


# Words for how weights are quantized; of several the first says it.
_QUANTIZED = (
    ("nvfp4", "mxfp4"),
    ("torchao", "nf4_torchao"),
    ("hqq", "hqq"),
    ("aqlm", "aqlm"),
    ("awq", "awq"),
    ("gptq", "gptq"),
    ("checkpoint", "gptq"),
    ("int8", "bnb8"),
)


def _quant(row: Mapping[str, Any]) -> Quant:
    text = str(row.get("quant") or "").lower()
    if not text or text == "none":
        if "qlora" not in str(row.get("method")):
            return Quant(method="none")
        text = "bnb int8" if "int8" in str(row.get("method")) else "bnb nf4"
    if "mxfp4" in text and "dequant" in text:
        return Quant(method="none")
    double = "dq" in text or "double" in text or "axolotl" in str(row.get("framework"))
    kind: Any = next((kind for word, kind in _QUANTIZED if word in text), "bnb4")
    # TRL prepared quantised models for training until 0.20 (sft_trainer.py).
    kbit = True if "trl" in str(row.get("framework")) else None
    experts = True if _args(row).get("quantize_moe_experts") or "nvfp4" in text else None
    bits = 8 if "int8" in text or "8bit" in text else 2 if "2bit" in text else 4
    return Quant(
        method=kind,
        bits=bits,
        double=double,
        quantises_moe_experts=experts,
        prepares_kbit=kbit,
    )


_TARGETS = {
    "q": ("q", "qkv_q"), "k": ("k",), "v": ("v",), "o": ("o",), "mlp": ("gate", "up", "down", "gate_up"),
}  # fmt: skip


def _trainable(row: Mapping[str, Any]) -> Trainable:
    method = str(row.get("method") or "full")
    if method.startswith(("full", "llamapro")):
        return Trainable(method="full")
    lora: Mapping[str, Any] = row["lora"] if isinstance(row.get("lora"), Mapping) else {}
    args = _args(row)
    rank = lora.get("r") or lora.get("lora_rank") or lora.get("lora_r") or args.get("lora_r") or 8
    targets: Any = (
        lora.get("targets") or lora.get("lora_target_modules") or lora.get("target_modules")
    )
    if isinstance(targets, str):
        low = targets.lower()
        if low in ("all", "all-linear") or "all (" in low or "[" in low:
            targets = "all_linear"
        elif low == "default":
            targets = None
        else:
            targets = tuple(targets.split())
    if args.get("lora_target_linear"):
        targets = "all_linear"
    save: tuple[str, ...] = ()
    if isinstance(targets, list | tuple):
        names: list[str] = []
        for t in targets:
            names += _TARGETS.get(t, (t,))
        targets = tuple(n for n in names if n != "lm_head")
        if "q" in targets and "v" in targets:
            targets = (*targets, "qkv")
    if "embeddings" in method:
        save = ("embed_tokens", "lm_head")
    qlora = "qlora" in method or bool(row.get("quant"))
    return Trainable(
        method="qlora" if qlora else "lora",
        r=_number(rank, 8),
        targets=targets or "peft_default",
        modules_to_save=save or None,
        adapter_dtype="fp32",
    )


def _parallel(row: Mapping[str, Any]) -> tuple[Parallel, Offload]:
    # ms-swift's files for accelerate say what they do in their names (fsdp_offload.json).
    text = f"{row.get('strategy') or 'none'} {_args(row).get('config_file') or ''}".lower()
    gpus = int(row.get("gpus") or 1)
    raw = row.get("parallel")
    p = {**_args(row), **(raw if isinstance(raw, Mapping) else {})}
    tp = _number(p.get("tp") or p.get("tensor_model_parallel_size"), 1)
    pp = _number(p.get("pp") or p.get("pipeline_model_parallel_size"), 1)
    cp = _number(p.get("cp") or p.get("context_parallel_size"), 1)
    ep = _number(p.get("ep") or p.get("expert_model_parallel_size"), 1)
    offload = Offload()
    if "offload" in text:
        offload = Offload(
            optimizer="cpu", params="cpu" if "fsdp" in text or "param" in text else None
        )
    common: dict[str, Any] = {"world": gpus, "tp": tp, "pp": pp, "cp": cp, "ep": ep}
    # torchtitan's tensor parallelism shards the sequence too (parallelize.py).
    sp = str(p.get("sequence_parallel", "")).lower() == "true" or "torchtitan" in str(
        row.get("framework")
    )
    if "megatron" in text:
        return Parallel(backend="megatron", sp=sp, **common), offload
    if "zero" in text and "fsdp" not in text:
        stage: Any = int(re.search(r"zero_?-?(\d)", text)[1])  # type: ignore[index]
        hidden = 4096
        zero = Zero(stage=stage)
        if "qwen" in str(row.get("framework")).lower() or "swift" in str(row.get("framework")):
            zero = Zero(stage=stage, reduce_bucket_elems=hidden * hidden,
                        prefetch_elems=int(0.9 * hidden * hidden), overlap_comm=stage == 3)  # fmt: skip
        return Parallel(backend="zero", zero=zero, **common), offload
    if "fsdp" in text or "sharded_ddp" in text:
        version = 2 if "fsdp2" in text or "torchtitan" in str(row.get("framework")) else 1
        strategy: Any = (
            "grad_op" if "grad_op" in text else "no_shard" if "no_shard" in text else "full"
        )
        fsdp = Fsdp(version=version, strategy=strategy, cpu_offload="offload" in text,  # type: ignore[arg-type]
                    wrap="transformer",
                    # Composer never enters FSDP's no_sync (composer/core/state.py).
                    sync_every_micro="foundry" in str(row.get("framework")))  # fmt: skip
        return Parallel(
            backend="fsdp2" if version == 2 else "fsdp1", fsdp=fsdp, sp=sp, **common
        ), offload
    if "device_map" in text:
        # Each process spreads a model of its own over its share of the GPUs.
        processes = _number(p.get("nproc_per_node"), 1) if "ddp" in text else 1
        common["world"] = gpus // processes
        return Parallel(backend="device_map_pp", **common), offload
    if "ddp" in text:
        return Parallel(backend="ddp", **common), offload
    return Parallel(backend="none", world=1), offload


def plan_of(row: Mapping[str, Any]) -> Plan | None:
    """The plan of a row of ``published.jsonl`` or ``fits.jsonl``; ``None`` without a model."""
    family, row = family_of(row), as_written(row)
    plan = plan_of_config(row, family)
    if plan is None:
        return plan_of_fields(row)
    plan = with_publisher(plan, row)
    return as_litgpt(plan, row) if family.startswith("litgpt") else plan


def family_of(row: Mapping[str, Any]) -> str:
    """The row's family; rows of ``fits.jsonl`` have none but the publisher in their name."""
    family = row.get("family")
    if family:
        return str(family)
    name = str(row["id"]).removeprefix("cap:")
    return name.split(":")[0] if ":" in name else name.rsplit("-", name.count("-") - 1)[0]


def with_publisher(plan: Plan, row: Mapping[str, Any]) -> Plan:
    """A plan read from a file, with what only the publisher knows laid over it."""
    values: dict[str, Any] = {"eval.enabled": False, "save.strategy": "no"}
    dims = dims_of(str(row["model"]))
    if dims is not None and plan.model.dims is None:
        values["model.dims"] = _moe(dims)
    if row.get("gpus") and plan.parallel.world is None:
        values["parallel.world"] = int(row["gpus"])
    if plan.seq.max_len is not None:
        values |= length_values(plan, row)
    name = str(row["model"]).lower()
    if "torchacc" in str(row["id"]):
        values |= _torchacc(row)
    if "linearized" in str(row.get("raw_args")).lower() or "bnb-nf4" in name:
        values["quant.quantises_moe_experts"] = True  # as the checkpoint's name says
    if "nvfp4" in name:
        values |= {"quant.method": "mxfp4", "quant.quantises_moe_experts": True}
    if "jamba" in name:
        # The example is of 2024, when experts were lists of linear layers.
        values["quant.quantises_moe_experts"] = True
    if row["id"].endswith("#experts"):
        values["trainable.target_params"] = "experts"
    return plan.with_values(values)


def as_litgpt(plan: Plan, row: Mapping[str, Any]) -> Plan:
    """What the measured LitGPT did otherwise than the one whose defaults the dialect knows."""
    values: dict[str, Any] = {}
    if plan.quant.method == "bnb4":
        # The tables are older than bitsandbytes 0.43.2.
        values["versions"] = {"bitsandbytes": "0.42.0"}
    if family_of(row) == "litgpt-rt" and plan.parallel.backend == "fsdp2":
        # Until litgpt 0.5 several devices meant FSDPStrategy for LoRA too.
        values["parallel.backend"] = "fabric_fsdp"
    if row["method"] == "adapter_v2":
        values["trainable.targets"] = "all_linear"
    return plan.with_values(values)


def _torchacc(row: Mapping[str, Any]) -> dict[str, Any]:
    """swift/llm/sft.py (version 2) hands the model to TorchAcc, which checkpoints every layer and
    shards over ``fsdp_num`` ranks, whatever the script's own switch says."""
    values: dict[str, Any] = {"checkpointing.mode": "full"}
    if int(_args(row).get("fsdp_num") or 1) > 1 or "fsdp" in str(row["id"]):
        values |= {"parallel.backend": "fsdp1", "parallel.fsdp.wrap": "transformer"}
    return values


def length_values(plan: Plan, row: Mapping[str, Any]) -> dict[str, Any]:
    """Sequence length, padding and tokens of a batch that a run really reached."""
    limit, micro = plan.seq.max_len or 2048, plan.batch.micro or 1
    if plan.seq.packing not in (None, "none"):
        return {}
    found = reached(row, limit)
    # What is reached counts for joined samples together, not for each.
    values: dict[str, Any] = {"seq.max_len": found.longest, "seq.longest": None}
    if found.equal:
        values["seq.pad"] = "max_len"
    raw = row.get("raw_args")
    flat = isinstance(raw, Mapping) and str(raw.get("padding_free")).lower() == "true"
    megatron = plan.parallel.backend == "megatron"  # padding_free is Megatron-SWIFT's default
    if (flat or megatron) and micro > 1 and found.deviation:
        # Samples are laid end to end: a batch's length scatters with the square root.
        many = micro * found.mean + 4 * found.deviation * micro**0.5
        values["seq.max_len"] = int(min(many, micro * found.longest))
        values["batch.micro"] = 1
    return values


def plan_of_fields(row: Mapping[str, Any], dims: ModelDims | None = None) -> Plan | None:
    """The plan of a row that names its settings one by one."""
    dims = dims or dims_of(str(row["model"]))
    if dims is None or row.get("seq_len") is None or row.get("micro_batch") is None:
        return None
    method = _trainable(row)
    parallel, offload = _parallel(row)
    backend = parallel.backend or "none"
    framework = str(row.get("framework") or "").lower()
    precision = _precision(row, method.method or "full", backend)
    if backend == "fsdp2":
        parallel = replace(parallel, fsdp=replace(parallel.fsdp, wrap="ends"))
        precision["comm"] = "fp32" if "torchtitan" in framework else "bf16"
    length = _number(row.get("seq_len"), 2048)
    micro = _number(row.get("micro_batch"), 1)
    accum = _number(row.get("grad_accum"), 1)
    if "torchtitan" in framework and (parallel.pp or 1) > 1:
        # The local batch goes through the pipeline one sample at a time (job config default).
        micro, accum = 1, micro
    task = str(row.get("task") or "sft").split()[0]
    kinds = {
        "dpo": "dpo",
        "kto": "kto",
        "pretrain": "pretrain",
        "rm": "rm",
        "gkd": "gkd",
        "embedding": "embedding",
        "seq_cls": "rm",
        "sequence": "rm",
    }
    kind: Any = kinds.get(task, "sft")
    plan = Plan(
        name=str(row["id"]),
        model=Model(id=row["model"], dims=_moe(dims), attn_impl=_attention(row)),
        objective=Objective(
            kind=kind,
            pairs_per_sample=1 if task.startswith("seq") else None,
            ref_model="copy" if kind == "dpo" and method.method == "full" else None,
        ),
        trainable=replace(
            method, adapter_dtype=precision["grad"] if method.method != "full" else None
        ),
        quant=_quant(row) if method.method != "full" else Quant(method="none"),
        precision=Precision(**precision),
        optimizer=_optimizer(row),
        parallel=parallel,
        offload=offload,
        batch=Batch(micro=micro, grad_accum=accum),
        compile=Compile(enabled=bool(row.get("compile"))),
        seq=Seq(max_len=length, packing="multipack" if row.get("packing") else "none"),
        checkpointing=Checkpointing(mode=_checkpointed(row), reentrant=False),
        loss=_loss(row),
        eval=Eval(enabled=False),
        save=Save(strategy="no"),
    )
    values = length_values(plan, row) | _of_publisher(plan, row)
    if "torchacc" in str(row["id"]):
        values |= _torchacc(row)
    return plan.with_values(values)


def _checkpointed(row: Mapping[str, Any]) -> Any:
    text = str(row.get("gradient_checkpointing")).lower()
    if "selective" in text and "op" in text:
        return "selective_op"
    return "none" if text in ("false", "none", "null", "selective") else "full"


def _attention(row: Mapping[str, Any]) -> Any:
    attention = str(row.get("attention") or "").lower()
    if any(word in attention for word in ("flash", "triton", "flex")):
        return "flash2"
    return "eager" if "eager" in attention and "sdpa" not in attention else "sdpa"


def _loss(row: Mapping[str, Any]) -> Loss:
    framework, args = str(row.get("framework") or "").lower(), _args(row)
    logits: Any = "full"
    chunks = None
    thunder = "thunder" in framework
    if ("litgpt" in framework or "lit-gpt" in framework) and not thunder:
        logits, chunks = "chunked", 8
    if "torchtune" in framework and args.get("chunked_cross_entropy") is not False:
        logits, chunks = "chunked", 8
    cut = "cut_cross_entropy" in str(args)
    if row.get("liger") or cut or args.get("chunked_cross_entropy") is True:
        logits = "fused" if not args.get("chunked_cross_entropy") else "chunked"
    if "unsloth" in framework or ("megatron" in framework and "fuse" in str(args)):
        logits = "fused"
    return Loss(
        logits_materialised=logits,
        chunks=chunks,
        # llm-foundry's fused cross entropy reads half-precision logits (flash_attn.losses).
        upcast_fp32="foundry" not in framework,
        cut_ce=cut or None,
        # extensions/thunder/pretrain.py: logits are a local of the training loop.
        outputs_kept=thunder,
    )


def _of_publisher(plan: Plan, row: Mapping[str, Any]) -> dict[str, Any]:
    """What a publisher's own code does, where the row does not say it."""
    family, dims = str(row.get("family")), plan.model.dims
    assert dims is not None
    if family == "litgpt-thunder":
        # extensions/thunder/README.md: batches of 512 samples where no command says 32 for eight GPUs.
        samples = 32 if plan.parallel.backend == "fsdp1" else 512
        return {
            "model.dims.arch": "litgpt", "optimizer.fused": True,
            "batch.grad_accum": samples // 4 // (plan.parallel.world or 1),
        }  # fmt: skip
    if "LLaMA-Factory megatron" in str(row.get("framework")) and (plan.parallel.ep or 1) > 1:
        # train/mca/workflow.py:243: with expert parallelism samples are padded to cutoff_len.
        return {"seq.pad": "max_len"}
    if "foundry" in str(row.get("framework")):
        # llmfoundry/command_utils/train.py: expandable_segments is on by default.
        return {"env.expandable_segments": True}
    if family == "chatglm3":
        # finetune_demo at 9484f82, which its figures came with: finetune_hf.py checkpoints nothing, the YAML files
        # ask for no autocast, and all but ptuning_v2.yaml for one sample.
        alone = {} if row["method"] == "prefix-tuning" else {"batch.micro": 1}
        return {"checkpointing.mode": "none", "precision.autocast": False, **alone}
    if family == "torchtune-opt" and _args(row).get("activation_offloading"):
        return {"offload.activations": "cpu"}
    if str(row.get("framework")) == "torchtitan":
        return _of_torchtitan(plan, row)
    if family == "swift-tuner":
        return _of_tuner(dims, row)
    if family == "swift2":
        return {"versions": versions_of(row, family)}
    if row.get("id") == "swift-doc-mcore-14b":
        # "base_to_chat.sh-like": tensor parallelism over four, selective recomputation.
        return {
            "parallel.tp": 4, "parallel.sp": True, "checkpointing.mode": "selective_op",
            "checkpointing.source": "megatron",
        }  # fmt: skip
    return next((dict(v) for name, v in _OF_FAMILY if family.startswith(name)), {})


# What the code of a publisher does in all rows of a family, by the start of its name.
_OF_FAMILY: tuple[tuple[str, Mapping[str, Any]], ...] = (
    # method_comparison/MetaMathQA/run.py: `outputs` lives through backward, and the cache is
    # emptied every ten steps of batches that are sorted by length.
    ("peft-mmqa", {"loss.outputs_kept": True, "seq.pad": "max_len", "env.empty_cache_steps": 10}),
    # train.py of March 2024: `output` lives through backward.
    ("fsdp-qlora", {"loss.outputs_kept": True, "versions": {"transformers": "4.38.2"}}),
    # Written in 2022 for torch 1.x; `optim` was adamw_hf, which loops over its parameters.
    ("hf-doc", {"optimizer.foreach": False, "versions": {"torch": "1.12"}}),
    # torchtune's chunked loss came with 0.3 (September 2024), and with it its recipes' `del logits`.
    ("torchtune-2024", {"loss.logits_materialised": "full", "loss.outputs_kept": True}),
    ("torchtune-tut", {"loss.logits_materialised": "full", "loss.outputs_kept": True}),
)


def _of_torchtitan(plan: Plan, row: Mapping[str, Any]) -> dict[str, Any]:
    """What torchtitan's trainer does at the time of a benchmark: those of December 2024 carry the month in their
    name, and the loss is compiled since February 2025 (``oomlint.dialects.torchtitan.training``)."""
    values: dict[str, Any] = {}
    if (plan.parallel.tp or 1) > 1:
        values["loss.logits_materialised"] = "loss_parallel"  # unless disable_loss_parallel
    if (plan.parallel.pp or 1) > 1:
        # distributed/fsdp.py: "For PP, by default do not reshard after forward".
        return values | {"parallel.fsdp.reshard_after_forward": False}
    if row.get("gradient_checkpointing") is None:
        # b5bcd76c trainer.py: SelectiveAC; components/loss.py: ChunkedLossWrapper with 8 chunks.
        return {
            "checkpointing.mode": "selective_op", "loss.logits_materialised": "fused",
            "loss.chunks": 8,
        }  # fmt: skip
    if row.get("compile") and "_202412_" not in str(row["source"]):
        return {"loss.algorithm": "kernel", "loss.upcast_fp32": False}
    return values


def _of_tuner(dims: ModelDims, row: Mapping[str, Any]) -> dict[str, Any]:
    """The tuners of ms-swift's table that train some layers at a time or add some."""
    text = str(row["lora"])
    if "packing=True" in text:
        # swift/llm/utils/utils.py ConstantLengthDataset packs bins of up to max_length tokens.
        return {"seq.packing": "none"}
    lisa = re.search(r"lisa_activated_layers=(\d+)", text)
    pro = re.search(r"num_blocks=(\d+)", text)
    layer, ends = dims.params_layer_max or 0, 2 * (dims.params_embed or 0)
    if lisa:
        # LISA always trains the embedding and the head (arXiv 2403.17919).
        return {
            "trainable.method": "layerwise", "trainable.params": int(lisa[1]) * layer + ends,
        }  # fmt: skip
    if pro and row["method"] == "llamapro":
        added, layers = int(pro[1]), dims.layers or 0
        return {
            "trainable.method": "freeze", "trainable.last_layers": added,
            "model.dims.layers": layers + added,
            "model.dims.params_total": (dims.params_total or 0) + added * layer,
        }  # fmt: skip
    return {}


def _moe(dims: ModelDims) -> ModelDims:
    if isinstance(dims.moe, Moe) and dims.moe.moe_ffn is None:
        return replace(dims, moe=replace(dims.moe, moe_ffn=dims.ffn))
    return dims


# Rows that are not scored: the figure cannot be what the row's own settings give, or what was
# measured is not one GPU's training of a decoder.
_SPLIT = (
    "of its 192 tokens nobody says how many are inputs, in 2 layers, and how many targets, in 12"
)
DISTRUSTED = {
    "fsdpq-bs-small-55": 'the authors: "There is some extra memory in gpu:0", of another process',
    "hf-accds-blender-ddp": _SPLIT,
    "hf-accds-blender-z2": _SPLIT,
    "axolotl:llama-3/lora-8b.yml": "the 8-bit base with its half-precision ends takes 8.8 GiB and "
    "the trained fp32 copies of embedding and head 3.9 more, of 10.2 measured",
    "minicpm-lora": "its finetune.py pads to the maximum: 12,288 tokens of a 122,753-word vocabulary: the half-precision logits "
    "and their fp32 copy alone take 8.4 GiB, their log-probabilities 5.6 more, of 10.4 measured",
}


def limits_of(row: Mapping[str, Any], plan: Plan) -> GpuLimits | None:
    """The limits of the row's card where it is named and known."""
    if row.get("family") == "hf-doc":
        # The document itself reads 1343 MB after the first kernel, before any tensor.
        context = 1343 << 20
        return GpuLimits(context=context, context_high=context)
    card, memory = card_of(row), usable_memory(row)
    if card is None:
        return GpuLimits(usable=memory) if memory else None
    gpus = int(row.get("gpus") or 1)
    hardware = Hardware(name=card.name, nodes=1, gpus_per_node=gpus, gpu=card)
    return gpu_limits(hardware, plan)


def card_of(row: Mapping[str, Any]) -> Gpu | None:
    """The row's GPU in the catalogue; ``None`` if it is not named, or not by its size."""
    text = str(row.get("gpu_type") or "")
    size = _nameplate(row)
    name = text.replace("_", "-").split(" ")[0]
    for spelling in (f"{name}-{size}GB", name):
        try:
            return find_gpu(spelling) if name and size else None
        except UsageError:
            continue
    return None


def _nameplate(row: Mapping[str, Any]) -> float | None:
    found = re.search(r"(\d+) ?GB", str(row.get("gpu_type") or ""))
    return row.get("gpu_mem_gb") or (int(found[1]) if found else None)


def usable_memory(row: Mapping[str, Any]) -> int | None:
    """Usable bytes of the row's GPU: the catalogue's card, else the nameplate less a reserve."""
    card, size = card_of(row), _nameplate(row)
    if card is not None:
        return card.total_bytes
    # Drivers keep back about one per cent of a card's nameplate (A100-80GB: 79.2 GiB).
    return int(size * 0.985 * 2**30) if size else None


Kind: TypeAlias = Literal["allocated", "reserved", "device"]


def kind_of(row: Mapping[str, Any]) -> Kind:
    """Which counter was read: torch's of what is allocated or of what is reserved, or nvidia-smi's."""
    text = str(row.get("measure") or "").lower()
    if text == "torchtune peak memory" or "active or reserved not said" in text:
        return "allocated"  # its log's first figure (torchtune/training/memory.py get_memory_stats)
    if text.startswith("torchtune peak memory, /1e9"):
        # Of torch's counters, and reserved in that month's tutorials (torchtune 0914d5cf docs/source/tutorials/qlora_finetune.rst).
        return "reserved"
    if text.startswith('"peak memory usage", /1e9'):
        # "peak allocated memory of ~19GB" of the same run (torchtune 0217d44c README.md).
        return "allocated"
    if "allocated" in text or "active" in text:
        return "allocated"
    return "reserved" if "reserved" in text else "device"


def measured(row: Mapping[str, Any], gpu: DeviceEstimate) -> tuple[float, float]:
    """What the estimate says of the quantity that was published, and the published bytes."""
    assert gpu.allocated_bytes is not None
    assert gpu.reserved_bytes is not None
    truth = row["peak_gib_per_gpu"] * 2**30
    kind = kind_of(row)
    if kind == "allocated":
        return gpu.allocated_bytes, truth
    return gpu.reserved_bytes + (gpu.context_bytes if kind == "device" else 0), truth


def bounds_of(row: Mapping[str, Any], gpu: DeviceEstimate) -> Bounds:
    """The bounds of the counter that was read; nvidia-smi shows what is reserved and the context."""
    assert gpu.allocated is not None
    assert gpu.reserved is not None
    assert gpu.high_bytes is not None
    kind = kind_of(row)
    if kind != "device":
        return gpu.allocated if kind == "allocated" else gpu.reserved
    return Bounds(gpu.reserved.low, gpu.high_bytes)
