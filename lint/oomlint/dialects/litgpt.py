"""LitGPT: its YAML and the command lines of ``litgpt finetune…`` and ``litgpt pretrain``.

Read from litgpt 26857050 (2026-06-29); ``LG`` below is its ``litgpt`` package. jsonargparse
reads options into the arguments of one ``setup`` function a sub-command, whose defaults
differ; it refuses what that function does not have. The YAML does not name its sub-command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping as MappingABC
from dataclasses import replace
from typing import Any

from oomlint.dialects.base import Claim, Dialect, Reference, expressed
from oomlint.dialects.draft import Draft
from oomlint.dialects.kinds import (
    ANYTHING,
    AUTO,
    BOOLEAN,
    COUNT,
    NUMBER,
    OPTIMIZER_KINDS,
    POSITIVE,
    TEXT,
    BadValue,
    Kind,
    choice,
    read_integer,
)
from oomlint.dialects.launchers import Launch, finish_launch, launches, place, settle, visible_gpus
from oomlint.dialects.law import finish_batch, finish_world, is_adapter_run
from oomlint.dialects.table import Block, OverrideBlock, Row, Table, known_keys
from oomlint.documents.base import Document, Entry, Mapping, Scalar
from oomlint.documents.text import Location, Span
from oomlint.errors import CannotEdit
from oomlint.plan import ModelDims

_SOURCE = "litgpt 26857050"

# Names of LG/config.py that are not the end of the Hub id.
_OWN_NAMES = {
    "tiny-llama-1.1b": "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T",
    "tiny-llama-1.1b-chat": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "r1-distill-llama-8b": "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
    "r1-distill-llama-70b": "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
}


def _read_model(raw: Any) -> str:
    """The Hub id behind ``checkpoints/<org>/<name>``, or the name as it is."""
    if isinstance(raw, (dict, list)):
        raise BadValue("expected a folder or a model name")
    parts = str(raw).replace("\\", "/").strip("/").split("/")
    if len(parts) > 2 and "checkpoints" in parts[:-2]:
        parts = parts[-2:]
        return "/".join(parts)
    return _OWN_NAMES.get(str(raw).lower(), str(raw))


def _read_devices(raw: Any) -> Any:
    """A number of GPUs, or ``auto`` and -1 for all there are (LG/utils.py parse_devices)."""
    if raw in (-1, "-1", "auto"):
        return AUTO
    number = read_integer(raw)
    if number < 1:
        raise BadValue("expected a number of devices, at least 1, or auto")
    return number


def _read_optimizer(raw: Any) -> str | None:
    """A class of torch.optim or a dotted name; settings of its own stand under ``class_path``."""
    return None if isinstance(raw, (dict, list)) else str(raw)


_MODEL = Kind(_read_model)
_DEVICES = Kind(_read_devices)
_OPTIMIZER = Kind(_read_optimizer)
_PRECISION = choice(
    {
        "bf16-true": "bf16-true",
        "bf16-mixed": "bf16-mixed",
        "bf16": "bf16-mixed",
        "16-true": "16-true",
        "16-mixed": "16-mixed",
        "16": "16-mixed",
        "32-true": "32-true",
        "32": "32-true",
        32: "32-true",
        16: "16-mixed",
    }
)
_QUANTIZE = choice(
    {
        "bnb.nf4": "nf4",
        "bnb.nf4-dq": "nf4-dq",
        "bnb.fp4": "fp4",
        "bnb.fp4-dq": "fp4-dq",
        "bnb.int8-training": "int8",
    }
)

_LORA_PARTS = ("query", "key", "value", "projection", "mlp", "head")

LITGPT = Table(
    name="LitGPT config",
    rows=(
        Row("checkpoint_dir", "model.id", _MODEL, aliases=("model_name",)),
        Row("checkpoint_dir", "model.local_path", TEXT),
        Row("model_name", "lit.model_name", TEXT),
        Row("initial_checkpoint_dir", "lit.initial_checkpoint", TEXT),
        *(
            Row(f"model_config.{name}", f"lit.arg.{name}", POSITIVE)
            for name in (
                "n_layer", "n_embd", "n_head", "n_query_groups", "head_size", "intermediate_size",
                "vocab_size", "padded_vocab_size", "block_size",
            )
        ),
        Row("model_config.name", "lit.arg.name", TEXT),
        Row("model_config.mlp_class_name", "lit.arg.mlp", TEXT),
        Row("model_config.norm_class_name", "lit.arg.norm", TEXT),
        Row("precision", "lit.precision", _PRECISION),
        Row("quantize", "lit.quantize", _QUANTIZE),
        Row("devices", "parallel.gpus_per_node", _DEVICES),
        Row("num_nodes", "parallel.nodes", POSITIVE),
        Row("resume", "lit.resume", ANYTHING),
        Row("lora_r", "trainable.r", POSITIVE),
        Row("lora_alpha", "trainable.alpha", NUMBER),
        Row("lora_dropout", "trainable.dropout", NUMBER),
        *(Row(f"lora_{part}", f"lit.lora.{part}", BOOLEAN) for part in _LORA_PARTS),
        Row("data.class_path", "lit.data", TEXT, aliases=("data",)),
        Row("data.init_args.num_workers", "data.workers", COUNT, aliases=("data.num_workers",)),
        Row("train.micro_batch_size", "batch.micro", POSITIVE),
        Row("train.global_batch_size", "lit.global", POSITIVE),
        Row("train.max_seq_length", "seq.max_len", POSITIVE),
        Row("train.tie_embeddings", "lit.tie_embeddings", BOOLEAN),
        Row("train.save_interval", "save.every", POSITIVE),
        Row("train.max_steps", "total_steps", POSITIVE),
        Row("eval.interval", "eval.every", POSITIVE),
        Row("eval.max_new_tokens", "eval.max_new_tokens", COUNT),
        Row("optimizer.class_path", "optimizer.name", _OPTIMIZER, aliases=("optimizer",)),
        Row("optimizer.init_args.betas", "lit.betas", ANYTHING, aliases=("optimizer.betas",)),
        Row("optimizer.init_args.fused", "lit.fused", BOOLEAN, aliases=("optimizer.fused",)),
        Row("out_dir", "save.dir", TEXT),
    ),
    known=known_keys("litgpt"),
    # Arguments of classes, which are any class's own.
    known_prefixes=("data.", "optimizer.", "model_config."),
    ignores_unknown=False,
    loader="pyyaml",
    section="training",
)  # fmt: skip

# The words of a launch line that are no options.
_LAUNCHED = Table(
    name="litgpt",
    rows=(Row("command", "lit.command", TEXT), Row("model", "model.id", _MODEL)),
    section="launcher words",
)

# LG/__main__.py PARSER_DATA and the scripts of the same names.
_TRAINING_WORDS = {
    "finetune": "lora",
    "finetune_lora": "lora",
    "finetune_full": "full",
    "finetune_adapter": "adapter",
    "finetune_adapter_v2": "adapter",
    "pretrain": "pretrain",
}
_SCRIPTS = {
    "lora": "lora",
    "lora_legacy": "lora",
    "full": "full",
    "adapter": "adapter",
    "adapter_v2": "adapter",
    "pretrain": "pretrain",
}


class LitGpt(Dialect):
    name = "litgpt"
    markers = (b"litgpt", b"micro_batch_size", b"global_batch_size")
    suffixes = (".yaml", ".yml", ".sh", ".bash", ".slurm", ".sbatch", ".job")

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in getattr(document, "roots", ()):
            if isinstance(root, Mapping) and _is_config(root):
                anchor = root.entries["train"].key_span
                blocks = (_guessed_block(document, anchor), Block(document, root, LITGPT, anchor))
                yield Claim(self, "run", document, tuple(b for b in blocks if b is not None))
        for launch in launches(document):
            claim = self._launch(launch)
            if claim is not None:
                yield claim

    def _launch(self, launch: Launch) -> Claim | None:
        document = launch.document
        words = [word for word in launch.arguments if isinstance(word.value, str)]
        if launch.stem == "litgpt" and words:
            command, *words = words
            kind = _TRAINING_WORDS.get(str(command.value))
            if kind == "lora" and words and words[0].value in _SCRIPTS:
                # Up to 0.4 the method was a word of its own: litgpt finetune lora.
                kind = _SCRIPTS[str(words[0].value)]
                command, *words = words
            if kind is None:
                return Claim(self, "aside", document, ())
        elif "litgpt" in launch.name and launch.stem in _SCRIPTS:
            command, kind = launch.program, _SCRIPTS[launch.stem]
        else:
            return None
        at = place(command)
        said = {"command": Entry("command", at, Scalar(at, kind), at)}
        if words:
            said["model"] = Entry("model", place(words[0]), words[0], place(words[0]))
        launched = Block(
            document, Mapping(at, said), _LAUNCHED, at, locked="it is a word of the command"
        )
        config = launch.flag("config")
        name = config.value.value if config and isinstance(config.value, Scalar) else None
        if config is None or not isinstance(name, str):
            return Claim(
                self, "run", document, (*launch.blocks, launched, launch.program_block(LITGPT))
            )
        where = Location(document.source.path, place(config.value))  # type: ignore[arg-type]
        reference = Reference(name, where, self.name, optional="://" in name)
        overrides = OverrideBlock(document, launch.flags, LITGPT, launch.anchor)
        return Claim(self, "launch", document, (*launch.blocks, launched, overrides), (reference,))

    def finish(self, draft: Draft) -> None:
        command = _finish_command(draft)
        _finish_defaults(draft, command)
        finish_launch(draft, one_process=False)
        finish_world(draft)
        _finish_model(draft, command)
        _finish_batch(draft)
        _finish_backend(draft, command)
        _finish_trainable(draft, command)
        _finish_precision(draft)
        _finish_optimizer(draft, command)
        _finish_activations(draft, command)
        _finish_eval_and_save(draft, command)

    def express(self, changes: MappingABC[str, Any], draft: Draft) -> dict[str, Any]:
        return super().express(expressed(changes, draft, _EXPRESS, _NO_WAY), draft)


# -- recognising ------------------------------------------------------------------------------


def _is_config(root: Mapping) -> bool:
    """``train`` with a batch size, and what is trained; no other framework has both."""
    train = root.entries.get("train")
    if train is None or not isinstance(train.value, Mapping):
        return False
    if not {"micro_batch_size", "global_batch_size"} & set(train.value.entries):
        return False
    if {"checkpoint_dir", "model_name", "model_config"} & set(root.entries):
        return True
    data = root.entries.get("data")
    path = (
        data.value.entries.get("class_path") if data and isinstance(data.value, Mapping) else None
    )
    value = path.value if path is not None else None
    return isinstance(value, Scalar) and str(value.value).startswith("litgpt.")


def _guessed_block(document: Document, anchor: Span) -> Block | None:
    """The sub-command that the names of a file and its folder suggest: ``config_hub/…/lora.yaml``."""
    name = document.source.path.rpartition("/")[2].lower()
    for word in ("lora", "full", "adapter", "pretrain"):
        if word in name:
            entry = Entry("command", anchor, Scalar(anchor, word), anchor)
            mapping = Mapping(anchor, {"command": entry})
            return Block(document, mapping, _FILE_NAME, anchor, locked="it is the file's name")
    return None


_FILE_NAME = Table(
    name="file name",
    rows=(Row("command", "lit.file.command", TEXT),),
    section="file name",
)


# -- what keys mean ---------------------------------------------------------------------------


def _finish_command(draft: Draft) -> str:
    """``lora``, ``full``, ``adapter`` or ``pretrain``: launched, else told by keys of its own."""
    command = draft.get("lit.command")
    if command is not None:
        return str(command)
    if draft.get("trainable.r") or any(draft.says(f"lit.lora.{part}") for part in _LORA_PARTS):
        found = "lora"
    elif draft.get("lit.model_name") is not None or any(
        draft.says(row.field) for row in LITGPT.rows if row.field.startswith("lit.arg.")
    ):
        found = "pretrain"
    else:
        named = draft.get("lit.file.command")
        found = str(named or ("lora" if draft.get("lit.quantize") else "full"))
        if not draft.says("lit.resume"):
            draft.assume("lit.command", found, "no key of the file belongs to one sub-command")
            return found
    draft.derive("lit.command", found, "trainable.r", "lit.model_name")
    return found


def _finish_defaults(draft: Draft, command: str) -> None:
    """Defaults of the sub-command's ``setup`` (LG/finetune/*.py, LG/pretrain.py)."""
    source = f"{_SOURCE} {'pretrain' if command == 'pretrain' else f'finetune/{command}'}.py setup"
    pretrains = command == "pretrain"
    draft.default("batch.micro", 4 if pretrains else 1, source)
    draft.default("lit.global", 512 if pretrains else 16, source)
    draft.default("save.every", 1000, source)
    draft.default("eval.every", {"pretrain": 1000, "full": 600}.get(command, 100), source)
    draft.default("optimizer.name", "AdamW", source)
    draft.default("data.workers", 8 if pretrains else 4, "LG/data: num_workers")
    _prefer_later_auto(draft, "parallel.gpus_per_node")
    all_visible = "parallel.gpus_per_node" in draft.auto or (
        pretrains and not draft.says("parallel.gpus_per_node")
    )
    if all_visible:
        seen = visible_gpus(draft)
        settle(draft, "parallel.gpus_per_node", seen, source, "env.cuda_visible_devices")
    else:
        settle(draft, "parallel.gpus_per_node", 1, source)
    settle(draft, "parallel.nodes", 1, source)
    if command == "lora":
        draft.default("trainable.r", 8, source)
        draft.default("trainable.alpha", 16.0, source)
        draft.default("trainable.dropout", 0.05, source)
        for part in _LORA_PARTS:
            draft.default(f"lit.lora.{part}", part in ("query", "value"), source)


