"""Axolotl YAML: its defaults, its dtype law, and what its keys mean together."""

from pathlib import Path

import pytest
from tests.linked import link, run_of as run_of_files

from oomlint.dialects import registry
from oomlint.dialects.common.fields import shared
from oomlint.documents.text import apply_edits
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.fix.edits import make_fix
from oomlint.linting.rule import Proposal
from oomlint.plan.fields import f
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY

RUN = "base_model: meta-llama/Llama-3.2-1B\ndatasets:\n  - path: a/b\n"
LIGER = "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
CCE = "plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n"


def runs_of(text, hardware=None):
    return link({"a.yaml": text}, hardware=hardware).runs


def run_of(more="", hardware=None):
    [run] = runs_of(RUN + more, hardware)
    return run


def plan_of(more="", hardware=None):
    return run_of(more, hardware).plan


def values(plan, *paths):
    return tuple(plan.get(path) for path in paths)


# -- recognition ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        RUN,
        "base_model: x\npretraining_dataset: y\n",
        "base_model: x\nadapter: lora\n",
        "base_model: x\nsequence_len: 8\n",
        "base_model: ${X}\nsequence_len: 512\n",
    ],
)
def test_training_configs_are_ours(text):
    assert [run.framework for run in runs_of(text)] == ["axolotl"]


@pytest.mark.parametrize(
    "text",
    [
        "base_model: x\nmerge_method: ties\nmodels: []\n",
        "base_model: x\nslices: []\nadapter: y\n",
        "base_model: x\n",
        "- base_model\n- datasets\n",
        "nested:\n  base_model: x\n  adapter: lora\n",
        "",
    ],
)
def test_other_files_are_not(text):
    assert runs_of(text) == []


def test_training_by_a_service_is_no_run_here():
    assert runs_of(f"{RUN}hatchery:\n  backend: tinker\n") == []


# -- defaults ---------------------------------------------------------------------------


def test_defaults():
    plan = plan_of()
    assert values(
        plan,
        "trainable.method", "quant.method", "seq.max_len", "seq.packing", "seq.pad", "batch.micro",
        "batch.grad_accum", "batch.eval_micro", "checkpointing.mode", "optimizer.kind",
        "optimizer.fused", "optimizer.foreach", "objective.kind", "objective.ref_model",
        "loss.logits_materialised", "loss.upcast_fp32", "model.attn_impl", "eval.enabled",
        "eval.strategy", "save.strategy", "save.keep", "save.save_only_model", "data.workers",
    ) == (
        "full", "none", 512, "none", "longest", 1,
        1, 1, "none", "adamw",
        True, False, "sft", "none",
        "full", True, "sdpa", False,
        "no", "epoch", 4, False, None,
    )  # fmt: skip
    assert plan.save.contents == ("model", "optimizer", "scheduler", "rng")


@pytest.mark.parametrize(
    ("keys", "loader"),
    [
        ("", (None, 256, True)),
        ("deepspeed: deepspeed_configs/zero2.json\nnum_processes: 8\n", (None, 256, True)),
        ("dataloader_pin_memory: false\n", (0, None, False)),
        ("dataloader_num_workers: 3\n", (3, None, None)),
    ],
)
def test_the_data_loader_without_keys_prefetches_256_batches(keys, loader):
    plan = plan_of(keys)
    assert values(plan, "data.workers", "data.prefetch", "data.pin_memory") == loader


# -- the dtype law ----------------------------------------------------------------------

_PRECISION = ("precision.param", "precision.grad", "precision.optim_state", "precision.autocast")


@pytest.mark.parametrize(
    ("keys", "load", "amp"),
    [
        ("", "bf16", True),
        ("bf16: auto\n", "bf16", True),
        ("bf16: true\n", "bf16", True),
        ("bf16: full\n", "bf16", False),
        ("bfloat16: true\nbf16: false\n", "bf16", True),
        ("bf16: auto\nfp16: true\n", "fp16", True),
        ("fp16: true\n", "fp16", True),
        ("bf16: true\nfp16: true\n", "bf16", True),
        ("bf16: false\n", "fp32", False),
        ("bf16: false\nfloat16: true\n", "fp16", False),
    ],
)
def test_whole_model_is_loaded_in_the_training_dtype(keys, load, amp):
    plan = plan_of(keys, "1xA100-80GB")
    assert plan.load.dtype == load
    assert values(plan, *_PRECISION) == (load, load, load, amp)
    assert plan.precision.master == "none"


