"""What verl does otherwise from a release on."""

from __future__ import annotations

from oomlint.plan.library_changes import LibraryChange

UNSPLIT = LibraryChange(
    "verl", (0, 4), "Megatron splits each layer over 4 GPUs by default",
    "verl 0.3.0.post1 and 0.4.0 trainer/config/ppo_megatron_trainer.yaml", was=4,
)  # fmt: skip

# workers/sharding_manager/{fsdp,megatron}_{vllm,sglang}.py, read at v0.2.0.post2, v0.3.0.post1, v0.4.0,
# v0.4.1 and v0.5.0.
SLEEP_BY_KEY = LibraryChange(
    "verl", (0, 5), "the engine sleeps while the model trains whatever free_cache_engine says",
    "verl 0.4.1 and 0.5.0 workers/sharding_manager",
)  # fmt: skip

# vLLM up to 0.6.3 has no sleep: its weights leave the GPU, its cache only by free_cache_engine.
VLLM_SLEEPS = LibraryChange(
    "vllm", (0, 7), "the engine's weights alone leave the GPU",
    "verl 0.4.1 workers/sharding_manager/fsdp_vllm.py and rollout/vllm_rollout/vllm_rollout.py",
)  # fmt: skip

# v1/worker/gpu_worker.py determine_available_memory at 0.8: what torch has allocated in the process at most comes
# off the engine's share; releases from 0.9 on measure what profiling adds to what was there.
VLLM_COUNTS_OWN = LibraryChange(
    "vllm", (0, 9), "the engine's share of the card holds the trainer's states too",
    "vllm 0.8 v1/worker/gpu_worker.py",
)  # fmt: skip

MICRO_PER_GPU = LibraryChange(
    "verl", (0, 2), "fsdp_sft_trainer divides data.micro_batch_size by the number of ranks",
    "verl 0.1 trainer/fsdp_sft_trainer.py:90; 0.2 reads micro_batch_size_per_gpu alone",
)  # fmt: skip

CHECKPOINTS = LibraryChange(
    "verl", (0, 2), "gradient checkpointing is off by default",
    "verl 0.1 and 0.2 trainer/config/ppo_trainer.yaml", was="none",
)  # fmt: skip
# trainer/config/sft_trainer.yaml and trainer/fsdp_sft_trainer.py, read at v0.2, v0.3.0.post1, v0.4.0, v0.4.1, v0.5.0
# and v0.7.0. What offloads under FSDP does nothing under fully_shard.
SFT_BY_FSDP2 = LibraryChange(
    "verl", (0, 4), "the SFT trainer wraps the model by FSDP's first version",
    "verl 0.3.0.post1 and 0.4.0 trainer/fsdp_sft_trainer.py", was="fsdp",
)  # fmt: skip
SFT_CHECKPOINTS = LibraryChange(
    "verl", (0, 4, 1), "the SFT trainer keeps all activations by default",
    "verl 0.4.0 and 0.4.1 trainer/config/sft_trainer.yaml", was="none",
)  # fmt: skip
UNPADS = LibraryChange(
    "verl", (0, 7), "samples are padded by default",
    "verl 0.6.1 and 0.7.0 trainer/config/model/hf_model.yaml", was=False,
)  # fmt: skip

# workers/actor/dp_actor.py and megatron_actor.py at v0.1, v0.2, v0.3.0.post1 and v0.4.0.
ENTROPY_BY_COEFF = LibraryChange(
    "verl", (0, 4), "each update takes the entropy of its logits, whatever entropy_coeff says",
    "verl 0.3.0.post1 and 0.4.0 workers/actor",
)  # fmt: skip

NEEDS_VLLM = {
    r"qwen2\.5-(?:vl|omni)": (0, 7),
    r"qwen3|gemma-3|llama-4": (0, 8),
}
"""Models, by their names, that vLLM runs from a release on: Qwen2.5-VL from 0.7.2, Gemma 3 from 0.8.0, Llama 4 from
0.8.3, Qwen3 from 0.8.4 (vLLM's release notes, model_executor/models/registry.py)."""
