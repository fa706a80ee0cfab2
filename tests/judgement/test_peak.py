"""The law of severities: what is known, what is guessed, and what helps."""

import pytest
from tests import linked

from oomlint.hardware import common_cards, parse_hardware, usable_bytes
from oomlint.judgement import (
    confidence,
    judge_gpu,
    judge_host,
    judgement_of,
    relief,
    settled,
    severity_of_block,
    sharding_is_open,
    smallest_card,
    words,
)
from oomlint.judgement.peak import _a
from oomlint.linting.rule import Severity

GIB = 2**30
RUN = (
    "base_model: {model}\nmicro_batch_size: {micro}\nsequence_len: 4096\ndatasets:\n  - path: a/b\n"
)
ZERO3 = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}'


def run_of(model="meta-llama/Llama-3.1-8B", micro=1, more="", hardware=None, ram=None):
    files = {"a.yaml": RUN.format(model=model, micro=micro) + more, "ds.json": ZERO3}
    values = {} if ram is None else {"host.ram_gib": ram}
    return linked.run_of(files, "a.yaml", hardware=hardware, values=values)


def test_run_that_fits_with_room_is_no_problem():
    judgement = judge_gpu(run_of(more="deepspeed: ds.json\n", hardware="8xH200-141GB"))
    assert judgement.severity is None
    assert not judgement.is_problem


def test_run_that_cannot_fit_is_an_error_and_says_so():
    judgement = judge_gpu(run_of(hardware="1xA100-40GB"))
    assert judgement.severity is Severity.ERROR
    assert judgement.sentence.startswith(f"needs {judgement.predicted / GIB:.1f} GiB ")
    assert "; an A100-40GB gives " in judgement.sentence


def test_a_small_block_finds_room_in_pieces_where_a_large_one_does_not():
    full = run_of(hardware="1xA100-40GB")
    assert severity_of_block(full, 3 * GIB) is Severity.INFO
    assert severity_of_block(full, 4 * GIB) is Severity.ERROR
    roomy = run_of(more="deepspeed: ds.json\n", hardware="8xH200-141GB")
    assert severity_of_block(roomy, 4 * GIB) is None


def test_a_run_that_only_long_samples_overflow_is_a_note_and_says_so():
    more = "adapter: lora\nlora_r: 8\nlora_target_linear: true\ngradient_checkpointing: true\nbf16: true\n"
    judgement = judge_gpu(run_of(micro=16, more=more, hardware="1xA100-80GB"))
    assert judgement.severity is Severity.INFO
    assert judgement.is_up_to_data
    assert "(with samples of 4,096 tokens)" in judgement.sentence
    run = judgement_of(run_of(micro=16, more=more, hardware="1xA100-80GB"))
    assert (run.verdict, words.verdict_words(run)) == ("tight", "probably does not fit")
    for certain in ("sample_packing: true\n", "pad_to_sequence_len: true\n"):
        judgement = judge_gpu(run_of(micro=16, more=more + certain, hardware="1xA100-80GB"))
        assert judgement.severity is Severity.ERROR
        assert not judgement.is_up_to_data
        assert "samples of" not in judgement.sentence
    far_too_much = judge_gpu(run_of(micro=512, more=more, hardware="1xA100-80GB"))
    assert far_too_much.severity is Severity.ERROR
    anywhere = judge_gpu(run_of(micro=16, more=more))
    assert anywhere.limit is None
    assert "(with samples of 4,096 tokens) on " in anywhere.sentence
    assert "samples of" not in judge_gpu(run_of(micro=512, more=more)).sentence


def test_a_run_that_dies_by_each_reading_has_the_least_need_beside_the_predicted():
    dying = judge_gpu(run_of(micro=16, more="deepspeed: ds.json\n", hardware="8xRTX-4090-24GB"))
    assert dying.limit < dying.least.need < dying.predicted
    assert dying.least.words == "its samples are like those of short data sets"
    lives_with_short = judge_gpu(
        run_of(
            micro=16,
            more="adapter: lora\nlora_r: 8\nlora_target_linear: true\n",
            hardware="1xH200-141GB",
        )
    )
    assert lives_with_short.predicted > lives_with_short.limit
    assert lives_with_short.least is None
    packed = judge_gpu(run_of(more="sample_packing: true\n", hardware="1xA100-40GB"))
    assert packed.predicted > packed.limit
    assert packed.least is None


def test_unknown_hardware_is_at_most_a_warning_and_names_a_card():
    small = judge_gpu(run_of("meta-llama/Llama-3.2-1B"))
    assert small.severity is Severity.INFO
    assert small.limit is None
    assert f"the smallest common card that holds it is {small.card}" in small.sentence
    large = judge_gpu(run_of("meta-llama/Llama-3.1-70B"))
    assert large.severity is Severity.WARNING
    assert large.card is None
    assert "more than any common card has" in large.sentence


