"""Measures what cross entropy of logits holds that DTensor splits over the vocabulary.

    pip install torch
    python benchmarks/measure/parallel_loss.py

``torch.distributed.tensor.parallel.loss_parallel`` on a mesh of one CPU, every allocation as torch's profiler tells
it, in bytes a token and word of the rank's part of the vocabulary: kept for backward, and the highest instants of loss
and backward.
"""

from __future__ import annotations

import tempfile

import compiled
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import loss_parallel
from torch.profiler import ProfilerActivity, profile

TOKENS, VOCAB, HIDDEN = compiled.TOKENS, compiled.VOCAB, 64


def main() -> None:
    with tempfile.NamedTemporaryFile() as store:
        dist.init_process_group("gloo", init_method=f"file://{store.name}", rank=0, world_size=1)
        mesh = init_device_mesh("cpu", (1,))
        weight = torch.randn(VOCAB, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
        hidden = torch.randn(TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
        labels = torch.randint(0, VOCAB, (TOKENS,))

        def loss() -> Tensor:
            logits = DTensor.from_local(F.linear(hidden, weight), mesh, [Shard(1)])
            return F.cross_entropy(logits.float(), labels)

        with loss_parallel():
            loss().backward()
            hidden.grad = weight.grad = None
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as forward:
                found = loss()
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as backward:
                found.backward()
        at_loss, kept = compiled.highest(forward)
        above, _ = compiled.highest(backward)
        sizes = (each / compiled.EACH for each in (kept, at_loss, kept + above))
        print(
            "kept {:.2f}  loss {:.2f}  backward {:.2f}  (torch {})".format(
                *sizes, torch.__version__
            )
        )
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
