"""What a run was doing: from the frames of a traceback, else from the last lines of the log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

Phase = Literal[
    "data", "load", "train", "forward", "backward", "optimizer_step", "evaluation", "save",
    "rollout",
]  # fmt: skip
"""The phases of the memory model, and: ``data`` before the model, ``train`` where nothing says
which part of a step, ``rollout`` in a generation engine."""

PHASE_WORDS: Mapping[str, str] = {
    "data": "while preparing the data",
    "load": "while loading the model or setting up",
    "train": "while training",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer_step": "in the optimizer step",
    "evaluation": "in evaluation",
    "save": "while saving",
    "rollout": "in the generation engine",
}

# `File "trainer.py", line 1, in f`; IPython's `File a/trainer.py:1, in T.f(self)` and `a/trainer.py
# in f(self)`; rich's `│ a/trainer.py:1 in f`.
_FRAME = re.compile(
    r"""File\ "(?P<file>[^"]+)",\ line\ \d+,\ in\ (?P<name>[\w<>.]+)
      | File\ (?P<file2>\S+):\d+,\ in\ (?P<name2>[\w.]+)
      | (?P<file3>/\S+\.py):\d+\ in\s+(?P<name3>[\w<>.]+)
      | (?P<file4>/\S+\.py)\ in\ (?P<name4>\w+)\(""",
    re.VERBOSE,
)

_LONGEST_FRAME = 1000

# Functions that set the phase, by what they are called, or by the file that they are in. Sources:
# transformers/trainer.py, accelerate/accelerator.py, deepspeed/runtime, torch, trl, torchtune and
# torchtitan recipes, verl/workers, Lightning.
_BY_PHASE: Mapping[Phase, str] = {

    "data": "map _map_single load_dataset get_dataset iflatmap_unordered preprocess_dataset "
            "_prepare_dataset prepare_dataset load_and_prepare_dataset",
    "load": "from_pretrained _load_pretrained_model _load_state_dict_into_meta_model "
            "_load_state_dict_into_model set_module_tensor_to_device load_model "
            "_move_model_to_device _prepare_deepspeed prepare_model _prepare_fsdp2 "
            "fully_shard deepspeed_init initialize load_state_dict load_checkpoint "
            "_load_from_checkpoint resume_from_checkpoint setup_model _setup_model "
            "merge_and_unload load_file torch_load post_init prepare_model_for_kbit_training "
            "create_quantized_param get_model init_model build_model",
    "forward": "training_step compute_loss forward forward_step train_step forward_backward "
               "_loss_step cross_entropy",
    "backward": "backward run_backward _engine_run_backward backward_step",
    "optimizer_step": "optimizer_step _take_model_step _optimizer_step "
                      "_init_group _multi_tensor_adamw _multi_tensor_adam _fused_adamw "
                      "_single_tensor_adamw clip_grad_norm_ initialize_optimizer_states "
                      "update_step _maybe_opt_step unscale_ _unscale_grads_ unscale_gradients "
                      "unscale_and_clip_grads _update_actor_optimizer",
    "evaluation": "evaluate evaluation_loop prediction_loop prediction_step predict "
                  "_evaluate validate validation_step _run_validation nested_concat "
                  "eval_step run_evaluation",
    "save": "save_model _save_checkpoint save_checkpoint save_pretrained _save save_state "
            "_zero3_consolidated_16bit_state_dict save_16bit_model "
            "_consolidated_16bit_state_dict get_state_dict _save_to_state_dict "
            "gather_full_state_dict gather_cpu_state_dict save_fsdp_model save_fsdp_optimizer "
            "_full_pre_state_dict_hook full_optim_state_dict optim_state_dict "
            "save_model_checkpoint fsdp_save_ckpt save_ckpt convert_zero_checkpoint_to_fp32 "
            "_save_optimizer_and_scheduler state_dict save_hf_checkpoint",
    "rollout": "generate_sequences determine_num_available_blocks determine_available_memory "
               "initialize_cache _initialize_kv_caches profile_run capture_model "
               "check_enough_kv_cache_memory _generate_and_score_completions "
               "raise_if_cache_size_invalid wake_up",
}  # fmt: skip
_FUNCTIONS: Mapping[str, Phase] = {
    name: phase for phase, names in _BY_PHASE.items() for name in names.split()
}
# `step` alone means too much; in these files it is the optimizer's.
_OPTIMIZER_FILES = re.compile(
    r"torch/optim/|bitsandbytes/optim|apex/optimizers|/lr_scheduler\.py|accelerate/optimizer\.py|"
    r"zero/stage|ops/adam|fused_optimizer\.py|bf16_optimizer\.py|torchao/optim|galore"
)

# Once in one of these, a forward pass within belongs to it; a backward pass recomputes layers.
_STICKY: frozenset[str] = frozenset({"evaluation", "save", "load", "rollout", "data"})
_WITHIN: Mapping[str, frozenset[str]] = {"backward": frozenset({"forward"})}


def phase_of_frames(lines: Iterable[str]) -> tuple[Phase, str] | None:
    """The phase that a traceback's frames (outermost first) end in, and the frame that says so."""
    found: tuple[Phase, str] | None = None
    for line in lines:
        read = read_frame(line)
        if read is None:
            continue
        file, name = read
        phase = _phase_of(file, name)
        if phase is None or (found is not None and not _replaces(found[0], phase)):
            continue
        found = (phase, f"{file.rpartition('/')[2]} in {name}")
    return found


def _phase_of(file: str, name: str) -> Phase | None:
    if name == "step" and _OPTIMIZER_FILES.search(file):
        return "optimizer_step"
    if name == "__init__" and file.endswith(("trainer.py", "partition_parameters.py")):
        return "load"
    if name == "map" and "dataset" not in file:
        return None
    return _FUNCTIONS.get(name)


def _replaces(now: Phase, then: Phase) -> bool:
    """Whether an inner frame's phase says more than that of the frames around it."""
    if now in _STICKY:
        # Loading the best model back, or saving, may happen inside of anything.
        return then in ("save", "rollout") and now != then
    return then not in _WITHIN.get(now, frozenset())


def is_frame(line: str) -> bool:
    return read_frame(line) is not None


def read_frame(line: str) -> tuple[str, str] | None:
    """File and function of a line of a traceback."""
    # What is longer is no frame, and would take a pattern long to tell.
    match = _FRAME.search(line[:_LONGEST_FRAME])
    if match is None:
        return None
    groups = [group for group in match.groups() if group is not None]
    return groups[0].replace("\\", "/"), groups[1].rpartition(".")[2]


# Lines that tell what begins; the needle is looked for backwards from an event.
MARKERS: tuple[tuple[bytes, Phase], ...] = (
    # transformers, datasets.
    (b"Generating train split", "data"),
    (b"Running tokenizer on", "data"),
    (b"Converting format of dataset", "data"),
    (b"Tokenizing ", "data"),
    (b"Map (num_proc", "data"),
    (b"Map:", "data"),
    (b"Loading checkpoint shards", "load"),
    (b"Loading weights:", "load"),
    (b"loading weights file", "load"),
    (b"Instantiating ", "load"),
    (b"***** Running training *****", "train"),
    (b"***** Running Evaluation *****", "evaluation"),
    (b"***** Running Prediction *****", "evaluation"),
    (b"***** Running evaluation *****", "evaluation"),
    (b"Saving model checkpoint to", "save"),
    (b"Configuration saved in", "save"),
    (b"Model weights saved in", "save"),
    (b"Saving the whole model", "save"),
    # deepspeed/runtime: engine.py, zero/*.py, checkpoint_engine.
    (b"partition_parameters.py", "load"),
    (b"ZeRO stage", "load"),
    (b"Initializing optimizer states", "load"),
    (b"initializing optimizer states", "load"),
    (b"Time to load cpu_adam", "load"),
    (b"[Torch] Saving", "save"),
    (b"is about to be saved!", "save"),
    # accelerate/utils/fsdp_utils.py, torch.distributed.checkpoint users.
    (b"Saving model to ", "save"),
    (b"Saving Optimizer state to", "save"),
    (b"Saving checkpoint", "save"),
    (b"saving checkpoint", "save"),
    (b"Saving the checkpoint", "save"),
    (b"Saving trainer state", "save"),
    # torchtune, torchtitan, litgpt, OpenRLHF.
    (b"Saving checkpoint. This may take some time", "save"),
    (b"Getting full model state dict", "save"),
    (b"Running validation", "evaluation"),
    (b"Validating ...", "evaluation"),
    # llama-recipes.
    (b"--> loading", "load"),
    (b"we are about to save", "save"),
    (b"evaluating Epoch", "evaluation"),
    # vLLM.
    (b"Initializing an LLM engine", "rollout"),
    (b"Capturing CUDA graph", "rollout"),
    (b"Processed prompts", "rollout"),
)  # fmt: skip