def test_number_of_gpus_is_assumed_only_where_it_matters():
    alone = run_of()
    assert settled(alone) is alone
    sharded = run_of(more="deepspeed: ds.json\n")
    assert settled(sharded).plan.parallel.world == 8
    assert "on one node of 8 GPUs" in judge_gpu(sharded).sentence


def test_misspelt_key_is_read_as_meant_and_told():
    run = run_of(more="gradient_checkpointng: true\n", hardware="1xA100-80GB")
    plain, meant = judge_gpu(run_of(hardware="1xA100-80GB")), judge_gpu(run)
    assert meant.predicted < plain.predicted
    assert "(with gradient_checkpointng read as gradient_checkpointing" in meant.sentence
    assert "read as" not in plain.sentence


def test_slip_that_changes_nothing_is_not_told():
    more = "gradient_checkpointng: true\nlearning_rat: 1\n"
    assert "learning_rat" not in judge_gpu(run_of(more=more)).sentence


def test_model_that_nobody_knows_is_not_judged():
    run = run_of("my/own")
    assert judge_gpu(run) is None
    assert judge_host(run) is None
    assert relief(run, {"batch.micro": 1}) is None
    assert confidence(run) == "low"


def test_a_file_that_is_not_at_hand_may_change_it_all():
    more = {"more": "deepspeed: ours.json\n", "hardware": "8xA100-80GB"}
    run = run_of("meta-llama/Llama-3.1-70B", **more)
    assert [missing.reference for missing in run.missing] == ["ours.json"]
    assert judge_gpu(run).severity < Severity.ERROR


def test_host_is_judged_only_where_its_memory_is_known():
    assert judge_host(run_of()).severity is None
    judgement = judge_host(run_of(ram=4))
    assert judgement.severity is Severity.ERROR
    assert "a host with 4.0 GiB of RAM" in judgement.sentence


def test_one_phase_can_be_judged():
    run = run_of(hardware="8xA100-80GB")
    whole, load = judge_gpu(run), judge_gpu(run, phase="load")
    assert load.predicted == run.estimate.gpu.phases["load"] <= whole.predicted
    assert "while loading" in load.sentence


def test_relief_says_what_is_left():
    run = run_of(micro=8, hardware="1xA100-80GB")
    small = relief(run, {"batch.micro": 7, "batch.grad_accum": 8})
    assert small.saved > 0
    assert not small.suffices
    assert "too much" in small.sentence
    assert relief(run, {"parallel.zero.stage": 3}) is None


def test_relief_of_a_run_that_fits_is_not_worth_a_word():
    run = run_of("meta-llama/Llama-3.2-1B", hardware="1xH200-141GB")
    assert not relief(run, {"checkpointing.mode": "full"}).is_worthwhile


def test_smallest_card():
    cards = list(common_cards())
    sizes = [usable_bytes(card) for card in cards]
    assert sizes == sorted(sizes)
    assert smallest_card(1) == cards[0].name
    assert smallest_card(sizes[-1]) is None
    for card, size in zip(cards, sizes, strict=True):
        assert usable_bytes(parse_hardware(smallest_card(int(size * 0.95))).gpu) == size, card


@pytest.mark.parametrize(
    ("name", "article"),
    [
        ("A100-80GB", "an"), ("H100-80GB", "an"), ("L4-24GB", "an"), ("MI300X-192GB", "an"),
        ("RTX-4090-24GB", "an"), ("RTX-2080Ti-11GB", "an"), ("RX-7900-XTX-24GB", "an"),
        ("V100-16GB", "a"), ("T4-16GB", "a"), ("B200-180GB", "a"), ("GH200-96GB", "a"),
        ("910B-64GB", "a"), ("Gaudi2-96GB", "a"), ("Max-1550-64GB", "a"), ("P40-24GB", "a"),
    ],
)  # fmt: skip
def test_articles(name, article):
    assert _a(name) == f"{article} {name}"


def test_quantized_experts_leave_the_prediction_open():
    """bitsandbytes quantizes experts or not, by the version of transformers: never an error."""
    text = (
        b"base_model: mistralai/Mixtral-8x7B-v0.1\ndatasets: [x]\nload_in_4bit: true\n"
        b"adapter: qlora\nlora_r: 8\nlora_target_linear: true\n"
    )
    run = linked.run_of({"a.yaml": text}, hardware="1xA100-80GB")
    assert confidence(run) == "low"
    packed = text + b"quantize_moe_experts: true\n"
    run = linked.run_of({"a.yaml": packed}, hardware="1xA100-80GB")
    assert confidence(run) != "low"


