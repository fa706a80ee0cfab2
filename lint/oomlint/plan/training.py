"""The training of a run: what it computes in a step, over which ranks and devices, what it saves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from oomlint.plan.model import DType, Section


class Rollout(Section, frozen=True, kw_only=True):
    """The generation engine of an RL run: ``hf`` is the model itself, ``deepspeed`` the model itself
    on the kernels of DeepSpeed's hybrid engine.

    ``max_model_len`` is the longest sequence that the engine makes room for, in tokens;
    ``generation_batch`` counts the completions of one round over all ranks. ``gathers``: a sharded
    model that writes its answers itself lies whole on every GPU meanwhile, or a share of it for each of ``tp``.
    ``shares_weights``: the engine works with the trainer's own copy of the weights.
    ``share_of``: of what ``gpu_mem_util`` is the engine's share: of the whole ``card``, of what is ``free`` of it
    when the engine starts, or of the card with all that the process holds already counted in (``process``).
    ``sync_batches``: in how many parts a model that ZeRO-3 shards lies whole on every GPU when the engine is given its weights;
    ``None`` where they are put together tensor by tensor. ``wakes_in_parts``: of an engine that sleeps the weights come
    back before that, and keys and values after it.
    ``scored_tokens``: of a batch whose log-probabilities are taken, where tokens fill it; ``entropy``: as
    :attr:`Loss.entropy`, where they are.
    """

    engine: (
        Literal[
            "none", "hf", "deepspeed", "vllm_colocate", "vllm_server", "sglang", "sglang_server",
        ]
        | None
    ) = None  # fmt: skip
    gpu_mem_util: float | None = None
    tp: int | None = None
    sleep: bool | None = None
    n: int | None = None
    max_prompt_tokens: int | None = None
    max_completion_tokens: int | None = None
    rollout_micro_batch: int | None = None
    max_model_len: int | None = None
    generation_batch: int | None = None
    gathers: bool | None = None
    sync_batches: int | None = None
    wakes_in_parts: bool | None = None
    shares_weights: bool | None = None
    share_of: Literal["card", "free", "process"] | None = None
    scored_tokens: int | None = None
    entropy: Literal["none", "fused", "whole"] | None = None


REINFORCING = frozenset({"ppo", "grpo", "rloo"})
"""Kinds of objectives under which a model learns from answers of its own."""
HEADLESS = frozenset({"rm", "embedding"})
"""Kinds of objectives of models without logits over the vocabulary."""


class Objective(Section, frozen=True, kw_only=True):
    """``reward_params``, ``critic_params`` and ``teacher_params`` count the parameters of the
    models beside the trained one where they are known. ``ref_tp``: over how many ranks the reference is split, where that
    is not as the trained model is."""

    kind: (
        Literal[
            "pretrain", "sft", "dpo", "orpo", "simpo", "kto", "cpo", "rm", "ppo", "grpo",
            "rloo", "gkd", "distill", "embedding",
        ]
        | None
    ) = None  # fmt: skip
    loss: str | None = None
    pairs_per_sample: int | None = None
    ref_model: Literal["none", "copy", "shared_adapter_off", "precomputed"] | None = None
    ref_dtype: DType | None = None
    ref_tp: int | None = None
    reward_model: str | None = None
    critic: str | None = None
    teacher: str | None = None
    reward_params: int | None = None
    critic_params: int | None = None
    teacher_params: int | None = None
    rollout: Rollout = Rollout()


MODELS_BESIDE: Mapping[str, str] = {
    "reward_params": "reward_model",
    "critic_params": "critic",
    "teacher_params": "teacher",
}
"""Leaves of :class:`Objective` that count parameters, and those that name the model."""


class Optimizer(Section, frozen=True, kw_only=True):
    """``kind`` is the family, ``name`` the framework's own spelling; ``groups``: parts of what is trained
    with settings of their own, as weights with and without decay. ``clears_late``: a step's gradients are let go when
    the next one's forward pass is through, not before it."""

    kind: (
        Literal[
            "adamw", "adamw8bit", "adamw4bit", "paged_adamw", "paged_adamw8bit", "adafactor",
            "lion", "lion8bit", "paged_lion", "paged_lion8bit", "sgd", "momentum_sgd", "rmsprop",
            "adagrad", "muon", "adam_mini", "galore", "apollo", "lomo", "adalomo", "badam", "came",
            "shampoo", "schedule_free", "dion", "ademamix", "anyprecision_adamw", "lamb", "other",
        ]
        | None
    ) = None  # fmt: skip
    name: str | None = None
    state_elems_per_param: float | None = None
    fused: bool | None = None
    foreach: bool | None = None
    in_backward: bool | None = None
    paged: bool | None = None
    rank: int | None = None
    embed_fp32_states: bool | None = None
    clip_norm: float | None = None
    groups: int | None = None
    clears_late: bool | None = None


