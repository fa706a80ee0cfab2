"""DeepSpeed JSON: recognition, its own law, and what a trainer makes of it."""

import json

import pytest
from tests.linked import link, run_of

from oomlint.dialects.deepspeed.dialect import looks_like_deepspeed
from oomlint.dialects.deepspeed.presets import is_shipped, shipped_preset
from oomlint.errors import CannotEdit
from oomlint.fix.edits import make_fix
from oomlint.linting.rule import Proposal
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

TRAINER = (
    "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 4\ngradient_accumulation_steps: 2\n"
    "bf16: true\ndatasets:\n  - path: a/b\ndeepspeed: ds.json\n"
)


def alone(config, hardware="8xA100-80GB", **values):
    return run_of({"ds.json": json.dumps(config)}, hardware=hardware, values=values)


def under_trainer(config, more="", pins="", **values):
    files = {"ds.json": json.dumps(config), "a.yaml": TRAINER + more}
    files |= {"requirements.txt": pins} if pins else {}
    return run_of(files, "a.yaml", hardware="8xA100-80GB", values=values)


def zero(**settings):
    return {"zero_optimization": settings}


@pytest.mark.parametrize(
    ("keys", "is_ours"),
    [
        ({"zero_optimization"}, True),
        ({"train_micro_batch_size_per_gpu"}, True),
        ({"train_batch_size", "fp16"}, True),
        ({"train_batch_size"}, False),
        ({"train_batch_size", "epochs"}, False),
        ({"fp16", "optimizer", "scheduler"}, False),
        # Keys of another program's arguments beside the two that it shares with DeepSpeed.
        (
            {
                "train_batch_size", "gradient_accumulation_steps",
                "vae_batch_size", "lr_scheduler", "max_train_steps",
            },
            False,
        ),
        ({"train_batch_size", "fp16", "zero_optimisation", "gradient_cliping"}, True),
        ({"zero_optimization", "warmup", "min_lr", "lora"}, True),
        (set(), False),
        (
            ("num-layers", "hidden-size", "train_micro_batch_size_per_gpu", "zero_optimization"),
            False,
        ),
    ],
)  # fmt: skip
def test_recognition(keys, is_ours):
    assert looks_like_deepspeed(keys) is is_ours


@pytest.mark.parametrize("config", [{"id": 1, "input": "a story", "output": "(C)"}, {}])
def test_a_file_without_a_key_of_deepspeed_is_no_config(config):
    """A data sample that stands in the place of the config says nothing of a stage."""
    run = under_trainer(config)
    [lost] = run.missing
    assert lost.problem == "cannot be used: no key in it is one of a DeepSpeed config"
    assert run.level(f.parallel.zero.stage) == Level.UNREAD


_NO_ZERO = {"bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 4}


def test_accelerate_stops_at_a_config_without_zero():
    """It asks for the object, so that there is no stage 0 and no need of memory to speak of."""
    run = under_trainer(_NO_ZERO)
    [lost] = run.missing
    assert lost.problem == "cannot be used: it has no zero_optimization"
    assert run.level(f.parallel.zero.stage) == Level.UNREAD


def test_before_accelerate_a_config_without_zero_is_one():
    """Up to transformers 4.29 the Trainer hands the file to DeepSpeed itself."""
    run = under_trainer(_NO_ZERO, pins="transformers==4.29.2\n")
    assert run.missing == ()
    assert run.plan.parallel.zero.stage == 0


# -- batch ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "micro", "accum"),
    [
        ({"train_micro_batch_size_per_gpu": 4}, 4, 1),
        ({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3}, 4, 3),
        ({"train_batch_size": 64}, 8, 1),
        ({"train_batch_size": 64, "gradient_accumulation_steps": 4}, 2, 4),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2}, 2, 4),
        ({"train_batch_size": "auto"}, None, None),
        ({}, None, None),
    ],
)
def test_batch_triangle(batch, micro, accum):
    plan = alone({**zero(stage=1), **batch}).plan
    assert (plan.batch.micro, plan.batch.grad_accum) == (micro, accum)
    if micro is not None:
        assert plan.batch.global_ == micro * accum * 8


