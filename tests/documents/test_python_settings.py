"""What a program's code does with its settings."""

from __future__ import annotations

from oomlint.documents.python.settings import Code, read_code
from oomlint.documents.text import Source


def _code(text: str) -> Code:
    code = read_code(Source("x.py", text))
    assert code is not None
    return code


def test_a_setting_is_read_as_attribute_item_or_by_name() -> None:
    for text in (
        "a = self.config.data.size",
        'a = config.data.get("size", 4)',
        'a = config["data"]["size"]',
        'a = getattr(config.data, "size", None)',
        "config.data.size = 3",
    ):
        assert _code(text).reads("data.size") is not None, text
    assert _code("a = config.data.sizes").reads("data.size") is None
    assert _code("# config.data.size").reads("data.size") is None


def test_a_setting_is_divided() -> None:
    text = "a.data.size //= n\n"
    found = _code(text).divides("data.size")
    assert found is not None
    assert text[found.start : found.end] == "a.data.size //= n"
    assert _code("a.data.size /= n").divides("data.size") is None


def test_methods_count_on_what_is_named_so() -> None:
    assert _code("self.inference_engine.sleep(level=1)").calls("sleep", on="engine") is not None
    assert _code("time.sleep(1)").calls("sleep", on="engine") is None


def test_an_argument_comes_from_a_setting_or_else_from_a_literal() -> None:
    def origin(before: str, value: str = "dtype") -> tuple[str | None, str | None]:
        found = _code(f"{before}\nA.load(p, kind={value})").argument("load", "kind")
        assert found is not None
        return found.path, found.otherwise

    assert origin("", "torch.float32") == (None, "torch.float32")
    assert origin('dtype = named(self.config.model.get("dtype", "fp32"))') == (
        "model.dtype",
        "fp32",
    )
    assert origin('d = "fp16" if cuda else "fp32"\ndtype = config.get("dtype", d)') == (
        "dtype",
        "fp16",
    )
    assert origin("dtype = config.model.dtype\ndtype = to(dtype)") == ("model.dtype", None)
    assert _code("A.load(p)").argument("load", "kind") is None


def test_what_is_no_python_has_no_code() -> None:
    assert read_code(Source("x.py", "def (")) is None
    assert read_code(Source("x.py", "a\0b")) is None
