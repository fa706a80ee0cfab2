"""RAM that several ranks take together while they load, shard, train and save a model, on the CPU.

    python benchmarks/measure/ranks.py CASE FOLDER [--ranks 2] [--dtype bfloat16] [--bin] [--fp32-files] [--low-cpu-mem]

torch, transformers and, for some cases, accelerate, peft or deepspeed must be installed. Writes a model of half a billion
random weights to FOLDER, where none is, with transformers' own ``save_pretrained``, and starts the ranks as torchrun does
(gloo). This process reads ``/proc/PID/smaps_rollup`` of all of them every few milliseconds and prints, phase by phase, the
highest sums in GiB: ``own`` (anonymous pages), ``pss`` (with each rank's share of the pages of files) and ``rss``, all less
what was there when the libraries were loaded.

Cases: ``load`` alone; ``move``, after which each weight is read, as on its way to a GPU; ``lora`` with PEFT's adapters; ``fsdp1`` and ``fsdp2``, sharded by Accelerate and
put together again on the first rank; ``dcp``, the same saved in shards; ``zero1`` to ``zero3`` with the optimizer offloaded by DeepSpeed; ``save``,
``save_pretrained`` of one process. There is no GPU: what would be on it is RAM here, and stands in the readings.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SIZES = {
    "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 24, "num_attention_heads": 16,
    "num_key_value_heads": 16, "vocab_size": 100_000, "tie_word_embeddings": False,
}  # fmt: skip
_KINDS = {"Anonymous": "own", "Pss": "pss", "Rss": "rss"}


def written(folder: Path, fp32: bool, binary: bool) -> Path:
    """The folder of the model in the dtype and format that are wanted."""
    target = folder / f"{'fp32' if fp32 else 'bf16'}-{'bin' if binary else 'safetensors'}"
    if not (target / "config.json").exists():
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.set_default_dtype(torch.float32 if fp32 else torch.bfloat16)
        model = LlamaForCausalLM(LlamaConfig(**SIZES))
        model.save_pretrained(target, safe_serialization=not binary, max_shard_size="500MB")
    return target


class Rank:
    """What one rank does; ``phase`` says to the process that reads where it is."""

    def __init__(self, folder: str, args: argparse.Namespace) -> None:
        import torch
        import transformers

        self.torch, self.args, self.folder = torch, args, folder
        self.number, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.transformers = transformers
        torch.set_num_threads(1)
        if not args.case.startswith("zero"):
            torch.distributed.init_process_group("gloo")

    def phase(self, name: str) -> None:
        if self.torch.distributed.is_initialized():
            self.torch.distributed.barrier()
        if self.number == 0:
            time.sleep(0.2)
            Path(os.environ["OOM_PHASE"]).write_text(name, encoding="ascii")
            time.sleep(0.2)
        if self.torch.distributed.is_initialized():
            self.torch.distributed.barrier()

    def load(self) -> Any:
        named: dict[str, Any] = {"torch_dtype": getattr(self.torch, self.args.dtype)}
        if self.args.low_cpu_mem:
            named["low_cpu_mem_usage"] = True
        self.phase("load")
        return self.transformers.AutoModelForCausalLM.from_pretrained(self.folder, **named)

    def save(self, model: Any) -> None:
        self.phase("save")
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            model.save_pretrained(folder)

    def lora(self, model: Any) -> Any:
        import peft

        return peft.get_peft_model(
            model, peft.LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
        )

    def fsdp(self, model: Any, version: int, save: str) -> None:
        from accelerate import Accelerator, FullyShardedDataParallelPlugin

        named: dict[str, Any] = {
            "auto_wrap_policy": "transformer_based_wrap", "cpu_offload": False,
            "transformer_cls_names_to_wrap": ["LlamaDecoderLayer"], "cpu_ram_efficient_loading": False,
        }  # fmt: skip
        if version == 2:
            named["fsdp_version"] = 2
        mixed = {"mixed_precision": "bf16"} if self.args.mixed else {}
        accelerator = Accelerator(
            cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin(**named), **mixed
        )
        self.phase("shard")
        model = accelerator.prepare(model)
        if save == "dcp":
            from torch.distributed import checkpoint
            from torch.distributed.checkpoint.state_dict import get_model_state_dict

            self.phase("save")
            state = get_model_state_dict(model)
            checkpoint.save({"model": state}, checkpoint_id=f"{self.folder}/dcp")
            return
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        self.phase("save")
        get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )

    def zero(self, model: Any, stage: int) -> None:
        import deepspeed

        away = {"offload_optimizer": {"device": "cpu", "pin_memory": False}} if stage > 1 else {}
        config = {
            "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": self.args.dtype == "bfloat16"},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "torch_adam": True}},
            "zero_force_ds_cpu_optimizer": False, "zero_optimization": {"stage": stage, **away},
        }  # fmt: skip
        self.phase("engine")
        deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)

    def import_libraries(self) -> None:
        """What is counted with the libraries, before anything is loaded."""
        case = self.args.case
        if case.startswith("zero"):
            import deepspeed

            deepspeed.init_distributed("gloo")
        if case == "lora":
            import peft  # noqa: F401 - counted with the libraries
        if case.startswith(("fsdp", "dcp")):
            import accelerate  # noqa: F401

    def run(self) -> None:
        self.import_libraries()
        self.phase("ready")
        time.sleep(0.5)
        model, case = self.load(), self.args.case
        if case == "move":
            self.phase("move")
            for weight in model.parameters():
                weight.detach().clone()
        elif case == "lora":
            self.phase("adapt")
            model = self.lora(model)
        elif case.startswith("fsdp"):
            self.fsdp(model, int(case[-1]), "whole")
        elif case == "dcp":
            self.fsdp(model, 2, "dcp")
        elif case.startswith("zero"):
            self.zero(model, int(case[-1]))
        elif case == "save":
            self.save(model)
        self.phase("done")


def resident(processes: list[int]) -> dict[str, float]:
    """GiB of all the processes by kind."""
    found = dict.fromkeys(_KINDS.values(), 0.0)
    for process in processes:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
        for line in lines:
            name, size, *_ = line.split()
            if name[:-1] in _KINDS:
                found[_KINDS[name[:-1]]] += int(size) / 2**20
    return found


def watched(command: list[str], ranks: int) -> dict[str, dict[str, float]]:
    """The highest sums of each phase, less those when the libraries were loaded."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder, "phase")
        said.write_text("start", encoding="ascii")
        shared = {
            **os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ.get("MASTER_PORT", "29533"),
            "OOM_PHASE": str(said), "DS_ACCELERATOR": "cpu", "ACCELERATE_USE_CPU": "true",
            "LOCAL_WORLD_SIZE": str(ranks), "TOKENIZERS_PARALLELISM": "false",
        }  # fmt: skip
        started = [
            subprocess.Popen(command, env={**shared, "RANK": str(n), "LOCAL_RANK": str(n)})
            for n in range(ranks)
        ]
        highest: dict[str, dict[str, float]] = {}
        while all(process.poll() is None for process in started):
            phase = said.read_text(encoding="ascii")
            if phase == "done":
                break
            try:
                now = resident([process.pid for process in started])
            except (OSError, ValueError):
                break
            seen = highest.setdefault(phase, dict(now))
            seen |= {kind: max(seen[kind], now[kind]) for kind in now}
            time.sleep(0.005)
        for process in started:
            assert process.wait(120) == 0, "a rank failed"
    ready = highest.pop("ready")
    highest.pop("start", None)
    return {
        phase: {kind: round(found[kind] - ready[kind], 2) for kind in found}
        for phase, found in highest.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--dtype", default="bfloat16")
    for flag in ("--bin", "--fp32-files", "--low-cpu-mem", "--mixed"):
        parser.add_argument(flag, action="store_true")
    args = parser.parse_args()
    if "RANK" in os.environ:
        Rank(str(args.folder), args).run()
        return
    subprocess.run(
        [sys.executable, "-c", _WRITE, __file__, args.folder, str(args.fp32_files), str(args.bin)],
        check=True,
    )
    target = args.folder / f"{'fp32' if args.fp32_files else 'bf16'}-{'bin' if args.bin else 'safetensors'}"  # fmt: skip
    command = [sys.executable, __file__, args.case, str(target), "--dtype", args.dtype]
    command += [f"--{flag}" for flag in ("low-cpu-mem", "mixed") if getattr(args, flag.replace("-", "_"))]  # fmt: skip
    found = watched(command, args.ranks)
    shutil.rmtree(target / "dcp", ignore_errors=True)
    names = ("torch", "transformers", "accelerate", "peft", "deepspeed", "safetensors")
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    print(json.dumps({"run": sys.argv[1:], "versions": versions, **found}))


_WRITE = "import sys, pathlib, runpy; runpy.run_path(sys.argv[1])['written'](pathlib.Path(sys.argv[2]), *(x == 'True' for x in sys.argv[3:]))"

if __name__ == "__main__":
    main()