def test_batch_without_ranks_is_unknown():
    plan = alone({**zero(stage=1), "train_batch_size": 64}, hardware=None).plan
    assert plan.batch.micro is None
    assert plan.batch.grad_accum is None


def test_trainer_decides_the_batch():
    plan = under_trainer({**zero(stage=2), "train_micro_batch_size_per_gpu": "auto"}).plan
    assert (plan.batch.micro, plan.batch.grad_accum) == (4, 2)


# -- precision --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "param", "grad", "master", "states"),
    [
        ({"bf16": {"enabled": True}}, "bf16", "bf16", "fp32", "fp32"),
        ({"bfloat16": {"enabled": True}}, "bf16", "bf16", "fp32", "fp32"),
        ({"fp16": {"enabled": True}}, "fp16", "fp16", "fp32", "fp32"),
        ({"bf16": {"enabled": False}}, "fp32", "fp32", "none", "fp32"),
        ({}, "fp32", "fp32", "none", "fp32"),
        (
            {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}},
            "bf16", "bf16", "bf16", "fp32",
        ),
        (
            {
                "bf16": {
                    "enabled": True,
                    "bf16_master_weights_and_grads": True,
                    "bf16_optimizer_states": True,
                }
            },
            "bf16", "bf16", "bf16", "bf16",
        ),
        ({"bf16": {"enabled": "auto"}}, None, None, None, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stage", [0, 1, 3])
def test_precision_of_its_own(config, stage, param, grad, master, states):
    precision = alone({**zero(stage=stage), **config}).plan.precision
    found = (precision.param, precision.grad, precision.master, precision.optim_state)
    assert found == (param, grad, master, states)


@pytest.mark.parametrize("config", [{}, {"bf16": {"enabled": "auto"}}, {"bf16": {"enabled": True}}])
@pytest.mark.parametrize("stage", [0, 2, 3])
def test_precision_under_a_trainer(config, stage):
    precision = under_trainer({**zero(stage=stage), **config}).plan.precision
    assert (precision.param, precision.grad, precision.master) == ("bf16", "bf16", "fp32")
    assert (precision.compute, precision.autocast) == ("bf16", False)


def test_gradients_are_accumulated_in_the_dtype_that_is_asked_for():
    config = {
        **zero(stage=1),
        "bf16": {"enabled": True},
        "data_types": {"grad_accum_dtype": "fp32"},
    }
    assert alone(config).plan.precision.grad_accum == "fp32"
    assert alone({**zero(stage=1), "bf16": {"enabled": True}}).plan.precision.grad_accum is None


# -- offloading and stages --------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "optimizer", "params"),
    [
        ({"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "nvme"}}, "cpu", "nvme"),
        ({"stage": 2, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}, "cpu", "none"),
        ({"stage": 0, "offload_optimizer": {"device": "cpu"}}, "none", "none"),
        ({"stage": 3, "offload_optimizer": {}}, "none", "none"),
        ({"stage": 3, "offload_optimizer": {"device": None}}, "none", "none"),
        ({"stage": 3, "offload_optimizer": {"device": "auto"}}, "none", "none"),
        ({"stage": 2, "cpu_offload": True}, "cpu", "none"),
        ({"stage": 2, "cpu_offload": False}, "none", "none"),
        ({"stage": 3, "cpu_offload": True, "cpu_offload_params": True}, "cpu", "cpu"),
        ({"stage": 3}, "none", "none"),
    ],
)  # fmt: skip
def test_offloading(settings, optimizer, params):
    plan = alone(zero(**settings)).plan
    assert (plan.offload.optimizer, plan.offload.params) == (optimizer, params)


def test_states_in_16_bits_are_not_offloaded():
    bf16 = {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    run = alone({**zero(stage=3), "bf16": bf16})
    with pytest.raises(CannotEdit, match="16 bits"):
        run.what_if({"offload.optimizer": "cpu"})
    assert (
        alone(zero(stage=3)).what_if({"offload.optimizer": "cpu"}).plan.offload.optimizer == "cpu"
    )


@pytest.mark.parametrize(("flag", "stage"), [(True, 1), (False, 0), ({"stage": 2}, 2), ({}, 0)])
def test_stage_and_its_oldest_spelling(flag, stage):
    run = alone({"zero_optimization": flag, "train_micro_batch_size_per_gpu": 1})
    assert run.plan.parallel.zero.stage == stage
    assert run.plan.parallel.backend == "zero"


@pytest.mark.parametrize(("stage", "overlap"), [(2, False), (3, True)])
def test_overlap_follows_the_stage(stage, overlap):
    assert alone(zero(stage=stage)).plan.parallel.zero.overlap_comm is overlap
    given = alone(zero(stage=stage, overlap_comm=not overlap)).plan
    assert given.parallel.zero.overlap_comm is not overlap


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (500_000_000, 50_000_000, 100_000)),
        (
            dict.fromkeys(
                (
                    "reduce_bucket_size",
                    "stage3_prefetch_bucket_size",
                    "stage3_param_persistence_threshold",
                ),
                "auto",
            ),
            # transformers fills them from the hidden size, 2048.
            (2048 * 2048, int(0.9 * 2048 * 2048), 10 * 2048),
        ),
        (
            {
                "reduce_bucket_size": 5e8,
                "prefetch_bucket_size": 7,
                "param_persistence_threshold": 9,
            },
            (500_000_000, 7, 9),
        ),
    ],
)
def test_buckets(settings, expected):
    zero_plan = under_trainer(zero(stage=3, **settings)).plan.parallel.zero
    found = (
        zero_plan.reduce_bucket_elems,
        zero_plan.prefetch_elems,
        zero_plan.persistence_threshold,
    )
    assert found == expected


