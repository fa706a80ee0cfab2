"""The keys of prime-rl's configs that decide memory: of RL, of SFT, and of a trainer alone.

Read from PrimeIntellect-ai/prime-rl 559b4477 (2026-08-21); ``PR`` below is its package of configs,
``packages/prime-rl-configs/src/prime_rl/configs``. Spellings of older releases are aliases.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.dialects.key_releases import key_spans
from oomlint.dialects.kinds import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    DTYPE,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    BadValue,
    Kind,
    choice,
    read_boolean,
    read_integer,
)
from oomlint.dialects.table import Row, Table, known_keys
from oomlint.plan.fields import Private, f
from oomlint.plan.library_changes import LibraryChange

SOURCE = "prime-rl 559b4477"
_CONFIGS = f"{SOURCE} packages/prime-rl-configs/src/prime_rl/configs"
TRAINER = f"{_CONFIGS}/trainer.py"
RL_CONFIG = f"{_CONFIGS}/rl.py"
SFT_CONFIG = f"{_CONFIGS}/sft.py"
ORCHESTRATOR = f"{_CONFIGS}/orchestrator.py"
INFERENCE = f"{_CONFIGS}/inference.py"
SHARED = f"{_CONFIGS}/shared.py"

# 0.6.0 is of 2026-06-22, 0.7.0 of 2026-07-13, 0.8.0 of 2026-08-06.
_THRIFT = "prime-rl c5afcaa2 (2026-06-26) configs/trainer.py"


def _thrift(before: str, was: Any) -> LibraryChange:
    return LibraryChange("prime-rl", (0, 7), before, _THRIFT, was)


RECOMPUTES = _thrift("no activations are recomputed unless a key asks for it", "None")
OFFLOADS_INPUTS = _thrift("what recomputation starts from stays on the GPU", "None")
VISITING_STATES = _thrift("the optimizer's states stay on the GPU between steps", False)
COMPILES = _thrift("nothing is compiled unless a key asks for it", "None")
EXPANDS = LibraryChange(
    "prime-rl", (0, 5), "sft leaves torch's allocator as it is", "prime-rl v0.4.0 pyproject.toml, v0.5.0 entrypoints/sft.py", False,
)  # fmt: skip
SPREADS_EXPERTS = _thrift("experts are spread over ranks only where a key asks for it", 1)
_LARGER_CHUNKS = LibraryChange(
    "prime-rl", (0, 8, 1), "the head's loss takes 1024 tokens at a time",
    "prime-rl 2acb19ec (2026-08-19) configs/trainer.py", 1024,
)  # fmt: skip
_WHOLE_LOGITS = "the loss is computed from all logits at once"
_CHUNKS = (_LARGER_CHUNKS, _thrift(_WHOLE_LOGITS, 0))
_CHUNKS_OF_SFT = (
    _LARGER_CHUNKS,
    LibraryChange("prime-rl", (0, 8), _WHOLE_LOGITS, "prime-rl e0d60e4d (2026-07-16) trainer/sft/train.py", 0),
)  # fmt: skip

_WORDS = (
    LibraryChange(
        "prime-rl", (0, 5), "the head's loss takes 2048 words of the vocabulary at a time, of all tokens",
        "prime-rl 1fa70e83 (2026-01-09) trainer/rl/config.py auto_setup_fused_lm_head_chunk_size", 2048,
    ),
    LibraryChange("prime-rl", (0, 3), _WHOLE_LOGITS, "prime-rl 5ad6f62f (2026-01-05) models/layers/lm_head.py", 0),
)  # fmt: skip


class own(Private, prefix="prime_rl"):  # noqa: N801  a namespace of fields, read like ``f``
    """``kind``: which program reads the file. Sections that are on as soon as they are there (``ac``,
    ``ac_offload``, ``full_offload``, ``compile``, ``lora``, ``ckpt``, ``broadcast``) are kept whole, or ``"None"``.
    ``rows``: packed rows of an SFT step over all ranks; ``answers``: of an RL step, and ``answer_rows`` as many
    lengths as a row of RL once held. ``trainer_len`` and
    ``answer_len`` are the lengths of the two parts of RL, ``shared_len`` of both. ``chunk``: tokens of which the head
    makes logits at a time; ``words``: words of the vocabulary, before 0.5."""

    kind: str
    deployment: str
    train_gpus: int
    gpu_ids: tuple[str, ...]
    train_nodes: int
    node_gpus: int
    island: int
    shared_len: int
    trainer_len: int
    answer_len: int
    answers: int
    answer_rows: int
    answer_tokens: int
    rows: int
    broadcast: str
    attention: str
    implementation: str
    compile: Any
    ac: Any
    ac_mode: str
    ac_every: int
    ac_targets: tuple[str, ...]
    ac_offload: Any
    fsdp_offload: bool
    optim_offload: bool
    full_offload: Any
    experts: int
    exchange: str
    dtype: str
    quantization: str
    early_fp8: bool
    lora: Any
    targets: tuple[str, ...]
    saved_modules: tuple[str, ...]
    chunk: int
    words: int
    layers: int
    random_init: bool
    ckpt: Any
    interval: int
    keep: int
    val: Any
    val_every: int
    resume: Any


def _read_chunk(raw: Any) -> int:
    """Tokens; ``disabled`` is 0 here."""
    if raw == "disabled":
        return 0
    number = read_integer(raw)
    if number < 1:
        raise BadValue("expected a whole number, at least 1, or disabled")
    return number


def _read_words(raw: Any) -> int:
    """``auto`` is 2048, ``disabled`` (and in 0.3 no value) none."""
    if raw in ("disabled", "None"):
        return 0
    return 2048 if raw == "auto" else read_integer(raw)


_WORD_COUNT = Kind(_read_words, lambda words: words or "disabled", {"type": ["integer", "string"]})
_CHUNK = Kind(_read_chunk, lambda tokens: tokens or "disabled", {"type": ["integer", "string"]})
_ATTENTION = choice(
    {
        "flash_attention_2": "flash2", "flash_attention_3": "flash3", "flash_attention_4": "flash3",
        "fa4": "flash3", "auto": "flash2", "sdpa": "sdpa", "eager": "eager",
    },
    otherwise=None,
)  # fmt: skip
_OPTIMIZER = choice(
    {"adamw": "adamw", "muon": "muon", "sgd": "momentum_sgd", "sign_sgd": "sgd"}, fold_case=False
)
_MODE = choice({"full": "full", "selective": "selective"})


def _read_switch(raw: Any) -> Any:
    """``true`` is an empty section, ``false`` none."""
    if isinstance(raw, dict) or raw == "None":
        return raw
    return {} if read_boolean(raw) else "None"


_SECTION_OR_SWITCH = Kind(
    _read_switch, lambda value: value != "None", {"type": ["object", "boolean", "string"]}
)


def _read_norm(raw: Any) -> float:
    return 0.0 if raw == "None" else float(raw)


_NORM = Kind(_read_norm, schema={"type": ["number", "string"]})


def _read_maybe_count(raw: Any) -> int | None:
    return None if raw == "None" else read_integer(raw)


_MAYBE_COUNT = Kind(_read_maybe_count, schema={"type": ["integer", "string"]})


def _of_trainer(p: str, chunks: tuple[LibraryChange, ...]) -> tuple[Row, ...]:
    """What every trainer says, below ``p``."""
    m = f"{p}model."
    lora = (f"{m}lora.", f"{m}experimental.lora.")
    return (
        Row(f"{m}attn", own.attention, _ATTENTION, "flash2", source=f"{TRAINER}:185"),
        Row(f"{m}impl", own.implementation, TEXT, "auto", source=f"{TRAINER}:230"),
        Row(f"{m}compile", own.compile, ANYTHING, {}, source=f"{TRAINER}:188", changes=(COMPILES,)),
        Row(f"{m}ac", own.ac, ANYTHING, {}, source=f"{TRAINER}:191", changes=(RECOMPUTES,)),
        Row(f"{m}ac.mode", own.ac_mode, _MODE, "full", source=f"{TRAINER}:40"),
        Row(f"{m}ac.freq", own.ac_every, POSITIVE, 1, source=f"{TRAINER}:43"),
        Row(f"{m}ac.targets", own.ac_targets, LIST, ("norm",), source=f"{TRAINER}:46"),
        Row(f"{m}ac_offloading", own.ac_offload, ANYTHING, {}, (f"{p}ac_offloading",), f"{TRAINER}:194", changes=(OFFLOADS_INPUTS,)),
        Row(f"{m}fsdp_cpu_offload", own.fsdp_offload, BOOLEAN, False, source=f"{TRAINER}:197"),
        Row(f"{m}optim_cpu_offload", own.optim_offload, BOOLEAN, True, source=f"{TRAINER}:200", changes=(VISITING_STATES,)),
        Row(f"{m}full_offload", own.full_offload, _SECTION_OR_SWITCH, "None", source=f"{TRAINER}:203"),
        Row(f"{m}reshard_after_forward", f.parallel.fsdp.reshard_after_forward, BOOLEAN, True, source=f"{TRAINER}:206"),
        Row(f"{m}dp_replicate", f.parallel.dp_replicate, POSITIVE, 1, source=f"{TRAINER}:209"),
        Row(f"{m}ep", own.experts, POSITIVE.or_auto()),
        Row(f"{m}ep_comm_backend", own.exchange, TEXT, "torch", source=f"{TRAINER}:215"),
        Row(f"{m}cp", f.parallel.cp, POSITIVE, 1, source=f"{TRAINER}:224"),
        Row(f"{m}tp", f.parallel.tp, POSITIVE),
        Row(f"{m}optimization_dtype", own.dtype, DTYPE, "fp32", source=f"{TRAINER}:233"),
        Row(f"{m}reduce_dtype", f.precision.comm, DTYPE, "fp32", source=f"{TRAINER}:236"),
        Row(f"{m}quantization.type", own.quantization, TEXT),
        Row(f"{m}fp8", own.early_fp8, BOOLEAN),
        Row(f"{m}lora", own.lora, ANYTHING, "None", (f"{m}experimental.lora",), f"{TRAINER}:256"),
        *(
            Row(f"{lora[0]}{key}", field, kind, default, (f"{lora[1]}{key}",), f"{TRAINER}:{line}")
            for key, field, kind, default, line in (
                ("rank", f.trainable.r, POSITIVE, 16, 105),
                ("alpha", f.trainable.alpha, NUMBER, 32.0, 108),
                ("dropout", f.trainable.dropout, NUMBER, 0.0, 111),
                ("target_modules", own.targets, LIST, None, 114),
                ("modules_to_save", own.saved_modules, LIST, (), 128),
            )
        ),
        Row(f"{m}fused_lm_head_token_chunk_size", own.chunk, _CHUNK, 8192, source=f"{TRAINER}:262", changes=chunks),
        Row(f"{m}debug.num_layers", own.layers, _MAYBE_COUNT),
        Row(f"{m}debug.random_init", own.random_init, BOOLEAN, False, source=f"{TRAINER}: DebugModelConfig"),
        Row(f"{m}moe_use_grouped_mm", f.model.experts_impl, choice({True: "grouped", False: "loop"}), "grouped", source=f"{TRAINER}:242"),
        Row(f"{p}optim.type", f.optimizer.kind, _OPTIMIZER, "adamw", source=f"{TRAINER}:421-459"),
        Row(f"{p}optim.max_norm", f.optimizer.clip_norm, _NORM, 1.0, source=f"{TRAINER}:418"),
    )  # fmt: skip


def _words_of(p: str) -> Row:
    """How RL computed its loss before 0.5; SFT refused the key."""
    key = f"{p}model.fused_lm_head_chunk_size"
    return Row(key, own.words, _WORD_COUNT, 0, source=f"{TRAINER}: the key is gone", changes=_WORDS)


def _of_file(kind: str, p: str) -> tuple[Row, ...]:
    """What stands at the top of a file, or below ``p`` for the trainer alone."""
    more = (lambda key: (p + key,)) if p else (lambda key: ())
    return (
        Row("kind", own.kind, Kind(lambda raw: kind, schema={}), kind, source=SOURCE),
        Row("model.name", f.model.id, TEXT, "Qwen/Qwen3-0.6B", (*more("model.name"), "model_name"), f"{SHARED}: BaseModelConfig"),
        Row("model.vlm.freeze_vision_encoder", f.model.vision.freeze_tower, BOOLEAN, True, more("model.vlm.freeze_vision_encoder"), f"{SHARED}: VLMConfig"),
        Row("max_steps", f.total_steps, _MAYBE_COUNT, aliases=more("max_steps")),
        Row("ckpt", own.ckpt, ANYTHING, "None", more("ckpt"), f"{TRAINER}: TrainerConfig"),
        Row("ckpt.interval", own.interval, _MAYBE_COUNT, aliases=more("ckpt.interval")),
        Row("ckpt.keep_last", own.keep, _MAYBE_COUNT, aliases=("ckpt.keep", *more("ckpt.keep_last"), *more("ckpt.keep"))),
        Row("resume", own.resume, ANYTHING, aliases=("ckpt.resume_step", *more("resume"), *more("ckpt.resume_step"))),
        Row("output_dir", f.save.dir, TEXT, "outputs", ("outputs_dir",), f"{TRAINER}: TrainerConfig"),
    )  # fmt: skip


def _of_deployment(nodes: int | None) -> tuple[Row, ...]:
    d = "deployment."
    return (
        Row(f"{d}type", own.deployment, choice({"single_node": "single_node", "multi_node": "multi_node"}), "single_node", source=f"{RL_CONFIG}:160"),
        Row(f"{d}num_train_gpus", own.train_gpus, POSITIVE, 1, (f"{d}num_gpus",), f"{RL_CONFIG}: SingleNodeDeploymentConfig"),
        Row(f"{d}gpus_per_node", own.node_gpus, POSITIVE, 8, source=f"{RL_CONFIG}: BaseDeploymentConfig"),
        Row(f"{d}num_train_nodes", own.train_nodes, POSITIVE, nodes, (f"{d}num_nodes",), f"{SFT_CONFIG}: MultiNodeDeploymentConfig"),
        Row(f"{d}nodes_per_fsdp_group", own.island, POSITIVE),
    )  # fmt: skip


_O = "orchestrator."
_V = "inference.vllm."
_R = f.objective.rollout
_OF_RL = (
    Row("trainer_gpu_ids", own.gpu_ids, LIST),
    Row("seq_len", own.shared_len, POSITIVE, aliases=("max_model_len",)),
    Row("trainer.model.seq_len", own.trainer_len, POSITIVE),
    Row(f"{_O}seq_len", own.answer_len, POSITIVE),
    Row(f"{_O}batch_size", own.answers, _MAYBE_COUNT),
    Row(f"{_O}micro_batch_size", own.answer_rows, POSITIVE),
    Row(f"{_O}token_batch_size", own.answer_tokens, _MAYBE_COUNT),
    Row(f"{_O}group_size", _R.n, POSITIVE, 1, (f"{_O}rollouts_per_example", f"{_O}rollouts_per_prompt"), f"{ORCHESTRATOR}: OrchestratorConfig"),
    Row(f"{_O}train.sampling.max_completion_tokens", _R.max_completion_tokens, _MAYBE_COUNT, aliases=(f"{_O}sampling.max_tokens", f"{_O}train.sampling.max_tokens")),
    Row(f"{_V}gpu_memory_utilization", _R.gpu_mem_util, NUMBER, 0.9, ("inference.gpu_memory_utilization",), f"{INFERENCE}:102"),
    Row(f"{_V}tensor_parallel_size", _R.tp, POSITIVE, 1, ("inference.parallel.tp",), f"{INFERENCE}:87"),
    Row(f"{_V}max_model_len", _R.max_model_len, _MAYBE_COUNT, aliases=("inference.model.max_model_len",)),
    Row("weight_broadcast.type", own.broadcast, TEXT, aliases=("trainer.weight_broadcast.type",)),
)  # fmt: skip

_OF_SFT = (
    Row("data.batch_size", own.rows, POSITIVE, 128, source=f"{SFT_CONFIG}:41"),
    Row("data.seq_len", f.seq.max_len, POSITIVE, 128, source=f"{SFT_CONFIG}:44"),
    Row("data.micro_batch_size", f.batch.micro, POSITIVE, 1, source=f"{SFT_CONFIG}:47"),
    Row("data.num_workers", f.data.workers, COUNT, 1, source=f"{SFT_CONFIG}:50"),
    Row("val", own.val, ANYTHING),
    Row("val.interval", own.val_every, POSITIVE, 50, source=f"{SFT_CONFIG}: SFTValConfig"),
    Row(
        "val.data.micro_batch_size",
        f.batch.eval_micro,
        POSITIVE,
        1,
        source=f"{SFT_CONFIG}: SFTValConfig",
    ),
)

_TRAINER_KEYS = known_keys("prime_rl_trainer")
# Of environments, engines, monitors and schedulers anything may be said.
_OPEN = (
    "env_vars", "monitors.", "monitor.", "wandb.", "prime_monitor.", "slurm.", "log.", "file_monitor.",
    "heartbeat.", "metrics_server.", "experimental.", "rollout_transport.", "loss.kwargs",
)  # fmt: skip


def _table(
    name: str, rows: tuple[Row, ...], known: frozenset[str], free: tuple[str, ...], spans: str = ""
) -> Table:
    return Table(
        name=name, rows=rows, known=known | {each.rstrip(".") for each in free}, known_prefixes=free,
        # utils/config.py BaseConfig: extra="forbid".
        ignores_unknown=False, loader="yaml12", section="training",
        spans=key_spans("prime-rl", spans) if spans else None,
    )  # fmt: skip


_PARTS = (
    "train", "eval", "algo", "renderer", "env", "environment", "sampling", "advantage", "buffer", "model", "client", "val",
    "filters", "pre_batch_filters", "post_batch_filters", "student", "teacher", "teacher_model", "teacher_rollout_model",
    "concurrency", "tokenizer", "ckpt", "resume", "weight_broadcast", "verification", "length_bonus", "optim", "env_mix",
    *(part.rstrip(".") for part in _OPEN if part.endswith(".")), "env_vars",
)  # fmt: skip

RL = _table(
    "prime-rl RL config",
    (*_of_file("rl", "trainer."), *_of_trainer("trainer.", _CHUNKS), _words_of("trainer."), *_of_deployment(None), *_OF_RL),
    known_keys("prime_rl") | {f"trainer.{key}" for key in _TRAINER_KEYS},
    (
        *_OPEN, *(f"trainer.{part}" for part in _OPEN), *(f"{_O}{part}." for part in _PARTS), "trainer.model.experimental.",
        "inference", "teacher_inference", "renderer.",
    ),
    "prime_rl",
)  # fmt: skip
SFT = _table(
    "prime-rl SFT config",
    (*_of_file("sft", ""), *_of_trainer("", _CHUNKS_OF_SFT), *_of_deployment(2), *_OF_SFT),
    known_keys("prime_rl_sft") | _TRAINER_KEYS,
    (*_OPEN, "model.experimental.", "inference.", "eval.", "renderer.", "val.data."),
    "prime_rl_sft",
)
ALONE = _table(
    "prime-rl trainer config",
    (
        *_of_file("trainer", ""),
        *_of_trainer("", _CHUNKS),
        _words_of(""),
        Row("model.seq_len", own.trainer_len, POSITIVE, 2048, source=f"{TRAINER}:182"),
        Row("weight_broadcast.type", own.broadcast, TEXT),
    ),
    _TRAINER_KEYS,
    (*_OPEN, "model.experimental."),
    "prime_rl_trainer",
)
TABLES = {"rl": RL, "sft": SFT, "trainer": ALONE}


def _section(name: str) -> Table:
    """The keys of RL below a section, as a file of it alone has them."""
    above = f"{name}."
    rows = []
    for row in RL.rows:
        keys = (key for key in (row.key, *row.aliases) if key.startswith(above))
        bare = [key.removeprefix(above) for key in keys]
        if bare:
            rows.append(replace(row, key=bare[0], aliases=tuple(bare[1:])))
    known = frozenset(key.removeprefix(above) for key in RL.known if key.startswith(above))
    free = [each.removeprefix(above) for each in RL.known_prefixes if each.startswith(above)]
    is_free = name in RL.known_prefixes
    return _table(f"prime-rl {name} config", tuple(rows), known, ("",) if is_free else tuple(free))


SECTIONS = {name: _section(name) for name in ("trainer", "orchestrator", "inference")}


def _whole() -> Table:
    """What editors are told: the keys of all three programs."""
    rows = {row.key: row for table in TABLES.values() for row in table.rows if row.key != "kind"}
    known = frozenset().union(*(table.known for table in TABLES.values()))
    free = dict.fromkeys(each for table in TABLES.values() for each in table.known_prefixes)
    return _table("prime-rl config", tuple(rows.values()), known - frozenset(rows), tuple(free))


PRIME_RL = _whole()
