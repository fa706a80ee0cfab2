"""What is a name written otherwise, and what is another name."""

from __future__ import annotations

import pytest

from oomlint.documents.shell.facts import nearest_name
from oomlint.wording.spelling import is_misspelling


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("sequence_length", "sequence_len"),
        ("gradient_accumulation_step", "gradient_accumulation_steps"),
        ("cut_off_len", "cutoff_len"),
        ("offload_optimiser", "offload_optimizer"),
        ("micro-batch-size", "micro_batch_size"),
        ("learningRate", "learning_rate"),
        ("gradient_checkpoiting", "gradient_checkpointing"),
        ("IMAGAE_MAX_PIXELS", "IMAGE_MAX_PIXELS"),
        ("datasets_test", "test_datasets"),
    ],
)
def test_one_name_written_otherwise(written: str, name: str) -> None:
    assert is_misspelling(written, name)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("comment", "comet"),
        ("model_name_or_path", "reward_model_name_or_path"),
        ("NCCL_P2P_NVL_CHUNKSIZE", "NCCL_P2P_NET_CHUNKSIZE"),
        ("train_batch_size", "eval_batch_size"),
        ("stage2_prefetch", "stage3_prefetch"),
        ("NUM_GPUS", "NUM_CPUS"),
    ],
)
def test_two_names(written: str, name: str) -> None:
    assert not is_misspelling(written, name)


def test_variable_of_a_family_is_not_taken_for_its_sibling() -> None:
    assert nearest_name("NCCL_P2P_NXL_CHUNKSIZE") != "NCCL_P2P_NET_CHUNKSIZE"
