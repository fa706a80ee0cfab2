"""Lengths of samples, pictures, and what reinforcement learning generates, with ``swift`` and
``megatron``.

``SW`` below is ``swift/`` of ms-swift 3602360a.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.fields import machine
from oomlint.dialects.common.generation import completions_of_round
from oomlint.dialects.machine.visible import visible_gpus
from oomlint.dialects.meaning import Bounds, Meaning
from oomlint.dialects.ms_swift.keys import BASE, OLD, RLHF, env, own
from oomlint.models.pictures import cut_of
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange

samples = Meaning()

_R = f.objective.rollout


def generates(run: Cells) -> bool:
    return run[f.objective.kind] in ("grpo", "ppo")


# -- lengths ---------------------------------------------------------------------------------------


def _is_limited(run: Cells) -> bool:
    """Whether a key or an old default says where samples end."""
    if run[own.packing] and run[own.packing_length]:
        return True
    return run.says(f.seq.max_len) or run.is_unread(f.seq.max_len) or _has_old_limit(run)


def _has_old_limit(run: Cells) -> bool:
    return bool(run[own.is_old]) and not any(block.find("max_length") for block in run.blocks)


@samples.derive(f.seq.unbounded, source=f"{BASE}:196")
def unbounded(run: Cells) -> Any:
    """Without ``max_length`` only the model's own maximum cuts samples."""
    return None if generates(run) or _is_limited(run) else True


@samples.derive(f.seq.max_len, source=f"{BASE}:196")
def whole_pack(run: Cells) -> Any:
    """Packs are filled up to the model's maximum, so it is what every step holds."""
    if not run[own.packing] or generates(run) or _is_limited(run):
        return None
    dims = run[f.model.dims]
    return None if dims is None else dims.ctx


@samples.default(f.seq.max_len, source=f"{OLD}:661")
def old_limit(run: Cells) -> Any:
    return 2048 if not generates(run) and _has_old_limit(run) else None


def _cut_at(run: Cells) -> int | None:
    """The length that samples, and prompts of what is generated, are cut to."""
    return (run[own.packing_length] if run[own.packing] else None) or run.base(f.seq.max_len)


@samples.override(f.seq.max_len)
def length_of_pack(run: Cells) -> Any:
    return run[own.packing_length] if run[own.packing] else None


@samples.override(f.seq.max_len)
def prompt_and_answer(run: Cells) -> Any:
    if not generates(run):
        return None
    prompt, answer = run[_R.max_prompt_tokens], run[_R.max_completion_tokens]
    return prompt + answer if prompt and answer else None


# -- generation ------------------------------------------------------------------------------------


@samples.derive(_R.max_prompt_tokens)
def prompts(run: Cells) -> Any:
    return _cut_at(run) if generates(run) else None


@samples.assume(_R.max_prompt_tokens, why="max_length, which cuts prompts, is not set")
def usual_prompts(run: Cells) -> Any:
    return 512 if generates(run) else None


@samples.default(_R.max_completion_tokens, source=RLHF)
def answers(run: Cells) -> Any:
    return 512 if generates(run) else None


@samples.default(_R.n, source=RLHF)
def answers_of_prompt(run: Cells) -> Any:
    return 8 if run[f.objective.kind] == "grpo" else None


@samples.derive(f.batch.micro_unit, source=RLHF)
def counts_completions(run: Cells) -> Any:
    return "completions" if run[f.objective.kind] == "grpo" else None


@samples.derive(_R.generation_batch)
def completions(run: Cells) -> Any:
    if run[f.objective.kind] != "grpo":
        return None
    return completions_of_round(run, own.steps_per_generation)


NAMES_ITS_MODE = LibraryChange(
    "ms-swift", (3, 12), "the engine is a server where its address is given, and beside training else",
    "ms-swift 3.11.0 llm/argument/rlhf_args.py _init_rollout and 3.12.0 _check_grpo, 4.6.0 arguments/rlhf_args.py",
)  # fmt: skip


HAS_NO_CARD_OF_ITS_OWN = LibraryChange(
    "ms-swift", (3, 5), "the engine takes cards of the node that training leaves",
    "ms-swift 3.4.1 llm/argument/rlhf_args.py _check_grpo, trainers/rlhf_trainer/grpo_trainer.py:260 and 3.5.0 llm/argument/rlhf_args.py:163",
)  # fmt: skip


@samples.requires
def generation_of_engine(run: Cells) -> Iterator[Bounds]:
    """Where the engine runs was said by these until 3.4; 3.5 takes them and says that it does not heed them."""
    if run.says(own.vllm_device) or run.says(own.infer_workers):
        yield "ms-swift", (), HAS_NO_CARD_OF_ITS_OWN.since


def _leaves_cards(run: Cells) -> bool:
    """Whether a node has other cards than those that train: ``vllm_device`` is ``auto``, the last ones of the node, as
    many as there are workers, unless it names them (``6``, ``cuda:6``)."""
    ranks, cards = run[f.parallel.gpus_per_node], visible_gpus(run) or run[machine.gpus_per_node]
    named = [each.rpartition(":")[2] for each in run[own.vllm_device] or ()]
    if ranks and named and all(map(str.isdecimal, named)):
        return min(map(int, named)) >= ranks
    return bool(ranks and cards and cards > ranks)


