"""What publishers wrote in full: commands, and the calls of a script with their keyword arguments.

A row's ``raw_args`` carries them as they stand: ``command`` and ``files`` (YAML or JSON by their names; a text is written
as it is), or the arguments of ``from_pretrained`` (``model``), ``BitsAndBytesConfig`` (``quantization``), ``LoraConfig`` (``lora``), of the
trainer's arguments (``arguments``) and of the trainer itself (``trainer``). A loop's ``criterion`` is a loss of its own
over logits cut by one token, its ``clip`` the norm to which it clips gradients; where it is
``cleared_late``, gradients go between forward and backward; a script's samples are ``padded_to`` a length.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.accuracy.facts import Row
from benchmarks.accuracy.languages.words import arguments_of, yaml_text


def command(row: Row) -> dict[str, str]:
    """A line of a shell, and the files that it names."""
    said = arguments_of(row)
    return {"run.sh": f"{said['command']}\n", **_files(said)}


def script(row: Row) -> dict[str, str]:
    """A script over a trainer of transformers or TRL, and the line that starts it."""
    said = arguments_of(row)
    arguments = str(said.get("arguments_class", "TrainingArguments"))
    trainer = str(said.get("trainer_class", "Trainer"))
    home = "trl" if arguments == "SFTConfig" else "transformers"
    keywords = {
        "model": "model",
        "args": "args",
        "train_dataset": "data",
        **said.get("trainer", {}),
    }
    text = f"""\
{_loaded(row)}{_tokenised(said)}
from {home} import {arguments}
from {"trl" if trainer == "SFTTrainer" else "transformers"} import {trainer}

args = {arguments}({_keywords(said["arguments"])})
trainer = {trainer}({_keywords(keywords, bare=("model", "args", "train_dataset", "peft_config"))})
trainer.train()
"""
    line = f"{said.get('launch', 'python')} train.py\n"
    return {"run.sh": line, "train.py": text, **_files(said)}


def unsloth(row: Row) -> dict[str, str]:
    """A script over Unsloth's classes and TRL's trainer."""
    said = arguments_of(row)
    keywords = {"model": "model", "args": "args", "train_dataset": "data", **said["trainer"]}
    text = f"""\
from transformers import TrainingArguments
from trl import SFTTrainer
from unsloth import FastLanguageModel

model, tokenizer = FastLanguageModel.from_pretrained(model_name={str(row["model"])!r}, {_keywords(said["model"])})
model = FastLanguageModel.get_peft_model(model, {_keywords(said["lora"])})
args = TrainingArguments({_keywords(said["arguments"])})
trainer = SFTTrainer({_keywords(keywords, bare=("model", "args", "train_dataset"))})
trainer.train()
"""
    return {"run.sh": "python train.py\n", "train.py": text}


def loop(row: Row) -> dict[str, str]:
    """A step of torch's own optimizer, or of DeepSpeed's engine, over batches of one length."""
    said = arguments_of(row)
    engine = said.get("deepspeed")
    prepared = (
        f'engine, _, _, _ = deepspeed.initialize(model=model, config="{engine}")\n'
        if engine
        else "optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)\n"
    )
    step = """\
    out = engine(**batch)
    engine.backward(out.loss)
    engine.step()
"""
    if not engine:
        cleared = "    optimizer.zero_grad()\n"
        late = bool(said.get("cleared_late"))
        step = f"""\
{"" if late else cleared}    out = model(**batch)
{_loss(said)}{cleared if late else ""}    loss.backward()
{_clipped(said)}    optimizer.step()
"""
    text = f"""\
{_loaded(row)}
{"import deepspeed" if engine else ""}

model.train()
{prepared}loader = torch.utils.data.DataLoader(data, batch_size={row["micro_batch"]})
for batch in loader:
{step}"""
    line = f"{said.get('launch', 'python')} train.py\n"
    return {"run.sh": line, "train.py": text, **_files(said)}


def _tokenised(said: Mapping[str, Any]) -> str:
    length = said.get("padded_to")
    if not length:
        return ""
    return f"""\
def tokenize(batch):
    return tokenizer(batch["text"], truncation=True, max_length={length}, padding="max_length")

data = load_dataset("data")["train"].map(tokenize, batched=True, remove_columns=["text"])
"""


def _loss(said: Mapping[str, Any]) -> str:
    if not said.get("criterion"):
        return "    loss = out.loss\n"
    return """\
    logits = out.logits[:, :-1, :].reshape(-1, out.logits.size(-1))
    loss = torch.nn.CrossEntropyLoss()(logits, batch["input_ids"][:, 1:].reshape(-1))
    del out, logits
"""


def _clipped(said: Mapping[str, Any]) -> str:
    norm = said.get("clip")
    return f"    torch.nn.utils.clip_grad_norm_(model.parameters(), {norm})\n" if norm else ""


def _loaded(row: Row) -> str:
    """The model with what is done to it before it trains."""
    said = arguments_of(row)
    model = dict(said.get("model", {}))
    if "quantization" in said:
        model["quantization_config"] = f"!BitsAndBytesConfig({_keywords(said['quantization'])})"
    text = f"""\
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

model = AutoModelForCausalLM.from_pretrained({str(row["model"])!r}, {_keywords(model)})
"""
    if said.get("moved"):
        text += "model = model.cuda()\n"
    if "prepared" in said:
        text += f"model = prepare_model_for_kbit_training(model, {_keywords(said['prepared'])})\n"
    if "lora" in said:
        text += f"peft_config = LoraConfig({_keywords(said['lora'])})\n"
        if said.get("added"):
            text += "model.add_adapter(peft_config)\n"
        elif not said.get("trainer", {}).get("peft_config"):
            text += "model = get_peft_model(model, peft_config)\n"
    if "frozen_but" in said:
        text += f"""\
for name, param in model.named_parameters():
    if not any(part in name for part in {said["frozen_but"]!r}):
        param.requires_grad = False
"""
    if "checkpointing" in said:
        text += f"model.gradient_checkpointing_enable({_keywords(said['checkpointing'])})\n"
        text += "model.enable_input_require_grads()\n"
    return text


def _keywords(values: Mapping[str, Any], bare: tuple[str, ...] = ()) -> str:
    return ", ".join(
        f"{key}={value if key in bare else _written(value)}" for key, value in values.items()
    )


def _written(value: Any) -> str:
    """A value as Python writes it: dtypes by their names, calls (``!``) as they stand."""
    if isinstance(value, str) and value.startswith(("torch.", "!")):
        return value.removeprefix("!")
    return repr(value)


def _files(said: Mapping[str, Any]) -> dict[str, str]:
    return {name: _file(name, content) for name, content in said.get("files", {}).items()}


def _file(name: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    return json.dumps(content, indent=1) + "\n" if name.endswith(".json") else yaml_text(content)
