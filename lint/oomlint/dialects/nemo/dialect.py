"""NeMo 1: its Megatron YAML and the overrides of the scripts that start it.

Read from NVIDIA/NeMo v1.23.0 and v2.2.1 (the last releases with ``examples/nlp``); ``NM`` below is
its ``nemo`` package. Hydra merges ``key=value`` words into the YAML that the script or
``--config-name`` names. Models are built with megatron.core or NeMo's own copy of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.base import Claim, ClaimKind, Dialect, Reference
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.nemo.keys import NEMO, section
from oomlint.dialects.nemo.meaning import meaning
from oomlint.dialects.omegaconf import OmegaConfBlock, OmegaConfOverrides
from oomlint.documents import SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.base import Document, Mapping, Scalar, roots
from oomlint.documents.text import Location

# What the scripts of examples/nlp/language_modeling read where no --config-name is given.
_CONFIGS = {
    "megatron_gpt_pretraining": "conf/megatron_gpt_config",
    "megatron_gpt_continue_training": "conf/megatron_gpt_config",
    "megatron_gpt_finetuning": "conf/megatron_gpt_finetuning_config",
    "megatron_gpt_peft_tuning": "conf/megatron_gpt_finetuning_config",
    "megatron_gpt_sft": "conf/megatron_gpt_sft",
    "megatron_bert_pretraining": "conf/megatron_bert_config",
    "megatron_t5_pretraining": "conf/megatron_t5_config",
    "megatron_t5_finetuning": "conf/megatron_t5_finetuning_config",
}
_TRAINS = ("pretrain", "tuning", "sft", "continue_training", "train", "fine_tune")


class Nemo(Dialect):
    name = "nemo"
    markers = (b"micro_batch_size", b"tensor_model_parallel_size", b"megatron_")
    markers_prove = False
    suffixes = (*YAML_SUFFIXES, *SHELL_SUFFIXES)
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        for root in roots(document):
            kind = _kind_of(root)
            if kind is not None:
                anchor = (root.entries.get("model") or root.entries["trainer"]).key_span
                yield Claim(self, kind, document, (OmegaConfBlock(document, root, NEMO, anchor),))
        for launch in launches(document):
            claim = self._launch(launch)
            if claim is not None:
                yield claim

    def adopt(self, document: Document) -> Claim | None:
        for root in roots(document):
            if "model" in root.entries:
                anchor = root.entries["model"].key_span
                return Claim(self, "run", document, (OmegaConfBlock(document, root, NEMO, anchor),))
        return None

    def _launch(self, launch: Launch) -> Claim | None:
        overrides = launch.command.assignments
        stem = launch.stem
        own = any(key.startswith(("model.", "trainer.")) for key in overrides.entries)
        if not own or not stem.startswith("megatron_"):
            return None
        document = launch.document
        if not any(word in stem for word in _TRAINS):
            return Claim(self, "aside", document, ())
        reference = _config_of(self, launch)
        if reference is None:
            block = OmegaConfBlock(document, overrides, NEMO, launch.anchor)
            return Claim(self, "run", document, (*launch.blocks, block))
        merged = OmegaConfOverrides(document, overrides, NEMO, launch.anchor)
        return Claim(self, "launch", document, (*launch.blocks, merged), (reference,))


_MEGATRON_KEYS = frozenset(
    {"micro_batch_size", "tensor_model_parallel_size", "pipeline_model_parallel_size"}
)
_TRAINER_KEYS = frozenset({"devices", "num_nodes", "precision", "gpus"})


def _kind_of(root: Mapping) -> ClaimKind | None:
    """A Lightning trainer and a Megatron model; without an optimizer nothing is trained."""
    trainer, model = section(root, "trainer"), section(root, "model")
    if not _TRAINER_KEYS & set(trainer):
        return None
    if _MEGATRON_KEYS & set(model) and "optim" in model:
        return "run"
    return "aside" if _MEGATRON_KEYS & {*model, *root.entries} else None


def _config_of(dialect: Dialect, launch: Launch) -> Reference | None:
    """The YAML that Hydra loads: ``--config-path`` is relative to the script."""
    folder = launch.name.rpartition("/")[0]
    shipped = _CONFIGS.get(launch.stem, "")
    path, name = _flag(launch, "config_path"), _flag(launch, "config_name")
    if path is None and name is None and not shipped:
        return None
    default_path, _, default_name = shipped.rpartition("/")
    base = str(path.value) if path is not None else default_path
    file = str(name.value) if name is not None else default_name
    if not base.startswith("/") and folder:
        base = f"{folder}/{base}"
    where = name or path or launch.program
    file = file.removesuffix(".yaml")
    location = Location(launch.document.source.path, place(where))
    return Reference(f"{base}/{file}.yaml", location, dialect.name, optional=name is None)


def _flag(launch: Launch, key: str) -> Scalar | None:
    entry = launch.flag(key)
    value = entry.value if entry is not None else None
    return value if isinstance(value, Scalar) and isinstance(value.value, str) else None
