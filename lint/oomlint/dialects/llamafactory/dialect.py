"""LLaMA-Factory: its YAML or JSON (``llamafactory-cli train x.yaml key=value``) and its command lines.

Read from LLaMA-Factory ff6d4d12 (2026-08-18); ``LF`` below is ``src/llamafactory``. The file
is loaded by OmegaConf and parsed by transformers' HfArgumentParser, which refuses unknown
keys unless ``ALLOW_EXTRA_ARGS`` is set (LF/hparams/parser.py read_args, _parse_args).
Allowed are transformers 4.55 to 5.8, whose defaults hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping as MappingABC
from typing import Any, ClassVar

from oomlint.dialects.base import Claim, ClaimKind, Dialect, Reference
from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import ref
from oomlint.dialects.deepspeed.asked import BY_TRAINER
from oomlint.dialects.deepspeed.fixes import swap_preset
from oomlint.dialects.deepspeed.presets import OF_LLAMA_FACTORY
from oomlint.dialects.llamafactory.keys import CLI_ENVIRONMENT, ENVIRONMENT, LLAMA_FACTORY, lf
from oomlint.dialects.llamafactory.meaning import meaning
from oomlint.dialects.llamafactory.releases import TRAINS_ON_TOKENS
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.meaning import Wishes, expressed, writable
from oomlint.dialects.skeleton import FSDP_BLOCK, Skeleton, Start, zero_block
from oomlint.dialects.table import Table
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.training_arguments import in_training_arguments
from oomlint.documents import JSON_SUFFIXES, SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, Mapping, Node, Scalar, roots
from oomlint.documents.text import Location
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

_COMMANDS = frozenset({"llamafactory-cli", "lmf", "llamafactory"})
_TRAINING_WORDS = frozenset({"train"})
_OTHER_WORDS = frozenset({"export", "chat", "api", "webchat", "eval", "merge"})
# src/train.py and its predecessors; LF/launcher.py is what llamafactory-cli gives torchrun.
_SCRIPTS = frozenset({"train", "train_bash", "train_web", "launcher", "cli"})
_OWN_KEYS = frozenset(
    {
        "stage", "finetuning_type", "cutoff_len", "lora_target", "lora_rank", "template",
        "dataset_dir", "quantization_bit", "pref_loss", "freeze_trainable_layers", "pure_bf16",
        "disable_gradient_checkpointing", "neat_packing",
    }
)  # fmt: skip
# Options of many projects' scripts too; training of LLaMA-Factory's names a data set as well
# (LF/hparams/parser.py: "Please specify dataset for training").
_SHARED_KEYS = frozenset({"template", "lora_rank"})
_ASIDE_KEYS = frozenset({"infer_backend", "export_dir", "infer_dtype", "vllm_maxlen", "task"})
_RUN_KEYS = frozenset(
    {
        "do_train", "dataset", "per_device_train_batch_size", "learning_rate", "num_train_epochs",
        "output_dir", "max_steps",
    }
)  # fmt: skip
_OTHERS = frozenset({"base_model", "dataset_mixer", "dataset_mixture", "dataset_name", "trl"})


_SKELETON = """\
model_name_or_path: {model}
stage: sft
do_train: true
finetuning_type: full
dataset: alpaca_en_demo
template: default
output_dir: out
learning_rate: 0.0001
lr_scheduler_type: cosine
num_train_epochs: 1
"""


class LlamaFactory(Dialect):
    name = "llama-factory"
    distribution = "llamafactory"
    packages = ("src/llamafactory", "src/llmtuner")
    # Of LLaMA-Factory, LLaMA-Efficient-Tuning (2023) and ChatGLM-Efficient-Tuning.
    library = r"llamafactory|llmtuner|glmtuner"
    launcher_may_shard = True
    markers = (b"model_name_or_path", b"llamafactory-cli", b"lmf train", b"LLaMA-Factory")
    suffixes = (*YAML_SUFFIXES, *JSON_SUFFIXES, *SHELL_SUFFIXES)
    references = {ref.deepspeed: "deepspeed", launch.config_file: "accelerate"}
    asks = BY_TRAINER
    meaning = meaning
    declared_in = tuple(
        f"src/{package}/hparams/{kind}_args.py"
        for package in ("llamafactory", "llmtuner")
        for kind in ("model", "data", "finetuning", "generating", "training", "evaluation")
    )
    declares = ("finetuning_type",)
    carried_version = (
        "llamafactory",
        (
            "src/llamafactory/extras/env.py", "src/llamafactory/cli.py", "src/llmtuner/cli.py",
            "src/llmtuner/__init__.py",
        ),
    )  # fmt: skip
    # hiyouga/LLaMA-Factory fe638cf1 (2024-05-16) to c0c387e4 (2024-06-08), and adff3e50 (2024-07-19) to
    # d1ab9b50 (2024-09-08), and the releases after them.
    became: ClassVar[MappingABC[str, str]] = {"0.7.2": "0.8.0", "0.8.4": "0.9.0"}

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            kind = _kind_of(root)
            if kind is not None:
                anchor = root.entries["model_name_or_path"].span
                block = Block(document, root, LLAMA_FACTORY, anchor)
                merges = kind == "aside" and "export_dir" in root.entries
                # What trains nothing says nothing of a run, even if a launch line starts it.
                blocks = () if kind == "aside" and not merges else (block,)
                yield Claim(self, kind, document, blocks, merges=merges)
        for line in launches(document):
            if not uses_v1(line):
                yield from launch_claims(self, line, LLAMA_FACTORY, _TRAINING_WORDS)

    def trains(self, run: Cells) -> bool:
        """A config that names where its tokens go and says nothing of how to train is for preprocessing, as
        examples/lora_single_gpu/llama3_preprocess.yaml is: these releases stop once the tokens are written."""
        is_told = any(run.says(field) for field in _SCHEDULE)
        return is_told or not run.says(lf.tokenized_path) or run.has(TRAINS_ON_TOKENS)

    def skeleton(self, start: Start) -> Skeleton:
        """The first keys of examples/train_full/qwen3_full_sft.yaml."""
        shared = FSDP_BLOCK if start.shard == "fsdp" else zero_block(start.shard)
        # LF/launcher.py starts torchrun by itself where there are several GPUs, or where it is told to.
        forced = "FORCE_TORCHRUN=1 " if shared else ""
        text = _SKELETON.format(model=start.model) + shared
        command = f"{forced}llamafactory-cli train {{file}}"
        return Skeleton("llama-factory.yaml", text, command, "dataset and template")

    def express(self, changes: Wishes, run: Cells) -> dict[Any, Any]:
        _check_combinations(changes, run)
        swapped = swap_preset(changes, run, OF_LLAMA_FACTORY)
        own = in_training_arguments(expressed(swapped, run), run)
        return writable(own, run, self.name)


# What a config for training says of it, one or the other.
_SCHEDULE = (f.batch.micro, f.batch.grad_accum, f.total_steps, hf.bf16, hf.fp16, lf.pure_bf16)

# What LF/hparams/parser.py:225-520 refuses together with ZeRO-3.
_NOT_UNDER_ZERO3 = {
    f.eval.generate: "predict_with_generate",
    lf.pure_bf16: "pure_bf16",
    lf.unsloth: "use_unsloth",
    lf.ktransformers: "use_kt",
    lf.pissa: "pissa_init",
    lf.galore: "use_galore",
    lf.apollo: "use_apollo",
}


# LF/hparams/finetuning_args.py:595
_NOT_WITH_LORA = {lf.galore: "use_galore", lf.apollo: "use_apollo", lf.badam: "use_badam"}


def _check_combinations(wishes: Wishes, run: Cells) -> None:
    """Stop a wish for what the framework would refuse beside other keys; ZeRO-3 the run may say by naming
    another shipped config.

    Raises:
        CannotEdit: with the key.
    """
    if wishes.get(f.parallel.zero.stage) and run[lf.muon]:
        # LF/third_party/muon/muon.py:132 notes of each tensor that it is made with whether it is a matrix to
        # orthogonalize, and asks for that at a step (:159), with a KeyError for others. ZeRO steps on flat tensors of its own in
        # their place (DeepSpeed 0.9.3 to 0.19.6 runtime/zero/stage_1_and_2.py: param_group['params'] =
        # [single_partition_of_fp32_groups[i]]; stage3.py likewise).
        raise CannotEdit("LLaMA-Factory's Muon knows only the matrices that ZeRO flattens")
    if wishes.get(f.parallel.zero.stage) == 3:
        _refuse(_NOT_UNDER_ZERO3, "with ZeRO-3", run)
    if wishes.get(f.trainable.method) in ("lora", "qlora"):
        _refuse(_NOT_WITH_LORA, "with LoRA", run)


def _refuse(keys: MappingABC[Any, str], beside: str, run: Cells) -> None:
    for field, key in keys.items():
        if run[field]:
            raise CannotEdit(f"LLaMA-Factory refuses {key} {beside}")


def _kind_of(root: Mapping) -> ClaimKind | None:
    """Whether a mapping is a run, or an inference, export or evaluation config, or not ours."""
    keys = set(root.entries)
    if "model_name_or_path" not in keys or keys & _OTHERS:
        return None
    own = keys & _OWN_KEYS
    if keys & _ASIDE_KEYS and "do_train" not in keys:
        return "aside"
    if not (own - _SHARED_KEYS or (own and "dataset" in keys)):
        return None
    if not keys & _RUN_KEYS:
        return "aside"
    if _takes_no_step(root):
        return "aside"
    trains = root.entries.get("do_train")
    if trains is not None:
        return "run" if _is_true(trains.value) else "aside"
    tests = (root.entries.get(key) for key in ("do_predict", "do_eval"))
    return "aside" if any(entry and _is_true(entry.value) for entry in tests) else "run"


def _takes_no_step(root: Mapping) -> bool:
    """``num_train_epochs: 0``: what stands there is only evaluated."""
    entry = root.entries.get("num_train_epochs")
    value = entry.value.value if entry is not None and isinstance(entry.value, Scalar) else None
    return re.fullmatch(r"0+(\.0*)?", str(value)) is not None and "max_steps" not in root.entries


def launch_claims(
    dialect: Dialect, launch: Launch, table: Table, trains: frozenset[str]
) -> Iterator[Claim]:
    """The claim on a launch line, if it starts LLaMA-Factory.

    Args:
        table: the keys of the config, which the line may set too.
        trains: sub-commands of ``llamafactory-cli`` that train.
    """
    document = launch.document
    words = [str(word.value) for word in launch.arguments if isinstance(word.value, str)]
    arguments = launch.arguments
    # A script of the project's own that calls the command's main(): the config tells.
    is_own = launch.script is not None and launch.stem not in _SCRIPTS and words[:1] == ["train"]
    if launch.stem in _COMMANDS or is_own:
        if not words or words[0] not in trains:
            if words and words[0] in _OTHER_WORDS:
                yield Claim(dialect, "aside", document, ())
            return
        arguments = arguments[1:]
    elif not (launch.stem in _SCRIPTS and _is_own_script(launch, words)):
        return
    is_command = launch.stem in _COMMANDS or is_own
    table_of_environment = CLI_ENVIRONMENT if is_command else ENVIRONMENT
    environment = Block(document, launch.command.environment, table_of_environment, launch.anchor)
    scene = (*launch.blocks, environment)
    named = _config_word(arguments)
    if named is None and is_own:
        return
    if named is None:
        # Without a file the options are the whole run: a run, not the launch of one.
        yield Claim(dialect, "run", document, (*scene, launch.program_block(table)))
        return
    block = OverrideBlock(document, launch.command.assignments, table, launch.anchor)
    where = Location(document.source.path, named.via or named.span)
    reference = Reference(
        str(named.value), where, dialect.name, optional=is_own, decides=is_own, adopts=not is_own
    )
    yield Claim(dialect, "launch", document, (*scene, block), (reference,))


def uses_v1(launch: Launch) -> bool:
    """Whether the environment chooses the second configuration (src/llamafactory/cli.py)."""
    entry = launch.command.environment.entries.get("USE_V1")
    return entry is not None and _is_true(entry.value)


def _is_true(node: Node) -> bool:
    value = node.value if isinstance(node, Scalar) else None
    return value is True or str(value).lower() in ("true", "yes", "on", "1")


def _is_own_script(launch: Launch, words: list[str]) -> bool:
    """``src/train.py x.yaml``: the script's path, and what it is given, must be LLaMA-Factory's."""
    if "llamafactory" in launch.name.lower() or "llama-factory" in launch.name.lower():
        return True
    if launch.stem == "train_bash":
        return True
    if launch.stem != "train":
        return False
    if words and words[0].endswith((".yaml", ".yml", ".json")):
        return launch.name.replace("\\", "/").endswith("src/train.py")
    return bool({"stage", "finetuning_type"} & set(launch.flags.entries))


def _config_word(words: Iterable[Scalar]) -> Scalar | None:
    """The config file among positional words: the first, as LF/hparams/parser.py read_args has it."""
    first = next(iter(words), None)
    if first is not None and str(first.value).endswith((".yaml", ".yml", ".json")):
        return first
    return None
