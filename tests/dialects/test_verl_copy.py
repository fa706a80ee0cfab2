"""Projects that carry a copy of verl: what a key does there is what the copy's code does."""

from __future__ import annotations

import pytest
from tests.linked import link, run_of

from oomlint.dialects.verl.releases import VLLM_COUNTS_OWN
from oomlint.errors import CannotEdit
from oomlint.fix.edits import make_fix
from oomlint.judgement.evidence import evidence_of, left_open
from oomlint.linting.rule import Proposal
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_GRPO = """\
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=a \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\
    actor_rollout_ref.rollout.name={engine} actor_rollout_ref.rollout.free_cache_engine=False \\
    trainer.n_gpus_per_node=8
"""
_MANAGER = """\
class Manager:
    def __exit__(self, exc_type, exc_value, traceback):
        {body}
        self.module.train()
"""
_ALWAYS = _MANAGER.format(body="self.inference_engine.sleep(level=1)")
_ASKED = _MANAGER.format(
    body="if self.rollout_config.free_cache_engine: self.inference_engine.sleep(level=1)"
)
_SFT = """\
torchrun --nproc_per_node=4 -m verl.trainer.fsdp_sft_trainer data.train_files=a \\
    model.partial_pretrain=Qwen/Qwen2.5-7B-Instruct {words}
"""
_TRAINER = """\
class Trainer:
    def _normalize(self):
        dp_size = self.device_mesh.size()
        self.config.data.train_batch_size //= dp_size
        {batch}

    def _build(self):
        {dtype}
        self.model = Auto.from_pretrained(path, torch_dtype=torch_dtype)
"""
_PER_GPU = "assert self.config.data.micro_batch_size_per_gpu"


def _sleeps(files: dict[str, str], engine: str = "vllm") -> bool | None:
    run = run_of({"run.sh": _GRPO.format(engine=engine), **files}, "run.sh")
    return run.plan.objective.rollout.sleep


def _manager(name: str, text: str) -> dict[str, str]:
    return {f"verl/workers/sharding_manager/{name}.py": text}


def test_an_engine_that_a_copy_puts_to_sleep_sleeps_whatever_the_key_says() -> None:
    assert _sleeps(_manager("fsdp_vllm", _ALWAYS)) is True
    assert _sleeps(_manager("fsdp_vllm", _ASKED)) is False
    released = _MANAGER.format(body="self.inference_engine.release_memory_occupation()")
    assert _sleeps(_manager("fsdp_sglang", released), "sglang") is True
    assert _sleeps(_manager("fsdp_sglang", released), "vllm") is False, "of the other engine"


def test_a_copy_may_lie_among_the_sources_of_the_project() -> None:
    manager = {f"src/{name}": text for name, text in _manager("fsdp_vllm", _ALWAYS).items()}
    assert _sleeps(manager) is True


def test_log_probabilities_without_an_entropy_are_as_a_copy_says() -> None:
    actor = """\
class Actor:
    def compute_log_prob(self, data):
        for batch in data:
            _, scored = self._forward_micro_batch(batch, return_entropy={entropy})

    def update_policy(self, data):
        entropy, scored = self._forward_micro_batch(data, return_entropy=False)
"""
    line = _GRPO.format(engine="vllm") + " actor_rollout_ref.actor.use_torch_compile=False\n"
    line = line.replace("=8\n actor", "=8 actor")

    def entropy(text: str) -> str | None:
        files = {"run.sh": line, "verl/workers/actor/dp_actor.py": text}
        return run_of(files, "run.sh").plan.objective.rollout.entropy

    assert entropy(actor.format(entropy="False")) == "none"
    assert entropy(actor.format(entropy="True")) == "whole"
    assert entropy(actor.format(entropy="calculate_entropy")) == "whole"


def test_where_it_is_read_is_said() -> None:
    files = {"run.sh": _GRPO.format(engine="vllm"), **_manager("fsdp_vllm", _ALWAYS)}
    run = run_of(files, "run.sh")
    setting = run.cells.setting(f.objective.rollout.sleep)
    assert setting is not None
    (read,) = [each for each in setting.origin.inputs if "fsdp_vllm_sleeps" in str(each)]
    origin = run.cells.setting(read)
    assert origin is not None
    assert origin.level is Level.STATED
    assert origin.origin.location is not None
    assert origin.origin.location.path == "verl/workers/sharding_manager/fsdp_vllm.py"


