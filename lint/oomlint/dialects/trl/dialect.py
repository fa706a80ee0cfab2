"""TRL: its YAML, also of alignment-handbook and open-r1, and its command lines.

Read from TRL f2cd5771 (1.10.0.dev0) with the releases 0.19.1 to 1.8.0 for what changed;
``TRL`` below is ``trl``. A config class over TrainingArguments for each objective, a
ModelConfig for weights and adapter, ScriptArguments for the data; TrlParser takes the values of
``--config FILE`` as defaults under the command line's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.block import Block, OverrideBlock
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared import declared_options
from oomlint.dialects.common.fields import ref
from oomlint.dialects.common.generation import with_same_round
from oomlint.dialects.deepspeed.asked import BY_TRAINER
from oomlint.dialects.machine.fields import launch as started
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launcher_keys import ACCELERATE_LAUNCHER, ENVIRONMENT
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.meaning import Wishes, writable
from oomlint.dialects.reading import StrayKey
from oomlint.dialects.skeleton import FSDP_BLOCK, Skeleton, Start, zero_block
from oomlint.dialects.trainer.dialect import SHELL_SUFFIXES, parsed_options, script_reference
from oomlint.dialects.trainer.script import WORDS, parsed_config, script_runs
from oomlint.dialects.trainer.script_claim import script_claim
from oomlint.dialects.trainer.training_arguments import trainer_wishes
from oomlint.dialects.trainer.unfollowed import check_own_options
from oomlint.dialects.trl.fields import HANDBOOKS_DATA, trl
from oomlint.dialects.trl.keys import TRL
from oomlint.dialects.trl.lengths import dropped_keys, drops_max_length
from oomlint.dialects.trl.meaning import meaning
from oomlint.dialects.trl.objectives import (
    CALLS,
    FOREIGN_KEYS,
    RECIPE_OPTIONS,
    TRAINING_KEYS,
    brings_own_trainer,
    is_yaml,
    objective_of_class,
    objective_of_launch,
    objective_of_line,
    objective_of_recipe,
    options_of,
    recipe_of,
    words_of,
)
from oomlint.dialects.trl.releases import GROUPS_BY_ROUND
from oomlint.dialects.trl.rollouts import KEYS_OF_LOOPS, loops_itself
from oomlint.documents.base import Document, Mapping, Scalar, ShellDocument, parser_of, roots
from oomlint.documents.text import Location, Source, Span
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

_OF_TRL = frozenset(
    {
        "dataset_name", "dataset_mixture", "dataset_mixer", "datasets", "max_length",
        "max_seq_length", "use_peft", "lora_r", "attn_implementation", "torch_dtype", "dtype",
        "dataset_id_or_path", "dataset_train_split", "packing", "reward_funcs",
    }
)  # fmt: skip


_SKELETON = """\
model_name_or_path: {model}
dataset_name: trl-lib/Capybara
output_dir: out
learning_rate: 0.0001
lr_scheduler_type: cosine
num_train_epochs: 1
"""


class Trl(Dialect):
    name = "trl"
    packages = ("trl",)
    library = "trl"
    launcher_may_shard = True
    reads_programs = True
    config_parsers = ("TrlParser", "HfArgumentParser", "H4ArgumentParser")
    markers = (b"model_name_or_path", b"trl", b"--config", b"Trainer")
    words_in_python = WORDS
    suffixes = (".yaml", ".yml", ".py", *SHELL_SUFFIXES)
    references = {ref.deepspeed: "deepspeed", ref.fsdp_config: "fsdp-config"}
    asks = BY_TRAINER
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        if isinstance(document, ShellDocument):
            yield from self._launches(document)
            return
        for run in script_runs(document):
            if run.uses_trl:
                kind = objective_of_class(run.named) if run.named else "sft"
                claim = script_claim(self, document, run, CALLS[kind])
                yield _told_by_parser(claim, kind) if run.parsed else claim
        for root in roots(document):
            if _is_trl(set(root.entries)):
                yield self._on_recipe(document, root)

    def adopt(self, document: Document) -> Claim | None:
        """TRL/scripts/utils.py TrlParser: ``--config`` is any mapping of options; what the line
        says itself, the model say, need not stand in it."""
        options = [root for root in roots(document) if root.entries]
        # They are flat; NeMo-RL, whose scripts have the same names, has sections.
        if len(options) != 1 or options[0].section("policy") is not None:
            return None
        return self._on_recipe(document, options[0])

    def _on_recipe(self, document: Document, root: Mapping) -> Claim:
        named = root.entries.get("model_name_or_path") or next(iter(root.entries.values()))
        block = Block(document, root, TRL, named.span)
        return Claim(self, "run", document, (*_env_blocks(document, root), block))

    def _launches(self, document: Document) -> Iterator[Claim]:
        for launch in launches(document):
            objective = objective_of_launch(launch)
            if self.profiles.describe(launch):
                continue
            if objective is None:
                yield from self._of_own_script(launch)
                continue
            table = options_of(launch, objective)
            options = parsed_options(words_of(launch), table)
            blocks: tuple[Block, ...] = launch.blocks
            references = [*launch.scene_references]
            if launch.name == "trl":
                # TRL/cli: the options of `accelerate launch` stand among the script's own.
                anchor = launch.anchor
                blocks = (*blocks[:-1], Block(document, launch.flags, ACCELERATE_LAUNCHER, anchor))
                references += _accelerate_config(launch)
            # What the script gives its options by default, the YAML and the line say over it.
            if launch.name != "trl":
                references += script_reference(launch)
            references += _config_file(launch)
            own = launch.program_block(table, options)
            if any(reference.dialect == "trl" for reference in references):
                # New keys go into the YAML; what stands on the line is changed there.
                own = OverrideBlock(document, options, table, launch.anchor)
            blocks = (*blocks, own)
            yield Claim(self, "launch", document, blocks, tuple(references))

    def _of_own_script(self, launch: Launch) -> Iterator[Claim]:
        """A script of the project's own that a TRL recipe is given to, if the file is one, or if
        the script's parser takes such: then what the line says need not stand in the file. Without
        a file the options are TRL's if the parser is made of its classes."""
        recipe = recipe_of(launch)
        options = parsed_options(words_of(launch), RECIPE_OPTIONS)
        if isinstance(recipe, Scalar):
            where = Location(launch.document.source.path, place(recipe))
            named = Reference(
                str(recipe.value),
                where,
                self.name,
                optional=True,
                decides=True,
                adopts=False,
                vouched_for=tuple(script_reference(launch, (TrlRecipeScript.name,))),
            )
            deciding: tuple[Reference, ...] = (named,)
        elif set(options.entries) & TRAINING_KEYS:
            scripts = script_reference(launch, (TrlScript.name,))
            deciding = tuple(replace(each, decides=True) for each in scripts)
        else:
            return
        if deciding:
            references = (*launch.scene_references, *script_reference(launch), *deciding)
            own = OverrideBlock(launch.document, options, RECIPE_OPTIONS, launch.anchor)
            yield Claim(self, "launch", launch.document, (*launch.blocks, own), references)

    def are_kin(self, config: Claim, launch: Claim) -> bool:
        """TRL has a script for each objective, and each its own number of ranks: of GRPO one node
        or card is left to vLLM, a DPO of the same model has a reference beside it."""
        objectives = {objective_of_recipe(config.blocks), objective_of_line(launch.blocks)}
        return None in objectives or len(objectives) == 1

    def preset(self, reference: Reference) -> Claim | None:
        """An Accelerate config that TRL ships, by its name."""
        text = _SHIPPED.get(reference.path)
        if text is None:
            return None
        from oomlint.dialects.accelerate.dialect import Accelerate
        from oomlint.dialects.accelerate.keys import ACCELERATE
        from oomlint.documents.yaml.document import parse_yaml

        document = parse_yaml(Source(reference.path, text))
        root = document.roots[0]
        if not isinstance(root, Mapping):
            return None
        why = f"{reference.path} is a config that TRL ships"
        block = Block(
            document, root, ACCELERATE, root.span, locked=why, referred=reference.location
        )
        return Claim(Accelerate(), "part", document, (block,), is_shipped=True)

    def strays(self, run: Cells) -> Iterable[StrayKey]:
        declared = run.once(declared_options)
        known = declared | KEYS_OF_LOOPS if loops_itself(run) else declared
        strays = [stray for stray in run.strays if stray.path not in known]
        return [*strays, *dropped_keys(run)]

    def skeleton(self, start: Start) -> Skeleton:
        """TRL/scripts/sft.py. Weights are loaded in float32 unless told otherwise (TRL/trainer/model_config.py
        dtype), which frozen ones need not be."""
        text = _SKELETON.format(model=start.model)
        dtype = {"bf16": "bfloat16", "fp16": "float16"}[start.compute]
        text += f"dtype: {dtype}\n" if start.method != "full" else ""
        text += FSDP_BLOCK if start.shard == "fsdp" else zero_block(start.shard)
        # TRL/cli: the options of `accelerate launch` go with the script's own.
        ranks = f" --num_processes {start.ranks}" if start.ranks > 1 else ""
        return Skeleton("trl-sft.yaml", text, f"trl sft --config {{file}}{ranks}", "dataset_name")

    def express(self, changes: Wishes, run: Cells) -> dict[Any, Any]:
        check_own_options(changes, run)
        own = trainer_wishes(changes, run)
        own = with_same_round(own, run, trl.steps_per_generation)
        _check_length(own, run)
        _check_evaluation(own, run)
        _check_groups(own, run)
        return writable(own, run, self.name)


