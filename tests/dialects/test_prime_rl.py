"""prime-rl's TOML: which program reads a file, who has which cards, what is on unless it is turned off."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link, run_of

from oomlint.errors import CannotEdit
from oomlint.memory import estimate
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_RL = """\
max_steps = 100
seq_len = 4096  # of answers with their prompts

[deployment]
num_train_gpus = 4
num_infer_gpus = 4

[model]
name = "Qwen/Qwen3-4B"

[ckpt]
interval = 50
keep_last = 2

[trainer.model]
cp = 2

[trainer.optim]
lr = 1e-6

[orchestrator]
batch_size = 256
group_size = 8

[[orchestrator.train.source]]
name = "reverse-text"

[inference.vllm]
tensor_parallel_size = 2
"""

_SFT = """\
max_steps = 20

[model]
name = "Qwen/Qwen3-1.7B"

[data]
name = "me/conversations"
seq_len = 4096
batch_size = 64
micro_batch_size = 2  # packed rows

[optim]
lr = 1e-5

[deployment]
num_train_gpus = 8
"""


def _run(text: str, **options: Any) -> Run:
    options.setdefault("hardware", "8xA100-80GB")
    run = run_of({"config.toml": text}, "config.toml", **options)
    assert run.framework == "prime-rl"
    return run


def _phase(run: Run, phase: str) -> int:
    gpu = estimate(run.plan).gpu
    assert gpu is not None
    found = gpu.phases[phase]
    assert found is not None
    return found


def test_rl_has_cards_of_its_own() -> None:
    """Four cards train; those that answers are written on hold nothing of the trainer's."""
    run = _run(_RL)
    plan, rollout = run.plan, run.plan.objective.rollout
    assert not run.stray
    assert (plan.parallel.world, plan.parallel.cp, plan.parallel.dp, plan.parallel.dp_shard) == (
        4,
        2,
        2,
        2,
    )
    assert (plan.parallel.backend, plan.parallel.fsdp.wrap) == ("fsdp2", "ends")
    assert (rollout.engine, rollout.sleep, rollout.n, rollout.tp) == ("vllm_server", False, 8, 2)
    assert (rollout.gpu_mem_util, rollout.generation_batch) == (0.9, 256)
    assert (plan.batch.micro, plan.batch.grad_accum, plan.seq.max_len) == (1, 128, 4096)
    assert (plan.save.every, plan.save.keep) == (50, 2)
    assert plan.objective.kind == "grpo"


def test_what_is_on_unless_a_key_turns_it_off() -> None:
    plan = _run(_RL).plan
    assert (plan.checkpointing.mode, plan.checkpointing.offload) == ("full", "cpu")
    assert (plan.offload.between_steps, plan.offload.optimizer) == ("cpu", "none")
    assert (plan.compile.enabled, plan.optimizer.fused) == (True, False)
    assert (plan.loss.logits_materialised, plan.loss.algorithm, plan.loss.chunks) == (
        "fused",
        "tiles",
        1,
    )
    assert (plan.precision.param, plan.precision.optim_state, plan.precision.compute) == (
        "fp32",
        "fp32",
        "bf16",
    )


def test_offloading_turns_recomputation_on_again() -> None:
    off = _RL.replace("cp = 2", 'cp = 2\nac = "None"')
    assert _run(off).plan.checkpointing.mode == "full"
    both = off.replace("cp = 2", 'cp = 2\nac_offloading = "None"')
    assert _run(both).plan.checkpointing.mode == "none"


@pytest.mark.parametrize(
    ("version", "mode", "visits", "chunks"),
    [("0.6.0", "none", "none", None), ("0.7.0", "full", "cpu", 2), ("0.8.1", "full", "cpu", 1)],
)
def test_releases_before_the_thrift_of_0_7(
    version: str, mode: str, visits: str, chunks: int | None
) -> None:
    files = {"config.toml": _RL, "requirements.txt": f"prime-rl=={version}\n"}
    plan = run_of(files, "config.toml").plan
    assert (plan.checkpointing.mode, plan.offload.between_steps) == (mode, visits)
    assert plan.loss.chunks == chunks
    assert plan.loss.logits_materialised == ("fused" if chunks else "full")


_BENCH = """\
[model]
name = "Qwen/Qwen3-0.6B"
seq_len = 16384
[data.fake]
batch_size = 2
[optim]
type = "adamw"
[monitors.file]
path = "metrics.jsonl"
"""


