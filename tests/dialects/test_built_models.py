"""Models that a script builds after the configuration of another one."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_HEAD = (
    "from transformers import (AutoConfig, AutoModelForCausalLM, AutoTokenizer, GPT2Config,\n"
    "    GPT2LMHeadModel, LlamaForCausalLM, Trainer, TrainingArguments)\n"
    'NAME = "meta-llama/Llama-3.2-1B"\ntokenizer = AutoTokenizer.from_pretrained(NAME)\n'
)
_TAIL = (
    'args = TrainingArguments(output_dir="out", per_device_train_batch_size=8, bf16=True)\n'
    "Trainer(model=model, args=args, train_dataset=data).train()\n"
)
_CONFIG = "config = AutoConfig.from_pretrained(NAME, vocab_size=len(tokenizer))\n"


def _run(text: str, **files: str) -> Run:
    return run_of({"train.py": _HEAD + text + _TAIL} | files, "train.py")


@pytest.mark.parametrize(
    "text",
    [
        _CONFIG + "model = LlamaForCausalLM(config)\n",
        _CONFIG + "model = LlamaForCausalLM(config=config)\n",
        _CONFIG + "model = AutoModelForCausalLM.from_config(config)\n",
        "model = LlamaForCausalLM(AutoConfig.from_pretrained(NAME))\n",
    ],
)
def test_it_has_the_dimensions_of_the_model_whose_configuration_it_takes(text: str) -> None:
    run = _run(text)
    assert run.plan.model.id == "meta-llama/Llama-3.2-1B"
    assert run.level(f.model.id) is Level.STATED
    assert run.estimate.gpu.peak_bytes


@pytest.mark.parametrize("pinned", ["4.51.0", "5.10.0"])
def test_new_weights_are_fp32_in_every_release(pinned: str) -> None:
    pins = {"requirements.txt": f"transformers=={pinned}\n"}
    files = {"train.py": f"{_HEAD}{_CONFIG}model = LlamaForCausalLM(config)\n{_TAIL}"}
    assert run_of(files | pins, "train.py").plan.load.dtype == "fp32"


@pytest.mark.parametrize(
    "text",
    [
        'model = LlamaForCausalLM(AutoConfig.from_pretrained("gpt2", n_layer=6))\n',
        "model = LlamaForCausalLM(AutoConfig.from_pretrained(NAME, vocab_size=5000))\n",
        "model = GPT2LMHeadModel(GPT2Config(n_embd=768, n_layer=6))\n",
        "config = make()\nmodel = LlamaForCausalLM(config)\n",
        "config = AutoConfig.from_pretrained(NAME)\nconfig = smaller(config)\nmodel = LlamaForCausalLM(config)\n",
    ],
)
def test_a_configuration_that_the_script_changes_is_not_that_models(text: str) -> None:
    assert _run(text).plan.model.id is None