@pytest.mark.parametrize(
    ("keys", "version", "param", "trained"),
    [
        ("", 1, "fp32", "fp32"),
        ("", 2, "bf16", "bf16"),
        ("bf16: full\n", 1, "bf16", "bf16"),
        ("bf16: false\n", 2, "fp32", "fp32"),
    ],
)
def test_accelerates_fsdp_trains_fp32_and_axolotls_own_what_was_loaded(
    keys, version, param, trained
):
    more = f"{keys}fsdp_version: {version}\nfsdp_config:\n  transformer_layer_cls_to_wrap: X\n"
    plan = plan_of(more, "8xA100-80GB")
    assert values(plan, "precision.param", "precision.optim_state") == (param, trained)


@pytest.mark.parametrize(
    ("keys", "method", "quant", "param"),
    [
        ("adapter: lora\n", "lora", "none", "bf16"),
        ("adapter: lora\npeft_use_dora: true\n", "dora", "none", "bf16"),
        ("adapter: lora\nload_in_8bit: true\n", "lora", "bnb8", "int8"),
        ("adapter: qlora\nload_in_4bit: true\n", "qlora", "bnb4", "nf4"),
        ("adapter: lora\ngptq: true\n", "lora", "gptq", None),
    ],
)
def test_adapters(keys, method, quant, param):
    plan = plan_of(f"{keys}lora_r: 8\nlora_target_linear: true\n", "1xA100-80GB")
    assert values(plan, "trainable.method", "quant.method") == (method, quant)
    assert param in (None, plan.precision.param)
    assert values(plan, "trainable.adapter_dtype", "precision.optim_state") == ("fp32", "fp32")
    assert plan.trainable.targets == "all_linear"
    assert plan.save.contents[0] == "adapter"


@pytest.mark.parametrize(
    ("keys", "targets"),
    [
        ("lora_target_modules: [q_proj, v_proj]\n", ("q_proj", "v_proj")),
        ("lora_target_modules: all-linear\n", "all_linear"),
        ("", "peft_default"),
    ],
)
def test_adapter_targets(keys, targets):
    assert plan_of(f"adapter: lora\n{keys}").trainable.targets == targets


def test_adapter_keys_without_an_adapter_change_nothing():
    assert plan_of("lora_r: 8\npeft_use_dora: true\n").trainable.method == "full"


@pytest.mark.parametrize(
    ("keys", "method"),
    [("unfrozen_parameters:\n  - ^lm_head\n", "freeze"), ("unfrozen_parameters: []\n", "full")],
)
def test_freezing(keys, method):
    assert plan_of(keys).trainable.method == method


def test_names_of_what_is_not_frozen():
    keys = "unfrozen_parameters:\n  - ^model.embed_tokens.weight$[:32000]\n  - model.layers.4[4-9]+.mlp.\n"
    names = plan_of(keys).trainable.names
    assert names == (r"^model\.embed_tokens\.weight$", r"model\.layers\.4[4-9]+\.mlp\.")
    assert plan_of("unfrozen_parameters: 5\n").trainable.names is None


# -- sharding ---------------------------------------------------------------------------

_FSDP = ("parallel.backend", "parallel.fsdp.strategy", "parallel.fsdp.wrap", "offload.params")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("fsdp: [full_shard, auto_wrap]\n", ("fsdp1", "full", "transformer", None)),
        ("fsdp:\n  - shard_grad_op\n  - auto_wrap\n", ("fsdp1", "grad_op", "transformer", None)),
        ("fsdp: [full_shard, auto_wrap, offload]\n", ("fsdp1", "full", "transformer", "cpu")),
        (
            "fsdp_config:\n  fsdp_offload_params: true\n  fsdp_transformer_layer_cls_to_wrap: X\n",
            ("fsdp1", "full", "transformer", "cpu"),
        ),
        (
            "fsdp_version: 2\nfsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
            ("fsdp2", "full", "transformer", None),
        ),
        (
            "fsdp_config:\n  version: 2\n  reshard_after_forward: false\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
            ("fsdp2", "grad_op", "transformer", None),
        ),
        ("", ("ddp", None, None, None)),
    ],
)  # fmt: skip
def test_fsdp_in_old_and_new_spelling(keys, expected):
    plan = plan_of(keys, "8xA100-80GB")
    found = values(plan, *_FSDP)
    assert found[:3] == expected[:3]
    assert found[3] in (expected[3], "none" if expected[3] is None else expected[3])


