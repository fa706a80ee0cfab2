"""Keys of torchtune's YAML and of the line that launches a recipe.

Read from torchtune 0.7.0 (bd2a0fc7, 2026-04-23); ``TT`` below is the root of that checkout.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    DTYPE,
    LIST,
    NUMBER,
    POSITIVE,
    REST,
    TEXT,
    Kind,
    choice,
    read_boolean,
    switch,
)
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.dialects.torchtune.models import BUILDER
from oomlint.plan.fields import Private, f

RECIPES = "torchtune 0.7.0 recipes"


class own(Private, prefix="torchtune"):  # noqa: N801  a namespace of fields, read like ``f``
    """Keys and words of torchtune whose meaning takes more than one of them.

    ``recipe`` and ``removed`` (``~key``) are words of the launch line. ``single``: the recipe is
    one of those for a single device.
    """

    recipe: str
    removed: tuple[str, ...]
    single: bool
    builder: str
    lora_attn_modules: tuple[str, ...]
    lora_mlp: bool
    lora_output: bool
    dora: bool
    quantize_base: bool
    decoder_trainable: str
    encoder_trainable: str
    fusion_trainable: str
    max_tiles: int
    dtype: str
    checkpointing: bool
    ac_mode: str
    ac_option: str
    offload_activations: bool
    fused: bool
    foreach: bool
    loss: str
    sharded_layers: tuple[str, ...]
    compile_loss: bool
    checkpointer: str
    adapter_only: bool
    epochs: int
    training_workers: int
    dataset: str
    source: str
    data_files: str


class arg(Private, prefix="torchtune.arg"):  # noqa: N801
    """Keyword arguments of a family's own builder, by their names."""

    vocab_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    embed_dim: int
    intermediate_dim: int
    max_seq_len: int


ARGUMENTS = {name: getattr(arg, name) for name in arg.__annotations__}


class header(Private, prefix="torchtune.header"):  # noqa: N801
    """The launch line that the comment at the head of a shipped config suggests."""

    recipe: str
    ranks: int
    nodes: int


def _read_compile(raw: Any) -> bool:
    """A switch, or one for each of model, loss, optimizer_step and scale_grads."""
    if isinstance(raw, dict):
        return raw.get("model", True) is not False
    return read_boolean(raw)


def _read_component(raw: Any) -> str | None:
    """``optimizer=torch.optim.SGD`` stands for its ``_component_`` (TT/torchtune/config/_utils.py)."""
    return None if isinstance(raw, (dict, list)) else str(raw)


_COMPILE = Kind(_read_compile)
_COMPONENT = Kind(_read_component)
_TRAINABLE = choice(
    {True: "full", False: "frozen", "full": "full", "lora": "lora", "frozen": "frozen"}
)


def _component(key: str, field: Any, *aliases: str, kind: Kind = _COMPONENT) -> Row:
    return Row(f"{key}._component_", field, kind, aliases=(key, *aliases))


