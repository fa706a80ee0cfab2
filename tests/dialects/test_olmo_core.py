"""OLMo-core's scripts: what the config that they build says, and the lines that start them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link, run_of
from tests.sound import sound_project

from oomlint.models.count import count_parameters
from oomlint.plan.fields import f
from oomlint.runs.run import Run

# Two styles of scripts: functions that are given common parts, and options of a command line.
_SCRIPT = """\
from functools import partial

from olmo_core.config import DType
from olmo_core.distributed.parallel import DataParallelType
from olmo_core.internal.experiment import CommonComponents, build_config, main
from olmo_core.nn.transformer import TransformerConfig
from olmo_core.optim import SkipStepAdamWConfig
from olmo_core.train import TrainerConfig
from olmo_core.train.callbacks import CheckpointerCallback
from olmo_core.train.train_module import (
    TransformerActivationCheckpointingConfig,
    TransformerActivationCheckpointingMode,
    TransformerDataParallelConfig,
    TransformerTrainModuleConfig,
)

SEQUENCE_LENGTH = 4096
GLOBAL_BATCH_SIZE = 1024 * SEQUENCE_LENGTH


def build_model_config(common: CommonComponents) -> TransformerConfig:
    return TransformerConfig.olmo2_7B(vocab_size=common.tokenizer.padded_vocab_size())


def build_train_module_config(common: CommonComponents) -> TransformerTrainModuleConfig:
    micro = 4 * common.max_sequence_length
    if common.launch is not None:
        micro *= 2
    return TransformerTrainModuleConfig(
        rank_microbatch_size=micro,
        max_sequence_length=common.max_sequence_length,
        optim=SkipStepAdamWConfig(lr=3e-4),
        compile_model=True,
        dp_config=TransformerDataParallelConfig(
            name=DataParallelType.hsdp, param_dtype=DType.bfloat16, num_replicas=64 // 32
        ),
        ac_config=TransformerActivationCheckpointingConfig(
            mode=TransformerActivationCheckpointingMode.selected_modules,
            modules=[f"blocks.{i}.feed_forward" for i in range(32)],
        ),
    )


def build_trainer_config(common: CommonComponents) -> TrainerConfig:
    return TrainerConfig(save_folder="x").with_callback(
        "checkpointer", CheckpointerCallback(save_interval=500, save_async=False)
    )


if __name__ == "__main__":
    main(config_builder=partial(
        build_config,
        global_batch_size=GLOBAL_BATCH_SIZE,
        max_sequence_length=SEQUENCE_LENGTH,
        model_config_builder=build_model_config,
        train_module_config_builder=build_train_module_config,
        trainer_config_builder=build_trainer_config,
    ))