class TrlScript(Dialect):
    """The Python script of a command, where its parser alone tells that its options are TRL's."""

    name = "trl-script"
    suffixes = ()
    any_text: ClassVar[bool] = True

    def recognise(self, document: Document) -> Iterable[Claim]:
        return ()

    def adopt(self, document: Document) -> Claim | None:
        return Claim(self, "part", document, ()) if parsed_config(document) else None


class TrlRecipeScript(TrlScript):
    """Such a script whose parser takes a YAML of these options besides."""

    name = "trl-recipe-script"

    def adopt(self, document: Document) -> Claim | None:
        options = parser_of(document)
        return super().adopt(document) if options is not None and options.takes_a_file else None


def _told_by_parser(claim: Claim, objective: str) -> Claim:
    """A script's claim with what its parser's class says is trained: the trainer is of the
    project's own, whose name tells nothing."""
    nowhere = Mapping(Span(0, 0), {})
    told = Block(claim.document, nowhere, CALLS[objective], claim.blocks[-1].anchor)
    return replace(claim, blocks=(told, *claim.blocks))


def _check_length(own: Wishes, run: Cells) -> None:
    """The key that would be written is ``max_length``, unless the older one alone stands there."""
    blocks = [block for block in run.blocks if block.table is TRL]
    is_older = any(block.find("max_seq_length") for block in blocks) and not any(
        block.find("max_length") for block in blocks
    )
    if f.seq.max_len in own and blocks and not is_older and drops_max_length(run):
        raise CannotEdit("this release of TRL has no max_length, only max_seq_length")


