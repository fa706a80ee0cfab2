"""What a check says that ``--fix`` would write is what ``--fix`` writes."""

import json
import re

import pytest

from oomlint.linting.rule import Applicability
from oomlint.lsp.project import Project
from oomlint.session.request import CheckRequest

H100 = ("--hardware", "1xH100-80GB")
LORA = """\
base_model: meta-llama/Llama-3.1-8B
datasets: [{path: a/b}]
sequence_length: 4096
micro_batch_size: 1
"""


def counted(result):
    said = json.loads(result.stdout)
    labels = [
        each["fix"]["applicability"]
        for each in said["findings"]
        if each["fix"] is not None and each["severity"] != "info"
    ]
    return said["summary"]["fixable"], labels


def test_where_no_card_is_known_nothing_is_promised_and_nothing_written(oomlint, axolotl):
    before = axolotl.read_text()
    told = oomlint("axolotl.yaml")
    assert "OOM101" in told.stdout
    assert "shown only: nothing says that the run rather dies without it" in re.sub(
        r"\s+", " ", told.stdout
    )
    assert "fixable" not in told.stdout
    fixable, labels = counted(oomlint("axolotl.yaml", "--output-format", "json"))
    assert (fixable, set(labels)) == (0, {"display"})
    sarif = oomlint("axolotl.yaml", "--output-format", "sarif").stdout
    assert '"fixes"' not in sarif
    fixed = oomlint("axolotl.yaml", "--fix")
    assert "fixed" not in fixed.stdout
    assert axolotl.read_text() == before


@pytest.mark.parametrize("machine", [(), H100], ids=["no card", "a card"])
@pytest.mark.parametrize("text", [None, LORA], ids=["too large", "misspelt"])
def test_as_many_are_fixed_as_were_promised(oomlint, axolotl, machine, text):
    if text is not None:
        axolotl.write_text(text)
    fixable, labels = counted(oomlint("axolotl.yaml", *machine, "--output-format", "json"))
    assert fixable == labels.count("safe")
    after = json.loads(oomlint("axolotl.yaml", *machine, "--fix", "--output-format", "json").stdout)
    assert after["summary"]["fixed"] == fixable
    assert after["summary"]["fixable"] == 0


def test_the_editor_offers_what_is_written(axolotl, project):
    def offered(hardware):
        editor = Project(project)
        editor.configure(CheckRequest(hardware=hardware))
        editor.put("axolotl.yaml", axolotl.read_bytes())
        analysis = editor.analyse("axolotl.yaml")
        assert analysis is not None
        fixes = [d.applicable for d in (*analysis.decided, *analysis.planned)]
        safe = [fix for fix in fixes if fix and fix.applicability is Applicability.SAFE]
        return bool(safe), bool(editor.fixed(analysis))

    assert offered(None) == (False, False)
    assert offered("1xH100-80GB") == (True, True)