def _prefer_later_auto(draft: Draft, field: str) -> None:
    """``--devices auto`` on the command line replaces a number in the file."""
    auto, setting = draft.auto.get(field), draft.settings.get(field)
    if auto is None or setting is None or setting.origin.block is None or auto.block is None:
        return
    if draft.blocks.index(auto.block) > draft.blocks.index(setting.origin.block):
        draft.forget(field)


def _finish_model(draft: Draft, command: str) -> None:
    given = _dims_of_arguments(draft)
    if given is not None:
        draft.forget("model.dims")
        draft.derive("model.dims", given, "lit.arg.n_layer", "lit.arg.n_embd")
    dims = draft.get("model.dims")
    if dims is not None and dims.tie_embeddings and not draft.get("lit.tie_embeddings"):
        # LG/model.py: the head is a layer of its own whatever the Hub's model shares.
        draft.override(
            "model.dims", _untied(dims), "model.id", "lit.tie_embeddings", source="LG/model.py:28"
        )
    draft.derive("model.attn_impl", "sdpa", source="LG/model.py scaled_dot_product_attention")
    pretrains = command == "pretrain"
    draft.derive("objective.kind", "pretrain" if pretrains else "sft", "lit.command")
    draft.derive("objective.ref_model", "none", "lit.command")
    if pretrains:
        scratch = draft.get("lit.initial_checkpoint") is None
        draft.derive("model.from_scratch", scratch, "lit.initial_checkpoint")
        if dims is not None and dims.ctx and not draft.is_unknown("seq.max_len"):
            draft.derive("seq.max_len", dims.ctx, "model.dims", source="LG/pretrain.py: block_size")
    elif draft.get("seq.max_len") is None and not draft.is_unknown("seq.max_len"):
        source = "LG/finetune: the longest sample of the data decides"
        draft.derive("seq.unbounded", True, "seq.max_len", source=source)
    draft.derive("seq.packing", "concat" if pretrains else "none", "lit.command")
    draft.derive("seq.pad", "none" if pretrains else "longest", "lit.command")


