"""Counts the parameters of vision towers, encoders of sound and their projectors from a ``vision_config`` or ``audio_config``.

Layouts as transformers 5.23 builds them (``models/<type>/modeling_<type>.py``), each
compared with the real class on the meta device. A tower that is not listed has no count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

Sizes: TypeAlias = Mapping[str, int]
"""``layers``, ``hidden``, ``ffn``, ``patch``, ``image``, ``merge``, ``merger`` (width inside GLM's merger), ``temporal``, ``out``
(width of the tower's own output), ``text`` (hidden size of the text model), ``projection``,
``positions``, ``taps`` (deep-stack mergers), ``mels`` (bands of sound), and as 0 or 1 ``unbiased`` (no biases of queries,
keys and values), ``qk_norm`` and ``rms`` (RMS norms); of Llama 3.2 Vision ``tiles``, the ``shapes`` that they can
have, and of the ``layers`` those that are ``gated``."""


def _linear(inputs: int, outputs: int) -> int:
    """Weights and biases."""
    return inputs * outputs + outputs


def _encoder_layer(hidden: int, ffn: int) -> int:
    """Two layer norms, attention and a two-matrix MLP, all with biases (CLIP, SigLIP)."""
    attention = 4 * _linear(hidden, hidden)
    return attention + _linear(hidden, ffn) + _linear(ffn, hidden) + 4 * hidden


def _patches(s: Sizes) -> int:
    return (s["image"] // s["patch"]) ** 2


def _siglip(s: Sizes) -> int:
    hidden = s["hidden"]
    embed = _linear(3 * s["patch"] ** 2, hidden) + _patches(s) * hidden
    return embed + s["layers"] * _encoder_layer(hidden, s["ffn"]) + 2 * hidden


def _clip(s: Sizes) -> int:
    hidden = s["hidden"]
    embed = hidden + 3 * s["patch"] ** 2 * hidden + (_patches(s) + 1) * hidden
    return embed + s["layers"] * _encoder_layer(hidden, s["ffn"]) + 4 * hidden


def _pixtral(s: Sizes) -> int:
    hidden, ffn = s["hidden"], s["ffn"]
    layer = 4 * hidden * hidden + 3 * hidden * ffn + 2 * hidden
    return 3 * s["patch"] ** 2 * hidden + hidden + s["layers"] * layer


def _two_layer_projector(s: Sizes) -> int:
    """LLaVA's ``multi_modal_projector``: two linear layers with biases."""
    return _linear(s["hidden"], s["text"]) + _linear(s["text"], s["text"])


def _gemma3(s: Sizes) -> int:
    return _siglip(s) + s["hidden"] + s["hidden"] * s["text"]


def _paligemma(s: Sizes) -> int:
    return _siglip(s) + _linear(s["hidden"], s["projection"])


def _llava(s: Sizes) -> int:
    return _clip(s) + _two_layer_projector(s)


def _llava_next(s: Sizes) -> int:
    return _llava(s) + s["text"]  # the learned row break, image_newline


def _llava_pixtral(s: Sizes) -> int:
    return _pixtral(s) + _two_layer_projector(s)


def _mistral3(s: Sizes) -> int:
    hidden, text = s["hidden"], s["text"]
    merger = hidden + s["merge"] ** 2 * hidden * hidden
    return _pixtral(s) + merger + hidden * text + text * text


def _internvl(s: Sizes) -> int:
    hidden, text = s["hidden"], s["text"]
    embed = _linear(3 * s["patch"] ** 2, hidden) + hidden + (_patches(s) + 1) * hidden
    layer = _encoder_layer(hidden, s["ffn"]) + 2 * hidden  # + two layer scales
    # InternViT-6B has RMS norms, also on queries and keys, and no biases there.
    layer += hidden * (2 * s["qk_norm"] - 2 * s["rms"] - 3 * s["unbiased"])
    layers = s["layers"] * layer
    merged = hidden * s["merge"] ** 2
    return embed + layers + 2 * merged + _linear(merged, text) + _linear(text, text)


def _llava_onevision(s: Sizes) -> int:
    return _siglip(s) + _two_layer_projector(s) + s["text"]


def _idefics3(s: Sizes) -> int:
    """Patches are shuffled together and projected once, without a bias."""
    return _siglip(s) + s["merge"] ** 2 * s["hidden"] * s["text"]


def _glm4v(s: Sizes) -> int:
    width, out = s["hidden"], s["out"]
    embed = _linear(3 * s["temporal"] * s["patch"] ** 2, width) + _patches(s) * width
    layer = 4 * width * width + 3 * width * s["ffn"] + 2 * width
    downsample = _linear(s["merge"] ** 2 * width, out)
    merger = out * out + 2 * out + 3 * out * s["merger"]
    return embed + s["layers"] * layer + 2 * width + downsample + merger


def _qwen2_vl(s: Sizes) -> int:
    width = s["hidden"]
    merged = width * s["merge"] ** 2
    layer = _linear(width, 3 * width) + _linear(width, width) + 4 * width
    layer += _linear(width, s["ffn"]) + _linear(s["ffn"], width)
    merger = 2 * width + _linear(merged, merged) + _linear(merged, s["out"])
    return 3 * s["temporal"] * s["patch"] ** 2 * width + s["layers"] * layer + merger


def _qwen2_5_vl(s: Sizes) -> int:
    width = s["hidden"]
    merged = width * s["merge"] ** 2
    layer = _linear(width, 3 * width) + _linear(width, width) + 2 * width
    layer += 2 * _linear(width, s["ffn"]) + _linear(s["ffn"], width)
    merger = width + _linear(merged, merged) + _linear(merged, s["out"])
    return 3 * s["temporal"] * s["patch"] ** 2 * width + s["layers"] * layer + merger


def _qwen3_vl(s: Sizes) -> int:
    width = s["hidden"]
    merged = width * s["merge"] ** 2
    embed = _linear(3 * s["temporal"] * s["patch"] ** 2, width) + s["positions"] * width
    layer = _linear(width, 3 * width) + _linear(width, width) + 4 * width
    layer += _linear(width, s["ffn"]) + _linear(s["ffn"], width)
    projection = _linear(merged, merged) + _linear(merged, s["out"])
    merger = 2 * width + projection
    taps = s["taps"] * (2 * merged + projection)
    return embed + s["layers"] * layer + merger + taps


def _whisper(s: Sizes) -> int:
    """WhisperEncoder: two convolutions over time, positions, and layers whose keys have no bias."""
    width = s["hidden"]
    ends = 3 * s["mels"] * width + 3 * width * width + 2 * width + s.get("positions", 0) * width
    return ends + s["layers"] * (_encoder_layer(width, s["ffn"]) - width) + 2 * width


def _qwen2_audio(s: Sizes) -> int:
    return _whisper(s) + _linear(s["hidden"], s["text"])


def _audio_flamingo(s: Sizes) -> int:
    return _whisper(s) + _two_layer_projector(s)


def _voxtral(s: Sizes) -> int:
    """Four frames, as wide together as the encoder's feed-forward part, become one token."""
    return _whisper(s) + s["ffn"] * s["text"] + s["text"] ** 2


def _glmasr(s: Sizes) -> int:
    """Positions are rotated, and no parameters."""
    projector = _linear(s["ffn"], 2 * s["text"]) + _linear(2 * s["text"], s["text"])
    return _whisper({**s, "positions": 0}) + projector


def _mllama(s: Sizes) -> int:
    hidden, tiles = s["hidden"], s["tiles"]
    layer = 4 * hidden * hidden + _linear(hidden, s["ffn"]) + _linear(s["ffn"], hidden) + 4 * hidden
    tokens = (_patches(s) + 1) * hidden
    # A table of places for every shape that some tiles can have, and one for none, twice of a tile alone.
    shapes = s["shapes"] + 1
    places = tokens + 1 + shapes * tiles * tokens + 2 * (shapes * tiles * hidden + 1)
    # The layers over all tiles have two gates each.
    ends = 3 * s["patch"] ** 2 * hidden + hidden + 4 * hidden
    return ends + places + s["layers"] * layer + 2 * s["gated"] + _linear(s["out"], s["text"])


_TOWERS: Final[Mapping[str, Callable[[Sizes], int]]] = {
    "gemma3": _gemma3,
    "paligemma": _paligemma,
    "llava": _llava,
    "llava_pixtral": _llava_pixtral,
    "llava_next": _llava_next,
    "llava_next_video": _llava_next,
    "mistral3": _mistral3,
    "mllama": _mllama,
    "llava_onevision": _llava_onevision,
    "idefics3": _idefics3,
    "smolvlm": _idefics3,
    "glm4v": _glm4v,
    "glm46v": _glm4v,
    "glm4v_moe": _glm4v,
    "internvl": _internvl,
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
    "qwen3_5": _qwen3_vl,
    "qwen3_5_moe": _qwen3_vl,
    "qwen2_audio": _qwen2_audio,
    "audioflamingo3": _audio_flamingo,
    "musicflamingo": _audio_flamingo,
    "voxtral": _voxtral,
    "glmasr": _glmasr,
}


def count_tower(kind: str, sizes: Sizes) -> int | None:
    """Parameters of tower and projector of the model type ``kind``; ``None`` if the kind or
    a size that it needs is unknown. LLaVA with a Pixtral tower is ``llava_pixtral``."""
    counter = _TOWERS.get(kind)
    if counter is None:
        return None
    try:
        return counter(sizes)
    except (KeyError, ZeroDivisionError):
        return None
