"""Models of classes that the project has itself: what the libraries do to their own classes they do not do to them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import scripts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.trainer.own_classes import classes_of
from oomlint.documents.base import PythonDocument
from oomlint.errors import CannotEdit

_MODEL = re.compile(r"(?:^|\.)(?:PreTrainedModel|Module)$")
_HEADED = re.compile(r"(?<!\w)(?!Auto)\w+For(?:CausalLM|ConditionalGeneration)$")
# Packages whose classes of these names are transformers' own.
_SAME_CLASSES = ("transformers", "modelscope", "unsloth")


def check_model_is_followed(run: Cells) -> None:
    """
    Raises:
        CannotEdit: the script makes the model of a class of its own, around one that it loads, which does not say that
            it recomputes: what it keeps besides is not known, nor what the Trainer's arguments do to it. With
            checkpointing the Trainer stops (transformers 5.23 modeling_utils.py ``gradient_checkpointing_enable``),
            and a plain module has no such method.
    """
    name = run.once(_around_a_model)
    if name is not None:
        raise CannotEdit(
            f"{name}, which the script trains, is a class of its own that is not followed"
        )


def check_class_is_patched(run: Cells) -> None:
    """
    Raises:
        CannotEdit: the model is of a class of the project's own: Liger patches transformers' classes, and stops at an
            instance of another (liger-kernel 0.8.5 transformers/monkey_patch.py, "Unsupported").
    """
    name = run.once(_own_class)
    if name is not None:
        raise CannotEdit(f"{name} is a class of the project's own, which Liger does not patch")


def made_models(blocks: list[Block]) -> Iterator[str]:
    """The classes of the project's own of which its scripts make the models that they train."""
    for document in scripts_of(blocks):
        yield from _made(document)


def _around_a_model(blocks: list[Block]) -> str | None:
    for document in scripts_of(blocks):
        text = document.source.text
        for name in _made(document):
            if not re.search(
                rf"(?ms)^class {name}\b.*?^[ \t]+supports_gradient_checkpointing\b", text
            ):
                return name
    return None


def _own_class(blocks: list[Block]) -> str | None:
    for document in scripts_of(blocks):
        for name in _made(document):
            return name
        loaded = {call.callee.split(".")[-2] for call in document.calls if _loads(call.callee)}
        for name in sorted(filter(_HEADED.search, loaded)):
            packages = {i.partition(".")[0] for i in document.imports if i.endswith(f".{name}")}
            if packages.isdisjoint(_SAME_CLASSES) and (packages or name in document.classes):
                return name
    return None


def _loads(callee: str) -> bool:
    return callee.count(".") > 0 and callee.endswith(".from_pretrained")


def _made(document: PythonDocument) -> Iterator[str]:
    """Classes of models that the script defines, and makes what it hands to a trainer of."""
    text = document.source.text
    for name, bases in classes_of(text).items():
        if not any(map(_MODEL.search, bases)):
            continue
        made = re.search(rf"(?m)^[ \t]*(\w+)[ \t]*=[ \t]*{name}(?:\.from_pretrained)?\(", text)
        if made is not None and re.search(rf"(?<![\w.])model[ \t]*=[ \t]*{made[1]}\b", text):
            yield name
