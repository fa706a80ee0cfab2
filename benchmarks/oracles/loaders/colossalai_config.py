"""The own argparse of the scripts of Colossal-AI's applications: what stands under their ``__main__``, and imports nothing."""

from __future__ import annotations

import argparse
import ast
import os
from typing import Any

from protocol import NotMine, checkout, serve

_FOLDERS = ("applications/ColossalChat/examples/training_scripts", "applications/Colossal-LLaMA")


def prepare() -> Any:
    home = checkout("ColossalAI")

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        name = os.path.basename(case["program"])
        paths = (os.path.join(home, folder, name) for folder in _FOLDERS)
        path = next((path for path in paths if os.path.isfile(path)), None)
        if path is None:
            raise NotMine
        return vars(_parser(path).parse_args(case["argv"]))

    return judge


def _parser(path: str) -> argparse.ArgumentParser:
    with open(path, encoding="utf-8") as file:
        main = next(node for node in ast.parse(file.read()).body if isinstance(node, ast.If))
    declares = [node for node in main.body if _is_of_parser(node)]
    names: dict[str, Any] = {"argparse": argparse}
    exec(compile(ast.Module(declares, []), path, "exec"), names)
    parser: argparse.ArgumentParser = names["parser"]
    return parser


def _is_of_parser(node: ast.stmt) -> bool:
    """Whether a statement makes the parser or adds an option to it."""
    text = ast.unparse(node)
    return text.startswith(("parser = ", "parser.add_argument("))


if __name__ == "__main__":
    serve(prepare, "ColossalAI")
