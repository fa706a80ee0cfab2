"""The frame that asked for memory decides what a death is made of."""

import pytest

from oomlint.diagnose import examine, read_logs
from oomlint.diagnose.frames import ROWS, deciding_frame
from oomlint.diagnose.render import diagnose_object, render
from oomlint.linting.engine import all_rules

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.10 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process "
    "has 78.10 GiB memory in use. Of the allocated memory 76.00 GiB is allocated by PyTorch, and "
    "1.10 GiB is reserved by PyTorch but unallocated.\n"
)
MARKS = "             ^^^^^^^^^^^^^^\n"


def traceback(*frames, mark=""):
    """A log that ends in a traceback; a frame is ``file:function`` or ``file:function:code``."""
    lines = ["Traceback (most recent call last):\n"]
    for frame in frames:
        file, function, *code = frame.split(":", 2)
        lines.append(f'  File "/e/{file}", line 7, in {function}\n')
        lines += [f"    {text}\n{MARKS}" for text in code]
    return "".join(f"{mark}{line}" for line in (*lines, OOM))


def examined(tmp_path, text):
    file = tmp_path / "train.log"
    file.write_text(text)
    logs, _ = read_logs([str(file)])
    return examine(logs)


STEP = "transformers/trainer.py:compute_loss:outputs = model(**inputs)"
EVALUATE = "transformers/trainer.py:evaluation_loop"
OPTIMIZER = "transformers/trainer.py:_inner_training_loop:self.optimizer.step()"


@pytest.mark.parametrize(
    ("frames", "name", "rule"),
    [
        # transformers before 4.46, in each model's own forward.
        ([STEP, "models/llama/modeling_llama.py:forward:logits = logits.float()"],
         "logits-upcast", "logits-materialized-large-vocab"),
        # transformers loss/loss_utils.py:55.
        ([STEP, "loss/loss_utils.py:ForCausalLMLoss:logits = logits.float()"],
         "logits-upcast", "logits-materialized-large-vocab"),
        ([STEP, "my_model.py:forward:shift_logits = shift_logits.to(torch.float32)"],
         "logits-upcast", "logits-materialized-large-vocab"),
        # accelerate utils/operations.py convert_to_fp32.
        ([STEP, "accelerate/utils/operations.py:__call__", "accelerate/utils/operations.py:convert_to_fp32"],
         "outputs-upcast", "logits-materialized-large-vocab"),
        # transformers loss/loss_utils.py:36.
        ([STEP, "loss/loss_utils.py:fixed_cross_entropy", "torch/nn/functional.py:cross_entropy:return f(input)"],
         "loss", "logits-materialized-large-vocab"),
        # TRL trainer/utils.py:479.
        ([STEP, "trl/trainer/grpo_trainer.py:_get_per_token_logps_and_entropies", "trl/trainer/utils.py:selective_log_softmax"],
         "log-probabilities", "logprob-micro-batch-too-large"),
        # transformers trainer_pt_utils.py torch_pad_and_concatenate.
        ([EVALUATE, "transformers/trainer_pt_utils.py:nested_concat",
          "transformers/trainer_pt_utils.py:torch_pad_and_concatenate:return torch.cat((tensor1, tensor2), dim=0)"],
         "evaluation-outputs", "eval-logits-accumulate"),
        ([EVALUATE, "accelerate/accelerator.py:gather_for_metrics", "accelerate/utils/operations.py:_gpu_gather_one"],
         "evaluation-outputs", "eval-logits-accumulate"),
        (["my_trainer.py:evaluate:preds = torch.cat(all_logits)"],
         "evaluation-outputs", "eval-logits-accumulate"),
        # torch amp/grad_scaler.py.
        ([OPTIMIZER, "torch/amp/grad_scaler.py:unscale_", "torch/amp/grad_scaler.py:_unscale_grads_"],
         "unscale", "gpu-states-over-budget"),
        # DeepSpeed runtime/zero/stage3.py:2178.
        (["deepspeed/runtime/engine.py:_take_model_step", "deepspeed/runtime/zero/stage3.py:unscale_and_clip_grads"],
         "unscale", "gpu-states-over-budget"),
        # torch optim/adamw.py.
        ([OPTIMIZER, "torch/optim/adamw.py:step", "torch/optim/adamw.py:_init_group:state = torch.zeros_like(p)"],
         "optimizer-states", "adam-fp32-states-dominant"),
        ([OPTIMIZER, "torch/optim/adamw.py:step", "torch/optim/adamw.py:_multi_tensor_adamw"],
         "foreach", "foreach-optimizer-temp-peak"),
        ([OPTIMIZER, "bitsandbytes/optim/optimizer.py:step"],
         "optimizer-step", "adam-fp32-states-dominant"),
        # DeepSpeed runtime/engine.py:3693.
        (["transformers/trainer.py:_save_checkpoint", "deepspeed/runtime/engine.py:_zero3_consolidated_16bit_state_dict"],
         "state-dict", "fsdp-state-dict-on-gpu"),
        (["transformers/trainer.py:save_model", "torch/nn/modules/module.py:state_dict"],
         "state-dict", "fsdp-state-dict-on-gpu"),
        # transformers modeling_utils.py.
        (["train.py:main", "transformers/modeling_utils.py:from_pretrained", "torch/nn/modules/module.py:to"],
         "weights", "replica-too-big-for-one-gpu"),
        # DeepSpeed runtime/zero/partition_parameters.py:1200, 1895.
        ([STEP, "deepspeed/runtime/zero/partition_parameters.py:all_gather_coalesced"],
         "gathered-parameters", "zero3-live-params-oversized"),
        # DeepSpeed runtime/zero/stage_1_and_2.py:1365.
        (["transformers/trainer.py:training_step", "torch/_tensor.py:backward", "deepspeed/runtime/zero/stage_1_and_2.py:reduce_ipg_grads"],
         "reduced-gradients", "ds-bucket-oversized"),
    ],
)  # fmt: skip
def test_the_frame_decides(tmp_path, frames, name, rule):
    found = examined(tmp_path, traceback(*frames))
    frame = found.verdict.cause.frame
    assert frame is not None
    assert frame.row.name == name
    assert found.explanations[0].rule.name == rule
    assert f"where {frame.row.words}" in render(found).splitlines()[0]


