"""What is said of keys: every key has words, and every word is of a field that there is."""

import pytest

from oomlint.dialects.config_files import CONFIGS
from oomlint.dialects.words import about, topics
from oomlint.plan.fields import declared


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_every_key_with_a_meaning_has_words(config):
    table = config.load()
    tables = [table, *(row.table for row in table.rows if row.table is not None)]
    mute = [row.key for each in tables for row in each.rows if about(row) is None]
    assert not mute, "name their fields in a topic of dialects/words.toml"


def test_words_are_of_fields_that_there_are():
    for config in CONFIGS:
        config.load()
    named = [name for topic in topics() for name in topic.fields if "*" not in name]
    assert [name for name in named if declared(name) is None] == []
    assert len(named) == len(set(named)), "a field has one topic"


def test_words_are_sentences():
    for topic in topics():
        for text in filter(None, (topic.means, topic.costs)):
            assert text[0].isupper() or text[0] == "`", text
            assert text.endswith("."), text
            assert "  " not in text