@pytest.mark.parametrize(
    ("model", "is_packed"),
    [("mistralai/Mixtral-8x7B-v0.1", True), ("meta-llama/Llama-4-Scout-17B-16E-Instruct", False)],
)
def test_experts_of_one_parameter_are_quantized_in_no_release(model, is_packed):
    """Those of Llama 4 were stacked when transformers 4 still had a linear layer for each of Mixtral's."""
    text = ADAPTER.format(model=model) + "quantization_bit: 4\n"
    files = {"a.yaml": text.encode(), "requirements.txt": b"transformers==4.51.3\n"}
    run = linked.run_of(files, hardware="8xA100-80GB")
    parameters = run.estimate.gpu.components["parameters"]
    moe = run.plan.model.dims.params_total
    assert (parameters < moe) is is_packed


ADAPTER = (
    "stage: sft\ndo_train: true\nfinetuning_type: lora\nlora_target: all\ndataset: a\n"
    "template: llama3\noutput_dir: o\ncutoff_len: 1024\nper_device_train_batch_size: 1\n"
    "bf16: true\nmodel_name_or_path: {model}\n"
)


@pytest.mark.parametrize(
    ("model", "hardware", "launch", "severity", "is_open"),
    [
        ("meta-llama/Llama-3.1-70B", "8xA100-80GB", "", Severity.INFO, True),
        ("meta-llama/Llama-3.1-405B", "8xA100-80GB", "", Severity.ERROR, True),
        ("meta-llama/Llama-3.1-70B", None, "", Severity.WARNING, True),
        ("meta-llama/Llama-3.1-8B", "8xA100-80GB", "", None, False),
        ("meta-llama/Llama-3.1-70B", "1xA100-80GB", "", Severity.ERROR, False),
        (
            "meta-llama/Llama-3.1-70B",
            "8xA100-80GB",
            "torchrun --nproc_per_node 8 src/train.py a.yaml\n",
            Severity.ERROR,
            False,
        ),
    ],
)
def test_whether_a_model_too_large_for_a_card_is_sharded_is_the_launchers_to_say(
    model, hardware, launch, severity, is_open
):
    files = {"a.yaml": ADAPTER.format(model=model)}
    if launch:
        files["run.sh"] = launch
    run = linked.link(files, hardware=hardware).runs[0]
    judgement = judge_gpu(run)
    assert judgement.severity == severity
    assert sharding_is_open(run) == is_open
    assert ("unless what launches it" in judgement.sentence) == is_open


def test_samples_that_are_joined_may_be_short_too():
    text = (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=a "
        "data.max_prompt_length=512 data.max_response_length=1024 "
        "actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct "
        "actor_rollout_ref.actor.ppo_mini_batch_size=116 "
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1 "
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=116 trainer.nnodes=1 "
        "trainer.n_gpus_per_node=1 actor_rollout_ref.model.use_remove_padding={}\n"
    )

    def severity(removes):
        files = {"run.sh": text.format(removes)}
        return judge_gpu(linked.run_of(files, hardware="1xH100-80GB")).severity

    assert severity(True) is None
    assert severity(False) is Severity.ERROR


@pytest.mark.parametrize(("processes", "least"), [(4, Severity.ERROR), (8, Severity.INFO)])
def test_what_ranks_without_a_card_would_need_is_a_remark(processes: int, least: Severity) -> None:
    """They stop before they take any memory, which is what is wrong with the run on that machine."""
    line = (
        f"torchrun --nproc_per_node {processes} src/train.py --stage sft --do_train --packing true "
        "--model_name_or_path meta-llama/Llama-3.1-8B --finetuning_type full --cutoff_len 4096 "
        "--per_device_train_batch_size 4 --bf16 --output_dir out --dataset alpaca_en\n"
    )
    report = linked.report_of({"run.sh": line}, hardware="4xRTX-4090-24GB")
    of_memory = [each for each in report.diagnoses if each.finding.resource == "gpu"]
    assert max(each.severity for each in of_memory) is least
    said = "reckoned with 8 processes a node, for which this machine has 4 GPUs"
    assert any(said in each.finding.details for each in of_memory) is (processes == 8)
    starts = [each for each in report.diagnoses if each.rule.code == "OOM706"]
    assert len(starts) == (processes == 8)


def test_a_run_that_does_not_start_on_a_machine_has_no_verdict_there():
    """Ranks without a card end it before it takes any memory: its findings are remarks, and so is its verdict."""
    config = RUN.format(model="meta-llama/Llama-3.1-8B", micro=8)
    launch = "accelerate launch --num_processes 8 -m axolotl.cli.train a.yaml\n"
    files = {"a.yaml": config, "run.sh": launch}
    run = linked.run_of(files, hardware="4xA100-40GB")
    judgement = judgement_of(run)
    assert (judgement.verdict, judgement.risk) == ("unknown", None)
    assert words.left_open(judgement.spoken) == (
        ": 8 processes a node, for which this machine has 4 GPUs"
    )
    enough = judgement_of(linked.run_of(files, hardware="8xA100-40GB"))
    assert (enough.verdict, words.left_open(enough.spoken)) == ("does_not_fit", "")
