"""What a run is called where something shows it."""

from tests.linked import run_of

_CONFIG = "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 1\ndatasets:\n  - {path: a/b, type: alpaca}\n"


def test_a_run_is_shown_by_its_name() -> None:
    """pytest shows what an assertion failed of: a run holds all of its project, many times over."""
    run = run_of({"train.yaml": _CONFIG}, hardware="1xA100-80GB")
    assert repr(run) == "<Run train.yaml>"