@pytest.mark.parametrize(
    ("keys", "state_dict"),
    [
        ("fsdp: [full_shard]\n", "full"),
        ("fsdp_version: 2\nfsdp_config:\n  offload_params: false\n", "sharded"),
        ("fsdp_config:\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n", "sharded"),
    ],
)
def test_what_fsdp_saves(keys, state_dict):
    assert plan_of(keys, "8xA100-80GB").parallel.fsdp.state_dict == state_dict


def test_fsdp_checkpointing_counts():
    plan = plan_of("fsdp_config:\n  activation_checkpointing: true\n", "8xA100-80GB")
    assert values(plan, "checkpointing.mode", "checkpointing.source") == ("full", "fsdp")


def test_degrees_divide_the_ranks():
    plan = plan_of("tensor_parallel_size: 2\nsequence_parallel_degree: 2\n", "8xA100-80GB")
    assert values(plan, "parallel.tp", "parallel.cp", "parallel.dp") == (2, 2, 2)


# -- activations, loss, optimizer ---------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "mode", "offload"),
    [
        ("gradient_checkpointing: true\n", "full", "none"),
        ("gradient_checkpointing: 'true'\n", "full", "none"),
        ("gradient_checkpointing: false\n", "none", "none"),
        ("gradient_checkpointing: offload\n", "full", "cpu"),
        ("gradient_checkpointing: offload_disk\n", "full", "disk"),
        ("gradient_checkpointing: true\nactivation_offloading: legacy\n", "full", "cpu"),
    ],
)
def test_checkpointing(keys, mode, offload):
    plan = plan_of(keys)
    assert values(plan, "checkpointing.mode", "checkpointing.offload") == (mode, offload)
    assert plan.checkpointing.reentrant is False


def test_hooks_are_those_of_trl():
    plan = plan_of("gradient_checkpointing: true\nactivation_offloading: true\n")
    assert values(plan, "offload.keeps_shared", "offload.takes_loss") == (True, True)
    beside = plan_of("gradient_checkpointing: true\nactivation_offloading: disk\n")
    assert values(beside, "offload.keeps_shared", "offload.takes_loss") == (None, None)


@pytest.mark.parametrize(
    ("keys", "attention"),
    [
        ("flash_attention: true\n", "flash2"),
        ("sdp_attention: true\n", "sdpa"),
        ("eager_attention: true\n", "eager"),
        ("flash_attention: false\n", "sdpa"),
        ("attn_implementation: flash_attention_3\n", "flash3"),
        ("attn_implementation: kernels-community/flash-attn2\n", "flash2"),
        ("attn_implementation: kernels-community/vllm-flash-attn3\n", "flash3"),
        ("attn_implementation: kernels-community/sage-attention\n", "sage"),
    ],
)
def test_attention(keys, attention):
    assert plan_of(keys).model.attn_impl == attention


@pytest.mark.parametrize(
    ("keys", "logits"),
    [
        (f"{LIGER}liger_fused_linear_cross_entropy: true\n", "fused"),
        ("liger_fused_linear_cross_entropy: true\n", "full"),
        (LIGER, "full"),
        (CCE, "fused"),
        (f"{CCE}cut_cross_entropy: false\n", "full"),
        ("cut_cross_entropy: true\n", "full"),
        ("chunked_cross_entropy: true\n", "chunked"),
    ],
)
def test_keys_of_plugins_count_only_with_their_plugin(keys, logits):
    assert plan_of(keys).loss.logits_materialised == logits


@pytest.mark.parametrize(
    ("name", "kind", "fused"),
    [
        ("adamw_torch", "adamw", False),
        ("adamw_torch_fused", "adamw", True),
        ("adamw_bnb_8bit", "adamw8bit", False),
        ("paged_adamw_8bit", "paged_adamw8bit", False),
        ("lion_pytorch", "lion", False),
        ("adafactor", "adafactor", False),
        ("something_new", "other", False),
    ],
)
def test_optimizers(name, kind, fused):
    plan = plan_of(f"optimizer: {name}\n")
    assert values(plan, "optimizer.kind", "optimizer.fused") == (kind, fused)


