"""What a run says of itself: origins, places, changes, and what its author means."""

import pytest
from tests.linked import link

from oomlint.errors import CannotEdit

RUN = "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 4\ndatasets:\n  - path: a/b\n"
ZERO = '{"zero_optimization": {"stage": 2}}'


def run_of(files, hardware=None, **values):
    files = {"a.yaml": files} if isinstance(files, str) else files
    return link(files, hardware=hardware, values=values).runs[0]


def text_at(run, location, files):
    return files[location.path][location.span.start : location.span.end]


def test_places_of_a_key_a_derivation_and_a_default():
    files = {"a.yaml": f"{RUN}deepspeed: ds.json\n", "ds.json": ZERO}
    run = run_of(files)
    assert text_at(run, run.location("batch.micro"), files) == "micro_batch_size: 4"
    assert text_at(run, run.location("parallel.zero.stage"), files) == '"stage": 2'
    assert text_at(run, run.location("parallel.backend"), files) == "deepspeed: ds.json"
    assert run.location("seq.max_len") == run.anchor
    assert run.location("no.such.field") == run.anchor
    assert run.location("seq.max_len", "batch.micro") == run.location("batch.micro")


def test_origins_and_keys():
    run = run_of(f"{RUN}sequence_parallel_degree: 2\n", **{"seq.max_len": 64})
    assert run.origin("batch.micro").kind == "explicit"
    assert run.origin("batch.grad_accum").kind == "default"
    assert run.origin("parallel.backend") is None
    assert run.origin("seq.max_len").kind == "option"
    assert run.is_explicit("batch.micro")
    assert not run.is_explicit("seq.max_len")
    assert run.key("parallel.cp") == "sequence_parallel_degree"
    assert run.key("batch.grad_accum") == "gradient_accumulation_steps"
    assert run.key("no.such.field") == "no.such.field"


def test_value_that_only_user_code_tells_is_neither_default_nor_guess():
    run = run_of(RUN.replace("size: 4", "size: ${MICRO}"))
    assert run.plan.batch.micro is None
    assert list(run.unreadable) == ["batch.micro"]
    assert run.location("batch.micro").span.start == RUN.index("micro")


def test_list_with_an_unknown_item_is_unknown_and_not_wrong():
    run = run_of(f"{RUN}adapter: lora\nlora_target_modules:\n  - q_proj\n  - ${{MORE}}\n")
    assert "axolotl.target_modules" in run.unreadable
    assert run.wrong == ()


def test_value_that_the_framework_refuses():
    run = run_of(RUN.replace("size: 4", "size: many"))
    [wrong] = run.wrong
    assert wrong.expected == "expected a whole number"
    assert run.plan.batch.micro is None


def test_hardware_gives_ranks_and_limits():
    run = run_of(RUN, "2x8xA100-80GB")
    assert (run.plan.parallel.world, run.plan.parallel.dp) == (16, 16)
    assert run.plan.batch.global_ == 64
    assert 75 < run.limits.gpu_bytes / 2**30 < 80
    assert run_of(RUN).limits.gpu_bytes is None


def test_option_for_host_memory_becomes_a_limit():
    assert run_of(RUN, **{"host.ram_gib": 2.0}).limits.host_bytes == 2 * 2**30


# -- what if ----------------------------------------------------------------------------


def test_change_is_foreseen_and_the_run_stays():
    run = run_of(RUN, "8xA100-80GB")
    changed = run.what_if({"batch.micro": 1, "batch.grad_accum": 4})
    assert (changed.plan.batch.micro, changed.plan.batch.global_) == (1, 32)
    assert run.plan.batch.micro == 4
    assert changed.wished == {"batch.micro": 1, "batch.grad_accum": 4}
    assert changed.estimate.gpu.peak_bytes < run.estimate.gpu.peak_bytes
    assert run.what_if({"batch.grad_accum": 4, "batch.micro": 1}) is changed


def test_changes_add_up_and_survive_assumptions():
    run = run_of(RUN)
    both = run.what_if({"batch.micro": 2}).assuming(
        {"parallel.nodes": 1, "parallel.gpus_per_node": 2}
    )
    both = both.what_if({"seq.max_len": 64})
    assert (both.plan.batch.micro, both.plan.seq.max_len, both.plan.parallel.world) == (2, 64, 2)
    assert both.plan.name == run.name


def test_change_that_the_framework_cannot_say():
    with pytest.raises(CannotEdit, match=r"no key for offload\.nvme_path"):
        run_of(RUN).what_if({"offload.nvme_path": "/x"})


def test_wish_for_auto_leaves_the_value_to_the_framework():
    files = {
        "a.yaml": f"{RUN}deepspeed: ds.json\n",
        "ds.json": '{"zero_optimization": {"stage": 3, "reduce_bucket_size": 5}}',
    }
    changed = run_of(files).what_if({"parallel.zero.reduce_bucket_elems": None})
    assert changed.wished == {"parallel.zero.reduce_bucket_elems": None}
    assert changed.plan.parallel.zero.reduce_bucket_elems == 2048**2


# -- what its author means ----------------------------------------------------------------


def test_misspelt_key_is_taken_for_what_it_means():
    run = run_of(f"{RUN}sequence_length: 2048\n")
    assert run.plan.seq.max_len == 512
    assert run.intended.plan.seq.max_len == 2048
    assert run.intended.what_if({"batch.micro": 1}).plan.seq.max_len == 2048


@pytest.mark.parametrize(
    "more",
    [
        "",
        "sequence_length: 64\nsequence_len: 32\n",
        "sequence_length: ${LEN}\n",
        "sequence_length: many\n",
        "sequence_length:\n",
        "wholly_unheard_of: 1\n",
    ],
)
def test_run_without_a_telling_slip_means_itself(more):
    run = run_of(RUN + more)
    assert run.intended is run


def test_option_beats_the_meaning_of_a_slip():
    run = run_of(f"{RUN}sequence_length: 2048\n", **{"seq.max_len": 64})
    assert run.intended.plan.seq.max_len == 64


# -- files ------------------------------------------------------------------------------


def test_files_are_the_main_one_first_and_shipped_ones_are_not_ours():
    files = {"a.yaml": f"{RUN}deepspeed: ds.json\n", "ds.json": ZERO}
    assert run_of(files).files == ("a.yaml", "ds.json")
    assert run_of(f"{RUN}deepspeed: deepspeed_configs/zero2.json\n").files == ("a.yaml",)


def test_fragment_is_a_part_that_nothing_uses():
    assert run_of({"ds.json": ZERO}).is_fragment
    assert not run_of(RUN).is_fragment
