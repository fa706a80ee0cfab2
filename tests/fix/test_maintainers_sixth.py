"""What maintainers sent back in a sixth reading (``benchmarks/strangers/diffs-6.jsonl``)."""

from __future__ import annotations

import pytest
from tests.fixing import repaired

# -- a launch for another machine -----------------------------------------------------------------------

_SFT = (
    "torchrun --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain={model}"
    " data.train_files=a.parquet data.val_files=b.parquet data.max_length=8192 data.train_batch_size=64"
    " data.micro_batch_size_per_gpu=1 model.enable_gradient_checkpointing=True\n"
)


@pytest.mark.parametrize(
    ("model", "is_fitted"), [("Qwen/Qwen2.5-14B-Instruct", False), ("Qwen/Qwen2.5-0.5B", True)]
)
def test_a_launch_is_fitted_to_fewer_gpus_only_where_the_run_lives_on_them(
    model: str, is_fitted: bool
) -> None:
    result = repaired(
        {"run.sh": _SFT.format(model=model)}, hardware="4xRTX-4090-24GB", unsafe=True
    )
    assert (b"nproc_per_node=4" in result.texts.get("run.sh", b"")) is is_fitted
    if not is_fitted:
        (found,) = (d for d in result.report.diagnoses if d.rule.code == "OOM706")
        assert found.fix is not None
        assert "another machine" in (found.fix.reason or "")
