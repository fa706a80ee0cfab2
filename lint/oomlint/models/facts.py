"""What the catalogue can say about one model, and how sure it is."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from oomlint.plan.model import ModelDims

Confidence = Literal["verified", "derived", "assumed", "guessed"]

GUESS_SPREAD: Final = 0.15
"""Relative half-width of the interval around a guessed ``params_total``: names round, and
"7B" has stood for 6.1 to 8.0 billion (Yi-6B, Llama-2-7B, Mistral-7B, Qwen2.5-7B)."""


class ModelFacts(Struct, frozen=True, kw_only=True):
    """Dimensions and parameter counts of a model, with their provenance.

    ``id`` is the canonical Hub id, or the name as given. ``dims`` holds
    element counts in ``params_*``; when ``confidence`` is ``"guessed"`` only
    ``params_total`` (and ``params_active``) are set, good to ``GUESS_SPREAD``.
    ``"verified"`` means that the dimensions rebuild the published parameter count,
    ``"derived"`` that they were read or inferred without that check, ``"assumed"`` that they are those
    of the model which the name seems to be a fine-tune of. Of values for which no source was found ``source`` tells.
    ``native_quant`` is
    the storage of the checkpoint that was *asked for* (``none``, ``bnb4``,
    ``bnb4_dynamic``, ``bnb8``, ``gptq``, ``gptq8``, ``awq``, ``aqlm``, ``fp8``,
    ``fp8_block``, ``nvfp4``, ``mxfp4``, ``gguf`` ...); ``dims`` and ``ckpt_dtype`` are
    those of the model before quantisation.
    """

    id: str
    dims: ModelDims
    ckpt_dtype: Literal["bf16", "fp16", "fp32"] | None = None
    native_quant: str = "none"
    confidence: Confidence = "derived"
    source: str = ""
    note: str | None = None
    saved_by: str = ""
    """The run of the same project that writes the model, which started from the one called ``id``."""
    is_adapter: bool = False
    """The name is that of an adapter, which is loaded over this model: whether its own weights are trained
    then, those of a new adapter or all of them, is for the program to say."""
