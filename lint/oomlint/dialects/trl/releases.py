"""What TRL does otherwise from a release on, where it moves memory."""

from __future__ import annotations

from oomlint.plan.library_changes import LibraryChange

CHECKPOINTS = LibraryChange(
    "trl", (0, 22), "gradient checkpointing is off by default",
    "TRL 0.21.0 and 0.22.0 trainer/sft_config.py", was=False,
)  # fmt: skip
MIXES_PRECISION = LibraryChange(
    "trl", (0, 19), "bf16 is off by default",
    "TRL 0.18.2 and 0.19.0 trainer/sft_config.py", was=False,
)  # fmt: skip
PACKS_APART = LibraryChange(
    "trl", (0, 19), "packed samples are cut from one run of tokens and told apart by nothing",
    "TRL 0.18.0 and 0.19.0 data_utils.py pack_dataset, trainer/sft_config.py packing_strategy",
)  # fmt: skip
HAS_MAX_LENGTH = LibraryChange(
    "trl", (0, 16), "SFTConfig has max_seq_length alone",
    "TRL 0.15.2 and 0.16.0 trainer/sft_config.py",
)  # fmt: skip
FUSES_BY_KERNEL = LibraryChange(
    "trl", (0, 25), "use_liger_kernel leaves the loss of DPO, KTO and GRPO as it is: use_liger_loss fuses it",
    "TRL 0.24.0 and 0.25.1 trainer/grpo_trainer.py, dpo_trainer.py and kto_trainer.py",
)  # fmt: skip
CHUNKS_LOSS = LibraryChange(
    "trl", (1, 7), "the loss is computed from all logits at once (loss_type nll)",
    "TRL 1.6.0 and 1.7.0 trainer/sft_config.py __post_init__",
)  # fmt: skip
LOADS_FP32 = LibraryChange(
    "trl", (0, 27), "the dtype of the weights is left to transformers",
    "TRL 0.26.2 and 0.27.0 trainer/model_config.py",
)  # fmt: skip
PLACES_BY_RANK = LibraryChange(
    "trl", (0, 27), "a device_map of model_init_kwargs is taken by each rank",
    "TRL 0.26.2 and 0.27.0 trainer/grpo_trainer.py",
)  # fmt: skip
# Until 0.24 peft's prepare_model_for_kbit_training runs; 0.25 has one of its own for norms alone.
SFT_LEAVES_ENDS = LibraryChange(
    "trl", (0, 25), "what QLoRA does not quantize becomes fp32",
    "TRL 0.24.0 and 0.25.0 models/utils.py prepare_peft_model",
)  # fmt: skip
# What ran before the release came (huggingface/blog 4bit-transformers-bitsandbytes.md, of 2023-05-24) left 4 bits alone.
PREPARES_4_BITS = LibraryChange(
    "trl", (0, 4, 2), "SFTTrainer prepares 8-bit weights alone",
    "TRL pull request 396 and 0.4.2 trainer/sft_trainer.py: is_loaded_in_4bit",
)  # fmt: skip
CHECKPOINTS_AS_TOLD = LibraryChange(
    "trl", (0, 7, 2), "SFTTrainer checkpoints quantized weights that it adapts, whatever it is told",
    "TRL 0.7.1 and 0.7.2 trainer/sft_trainer.py: prepare_model_for_int8_training(model)",
)  # fmt: skip
CASTS_ADAPTERS = LibraryChange(
    "trl", (0, 7, 5), "adapters of QLoRA stay fp32",
    "TRL 0.7.4 and 0.7.6 trainer/sft_trainer.py: peft_module_casting_to_bf16",
)  # fmt: skip
CASTS_ALL_ADAPTERS = LibraryChange(
    "trl", (0, 26), "adapters of QLoRA become bf16 beside 4-bit weights and with bf16 alone",
    "TRL 0.25.1 models/utils.py prepare_peft_model and 0.26.0 trainer/sft_trainer.py",
)  # fmt: skip
DPO_LEAVES_ENDS = LibraryChange(
    "trl", (0, 29), "what QLoRA does not quantize becomes fp32",
    "TRL 0.28.0 and 0.29.0 trainer/dpo_trainer.py",
)  # fmt: skip
DPO_CUTS_LOGITS = LibraryChange(
    "trl", (0, 29), "DPO copies no logits",
    "TRL 0.28.0 and 0.29.0 trainer/dpo_trainer.py: logits[..., :-1, :].contiguous()",
)  # fmt: skip
DPO_COPIES_NO_LOGITS = LibraryChange(
    "trl", (1, 6), "DPO copies the logits of policy and reference, cut by one token",
    "TRL 1.5.1 and 1.6.0 trainer/dpo_trainer.py (pull request 5926)",
)  # fmt: skip
FUSES_HEAD = LibraryChange(
    "trl", (1, 15), "the loss is computed from logits, and not tile by tile with the head",
    "TRL 1.14.2 and 1.15.0 trainer/utils.py add_fused_lm_head",
)  # fmt: skip
REFUSES_DATA_PARALLEL = LibraryChange(
    "trl", (1, 15), "one process drives several GPUs with DataParallel",
    "TRL 1.14.0 and 1.15.0 trainer/sft_trainer.py, and of DPO, KTO, GRPO and RLOO: args.n_gpu > 1",
)  # fmt: skip
REFUSES_DATA_PARALLEL_OF_REWARDS = LibraryChange(
    "trl", (1, 16), "one process drives several GPUs with DataParallel",
    "TRL 1.15.0 and 1.16.0 trainer/reward_trainer.py: args.n_gpu > 1",
)  # fmt: skip
GRPO_NEEDS_NO_REFERENCE = LibraryChange(
    "trl", (0, 19), "beta is 0.04, which needs a reference model",
    "TRL 0.18.2 and 0.19.0 trainer/grpo_config.py", was=0.04,
)  # fmt: skip
# What is computed beforehand needed no second model at first, then one that stays, then none again.
LOADS_REFERENCE = LibraryChange(
    "trl", (0, 29), "DPO loads no reference whose log probabilities are computed beforehand",
    "TRL 0.28.0 and 0.29.0 trainer/dpo_trainer.py",
)  # fmt: skip
SPARES_REFERENCE = LibraryChange(
    "trl", (1, 2), "DPO keeps a reference whose log probabilities are computed beforehand",
    "TRL 1.1.0 and 1.2.0 trainer/dpo_trainer.py",
)  # fmt: skip
LOADS_REFERENCE_UNDER_FSDP = LibraryChange(
    "trl", (1, 15), "under FSDP nothing is loaded to compute a reference beforehand",
    "TRL 1.14.0 and 1.15.0 trainer/dpo_trainer.py",
)  # fmt: skip
STEPS_BY_ITSELF = LibraryChange(
    "trl", (0, 12), "the script's own loop generates and calls PPOTrainer.step",
    "TRL 0.11.4 and 0.12.0 trainer/ppo_trainer.py",
)  # fmt: skip
RLOO_OF_TRAINER = LibraryChange(
    "trl", (0, 22), "RLOOTrainer trains by the Trainer's own loop",
    "TRL 0.21.0 and 0.22.0 trainer/rloo_trainer.py",
)  # fmt: skip
LONG_COMPLETIONS = LibraryChange(
    "trl", (1, 10), "completions have up to 256 tokens",
    "TRL 1.9.0 and f2cd5771 (1.10.0.dev0) trainer/grpo_config.py", was=256,
)  # fmt: skip
TAKES_TOKENS = LibraryChange(
    "trl", (0, 9), "SFTTrainer may make tokens of samples once more",
    "TRL 0.9.6 trainer/sft_trainer.py _prepare_dataset; releases before were not read",
)  # fmt: skip
# Before, a function that was given a batch could return what it liked; since, it is given one sample where it returns a text.
ASKS_FOR_LIST = LibraryChange(
    "trl", (0, 5), "what formatting_func returns is not looked at",
    "TRL 0.4.2 and 0.5.0 trainer/sft_trainer.py _prepare_non_packed_dataloader",
)  # fmt: skip
FORMATS_SINGLY = LibraryChange(
    "trl", (0, 15), "formatting_func is given a thousand samples at once, and has to return a list of texts",
    "TRL 0.14.0 and 0.15.2 trainer/sft_trainer.py",
)  # fmt: skip
COLLATES_PICTURES = LibraryChange(
    "trl", (0, 22), "SFTTrainer has no collator for samples with pictures",
    "TRL 0.21.0 and 0.22.0 trainer/sft_trainer.py DataCollatorForVisionLanguageModeling",
)  # fmt: skip
COUNTS_COMPLETIONS = LibraryChange(
    "trl", (0, 15), "a micro batch counts prompts, of each of which all completions are trained at once",
    "TRL 0.14.0 and 0.15.2 trainer/grpo_trainer.py",
)  # fmt: skip
GROUPS_BY_ROUND = LibraryChange(
    "trl", (0, 17), "a micro batch of all ranks must hold whole groups of completions",
    "TRL 0.16.1 and 0.17.0 trainer/grpo_trainer.py possible_values",
)  # fmt: skip
HAS_CHUNKS = LibraryChange(
    "trl", (1, 4), "loss_type has no chunked_nll",
    "TRL 1.3.0 and 1.4.0 trainer/sft_config.py",
)  # fmt: skip
CHUNKS_AS_GIVEN = LibraryChange(
    "trl", (1, 13), "every chunk of logits makes an fp32 copy of the head's weight",
    "TRL 1.12.0 and 1.13.0 trainer/sft_trainer.py _chunk",
)  # fmt: skip
COLOCATES = LibraryChange(
    "trl", (1, 0), "vLLM runs as a server elsewhere (vllm_mode)",
    "TRL 0.29.1 and 1.0.0 trainer/grpo_config.py", was="vllm_server",
)  # fmt: skip
HAS_COLOCATED = LibraryChange(
    "trl", (0, 18), "vllm_mode is no argument",
    "TRL 0.17.0 and 0.18.0 trainer/grpo_config.py",
)  # fmt: skip
SETS_RANKS = LibraryChange(
    "trl", (0, 20), "the trainer leaves it to a launcher to set the ranks that a colocated vLLM reads",
    "TRL 0.19.1 and 0.20.0 trainer/grpo_trainer.py: os.environ",
)  # fmt: skip
SYNCS_TENSORS = LibraryChange(
    "trl", (0, 16), "a model that ZeRO-3 shards is put together whole before vLLM is given its weights",
    "TRL 0.15.2 and 0.16.1 trainer/grpo_trainer.py _move_model_to_vllm",
)  # fmt: skip
WAKES_IN_PARTS = LibraryChange(
    "trl", (0, 25), "vLLM wakes up with its whole share before it is given the weights",
    "TRL 0.24.0 and 0.25.1 trainer/grpo_trainer.py: self.llm.wake_up",
)  # fmt: skip
SFT_EVALUATES_FUSED = LibraryChange(
    "trl", (0, 29), "Liger fuses the loss in training alone, so that evaluation makes all logits",
    "TRL 0.28.0 and 0.29.0 trainer/sft_trainer.py compute_loss: skip_logits",
)  # fmt: skip
SPREADS = LibraryChange(
    "trl", (0, 26), "a model named by its path is loaded without a device map",
    "TRL 0.25.1 and 0.26.2 trainer/utils.py create_model_from_path",
)  # fmt: skip
LOADS_REFERENCE_ANEW = LibraryChange(
    "trl", (0, 19), "GRPOTrainer copies the model that it is given for a reference",
    "TRL 0.18.2 and 0.19.0 trainer/grpo_trainer.py: self.ref_model",
)  # fmt: skip