@pytest.mark.parametrize(
    ("version", "said", "how", "words"),
    [
        ("0.2.0", "", "full", None),
        ("0.3.0", "", "fused", 2048),
        ("0.4.0", 'fused_lm_head_chunk_size = "disabled"', "full", None),
        ("0.4.0", "fused_lm_head_chunk_size = 512", "fused", 512),
        ("0.4.0", 'fused_lm_head_chunk_size = "auto"\nimpl = "liger_kernel"', "full", None),
        ("0.6.0", "", "full", None),
        ("0.8.1", "", "fused", 8192),
    ],
)
def test_how_much_of_the_vocabulary_the_head_takes_at_a_time(
    version: str, said: str, how: str, words: int | None
) -> None:
    text = _BENCH.replace("seq_len = 16384", f"seq_len = 16384\n{said}")
    files = {"bench.toml": text, "requirements.txt": f"prime-rl=={version}\n"}
    loss = run_of(files, "bench.toml").plan.loss
    assert (loss.logits_materialised, loss.words) == (how, words)
    assert loss.outputs_kept is (how == "full")


_LINE = (
    "uv run torchrun --nproc-per-node=1 src/prime_rl/trainer/rl/train.py --model.name Qwen/Qwen3-0.6B"
    " --model.seq-len 16384 --model.attn flash_attention_3 --model.compile --model.ac --data.fake.batch-size 2"
)


def _of_line(line: str, version: str = "0.3.0") -> Run:
    return run_of({"run.sh": line + "\n", "requirements.txt": f"prime-rl=={version}\n"}, "run.sh")


@pytest.mark.parametrize(("more", "gib"), [("", 12.53), (" --model.lora.rank 16", 5.15)])
def test_a_release_of_the_benchmarks_day_needs_what_they_read(more: str, gib: float) -> None:
    """prime-rl 559b4477 benchmarks/baselines, of 0.3.0 on an H100: GiB reserved."""
    reserved = estimate(_of_line(_LINE + more).plan).gpu.reserved_bytes
    assert reserved == pytest.approx(gib * 2**30, rel=0.08)


def test_logits_of_sft_that_are_all_there_stay_to_the_next() -> None:
    """31.7 GiB by the same: fp32 logits held by the loop's ``out`` beside all that the loss makes of them."""
    line = _LINE.replace("trainer/rl", "trainer/sft").replace("16384", "8192").replace(
        "--data.fake.batch-size 2", "--data.type fake --data.batch-size 2 --data.seq-len 8192"
    )  # fmt: skip
    run = _of_line(line)
    assert run.plan.loss.outputs_kept
    assert estimate(run.plan).gpu.reserved_bytes == pytest.approx(31.74 * 2**30, rel=0.03)


def test_options_alone_start_a_trainer_by_its_file() -> None:
    run = _of_line(_LINE + " --model.lora.rank 8")
    assert (run.plan.trainable.method, run.plan.trainable.r) == ("lora", 8)
    assert (run.plan.seq.max_len, run.plan.parallel.world) == (16384, 1)
    assert _of_line(_LINE).plan.trainable.method == "full"
    module = _LINE.replace("src/prime_rl/trainer/rl/train.py", "-m prime_rl.trainer.sft.train")
    assert _of_line(module).plan.objective.kind == "sft"
    assert not link({"run.sh": _LINE.replace("src/prime_rl/trainer/rl/", "")}, "run.sh").runs


@pytest.mark.parametrize(
    ("said", "mode"), [("--model.ac.freq 2", "every_n"), ("--model.ac None", "none")]
)
def test_an_option_of_a_section_turns_it_on(said: str, mode: str) -> None:
    plan = _of_line(_LINE.replace("--model.ac", said)).plan
    assert plan.checkpointing.mode == mode


@pytest.mark.parametrize(
    ("text", "version", "expands"),
    [(_BENCH, "0.8.1", False), (_SFT, "0.4.0", False), (_SFT, "0.8.1", True), (_RL, "0.4.0", True)],
)
def test_who_starts_the_ranks_lets_segments_expand(text: str, version: str, expands: bool) -> None:
    files = {"a.toml": text, "requirements.txt": f"prime-rl=={version}\n"}
    assert run_of(files, "a.toml").plan.env.expandable_segments is expands