def _check_evaluation(own: Wishes, run: Cells) -> None:
    """TRL f2cd5771 trainer/grpo_config.py __post_init__ stops where a batch of evaluation over all ranks holds no
    whole groups of answers to a prompt; rloo_config.py does so too."""
    size, group = own.get(f.batch.eval_micro), run[f.objective.rollout.n]
    if run[f.objective.kind] not in ("grpo", "rloo") or size is None or not group:
        return
    if (size * (run[f.parallel.world] or 1)) % group:
        raise CannotEdit(f"a batch of evaluation must hold groups of {group} answers")


def _check_groups(own: Wishes, run: Cells) -> None:
    """Until TRL 0.16 GRPO stops where a micro batch over all ranks holds no whole groups of answers to a prompt,
    however many are accumulated. ``vllm_device`` is a key that 0.18 has no more."""
    group, ranks = run[f.objective.rollout.n], _ranks_after(own, run)
    size = own.get(f.batch.micro, run[f.batch.micro])
    is_changed = f.batch.micro in own or ranks != (run[f.parallel.world] or 1)
    if run[f.objective.kind] != "grpo" or not is_changed or size is None or not group:
        return
    if brings_own_trainer(run):
        # A copy of GRPOTrainer in the project is mostly of that time (VLM-R1, R1-V); where it took what there is
        # by another count, that one goes on.
        was = (run[f.batch.micro] or 1) * (run[f.parallel.world] or 1)
        if was % group == 0 and size * ranks % group:
            raise CannotEdit(
                f"the project's own trainer may want groups of {group} answers in a micro batch"
            )
        return
    counts_round = run.made(GROUPS_BY_ROUND)
    if counts_round is None:
        counts_round = all(block.find("vllm_device") is None for block in run.blocks)
    if not counts_round and size * ranks % group:
        raise CannotEdit(f"before TRL 0.17 a micro batch must hold groups of {group} answers")


