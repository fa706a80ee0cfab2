"""What rules' examples are made of."""

from oomlint_rules._examples import axolotl, example, line, llama_factory, mended, text


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
