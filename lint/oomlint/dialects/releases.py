"""What the libraries under a Trainer do otherwise from a release on, where it moves memory.

DeepSpeed's defaults of buckets, overlapping and gathering are the same from 0.8.3 to 0.19.5
(runtime/zero/config.py), so that none stands here.
"""

from __future__ import annotations

from oomlint.plan.library_changes import LibraryChange

# -- transformers ----------------------------------------------------------------------------------

FSDP2_BY_DEFAULT = LibraryChange(
    "transformers",
    (5, 10),
    "the Trainer starts FSDP1, and wraps blocks only where it is asked to",
    "transformers 5.9.0 and 5.10.1 training_args.py _process_fsdp_args",
    was=1,
)
CHECKPOINT_DTYPE = LibraryChange(
    "transformers",
    (5, 0),
    "from_pretrained loads in fp32 where no dtype is named",
    "transformers 4.57.1 and 5.0.0 modeling_utils.py from_pretrained",
    after="from_pretrained loads in the dtype of the checkpoint, unless the script passes None",
)
NUMBERED_DEVICE = LibraryChange(
    "transformers",
    (5, 0),
    'device_map="cuda" is no device that the Trainer counts as its own: it trains on one GPU',
    "transformers 4.57.1 modeling_utils.py from_pretrained, 5.0.0 integrations/accelerate.py "
    "check_and_set_device_map (cuda:LOCAL_RANK); trainer.py is_model_parallel",
)
NOT_REENTRANT = LibraryChange(
    "transformers",
    (5, 0),
    "checkpointing is reentrant by default",
    "transformers 4.57.1 and 5.0.0 modeling_utils.py gradient_checkpointing_enable",
)
INPUT_GRADS = LibraryChange(
    "transformers",
    (5, 0),
    "checkpointing asks gradients of what is embedded of models with adapters alone",
    "transformers 4.57.1 and 5.0.0 modeling_utils.py gradient_checkpointing_enable",
)
FUSED_OPTIMIZER = LibraryChange(
    "transformers",
    (4, 54),
    "the default optimizer is adamw_torch, which steps with foreach",
    "transformers 4.53.3 and 4.54.0 training_args.py default_optim",
    was="adamw_torch",
)

FSDP_READS_ONCE = LibraryChange(
    "transformers",
    (4, 32),
    "every rank of FSDP reads the whole model into RAM, whatever Accelerate's config says",
    "transformers 4.31.0 and 4.32.0 modeling_utils.py is_fsdp_enabled",
)

EVALUATES_FUSED = LibraryChange(
    "transformers",
    (5, 15),
    "Liger fuses the loss in training alone, so that evaluation makes all logits",
    "transformers 5.14.0 and 5.15.0 trainer.py prediction_step: skip_logits",
)
SDPA = LibraryChange(
    "transformers",
    (4, 36),
    "attention is computed step by step, with all its scores in memory",
    "transformers' release notes of 4.36: PyTorch's scaled_dot_product_attention by default",
)

# -- torch -----------------------------------------------------------------------------------------

FUSED_WITH_TORCH = LibraryChange(
    "torch",
    (2, 8),
    "the Trainer's default optimizer is adamw_torch, which steps with foreach",
    "transformers 4.54.0 training_args.py default_optim: fused from torch 2.8 on",
    was="adamw_torch",
)
FUSED_BY_TRAINER = (FUSED_OPTIMIZER, FUSED_WITH_TORCH)
"""What brought about that the Trainer's default optimizer is ``adamw_torch_fused``."""

# -- accelerate ------------------------------------------------------------------------------------

FSDP1_UPCASTS = LibraryChange(
    "accelerate",
    (0, 30),
    "FSDP keeps trained weights in the dtype they were loaded in",
    "accelerate 0.29.3 and 0.30.1 accelerator.py prepare_model",
)
# 1.13.0 means to, but casts a copy of each parameter that it then drops.
FSDP2_UPCASTS = LibraryChange(
    "accelerate",
    (1, 14),
    "FSDP2 keeps trained weights in the dtype they were loaded in",
    "accelerate 1.13.0 and 1.14.0 utils/fsdp_utils.py fsdp2_prepare_model",
)
FSDP2_LEAVES_FROZEN = LibraryChange(
    "accelerate",
    (1, 13),
    "FSDP2 makes the whole model fp32, frozen weights too",
    "accelerate 1.6.0, 1.12.0 and 1.13.0 utils/fsdp_utils.py fsdp2_prepare_model",
)
FSDP2_WRAPS_ENDS = LibraryChange(
    "accelerate",
    (1, 14),
    "FSDP2 has embedding and head in the root's unit",
    "accelerate 1.13.0 and 1.14.0 utils/fsdp_utils.py fsdp2_prepare_model",
)
FSDP2_WAITS = LibraryChange(
    "accelerate",
    (1, 11),
    "FSDP2 reduces the gradients of every micro batch, so that they are never kept whole",
    "accelerate 1.10.0 and 1.11.0 accelerator.py no_sync",
)

# -- DeepSpeed -------------------------------------------------------------------------------------

BF16_BELOW_STAGE_1 = LibraryChange(
    "deepspeed",
    (0, 17, 6),
    "below stage 1 the BF16_Optimizer shards masters and states, and keeps fp32 gradients",
    "DeepSpeed 0.17.5 and 0.17.6 runtime/engine.py _do_optimizer_sanity_check, get_data_types",
)
PINS_OFFLOADED = LibraryChange(
    "deepspeed",
    (0, 19, 5),
    "offloaded states are pinned where nobody says otherwise",
    "DeepSpeed 0.19.4 and 0.19.5 runtime/zero/offload_config.py: pin_memory",
)

# -- peft ------------------------------------------------------------------------------------------

FP32_ADAPTERS = LibraryChange(
    "peft",
    (0, 12),
    "adapters have the dtype of the weights that they stand beside",
    "peft 0.11.1 and 0.12.0 mapping.py get_peft_model: autocast_adapter_dtype",
)

# -- liger-kernel ----------------------------------------------------------------------------------

# Of itself every release, 0.2.1 to 0.8.2, fuses the loss `if self.training`.
SKIPS_LOGITS = LibraryChange(
    "liger-kernel",
    (0, 6),
    "its models fuse the loss in training alone, so that evaluation makes all logits",
    "liger-kernel 0.5.10 and 0.6.0 transformers/model/qwen2.py lce_forward: skip_logits",
)

# -- TRL -----------------------------------------------------------------------------------------

KEEPS_SHARED = LibraryChange(
    "trl",
    (0, 25),
    "activation offloading moves what several operations save once for each of them",
    "TRL 0.24.0 and 0.25.0 models/activation_offloading.py pack_tensor",
)
