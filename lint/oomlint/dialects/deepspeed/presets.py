"""DeepSpeed configs that frameworks ship, by the names that runs give them.

Nobody should change such a file in place, since other runs name it too; and where it is not at
hand, its values are these. Sources: axolotl 067b021c deepspeed_configs/*.json, LLaMA-Factory
ff6d4d12 examples/deepspeed/*.json, ms-swift 3602360a swift/config/*.json, xtuner v0.1.21
xtuner/configs/deepspeed/*.json; whole files, so that
a copy says all that the original says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping as MappingABC
from functools import cache
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import decode

from oomlint.plan.fields import f

_FILE_NAME = r"(?:^|/)(?P<name>(?:ds_z|ds_config_zero|zero)[^/]*)\.json$"

# Where the files lie in their frameworks' checkouts; a project's own ``configs/zero3.json`` says what
# the project wrote into it.
AXOLOTL_HOME = "deepspeed_configs"
LLAMA_FACTORY_HOME = "examples/deepspeed"


class Family(Struct, frozen=True):
    """The configs of one framework: where they lie in its checkout, empty of those that lie nowhere, and which packed
    weights its runs are known to hand to stage 3."""

    configs: Callable[[], MappingABC[str, Any]]
    home: str = ""
    partitioned: tuple[str, ...] = ("none",)
    indent: int = 2


# Where Axolotl's lay until e923e62d (2024-01-25): a name that any project may give a folder of its own, so that it is
# Axolotl's in Axolotl's configs alone.
_FORMER_AXOLOTL_HOME = r"(?:\./)?deepspeed/(?P<name>zero[1-3])\.json"
_HOME = rf"(?:^|/)(?:{AXOLOTL_HOME}/zero|{LLAMA_FACTORY_HOME}/ds_z)[^/]*\.json$"

# ms-swift 3602360a config/*.json and llm/ds_config/*.json of the tags v2.0.3 to v2.6.1 (whose zero3_offload.json leaves
# the optimizer on the GPU), by the words that its option takes for them: stage, device of the optimizer, device of
# the parameters.
SWIFT_PRESETS: MappingABC[str, tuple[int, str, str]] = {
    "zero0": (0, "none", "none"),
    "zero1": (1, "none", "none"),
    "zero2": (2, "none", "none"),
    "zero3": (3, "none", "none"),
    "zero2_offload": (2, "cpu", "none"),
    "zero3_offload": (3, "cpu", "cpu"),
    "default-zero2": (2, "none", "none"),
    "default-zero3": (3, "none", "none"),
    "zero2-offload": (2, "cpu", "none"),
    "zero3-offload": (3, "none", "cpu"),
}

# What a fix may ask of another preset; buckets and the like are each preset's own tuning.
_ASKED_OF_A_PRESET = (
    f.parallel.zero.stage,
    f.parallel.zero.gather16_on_save,
    f.offload.optimizer,
    f.offload.params,
)

# Sections that only configs for something special have.
_WITHOUT_MORE: MappingABC[str, Any] = dict.fromkeys(("compile", "tensor_parallel", "comms_config"))


def shipped_preset(path: str) -> str | None:
    """The text of the config that a framework ships under a name."""
    config = _preset(path)
    return None if config is None else _in_json(config)


def text_of(family: Family, name: str) -> str:
    """The text of one of a family's configs, by its file's name."""
    return _in_json(family.configs()[name.removesuffix(".json")], family.indent)


def _in_json(config: MappingABC[str, Any], indent: int = 2) -> str:
    """Large sizes as their authors write them: ``5e8``."""
    import json

    text = json.dumps(config, indent=indent) + "\n"
    return re.sub(r"(?<=: )(\d)(0{6,})\.0\b", lambda m: f"{m[1]}e{len(m[2])}", text)


def is_at_home(path: str) -> bool:
    """Whether a file that is not here is one that a framework brings along: by a name without ending
    that only the framework knows, or by the folder of its checkout."""
    return path in SWIFT_PRESETS or path in _of_xtuner() or re.search(_HOME, path) is not None


def former_preset(path: str, framework: str) -> str | None:
    """The text of the config that a framework shipped under a name in a folder that it has moved since."""
    match = re.fullmatch(_FORMER_AXOLOTL_HOME, path) if framework == "axolotl" else None
    if match is None:
        return None
    _, _, with_optimizer, *_ = _of_earlier_axolotl()[match["name"]]
    return _in_json(with_optimizer)


def is_shipped(path: str, text: str) -> bool:
    """Whether a file is one of those that a framework ships, unchanged."""
    match = re.search(_FILE_NAME, path)
    if match is None:
        return False
    try:
        found = decode(text)
    except (DecodeError, RecursionError):
        return False
    return found in _files_called(match["name"])


def names_at(home: str) -> frozenset[str]:
    """The files that a framework keeps in its folder ``home``."""
    family = {AXOLOTL_HOME: _of_axolotl, LLAMA_FACTORY_HOME: _of_llamafactory}[home]()
    return frozenset(f"{name}.json" for name in family)


def is_whole(path: str) -> bool:
    """Whether all that the shipped file says is known, so that it can be copied; the configs of
    ms-swift 2.x are known only in what decides memory."""
    return _preset(path) is not None and "-" not in path.rpartition("/")[2]


def neighbour(path: str, wishes: MappingABC[Any, Any], dtype: str | None = None) -> str | None:
    """The shipped config beside the one at ``path`` that differs from it in just ``wishes`` (and
    in its own tuning of buckets), as a run would name it that computes in ``dtype``; ``None`` where there is none.

    Of one that offloads, what is offloaded may be another thing where no other config has the stage: Axolotl's
    ``zero2.json`` keeps the optimizer in host RAM, its ``zero3.json`` nothing.
    """
    config = _preset(path)
    if config is None or not wishes or not wishes.keys() <= set(_ASKED_OF_A_PRESET):
        return None
    folder, slash, file = path.rpartition("/")
    name, dot, suffix = file.partition(".")
    family = next(configs for configs in _families() if name in configs)
    found = _fitting(family, _sense(config, dtype), wishes, dtype, name)
    return None if found is None else f"{folder}{slash}{found}{dot}{suffix}"


def preset_for(
    folder: str, others: Iterable[str], wishes: MappingABC[Any, Any], dtype: str | None
) -> str | None:
    """The shipped config that does just ``wishes``, among those of a ``folder`` in which ``others`` of them lie, for
    a run that has named none yet."""
    there = sorted(other.removesuffix(".json") for other in others)
    family = next((each for each in _families() if any(name in each for name in there)), {})
    found = _for_none({name: family[name] for name in there if name in family}, wishes, dtype)
    return None if found is None else f"{folder}/{found}.json"


def preset_of(family: Family, wishes: MappingABC[Any, Any], dtype: str | None) -> str | None:
    """The file name of the config of a family that does just ``wishes``, for a run that has named none yet."""
    found = _for_none(family.configs(), wishes, dtype)
    return None if found is None else f"{found}.json"


def _for_none(
    configs: MappingABC[str, Any], wishes: MappingABC[Any, Any], dtype: str | None
) -> str | None:
    """The name of the config that does just ``wishes`` and nothing else."""
    if not wishes.get(f.parallel.zero.stage) or not wishes.keys() <= set(_ASKED_OF_A_PRESET):
        return None
    plain: dict[Any, Any] = {f.offload.optimizer: "none", f.offload.params: "none"}
    plain |= {**_WITHOUT_MORE, "bf16": dtype == "bf16"}
    return _exact(configs, {**plain, f.parallel.zero.gather16_on_save: True, **wishes}, dtype)


def _families() -> tuple[MappingABC[str, Any], ...]:
    return _of_axolotl(), _of_llamafactory(), _of_swifts(), _of_xtuner()


def _fitting(
    family: MappingABC[str, Any],
    sense: MappingABC[Any, Any],
    wishes: MappingABC[Any, Any],
    dtype: str | None,
    name: str,
) -> str | None:
    """The name of the config of a family that has a sense but for ``wishes``, else, of those with the stage that is
    wished for, of the one that offloads most alike; the one called as ``name`` first."""
    exact = _exact(family, {**sense, **wishes}, dtype)
    stage = wishes.get(f.parallel.zero.stage)
    both = (f.offload.optimizer, f.offload.params)
    if exact is not None or stage is None or all(sense[device] == "none" for device in both):
        return exact
    devices = [device for device in both if device not in wishes]
    called = re.sub(r"(?<=zero|ds_z)[0-3]", str(stage), name)
    near: list[tuple[int, bool, str]] = []
    for other, found in family.items():
        theirs = _sense(found, dtype)
        alike = {device: theirs[device] for device in devices}
        if _exact({other: found}, {**sense, **alike, **wishes}, dtype) is not None:
            moved = sum(theirs[device] != sense[device] for device in devices)
            near.append((moved, other != called, other))
    return min(near)[-1] if near else None


def _exact(
    family: MappingABC[str, Any], wanted: MappingABC[Any, Any], dtype: str | None
) -> str | None:
    """The name of the first config that has just the sense that is wanted."""
    if wanted[f.parallel.zero.stage] < 3:
        wanted = {**wanted, f.parallel.zero.gather16_on_save: None}
    fitting = (other for other, found in family.items() if _sense(found, dtype) == wanted)
    return next(fitting, None)


def _sense(config: MappingABC[str, Any], dtype: str | None) -> dict[Any, Any]:
    """What a preset is chosen for; "auto" is what the Trainer's arguments say of bf16."""
    bf16 = (config.get("bf16") or {}).get("enabled", False)
    if bf16 == "auto" and dtype is not None:
        bf16 = dtype == "bf16"
    zero = config["zero_optimization"]
    gathers = (
        zero.get("stage3_gather_16bit_weights_on_model_save")
        or zero.get("gather_16bit_weights_on_model_save")
        or False
    )
    return {
        f.parallel.zero.stage: zero["stage"],
        f.parallel.zero.gather16_on_save: gathers if zero["stage"] == 3 else None,
        f.offload.optimizer: zero.get("offload_optimizer", {}).get("device", "none"),
        f.offload.params: zero.get("offload_param", {}).get("device", "none"),
        **{key: config.get(key) for key in _WITHOUT_MORE},
        "bf16": bf16,
    }