def test_auto_without_a_trainer_is_unknown():
    assert (
        alone(zero(stage=3, reduce_bucket_size="auto")).plan.parallel.zero.reduce_bucket_elems
        is None
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"stage": 4},
        {"stage": "three"},
        {"stage": 3, "offload_optimizer": {"device": "disk"}},
        {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": "half"}},
        {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": []}},
        {"stage": 3, "reduce_bucket_size": -1},
        {"stage": 3, "sub_group_size": {}},
    ],
)
def test_values_that_are_refused(settings):
    assert len(alone(zero(**settings)).wrong) == 1


@pytest.mark.parametrize("inline", [True, False])
def test_inline_and_file_are_the_same(inline):
    config = {**zero(stage=3, offload_optimizer={"device": "cpu"}), "bf16": {"enabled": "auto"}}
    if inline:
        text = TRAINER.replace("ds.json", json.dumps(config))
        run = run_of({"a.yaml": text}, hardware="8xA100-80GB")
    else:
        run = under_trainer(config)
    assert run.plan.parallel.zero.stage == 3
    assert run.plan.offload.optimizer == "cpu"
    assert run.plan.precision.master == "fp32"


def test_wish_is_written_into_the_json():
    run = under_trainer(zero(stage=3))
    values = {"offload.optimizer": "cpu", "parallel.zero.gather16_on_save": True}
    fix = make_fix(run, Proposal.set("x", values), "gpu")
    assert {e.path for e in fix.edits} == {"ds.json"}
    text = "".join(e.replacement for e in fix.edits)
    assert '"offload_optimizer": {"device": "cpu"}' in text.replace("\n", "")
    assert '"stage3_gather_16bit_weights_on_model_save": true' in text


@pytest.mark.parametrize(
    ("path", "stage"),
    [
        ("deepspeed_configs/zero1.json", 1),
        ("zero3_bf16_cpuoffload_all.json", 3),
        ("examples/deepspeed/ds_z2_offload_config.json", 2),
    ],
)
def test_shipped_presets(path, stage):
    assert json.loads(shipped_preset(path))["zero_optimization"]["stage"] == stage