@pytest.mark.parametrize(
    ("pins", "model", "share_of"),
    [
        ("vllm==0.6.3\n", "Qwen/Qwen2.5-7B-Instruct", "free"),
        ("vllm<=0.8.5\n", "Qwen/Qwen2.5-7B-Instruct", "process"),
        ("vllm>=0.9\n", "Qwen/Qwen2.5-7B-Instruct", "card"),
        ("", "Qwen/Qwen2.5-7B-Instruct", "card"),
        # 0.6.3 has no such model, whatever the copy's files allow.
        ("vllm<=0.6.3\n", "Qwen/Qwen2.5-VL-7B-Instruct", "process"),
    ],
)
def test_what_the_engine_takes_its_share_of(pins: str, model: str, share_of: str) -> None:
    line = _GRPO.format(engine="vllm").replace("Qwen/Qwen2.5-7B-Instruct", model)
    run = run_of({"run.sh": line, "requirements.txt": pins}, "run.sh")
    assert run.plan.objective.rollout.share_of == share_of


@pytest.mark.parametrize(
    ("pins", "sleeps"),
    [
        ("verl==0.4.1\n", True),
        ("verl==0.5.0\n", False),
        ("verl==0.4.1\nvllm==0.6.3\n", False),
    ],
)
def test_without_a_copy_the_release_decides(pins: str, sleeps: bool) -> None:
    assert _sleeps({"requirements.txt": pins}) is sleeps


def test_a_copy_is_of_the_release_that_it_says() -> None:
    assert _sleeps({"verl/version/version": "0.3.1.dev\n"}) is True
    assert _sleeps({"verl/version/version": "0.7.0\n"}) is False


def _trained(batch: str, words: str, dtype: str = "torch_dtype = torch.float32") -> Run:
    trainer = _TRAINER.format(batch=batch, dtype=dtype)
    files = {
        "run.sh": _SFT.format(words=words),
        "verl/trainer/fsdp_sft_trainer.py": trainer,
    }
    return run_of(files, "run.sh")


def test_a_copy_may_divide_the_micro_batch_by_the_ranks_or_leave_it_unread() -> None:
    divided = "self.config.data.micro_batch_size //= dp_size"
    assert _trained(divided, "data.micro_batch_size=24").plan.batch.micro == 6
    assert _trained(_PER_GPU, "data.micro_batch_size=24").plan.batch.micro == 4
    assert _trained(_PER_GPU, "data.micro_batch_size_per_gpu=24").plan.batch.micro == 24
    whole = "batches = batch.split(self.config.data.micro_batch_size)"
    assert _trained(whole, "data.micro_batch_size=24").plan.batch.micro == 24


def test_of_a_release_too() -> None:
    def micro(pin: str) -> int | None:
        files = {"run.sh": _SFT.format(words="data.micro_batch_size=24"), "requirements.txt": pin}
        return run_of(files, "run.sh").plan.batch.micro

    assert micro("verl==0.1\n") == 6
    assert micro("verl==0.4.0\n") == 4


def test_a_copy_may_take_the_dtype_from_a_key_of_its_own() -> None:
    own = 'torch_dtype = named(self.config.model.get("torch_dtype", "float16"))'
    assert _trained(_PER_GPU, "++model.torch_dtype=bfloat16", own).plan.load.dtype == "bf16"
    assert _trained(_PER_GPU, "", own).plan.load.dtype == "fp16"
    upstream = 'torch_dtype = self.config.model.fsdp_config.get("model_dtype", "fp32")'
    stated = "model.fsdp_config.model_dtype=bf16"
    assert _trained(_PER_GPU, stated, upstream).plan.load.dtype == "bf16"
    assert _trained(_PER_GPU, "", upstream).plan.load.dtype == "fp32"
    assert _trained(_PER_GPU, stated).plan.load.dtype == "fp32", "nothing reads the key"


def test_a_wish_for_a_dtype_is_said_where_the_copy_reads_it() -> None:
    own = 'torch_dtype = named(self.config.model.get("torch_dtype", "float16"))'
    run = _trained(_PER_GPU, "", own)
    wished = run.dialect.express({f.precision.param: "bf16"}, run.cells)
    assert {str(field): value for field, value in wished.items()} == {"verl.torch_dtype": "bf16"}
    fixed = _trained(_PER_GPU, "")
    with pytest.raises(CannotEdit, match="no key for the dtype"):
        fixed.dialect.express({f.precision.param: "bf16"}, fixed.cells)


def test_code_that_is_no_python_says_nothing() -> None:
    assert _sleeps(_manager("fsdp_vllm", "class Manager(:\n")) is False