def test_keys_tell_the_release() -> None:
    """``full_offload`` came long after 0.7: nothing of before is left to weigh."""
    text = _RL.replace("cp = 2", "optim_cpu_offload = false\nfull_offload = true")
    assert not _run(text).alternatives
    assert _run(_RL).alternatives


def test_stepped_on_the_cpu() -> None:
    """Of fp32 weights, states and sums of gradients nothing is on the GPU; its own weights are bf16."""
    text = _RL.replace("cp = 2", "optim_cpu_offload = false\nfull_offload = true")
    run = _run(text.replace("lr = 1e-6", "lr = 1e-6\nmax_norm = 1.0"))
    plan = run.plan
    assert (plan.precision.param, plan.precision.master, plan.offload.optimizer) == (
        "bf16",
        "fp32",
        "cpu",
    )
    assert (plan.offload.between_steps, plan.optimizer.in_backward) == ("none", True)
    assert plan.optimizer.clip_norm is None
    assert _phase(run, "optimizer_step") < _phase(_run(_RL), "optimizer_step") / 4
    host = estimate(plan).host
    assert host is not None
    # 16 bytes of each of four billion parameters.
    assert max(each or 0 for each in host.phases.values()) > 16 * 4e9


def test_experts_are_spread_by_themselves() -> None:
    moe = _RL.replace("Qwen/Qwen3-4B", "Qwen/Qwen3-30B-A3B")
    assert _run(moe).plan.parallel.ep == 4
    assert _run(moe.replace("cp = 2", "cp = 2\nep = 1")).plan.parallel.ep == 1
    assert _run(_RL).plan.parallel.ep == 1


def test_nodes_and_islands() -> None:
    several = _RL.replace(
        "num_train_gpus = 4\nnum_infer_gpus = 4",
        'type = "multi_node"\nnum_train_nodes = 4\nnum_infer_nodes = 1\nnodes_per_fsdp_group = 2',
    )
    plan = _run(several, hardware="4x8xA100-80GB").plan
    assert (plan.parallel.world, plan.parallel.dp_replicate, plan.parallel.dp_shard) == (32, 2, 8)
    assert plan.parallel.fsdp.strategy == "hybrid"


def test_sft() -> None:
    run = _run(_SFT)
    plan = run.plan
    assert not run.stray
    assert (plan.parallel.world, plan.batch.micro, plan.batch.grad_accum, plan.batch.global_) == (
        8,
        2,
        4,
        64,
    )
    assert (plan.seq.max_len, plan.seq.packing, plan.objective.kind) == (4096, "multipack", "sft")
    assert plan.objective.rollout.engine is None


def test_sft_has_its_own_length() -> None:
    """``model.seq_len`` sizes no row."""
    text = _SFT.replace('1.7B"\n', '1.7B"\nseq_len = 32768\n').replace("seq_len = 4096\n", "")
    text = text.replace("[optim]", "[ckpt]\n\n[optim]").replace(
        "[data]", '[data]\ntype = "sft"\nseq_len = 1024'
    )
    assert _run(text).plan.seq.max_len == 1024


def test_a_trainer_alone() -> None:
    text = '[model]\nname = "Qwen/Qwen3-0.6B"\nseq_len = 2048\n\n[optim]\nlr = 1e-6\n\n[ckpt]\n'
    plan = _run(text).plan
    assert (plan.seq.max_len, plan.objective.kind, plan.save.strategy) == (2048, "grpo", "end")


def test_the_orchestrators_file_trains_nothing() -> None:
    text = 'group_size = 16\n\n[[train.source]]\nname = "reverse-text"\n'
    linked = link({"orch.toml": text})
    assert not linked.runs
    assert linked.recognised.get("orch.toml") == "prime-rl"


@pytest.mark.parametrize(
    "text",
    [
        '[model]\nname = "resnet50"\n\n[data]\nbatch_size = 8\nseq_len = 12\n\n[optim]\nlr = 0.1\n',
        '[trainer]\nepochs = 3\n\n[orchestrator]\nurl = "http://localhost"\n',
        '[model]\nname = "llama3"\nflavor = "8B"\n\n[training]\nseq_len = 8192\n\n[optimizer]\nname = "AdamW"\n',
    ],
)
def test_files_of_others(text: str) -> None:
    assert "prime-rl" not in link({"config.toml": text}).recognised.values()


