"""The table of situations in which errors on memory were false."""

from pathlib import Path

from benchmarks.strangers.situations import LAWS, chosen, cost, kept, precision, rows, table

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"


def test_the_page_says_what_is_printed() -> None:
    section = PAGE.read_text("utf-8").partition("### Situations in which errors are false\n")[2]
    shown = [line for line in section.partition("\n#")[0].splitlines() if line.startswith("|")]
    assert len(shown) > 10
    assert set(shown) <= set(table(rows()))


def test_a_law_is_chosen_that_costs_little() -> None:
    group = rows()
    name = chosen(group)
    law = LAWS[name]
    assert cost(law, group) <= 0.05
    assert precision(kept(law, group)) > precision(group)


def test_a_law_of_the_cards_memory_takes_no_error_on_the_host() -> None:
    host = [row for row in rows() if row.rule.startswith("OOM40")]
    assert host
    assert kept(lambda _: True, host) == host