@pytest.mark.parametrize(
    "frames",
    [
        [STEP, "models/llama/modeling_llama.py:forward:hidden = self.mlp(hidden)"],
        # Lightning runs the whole step in the optimizer's closure: no optimizer's fault.
        ["torch/optim/adamw.py:step", "module.py:training_step", "models/x.py:forward:x = self.up(x)"],
        ["transformers/modeling_utils.py:from_pretrained:m = cls()", "trainer.py:evaluate", "x.py:save_model"],
        # A cat of training is no matter of evaluation.
        [STEP, "my_trainer.py:forward:x = torch.cat((a, b))"],
        [STEP, "models/mixtral.py:forward:router_logits = router_logits.float()"],
        ["main.py:main:run()"],
    ],
)  # fmt: skip
def test_other_frames_decide_nothing(tmp_path, frames):
    assert examined(tmp_path, traceback(*frames)).verdict.cause.frame is None


def test_the_line_is_found_behind_the_prefix_of_its_rank(tmp_path):
    frames = (STEP, "loss_utils.py:ForMaskedLMLoss:logits = logits.float()")
    frame = examined(tmp_path, traceback(*frames, mark="[rank3]: ")).verdict.cause.frame
    assert (frame.row.name, frame.code) == ("logits-upcast", "logits = logits.float()")


def test_what_was_in_use_is_said_once_and_in_one_sentence(tmp_path):
    text = render(examined(tmp_path, traceback(STEP)))
    assert (
        "  2.0 GiB more were asked for while 78.1 GiB of the card's 79.1 GiB were in use\n" in text
    )
    assert text.count("asked for while") == 1
    assert "Tried to allocate" not in text
    assert "76.0" not in text


def test_the_json_has_the_frame(tmp_path):
    found = examined(tmp_path, traceback(STEP, "m.py:forward:logits = logits.float()"))
    assert diagnose_object(found)["verdict"]["frame"] == {
        "name": "logits-upcast",
        "what": "the logits are copied to fp32",
        "file": "m.py",
        "function": "forward",
        "code": "logits = logits.float()",
    }


def test_rows_name_rules_that_there_are_and_their_sources():
    names = {rule.name for rule in all_rules()}
    for row in ROWS:
        assert set(row.rules) <= names, row.name
        assert row.source
        assert row.functions or row.code


def test_without_a_phase_nothing_is_decided():
    assert deciding_frame(['File "/e/loss.py", line 1, in cross_entropy'], None) is None