@samples.derive(_R.engine)
def engine(run: Cells) -> Any:
    """Up to 3.4 the engine has the cards that training leaves, up to 3.11 the address of a server decides; from 3.12
    on a mode has to be named."""
    if not generates(run):
        return None
    if not run[own.vllm]:
        return "hf"
    if run.has(NAMES_ITS_MODE):
        return run[own.vllm_mode] or "vllm_colocate"
    has_own = not run.has(HAS_NO_CARD_OF_ITS_OWN) and _leaves_cards(run)
    return "vllm_server" if run[own.vllm_server] or has_own else "vllm_colocate"


@samples.default(
    _R.gathers, source="ms-swift 3602360a trainers/arguments.py:164 ds3_gather_for_generation"
)
def gathers(run: Cells) -> Any:
    return True if generates(run) and run[_R.engine] == "hf" else None


def _generates_with_vllm(run: Cells) -> bool:
    return generates(run) and bool(run[own.vllm])


@samples.default(_R.gpu_mem_util, source="ms-swift 3602360a rlhf_trainers/args_mixin.py:37")
def share_of_gpu(run: Cells) -> Any:
    return 0.9 if _generates_with_vllm(run) else None


@samples.default(_R.tp, source="ms-swift 3602360a rlhf_trainers/args_mixin.py:38")
def gpus_of_engine(run: Cells) -> Any:
    return 1 if _generates_with_vllm(run) else None


@samples.derive(_R.sleep)
def sleeps(run: Cells) -> Any:
    return bool(run[own.sleep_level]) if _generates_with_vllm(run) else None


SYNCS_TENSORS = LibraryChange(
    "ms-swift", (3, 5), "a model that ZeRO-3 shards is put together whole before vLLM is given its weights",
    "ms-swift 3.4.1 and 3.5.3 trainers/rlhf_trainer/grpo_trainer.py _move_model_to_vllm",
)  # fmt: skip
SYNCS_WHOLE = LibraryChange(
    "ms-swift", (3, 10), "vLLM is given the weights of a model that is trained whole tensor by tensor",
    "ms-swift 3.9.3 trainers/rlhf_trainer/grpo_trainer.py and 3.10.3 trainers/rlhf_trainer/rollout_mixin.py _move_full_model_to_vllm",
)  # fmt: skip
WAKES_IN_PARTS = LibraryChange(
    "ms-swift", (3, 6), "vLLM wakes up with its whole share before it is given the weights",
    "ms-swift 3.5.3 and 3.6.4 trainers/rlhf_trainer/grpo_trainer.py _fast_infer",
)  # fmt: skip


@samples.default(
    _R.sync_batches, source="ms-swift 3.5 to 4.x rlhf_trainers/rollout_mixin.py: gather_if_zero3"
)
def sync_batches(run: Cells) -> Any:
    """Adapters are merged into as many parts as ``move_model_batches`` says, or the whole; a model that is trained whole
    went tensor by tensor for a while."""
    if not _generates_with_vllm(run):
        return None
    goes_whole = is_adapter_run(run) or run.has(SYNCS_WHOLE)
    if goes_whole or not run.has(SYNCS_TENSORS):
        return run[own.move_batches] or 1
    return None


@samples.default(_R.wakes_in_parts, source=WAKES_IN_PARTS.source)
def wakes_in_parts(run: Cells) -> Any:
    return run.has(WAKES_IN_PARTS) if _generates_with_vllm(run) and run[_R.sleep] else None


# -- pictures --------------------------------------------------------------------------------------


@samples.derive(
    f.model.vision.max_pixels, source="SW/model/models/qwen.py:748 compat_qwen_vl_utils"
)
def pixels(run: Cells) -> Any:
    """What qwen_vl_utils is told, which templates of other models do not ask. A number of tokens goes before one of
    pixels, which is made one of tokens where none is given."""
    tokens, dims = run[env.max_tokens], run[f.model.dims]
    cut = None if dims is None else cut_of(dims)
    if dims is None or cut is None:
        return run[env.max_pixels]
    if not (dims.arch or "").startswith("qwen"):
        return None
    return tokens * cut.pixels_a_token if tokens else run[env.max_pixels]


@samples.derive(
    f.model.vision.max_tiles,
    source="SW/template/templates/internvl.py:28, minicpm.py:166",
)
def tiles(run: Cells) -> Any:
    dims = run[f.model.dims]
    arch = (dims.arch or "") if dims is not None else ""
    if arch == "internvl":
        return run[env.max_tiles]
    return run[env.max_slices] if arch.startswith("minicpm") else None


COUNTS_IMAGES = LibraryChange(
    "ms-swift", (3, 3, 1), "images come on top of max_length, which is compared before they become tokens",
    "ms-swift 2.6.1 llm/utils/template.py _concat_and_tokenize, 3.3.0 llm/template/base.py _encode and 3.3.1 encode",
)  # fmt: skip
CUTS_IMAGES = LibraryChange(
    "ms-swift", (3, 4), "images come on top of max_length where samples are cut to it",
    "ms-swift 3.3.1 llm/template/base.py _encode and 3.4.1 _encode_truncated",
)  # fmt: skip


@samples.derive(f.model.vision.beside_limit, source=COUNTS_IMAGES.source)
def images_beside_limit(run: Cells) -> Any:
    """Of samples that a model sees one by one; packs are filled up to the limit by what they have been made of."""
    dims = run[f.model.dims]
    sees = dims is not None and dims.vision is not None
    if not sees or run[own.packing] or generates(run) or not _is_limited(run):
        return None
    if run[own.is_old] or not run.has(COUNTS_IMAGES):
        return True
    cuts = run[f.seq.truncation] == "cut"
    return (not run.has(CUTS_IMAGES)) if cuts else False


samples.takes(f.model.vision.max_frames, env.max_frames)
