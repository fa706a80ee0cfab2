"""transformers' own class of the checkpoint that an example names, with the adapter that it asks peft for.

For frameworks that train such checkpoints: what an example says is read here by its framework's own way of laying configs
over one another, and by no table of oomlint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomllib
from benchmarks.catalogue.verify_models import build
from counted import counts
from protocol import NotMine, serve


class Asked(dict[str, Any]):
    """``model``, the modules of it that are ``frozen``, and where an adapter is trained ``r``, ``targets`` and ``exclude``."""


def _areal(config: Any, _path: str) -> Asked:
    actor = config.actor
    lora = {"r": actor.lora_rank, "targets": actor.target_modules} if actor.get("use_lora") else {}
    return Asked(model=actor.path, **lora)


def _roll(config: Any, _path: str) -> Asked:
    section = next((config[n] for n in ("actor_train", "sft_train", "student") if n in config), {})
    said = section.get("model_args", {})
    lora = {"r": said.lora_rank, "targets": said.lora_target} if said.get("lora_target") else {}
    return Asked(model=said.get("model_name_or_path") or config.pretrain, **lora)


def _nemo_rl(config: Any, path: str) -> Asked:
    """``defaults`` of a file are laid below it (nemo_rl/utils/config.py load_config_with_inheritance)."""
    policy = _inherited(config, Path(path)).policy
    if policy.get("megatron_cfg", {}).get("peft", {}).get("enabled"):
        raise NotMine("an adapter of Megatron-Bridge, which is none of peft's")
    lora = policy.get("dtensor_cfg", {}).get("lora_cfg", {})
    if not lora.get("enabled"):
        return Asked(model=policy.model_name)
    targets = "all-linear" if lora.get("match_all_linear") else lora.target_modules
    return Asked(
        model=policy.model_name, r=lora.dim, targets=targets, exclude=lora.get("exclude_modules")
    )


def _inherited(config: Any, path: Path) -> Any:
    from omegaconf import OmegaConf

    bases = config.pop("defaults", None) or ()
    merged = OmegaConf.create({})
    for name in (bases,) if isinstance(bases, str) else bases:
        base = path.parent / str(name)
        merged = OmegaConf.merge(merged, _inherited(OmegaConf.load(base), base))
    return OmegaConf.merge(merged, config)


# prime-rl's ``LoRAConfig`` (src/prime_rl/configs/trainer.py): rank 16, the projections of attention, MLP and experts.
_PRIME_RL_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def _prime_rl(config: Mapping[str, Any], _path: str) -> Asked:
    shared = config.get("model") or {}
    own = (config.get("trainer") or {}).get("model") or {}
    lora = own.get("lora", shared.get("lora"))
    name, tower = own.get("name") or shared["name"], own.get("vlm", shared.get("vlm"))
    if lora is None:
        is_frozen = tower is not None and tower.get("freeze_vision_encoder", True)
        return Asked(model=name, frozen=_TOWERS if is_frozen else ())
    return Asked(
        model=name, r=lora.get("rank", 16), targets=lora.get("target_modules", _PRIME_RL_TARGETS)
    )


def _xtuner(text: str, _path: str) -> Asked:
    names = re.findall(
        r"^(?:llm_name_or_path|pretrained_model_name_or_path)\s*=\s*['\"]([^'\"]+)",
        text,
        re.MULTILINE,
    )
    if len(names) != 1 or "LLaVAModel" in text:
        raise NotMine
    # find_all_linear_names (xtuner/model/utils.py): every linear layer but the head.
    lora = re.search(r"type=LoraConfig,\s*r=(\d+)", text)
    return Asked(model=names[0], **({"r": int(lora[1]), "targets": "all-linear"} if lora else {}))


# What align-anything's ``freeze_vision_tower`` freezes (align_anything/models/pretrained_model.py), by transformers' names.
_TOWERS = ("visual", "vision_tower", "vision_model")


def _align_anything(text: str, _path: str) -> Asked:
    names = re.findall(r"^(?:ACTOR_)?MODEL_NAME_OR_PATH=\"([^\"]+)\"", text, re.MULTILINE)
    trainer = re.search(r"align_anything\.trainers\.(\w+)\.(\w+)", text)
    # A reward model's head is a class of the project's own.
    if len(names) != 1 or trainer is None or trainer[2] in ("rm", "cost_model"):
        raise NotMine
    config = _yaml(f"align_anything/configs/train/{trainer[1]}/{trainer[2]}.yaml")
    frozen = _TOWERS if config.train_cfgs.get("freeze_vision_tower") else ()
    if config.train_cfgs.get("freeze_mm_proj"):
        frozen = (*frozen, "multi_modal_projector")
    return Asked(model=names[0], frozen=frozen)


def _yaml(path: str) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.load(path)


def _text(path: str) -> str:
    return Path(path).read_text("utf-8")


_READ: Mapping[str, tuple[Callable[[str], Any], Callable[[Any, str], Asked]]] = {
    "areal": (_yaml, _areal),
    "roll": (_yaml, _roll),
    "nemo-rl": (_yaml, _nemo_rl),
    "prime-rl": (lambda path: tomllib.loads(_text(path)), _prime_rl),
    "xtuner": (_text, _xtuner),
    "align-anything": (_text, _align_anything),
}


def prepare() -> Any:
    from peft import LoraConfig, get_peft_model

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        read, asked_of = _READ[case["framework"]]
        asked = asked_of(read(case["example"]), case["example"])
        entry = case["configs"].get(asked["model"])
        if entry is None:
            raise NotMine(asked["model"])
        model = build(entry)
        for name, parameter in model.named_parameters():
            if not set(asked.get("frozen", ())).isdisjoint(name.split(".")):
                parameter.requires_grad_(False)
        if "r" in asked:
            targets = asked["targets"]
            words = targets.split(",") if isinstance(targets, str) else list(targets)
            whole = words in (["all-linear"], ["all"])
            adapter = LoraConfig(
                r=asked["r"], target_modules="all-linear" if whole else words, exclude_modules=asked.get("exclude"),
                task_type="CAUSAL_LM",
            )  # fmt: skip
            model = get_peft_model(model, adapter)
        text = model.config.get_text_config()
        heads = text.num_attention_heads
        found = counts(
            model, text.num_hidden_layers, heads, getattr(text, "num_key_value_heads", heads)
        )
        base = model.get_base_model() if "r" in asked else model
        adapted = found["trained"] if "r" in asked else 0
        return {
            **found,
            "class": type(base).__name__,
            "model": asked["model"],
            "parameters": found["parameters"] - adapted,
        }

    return judge


if __name__ == "__main__":
    serve(prepare, "transformers", "peft")
