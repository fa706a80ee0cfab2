"""What the benchmark of other people's repositories counts, and how it groups reasons."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.coverage import Silent, covered, trains


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.py", "loss.backward()\n", True),
        ("a.py", "Trainer(model, args).train()\n", True),
        ("a.py", "self.trainer.train(resume=True)\n", True),
        ("a.py", "model.train()\n", False),
        ("a.py", "# loss.backward()\n", False),
        ("a.py", "loss.backward(\n", False),
        ("a.sh", "torchrun --nproc_per_node 8 main.py\n", True),
        ("a.sh", "python run/train_sft.py --lr 1\n", True),
        ("a.sh", "# torchrun main.py\n", False),
        ("a.sh", "torchrun eval.py\n", False),
    ],
)
def test_files_that_look_like_training(
    tmp_path: Path, name: str, text: str, expected: bool
) -> None:
    (tmp_path / name).write_text(text)
    assert trains(tmp_path / name) is expected


def test_reasons_are_one_whatever_they_name() -> None:
    kinds = {
        Silent("", "", f"the model {name} is not known: state --set model.id=…").kind
        for name in ("acme/house", "./out")
    }
    assert kinds == {"the model NAME is not known"}


def test_a_repository_is_counted(tmp_path: Path) -> None:
    data = "datasets: [{path: a, type: alpaca}]\nsequence_len: 128\nmicro_batch_size: 1\n"
    (tmp_path / "a.yaml").write_text(f"base_model: Qwen/Qwen2.5-0.5B\n{data}")
    (tmp_path / "b.yaml").write_text(f"base_model: acme/house\n{data}")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    (tmp_path / "own.py").write_text("loss.backward()\n")
    found = covered(tmp_path)
    assert (found.runs, found.judged, found.parts) == (2, 1, 1)
    assert [each.kind for each in found.silent] == ["the model NAME is not known"]
    assert found.unclaimed == ("own.py",)