def test_keys_that_nobody_knows_are_refused() -> None:
    (stray,) = _run(_RL.replace("cp = 2", "cp = 2\nac_offload = true")).stray
    assert stray.path == "trainer.model.ac_offload"
    assert stray.block.table.refuses(stray.path)


def test_a_line_lays_files_over_one_another() -> None:
    later = "seq_len = 8192\n\n[trainer.model]\ncp = 1\n"
    line = "uv run rl @ base.toml @ later.toml --trainer.model.reduce-dtype bfloat16\n"
    run = run_of({"run.sh": line, "base.toml": _RL, "later.toml": later}, "run.sh")
    assert set(run.files) == {"run.sh", "base.toml", "later.toml"}
    assert (run.plan.seq.max_len, run.plan.parallel.cp, run.plan.precision.comm) == (
        8192,
        1,
        "bf16",
    )


_PARTS = {
    "train.toml": '[model]\nname = "Qwen/Qwen3-8B"\n\n[model.ac]\n\n[optim]\nlr = 1e-6\n',
    "orch.toml": "batch_size = 64\nmicro_batch_size = 2\nrollouts_per_example = 8\nseq_len = 16384\n",
    "infer.toml": "[parallel]\ntp = 2\n",
}


def test_a_line_lays_files_over_sections() -> None:
    """Which they are for the line says, nothing in them; a row of RL held several lengths then, and no loss was fused."""
    line = (
        "uv run rl --trainer @ train.toml --orchestrator @ orch.toml --inference @ infer.toml"
        " --trainer-gpu-ids 0,1,2,3 --inference-gpu-ids 4,5\n"
    )
    (run,) = link({**_PARTS, "run.sh": line}).runs
    plan, rollout = run.plan, run.plan.objective.rollout
    assert set(run.files) == {"run.sh", *_PARTS}
    assert not run.stray
    assert (plan.model.id, plan.parallel.world) == ("Qwen/Qwen3-8B", 4)
    assert (plan.seq.max_len, plan.batch.micro, plan.checkpointing.mode) == (16384, 2, "full")
    assert (rollout.n, rollout.tp) == (8, 2)
    assert plan.loss.logits_materialised == "full"


def test_a_trainer_by_itself_knows_nothing_of_lengths() -> None:
    line = "uv run torchrun --nproc-per-node 8 src/prime_rl/trainer/rl/train.py @ train.toml\n"
    (run,) = link({"train.toml": _PARTS["train.toml"], "run.sh": line}).runs
    assert (run.plan.parallel.world, run.plan.checkpointing.mode) == (8, "full")
    assert run.plan.seq.max_len is None
    assert not run.stray


def test_torchrun_starts_sft() -> None:
    line = "uv run torchrun --nproc-per-node 4 src/prime_rl/trainer/sft/train.py @ sft.toml\n"
    early = _SFT.replace("\n[deployment]\nnum_train_gpus = 8\n", "\n[ckpt]\n")
    run = run_of({"run.sh": line, "sft.toml": early}, "run.sh")
    assert (run.plan.parallel.world, run.plan.batch.grad_accum) == (4, 8)


def test_a_layer_count_for_debugging() -> None:
    short = _run(_RL + "\n[trainer.model.debug]\nnum_layers = 4\n")
    dims = short.plan.model.dims
    assert dims is not None
    assert dims.layers == 4
    assert _phase(short, "backward") < _phase(_run(_RL), "backward") / 2


def test_the_head_never_makes_all_logits() -> None:
    whole = _RL.replace("cp = 2", 'cp = 1\nfused_lm_head_token_chunk_size = "disabled"\n')
    tiles = _RL.replace("cp = 2", "cp = 1")
    longer = ("seq_len = 4096", "seq_len = 32768")
    more = _phase(_run(whole.replace(*longer)), "backward") - _phase(
        _run(tiles.replace(*longer)), "backward"
    )
    # 32768 tokens by 151936 words in bf16 and in fp32, beside tiles that do not grow.
    assert more > 5 * 32768 * 151936