def _untied(dims: ModelDims) -> ModelDims:
    """The same model with a head of its own."""
    extra = (dims.vocab or 0) * (dims.hidden or 0)
    return replace(
        dims,
        tie_embeddings=False,
        params_total=dims.params_total + extra if dims.params_total else None,
        params_active=dims.params_active + extra if dims.params_active else None,
        params_lm_head=extra or None,
    )


def _dims_of_arguments(draft: Draft) -> ModelDims | None:
    """The dimensions that ``model_config`` spells out; LG/config.py has the defaults."""
    layers, hidden = draft.get("lit.arg.n_layer"), draft.get("lit.arg.n_embd")
    heads = draft.get("lit.arg.n_head")
    if not (layers and hidden and heads):
        return None
    mlp = draft.get("lit.arg.mlp") or "GptNeoxMLP"
    act = {"LLaMAMLP": "swiglu", "GemmaMLP": "geglu"}.get(str(mlp), "gelu")
    rms = draft.get("lit.arg.norm") == "RMSNorm"
    return ModelDims(
        arch="llama" if act == "swiglu" else "gpt_neox",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=draft.get("lit.arg.n_query_groups") or heads,
        head_dim=draft.get("lit.arg.head_size") or hidden // heads,
        ffn=draft.get("lit.arg.intermediate_size") or 4 * hidden,
        vocab=draft.get("lit.arg.padded_vocab_size") or draft.get("lit.arg.vocab_size") or 50_254,
        tie_embeddings=False,
        norm="rms" if rms else "ln",
        act=act,  # type: ignore[arg-type]
        ctx=draft.get("lit.arg.block_size") or 4096,
    )


