"""LLaMA-Factory's second configuration (``USE_V1=1 llamafactory-cli sft x.yaml``).

Read from LLaMA-Factory ff6d4d12; ``V1`` below is ``src/llamafactory/v1``. It has a trainer
of its own: no autocast, full fine-tuning in fp32 storage, FSDP2 with a mixed precision
policy, or DeepSpeed through accelerate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.dialects.base import Claim, Dialect, Wishes, expressed
from oomlint.dialects.deepspeed.dialect import upgrade_old_offload
from oomlint.dialects.draft import Draft
from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    INTEGER,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    choice,
)
from oomlint.dialects.law import (
    finish_backend,
    finish_batch,
    finish_deepspeed,
    finish_quant,
    finish_trainer_precision,
    finish_world,
    is_adapter_run,
)
from oomlint.dialects.llamafactory.dialect import launch_claims, uses_v1
from oomlint.dialects.llamafactory.effects import finish_load, finish_ranks
from oomlint.dialects.llamafactory.v1_fixes import WAYS
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.table import Block, Row, Table, known_keys
from oomlint.dialects.trainer.arguments import LIMIT
from oomlint.documents import SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, Mapping

_ARGUMENTS = "V1/config/training_args.py"

_ROWS = (
    Row("model", "model.id", TEXT, default="Qwen/Qwen3-4B-Instruct-2507", source="V1/config/model_args.py:24"),
    Row("trust_remote_code", "model.trust_remote_code", BOOLEAN, default=False, source="V1/config/model_args.py"),
    Row(
        "flash_attn", "model.attn_impl",
        choice({"eager": "eager", "sdpa": "sdpa", "flash_attention_2": "flash2"}),
        default="sdpa", source="V1/config/model_args.py",
    ),
    Row("peft_config.name", "v1.peft", choice({"lora": "lora", "freeze": "freeze"}, otherwise="other")),
    Row("peft_config.r", "v1.lora_rank", POSITIVE),
    Row("peft_config.lora_alpha", "trainable.alpha", NUMBER),
    Row("peft_config.lora_dropout", "trainable.dropout", NUMBER),
    Row("peft_config.target_modules", "v1.targets", LIST),
    Row("peft_config.modules_to_save", "trainable.modules_to_save", LIST),
    Row("peft_config.freeze_trainable_layers", "v1.freeze_layers", INTEGER),
    Row("quant_config.name", "v1.quant", TEXT),
    Row("quant_config.quantization_bit", "v1.quant_bits", POSITIVE),
    Row("quant_config.double_quantization", "v1.double_quant", BOOLEAN),
    Row("kernel_config.include_kernels", "v1.kernels", LIST),
    Row("micro_batch_size", "batch.micro", POSITIVE, default=1, source=f"{_ARGUMENTS}:33"),
    Row("global_batch_size", "batch.global", POSITIVE),
    Row("cutoff_len", "seq.max_len", POSITIVE, default=2048, source=f"{_ARGUMENTS}:41"),
    Row(
        "batching_strategy", "v1.batching",
        choice(
            {
                "normal": "normal", "padding_free": "padding_free",
                "dynamic_batching": "dynamic", "dynamic_padding_free": "dynamic_padding_free",
            }
        ),
        default="normal", source=_ARGUMENTS,
    ),
    Row("batching_workers", "data.workers", COUNT, default=16, source=_ARGUMENTS),
    Row("bf16", "v1.bf16", BOOLEAN, default=True, source=f"{_ARGUMENTS}:61"),
    Row("enable_activation_checkpointing", "v1.checkpointing", BOOLEAN, default=True, source=f"{_ARGUMENTS}:73"),
    Row("dist_config.name", "v1.dist", TEXT),
    Row("dist_config.config_file", "ref.deepspeed", TEXT),
    Row("dist_config.reshard_after_forward", "v1.reshard", BOOLEAN),
    Row("dist_config.offload_params", "v1.offload", BOOLEAN),
    Row("dist_config.pin_memory", "v1.pin_memory", BOOLEAN),
    Row("cp_size", "v1.cp", POSITIVE, default=1, source=_ARGUMENTS),
    Row("cp_mode", "v1.cp_mode", TEXT, default="ulysses", source=_ARGUMENTS),
    Row("mp_replicate_size", "parallel.dp_replicate", POSITIVE, default=1, source=_ARGUMENTS),
    Row("mp_shard_size", "parallel.dp_shard", POSITIVE),
    Row("optim_config.name", "optimizer.name", choice({"muon": "muon"}, otherwise="other")),
    Row("max_steps", "total_steps", LIMIT),
    Row("pref_loss", "v1.pref_loss", TEXT),
    Row("save_steps", "save.every", POSITIVE),
    Row("save_epochs", "v1.save_epochs", NUMBER),
    Row("save_total_limit", "save.keep", LIMIT),
    Row("save_ckpt_as_hf", "v1.save_as_hf", BOOLEAN, default=False, source=_ARGUMENTS),
    Row("output_dir", "save.dir", TEXT),
)  # fmt: skip

LLAMA_FACTORY_V1 = Table(
    name="LLaMA-Factory V1 config",
    rows=_ROWS,
    known=known_keys("llamafactory_v1"),
    known_prefixes=(
        "init_config.", "peft_config.", "quant_config.", "kernel_config.", "dist_config.",
        "optim_config.", "lr_scheduler_config.",
    ),
    # V1/config/arg_parser.py: transformers' HfArgumentParser, as in the first configuration.
    ignores_unknown=False,
    loader="omegaconf",
    section="training",
)  # fmt: skip

_SUPPORTING = frozenset(
    {"dist_config", "peft_config", "kernel_config", "micro_batch_size", "model_class", "cutoff_len"}
)
_COMMANDS = frozenset({"train", "sft", "dpo", "rm"})


class LlamaFactoryV1(Dialect):
    name = "llama-factory-v1"
    launcher_may_shard = True
    markers = (b"train_dataset", b"USE_V1")
    suffixes = (*YAML_SUFFIXES, *SHELL_SUFFIXES)
    references = {"ref.deepspeed": "deepspeed"}

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in getattr(document, "roots", ()):
            if not isinstance(root, Mapping) or not {"model", "train_dataset"} <= set(root.entries):
                continue
            if not _SUPPORTING & set(root.entries):
                continue
            block = Block(document, root, LLAMA_FACTORY_V1, root.entries["model"].span)
            yield Claim(self, "run", document, (block,), framework="llama-factory")
        for launch in launches(document):
            if uses_v1(launch):
                yield from launch_claims(self, launch, LLAMA_FACTORY_V1, _COMMANDS)

    def finish(self, draft: Draft) -> None:
        finish_ranks(draft)
        degree = "parallel.ulysses" if draft.get("v1.cp_mode") == "ulysses" else "parallel.cp"
        draft.derive(degree, draft.get("v1.cp"), "v1.cp", "v1.cp_mode")
        finish_world(draft)
        _finish_trainable(draft)
        _finish_sharding(draft)
        finish_backend(draft)
        upgrade_old_offload(draft)
        finish_deepspeed(draft, under_trainer=True)
        _finish_precision(draft, finish_load(draft))
        _finish_step(draft)
        _finish_batch(draft)
        _finish_save(draft)

    def express(self, changes: Wishes, draft: Draft) -> dict[str, Any]:
        return super().express(expressed(changes, draft, WAYS, {}), draft)


def _finish_trainable(draft: Draft) -> None:
    method = draft.get("v1.peft")
    draft.derive("trainable.method", method or "full", "v1.peft")
    if method == "lora":
        # V1/plugins/model_plugins/peft.py LoraParams.
        source = "V1/plugins/model_plugins/peft.py LoraParams"
        draft.derive("trainable.r", draft.get("v1.lora_rank") or 8, "v1.lora_rank", source=source)
        draft.default("trainable.alpha", 16.0, source)
        draft.default("trainable.dropout", 0.05, source)
        named = draft.get("v1.targets")
        targets = "all_linear" if named in (None, ("all",)) else named
        draft.derive("trainable.targets", targets, "v1.targets")
    elif method == "freeze":
        layers = draft.get("v1.freeze_layers")
        draft.derive(
            "trainable.last_layers", 2 if layers is None else abs(layers), "v1.freeze_layers"
        )
    bits = draft.get("v1.quant_bits")
    if draft.get("v1.quant") == "bnb" and bits is None:
        bits = 4
    finish_quant(draft, bits=bits)
    if draft.get("quant.method") == "bnb4":
        # V1/plugins/model_plugins/quantization.py BnbParams: fp16 is its default.
        double = draft.get("v1.double_quant")
        draft.derive("quant.double", double if double is not None else True, "v1.double_quant")
        draft.derive("quant.storage_dtype", "fp16", "v1.quant")
        draft.derive("quant.compute_dtype", "fp16", "v1.quant")
        if method == "lora":
            draft.override("trainable.method", "qlora", "v1.peft", "v1.quant_bits")
    preference = draft.get("v1.pref_loss")
    kind = {"orpo": "orpo", "simpo": "simpo", "sigmoid": "dpo"}.get(str(preference), "sft")
    draft.derive("objective.kind", kind, "v1.pref_loss")
    draft.derive("objective.pairs_per_sample", 1 if kind == "sft" else 2, "v1.pref_loss")
    lora = method == "lora"
    reference = "none" if kind != "dpo" else "shared_adapter_off" if lora else "copy"
    draft.derive("objective.ref_model", reference, "v1.pref_loss", "v1.peft")


def _finish_sharding(draft: Draft) -> None:
    """V1/plugins/trainer_plugins/distributed/fsdp2.py FSDP2Engine."""
    name = str(draft.get("v1.dist") or "")
    if not name.startswith("fsdp"):
        return
    draft.derive("fsdp.enabled", True, "v1.dist")
    reshards = draft.get("v1.reshard") is not False
    offloads = bool(draft.get("v1.offload"))
    hybrid = (draft.get("parallel.dp_replicate") or 1) > 1
    fsdp = "parallel.fsdp."
    draft.derive(fsdp + "version", 2, "v1.dist")
    draft.derive(fsdp + "reshard_after_forward", reshards, "v1.reshard")
    if hybrid:
        strategy = "hybrid" if reshards else "hybrid_grad_op"
    else:
        strategy = "full" if reshards else "grad_op"
    draft.derive(fsdp + "strategy", strategy, "v1.reshard", "parallel.dp_replicate")
    draft.derive(fsdp + "wrap", "transformer", "v1.dist")
    draft.derive(fsdp + "cpu_offload", offloads, "v1.offload")
    draft.derive(fsdp + "state_dict", "sharded", "v1.dist")
    for field in ("offload.params", "offload.optimizer"):
        draft.derive(field, "cpu" if offloads else "none", "v1.offload")
    if offloads:
        pinned = draft.get("v1.pin_memory") is not False
        draft.derive("offload.pin_memory", pinned, "v1.pin_memory")


def _finish_precision(draft: Draft, load: str | None) -> None:
    """V1/core/model_engine.py: full fine-tuning casts the model to fp32; nothing autocasts."""
    full = draft.get("trainable.method") == "full"
    sharded = bool(draft.get("fsdp.enabled"))
    half = "bf16" if draft.get("v1.bf16") else "fp32"
    if draft.get("parallel.backend") == "zero":
        finish_trainer_precision(draft, amp="bf16" if half == "bf16" else "no", load_dtype=load)
        return
    finish_trainer_precision(draft, amp="no", load_dtype="fp32" if full else load)
    inputs = ("v1.bf16", "v1.peft")
    if draft.get("trainable.method") == "freeze":
        # FreezeParams.cast_trainable_params_to_fp32.
        draft.derive("precision.grad", "fp32", *inputs)
        draft.derive("precision.optim_state", "fp32", *inputs)
    if sharded:
        draft.derive("precision.compute", half, *inputs)
        draft.derive("precision.comm", half, *inputs)
        draft.derive("precision.logits", half, *inputs)


def _finish_step(draft: Draft) -> None:
    on = draft.get("v1.checkpointing")
    if on is not None:
        draft.derive("checkpointing.mode", "full" if on else "none", "v1.checkpointing")
    draft.derive(
        "checkpointing.reentrant", False, "v1.checkpointing", source="V1/core/base_trainer.py"
    )
    draft.derive("checkpointing.offload", "none", "v1.checkpointing")
    # V1/core/base_trainer.py compute_log_probs: the logits in whole, then in fp32.
    draft.derive("loss.logits_materialised", "full", "v1.kernels")
    draft.derive("loss.upcast_fp32", True, "v1.kernels")
    muon = draft.get("optimizer.name") == "muon"
    draft.default("optimizer.name", "adamw", "V1/core/base_trainer.py:209 torch.optim.AdamW")
    draft.derive("optimizer.kind", "muon" if muon else "adamw", "optimizer.name")
    draft.derive("optimizer.fused", False, "optimizer.name")
    draft.derive("optimizer.foreach", not muon, "optimizer.name")
    packed = str(draft.get("v1.batching")).endswith("padding_free")
    draft.derive("seq.packing", "varlen" if packed else "none", "v1.batching")
    draft.derive("seq.pad", "padding_free" if packed else "longest", "v1.batching")
    draft.default("seq.truncation", "cut", "V1/core/rendering")
    draft.derive("eval.enabled", False, "v1.dist", source="V1 trainers do not evaluate")
    draft.derive("eval.strategy", "no", "v1.dist")


def _finish_batch(draft: Draft) -> None:
    """V1/core/utils/batching: as many micro batches as the global batch needs."""
    micro, dp, total = (draft.get(f) for f in ("batch.micro", "parallel.dp", "batch.global"))
    if total is None:
        draft.default("batch.grad_accum", 1, f"{_ARGUMENTS}: DP size x micro batch size")
    elif micro and dp:
        draft.derive(
            "batch.grad_accum", max(1, total // (micro * dp)), "batch.global", "batch.micro"
        )
    finish_batch(draft)


def _finish_save(draft: Draft) -> None:
    steps, epochs = draft.get("save.every"), draft.get("v1.save_epochs")
    strategy = "steps" if steps else "epoch" if epochs else "end"
    draft.derive("save.strategy", strategy, "save.every", "v1.save_epochs")
    draft.derive("save.format", "dcp", "v1.dist")
    whole = bool(draft.get("v1.save_as_hf"))
    draft.derive("save.full_gather", whole, "v1.save_as_hf")
    contents: tuple[str, ...] = ("adapter",) if is_adapter_run(draft) else ("model",)
    if strategy != "end":
        contents = (*contents, "optimizer", "scheduler", "rng")
    draft.derive("save.contents", contents, "save.every", "trainable.method")