def _files_called(name: str) -> Iterable[MappingABC[str, Any]]:
    if name in _by_file():
        yield _by_file()[name]
    yield from _of_earlier_axolotl().get(name, ())
    if name in SWIFT_PRESETS:
        yield _of_swift(name)


def _preset(path: str) -> MappingABC[str, Any] | None:
    if path in SWIFT_PRESETS:
        return _of_swift(path)
    found: MappingABC[str, Any] | None = _of_xtuner().get(path)
    if found is not None:
        return found
    match = re.search(_FILE_NAME, path)
    if match is None:
        return None
    return _by_file().get(match["name"]) or _of_trainer().get(match["name"])


_AUTO_BATCH: MappingABC[str, Any] = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
}
_AUTO_BF16: MappingABC[str, Any] = {"enabled": "auto"}
_PINNED: MappingABC[str, Any] = {"device": "cpu", "pin_memory": True}
_AUTO_SIZES: MappingABC[str, Any] = {
    "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto",
}
# DeepSpeed's names without "stage3_" are old spellings of the same options.
_LEAN_STAGE_3: MappingABC[str, Any] = {
    "stage": 3,
    "overlap_comm": True,
    "contiguous_gradients": True,
    "sub_group_size": 0,
    **_AUTO_SIZES,
    "max_live_parameters": 0,
    "max_reuse_distance": 0,
    "gather_16bit_weights_on_model_save": True,
}
_SHORT_NAMES = frozenset(
    {"max_live_parameters", "max_reuse_distance", "gather_16bit_weights_on_model_save"}
)
_ROOMY_STAGE_3: MappingABC[str, Any] = {
    "stage": 3,
    "overlap_comm": False,
    "contiguous_gradients": True,
    "sub_group_size": 1e9,
    **_AUTO_SIZES,
    "stage3_max_live_parameters": 1e9,
    "stage3_max_reuse_distance": 1e9,
    "stage3_gather_16bit_weights_on_model_save": True,
}


