"""What the images of a micro batch hold on a GPU, beside the text model's own activations."""

from __future__ import annotations

from msgspec import Struct

from oomlint.memory.facts import Facts
from oomlint.memory.layers import layer_profile, widest
from oomlint.memory.regimes import checkpointed_share
from oomlint.memory.sound import sound_of


class Images(Struct, frozen=True):
    """Bytes, and elements of gradients.

    ``kept`` is alive while the text model runs forward and backward; ``forward`` is the highest
    instant of the tower's forward pass, ``backward`` the one of its backward pass, when the
    tower has made ``grads`` elements of its gradients.
    """

    kept: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    grads: float = 0.0


_NONE = Images()


def images_of(f: Facts) -> Images:
    """The images of one micro batch, one a sample, found once; nothing for a model without a known tower.

    Where answers are sampled, it is the prompt that shows an image.

    A frozen tower keeps nothing for backward, for neither its weights nor the pixels need
    gradients, unless ``enable_input_require_grads`` asks them of the patches too, as
    checkpointing with adapters does (transformers 5.23 modeling_utils.py:2137).
    """
    found = f.images
    if not isinstance(found, Images):
        found = f.images = _images_of(f)
    return found


def _images_of(f: Facts) -> Images:
    if f.model is not None and f.regime is not None and (heard := sound_of(f, f.regime)):
        return Images(heard, heard)
    tower, model = f.tower, f.model
    if tower is None or model is None or f.tower_regime is None:
        return _NONE
    vision, regime = tower.skeleton, f.tower_regime
    rows, length = _samples(f)
    seen = f.plan.model.vision
    image = tower.patches(length, seen.max_pixels, seen.max_tiles)
    patches = rows * image
    scores = patches * (image if tower.cut.apart else tower.cut.tile or image)
    block = vision.blocks[0]
    profile = layer_profile(vision, block, regime)
    wide = regime.compute
    row = vision.hidden * regime.stream * patches
    # Qwen's processors cut fp32 pixels of two frames a patch, others hand on the images.
    frames, area = tower.cut.frames, 3.0 * tower.cut.patch**2 * patches
    pixels = area * (4 * frames if frames > 1 else regime.stream)
    features = model.hidden * regime.stream * patches / tower.cut.merge
    share = checkpointed_share(f.plan) if tower.checkpoints else 0.0
    inner = widest(profile.inference, patches, scores)
    if not f.tower_graph:
        return Images(pixels + features, pixels + row + max(inner, features))
    full = profile.saved.at(patches, scores)
    each = share * row + (1 - share) * full
    saved = block.count * each
    # The norm before the projector, its hidden layer before and after the activation, and the
    # mask that says where the text model's embeddings are replaced.
    projected = (8 * vision.hidden + 3 * wide * tower.inner) * patches
    cut = area * wide * frames
    kept = pixels + saved + projected + features + (cut if regime.train_base else 0.0)
    best, alive, grads = 0.0, 0.0, 0.0
    for index in (0, block.count - 1):
        below = saved - each * index - (0.0 if share else each)
        for token, score, fixed, own in profile.backward:
            here = below + token * patches + score * scores + fixed
            done = own + index * profile.trained
            if here + done * f.bytes_per.grad > best:
                best, alive, grads = here + done * f.bytes_per.grad, here, done
    return Images(kept, pixels + saved + max(inner, row), pixels + alive, grads)


def _samples(f: Facts) -> tuple[float, float]:
    """Samples of a micro batch that show an image, and the tokens of each that may be of it."""
    samples = f.samples
    rollout = f.plan.objective.rollout
    prompt, answer = rollout.max_prompt_tokens, rollout.max_completion_tokens
    part = prompt / (prompt + answer) if prompt and answer else 1.0
    batch = f.plan.batch
    if batch.max_tokens_per_gpu and batch.micro:
        # As many samples as a budget of tokens holds, each with its image.
        return float(batch.micro), part * samples.length / batch.micro
    return samples.rows, part * samples.length
