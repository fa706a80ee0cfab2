"""What people call the fields of the plan that move memory, where no key of a file names them.

Each reads on as a sentence before "is": "dtype of loading is assumed to be bf16".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomlint.plan.fields import f

_CALLED: Mapping[Any, str] = {
    f.batch.eval_micro: "evaluation batch of a GPU",
    f.batch.grad_accum: "number of accumulation steps",
    f.batch.max_tokens_per_gpu: "tokens of a micro batch",
    f.batch.micro: "micro batch",
    f.checkpointing.mode: "gradient checkpointing",
    f.compile.enabled: "torch.compile",
    f.data.sets: "data",
    f.device.type: "kind of device",
    f.eval.keeps_logits: "whether evaluation keeps all logits",
    f.eval.samples: "number of evaluation samples",
    f.host.ram_gib: "RAM of a node in GiB",
    f.load.dtype: "loading dtype",
    f.loss.logits_materialised: "how the loss takes its logits",
    f.model.arch: "architecture of the model",
    f.model.attn_impl: "attention kernel",
    f.model.dims: "model",
    f.model.experts_impl: "kernel of the experts",
    f.model.mtp_layers: "layers of multi-token prediction",
    f.model.id: "model",
    f.model.vision.max_frames: "number of frames of a video",
    f.model.vision.beside_limit: "images beside the longest sample",
    f.model.vision.max_pixels: "size of an image in pixels",
    f.model.vision.max_tiles: "number of tiles of an image",
    f.objective.kind: "objective",
    f.objective.pairs_per_sample: "number of answers trained on at once",
    f.eval.enabled: "evaluation",
    f.objective.ref_model: "reference model",
    f.objective.reward_model: "reward model",
    f.objective.rollout.engine: "rollout engine",
    f.objective.rollout.gpu_mem_util: "share of a card that the rollout engine takes",
    f.objective.rollout.max_completion_tokens: "tokens of an answer",
    f.objective.rollout.n: "number of answers to a prompt",
    f.offload.optimizer: "where the optimizer is offloaded to",
    f.offload.params: "where the parameters are offloaded to",
    f.optimizer.kind: "optimizer",
    f.parallel.backend: "sharding backend",
    f.parallel.cp: "context parallel size",
    f.parallel.dp: "data parallel size",
    f.parallel.ep: "expert parallel size",
    f.parallel.fsdp.reshard_after_forward: "whether FSDP reshards after forward",
    f.parallel.fsdp.strategy: "FSDP's sharding strategy",
    f.parallel.fsdp.version: "FSDP's version",
    f.parallel.gpus_per_node: "GPUs a node",
    f.parallel.nodes: "number of nodes",
    f.parallel.pp: "pipeline parallel size",
    f.parallel.tp: "tensor parallel size",
    f.parallel.world: "number of GPUs",
    f.parallel.zero.stage: "ZeRO stage",
    f.precision.compute: "computing dtype",
    f.precision.grad: "gradient dtype",
    f.precision.master: "master weights' dtype",
    f.precision.optim_state: "optimizer states' dtype",
    f.precision.param: "weights' dtype",
    f.quant.method: "quantization",
    f.seq.longest: "longest sample",
    f.seq.max_len: "longest sample",
    f.seq.packing: "packing",
    f.seq.target_len: "longest target",
    f.trainable.method: "what is trained",
    f.trainable.r: "LoRA rank",
    f.trainable.targets: "LoRA's target modules",
    f.versions: "release of a library",
}


def called(field: Any) -> str | None:
    """``loading dtype``; ``None`` of a field without a name of that kind."""
    return _CALLED.get(field)