def _loss_scaling(power: int, **more: Any) -> dict[str, Any]:
    return {
        "enabled": "auto",
        **more,
        "loss_scale": 0,
        "loss_scale_window": 1000,
        "initial_scale_power": power,
        "hysteresis": 2,
        "min_loss_scale": 1,
    }


def _of_swift(name: str) -> MappingABC[str, Any]:
    stage, optimizer, params = SWIFT_PRESETS[name]
    # Names with a dash are those of 2.x, whose files overlapped communication.
    is_old = "-" in name
    devices = {"offload_optimizer": {"device": optimizer, "pin_memory": True}}
    if stage == 3:
        devices["offload_param"] = {"device": params, "pin_memory": True}
        zero = {**_ROOMY_STAGE_3, **devices, "overlap_comm": is_old}
        if name == "zero3":
            zero |= {"zero_quantized_weights": False, "zero_quantized_gradients": False}
    else:
        zero = {
            "stage": stage,
            **(devices if stage else {}),
            **_bucketed(2e8),
            "overlap_comm": is_old,
        }
    return {
        "fp16": _loss_scaling(16),
        "bf16": _AUTO_BF16,
        "zero_optimization": zero,
        **_AUTO_BATCH,
        "steps_per_print": 2000,
        "wall_clock_breakdown": False,
    }