"""


def _official() -> str:
    return sound_project("olmo-core")["train.py"]


def _run(text: str = _SCRIPT) -> Run:
    run = run_of({"train.py": text}, "train.py", hardware="8x8xH100-80GB")
    assert run.framework == "olmo-core"
    return run


def test_parts_that_functions_of_a_script_are_given() -> None:
    plan, dims = _run().plan, _run().plan.model.dims
    assert dims is not None
    counts = count_parameters(dims)
    assert counts is not None
    # As its class on the meta device has them, with dolma2's vocabulary.
    assert counts.total == 7298617344
    assert (plan.seq.max_len, plan.batch.micro, plan.batch.grad_accum) == (4096, 4, 4)
    assert (plan.parallel.backend, plan.parallel.dp_replicate) == ("fsdp2", 2)
    assert (plan.parallel.fsdp.wrap, plan.parallel.fsdp.strategy) == ("ends", "hybrid")
    assert (plan.precision.param, plan.precision.compute, plan.precision.comm) == (
        "fp32",
        "bf16",
        "fp32",
    )
    assert (plan.checkpointing.mode, plan.checkpointing.recompute_modules) == (
        "selective_op",
        ("core_attn", "mlp"),
    )
    assert (plan.loss.algorithm, plan.loss.upcast_fp32) == ("kernel", False)
    assert (plan.save.every, plan.save.async_) == (500, "none")
    assert (plan.optimizer.kind, plan.optimizer.foreach) == ("adamw", True)


def test_options_that_are_nothing_by_default() -> None:
    plan = _run(_official()).plan
    dims = plan.model.dims
    assert dims is not None
    assert (dims.layers, dims.kv_heads, dims.ffn, dims.vocab) == (4, 8, 14336, 50304)
    assert (plan.seq.max_len, plan.batch.micro, plan.data.workers) == (8192, 2, 8)
    assert (plan.parallel.backend, plan.precision.compute, plan.compile.enabled) == (
        "none",
        "fp32",
        False,
    )
    assert (plan.loss.algorithm, plan.loss.upcast_fp32) == (None, True)


def test_a_launch_line_is_laid_over_the_script() -> None:
    line = (
        "torchrun --nproc-per-node=8 src/train.py train run01 cluster \\\n"
        "  --train_module.rank-microbatch-size=8192 --train_module.dp_config.name=fsdp\n"
    )
    plan = run_of({"go.sh": line, "src/train.py": _SCRIPT}, "go.sh").plan
    assert (plan.parallel.world, plan.batch.micro, plan.parallel.fsdp.strategy) == (8, 2, "full")
    assert plan.model.arch == "olmo2"


def test_a_helper_that_makes_the_train_module() -> None:
    text = _official().replace(
        "optim=AdamWConfig(lr=1e-3)", "learning_rate=1e-3, activation_memory_budget=0.5"
    )
    text = text.replace(
        "train_module = TransformerTrainModuleConfig",
        "train_module = cookbook.configure_train_module",
    )
    plan = _run(text).plan
    assert (plan.parallel.backend, plan.parallel.dp_replicate, plan.precision.compute) == (
        "fsdp2",
        8,
        "bf16",
    )
    assert (plan.checkpointing.mode, plan.compile.enabled, plan.optimizer.kind) == (
        "budget",
        True,
        "adamw",
    )


def test_ddp_casts_the_model_itself() -> None:
    plan = _run(_SCRIPT.replace("DataParallelType.hsdp", "DataParallelType.ddp")).plan
    assert (plan.parallel.backend, plan.precision.param, plan.precision.optim_state) == (
        "ddp",
        "bf16",
        "bf16",
    )


def test_a_model_of_which_the_script_makes_another_is_not_the_factorys() -> None:
    text = _official().replace(
        "    data_loader =", "    model_config.block = {}\n    data_loader ="
    )
    assert _run(text).plan.model.dims is None


def test_what_patterns_freeze_is_not_known() -> None:
    frozen = _SCRIPT.replace(
        "padded_vocab_size())", "padded_vocab_size(), freeze_params=['lm_head.*'])"
    )
    assert _run(_SCRIPT).plan.trainable.method == "full"
    assert _run(frozen).plan.trainable.method is None


def test_what_a_call_returns_is_unread_and_not_wrong() -> None:
    """What only running tells may be any number: that of a tokenizer, or of a dict with a default."""
    script = (
        "from olmo_core.data import TokenizerConfig\n"
        "from olmo_core.nn.transformer import TransformerConfig\n"
        "from olmo_core.train.train_module import TransformerTrainModuleConfig\n"
        "tokens = TokenizerConfig.dolma2()\n"
        "n_heads = CONFIG.get('n_heads', 12)\n"
        "model = TransformerConfig.olmo2_190M(vocab_size=tokens.padded_vocab_size(), n_heads=n_heads)\n"
        "module = TransformerTrainModuleConfig(rank_microbatch_size={}, max_sequence_length=1024)\n"
    )
    assert run_of({"train.py": script.format("4 * 1024")}).wrong == ()
    refused = run_of({"train.py": script.format("'four'")}).wrong
    assert [wrong.entry.key for wrong in refused] == ["rank_microbatch_size"]


def test_experts_and_their_counts() -> None:
    text = _official().replace(
        "llama3_8B(vocab_size=tokenizer.padded_vocab_size(), n_layers=4)",
        "llama_like_moe(vocab_size=100352, d_model=2048, n_layers=16, n_heads=16, num_experts=64, top_k=8,"
        " expert_hidden_size=1024, shared_expert_hidden_size=2048, reordered_norm=True)",
    )
    dims = _run(text).plan.model.dims
    assert dims is not None
    counts = count_parameters(dims)
    assert counts is not None
    assert counts.total == 7325485056  # config.num_params of its own class


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({f.batch.micro: 1}, "rank_microbatch_size=8192"),
        ({f.seq.max_len: 4096}, "DEFAULT_SEQUENCE_LENGTH = 4096"),
    ],
)
def test_wishes_in_its_own_keys(changes: dict[Any, Any], wanted: str) -> None:
    assert wanted in fixed(_run, _official(), changes)


def test_checkpointing_is_changed_where_it_is() -> None:
    text = fixed(_run, _SCRIPT, {f.checkpointing.mode: "full"})
    assert "TransformerActivationCheckpointingMode.full" in text


def test_what_it_is_not() -> None:
    library = "from olmo_core.nn.transformer import TransformerConfig\nmodel = TransformerConfig.olmo2_7B(vocab_size=1)\n"
    line = "python train.py train\n"
    other = "import torch\ntorch.save({}, 'x')\n"
    runs = link({"a.py": library, "train.py": other, "go.sh": line}).runs
    assert [run for run in runs if run.framework == "olmo-core"] == []


_HYBRID = """\
    model_config.d_model -= 2 * 128
    heads = model_config.block.sequence_mixer.n_heads - 2
    model_config.block.sequence_mixer.n_heads = heads
    attention = model_config.block
    attention = attention.replace(sequence_mixer=attention.sequence_mixer.replace(rope=None))
    delta = attention.replace(
        sequence_mixer=GatedDeltaNetConfig(n_heads=heads, head_dim=int(0.75 * model_config.d_model / heads))
    )
    model_config.block = {"delta": delta, "full": attention}
    model_config.block_pattern = ["delta", "delta", "delta", "full"]
    model_config.lm_head.loss_implementation = LMLossImplementation.fused_linear
