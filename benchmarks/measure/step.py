"""Measures one training step of a transformers model on fake CUDA tensors, no GPU needed.

The counting of live bytes, the attention kernels that a GPU would choose and the emulated
autograd engine come from ``measure.py`` of the simulator (its folder is given by
``--simulator``); here stand the model classes, inputs and losses that it does not know.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Mapping
from typing import Any

import measure as simulator
import offload
import torch
import transformers
import vision
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.initialization import no_init_weights

Case = Mapping[str, Any]

_CLASSES = {
    "causal": transformers.AutoModelForCausalLM,
    "seq2seq": transformers.AutoModelForSeq2SeqLM,
    "classification": transformers.AutoModelForSequenceClassification,
    "image_text": transformers.AutoModelForImageTextToText,
    "speech": transformers.AutoModelForSpeechSeq2Seq,
}


def text_inputs(case: Case) -> dict[str, Any]:
    """Token ids with labels; an encoder-decoder has as many target tokens as ``target_len``, and a mask where
    inputs are ``padded``."""
    rows, length = case["micro_batch"], case["seq_len"]
    ids = torch.zeros(rows, length, dtype=torch.long, device="cuda")
    if case["kind"] == "classification":
        return {"input_ids": ids, "labels": torch.zeros(rows, dtype=torch.long, device="cuda")}
    target = case.get("target_len", length)
    if case["kind"] == "speech":
        return spectrograms(case, target)
    given = {
        "input_ids": ids,
        "labels": torch.zeros(rows, target, dtype=torch.long, device="cuda"),
    }
    return {**given, "attention_mask": torch.ones_like(ids)} if case.get("padded") else given


def spectrograms(case: Case, target: int) -> dict[str, Any]:
    """What WhisperFeatureExtractor makes of 30 seconds, in the dtype that the first convolution takes."""
    rows, config = case["micro_batch"], case["config"]
    dtype = torch.bfloat16 if case["regime"] == "pure_bf16" else torch.float32
    shape = (rows, config["num_mel_bins"], 2 * config["max_source_positions"])
    return {
        "input_features": torch.zeros(*shape, dtype=dtype, device="cuda"),
        "labels": torch.zeros(rows, target, dtype=torch.long, device="cuda"),
    }


def adapted(model: Any, case: Case) -> Any:
    """The model with PEFT's adapters; of a model that hears without a task, for PEFT's own classes of tasks hand on
    ``input_ids``."""
    if case["kind"] != "speech":
        return simulator.apply_lora(model, case["lora"])
    import peft

    given = case["lora"]
    config = peft.LoraConfig(
        r=given["r"], lora_alpha=given["alpha"], target_modules=given["targets"], lora_dropout=0.0
    )
    return peft.get_peft_model(model, config)


def build(case: Case) -> tuple[Any, Any]:
    """The model of a case's configuration, weights left as they come."""
    config = transformers.AutoConfig.for_model(**case["config"])
    config.use_cache = False
    wide = case["regime"] in ("fp32", "fp32_amp_bf16")
    attention = {"sdpa": "sdpa", "eager": "eager", "flash2": "fusedlike"}[case["attn"]]
    with torch.device("cuda"), no_init_weights():
        model = _CLASSES[case["kind"]].from_config(
            config,
            dtype=torch.float32 if wide else torch.bfloat16,
            attn_implementation=attention,
        )
    model.tie_weights()
    return model, config


def in_backward(case: Case, model: Any) -> Any:
    """lomo-optim's optimizer, which steps while gradients come, of cases that name one."""
    import lomo_optim

    # AdaLomo's states go to the GPU by a call that wants a driver.
    torch.Tensor.cuda = lambda tensor, *_: tensor.to("cuda")  # type: ignore[assignment]
    kind = lomo_optim.AdaLomo if case["optimizer"] == "adalomo" else lomo_optim.Lomo
    return kind(model)


