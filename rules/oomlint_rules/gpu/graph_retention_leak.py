"""A sum or list of losses keeps the graph of every step alive.

## What it finds

`total_loss += loss` or `losses.append(loss)` in a training loop whose `loss` is the tensor that
`backward` ran on, and that is never detached.

## Why it runs out of memory

The tensor refers to its graph. `backward` frees the saved activations, so that the GPU keeps little more than the
losses, but the nodes of the graph stay in the host's memory, a little more with each step, and so does what functions of
the project's own keep outside of saved tensors. What was kept with `retain_graph` stays whole: that grows until a long
run dies of it.

## How to fix it

Add the number, not the tensor: `total_loss += loss.detach()`, or `loss.item()` where the wait
for the GPU does not matter.

## When not to

Where several losses are added up and `backward` runs on the sum.

## Sources

* PyTorch FAQ, *My model reports "cuda runtime error(2): out of memory"*: *Don't accumulate
  history across your training loop*
* https://github.com/meta-llama/llama-cookbook/pull/41 (8 GB less without the outputs kept)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.documents.base import Fact
from oomlint.linting.rule import Finding, short
from oomlint.runs.run import Run
from oomlint_rules._examples import example, text
from oomlint_rules._scripts import FactRule

_LOOP = text(
    """
    import torch

    total_loss = 0
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        {line}
    """
)


_RETAINED = _LOOP.replace("backward()", "backward(retain_graph=True)")


class GraphRetentionLeak(FactRule, code="OOM116", fact="loss-accumulated-with-graph"):
    summary = "a sum or list of losses keeps the graph of every step alive"

    bad = (
        example({"train.py": _LOOP.format(line="total_loss += loss")}),
        example({"train.py": _RETAINED.format(line="total_loss += loss")}),
        example({"train.py": _LOOP.format(line="losses.append(loss)")}),
    )
    good = (
        example({"train.py": _LOOP.format(line="total_loss += loss.detach()")}),
        example({"train.py": _LOOP.format(line="total_loss += loss.item()")}),
    )

    def comes_of(self, fact: Fact, run: Run) -> Iterable[Finding]:
        loss, into = fact.detail["loss"], fact.detail["into"]
        say = self.warning if fact.detail["retained"] else self.info
        grows = (
            "backward keeps the activations of each step, and the GPU fills up"
            if fact.detail["retained"]
            else "backward frees the activations of a step, its nodes stay in the host's memory"
        )
        yield say(
            run,
            f"{short(into)} keeps {short(loss)} with its graph, step after step",
            at=fact,
            details=(grows, f"use {loss}.detach() or {loss}.item()"),
            confidence="medium",
            resource="gpu" if fact.detail["retained"] else "host",
        )
