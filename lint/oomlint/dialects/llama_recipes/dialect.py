"""llama-recipes, now llama-cookbook: the command line of its ``finetuning`` script."""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.llama_recipes.keys import LLAMA_RECIPES, OLD_LLAMA_RECIPES
from oomlint.dialects.llama_recipes.meaning import meaning
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launches import launches
from oomlint.documents.base import Document

# Options that no other script of the name ``finetuning.py`` has.
_OWN = frozenset(
    {
        "enable_fsdp", "low_cpu_fsdp", "batch_size_training", "batching_strategy",
        "dist_checkpoint_root_folder", "dist_checkpoint_folder", "use_fast_kernels",
        "num_workers_dataloader", "one_gpu", "fsdp_config.pure_bf16", "pure_bf16",
        "freeze_LLM_only", "peft_method",
    }
)  # fmt: skip


def _starts_finetuning(launch: Launch) -> bool:
    if launch.is_module:
        return launch.name in ("llama_recipes.finetuning", "llama_cookbook.finetuning")
    if launch.stem == "llama_finetuning":
        return True
    return launch.stem == "finetuning" and bool(_OWN & set(launch.flags.entries))


class LlamaRecipes(Dialect):
    name = "llama-recipes"
    markers = (b"finetuning",)
    suffixes = (".sh", ".bash", ".slurm", ".sbatch", ".job")
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for launch in launches(document):
            if _starts_finetuning(launch):
                table = OLD_LLAMA_RECIPES if launch.stem == "llama_finetuning" else LLAMA_RECIPES
                blocks = (*launch.blocks, launch.program_block(table))
                yield Claim(self, "run", document, blocks)