def _ranks_after(own: Wishes, run: Cells) -> int:
    """How many ranks there are once wishes are granted."""
    of_node, total = own.get(f.parallel.gpus_per_node), own.get(started.total_processes)
    if of_node is not None:
        return int(of_node) * (run[f.parallel.nodes] or 1)
    return int(total) if total is not None else run[f.parallel.world] or 1


# An option of ms-swift, whose files have no such data; elsewhere a loss is called so.
_ELSEWHERE = frozenset({"sft_type"})


def _is_trl(keys: set[str]) -> bool:
    foreign = keys & (
        FOREIGN_KEYS - _ELSEWHERE if keys.intersection(HANDBOOKS_DATA) else FOREIGN_KEYS
    )
    return (
        "model_name_or_path" in keys
        and len(keys & TRAINING_KEYS) >= 1
        and bool(keys & _OF_TRL)
        and not foreign
    )


def _env_blocks(document: Document, root: Mapping) -> Iterator[Block]:
    """``env:`` sets environment variables before anything is loaded."""
    variables = root.section("env")
    if variables is not None:
        yield Block(document, variables, ENVIRONMENT, root.entries["env"].key_span, "env")


def _config_file(launch: Launch) -> Iterator[Reference]:
    entry = launch.flag("config")
    if entry is not None:
        yield from launch.reference(entry.value, "trl")
    elif launch.arguments and is_yaml(launch.arguments[0]):
        yield from launch.reference(launch.arguments[0], "trl")


def _accelerate_config(launch: Launch) -> Iterator[Reference]:
    """``--accelerate_config``: a file, or the name of one that TRL ships (TRL/cli/accelerate_config.py)."""
    entry = launch.flag("accelerate_config") or launch.flag("config_file")
    if entry is None or not isinstance(entry.value, Scalar):
        return
    shipped = entry.value.value in _SHIPPED
    yield from launch.reference(entry.value, "trl" if shipped else "accelerate")


# TRL f2cd5771 accelerate_configs/*.yaml, whole but for a comment.
_HEAD = "compute_environment: LOCAL_MACHINE\ndebug: false\n"
_TAIL = (
    "downcast_bf16: 'no'\nmachine_rank: 0\nmain_training_function: main\nmixed_precision: bf16\n"
    "num_machines: 1\nnum_processes: 8\nrdzv_backend: static\nsame_network: true\ntpu_env: []\n"
    "tpu_use_cluster: false\ntpu_use_sudo: false\nuse_cpu: false\n"
)
_ZERO_TEXT = (
    _HEAD + "distributed_type: DEEPSPEED\n" + _TAIL + "deepspeed_config:\n"
    "  deepspeed_multinode_launcher: standard\n"
)
_NO_OFFLOAD = "  offload_optimizer_device: none\n  offload_param_device: none\n"
_FSDP_TEXT = (
    _HEAD + "distributed_type: FSDP\nenable_cpu_affinity: false\n" + _TAIL + "fsdp_config:\n"
    "  fsdp_activation_checkpointing: false\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
    "  fsdp_cpu_ram_efficient_loading: true\n  fsdp_offload_params: false\n"
    "  fsdp_state_dict_type: FULL_STATE_DICT\n"
)
_SHIPPED = {
    "single_gpu": _HEAD + "distributed_type: 'NO'\ngpu_ids: all\n" + _TAIL,
    "multi_gpu": _HEAD + "distributed_type: MULTI_GPU\ngpu_ids: all\n" + _TAIL,
    "zero1": _ZERO_TEXT
    + "  gradient_accumulation_steps: 1\n  zero3_init_flag: false\n  zero_stage: 1\n",
    "zero2": _ZERO_TEXT + _NO_OFFLOAD + "  zero3_init_flag: false\n  zero_stage: 2\n",
    "zero3": _ZERO_TEXT
    + _NO_OFFLOAD
    + "  zero3_init_flag: true\n  zero3_save_16bit_model: true\n  zero_stage: 3\n",
    "fsdp1": _FSDP_TEXT + "  fsdp_backward_prefetch: BACKWARD_PRE\n  fsdp_forward_prefetch: true\n"
    "  fsdp_reshard_after_forward: FULL_SHARD\n  fsdp_sync_module_states: true\n"
    "  fsdp_use_orig_params: true\n  fsdp_version: 1\n",
    "fsdp2": _FSDP_TEXT + "  fsdp_reshard_after_forward: true\n  fsdp_version: 2\n",
}