class Zero(Section, frozen=True, kw_only=True):
    """DeepSpeed ZeRO; buckets and limits in elements. ``serial_load``: a node's ranks read a
    checkpoint one after the other. ``keeps_grads``: all gradients stay while they are copied for the optimizer."""

    stage: Literal[0, 1, 2, 3] | None = None
    hpz: int | None = None
    mics: int | None = None
    zeropp_weights: bool | None = None
    zeropp_grads: bool | None = None
    reduce_bucket_elems: int | None = None
    allgather_bucket_elems: int | None = None
    overlap_comm: bool | None = None
    prefetch_elems: int | None = None
    max_live_params: int | None = None
    max_reuse_distance: int | None = None
    persistence_threshold: int | None = None
    sub_group_elems: int | None = None
    contiguous_grads: bool | None = None
    gather16_on_save: bool | None = None
    round_robin: bool | None = None
    serial_load: bool | None = None
    keeps_grads: bool | None = None


class Fsdp(Section, frozen=True, kw_only=True):
    """``isolates_trainable``: what is trained has units of its own beside frozen weights, as
    under PEFT's wrapping policy."""

    version: Literal[1, 2] | None = None
    strategy: Literal["full", "grad_op", "hybrid", "hybrid_grad_op", "no_shard"] | None = None
    reshard_after_forward: bool | None = None
    wrap: Literal["transformer", "ends", "size", "none"] | None = None
    wrap_classes: tuple[str, ...] | None = None
    min_params: int | None = None
    backward_prefetch: Literal["pre", "post", "none"] | None = None
    forward_prefetch: bool | None = None
    limit_all_gathers: bool | None = None
    use_orig_params: bool | None = None
    cpu_offload: bool | None = None
    state_dict: Literal["full", "sharded", "local"] | None = None
    sync_module_states: bool | None = None
    activation_checkpointing: bool | None = None
    sync_every_micro: bool | None = None
    isolates_trainable: bool | None = None


class Ddp(Section, frozen=True, kw_only=True):
    bucket_mb: float | None = None
    bucket_view: bool | None = None
    static_graph: bool | None = None
    find_unused: bool | None = None


class Megatron(Section, frozen=True, kw_only=True):
    dist_optimizer: bool | None = None
    overlap_param_gather: bool | None = None
    precision_aware_optim: bool | None = None


class Parallel(Section, frozen=True, kw_only=True):
    """``world`` = nodes x gpus_per_node ranks; the degrees divide it.

    ``unapplied`` is what the files set up and the run leaves unused: a config of DeepSpeed or
    FSDP that the launcher passes over, processes that nothing joins, or DeepSpeed's own launcher
    in a run that has no DeepSpeed config. ``expert_shard`` ranks share the experts of one rank where
    expert parallelism has an axis of its own; else it takes its ranks from data parallelism.
    """

    world: int | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    dp: int | None = None
    dp_replicate: int | None = None
    dp_shard: int | None = None
    tp: int | None = None
    sp: bool | None = None
    cp: int | None = None
    ulysses: int | None = None
    pp: int | None = None
    vpp: int | None = None
    pp_schedule: str | None = None
    ep: int | None = None
    etp: int | None = None
    expert_shard: int | None = None
    backend: (
        Literal[
            "none", "ddp", "dp", "fsdp1", "fsdp2", "zero", "megatron", "device_map_pp",
            "fabric_fsdp", "mics",
        ]
        | None
    ) = None  # fmt: skip
    unapplied: Literal["zero", "fsdp", "processes", "launcher"] | None = None
    zero: Zero = Zero()
    fsdp: Fsdp = Fsdp()
    ddp: Ddp = Ddp()
    megatron: Megatron = Megatron()


class Offload(Section, frozen=True, kw_only=True):
    """``idle``: where the states of the trained model wait while an RL step generates, and ``idle_grads`` the buffers of its
    gradients. ``weight_copies``: how many copies of its share of the weights each rank keeps in RAM beside that. ``between_steps``:
    where those of its optimizer are but for the step itself, and its gradients while it only scores. ``beside``:
    where the parameters of models are kept that are only asked (reference, reward, teacher).

    ``optimizer_buffers``, ``param_buffers`` × ``param_buffer_elems``: pinned buffers of one rank
    on the way to NVMe; ``params_in_cpu_elems``: parameters that stay in RAM beside them.

    Where hooks take away all that is saved for backward: ``keeps_shared``, that what a second operation saves
    soon after the first stays on the GPU; ``takes_loss``, that what the loss saves goes too.
    """

    params: Literal["none", "cpu", "nvme"] | None = None
    optimizer: Literal["none", "cpu", "nvme"] | None = None
    optimizer_ratio: float | None = None
    grads: Literal["none", "cpu"] | None = None
    activations: Literal["none", "cpu", "disk"] | None = None
    keeps_shared: bool | None = None
    takes_loss: bool | None = None
    pin_memory: bool | None = None
    nvme_path: str | None = None
    optimizer_buffers: int | None = None
    param_buffers: int | None = None
    param_buffer_elems: int | None = None
    params_in_cpu_elems: int | None = None
    layers: Literal["none", "cpu"] | None = None
    idle: Literal["none", "cpu"] | None = None
    idle_grads: Literal["none", "cpu"] | None = None
    weight_copies: int | None = None
    between_steps: Literal["none", "cpu"] | None = None
    beside: Literal["none", "cpu"] | None = None


