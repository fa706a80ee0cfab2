"""nanotron's own reading of a YAML: dacite over its dataclasses, and what they check of themselves."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from protocol import checkout, flat, plain, serve, stand_in


def prepare() -> Any:
    checkout("nanotron", "src")
    stand_in("flash_attn", "functorch", "lighteval", "apex", "numba", "grouped_gemm", "triton")
    from nanotron.config import Config, get_config_from_file

    def judge(case: dict[str, Any]) -> dict[str, Any]:
        config = get_config_from_file(case["main"], config_class=Config)
        values = plain(asdict(config))
        for enumeration in ("pp_engine", "tp_mode"):
            values["parallelism"][enumeration] = _word(getattr(config.parallelism, enumeration))
        return flat(values)

    return judge


def _word(value: Any) -> str:
    """The word of a file for an enumeration, or for the engine of a pipeline."""
    names = {
        "AllForwardAllBackwardPipelineEngine": "afab",
        "OneForwardOneBackwardPipelineEngine": "1f1b",
    }
    return names.get(type(value).__name__, str(getattr(value, "name", value)))


if __name__ == "__main__":
    serve(prepare, "nanotron")