def _of_swifts() -> dict[str, Any]:
    return {name: _of_swift(name) for name in SWIFT_PRESETS if "-" not in name}


def _bucketed(elements: float) -> dict[str, Any]:
    return {
        "allgather_partitions": True,
        "allgather_bucket_size": elements,
        "overlap_comm": False,
        "reduce_scatter": True,
        "reduce_bucket_size": elements,
        "contiguous_gradients": True,
    }


@cache
def _by_file() -> MappingABC[str, Any]:
    return {**_of_axolotl(), **_of_llamafactory()}


def _of_xtuner() -> dict[str, Any]:
    """Names that ``xtuner train --deepspeed`` takes for its own files."""
    gathers = {"stage3_gather_16bit_weights_on_model_save": True}
    offloaded = {"offload_optimizer": _PINNED}
    stages: dict[str, dict[str, Any]] = {
        "zero1": {"stage": 1},
        "zero2": {"stage": 2},
        "zero2_offload": {"stage": 2, **offloaded},
        "zero3": {"stage": 3, **gathers},
        "zero3_offload": {"stage": 3, **offloaded, "offload_param": _PINNED, **gathers},
    }
    head = {key: value for key, value in _AUTO_BATCH.items() if key != "train_batch_size"}
    stock = {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    half = {"fp16": {"enabled": "auto", "initial_scale_power": 16}, "bf16": _AUTO_BF16}
    return {
        f"deepspeed_{name}": {
            **head,
            **stock,
            "zero_optimization": {**zero, "overlap_comm": True},
            **half,
        }
        for name, zero in stages.items()
    }


def _of_axolotl() -> dict[str, Any]:
    scaled = {"bf16": _AUTO_BF16, "fp16": _loss_scaling(32, auto_cast=False)}
    tail = {**_AUTO_BATCH, "wall_clock_breakdown": False}
    half = {"bf16": {"enabled": True}}
    stock = {"zero_force_ds_cpu_optimizer": False, "zero_allow_untested_optimizer": True}
    compiled = {"compile": {"disable": False, "backend": "inductor"}}
    one = {"zero_optimization": {"stage": 1, "overlap_comm": True}, **scaled, **tail}
    two = {
        "zero_optimization": {
            "stage": 2,
            "offload_optimizer": {"device": "cpu"},
            "contiguous_gradients": True,
            "overlap_comm": True,
        },
        **scaled,
        **tail,
    }
    params = {**_LEAN_STAGE_3, "offload_param": _PINNED}
    both = {**params, "offload_optimizer": _PINNED}
    return {
        "zero1": one,
        "zero1_torch_compile": {**one, **compiled},
        "zero2": two,
        "zero2_torch_compile": {**two, **compiled},
        "zero3": {"zero_optimization": _LEAN_STAGE_3, **scaled, **tail},
        "zero3_bf16": {"zero_optimization": _LEAN_STAGE_3, **half, **tail},
        "zero3_bf16_cpuoffload_all": {**stock, "zero_optimization": both, **half, **tail},
        "zero3_bf16_cpuoffload_params": {**stock, "zero_optimization": params, **half, **tail},
    }


@cache
def _of_earlier_axolotl() -> MappingABC[str, tuple[Any, ...]]:
    """What Axolotl's files said before, by name; forks and projects keep them as they took them.

    With a scheduler from c25ba793 (2023-09-22) to 476a205c (2023-12-04), with an optimizer to e923e62d (2024-01-25),
    which moved them from ``deepspeed`` to ``deepspeed_configs``; gradients were not clipped until b0ee9ec7
    (2024-03-11), and stage 3 was spelt in full until 631268a0 (2025-07-22).
    """
    in_full = {f"stage3_{key}": _LEAN_STAGE_3[key] for key in _SHORT_NAMES}
    auto = dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")
    optimizer = {"optimizer": {"type": "AdamW", "params": auto}}
    warmup = dict.fromkeys(("warmup_min_lr", "warmup_max_lr", "warmup_num_steps"), "auto")
    params = {**warmup, "warmup_type": "linear", "total_num_steps": "auto"}
    scheduler = {"scheduler": {"type": "WarmupDecayLR", "params": params}}
    found: dict[str, tuple[Any, ...]] = {}
    for name, today in _of_axolotl().items():
        zero = today["zero_optimization"]
        if zero["stage"] == 3:
            zero = {key: value for key, value in zero.items() if key not in _SHORT_NAMES} | in_full
        spelt = {**today, "zero_optimization": zero}
        unclipped = {key: value for key, value in spelt.items() if key != "gradient_clipping"}
        with_optimizer = {**unclipped, **optimizer}
        found[name] = (spelt, unclipped, with_optimizer, {**with_optimizer, **scheduler})
    # The 16 bits of these stood beside a loss scale until d3c45d27 (2024-10-28).
    scale = {"fp16": _loss_scaling(32, auto_cast=False)}
    for name in (name for name in found if name.startswith("zero3_bf16")):
        found[name] += tuple({**config, **scale} for config in found[name])
    return found


def _of_llamafactory() -> dict[str, Any]:
    head = {
        **_AUTO_BATCH,
        "zero_allow_untested_optimizer": True,
        "fp16": _loss_scaling(16),
        "bf16": _AUTO_BF16,
    }
    two = {"stage": 2, **_bucketed(5e8), "round_robin_gradients": True}
    offloaded = {"offload_optimizer": _PINNED, "offload_param": _PINNED}
    for_fp8 = {
        **_ROOMY_STAGE_3,
        "offload_optimizer": {"device": "cpu", "pin_memory": False},
        "reduce_bucket_size": 12845056,
        "stage3_prefetch_bucket_size": 11560550,
        "stage3_param_persistence_threshold": 35840,
    }
    monitors = {
        "steps_per_print": 10_000_000,
        "comms_config": {"verbose": False},
        "monitor_config": {
            "enabled": True,
            "tag": "DeepSpeedMonitor",
            "csv_monitor": {"enabled": False},
        },
    }
    fp8 = {
        **{key: value for key, value in head.items() if key != "train_batch_size"},
        "zero_force_ds_cpu_optimizer": True,
        "fp16": {**_loss_scaling(16), "enabled": False},
        "zero_optimization": for_fp8,
        **monitors,
    }
    models = "https://www.deepspeed.ai/tutorials/automatic-tensor-parallelism/#supported-models"
    return {
        "ds_z0_config": {**head, "zero_optimization": {**two, "stage": 0}},
        "ds_z2_config": {**head, "zero_optimization": two},
        "ds_z2_offload_config": {
            **head,
            "zero_optimization": {**two, "offload_optimizer": _PINNED},
        },
        "ds_z2_autotp_config": {
            "_comment": f"suooprted model list: {models}",
            **head,
            "zero_optimization": two,
            "tensor_parallel": {"autotp_size": 2},
        },
        "ds_z3_fp8_config": fp8,
        "ds_z3_config": {**head, "zero_optimization": _ROOMY_STAGE_3},
        "ds_z3_offload_config": {**head, "zero_optimization": {**_ROOMY_STAGE_3, **offloaded}},
    }


@cache
def _of_trainer() -> MappingABC[str, Any]:
    """What transformers' Trainer fills in from its own arguments, without the optimizer and the scheduler that it then
    makes as it does without DeepSpeed: transformers 00e12e7c tests/deepspeed/ds_config_zero2.json (whose names these
    are), 019da1e8 docs/source/en/deepspeed.md, "ZeRO configuration" (stage 3, and what is offloaded)."""
    head = {"fp16": _loss_scaling(16), "bf16": _AUTO_BF16}
    two = {"stage": 2, **_bucketed(2e8), "overlap_comm": True}
    three = {**_ROOMY_STAGE_3, "overlap_comm": True}
    optimizer = {"offload_optimizer": _PINNED}
    zero = {
        "zero2": two,
        "zero2_offload": {**two, **optimizer},
        "zero3": three,
        "zero3_offload": {**three, **optimizer, "offload_param": _PINNED},
    }
    return {
        f"ds_config_{name}": {**head, "zero_optimization": said, **_AUTO_BATCH}
        for name, said in zero.items()
    }


# Weights that ZeRO-3 is known to partition (PEFT's docs/source/accelerate/deepspeed.md on bitsandbytes) as these two
# load them; of other packed formats nobody says so, nor of what a script of somebody's own loads.
_PARTITIONED = ("none", "bnb4")
OF_AXOLOTL = Family(_of_axolotl, AXOLOTL_HOME, _PARTITIONED)
OF_LLAMA_FACTORY = Family(_of_llamafactory, LLAMA_FACTORY_HOME, _PARTITIONED)
OF_TRAINER = Family(_of_trainer, indent=4)
FAMILIES = (OF_AXOLOTL, OF_LLAMA_FACTORY, OF_TRAINER)