# One function, since what it measures is what is alive: a part that returned would let go of what its frame holds, and
# one that is called would hold what it was given.
def measure(case: Case) -> dict[str, Any]:  # noqa: C901
    """Bytes by phase of the step that ``case`` describes, in steady state."""
    autocast = case["regime"].endswith("_amp_bf16")
    simulator.SDPA_KERNELS.clear()
    torch.nn.functional.scaled_dot_product_attention = simulator.cuda_like_sdpa
    gc.collect()
    gc.disable()
    tracker = simulator.Tracker()
    tracker.fake, tracker.dev = True, "cuda"
    row: dict[str, Any] = {}
    with FakeTensorMode(allow_non_fake_inputs=False):
        model, config = build(case)
        text = config.get_text_config()
        tracker.n_experts = next(
            (n for k in ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
             if (n := getattr(text, k, None))), 1,
        )  # fmt: skip
        row["base_params"] = sum(p.numel() for p in model.parameters())
        if case.get("lora"):
            model = adapted(model, case)
        for name in case.get("frozen", ()):
            model.get_submodule(name).requires_grad_(requires_grad=False)
        if case.get("input_grads"):
            model.enable_input_require_grads()
        model.train()
        if case["gc"]:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        trained = [p for p in model.parameters() if p.requires_grad]
        seen: set[int] = set()
        row["trained_params"] = sum(p.numel() for p in trained)
        row["param_bytes"] = simulator.storage_bytes(list(model.parameters()), seen)
        row["buffer_bytes"] = simulator.storage_bytes(list(model.buffers()), seen)
        for x in (*model.parameters(), *model.buffers()):
            tracker.add(x.untyped_storage())
        batch = vision.prepare(model, case) if case.get("images") else text_inputs(case)
        for x in batch.values():
            if isinstance(x, torch.Tensor):
                tracker.add(x.untyped_storage())
        forward = model.forward
        if autocast:
            from accelerate.utils.operations import convert_outputs_to_fp32

            cast = torch.autocast(device_type="cuda", dtype=torch.bfloat16)
            forward = convert_outputs_to_fp32(cast(forward))

        def run() -> Any:
            return forward(**batch).loss

        if case.get("images"):

            def run() -> Any:
                # The tower runs inside the same autocast as the rest.
                with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                    given = vision.features(model, batch, case)
                    return forward(**given).loss

        fused = case["optimizer"] in ("lomo", "adalomo")
        moves = offload.context(model) if case.get("offload_activations") else None
        with tracker, moves or contextlib.nullcontext():
            if fused:
                optimizer = in_backward(case, model)
                kept = [
                    vars(optimizer).get(f"exp_avg_sq{part}", {}) for part in ("", "_row", "_col")
                ]
                states = [v for held in kept for v in held.values()]
                del kept
            else:
                optimizer = simulator.make_opt(case["optimizer"], trained)
                tracker.phase = "first"
                for p in trained:
                    p.grad = torch.empty_like(p)
                tracker.bump()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                gc.collect()
                states = [
                    v for state in optimizer.state.values() for v in state.values()
                    if isinstance(v, torch.Tensor)
                ]  # fmt: skip
            row["optimizer_bytes"] = simulator.storage_bytes(states, set())
            del states
            row["static_bytes"] = start = tracker.total
            tracker.peak.clear()
            tracker.phase = "forward"
            loss = run()
            row["saved_bytes"] = tracker.total - start
            if moves is not None:
                row["host_bytes"] = offload.held(moves)
            tracker.phase = "backward"
            tracker.bump()
            if fused:
                optimizer.fused_backward(loss, 1e-4)
            else:
                loss.backward()
            row["grad_bytes"] = simulator.storage_bytes(
                [p.grad for p in trained if p.grad is not None], set()
            )
            tracker.phase = "optim"
            tracker.bump()
            if not fused:  # nothing is left to step
                optimizer.step()
            del loss
    gc.enable()
    peak = tracker.peak
    row["forward_peak"] = max(peak.get("forward", 0), peak.get("loss", 0))
    row["backward_peak"] = peak["backward"]
    row["optimizer_peak"] = peak["optim"]
    row["peak_bytes"] = max(peak.values())
    row["backward_op"] = tracker.peak_info["backward"][0]
    row["kernels"] = sorted(simulator.SDPA_KERNELS)
    return row
