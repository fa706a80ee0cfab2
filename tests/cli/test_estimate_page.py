"""``oomlint estimate --html``: a page that stands alone, says what the text says, and escapes."""

import json
import re
from html.parser import HTMLParser

import pytest

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Reads a page: text, attributes by element; refuses elements that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def count(self, tag):
        return sum(name == tag for name, _ in self.elements)


@pytest.fixture
def page_of(oomlint, project):
    def make(*arguments):
        result = oomlint("estimate", *arguments, "--html", "page.html")
        assert result.exit_code == 0, result.stderr
        return Page((project / "page.html").read_text("utf-8")), result.stdout

    return make


def test_the_page_says_what_the_text_says(page_of, axolotl):
    page, text = page_of("axolotl.yaml", "--hardware", "8xH100-80GB", "--host-memory", "1TiB")
    said = " ".join(page.text.split())
    assert "Per GPU: " in said
    for size in re.findall(r"[\d.]+ [GM]iB", text):
        assert size in said
    for word in ("backward", "saving", "activations", "does not fit 8xH100-80GB", "Fits on"):
        assert word in said
    assert "limit 79.2 GiB" in said
    assert "too much" in said


def test_it_loads_nothing(page_of, axolotl):
    page, _ = page_of("axolotl.yaml", "--hardware", "H100-80GB")
    (policy,) = (a["content"] for t, a in page.elements if "http-equiv" in a)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    for tag, attributes in page.elements:
        assert tag not in {"script", "link", "img", "iframe", "object", "embed"}
        assert not attributes.keys() & {"src", "srcset", "data", "background", "action"}
        assert attributes.get("href", "#").startswith("#")
        assert not re.search(r"url\(|@import", attributes.get("style", ""))
    assert not re.search(r"url\(|@import", page.text)


def test_names_are_escaped(page_of, project):
    plan = {
        "name": "<script>alert('&amp;')</script>",
        "model": {"id": "meta-llama/Llama-3.2-1B"},
        "device": {"type": "L4-24GB"},
    }
    (project / "plan.json").write_text(json.dumps(plan))
    page, _ = page_of("--plan", "plan.json")
    assert page.count("script") == 0
    assert page.text.count("<script>alert('&amp;')</script>") == 2  # the title and the heading


def test_each_number_stands_beside_its_bar(page_of, axolotl):
    page, _ = page_of("axolotl.yaml", "--hardware", "H100-80GB")
    hidden = sum(a.get("aria-hidden") == "true" for _, a in page.elements)
    rows = sum(t == "th" and a.get("scope") == "row" for t, a in page.elements)
    assert hidden >= 10  # six phases of the GPU, four of the host
    assert rows > hidden
    assert page.count("caption") == page.count("table")
    shares = [
        float(share)
        for _, a in page.elements
        if a.get("class", "").startswith("bar c")
        for share in re.findall(r"width:([\d.]+)%", a["style"])
    ]
    assert shares
    assert all(0 <= share <= 100 for share in shares)


def test_several_runs_have_a_list_of_contents(page_of, project, axolotl):
    (project / "second.yaml").write_text(axolotl.read_text().replace("8\n", "1\n"))
    page, _ = page_of(".")
    links = {a["href"] for t, a in page.elements if t == "a"}
    anchors = {"#" + a["id"] for _, a in page.elements if "id" in a}
    assert links == anchors == {"#run-1", "#run-2"}


def test_a_run_without_numbers_says_so(page_of, project, axolotl):
    text = axolotl.read_text().replace("meta-llama/Llama-3.2-3B", "acme/unheard-of")
    axolotl.write_text(text)
    page, _ = page_of("axolotl.yaml")
    assert "No prediction: the model acme/unheard-of is not known: " in page.text
    assert page.count("table") == 0


def test_a_page_holds_no_stream_of_plans(oomlint, project):
    (project / "plans").write_text("{}\n")
    result = oomlint("estimate", "--plan", "plans", "--jsonl", "--html", "page.html")
    assert result.exit_code == 2
    assert not (project / "page.html").exists()