# -- objective, evaluation, saving --------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "kind", "pairs", "reference"),
    [
        ("rl: dpo\n", "dpo", 2, "copy"),
        ("rl: ipo\nadapter: lora\n", "dpo", 2, "shared_adapter_off"),
        ("rl: dpo\nprecompute_ref_log_probs: true\n", "dpo", 2, "precomputed"),
        ("rl: orpo\n", "orpo", 2, "none"),
        ("rl: kto\n", "kto", None, "copy"),
        ("reward_model: true\n", "rm", 2, "none"),
        ("process_reward_model: true\n", "rm", 1, "none"),
    ],
)
def test_objectives(keys, kind, pairs, reference):
    plan = plan_of(keys)
    found = values(plan, "objective.kind", "objective.pairs_per_sample", "objective.ref_model")
    assert found == (kind, pairs, reference)


@pytest.mark.parametrize(
    ("keys", "enabled", "strategy"),
    [
        ("val_set_size: 0.1\n", False, "no"),
        ("val_set_size: 0.1\neval_steps: 10\n", True, "steps"),
        ("val_set_size: 0.1\nevals_per_epoch: 4\n", True, "steps"),
        ("val_set_size: 0.1\neval_strategy: epoch\n", True, "epoch"),
        ("val_set_size: 0.1\nevaluation_strategy: epoch\n", True, "epoch"),
        ("val_set_size: 0.1\neval_strategy: no\n", False, "no"),
        ("val_set_size: 0\neval_steps: 10\n", False, "no"),
        ("test_datasets:\n  - path: x\neval_steps: 10\n", True, "steps"),
    ],
)
def test_evaluation_happens_only_where_a_key_asks_for_it(keys, enabled, strategy):
    plan = plan_of(keys)
    assert values(plan, "eval.enabled", "eval.strategy") == (enabled, strategy)


@pytest.mark.parametrize(
    ("keys", "strategy"),
    [
        ("save_steps: 10\n", "steps"),
        ("saves_per_epoch: 2\n", "steps"),
        ("save_strategy: no\n", "no"),
        ("save_strategy: 'no'\n", "no"),
        ("save_strategy: epoch\n", "epoch"),
        ("", "epoch"),
    ],
)
def test_saving(keys, strategy):
    assert plan_of(keys).save.strategy == strategy


@pytest.mark.parametrize("keys", ["save_total_limit: 0\n", "max_steps: -1\n"])
def test_zero_and_minus_one_mean_the_default(keys):
    run = run_of(keys)
    assert run.wrong == ()
    assert values(run.plan, "save.keep", "total_steps") == (4, None)


def test_only_the_model_is_saved_where_asked():
    assert plan_of("save_only_model: true\n").save.contents == ("model",)


# -- keys -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("sequence_length", "sequence_len"),
        ("gradient_checkpointng", "gradient_checkpointing"),
        ("micro_batchsize", "micro_batch_size"),
        ("context_parapllel_size", "context_parallel_size"),
    ],
)
def test_misspelt_keys(key, nearest):
    [stray] = run_of(f"{key}: 1\n").stray
    assert stray.nearest[0] == nearest
    assert len(set(stray.nearest)) == len(stray.nearest)


@pytest.mark.parametrize("key", ["revision_of_model", "model_revision", "wandb_project"])
def test_legal_keys(key):
    assert run_of(f"{key}: 1\n").stray == ()


# -- fixes ------------------------------------------------------------------------------


def fixed(more, changes):
    run = run_of(more, "8xA100-80GB")
    made = make_fix(run, Proposal.set("x", changes), "gpu")
    assert made.reason is None
    text = apply_edits(RUN + more, made.edits)
    [after] = runs_of(text, "8xA100-80GB")
    assert {f: after.settings[f].value for f in made.expected} == dict(made.expected)
    return text.removeprefix(RUN), after.plan


