"""Frames that decide what a death is made of: the line that asked for memory says what for.

A phase only narrows it down. ``logits = logits.float()`` is the logits, whatever a config says. Sources
of the names, beside each row: transformers at 0114da0, accelerate at 01a1ffc, torch at 0202916
(``amp``) and 002d2f0 (``optim``), DeepSpeed at 38327e0, TRL at f2cd577, verl at b178a3c.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from oomlint.diagnose.phases import Phase, read_frame


class FrameKind(Struct, frozen=True, eq=False):
    """A kind of frame. ``functions`` are names of functions, ``files`` narrows them down where a name
    alone means too much; ``code`` is of the line that a traceback quotes, in any function."""

    name: str
    words: str
    """What happens there, to stand after "where"."""
    rules: tuple[str, ...]
    """Names of the rules that it speaks for, the likeliest first."""
    source: str
    phases: frozenset[Phase]
    """Further in than the frame something else may run; by then the run is in another phase."""
    functions: frozenset[str] = frozenset()
    files: re.Pattern[str] | None = None
    code: re.Pattern[str] | None = None
    is_the_rule: bool = False
    """Whether the frame is what the first rule is about, whatever the config says."""


class Frame(Struct, frozen=True, eq=False):
    """The frame of one traceback that decides."""

    row: FrameKind
    file: str
    function: str
    code: str

    @property
    def place(self) -> str:
        return f"{self.file} in {self.function}"


_STEP: frozenset[Phase] = frozenset({"forward", "backward", "train", "evaluation"})
_OPTIMIZER: frozenset[Phase] = frozenset({"optimizer_step", "load", "train"})
_SAVE: frozenset[Phase] = frozenset({"save", "load"})


def _row(
    name: str,
    words: str,
    rules: str,
    source: str,
    phases: frozenset[Phase],
    functions: str = "",
    files: str | None = None,
    code: str | None = None,
    *,
    is_the_rule: bool = False,
) -> FrameKind:
    return FrameKind(
        name=name,
        words=words,
        rules=tuple(rules.split()),
        source=source,
        phases=phases,
        functions=frozenset(functions.split()),
        files=None if files is None else re.compile(files),
        code=None if code is None else re.compile(code),
        is_the_rule=is_the_rule,
    )


# Where several rows fit a frame, the first counts.
ROWS: tuple[FrameKind, ...] = (
    _row(
        "logits-upcast",
        "the logits are copied to fp32",
        "logits-materialized-large-vocab micro-batch-too-large",
        "transformers loss/loss_utils.py:55; models before 4.46 in their own forward",
        _STEP,
        # Not those of a router or of attention.
        code=r"\b(?:shift_|lm_|output_|flat_)?logits\w*\.(?:float\(\)|to\((?:dtype=)?torch\.float32\))",
        is_the_rule=True,
    ),
    _row(
        "outputs-upcast",
        "the outputs of the model, the logits above all, are copied to fp32",
        "logits-materialized-large-vocab micro-batch-too-large",
        "accelerate utils/operations.py convert_to_fp32, around forward under mixed precision",
        _STEP,
        "convert_to_fp32 _convert_to_fp32",
        is_the_rule=True,
    ),
    _row(
        "log-probabilities",
        "the log-probabilities of the tokens are taken over the vocabulary",
        "logprob-micro-batch-too-large logits-materialized-large-vocab "
        "preference-pair-doubles-batch",
        "TRL trainer/utils.py:479, trainer/grpo_trainer.py:1435; verl utils/torch_functional.py:72",
        _STEP | {"rollout"},
        "selective_log_softmax _get_per_token_logps _get_per_token_logps_and_entropies "
        "logprobs_from_logits logprobs_from_logits_v2 logprobs_from_logits_naive "
        "logprobs_from_logits_flash_attn entropy_from_logits get_batch_logps",
    ),
    _row(
        "loss",
        "the loss is computed over the vocabulary",
        "logits-materialized-large-vocab micro-batch-too-large",
        "transformers loss/loss_utils.py:36, 45; torch nn/functional.py cross_entropy",
        _STEP,
        "cross_entropy fixed_cross_entropy ForCausalLMLoss log_softmax nll_loss",
        is_the_rule=True,
    ),
    _row(
        "evaluation-outputs",
        "the outputs of evaluation are joined, batch after batch",
        "eval-logits-accumulate eval-batch-larger-than-train",
        "transformers trainer_pt_utils.py nested_concat, torch_pad_and_concatenate; accelerate "
        "utils/operations.py _gpu_gather",
        frozenset({"evaluation"}),
        "nested_concat torch_pad_and_concatenate distributed_concat _gpu_gather _gpu_gather_one "
        "gather_for_metrics gather_function pad_across_processes _pad_across_processes",
        is_the_rule=True,
    ),
    _row(
        "evaluation-outputs",
        "the outputs of evaluation are joined, batch after batch",
        "eval-logits-accumulate eval-batch-larger-than-train",
        "transformers trainer_pt_utils.py torch_pad_and_concatenate",
        frozenset({"evaluation"}),
        files=r"(?:trainer|eval|metric)[^/]*\.py$",
        code=r"\btorch\.(?:cat|concat|stack)\(",
        is_the_rule=True,
    ),
    _row(
        "unscale",
        "the gradients are scaled back",
        "gpu-states-over-budget zero-stage-too-low adam-fp32-states-dominant",
        "torch amp/grad_scaler.py _unscale_grads_; DeepSpeed runtime/zero/stage3.py:2178, "
        "runtime/fp16/fused_optimizer.py:355",
        _OPTIMIZER,
        "_unscale_grads_ unscale_ unscale_and_clip_grads unscale_gradients",
    ),
    _row(
        "foreach",
        "the optimizer steps over all parameters at once, with a temporary for each",
        "foreach-optimizer-temp-peak adam-fp32-states-dominant zero-stage-too-low",
        "torch optim/adamw.py _multi_tensor_adamw",
        _OPTIMIZER,
        "_multi_tensor_adamw _multi_tensor_adam _multi_tensor_sgd",
    ),
    _row(
        "optimizer-states",
        "the states of the optimizer are made",
        "adam-fp32-states-dominant zero-stage-too-low gpu-states-over-budget",
        "torch optim/adamw.py _init_group; DeepSpeed runtime/zero/stage3.py:832, 1027",
        _OPTIMIZER,
        "_init_group init_state_per_param initialize_optimizer_states _create_fp32_partitions "
        "_setup_for_real_optimizer",
    ),
    _row(
        "optimizer-resume",
        "the states of the optimizer are loaded from a checkpoint",
        "resume-optimizer-load-oom save-optimizer-states",
        "torch optim/optimizer.py load_state_dict; DeepSpeed runtime/zero/stage3.py:2649",
        _OPTIMIZER,
        "load_state_dict _rigid_load_state_dict _process_value_according_to_param_policy "
        "_load_optimizer_and_scheduler",
        r"torch/optim/|zero/stage|trainer\.py|_optimizer\.py",
    ),
    _row(
        "optimizer-step",
        "the optimizer takes its step",
        "adam-fp32-states-dominant zero-stage-too-low foreach-optimizer-temp-peak",
        "torch optim/adamw.py step; DeepSpeed runtime/zero/stage3.py:972",
        frozenset({"optimizer_step"}),
        "step _optimizer_step update_step",
        r"torch/optim/|bitsandbytes/optim|zero/stage|_optimizer\.py|ops/adam|torchao/optim",
    ),
    _row(
        "state-dict",
        "a state dict is put together on the GPU",
        "fsdp-state-dict-on-gpu zero3-save-gpu-headroom fsdp-full-state-dict-save",
        "DeepSpeed runtime/engine.py:3693; torch distributed/fsdp/_state_dict_utils.py",
        _SAVE,
        "state_dict _zero3_consolidated_16bit_state_dict _consolidated_16bit_state_dict "
        "get_state_dict get_model_state_dict _full_pre_state_dict_hook _full_post_state_dict_hook "
        "full_optim_state_dict optim_state_dict gather_full_state_dict",
    ),
    _row(
        "gathered-parameters",
        "sharded parameters are gathered",
        "zero3-live-params-oversized fsdp-wrap-missing fsdp-limit-all-gathers-off "
        "zero3-save-gpu-headroom",
        "DeepSpeed runtime/zero/partition_parameters.py:1200, 1735, 1789, 1895; torch "
        "distributed/fsdp/_flat_param.py _all_gather_flat_param",
        _STEP | _SAVE | {"optimizer_step", "rollout"},
        "all_gather_coalesced _allgather_param _allgather_params _allgather_params_coalesced "
        "_all_gather_flat_param _alloc_padded_unsharded_flat_param foreach_all_gather "
        "all_gather_into_tensor all_gather",
        r"partition_parameters|fsdp|zero/",
    ),
    _row(
        "reduced-gradients",
        "gradients are put together to be reduced",
        "ds-bucket-oversized zero-stage-too-low",
        "DeepSpeed runtime/zero/stage_1_and_2.py:1365, runtime/zero/stage3.py:1372",
        _STEP,
        "reduce_ipg_grads __avg_scatter_grads allreduce_bucket flatten_dense_tensors_aligned",
    ),
    _row(
        "weights",
        "the weights are loaded",
        "replica-too-big-for-one-gpu model-loaded-in-fp32 device-map-auto-under-launcher "
        "rank0-gpu-skew",
        "transformers modeling_utils.py from_pretrained; TRL trainer/utils.py:1123",
        frozenset({"load"}),
        "from_pretrained _load_pretrained_model _load_state_dict_into_meta_model "
        "_load_state_dict_into_model set_module_tensor_to_device create_quantized_param "
        "create_model_from_path load_model",
    ),
)


def deciding_frame(lines: Sequence[str], phase: Phase | None) -> Frame | None:
    """The innermost frame of a traceback that decides, in a run that is in this phase; ``lines`` are
    its frames (outermost first), each with the code that it quotes below."""
    if phase is None:
        return None
    for number in range(len(lines) - 1, -1, -1):
        read = read_frame(lines[number])
        if read is None:
            continue
        file, function = read
        code = _quoted(lines[number + 1 : number + 3])
        for row in ROWS:
            if phase in row.phases and _fits(row, file, function, code):
                return Frame(row, file.rpartition("/")[2], function, code)
    return None


def _fits(row: FrameKind, file: str, function: str, code: str) -> bool:
    if row.files is not None and not row.files.search(file):
        return False
    if row.code is not None and row.code.search(code):
        return True
    return function in row.functions


# What ranks, elastic and IPython put before a line.
_BEFORE = re.compile(r"^(?:\[[\w:.-]{1,40}\]:?\s*)+|^[\s│>❱-]*(?:\d+\s)?")
_LONGEST_CODE = 160


def _quoted(lines: Iterable[str]) -> str:
    """The line of code below a frame; empty where a traceback quotes none."""
    for line in lines:
        code = _BEFORE.sub("", line[: _LONGEST_CODE * 2]).strip()
        if read_frame(line) is not None:
            return ""
        if code and code.strip("^~ "):
            return code[:_LONGEST_CODE]
    return ""