class Batch(Section, frozen=True, kw_only=True):
    """``global_`` (``batch.global`` outside Python) is in samples over all ranks."""

    micro: int | None = None
    grad_accum: int | None = None
    global_: int | None = None
    eval_micro: int | None = None
    auto_micro: bool | None = None
    max_tokens_per_gpu: int | None = None
    micro_unit: Literal["samples", "tokens", "completions"] | None = None

    def steps_of(self, micro: int, ranks: int | None) -> int:
        """Accumulation steps of a smaller micro batch that divides this one, with the global batch as it is. Where
        the last micro batch of a rank is a smaller one, less of them do than a product says."""
        steps = (self.grad_accum or 1) * (self.micro or micro) // micro
        if self.micro is None or self.global_ is None or not ranks or self.global_ % ranks:
            return steps
        share = self.global_ // ranks
        full = self.micro * (self.grad_accum or 1)
        return -(-share // micro) if full - self.micro < share < full else steps


class Seq(Section, frozen=True, kw_only=True):
    """``longest``: tokens of the longest sample of the data, where they are known; ``max_len`` is what a
    longer one is cut to. ``target_len``: tokens of what a decoder writes, where an encoder reads the sample."""

    max_len: int | None = None
    target_len: int | None = None
    longest: int | None = None
    packing: Literal["none", "concat", "bfd", "multipack", "neat", "varlen"] | None = None
    pad: str | None = None
    truncation: Literal["drop", "cut", "error", "split", "none"] | None = None
    unbounded: bool | None = None


class Checkpointing(Section, frozen=True, kw_only=True):
    """Activation (gradient) checkpointing. ``input_grads``: it asks gradients of what is embedded, a frozen
    tower's patches among it. ``selective_keeps``: what checkpointing of chosen operators keeps of a layer of experts
    besides attention's share: their products (``experts``), and what goes to other ranks and comes back (``sent``)."""

    mode: (
        Literal[
            "none", "full", "selective_op", "selective_layers", "every_n", "block_partial", "budget"
        ]
        | None
    ) = None
    every_n: int | None = None
    reentrant: bool | None = None
    input_grads: bool | None = None
    skips_frozen_layers: bool | None = None
    offload: Literal["none", "cpu", "disk"] | None = None
    recompute_modules: tuple[str, ...] | None = None
    selective_keeps: tuple[Literal["experts", "sent"], ...] | None = None
    source: Literal["framework", "fsdp", "deepspeed", "megatron"] | None = None


class Liger(Section, frozen=True, kw_only=True):
    rope: bool | None = None
    rms: bool | None = None
    swiglu: bool | None = None
    flce: bool | None = None


class Loss(Section, frozen=True, kw_only=True):
    """``algorithm``: how log-probabilities come from logits, where not by one log-softmax of all.
    By ``rows``: sample after sample, the logits kept, or a copy of them beside (``copied_rows``); by a ``kernel`` that keeps the logits and
    writes their gradient beside them, or over them (``in_place``; ``overwritten``: as the model
    made them, which hands them on besides); by a ``softmax`` beside fp32 logits that becomes their
    gradient, with an entropy that keeps the logits too; by a ``log_softmax`` of which a softmax is
    made; with chunks, the projection is
    made chunk by chunk too (``head_chunks``), and in backward again (``recomputed_chunks``, with an fp32
    copy of the head's weight; ``recomputed_as_given`` without one), or by
    ``tiles`` of a chunk and of some ``words`` of the vocabulary, or by a kernel over such (``kernel_tiles``, of ``tile_tokens``
    tokens); by compiled ``slices`` of logits that are all there, each of
    which hands back a gradient as large as all;
    ``dropped``: logits are computed that no loss needs. ``compiled``: model and loss are one graph of Inductor's. ``outputs_last``: outputs that are kept have their name
    until those of the next step take it. ``twice``: the model computes its own
    loss of the same logits, which nobody needs. ``entropy`` of all logits: by a compiled kernel
    that makes nothing of their size (``fused``), or from a softmax of the ``whole``."""

    logits_materialised: (
        Literal["full", "fused", "chunked", "completion_only", "loss_parallel"] | None
    ) = None
    algorithm: (
        Literal[
            "rows", "copied_rows", "kernel", "in_place", "overwritten", "softmax", "softmax_entropy", "log_softmax",
            "head_chunks", "recomputed_chunks", "recomputed_as_given", "tiles", "kernel_tiles", "slices", "dropped", "compiled",
        ]
        | None
    ) = None  # fmt: skip
    chunks: int | None = None
    words: int | None = None
    tile_tokens: int | None = None
    entropy: Literal["none", "fused", "whole"] | None = None
    upcast_fp32: bool | None = None
    label_smoothing: bool | None = None
    outputs_kept: bool | None = None
    outputs_last: bool | None = None
    twice: bool | None = None
    liger: Liger = Liger()
    cut_ce: bool | None = None
    logits_to_keep: bool | None = None


class Compile(Section, frozen=True, kw_only=True):
    """``deepcompile`` is DeepSpeed's own compiler, on top of torch's."""

    enabled: bool | None = None
    mode: str | None = None
    cudagraphs: bool | None = None
    deepcompile: bool | None = None


class Eval(Section, frozen=True, kw_only=True):
    """``samples``: of the evaluation set, all ranks together. ``fuses_loss``: whether evaluation spares
    the logits where training does. ``caches``: whether a batch's keys and values stay until its loss is computed."""

    enabled: bool | None = None
    strategy: Literal["no", "steps", "epoch"] | None = None
    every: float | None = None
    keeps_logits: bool | None = None
    accumulation_steps: int | None = None
    generate: bool | None = None
    max_new_tokens: int | None = None
    full_eval_dtype: DType | None = None
    on_start: bool | None = None
    samples: int | None = None
    fuses_loss: bool | None = None
    caches: bool | None = None


class Save(Section, frozen=True, kw_only=True):
    """``merge``: a job that adds an adapter to its base and writes the model, holding all of it
    or one file after the other; ``merge_device`` is where. ``gather_device``: where a full state dict
    of a sharded model comes together. ``rewritten``: parts that are copied for the file in another order while all that was
    gathered is still there."""

    strategy: Literal["no", "steps", "epoch", "best", "end"] | None = None
    every: float | None = None
    unit: Literal["steps", "epochs", "batches", "tokens"] | None = None
    keep: int | Literal["all"] | None = None
    contents: tuple[str, ...] | None = None
    format: Literal["safetensors", "bin", "dcp", "ds_zero", "distcp"] | None = None
    full_gather: bool | None = None
    gather_device: Literal["cpu", "gpu"] | None = None
    rewritten: tuple[Literal["q", "k", "experts"], ...] | None = None
    save_only_model: bool | None = None
    load_best_at_end: bool | None = None
    dir: str | None = None
    async_: Literal["none", "thread", "pinned"] | None = None
    dtype: DType | None = None
    merge: Literal["none", "whole", "shards"] | None = None
    merge_device: Literal["cpu", "auto"] | None = None


class Data(Section, frozen=True, kw_only=True):
    """``sets``: what is trained on, as the file names it. ``shuffle_buffer``: samples that a reader of a
    stream keeps to draw from at random."""

    sets: tuple[str, ...] | None = None
    workers: int | None = None
    prefetch: int | None = None
    pin_memory: bool | None = None
    persistent: bool | None = None
    streaming: bool | None = None
    preprocess_workers: int | None = None
    in_memory: bool | None = None
    max_samples: int | None = None
    shuffle_buffer: int | None = None


class Host(Section, frozen=True, kw_only=True):
    """``memlock``: what the limit on locked pages (``ulimit -l``) is."""

    ram_gib: float | None = None
    shm_gib: float | None = None
    disk_free_gib: float | None = None
    cpus: int | None = None
    memlock: Literal["unlimited", "limited"] | None = None


class Device(Section, frozen=True, kw_only=True):
    """``type`` as the hardware catalogue lists it; ``mem_bytes`` alone is enough."""

    type: str | None = None
    mem_bytes: int | None = None


class Env(Section, frozen=True, kw_only=True):
    """``empty_cache_steps``: the allocator's cache is emptied every so many steps. ``kernel_scratch``: CUDA's kernels make
    tensors of their own; false where no kernel runs, as on fake tensors."""

    alloc_conf: str | None = None
    expandable_segments: bool | None = None
    cuda_visible_devices: str | None = None
    empty_cache_steps: int | None = None
    launch_blocking: bool | None = None
    no_caching: bool | None = None
    kernel_scratch: bool | None = None
    distributed_debug: str | None = None
