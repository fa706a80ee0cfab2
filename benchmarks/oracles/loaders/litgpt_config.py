"""LitGPT's own command line parsers over a YAML or a line, and its making of the optimizer that they name."""

from __future__ import annotations

from functools import cache
from typing import Any

from protocol import flat, serve


def prepare() -> Any:
    import torch
    from jsonargparse import ArgumentParser, set_docstring_parse_options
    from litgpt.finetune.adapter import setup as adapter
    from litgpt.finetune.full import setup as full
    from litgpt.finetune.lora import setup as lora
    from litgpt.pretrain import setup as pretrain
    from litgpt.utils import instantiate_torch_optimizer

    set_docstring_parse_options(attribute_docstrings=True)
    commands = {"adapter": adapter, "full": full, "lora": lora, "pretrain": pretrain}

    @cache
    def parser_of(command: str, *, is_line: bool) -> Any:
        parser = ArgumentParser(exit_on_error=False)
        parser.add_argument("--config", action="config")
        # A line may begin with the checkpoint (litgpt/__main__.py: CLI, whose required arguments are positional).
        parser.add_function_arguments(commands[command], as_positional=is_line)
        return parser

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        command = case["command"]
        if case.get("program") == "litgpt":
            parsed = parser_of(command, is_line=True).parse_args(case["argv"][1:])
        else:
            parsed = parser_of(command, is_line=False).parse_args(["--config", case["main"]])
        values = parsed.as_dict()
        weight = torch.nn.Parameter(torch.zeros(8))
        instantiate_torch_optimizer(values["optimizer"], [weight])
        return flat(values)

    return judge


if __name__ == "__main__":
    serve(prepare, "litgpt")
