"""How rows were said: for each framework the text in its own language that says what a row says.

A language turns a row into files, the first of which is what a user would hand to oomlint; oomlint's own dialects
read them like any others. It writes down what the row says and nothing that the framework would do by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.accuracy.facts import Row
from benchmarks.accuracy.languages import (
    axolotl,
    fsdp_qlora,
    litgpt,
    llm_foundry,
    ms_swift,
    prime_rl,
    scripts,
    spelled,
    torchtitan,
    torchtune,
    trainer,
)

Files = dict[str, str]
"""Texts by their names, the run's own first."""

LANGUAGES: Mapping[str, Callable[[Row], Files]] = {
    "axolotl": axolotl.config,
    "fsdp_qlora": fsdp_qlora.train,
    "litgpt": litgpt.finetune,
    "llm-foundry": llm_foundry.pretrain,
    "ms-swift": ms_swift.current_command,
    "ms-swift-2": ms_swift.older_command,
    "accelerate": scripts.accelerate_loop,
    "alignment-handbook": scripts.handbook,
    "chatglm3": scripts.chatglm3,
    "deepspeed": scripts.deepspeed_loop,
    "llama-factory": scripts.llamafactory,
    "minicpm": scripts.minicpm,
    "peft-example": scripts.peft_example,
    "peft-loop": scripts.peft_loop,
    "trainer": scripts.trainer,
    "torchtitan": torchtitan.config,
    "torchtitan-2024": torchtitan.early,
    "torchtitan-registry": torchtitan.registry,
    "torchtune": torchtune.run,
    "prime-rl": prime_rl.train,
    "qwen": trainer.qwen,
    "command": spelled.command,
    "loop": spelled.loop,
    "script": spelled.script,
    "unsloth": spelled.unsloth,
}
