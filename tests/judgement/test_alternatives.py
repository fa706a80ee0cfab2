"""What else would make a run fit: offloading, more cards, fewer trained parameters."""

from pathlib import Path

from oomlint.dialects import registry
from oomlint.files.workspace import Workspace
from oomlint.hardware import parse_hardware
from oomlint.judgement.alternatives import ways_out
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker

RUN = (
    "base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 1\nsequence_len: 2048\n"
    "gradient_checkpointing: true\ndatasets:\n  - path: a/b\n"
)
ZERO = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}'


def ways(more="deepspeed: ds.json\n", hardware=None, settings=ZERO, **values):
    files = {"a.yaml": (RUN + more).encode(), "ds.json": settings.encode()}
    options = LinkOptions(parse_hardware(hardware) if hardware else None, None, values)
    [run] = Linker(Workspace(Path("/p"), files), registry(), options).link(["a.yaml"]).runs
    return ways_out(run)


def test_all_ways_with_their_numbers():
    text = ways(hardware="2xA100-40GB", **{"host.ram_gib": 64.0})
    assert text.startswith("ZeRO-3 with the optimizer in host RAM (")
    assert "of RAM a node instead of 64.0 GiB" in text
    assert " such cards instead of 2 (" in text
    assert " or LoRA of rank 16 (" in text


def test_more_cards_are_counted_in_whole_nodes():
    text = ways(hardware="2xA100-40GB")
    count = int(text.split(" such cards")[0].split()[-1])
    assert count in (4, 8, 16)


def test_ranks_of_a_launcher_do_not_hide_that_more_cards_help():
    text = ways(hardware="2xA100-40GB", **{"launch.total_processes": 2})
    assert " such cards instead of 2 (" in text


def test_more_cards_do_not_help_where_nothing_is_sharded():
    text = ways(more="", hardware="2xA100-40GB")
    assert "such cards" not in text
    assert "LoRA" in text


def test_adapter_run_has_neither_offload_nor_lora():
    more = "deepspeed: ds.json\nadapter: lora\nlora_r: 8\nlora_target_linear: true\n"
    assert ways(more=more) == ""


def test_hardware_unknown_speaks_of_no_number_of_cards():
    assert "such cards" not in ways()


def test_nothing_is_known_of_an_unknown_model():
    files = {"a.yaml": RUN.replace("meta-llama/Llama-3.1-8B", "my/own").encode()}
    [run] = Linker(Workspace(Path("/p"), files), registry(), LinkOptions()).link(["a.yaml"]).runs
    assert ways_out(run) == ""


def test_a_whole_copy_on_each_card_can_be_sharded():
    text = ways(more="", hardware="8xA100-40GB")
    assert text.startswith("sharding with ZeRO-3 or FSDP (")


def test_idle_cards_of_the_machine_come_before_more_machines():
    text = ways(hardware="8xA100-40GB", **{"launch.total_processes": 2})
    assert "all 8 cards instead of 2 (" in text


def test_bringing_in_zero_3_brings_the_gather_that_saves_the_model():
    gathers = '"stage": 3, "stage3_gather_16bit_weights_on_model_save": true'
    second, third = ZERO.replace("3", "2"), ZERO.replace('"stage": 3', gathers)
    assert ways(settings=second).partition(")")[0] == ways(settings=third).partition(")")[0]
    assert "of RAM a node" in ways(settings=third).partition(")")[0]