_AUTO = dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")
_WARMUP = dict.fromkeys(
    ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "total_num_steps"), "auto"
)


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize(
    ("more", "is_it"),
    [
        ({}, True),
        ({"optimizer": {"type": "AdamW", "params": _AUTO}}, True),
        (
            {
                "optimizer": {"type": "AdamW", "params": _AUTO},
                "scheduler": {
                    "type": "WarmupDecayLR",
                    "params": {**_WARMUP, "warmup_type": "linear"},
                },
            },
            True,
        ),
        ({"optimizer": {"type": "AdamW", "params": {**_AUTO, "lr": 1e-5}}}, False),
    ],
)
def test_a_file_as_an_earlier_axolotl_shipped_it_is_no_ones_own(stage, more, is_it):
    config = json.loads(shipped_preset(f"deepspeed_configs/zero{stage}.json"))
    del config["gradient_clipping"]
    zero = config["zero_optimization"]
    for key in ("max_live_parameters", "max_reuse_distance", "gather_16bit_weights_on_model_save"):
        if key in zero:
            zero[f"stage3_{key}"] = zero.pop(key)
    assert is_shipped(f"deepspeed/zero{stage}.json", json.dumps({**config, **more})) is is_it


@pytest.mark.parametrize(
    ("path", "is_known"),
    [
        ("deepspeed_configs/zero3.json", True),
        ("/workspace/axolotl/deepspeed_configs/zero3.json", True),
        ("configs/zero3.json", False),
        ("zero3.json", False),
        ("my_deepspeed_configs/zero3.json", False),
    ],
)
def test_a_missing_file_is_a_preset_only_where_its_framework_has_it(path, is_known):
    text = f"base_model: meta-llama/Llama-3.1-8B\ndatasets: [{{path: d, type: alpaca}}]\ndeepspeed: {path}\n"
    run = run_of({"train.yaml": text})
    assert (run.plan.parallel.zero.stage == 3) is is_known
    assert [file.reference for file in run.missing] == ([] if is_known else [path])


@pytest.mark.parametrize("path", ["my.json", "zero3.yaml", "zero9.json", "xzero3.json", ""])
def test_other_names_are_no_presets(path):
    assert shipped_preset(path) is None


@pytest.mark.parametrize(("pinned", "pins"), [("0.19.4", False), ("0.19.5", True)])
@pytest.mark.parametrize("is_json", [False, True])
def test_what_is_offloaded_is_pinned_by_default_from_one_release_on(
    pinned: str, pins: bool, is_json: bool
) -> None:
    command = "train.py --model_name_or_path Qwen/Qwen2.5-7B --output_dir out --bf16 True --per_device_train_batch_size 1"
    stage = '"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"'
    requirements = {"requirements.txt": f"deepspeed=={pinned}\n"}
    of_json = {
        "ds.json": f"{{{stage}}}}}}}\n",
        "train.sh": f"deepspeed {command} --deepspeed ds.json\n",
    }
    of_plugin = {
        "acc.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"
        "mixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"
        "deepspeed_config: {zero_stage: 3, offload_optimizer_device: cpu}\n",
        "train.sh": f"accelerate launch --config_file acc.yaml --num_processes 8 {command}\n",
    }
    (run,) = link(requirements | (of_json if is_json else of_plugin)).runs
    assert run.plan.offload.optimizer == "cpu"
    assert run.plan.offload.pin_memory is pins


def test_what_a_file_says_of_pinning_counts_in_every_release() -> None:
    (run,) = link(
        {
            "requirements.txt": "deepspeed==0.14.4\n",
            "ds.json": '{"zero_optimization": {"stage": 3, "offload_optimizer": '
            '{"device": "cpu", "pin_memory": true}}}\n',
            "train.sh": "deepspeed train.py --model_name_or_path Qwen/Qwen2.5-7B "
            "--output_dir out --per_device_train_batch_size 1 --deepspeed ds.json\n",
        }
    ).runs
    assert run.plan.offload.pin_memory is True
