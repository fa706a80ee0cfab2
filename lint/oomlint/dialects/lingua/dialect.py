"""Meta Lingua: one YAML for a run, and the lines that start it.

Read from facebookresearch/lingua 437d680 (2025-06-18): ``torchrun --nproc-per-node 8 -m apps.main.train config=FILE
model.dim=64`` lays its words over the file (apps/main/train.py main); ``python -m lingua.stool script=apps.main.train
config=FILE nodes=4 ngpu=8`` writes the sbatch script that does. Its other apps, and those that projects add, build
models of their own of the same skeleton: theirs are read but for the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from oomlint.dialects.base import Claim, Reference
from oomlint.dialects.block import Block
from oomlint.dialects.configs import ConfigDialect
from oomlint.dialects.lingua.keys import LINGUA, MAIN, OTHER_APP, STOOL
from oomlint.dialects.lingua.meaning import meaning
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.omegaconf import OmegaConfBlock, OmegaConfOverrides
from oomlint.documents import SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, Entry, Mapping, Scalar
from oomlint.documents.text import Location

_SHARDING = frozenset(
    {"fsdp_type", "dp_shard", "dp_replicate", "selective_activation_checkpointing"}
)
# ML/transformer.py BaseTransformerArgs and apps/main/transformer.py LMTransformerArgs: who has others has another app.
_MODEL = frozenset(
    {
        "dim", "n_layers", "head_dim", "n_heads", "n_kv_heads", "ffn_dim_multiplier", "multiple_of", "norm_eps",
        "rope_theta", "init_base_std", "init_std_factor", "max_seqlen", "seed", "vocab_size", "weight_tying",
        "sliding_window",
    }
)  # fmt: skip
# ML/data.py DataArgs: an app with a model of several widths (apps/aunet) has these beside them.
_DATA = frozenset({"root_dir", "sources"})
_APP = re.compile(r"apps\.(?:\w+\.)+train")
_STOOL = "lingua.stool"
# What stool takes for itself: the rest of its line is not the run's (ML/stool.py StoolArgs).
_CONFIG = "config"


class Lingua(ConfigDialect):
    name = "lingua"
    markers = (b"fsdp_type", b"dp_shard", b".train", b"lingua.stool")
    markers_prove = False
    suffixes = (*YAML_SUFFIXES, *SHELL_SUFFIXES)
    declared_in = (
        "apps/main/train.py", "apps/main/transformer.py", "lingua/transformer.py", "lingua/distributed.py",
        "lingua/data.py", "lingua/optim.py", "lingua/checkpoint.py", "lingua/metrics.py", "lingua/profiling.py",
        "lingua/tokenizer.py",
    )  # fmt: skip
    meaning = meaning

    def is_config(self, root: Mapping) -> bool:
        """Sections that no other framework has side by side in these words."""
        sharding, model, data = (root.section(name) for name in ("distributed", "model", "data"))
        if sharding is None or model is None or data is None:
            return False
        has_model = "dim" in model.entries or set(data.entries) >= _DATA
        return bool(_SHARDING & set(sharding.entries)) and has_model and "seq_len" in data.entries

    def started_by(self, launch: Launch) -> Iterable[Claim]:
        if launch.is_module and (launch.name == _STOOL or _APP.fullmatch(launch.name)):
            yield from self._launch(launch)

    def of_config(self, document: Document, root: Mapping) -> Claim:
        """A run; of another app with a table that leaves its model open."""
        model = root.section("model")
        is_ours = model is not None and set(model.entries) <= _MODEL and not _is_derived(root)
        table = LINGUA if is_ours else OTHER_APP
        anchor = root.entries["distributed"].key_span
        return Claim(self, "run", document, (OmegaConfBlock(document, root, table, anchor),))

    def _launch(self, launch: Launch) -> Iterator[Claim]:
        document, words = launch.document, launch.command.assignments
        config = words.entries.get(_CONFIG)
        if config is None:
            return
        where = Location(document.source.path, place(launch.program))
        reference = Reference(_text(config) or "", where, self.name, decides=True)
        if launch.name == _STOOL:
            block = Block(document, words, STOOL, launch.anchor)
        else:
            entries = {key: entry for key, entry in words.entries.items() if key != _CONFIG}
            own = _without(words, entries)
            table = LINGUA if launch.name == MAIN else OTHER_APP
            block = OmegaConfOverrides(document, own, table, launch.anchor)
        references = (*launch.scene_references, reference)
        yield Claim(self, "launch", document, (*launch.blocks, block), references)


def _without(words: Mapping, entries: dict[str, Entry]) -> Mapping:
    from msgspec.structs import replace

    return replace(words, entries=entries)


def _text(entry: Entry | None) -> str | None:
    value = entry.value.value if entry is not None and isinstance(entry.value, Scalar) else None
    return value if isinstance(value, str) else None


def _is_derived(root: Mapping) -> bool:
    """More views of the data than a token and the next belong to losses of an app's own (apps/mtp)."""
    data = root.section("data")
    views = None if data is None else data.entries.get("n_views")
    return (
        views is not None and isinstance(views.value, Scalar) and views.value.value not in (2, "2")
    )