@pytest.mark.parametrize(
    ("more", "changes", "line"),
    [
        ("", {"checkpointing.mode": "full"}, "gradient_checkpointing: true"),
        ("flash_attention: false\neager_attention: true\n", {"model.attn_impl": "flash2"}, "flash_attention: true"),
        ("", {"model.attn_impl": "flash2"}, "attn_implementation: flash_attention_2"),
        ("optimizer: adamw_torch\n", {"optimizer.kind": "paged_adamw8bit"}, "optimizer: paged_adamw_8bit"),
        ("", {"optimizer.kind": "adafactor"}, "optimizer: adafactor"),
        ("", {"save.save_only_model": True}, "save_only_model: true"),
        ("save_steps: 1\n", {"save.every": 100}, "save_steps: 100"),
        ("", {"batch.eval_micro": 1}, "eval_batch_size: 1"),
        ("", {"data.workers": 2}, "dataloader_num_workers: 2"),
    ],
)  # fmt: skip
def test_wishes(more, changes, line):
    text, plan = fixed(more, changes)
    assert line in (part.strip() for part in text.splitlines())
    for field, value in changes.items():
        assert plan.get(field) == value


def test_fused_loss_brings_its_plugin_along():
    text, plan = fixed("", {"loss.logits_materialised": "fused"})
    assert "liger_fused_linear_cross_entropy: true" in text
    assert "- axolotl.integrations.liger.LigerPlugin" in text
    assert plan.loss.logits_materialised == "fused"
    more = "plugins:\n  - my.Plugin  # ours\n"
    text, plan = fixed(more, {"loss.logits_materialised": "fused"})
    assert "  - my.Plugin  # ours\n  - axolotl.integrations.liger.LigerPlugin\n" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"checkpointing.mode": "selective_op"},
        {"optimizer.kind": "badam"},
        {"load.zero3_init": True},
        {"parallel.zero.stage": 3},
    ],
)
def test_wishes_that_axolotl_has_no_way_to_say(changes):
    with pytest.raises(CannotEdit):
        run_of().what_if(changes)


def test_no_example_of_the_framework_has_a_value_that_we_refuse():
    root = Path(__file__).parents[2] / "../shared/corpus"
    if not (root / "axolotl").is_dir():
        pytest.skip("../shared/corpus is not here")
    names = sorted(p.relative_to(root).as_posix() for p in (root / "axolotl").rglob("*.y*ml"))
    linked = Linker(Workspace(root.resolve()), registry(), LinkOptions()).link(names)
    assert len(linked.recognised) == len(names) >= 128
    assert [(run.name, wrong.entry.key) for run in linked.runs for wrong in run.wrong] == []
    slips = {stray.path for run in linked.runs for stray in run.stray if stray.nearest}
    assert slips == {"context_parapllel_size"}


@pytest.mark.parametrize(
    ("keys", "changes"),
    [
        ("context_parallel_size: 2\nflash_attention: true", {"model.attn_impl": "sdpa"}),
        ("use_onebitllms: true", {"trainable.method": "lora"}),
    ],
)
def test_what_its_schema_would_refuse_is_not_written(keys, changes):
    with pytest.raises(CannotEdit):
        run_of(keys).what_if(changes)


_LORA = "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"
_FSDP1 = "fsdp_version: 1\nfsdp_config:\n  fsdp_state_dict_type: FULL_STATE_DICT\n"


@pytest.mark.parametrize(
    ("more", "fused"),
    [
        (_LORA, ("mlp", "qkv", "o")),
        (_LORA + "lora_dropout: 0.05\n", ("mlp", "qkv", "o")),
        (_LORA + "lora_mlp_kernel: true\nload_in_8bit: true\n", ("mlp",)),
        (_LORA + "lora_mlp_kernel: false\n", None),
        (_LORA + "lora_qkv_kernel: true\nlora_o_kernel: true\n", ("qkv", "o")),
        (_LORA + "load_in_8bit: true\n", None),
        (_LORA + "trust_remote_code: true\n", None),
        (_LORA + _FSDP1, None),
        (_LORA + "rl: dpo\n", None),
        ("", None),
    ],
)
def test_lora_kernels_are_on_where_they_can_be(more, fused):
    plan = plan_of(more)
    assert plan.trainable.fused == fused
    assert not plan.loss.liger.swiglu


def test_lora_kernels_came_with_releases():
    def fused_before(keys: str) -> dict[str, object]:
        return {
            changes[0].release: other.plan.trainable.fused
            for changes, other in run_of(keys).alternatives
            if any("kernels" in change.before for change in changes)
        }

    assert fused_before(_LORA + "lora_dropout: 0.05\n") == {"0.10": None, "0.16": None}
    assert fused_before(_LORA) == {"0.10": None}
    assert fused_before(_LORA + "lora_mlp_kernel: true\n") == {}