def test_a_config_that_the_caller_names_is_not_the_default_one() -> None:
    files = {
        "run.sh": 'CONFIG="$1"\npython3 -m verl.trainer.main_ppo --config-name "$CONFIG" "$@"\n',
        "verl/trainer/config/ppo_trainer.yaml": (
            "actor_rollout_ref:\n  model:\n    path: Qwen/Qwen2.5-7B-Instruct\n"
        ),
    }
    assert not link(files, "run.sh").runs


def test_megatron_joins_samples_whatever_the_key_of_fsdp_says() -> None:
    script = _GRPO.format(engine="vllm").replace(
        "main_ppo", "main_ppo --config-name=ppo_megatron_trainer.yaml"
    )
    off = script.replace(
        "data.train_files", "actor_rollout_ref.model.use_remove_padding=False data.train_files"
    )
    assert run_of({"run.sh": off}, "run.sh").plan.seq.packing == "varlen"
    padded = off.replace(
        "data.train_files",
        "actor_rollout_ref.actor.megatron.use_remove_padding=False data.train_files",
    )
    assert run_of({"run.sh": padded}, "run.sh").plan.seq.packing == "none"


_CONFIG = """\
actor_rollout_ref:
  model:
    path: ~/models/deepseek-llm-7b-chat
    use_remove_padding: true{more}
  actor:
    strategy: fsdp
{defaults}"""


@pytest.mark.parametrize(
    ("more", "defaults", "is_written"),
    [
        ("", "", False),
        ("\n    use_fused_kernels: false", "", True),
        ("", "defaults:\n  - model@actor_rollout_ref.model: hf_model\n", True),
    ],
)
def test_key_that_the_copys_config_lacks_is_not_added_to_the_line(
    more: str, defaults: str, is_written: bool
) -> None:
    config = _CONFIG.format(more=more, defaults=defaults)
    files = {
        "run.sh": _GRPO.format(engine="vllm"),
        "verl/trainer/config/ppo_trainer.yaml": config,
    }
    if defaults:
        files["verl/trainer/config/model/hf_model.yaml"] = "use_fused_kernels: false\n"
    run = run_of(files, "run.sh")
    fix = make_fix(run, Proposal.set("fuse", {f.loss.logits_materialised: "fused"}), "gpu")
    assert fix is not None
    assert bool(fix.edits) is is_written
    if not is_written:
        assert "Hydra refuses one that is not there" in str(fix.reason)


def test_a_reference_that_a_copy_generates_is_no_run() -> None:
    config = (
        "actor_rollout_ref:\n  model:\n    path: Qwen/Qwen2.5-7B-Instruct\ntrainer:\n  nnodes: 1\n"
    )
    assert not link({"mine/_generated_ppo_trainer.yaml": config}).runs
    assert link({"mine/ppo_trainer.yaml": config}).runs


_OFFLOADED = """\
torchrun --nproc_per_node=4 -m verl.trainer.fsdp_sft_trainer data.micro_batch_size_per_gpu=1 data.max_length=256 \\
    model.partial_pretrain=Qwen/Qwen2.5-7B-Instruct model.fsdp_config.cpu_offload=true \\
    model.fsdp_config.offload_params=true trainer.default_local_dir=out
"""
_GITMODULES = '[submodule "verl"]\n\tpath = verl\n\turl = https://github.com/volcengine/verl.git\n'


@pytest.mark.parametrize(
    ("more", "why"),
    [
        # 0.4 and newer offload nothing by these keys.
        ({}, ""),
        ({".gitmodules": _GITMODULES}, "verl is a submodule that is not checked out"),
        ({".gitmodules": _GITMODULES, "verl/setup.py": ""}, ""),
        ({".gitmodules": _GITMODULES, "requirements.txt": "verl==0.4.1\n"}, ""),
        ({".gitmodules": _GITMODULES.replace("verl.git", "other.git")}, ""),
    ],
)
def test_the_release_of_a_submodule_that_is_not_checked_out(more: dict[str, str], why: str) -> None:
    cards = "4xRTX-4090"
    run = run_of({"run.sh": _OFFLOADED, **more}, "run.sh", hardware=cards)
    assert left_open(evidence_of(run)) == why


def test_of_which_release_the_engine_of_a_copys_day_is_stays_open() -> None:
    line = _GRPO.format(engine="vllm")

    def opens(pins: str, copy: dict[str, str]) -> bool:
        run = run_of({"run.sh": line, "requirements.txt": pins, **copy}, "run.sh")
        assert run.plan.objective.rollout.share_of is not None
        return VLLM_COUNTS_OWN in run.open

    carried = _manager("fsdp_vllm", _ALWAYS)
    assert opens("", carried)
    assert not opens("vllm==0.8.5\n", carried)
    # The newest verl has an engine of its day.
    assert not opens("", {})
