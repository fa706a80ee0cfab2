"""Accelerate's own reading of its config YAML, and the environment that it launches with."""

from __future__ import annotations

import argparse
from typing import Any

from protocol import serve

_PARTS = ("fsdp_config", "deepspeed_config", "megatron_lm_config", "parallelism_config")


def _of_parts(said: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """What the launcher takes of the sections that the file has."""
    values = {}
    for part in _PARTS:
        for key in said.get(part) or {}:
            name = f"fsdp_{key}" if part == "fsdp_config" and key[:4] != "fsdp" else key
            if hasattr(args, name):
                values[f"{part}.{key}"] = getattr(args, name)
    return values


def _of_backend(args: argparse.Namespace) -> dict[str, Any]:
    """All that the launcher has of FSDP or DeepSpeed, its own defaults included."""
    if not (args.use_fsdp or args.use_deepspeed):
        return {}
    kept = ("fsdp_",) if args.use_fsdp else ("zero", "offload_", "deepspeed_config_file")
    part = "fsdp_config" if args.use_fsdp else "deepspeed_config"
    return {f"{part}.{name}": v for name, v in vars(args).items() if name.startswith(kept)}


def prepare() -> Any:
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import (
        _validate_launch_command,
        launch_command_parser,
        prepare_deepspeed_cmd_env,
        prepare_multi_gpu_env,
        prepare_simple_launcher_cmd_env,
    )

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        said = load_config_from_file(case["main"]).to_dict()
        parser = launch_command_parser()
        line = ["--config_file", case["main"], "train.py"]
        args, defaults, _ = _validate_launch_command(parser.parse_args(line))
        if defaults.compute_environment == "AMAZON_SAGEMAKER":
            return {}
        _environment(args, list(defaults.deepspeed_config))
        values = {"distributed_type": said["distributed_type"], "fp16": said.get("fp16")}
        # Accelerate sets no number of ranks by itself here: there is no GPU to count.
        for name in ("mixed_precision", "num_machines", "num_processes"):
            values[name] = getattr(args, name)
        return {**_of_backend(args), **values, **_of_parts(said, args)}

    def _environment(args: argparse.Namespace, fields: list[str]) -> None:
        """What the launcher would export; it refuses values here that the file may hold."""
        if args.use_deepspeed:
            # As launch_command does, between the two.
            args.deepspeed_fields_from_accelerate_config = fields
            prepare_deepspeed_cmd_env(args)
        elif args.use_fsdp or args.multi_gpu:
            prepare_multi_gpu_env(args)
        else:
            prepare_simple_launcher_cmd_env(args)

    return judge


if __name__ == "__main__":
    serve(prepare, "accelerate")
