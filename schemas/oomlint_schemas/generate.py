"""What the schema files must hold, according to the code."""

from __future__ import annotations

import json
from typing import Any

from oomlint.config.settings import Settings
from oomlint.diagnose.shapes import DiagnoseShape
from oomlint.plan import Plan
from oomlint.report.shapes import BaselineShape, CheckShape, CompareShape, EstimateShape, FitShape
from oomlint.validation.json_schema import schema_of
from oomlint_schemas.configs import config_schemas


def schemas() -> dict[str, dict[str, Any]]:
    """Every schema by its name."""
    settings = schema_of(Settings, "Settings of oomlint")
    settings["properties"]["margin"] |= {"exclusiveMinimum": 0, "maximum": 1}
    return {
        "oomlint": settings,
        "plan": schema_of(Plan, "Canonical plan of a training run"),
        "findings": schema_of(CheckShape, "Output of oomlint check --output-format json"),
        "estimate": schema_of(EstimateShape, "Output of oomlint estimate --output-format json"),
        "fit": schema_of(FitShape, "Output of oomlint fit --output-format json"),
        "compare": schema_of(CompareShape, "Output of oomlint compare --output-format json"),
        "diagnose": schema_of(DiagnoseShape, "Output of oomlint diagnose --output-format json"),
        "baseline": schema_of(BaselineShape, "Baseline of oomlint check --baseline"),
        **config_schemas(),
    }


def text_of(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
