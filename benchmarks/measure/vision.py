"""Inputs with images, and a way through the tower that needs no values of fake tensors."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

Case = Mapping[str, Any]

_NATIVE = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5")


def prepare(model: Any, case: Case) -> dict[str, Any]:
    """Token ids, labels and pixels for ``images`` pictures of ``patches`` patches each."""
    rows, length = case["micro_batch"], case["seq_len"]
    tensors = {
        "input_ids": torch.zeros(rows, length, dtype=torch.long, device="cuda"),
        "labels": torch.zeros(rows, length, dtype=torch.long, device="cuda"),
    }
    module = sys.modules[type(_bare(model)).__module__]
    if hasattr(module, "torch_compilable_check"):
        # Compares the number of image tokens with that of features, which fake tensors lack.
        module.torch_compilable_check = lambda *_: None  # type: ignore[attr-defined]
    text = getattr(getattr(_bare(model), "model", None), "language_model", None)
    if hasattr(text, "_deepstack_process"):
        type(text)._deepstack_process = _placed
    dtype = next(model.parameters()).dtype
    images, patches = case["images"], case["patches"]
    vision = _bare(model).config.vision_config
    if case["config"]["model_type"] in _NATIVE:
        width = 3 * vision.temporal_patch_size * vision.patch_size**2
        tensors["pixel_values"] = torch.zeros(
            images * patches, width, dtype=torch.float32, device="cuda"
        )
        return tensors
    if case["config"]["model_type"] == "mllama":
        return {**tensors, **_tiled(rows, length, images // rows, vision, dtype)}
    side = vision.image_size
    side = side[0] if isinstance(side, list | tuple) else side
    tensors["pixel_values"] = torch.zeros(images, 3, side, side, dtype=dtype, device="cuda")
    return tensors


def _tiled(rows: int, length: int, images: int, vision: Any, dtype: Any) -> dict[str, Any]:
    """Every image of Llama 3.2 Vision comes as ``max_num_tiles`` tiles, of which those that it does not fill are
    zeros (transformers 5.23 models/mllama/image_processing_mllama.py pack_images)."""
    tiles, side = vision.max_num_tiles, vision.image_size
    like: dict[str, Any] = {"dtype": torch.long, "device": "cuda"}
    return {
        "pixel_values": torch.zeros(rows, images, tiles, 3, side, side, dtype=dtype, device="cuda"),
        "aspect_ratio_ids": torch.zeros(rows, images, **like),
        "aspect_ratio_mask": torch.zeros(rows, images, tiles, **like),
        "cross_attention_mask": torch.zeros(rows, length, images, tiles, **like),
    }


def _placed(self: Any, states: Any, mask: Any, features: Any) -> Any:
    """Qwen3VLTextModel._deepstack_process, by the places of the image's tokens: a fake mask does not say how many."""
    del self, mask
    at = [torch.zeros(features.shape[0], dtype=torch.long, device="cuda") for _ in range(2)]
    states = states.clone()
    states[at[0], at[1]] = states[at[0], at[1]] + features
    return states


def _bare(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def features(model: Any, tensors: dict[str, Any], case: Case) -> dict[str, Any]:
    """The arguments of the model's forward: for Qwen's towers, their outputs made beforehand."""
    if case["config"]["model_type"] not in _NATIVE:
        return tensors
    bare = _bare(model)
    tower, config = bare.model.visual, bare.config.vision_config
    images, patches = case["images"], case["patches"]
    total, merge = images * patches, config.spatial_merge_size**2
    pixels = tensors["pixel_values"].type(tower.dtype)
    like: dict[str, Any] = {"dtype": torch.long, "device": "cuda"}
    arguments: dict[str, Any] = {
        "position_ids": torch.zeros(total, 2, **like),
        "cu_seqlens": torch.zeros(images + 1, **like),
        "max_seqlen": patches,
    }
    chunks = images
    if hasattr(config, "window_size"):
        window = (config.window_size // config.patch_size) ** 2
        arguments["window_index"] = torch.zeros(total // merge, **like)
        arguments["cu_window_seqlens"] = torch.zeros(total // window + 1, **like)
        arguments["max_window_seqlen"] = window
    if hasattr(config, "num_position_embeddings"):
        arguments["interp_indices"] = torch.zeros(total, 4, **like)
        arguments["interp_weights"] = torch.zeros(total, 4, device="cuda")

    def even(self: Any) -> Any:
        return [total // len(self)] * len(self)

    # The lengths of images and windows, which checkpointing asks for again in backward.
    FakeTensor.tolist = even  # type: ignore[method-assign]
    made = tower(pixels, grid_thw=None, return_dict=True, **arguments)
    split = [patches // merge] * chunks
    made.pooler_output = torch.split(made.pooler_output, split)
    if getattr(made, "deepstack_features", None):
        made.deepstack_features = [torch.split(x, split) for x in made.deepstack_features]
    rest = {k: v for k, v in tensors.items() if k != "pixel_values"}
    return {**rest, "mm_encoder_outputs": {"image": made}}