def _finish_batch(draft: Draft) -> None:
    """LG/args.py TrainArgs.gradient_accumulation_iters; a remainder is dropped."""
    total, world, micro = (
        draft.get("lit.global"),
        draft.get("parallel.world"),
        draft.get("batch.micro"),
    )
    if None not in (total, world, micro):
        accumulation = max(1, total // world // micro)
        inputs = ("lit.global", "batch.micro", "parallel.world")
        draft.derive("batch.grad_accum", accumulation, *inputs, source="LG/args.py:56")
    finish_batch(draft)


def _finish_backend(draft: Draft, command: str) -> None:
    world = draft.get("parallel.world")
    if world is None:
        return
    for field in ("offload.params", "offload.optimizer"):
        draft.derive(field, "none", "lit.command", source="LG: cpu_offload=False")
    if world == 1:
        draft.derive("parallel.backend", "none", "parallel.world")
        return
    fsdp = "parallel.fsdp."
    source = f"{_SOURCE} {command}.py: strategy"
    if command == "lora":
        # ModelParallelStrategy with fully_shard on every block (LG/finetune/lora.py parallelize_fn).
        draft.derive("parallel.backend", "fsdp2", "parallel.world", source=source)
        draft.derive(fsdp + "version", 2, "lit.command", source=source)
    else:
        draft.derive("parallel.backend", "fsdp1", "parallel.world", source=source)
        draft.derive(fsdp + "version", 1, "lit.command", source=source)
        # Lightning Fabric's FSDPStrategy and torch's own defaults below it.
        draft.derive(fsdp + "use_orig_params", True, "lit.command", source="lightning fabric")
        draft.derive(fsdp + "limit_all_gathers", True, "lit.command", source="lightning fabric")
        draft.derive(fsdp + "backward_prefetch", "pre", "lit.command", source="torch 2.9 FSDP")
        draft.derive(fsdp + "forward_prefetch", False, "lit.command", source="torch 2.9 FSDP")
    hybrid = command == "pretrain"
    draft.derive(fsdp + "strategy", "hybrid" if hybrid else "full", "lit.command", source=source)
    draft.derive(fsdp + "reshard_after_forward", True, "lit.command", source=source)
    draft.derive(fsdp + "wrap", "transformer", "lit.command", source=source)
    draft.derive(fsdp + "state_dict", "full", "lit.command", source=source)
    draft.derive(fsdp + "cpu_offload", False, "lit.command", source=source)
    # fabric.no_backward_sync between optimizer steps.
    draft.derive(fsdp + "sync_every_micro", False, "lit.command", source=source)
    draft.derive("load.meta_init", True, "parallel.world", source="LG: init_module(empty_init)")


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


def _finish_trainable(draft: Draft, command: str) -> None:
    quantize = draft.get("lit.quantize")
    if command in ("full", "pretrain"):
        draft.derive("trainable.method", "full", "lit.command")
        draft.derive("quant.method", "none", "lit.command")
        return
    method = "adapter" if command == "adapter" else "qlora" if quantize else "lora"
    draft.derive("trainable.method", method, "lit.command", "lit.quantize")
    if command == "lora":
        chosen = [part for part in _LORA_PARTS if draft.get(f"lit.lora.{part}")]
        names = tuple(name for part in chosen for name in _ROLES[part])
        fields = [f"lit.lora.{part}" for part in _LORA_PARTS]
        draft.derive("trainable.targets", names, *fields)
    bnb = "none" if quantize is None else "bnb8" if quantize == "int8" else "bnb4"
    if draft.is_unknown("lit.quantize"):
        return
    draft.derive("quant.method", bnb, "lit.quantize")
    if bnb == "bnb4":
        draft.derive("quant.double", str(quantize).endswith("-dq"), "lit.quantize")
        # Fabric keeps the packed weights in uint8 (fabric/plugins/precision/bitsandbytes.py).
        draft.derive("quant.storage_dtype", "uint8", "lit.quantize")


def _finish_precision(draft: Draft) -> None:
    """Lightning Fabric: ``-true`` makes everything that dtype, ``-mixed`` keeps fp32 under
    autocast; adapters are like the rest (fabric/plugins/precision)."""
    if draft.is_unknown("lit.precision"):
        return
    source = f"{_SOURCE} utils.py:363: bf16-mixed on GPUs that have bfloat16"
    draft.default("lit.precision", "bf16-mixed", source)
    name, _, kind = str(draft.get("lit.precision")).partition("-")
    half = {"bf16": "bf16", "16": "fp16"}.get(name)
    mixed = kind == "mixed"
    stored = "fp32" if mixed or half is None else half
    frozen = {"bnb4": "nf4", "bnb8": "int8"}.get(str(draft.get("quant.method")), stored)
    inputs = ("lit.precision", "lit.quantize")
    draft.derive("load.dtype", stored, *inputs)
    draft.derive("precision.param", frozen, *inputs)
    draft.derive("precision.grad", stored, *inputs)
    draft.derive("precision.master", "none", *inputs)
    # Under quantization LitGPT takes bitsandbytes' PagedAdamW, whose states are float32.
    draft.derive("precision.optim_state", "fp32" if frozen != stored else stored, *inputs)
    draft.derive("precision.compute", half or "fp32", *inputs)
    draft.derive("precision.autocast", mixed, *inputs)
    draft.derive("precision.logits", half or "fp32", *inputs)
    if draft.get("parallel.backend") in ("fsdp1", "fsdp2"):
        draft.derive("precision.comm", half or "fp32", *inputs)
    if is_adapter_run(draft):
        draft.derive("trainable.adapter_dtype", stored, *inputs)
    draft.derive("quant.compute_dtype", stored if frozen != stored else None, *inputs)


_OPTIMIZERS = {
    "AdamW": "adamw",
    "Adam": "adamw",
    "SGD": "sgd",
    "RMSprop": "rmsprop",
    "Adafactor": "adafactor",
    "AdamW8bit": "adamw8bit",
    "PagedAdamW": "paged_adamw",
    "PagedAdamW8bit": "paged_adamw8bit",
    "Lion": "lion",
    "Lion8bit": "lion8bit",
    "GaLoreAdamW": "galore",
    "GaLoreAdamW8bit": "galore",
}


def _finish_optimizer(draft: Draft, command: str) -> None:
    name = draft.get("optimizer.name")
    if name is None:
        return
    component = str(name)
    short = component.rpartition(".")[2]
    kind = _OPTIMIZERS.get(short, OPTIMIZER_KINDS.get(short.lower(), "other"))
    if draft.get("quant.method") in ("bnb4", "bnb8"):
        draft.override("optimizer.name", "bitsandbytes.optim.PagedAdamW", "lit.quantize")
        draft.override("optimizer.kind", "paged_adamw", "lit.quantize", source="LG/utils.py:619")
        return
    draft.derive("optimizer.kind", kind, "optimizer.name")
    native = "." not in component or component.startswith("torch.optim.")
    # LG/pretrain.py asks for fused kernels on CUDA; fine-tuning leaves torch's choice, foreach.
    fused = native and (command == "pretrain" or bool(draft.get("lit.fused")))
    draft.derive("optimizer.fused", fused, "lit.command", "lit.fused")
    draft.derive("optimizer.foreach", native and not fused, "optimizer.name")


def _finish_activations(draft: Draft, command: str) -> None:
    """Blocks are checkpointed where several GPUs fine-tune, and nowhere else."""
    world = draft.get("parallel.world")
    if world is not None:
        mode = "full" if world > 1 and command != "pretrain" else "none"
        inputs = ("parallel.world", "lit.command")
        draft.derive("checkpointing.mode", mode, *inputs, source=f"{_SOURCE}: strategy")
        draft.derive("checkpointing.reentrant", False, *inputs)
        if mode == "full":
            draft.derive("checkpointing.source", "fsdp", *inputs)
    draft.derive("checkpointing.offload", "none", "lit.command")
    # Only LoRA and adapters project 128 tokens at a time.
    chunked = command in ("lora", "adapter")
    draft.derive("loss.logits_materialised", "chunked" if chunked else "full", "lit.command")
    length = draft.get("seq.max_len")
    if chunked and length:
        draft.derive("loss.chunks", -(-length // 128), "seq.max_len", source="lm_head_chunk_size")
    draft.derive("loss.outputs_kept", True, "lit.command", source="LG: logits live until backward")
    # Every precision plugin hands on outputs in the default dtype, which is float32.
    source = "lightning 2.6 fabric/plugins/precision/half.py convert_output"
    draft.derive("loss.upcast_fp32", True, "lit.command", source=source)
    draft.derive("compile.enabled", command == "pretrain", "lit.command", source="LG/pretrain.py")


def _finish_eval_and_save(draft: Draft, command: str) -> None:
    draft.derive("eval.enabled", True, "eval.every")
    draft.derive("eval.strategy", "steps", "eval.every")
    draft.derive("eval.on_start", True, "lit.command", source="LG: two batches verify settings")
    draft.derive("eval.keeps_logits", False, "lit.command")
    draft.derive("batch.eval_micro", draft.get("batch.micro"), "batch.micro")
    draft.derive("save.strategy", "steps", "save.every")
    draft.default("save.keep", "all", "LG: a folder for every step")
    adapters = is_adapter_run(draft)
    contents = ("adapter",) if adapters else ("model", "optimizer")
    draft.derive("save.contents", contents, "lit.command", source="LG: fabric.save(state)")
    draft.derive("save.save_only_model", adapters, "lit.command")
    draft.derive("save.format", "bin", "lit.command")
    if (draft.get("parallel.world") or 1) > 1 and not adapters:
        draft.derive("save.full_gather", True, "lit.command", source='LG: state_dict_type="full"')


# -- what a fix writes ------------------------------------------------------------------------

_NO_WAY = {
    "parallel.zero.stage": "LitGPT shards with FSDP by itself where devices is above 1",
    "parallel.fsdp.state_dict": "LitGPT always saves whole checkpoints",
    "loss.logits_materialised": "LitGPT has no key for the loss",
    "model.attn_impl": "LitGPT computes attention with PyTorch's own kernels",
    "offload.params": "LitGPT has no CPU offloading",
    "offload.optimizer": "LitGPT has no CPU offloading",
    "offload.activations": "LitGPT has no activation offloading",
    "checkpointing.offload": "LitGPT has no activation offloading",
    "save.save_only_model": "LitGPT saves the whole training state at every interval",
    "batch.eval_micro": "LitGPT evaluates with train.micro_batch_size",
    "load.cpu_ram_efficient": "LitGPT maps checkpoint files into memory as it is",
    "optimizer.fused": "LitGPT takes fused kernels when it pretrains, and has no key for them",
}


def _express_checkpointing(
    mode: Any, draft: Draft, _changes: MappingABC[str, Any]
) -> dict[str, Any]:
    if mode == draft.get("checkpointing.mode"):
        return {}
    raise CannotEdit(
        "LitGPT has no key for activation checkpointing: it checkpoints when several devices "
        "fine-tune, and never on one"
    )


def _express_accumulation(
    steps: Any, draft: Draft, changes: MappingABC[str, Any]
) -> dict[str, Any]:
    """``global_batch_size`` = micro batch x accumulation x ranks."""
    micro = changes.get("batch.micro", draft.get("batch.micro"))
    world = draft.get("parallel.world")
    if micro is None or world is None:
        raise CannotEdit("train.global_batch_size depends on the number of devices")
    total = steps * micro * world
    return {} if total == draft.get("lit.global") else {"lit.global": total}


_CLASS_OF = {
    "adamw": "torch.optim.AdamW",
    "adafactor": "torch.optim.Adafactor",
    "adamw8bit": "bitsandbytes.optim.AdamW8bit",
    "paged_adamw": "bitsandbytes.optim.PagedAdamW",
    "paged_adamw8bit": "bitsandbytes.optim.PagedAdamW8bit",
    "lion": "bitsandbytes.optim.Lion",
    "lion8bit": "bitsandbytes.optim.Lion8bit",
}


def _express_optimizer(kind: Any, draft: Draft, _changes: MappingABC[str, Any]) -> dict[str, Any]:
    name = _CLASS_OF.get(kind)
    if name is None:
        raise CannotEdit(f"no optimizer that LitGPT is used with is {kind}")
    if draft.get("quant.method") in ("bnb4", "bnb8"):
        raise CannotEdit("LitGPT takes bitsandbytes' PagedAdamW whenever it quantizes")
    if name.startswith("bitsandbytes.") and draft.get("parallel.backend") == "fsdp2":
        raise CannotEdit("bitsandbytes' optimizers do not work on FSDP2's sharded tensors")
    if kind == "adafactor" and draft.get("lit.betas") is not None:
        raise CannotEdit("Adafactor takes no betas: remove optimizer.init_args.betas with it")
    return {"optimizer.name": name}


def _express_quant(method: Any, draft: Draft, _changes: MappingABC[str, Any]) -> dict[str, Any]:
    """LG/finetune/lora.py: quantization needs one device and no mixed precision."""
    spelled = {"bnb4": "nf4", "bnb8": "int8"}.get(method)
    if spelled is None:
        raise CannotEdit(f"LitGPT quantizes with bitsandbytes only, not {method}")
    if not is_adapter_run(draft):
        raise CannotEdit("LitGPT quantizes weights only under LoRA or adapters")
    if draft.get("parallel.world") != 1:
        raise CannotEdit("LitGPT quantizes on a single device only")
    changes = {"lit.quantize": spelled}
    if str(draft.get("lit.precision")).endswith("-mixed"):
        changes["lit.precision"] = "bf16-true"
    return changes


def _express_dtype(dtype: Any, _draft: Draft, _changes: MappingABC[str, Any]) -> dict[str, Any]:
    spelled = {"bf16": "bf16-true", "fp16": "16-true", "fp32": "32-true"}.get(dtype)
    if spelled is None:
        raise CannotEdit(f"LitGPT cannot hold weights in {dtype}")
    return {"lit.precision": spelled}


def _express_workers(count: Any, draft: Draft, _changes: MappingABC[str, Any]) -> dict[str, Any]:
    if draft.get("lit.data") is None:
        raise CannotEdit("num_workers belongs to the data module, which nothing here names")
    return {"data.workers": count}


def _express_state_dtype(
    _dtype: Any, _draft: Draft, _changes: MappingABC[str, Any]
) -> dict[str, Any]:
    return {}


_EXPRESS = {
    "checkpointing.mode": _express_checkpointing,
    "batch.grad_accum": _express_accumulation,
    "optimizer.kind": _express_optimizer,
    "quant.method": _express_quant,
    "precision.param": _express_dtype,
    "load.dtype": _express_dtype,
    "data.workers": _express_workers,
    "precision.optim_state": _express_state_dtype,
}
