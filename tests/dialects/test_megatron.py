"""Megatron-LM's command lines: what they mean, and what a fix writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.fixing import fixed
from tests.linked import link, run_of

from oomlint.dialects import registry
from oomlint.dialects.cells import Cells
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.fix.edits import make_fix
from oomlint.linting.rule import Applicability, Proposal, SetFields
from oomlint.memory import estimate
from oomlint.models.count import count_parameters
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.linked import Linked, LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_SCRIPT = """\
#!/bin/bash
DISTRIBUTED_ARGS=(--nproc_per_node 8 --nnodes 4)
GPT_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length 8192
    --max-position-embeddings 8192
    --swiglu
    --normalization RMSNorm
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --vocab-size 128256
)
TRAINING_ARGS="--micro-batch-size 2 --global-batch-size 128 --train-iters 500 --bf16"
PARALLEL_ARGS="--tensor-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer"

torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \\
    ${GPT_ARGS[@]} \\
    $TRAINING_ARGS \\
    $PARALLEL_ARGS \\
    --save ckpt --save-interval 100
"""


def _link(text: str) -> Linked:
    return link({"go.sh": text})


def _run(text: str = _SCRIPT) -> Run:
    (run,) = _link(text).runs
    assert run.framework == "megatron"
    return run


def _with(options: str, text: str = _SCRIPT) -> Run:
    return _run(text.replace("--save ckpt", f"{options} --save ckpt"))


# -- the model ---------------------------------------------------------------------------------


def test_dimensions_are_options() -> None:
    dims = _run().plan.model.dims
    assert dims is not None
    assert (dims.layers, dims.hidden, dims.heads, dims.kv_heads) == (32, 4096, 32, 8)
    assert (dims.ffn, dims.act, dims.norm, dims.tie_embeddings) == (14336, "swiglu", "rms", False)
    # Padded to 128 on each of four tensor-parallel ranks.
    assert dims.vocab == 128512
    assert (dims.attn_bias, dims.mlp_bias) == (False, False)


def test_a_bias_on_queries_keys_and_values_alone() -> None:
    """--add-qkv-bias gives none to the output projection (Megatron-core models/gpt/gpt_layer_specs.py)."""
    dims = _with("--add-qkv-bias").plan.model.dims
    assert dims is not None
    biased, plain = (
        count_parameters(dims),
        count_parameters(replace(dims, attn_bias=False, arch="llama")),
    )
    assert biased is not None
    assert plain is not None
    assert biased.total - plain.total == 32 * 128 * (32 + 2 * 8)


def test_what_a_model_is_without_options() -> None:
    text = "torchrun --nproc_per_node 1 pretrain_gpt.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --micro-batch-size 4 --seq-length 1024 --tokenizer-type GPT2BPETokenizer --fp16\n"  # fmt: skip
    dims = _run(text).plan.model.dims
    assert dims is not None
    assert (dims.ffn, dims.act, dims.norm, dims.tie_embeddings) == (4096, "gelu", "ln", True)
    assert (dims.kv_heads, dims.head_dim, dims.vocab) == (16, 64, 50304)
    assert dims.attn_bias is True


def test_gated_layers_are_two_thirds_wide_in_multiples_of_64() -> None:
    dims = _run(_SCRIPT.replace("--ffn-hidden-size 14336", "")).plan.model.dims
    assert dims is not None
    assert dims.ffn == 10880


def test_experts() -> None:
    run = _with("--num-experts 8 --moe-router-topk 3 --moe-layer-freq '([0]*2+[1]*30)' --expert-model-parallel-size 8")  # fmt: skip
    assert run.plan.parallel.ep == 8
    dims = run.plan.model.dims
    assert dims is not None
    assert dims.moe is not None
    assert (dims.moe.first_dense, dims.moe.every_n) == (2, 1)
    dims = _with("--num-experts 8 --moe-router-topk 3 --moe-ffn-hidden-size 1024").plan.model.dims
    assert dims is not None
    assert dims.moe is not None
    assert (dims.moe.experts, dims.moe.topk, dims.moe.moe_ffn) == (8, 3, 1024)


def test_experts_weigh_within_their_activation_since_0_12_1() -> None:
    assert _with("--num-experts 8").plan.model.experts_impl == "weighted"
    older = run_of(
        {"pretrain.sh": _SCRIPT, "requirements.txt": "megatron-core==0.12.0\n"}, "pretrain.sh"
    )
    assert older.plan.model.experts_impl == "grouped"


def test_latent_attention() -> None:
    dims = _with("--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512").plan.model.dims
    assert dims is not None
    assert dims.mla is not None
    assert (dims.mla.q_rank, dims.mla.kv_rank, dims.head_dim) == (1536, 512, 192)


def test_an_unknown_vocabulary_is_assumed_and_said_so() -> None:
    run = _run(_SCRIPT.replace("    --vocab-size 128256\n", ""))
    origin = run.origin("mg.vocab")
    assert origin is not None
    assert origin.kind == "assumed"


# -- the run -----------------------------------------------------------------------------------


def test_ranks_batches_and_precision() -> None:
    plan = _run().plan
    assert (plan.parallel.backend, plan.parallel.world, plan.parallel.dp) == ("megatron", 32, 8)
    assert (plan.parallel.tp, plan.parallel.sp) == (4, True)
    assert plan.parallel.megatron.dist_optimizer is True
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.global_) == (2, 8, 128)
    assert (plan.precision.param, plan.precision.grad) == ("bf16", "fp32")
    assert (plan.precision.master, plan.precision.optim_state) == ("fp32", "fp32")
    assert plan.loss.logits_materialised == "loss_parallel"
    assert plan.model.attn_impl == "flash2"
    assert plan.checkpointing.mode == "none"
    assert (plan.save.strategy, plan.save.every, plan.save.format) == ("steps", 100, "distcp")
    assert plan.eval.enabled is True


def test_gradients_reduced_in_bf16() -> None:
    assert _with("--grad-reduce-in-bf16").plan.precision.grad == "bf16"


def test_neither_half_is_fp32_without_master_weights() -> None:
    plan = _run(_SCRIPT.replace(" --bf16", "")).plan
    assert (plan.precision.param, plan.precision.master) == ("fp32", "none")


def test_sequence_parallelism_needs_tensor_parallelism() -> None:
    plan = _run(_SCRIPT.replace("--tensor-model-parallel-size 4", "")).plan
    assert plan.parallel.sp is False


def test_precision_aware_optimizer() -> None:
    options = "--use-precision-aware-optimizer --main-params-dtype fp16 --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"
    plan = _with(options).plan
    assert (plan.precision.master, plan.precision.optim_state) == ("fp16", "bf16")


def test_offloaded_optimizer() -> None:
    offload = _with("--optimizer-cpu-offload --optimizer-offload-fraction 0.5").plan.offload
    assert (offload.optimizer, offload.optimizer_ratio) == ("cpu", 0.5)


@pytest.mark.parametrize(
    ("options", "mode", "every"),
    [
        ("--recompute-activations", "selective_op", None),
        ("--recompute-granularity selective", "selective_op", None),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "full", None),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 8", "block_partial", 4),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 32", "full", None),
        ("--checkpoint-activations", "full", None),
        ("--activations-checkpoint-method uniform", "full", None),
        ("--recompute-granularity full --recompute-activations", "selective_op", None),
    ],
)  # fmt: skip
def test_recomputation(options: str, mode: str, every: int | None) -> None:
    checkpointing = _with(options).plan.checkpointing
    assert (checkpointing.mode, checkpointing.every_n) == (mode, every)


def test_attention_without_transformer_engine_keeps_its_scores() -> None:
    assert _with("--transformer-impl local").plan.model.attn_impl == "eager"
    assert _with("--transformer-impl local --use-flash-attn").plan.model.attn_impl == "flash2"
    assert _with("--attention-backend unfused").plan.model.attn_impl == "eager"
    both = _with("--transformer-impl local --recompute-activations")
    assert both.plan.model.attn_impl == "flash2"


def test_virtual_stages() -> None:
    run = _with("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2")
    assert (run.plan.parallel.vpp, run.plan.parallel.dp) == (4, 2)


def test_fully_sharded() -> None:
    plan = _with("--use-torch-fsdp2").plan
    assert (plan.parallel.backend, plan.parallel.fsdp.version) == ("fsdp2", 2)
    assert plan.precision.master == "fp32"
    options = "--use-megatron-fsdp --data-parallel-sharding-strategy {}"
    assert _with(options.format("optim_grads_params")).plan.parallel.backend == "fsdp2"
    assert _with(options.format("optim")).plan.parallel.backend == "megatron"


def test_deepspeed_of_the_fork() -> None:
    files = {
        "go.sh": _SCRIPT.replace(
            "--save ckpt", "--deepspeed --deepspeed_config ds.json --save ckpt"
        ),
        "ds.json": '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 2}',
    }
    workspace = Workspace(Path("/x"), {name: text.encode() for name, text in files.items()})
    (run,) = Linker(workspace, registry(), LinkOptions()).link(list(files)).runs
    assert (run.plan.parallel.backend, run.plan.parallel.zero.stage) == ("zero", 2)


def test_a_switch_before_a_variable_is_on() -> None:
    text = _SCRIPT.replace("$TRAINING_ARGS", "$TRAINING_ARGS --recompute-activations $EXTRA_ARGS")
    run = _run(text)
    assert run.plan.checkpointing.mode == "selective_op"
    proposal = Proposal("t", (SetFields({"checkpointing.mode": "full"}),), Applicability.SAFE)
    fix = make_fix(run, proposal, None)
    assert fix is not None
    assert fix.reason is not None


def test_an_option_and_its_value_in_one_word_of_an_array() -> None:
    text = 'ARGS=("--num-workers 7" "--swiglu" "--eval-iters $UNSEEN")\n' + _SCRIPT.replace(
        "--save ckpt", "${ARGS[@]} --save ckpt"
    )
    run = _run(text)
    assert run.plan.data.workers == 7
    assert not run.wrong
    with pytest.raises(CannotEdit):
        run.parts.blocks[-1][0].write({"data.workers": 1})


def test_slurm_starts_a_rank_for_each_task() -> None:
    line = "srun bash -c 'python pretrain_gpt.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 --tensor-model-parallel-size 2 --micro-batch-size 1 --seq-length 128 --bf16'\n"  # fmt: skip
    head = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n"
    assert _run(head + line).plan.parallel.world == 16


def test_degrees_give_the_ranks_where_nothing_starts_them() -> None:
    run = _run(
        _SCRIPT.replace("torchrun ${DISTRIBUTED_ARGS[@]}", "python")
        .replace("--save ckpt", "--pipeline-model-parallel-size 4 --save ckpt")
    )  # fmt: skip
    assert run.plan.parallel.world == 16
    origin = run.origin("parallel.gpus_per_node")
    assert origin is not None
    assert origin.kind == "assumed"


def test_a_launcher_whose_options_are_out_of_sight_is_not_one_process() -> None:
    run = _run(_SCRIPT.replace("${DISTRIBUTED_ARGS[@]}", "$UNSEEN"))
    assert run.plan.parallel.world == 8
    origin = run.origin("parallel.gpus_per_node")
    assert origin is not None
    assert origin.kind == "assumed"


def _ranks(text: str, hardware: str | None = None) -> tuple[int | None, int | None, Level]:
    """Nodes, ranks of a node, and how well these are known."""
    run = run_of({"go.sh": text}, hardware=hardware)
    parallel, cells = run.plan.parallel, run.parts.completed
    assert isinstance(cells, Cells)
    return parallel.nodes, parallel.gpus_per_node, cells.level(f.parallel.gpus_per_node)


@pytest.mark.parametrize(
    "start",
    [
        "torchrun $UNSEEN",
        "torchrun --nproc_per_node $UNSEEN",
        "python",
        "ray job submit -- python3",
        "srun python",
    ],
)
def test_ranks_that_are_told_elsewhere_are_unread_and_never_too_few(start: str) -> None:
    text = _SCRIPT.replace("torchrun ${DISTRIBUTED_ARGS[@]}", start)
    assert _ranks(text) == (1, 8, Level.UNREAD)
    assert _ranks(text, "8xA100-80GB") == (1, 8, Level.ASSUMED)
    assert _ranks(text, "2x8xA100-80GB") == (2, 8, Level.ASSUMED)
    staged = text.replace("--save ckpt", "--pipeline-model-parallel-size 4 --save ckpt")
    assert _ranks(staged) == (2, 8, Level.UNREAD)


def test_ranks_of_one_gpu() -> None:
    single = _SCRIPT.replace("--tensor-model-parallel-size 4 ", "")
    text = single.replace("torchrun ${DISTRIBUTED_ARGS[@]}", "python")
    assert _ranks(text, "8xA100-80GB")[:2] == (1, 1)
    handed = single.replace("torchrun ${DISTRIBUTED_ARGS[@]}", "ray job submit -- python3")
    assert _ranks(handed) == (1, 8, Level.UNREAD)


def test_other_programs_are_asides_or_nobodys() -> None:
    text = _SCRIPT.replace("pretrain_gpt.py", "tools/run_text_generation_server.py")
    linked = _link(text)
    assert linked.recognised == {"go.sh": "megatron"}
    assert not linked.runs
    others = _link("python train.py --num-layers 4 --hidden-size 32 --lr 0.1\n").recognised
    assert "megatron" not in others.values()


_OTHER_SCRIPT = _SCRIPT.replace("pretrain_gpt.py", "train.py")


@pytest.mark.parametrize(
    "program",
    [
        "pretrain_gpt.py",
        "./../../pretrain_bert.py",
        "pretrain_llama.py",
        "/workspace/Megatron-LM/examples/sft.py",
        "examples/multimodal/train.py",
        "-m megatron.training.finetune",
    ],
)
def test_programs_are_known_by_their_names(program: str) -> None:
    _run(_SCRIPT.replace("pretrain_gpt.py", program))


@pytest.mark.parametrize(
    "line",
    [
        "from megatron.training import get_args, pretrain",
        "from megatron.training.arguments import parse_args",
        "    import megatron.initialize",
        "from megatron import get_args",
    ],
)
def test_a_script_whose_command_line_megatron_reads_is_megatrons(line: str) -> None:
    for start in ("train.py", "-m tasks.train"):
        text = _SCRIPT.replace("pretrain_gpt.py", start)
        script = f"try:\n    pass\nfinally:\n    pass\n{line}\n"
        name = "train.py" if start == "train.py" else "tasks/train.py"
        run = run_of({"go.sh": text, name: script}, "go.sh")
        assert (run.framework, run.plan.batch.micro) == ("megatron", 2)
        assert name in run.sources


@pytest.mark.parametrize(
    "script",
    [
        None,
        "import ray\nfrom slime.utils.arguments import parse_args\n",
        "from megatron.core import parallel_state\nimport argparse\n",
        "from megatron_patch.arguments import parse\n",
    ],
)
def test_a_script_of_another_project_with_megatrons_options_is_nobodys(script: str | None) -> None:
    start = (
        "ray job submit --address=http://127.0.0.1:8265 -- python3 train.py --rollout-num-gpus 8"
    )
    for text in (
        _OTHER_SCRIPT,
        _OTHER_SCRIPT.replace("torchrun ${DISTRIBUTED_ARGS[@]} train.py", start),
    ):
        files = {"go.sh": text, **({} if script is None else {"train.py": script})}
        linked = link(files, "go.sh")
        assert not linked.runs
        assert "megatron" not in linked.recognised.values()


def test_two_stacks_of_equal_depth_are_an_encoder_and_a_decoder() -> None:
    text = _SCRIPT.replace("pretrain_gpt.py", "pretrain_t5.py")
    stacks = "--encoder-num-layers 12 --decoder-num-layers"
    dims = _run(text.replace("--num-layers 32", f"{stacks} 12")).plan.model.dims
    assert dims is not None
    assert (dims.arch, dims.layers) == ("t5", 12)
    assert _run(text.replace("--num-layers 32", f"{stacks} 6")).plan.model.dims is None


def test_a_pattern_lists_the_layers_of_a_hybrid_stack() -> None:
    text = _SCRIPT.replace("pretrain_gpt.py", "pretrain_hybrid.py")
    plan = _run(text.replace("--num-layers 32", "--hybrid-layer-pattern 'M-M*|-M/MM/'")).plan
    dims = plan.model.dims
    assert dims is not None
    assert dims.layer_types == ("mamba", "mlp", "mamba", "full_attention", "mlp", "mamba")
    assert (dims.layers, dims.arch) == (6, "nemotron_h")
    assert dims.ssm == {
        "num_heads": 128, "head_dim": 64, "state_size": 128, "n_groups": 8, "conv_kernel": 4,
    }  # fmt: skip
    # A mixer that nothing here can count.
    unclear = text.replace("--num-layers 32", "--hybrid-layer-pattern M-G-")
    assert _run(unclear).plan.model.dims is None


def test_several_towers_have_no_dimensions_here_and_a_length_of_the_language_model() -> None:
    options = "--num-layers 32 --language-model-type llama3_8b --decoder-seq-length 4096"
    plan = _run(_SCRIPT.replace("--num-layers 32", options)).plan
    assert plan.model.dims is None
    assert plan.seq.max_len == 4096
    text = _SCRIPT.replace("--num-layers 32", options)
    assert "--decoder-seq-length 2048" in fixed(_run, text, {"seq.max_len": 2048})


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("--mask-only", f.trainable.method),
        ("--freeze-lm", f.trainable.method),
        ("--load-teacher big", f.objective.ref_model),
        ("--prior-strength 3", None),
    ],
)
def test_what_an_option_of_a_fork_speaks_of_is_not_known(option: str, field: Any) -> None:
    run = _run(_SCRIPT.replace("--save ckpt", f"{option} --save ckpt"))
    for each in (f.trainable.method, f.objective.ref_model):
        assert (run.level(each) is Level.UNREAD) is (each is field)


def test_tasks_that_evaluate_train_nothing() -> None:
    assert not _link(_SCRIPT.replace("--save ckpt", "--task MSDP-EVAL-F1 --save ckpt")).runs
    for switch in ("--skip-train", "--inference", "--task ICT-ZEROSHOT-NQ"):
        assert not _link(_SCRIPT.replace("--save ckpt", f"{switch} --save ckpt")).runs
    assert _link(_SCRIPT.replace("--save ckpt", "--task RACE --save ckpt")).runs


def test_what_a_person_is_to_fill_in_does_not_stop_the_reading() -> None:
    head = "CHECKPOINT_PATH=<Specify path>\nDATA=<Path and prefix>_text_document\n"
    words = "--save $CHECKPOINT_PATH --load <last checkpoint> --data-path $DATA"
    run = _run(head + _SCRIPT.replace("--save ckpt", words))
    assert (run.plan.batch.micro, run.plan.parallel.tp) == (2, 4)
    assert run.plan.save.dir is None
    assert run.plan.save.strategy == "steps"


# -- fixes -------------------------------------------------------------------------------------


def test_micro_batch_with_the_same_global_batch() -> None:
    after = fixed(_run, _SCRIPT, {"batch.micro": 1, "batch.grad_accum": 16})
    assert "--micro-batch-size 1 --global-batch-size 128" in after


def test_full_recomputation() -> None:
    after = fixed(_run, _SCRIPT, {"checkpointing.mode": "full"})
    assert "--recompute-granularity full" in after
    assert "--recompute-method uniform" in after
    assert "--recompute-num-layers 1" in after


def test_full_recomputation_takes_the_switch_away() -> None:
    text = _SCRIPT.replace("--train-iters 500", "--recompute-activations --train-iters 500")
    after = fixed(_run, text, {"checkpointing.mode": "full"})
    assert "--recompute-activations" not in after
    assert "--train-iters 500" in after


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"offload.optimizer": "cpu"}, "--optimizer-cpu-offload"),
        ({"seq.max_len": 4096}, "--seq-length 4096"),
        ({"save.every": 1000}, "--save-interval 1000"),
        ({"save.save_only_model": True}, "--no-save-optim"),
        ({"parallel.tp": 8}, "--tensor-model-parallel-size 8"),
        ({"data.workers": 1}, "--num-workers 1"),
        ({"optimizer.kind": "momentum_sgd"}, "--optimizer sgd"),
        ({"batch.eval_micro": 1}, "--eval-micro-batch-size 1"),
        ({"save.async": "thread"}, "--async-save"),
    ],
)
def test_wishes_are_written(changes: dict[str, Any], expected: str) -> None:
    assert expected in fixed(_run, _SCRIPT, changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel.zero.stage": 3},
        {"optimizer.kind": "adamw8bit"},
        {"loss.logits_materialised": "fused"},
        {"offload.params": "cpu"},
        {"quant.method": "bnb4"},
        {"checkpointing.mode": "none"},
        {"optimizer.fused": True},
        {"load.cpu_ram_efficient": True},
    ],
)
def test_what_megatron_cannot_say(changes: dict[str, Any]) -> None:
    with pytest.raises(CannotEdit):
        _run().what_if(changes)


@pytest.mark.parametrize(
    ("experts", "wrong", "is_known"),
    [("8", [], True), ("8 8", [], True), ("64 128", [], False), ("some", ["num_experts"], False)],
)
def test_a_number_of_experts_for_each_layer(experts: str, wrong: list[str], is_known: bool) -> None:
    run = _run(_SCRIPT.replace("--swiglu", f'--swiglu --num-experts "{experts}"'))
    assert [each.entry.key for each in run.wrong] == wrong
    assert (run.plan.model.dims is not None) == is_known


def test_layers_of_multi_token_prediction_are_built_and_trained() -> None:
    plan = _with("--mtp-num-layers 2").plan
    assert plan.model.mtp_layers == 2
    more, plain = (estimate(each).gpu.phases["load"] for each in (plan, _run().plan))
    assert more > plain