# -- fixes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({f.seq.max_len: 2048}, "seq_len = 2048  # of answers"),
        ({f.parallel.cp: 4}, "cp = 4"),
        ({f.precision.param: "bf16"}, 'optimization_dtype = "bfloat16"'),
        ({f.offload.optimizer: "cpu"}, "full_offload"),
        ({f.offload.params: "cpu", f.offload.optimizer: "cpu"}, "fsdp_cpu_offload = true"),
        ({f.offload.between_steps: "none"}, "optim_cpu_offload = false"),
        ({f.trainable.method: "lora", f.trainable.r: 8}, "rank = 8"),
        ({f.save.every: 10}, "interval = 10"),
        ({f.objective.rollout.gpu_mem_util: 0.8}, "gpu_memory_utilization = 0.8"),
        ({f.optimizer.kind: "muon"}, 'type = "muon"'),
        ({f.model.attn_impl: "flash3"}, 'attn = "flash_attention_3"'),
    ],
)  # fmt: skip
def test_wishes(changes: dict[Any, Any], line: str) -> None:
    after = fixed(_run, _RL, changes)
    assert line in after
    assert "# of answers" in after


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({f.batch.micro: 1, f.batch.grad_accum: 8}, "micro_batch_size = 1  # packed"),
        ({f.batch.grad_accum: 8}, "batch_size = 128"),
        ({f.seq.max_len: 2048}, "seq_len = 2048"),
    ],
)
def test_wishes_of_sft(changes: dict[Any, Any], line: str) -> None:
    assert line in fixed(_run, _SFT, changes)


def test_what_was_off_is_turned_on() -> None:
    off = _RL.replace(
        "cp = 2",
        'ac = "None"\nac_offloading = "None"\noptim_cpu_offload = false\nfused_lm_head_token_chunk_size = "disabled"',
    )
    recomputed = fixed(_run, off, {f.checkpointing.mode: "full"})
    assert 'ac = {mode = "full"}' in recomputed.replace("{ ", "{").replace(" }", "}")
    assert "fused_lm_head_token_chunk_size = 1024" in fixed(
        _run, off, {f.loss.logits_materialised: "fused"}
    )
    assert "optim_cpu_offload = true" in fixed(_run, off, {f.offload.between_steps: "cpu"})
    assert "pin_memory = true" in fixed(
        _run, off, {f.checkpointing.mode: "full", f.checkpointing.offload: "cpu"}
    )


@pytest.mark.parametrize(
    "changes",
    [
        {f.batch.micro: 2},
        {f.batch.grad_accum: 4},
        {f.parallel.zero.stage: 3},
        {f.quant.method: "bnb4"},
        {f.checkpointing.mode: "selective_op"},
        {f.objective.rollout.sleep: True},
        {f.save.save_only_model: True},
        {f.parallel.cp: 3},
        {f.optimizer.kind: "adamw8bit"},
        {f.loss.logits_materialised: "loss_parallel"},
    ],
)
def test_what_prime_rl_cannot_say(changes: dict[Any, Any]) -> None:
    run = _run(_RL)
    with pytest.raises(CannotEdit):
        run.dialect.express(changes, run.cells)


# -- releases --------------------------------------------------------------------------------------

_EARLY = """\
trainer_gpu_ids = [3]
inference_gpu_ids = [0, 1, 2]
seq_len = 32768

[model]
name = "Qwen/Qwen3-32B"

[trainer.model]
optimization_dtype = "bfloat16"

[orchestrator]
batch_size = 8
rollouts_per_example = 8
trajectory_strategy = "branching"
"""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {f.loss.logits_materialised: "fused"},
            "fused_lm_head_token_chunk_size from 0.5.0 on, and the file has trainer_gpu_ids, which went with 0.5.0",
        ),
        ({f.offload.optimizer: "cpu"}, "full_offload from 0.8.1 on"),
    ],
)
def test_no_file_is_given_keys_that_came_after_its_own_went(
    changes: dict[Any, Any], why: str
) -> None:
    with pytest.raises(CannotEdit, match=why):
        _run(_EARLY).what_if(changes)


def test_a_file_is_given_keys_that_releases_with_its_own_had() -> None:
    assert "fsdp_cpu_offload = true" in fixed(_run, _EARLY, {f.offload.params: "cpu"})


def test_keys_of_a_pinned_release() -> None:
    text = _RL.replace("cp = 2", "cp = 1")
    files = {"config.toml": text, "requirements.txt": "prime-rl==0.7.0\n"}
    run = run_of(files, "config.toml", hardware="8xA100-80GB")
    with pytest.raises(
        CannotEdit, match=r"full_offload from 0\.8\.1 on, and the project pins 0\.7"
    ):
        run.what_if({f.offload.optimizer: "cpu"})