def test_writing_no_tokens_in_evaluation_is_legal():
    assert run_of("eval_max_new_tokens: 0\n").wrong == ()


@pytest.mark.parametrize(
    ("more", "pad"),
    [
        ("flash_attention: true\n", "none"),
        ("flash_attention: true\npad_to_sequence_len: true\n", "none"),
        ("flash_attention: true\nsample_packing: true\n", "max_len"),
        ("sdp_attention: true\n", "longest"),
    ],
)
def test_a_batch_is_flattened_where_attention_keeps_samples_apart(more: str, pad: str) -> None:
    assert plan_of(f"micro_batch_size: 4\nbatch_flattening: auto\n{more}").seq.pad == pad


def test_a_path_of_a_set_that_only_running_decides_is_no_failure():
    plan = runs_of(RUN + "  - path: ${DATA}/train.jsonl\n")[0].plan
    assert plan.data.sets is None


_FSDP2 = "fsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: {}\n"


def test_under_fsdp2_no_rank_loads_4_bit_weights_for_the_others():
    """axolotl 0.19 stops at it, and would wait without end."""
    run = run_of("adapter: qlora\nload_in_4bit: true\n" + _FSDP2.format("false"))
    with pytest.raises(CannotEdit, match="4-bit weights on every rank"):
        run.what_if({f.load.cpu_ram_efficient: True})
    run = run_of("adapter: lora\n" + _FSDP2.format("true"))
    with pytest.raises(CannotEdit, match="4-bit weights on every rank"):
        run.what_if({f.quant.method: "bnb4"})
    run = run_of("adapter: lora\n" + _FSDP2.format("false"))
    assert run.what_if({f.load.cpu_ram_efficient: True}).plan.load.cpu_ram_efficient is True


# -- DeepSpeed configs of its checkout --------------------------------------------------------------


@pytest.mark.parametrize("folder", ["deepspeed", "./deepspeed", "deepspeed_configs"])
def test_its_own_deepspeed_configs_are_known_by_the_folders_that_they_lay_in(folder: str) -> None:
    run = run_of_files({"run.yaml": f"{AXOLOTL}deepspeed: {folder}/zero3.json\n"})
    assert run.plan.parallel.zero.stage == 3
    assert not run.missing


def test_a_config_of_another_name_in_a_folder_of_that_name_is_missing() -> None:
    run = run_of_files({"run.yaml": f"{AXOLOTL}deepspeed: deepspeed/ours.json\n"})
    assert [each.reference for each in run.missing] == ["deepspeed/ours.json"]


def test_that_folder_is_no_other_frameworks() -> None:
    run = run_of_files({"run.yaml": f"{LLAMA_FACTORY}deepspeed: deepspeed/zero3.json\n"})
    assert [each.reference for each in run.missing] == ["deepspeed/zero3.json"]


@pytest.mark.parametrize(
    ("line", "gpus", "starts"),
    [
        ("axolotl train a.yaml", 1, False),
        ("axolotl train a.yaml", 2, True),
        ("accelerate launch -m axolotl.cli.train a.yaml", 1, False),
        ("accelerate launch --use_fsdp -m axolotl.cli.train a.yaml", 1, True),
        ("accelerate launch --config_file gone.yaml -m axolotl.cli.train a.yaml", 1, True),
        ("torchrun --nproc_per_node 1 -m axolotl.cli.train a.yaml", 1, True),
        ("axolotl train a.yaml --launcher torchrun -- --nproc_per_node 1", 1, True),
    ],
)
def test_fsdp_wants_a_process_with_a_rank(line, gpus, starts):
    """transformers' Trainer stops where the one process has none."""
    config = RUN + "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n"
    run = run_of_files({"a.yaml": config, "run.sh": f"{line}\n"}, hardware=f"{gpus}xA100-80GB")
    assert (shared.refused in run.settings) is not starts


@pytest.mark.parametrize(
    ("keys", "gpus", "device_map"),
    [
        ("", 8, "single"),
        ("deepspeed: deepspeed_configs/zero2.json\n", 8, "single"),
        ("deepspeed: deepspeed_configs/zero3_bf16.json\n", 8, "none"),
        ("fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n", 8, "none"),
        ("", 1, None),
    ],
)
def test_each_of_several_ranks_loads_straight_onto_its_gpu(keys, gpus, device_map):
    assert plan_of(keys, f"{gpus}xA100-80GB").load.device_map == device_map