"""


def _hybrid(changes: str = _HYBRID) -> str:
    text = _official().replace(
        "llama3_8B(vocab_size=tokenizer.padded_vocab_size(), n_layers=4)",
        "olmo3_7B(vocab_size=100352)",
    )
    text = f"from olmo_core.nn.lm_head import LMLossImplementation\n{text}"
    return text.replace("    data_loader =", f"{changes}    data_loader =")


def test_blocks_whose_attention_a_delta_net_replaces() -> None:
    plan = _run(_hybrid()).plan
    dims = plan.model.dims
    assert dims is not None
    assert (dims.hidden, dims.heads, dims.head_dim, dims.ffn) == (3840, 30, 128, 11008)
    counts = count_parameters(dims)
    assert counts is not None
    # OLMo-Hybrid-7B as GatedDeltaNet.__init__ and its blocks add up.
    assert counts.total == 7430870688
    assert plan.loss.logits_materialised == "fused"


@pytest.mark.parametrize(
    ("read", "not_read"),
    [
        ("GatedDeltaNetConfig(", "OtherConfig("),
        ('["delta", "delta", "delta", "full"]', "pattern()"),
        ("rope=None", "bias=True"),
        ('"delta": delta', '"delta": other'),
    ],
)
def test_blocks_that_are_replaced_by_others(read: str, not_read: str) -> None:
    assert _run(_hybrid(_HYBRID.replace(read, not_read))).plan.model.dims is None


def test_numbers_that_are_computed() -> None:
    text = _official().replace("n_layers=4", "n_layers=int(0.5 * 8)")
    dims = _run(text).plan.model.dims
    assert dims is not None
    assert dims.layers == 4


def test_what_a_function_makes_is_no_wrong_value() -> None:
    text = _official().replace(
        "vocab_size=tokenizer.padded_vocab_size()", "vocab_size=sizes.of(tokenizer)"
    )
    text = text.replace("global_batch_size=", "global_batch_size=batch_of(model_config) or ")
    assert _run(text).wrong == ()


@pytest.mark.parametrize(("degree", "ranks"), [("4", 4), ("-1", 32)])
def test_ranks_of_experts(degree: str, ranks: int) -> None:
    text = _SCRIPT.replace(
        "compile_model=True,", f"compile_model=True,\n        ep_config=Experts(degree={degree}),"
    )
    assert _run(text).plan.parallel.ep == ranks
