"""What rules' examples are made of."""

from oomlint_rules._examples import (
    axolotl,
    each,
    example,
    line,
    llama_factory,
    mended,
    text,
    under_deepspeed,
)


def test_a_machine_is_its_cards_and_after_a_comma_its_ram():
    both = example({"a.yaml": ""}, on="8xA100-80GB, 1TiB")
    assert (both.hardware, both.host_memory) == ("8xA100-80GB", "1TiB")
    cards = example({"a.yaml": ""}, on="8xA100-80GB")
    assert (cards.hardware, cards.host_memory) == ("8xA100-80GB", None)
    nothing = example({"a.yaml": ""})
    assert (nothing.hardware, nothing.host_memory, nothing.fixed) == (None, None, None)


def test_a_gap_holds_what_stands_there_and_what_the_fix_makes_of_it():
    found = mended("a.yaml", "micro: {micro}\nsteps: {steps}\n", micro=(8, 4), steps=2)
    assert found.files == {"a.yaml": "micro: 8\nsteps: 2\n"}
    assert found.fixed == {"a.yaml": "micro: 4\nsteps: 2\n"}


def test_the_same_of_each_file_is_a_project_apiece():
    files = {"a.yaml": "length: {length}\n", "b.yaml": "cutoff: {length}\n"}
    first, second = each(files, length=(8, 4), on="1xA100-40GB")
    assert (first.files, first.fixed) == ({"a.yaml": "length: 8\n"}, {"a.yaml": "length: 4\n"})
    assert (second.files, second.hardware) == ({"b.yaml": "cutoff: 8\n"}, "1xA100-40GB")
    assert [one.fixed for one in each(files, length=8)] == [None, None]


def test_a_config_names_the_json_that_stands_beside_it():
    found = under_deepspeed("a: 1\n", '"stage": 2', '"stage": 3')
    assert found.files["train.yaml"] == "a: 1\ndeepspeed: ds.json\n"
    assert '{"stage": 2}' in found.files["ds.json"]
    assert found.fixed is not None
    assert '{"stage": 3}' in found.fixed["ds.json"]
    assert under_deepspeed("a: 1\n", '"stage": 2').fixed is None


def test_adapters_are_on_all_layers_or_on_those_named():
    assert "lora" not in axolotl("m/m")
    assert "lora_target_linear: true\n" in axolotl("m/m", lora="all")
    assert "lora_target_modules: [q_proj]\n" in axolotl("m/m", lora="[q_proj]")
    assert "finetuning_type: full\n" in llama_factory("m/m")
    assert "finetuning_type: lora\nlora_target: all\n" in llama_factory("m/m", lora="all")


RECIPE = text(
    """
    model:
      id: "{model}"

    run: a \\
        b
    """
)
LINE = line(
    """
    torchrun
    train.py --bf16
    """
)


def test_a_file_stands_in_the_code_as_it_looks():
    assert RECIPE == 'model:\n  id: "{model}"\n\nrun: a \\\n    b\n'
    assert LINE == "torchrun train.py --bf16\n"
