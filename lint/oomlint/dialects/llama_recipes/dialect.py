"""llama-recipes, now llama-cookbook: the command line of its ``finetuning`` script, and calls of it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.block import Block
from oomlint.dialects.llama_recipes.keys import LLAMA_RECIPES, OLD_LLAMA_RECIPES
from oomlint.dialects.llama_recipes.meaning import meaning
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launches import launches
from oomlint.documents import SHELL_SUFFIXES
from oomlint.documents.base import Document
from oomlint.documents.text import Span

# Options that no other script of the name ``finetuning.py`` has.
_OWN = frozenset(
    {
        "enable_fsdp", "low_cpu_fsdp", "batch_size_training", "batching_strategy",
        "dist_checkpoint_root_folder", "dist_checkpoint_folder", "use_fast_kernels",
        "num_workers_dataloader", "one_gpu", "fsdp_config.pure_bf16", "pure_bf16",
        "freeze_LLM_only", "peft_method",
    }
)  # fmt: skip

_MODULES = ("llama_recipes.finetuning", "llama_cookbook.finetuning")
_CALLED = frozenset(f"{module}.main" for module in _MODULES)
# Where the script has stood in the repository, or in the package.
_FOLDERS = (
    "recipes/finetuning", "recipes/quickstart/finetuning", "getting-started/finetuning",
    "llama-recipes/examples", "llama-cookbook/examples", "src/llama_recipes", "src/llama_cookbook",
)  # fmt: skip


def _starts_finetuning(launch: Launch) -> bool:
    if launch.is_module:
        return launch.name in _MODULES
    if launch.stem == "llama_finetuning":
        return True
    if launch.stem != "finetuning":
        return False
    options = launch.flags.entries.keys()
    return bool(_OWN & options) or ("model_name" in options and _stands_in_folder(launch))


def _stands_in_folder(launch: Launch) -> bool:
    folder = posixpath.join(launch.command.folder, posixpath.dirname(launch.name))
    return ("/" + posixpath.normpath(folder)).endswith(tuple("/" + known for known in _FOLDERS))


class LlamaRecipes(Dialect):
    name = "llama-recipes"
    markers = (b"finetuning",)
    suffixes = (*SHELL_SUFFIXES, ".py")
    only_marked = (".py",)
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for launch in launches(document):
            if _starts_finetuning(launch):
                table = OLD_LLAMA_RECIPES if launch.stem == "llama_finetuning" else LLAMA_RECIPES
                blocks = (*launch.blocks, launch.program_block(table))
                yield Claim(self, "run", document, blocks)
        for call in document.calls:
            if call.callee in _CALLED:
                anchor = Span(call.span.start, call.arguments.span.start)
                block = Block(document, call.arguments, LLAMA_RECIPES, anchor)
                yield Claim(self, "run", document, (block,))
