"""What the convolutions that an encoder hears through hold on a GPU, before its first layer."""

from __future__ import annotations

from oomlint.memory.facts import Facts
from oomlint.memory.layers import Regime


def sound_of(f: Facts, regime: Regime) -> float:
    """Bytes that the spectrograms of a micro batch and what is made of them hold through a step; 0 for a model that hears
    nothing.

    transformers 5.24 models/whisper/modeling_whisper.py WhisperEncoder.forward: a convolution to twice as many columns as
    the encoder has tokens, a second with a stride of two, and an activation behind each. Both convolutions and both
    activations keep their inputs, unless nothing of them is trained.
    """
    dims, model = f.plan.model.dims, f.model
    sound = dims.sound if dims is not None else None
    if sound is None or model is None or not (sound.frames and sound.bands):
        return 0.0
    frames = f.samples.rows * sound.frames
    # A feature extractor makes fp32; where layers compute in 16 bits it is cast.
    given = 2.0 * sound.bands * frames
    bytes_given = given * (4 + regime.compute if regime.amp else regime.stream)
    if not regime.train_base and not f.plan.checkpointing.input_grads:
        return bytes_given
    return bytes_given + (2 + 2 + 1) * model.hidden * frames * regime.compute