# torchtune's recipes read keys with ``cfg.get(key, default)`` in their constructors.
# ``training.*`` are spellings of recipes/dev/async_grpo_full_finetune_distributed.py.
TORCHTUNE = Table(
    name="torchtune config",
    rows=(
        _component("model", f.model.id, "policy_model._component_", kind=BUILDER),
        _component("model", own.builder, "policy_model._component_"),
        Row("model.lora_rank", f.trainable.r, POSITIVE),
        Row("model.lora_alpha", f.trainable.alpha, NUMBER),
        Row("model.lora_dropout", f.trainable.dropout, NUMBER),
        Row("model.lora_attn_modules", own.lora_attn_modules, LIST),
        Row("model.apply_lora_to_mlp", own.lora_mlp, BOOLEAN),
        Row("model.apply_lora_to_output", own.lora_output, BOOLEAN),
        Row("model.use_dora", own.dora, BOOLEAN),
        Row("model.quantize_base", own.quantize_base, BOOLEAN),
        Row("model.decoder_trainable", own.decoder_trainable, _TRAINABLE),
        Row("model.encoder_trainable", own.encoder_trainable, _TRAINABLE),
        Row("model.fusion_trainable", own.fusion_trainable, _TRAINABLE),
        *(
            Row(f"model.{name}", field, POSITIVE, aliases=(f"policy_model.{name}",))
            for name, field in ARGUMENTS.items()
        ),
        # The latter is what builders of data sets take before torchtune 0.3: see releases.py.
        Row("tokenizer.max_seq_len", f.seq.max_len, POSITIVE, aliases=("dataset.max_seq_len",)),
        Row("tokenizer.max_num_tiles", own.max_tiles, POSITIVE),
        _component("dataset", own.dataset),
        Row("dataset.source", own.source, TEXT),
        Row("dataset.data_files", own.data_files, TEXT),
        Row("dataset.packed", f.seq.packing, switch(on="neat", off="none"), default="none", source="TT/torchtune/datasets: packed=False"),
        Row("batch_size", f.batch.micro, POSITIVE, aliases=("training.batch_size",)),
        Row("gradient_accumulation_steps", f.batch.grad_accum, POSITIVE, default=1, source=RECIPES),
        Row("dtype", own.dtype, DTYPE, default="fp32", source="TT/torchtune/training/precision.py:102: no dtype is float32"),
        Row("enable_activation_checkpointing", own.checkpointing, BOOLEAN, aliases=("training.enable_activation_checkpointing",), default=False, source=RECIPES),
        Row("ac_mode", own.ac_mode, TEXT),
        Row("ac_option", own.ac_option, TEXT),
        Row("enable_activation_offloading", own.offload_activations, BOOLEAN, aliases=("training.enable_activation_offloading",), default=False, source=RECIPES),
        _component("optimizer", f.optimizer.name, "training.optimizer._component_"),
        Row("optimizer.fused", own.fused, BOOLEAN, aliases=("training.optimizer.fused",)),
        Row("optimizer.foreach", own.foreach, BOOLEAN),
        Row("optimizer_in_bwd", f.optimizer.in_backward, BOOLEAN, default=False, source=RECIPES),
        Row("clip_grad_norm", f.optimizer.clip_norm, NUMBER),
        _component("loss", own.loss, "training.loss._component_"),
        Row("loss.num_output_chunks", f.loss.chunks, POSITIVE),
        Row(
            "fsdp_cpu_offload", f.parallel.fsdp.cpu_offload, BOOLEAN, default=False, source=RECIPES,
            near=("custom_sharded_layers", "enable_activation_offloading", "enable_activation_checkpointing"),
        ),
        Row("fsdp_reshard_after_forward", f.parallel.fsdp.reshard_after_forward, BOOLEAN, default=True, source=RECIPES),
        Row("custom_sharded_layers", own.sharded_layers, LIST),
        Row("data_parallel_shard_dim", f.parallel.dp_shard, REST),
        Row("data_parallel_replicate_dim", f.parallel.dp_replicate, REST),
        Row("tensor_parallel_dim", f.parallel.tp, POSITIVE),
        Row("context_parallel_dim", f.parallel.cp, POSITIVE),
        Row("enable_fp8_training", f.precision.fp8_train, switch(on="torchao", off="none"), default="none", source=RECIPES),
        Row("compile", f.compile.enabled, _COMPILE, aliases=("training.compile",), default=False, source=RECIPES),
        Row("compile.loss", own.compile_loss, BOOLEAN),
        Row("run_val_every_n_steps", f.eval.every, POSITIVE),
        Row("batch_size_val", f.batch.eval_micro, POSITIVE),
        _component("checkpointer", own.checkpointer, "training.checkpointer._component_"),
        Row("checkpointer.keep_last_n_checkpoints", f.save.keep, POSITIVE),
        Row("save_every_n_steps", f.save.every, POSITIVE, aliases=("training.save_every_n_steps",)),
        Row("save_adapter_weights_only", own.adapter_only, BOOLEAN, default=False, source=RECIPES),
        Row("enable_async_checkpointing", f.save.async_, switch(on="thread", off="none"), default="none", source=RECIPES),
        Row("output_dir", f.save.dir, TEXT),
        Row("epochs", own.epochs, COUNT),
        _component("teacher_model", f.objective.teacher),
        _component("reward_and_value_model", f.objective.reward_model),
        Row("grpo_samples", f.objective.rollout.n, POSITIVE, aliases=("inference.group_size",)),
        Row("max_generated_tokens", f.objective.rollout.max_completion_tokens, POSITIVE, aliases=("inference.max_generated_tokens",)),
        Row("forward_batch_size", f.objective.rollout.rollout_micro_batch, POSITIVE),
        Row("orchestration.num_training_workers", own.training_workers, POSITIVE),
    ),
    known=known_keys("torchtune"),
    # Arguments of components, which are any callable's own.
    known_prefixes=(
        "model.", "policy_model.", "teacher_model.", "reward_and_value_model.", "tokenizer.",
        "dataset.", "dataset_val.", "checkpointer.", "ref_checkpointer.", "teacher_checkpointer.",
        "ref_policy_checkpointer.", "value_checkpointer.", "reward_checkpointer.", "optimizer.",
        "lr_scheduler.", "loss.", "kd_loss.", "metric_logger.", "profiler.", "quantizer.",
        "tensor_parallel_plan.", "compile.", "early_exit_loss.", "layer_dropout.", "prompt.",
        "training.", "orchestration.", "inference.", "postprocessing.", "dataloader.",
    ),
    ignores_unknown=True,
    loader="omegaconf",
    section="training",
)  # fmt: skip

# The words of a launch line that are no ``key=value``.
LAUNCHED = Table(
    name="tune run",
    rows=(Row("recipe", own.recipe, TEXT), Row("removed", own.removed, LIST)),
    section="launcher words",
)
HEADER = Table(
    name="comment",
    rows=(
        Row("recipe", header.recipe, TEXT),
        Row("nproc_per_node", header.ranks, POSITIVE),
        Row("nnodes", header.nodes, POSITIVE),
    ),
    section="comment",
)
