"""How long the samples of a published run really were: the token statistics of its data set.

Mean, standard deviation, longest sample in tokens and number of samples, from ms-swift's own
tables (docs/source_en/Instruction/Supported-models-and-datasets.md at 3602360, column
"Statistic (token)", and Supported-models-datasets.md at d2b45ec for the names of version 2).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple


class Statistic(NamedTuple):
    """Tokens of a data set's samples."""

    mean: float
    deviation: float
    longest: int
    samples: int


_STATISTICS = {
    "blossom-math-zh": Statistic(169.3, 58.7, 563, 10000),
    "dureader-robust-zh": Statistic(241.1, 137.4, 1416, 17899),
    "damo-agent-mini-zh": Statistic(1326.4, 329.6, 4304, 20845),
    "damo-agent-zh": Statistic(956.5, 407.3, 19001, 386984),
    "leetcode-python-en": Statistic(727.1, 235.9, 2146, 2359),
    "advertise-gen-zh": Statistic(130.6, 21.7, 241, 98399),
    "ms-agent": Statistic(650.9, 217.2, 2740, 26336),
    "ms-bench": Statistic(346.9, 443.2, 30960, 316820),
    # A data set of its own until May 2024 (the same table at b9627bd).
    "ms-bench-mini": Statistic(353.9, 439.4, 12078, 19492),
    "jd-sentiment-zh": Statistic(66.0, 83.2, 4039, 50000),
    "sql-create-context-en": Statistic(80.2, 17.8, 456, 78577),
    "lawyer-llama-zh": Statistic(194.4, 91.7, 924, 21476),
    "alpaca-zh": Statistic(162.1, 93.9, 856, 48818),
    "alpaca-en": Statistic(176.2, 125.8, 740, 52002),
    "alpaca-cleaned": Statistic(177.9, 126.4, 1044, 51760),
    "ner-jave-zh": Statistic(118.3, 45.5, 223, 1266),
    "agent-instruct-all-en": Statistic(1144.3, 635.5, 6412, 1866),
    "hc3-zh": Statistic(176.8, 81.5, 3051, 39781),
    "codefuse-python-en": Statistic(483.6, 193.9, 3082, 27224),
    "cmnli-mini-zh": Statistic(82.6, 16.6, 199, 20000),
    "tigerbot-law-zh": Statistic(109.9, 126.4, 18878, 55895),
    "medical-en": Statistic(257.4, 89.1, 2564, 117617),
    "medical-zh": Statistic(167.2, 219.7, 27351, 1950972),
    "stsb-en": Statistic(21.0, 0.0, 21, 5748),
    "ai-modelscope/alpaca-gpt4-data-zh": Statistic(157.2, 93.2, 544, 48818),
    "ai-modelscope/alpaca-gpt4-data-en": Statistic(167.6, 123.9, 607, 52002),
    "ai-modelscope/function-calling-chatml": Statistic(465.3, 320.1, 6106, 112958),
    "ai-modelscope/orpo-dpo-mix-40k": Statistic(938.1, 694.2, 8483, 43666),
    "ai-modelscope/longalpaca-12k": Statistic(9941.8, 3417.1, 25826, 11998),
    "hjh0119/shareai-llama3-dpo-zh-en-emoji": Statistic(334.0, 162.8, 1801, 2449),
    "sentence-transformers/stsb": Statistic(21.0, 0.0, 21, 5748),
    "mteb/scidocs-reranking": Statistic(41.9, 5.8, 107, 39193),
    "swift/self-cognition": Statistic(58.9, 20.3, 131, 108),
}  # fmt: skip


# peft method_comparison/MetaMathQA/data.py keeps samples of up to 1300 characters, so that "a token
# limit of 768" holds for all 370,000; its result files count 4,198,051 tokens in 20,000 samples. If
# lengths scatter log-normally and the largest of 370,000 is 768, the largest of 20,000 is 654
# (Cramer 1946, section 28.6: sqrt(2 ln n) deviations above the mean).
_META_MATH = 654


class Reached(NamedTuple):
    """The longest sample, the mean and the deviation, in tokens; and whether all are equal."""

    longest: int
    mean: float
    deviation: float
    equal: bool


def reached(row: Mapping[str, Any], limit: int) -> Reached:
    """The lengths of a row's samples under its maximum of ``limit`` tokens."""
    kind = str(row.get("seq_len_kind") or "").lower()
    known = _of_data(row)
    if known is None and "alpaca" in kind and "not reached" in kind:
        known = _STATISTICS["alpaca-cleaned"]
    if known is None and "alpaca_cleaned" in kind:
        known = _STATISTICS["alpaca-cleaned"]
    if known is None and "advertisegen" in str(row.get("unspecified")).lower():
        known = _STATISTICS["advertise-gen-zh"]
    if known is None and "metamathqa" in kind:
        return Reached(_META_MATH, 209, 56, False)
    if known is not None:
        # The largest of n values that scatter normally (Cramer 1946, section 28.6).
        spread = math.sqrt(2 * math.log(max(2, known.samples)))
        tail = int(known.mean + spread * known.deviation)
        return Reached(
            max(16, min(limit, known.longest, max(tail, int(known.mean)))),
            min(limit, known.mean), known.deviation, False,
        )  # fmt: skip
    equal = any(w in kind for w in ("dummy", "random tokens", "stated seq", "different lengths"))
    return Reached(limit, limit, 0.0, equal)


def _of_data(row: Mapping[str, Any]) -> Statistic | None:
    """The longest-tailed of a run's data sets; ``None`` if one of them is not known."""
    raw = row.get("raw_args")
    names = raw.get("dataset") if isinstance(raw, Mapping) else None
    if not isinstance(names, str) or row.get("modality") not in (None, "text"):
        return None
    found: list[Statistic] = []
    for name in names.split():
        text, _, count = name.partition("#")
        key = re.sub(r":.*", "", text).lower()
        statistic = _STATISTICS.get(key)
        if statistic is None:
            return None
        if count.isdigit() and int(count) > 0:
            statistic = statistic._replace(samples=int(count))
        found.append(statistic)
    return max(found, key=lambda s: s.mean + 3 * s.deviation, default=None)
