"""What the model classes do that their dimensions do not say, and what their layers are called."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from oomlint.models.architectures import BARTS, BERTS
from oomlint.plan.library_changes import Release

Activation = Literal[
    "silu",
    "gelu",
    "gelu_tanh_python",
    "gelu_fast_python",
    "gelu_bloom",
    "relu",
    "relu2",
    "xielu",
    "quick_gelu",
]


class Traits(Struct, frozen=True):
    """What a model class does that its dimensions do not say.

    ``norm`` says how a norm computes: ``rms`` casts before its weight, ``rms_fp32_weight``
    after it, ``ln`` is torch's, ``ln_fp32`` written out in fp32, ``ln_plain`` torch's in fp32
    without weights, ``t5`` multiplies the input as it is by fp32 scales. ``wide_rope``: cos and sin stay fp32, or queries and keys are made so.
    ``wide_scores``: eager attention multiplies queries and keys in fp32. ``experts_beside``:
    experts and a dense feed-forward part take the same input, and what they give is added up.
    ``streams``: residual streams, of which a block computes with one.
    ``projects_last``: generation has always asked for the logits of the last token alone.
    ``scattered_adapter``: an adapter of some of the fused projection's heads is copied to its place.
    ``attention_gate``: what attention gives is multiplied by a sigmoid of its input, an element each or one a head.
    ``linear_router``: an ``nn.Linear`` chooses experts, which adapters of all such layers take. ``fused_shared``: as
    ``fused_gate_up``, of the shared expert. ``transforms_head``: a projection, its activation and a norm stand before the output projection; without a head the pooler
    of a classifier or embedder is as large.
    ``head_major``: queries are copied so that those of a head lie together.
    ``unbiased_key``: where all projections have biases, that to the keys has none.
    ``clamped_qkv``: the fused projection's output is clamped, of which backward needs what came before.
    ``refuses_sdpa``: its class takes no fused attention, or none until ``sdpa_since``; ``biased_scores``: positions are a
    learned bias of the scores, a tensor of all heads that each block gets a mask from.
    ``narrow_norm``: its layer norm takes half precision under autocast too.
    ``narrow_loss``: cross entropy takes the logits in the width that they have; ``wide_loss_since``: the first transformers
    that makes them fp32.
    """

    norm: Literal["rms", "rms_fp32_weight", "ln", "ln_fp32", "ln_plain", "t5"] = "rms"
    norms: int = 2
    post_norms: bool = False
    norm_bias: bool = True
    narrow_norm: bool = False
    parallel: bool = False
    fused_qkv: bool = False
    fused_gate_up: bool = False
    activation: Activation | None = None
    all_biases: bool = False
    output_bias: bool = False
    positions: int = 0
    learned_positions: bool = False
    rotary: float = 1.0
    embed_norm: bool = False
    dropout: bool = False
    attention_dropout: bool = False
    scaled_query: bool = False
    refuses_sdpa: bool = False
    sdpa_since: Release | None = None
    biased_scores: bool = False
    attention_softcap: bool = False
    logit_softcap: bool = False
    head_bias: bool = False
    qk_norm_full: bool = False
    concatenated_rope: bool = False
    wide_rope: bool = False
    post_norms_only: bool = False
    l2_qk_norm: bool = False
    gated_query: bool = False
    gated_shared: bool = False
    sinks: bool = False
    half_softmax: bool = False
    inner_dropout: bool = False
    narrow_loss: bool = False
    wide_loss_since: Release | None = None
    projects_last: bool = False
    wide_scores: bool = False
    layer_scale: bool = False
    clamped_glu: bool = False
    value_norm: bool = False
    experts_beside: bool = False
    output_scale: bool = False
    scattered_adapter: bool = False
    clamped_qkv: bool = False
    attention_gate: Literal["none", "heads", "elements"] = "none"
    transforms_head: bool = False
    unbiased_key: bool = False
    head_major: bool = False
    linear_router: bool = False
    fused_shared: bool = False
    dense_routing: bool = False
    router: Literal["softmax", "sigmoid", "chosen"] = "softmax"
    router_fp32: bool = False
    streams: int = 1


_T5 = Traits(norm="t5", rotary=0, dropout=True, attention_dropout=True, inner_dropout=True,
             refuses_sdpa=True, sdpa_since=(5, 15), biased_scores=True, half_softmax=True,
             narrow_loss=True, activation="gelu_tanh_python")  # fmt: skip
_BART = Traits(norm="ln", activation="gelu", all_biases=True, learned_positions=True, positions=2,
               rotary=0, dropout=True, narrow_loss=True, half_softmax=True)  # fmt: skip
_WHISPER = Traits(norm="ln", activation="gelu", all_biases=True, learned_positions=True, rotary=0,
                  narrow_loss=True, scaled_query=True, unbiased_key=True,
                  head_major=True)  # fmt: skip
# Encoders normalise after the residual sum, which keeps as much.
_BERT = Traits(norm="ln", activation="gelu", all_biases=True, learned_positions=True, rotary=0,
               dropout=True, attention_dropout=True, transforms_head=True)  # fmt: skip
# Positions that are computed, or numbered among others.
_BERT_ROTATED = replace(_BERT, learned_positions=False, rotary=1.0)

_MODERNBERT = Traits(norm="ln", norm_bias=False, fused_qkv=True, fused_gate_up=True,
                     activation="gelu", wide_rope=True, transforms_head=True)  # fmt: skip
_GEMMA4 = Traits(norm="rms_fp32_weight", norms=4, post_norms=True, logit_softcap=True,
                 value_norm=True, experts_beside=True, output_scale=True)  # fmt: skip
_GEMMA3N = Traits(norm="rms_fp32_weight", norms=4, post_norms=True, logit_softcap=True,
                  value_norm=True, streams=4)  # fmt: skip
_GLM4 = Traits(norms=4, post_norms=True, fused_gate_up=True, rotary=0.5, concatenated_rope=True)
# OLMo's own blocks (allenai/OLMo 59a53e3f olmo/model.py OLMoSequentialBlock): one projection for all
# heads and one for both halves of the feed-forward part, rotations in fp32.
_OLMO = Traits(fused_qkv=True, fused_gate_up=True, wide_rope=True, qk_norm_full=True)
_OLMO_NORMS = {
    "olmo_rms": _OLMO,
    "olmo_rms_after": replace(_OLMO, post_norms_only=True),
    "olmo_ln": replace(_OLMO, norm="ln"),
    "olmo_ln_after": replace(_OLMO, norm="ln", post_norms_only=True),
    "olmo_plain": replace(_OLMO, norm="ln_plain"),
    "olmo_plain_after": replace(_OLMO, norm="ln_plain", post_norms_only=True),
}
# LLM Foundry's own blocks (llm-foundry 8c8dd48f llmfoundry/models/layers/blocks.py MPTBlock): GELU as one kernel and no
# dropout; norms are LPLayerNorm (layers/norm.py) unless the model's config names others.
_FOUNDRY = Traits(norm="ln", fused_qkv=True, activation="gelu", rotary=0, narrow_norm=True)
_FOUNDRY_POSITIONS = {
    "foundry": replace(_FOUNDRY, learned_positions=True),
    "foundry_alibi": _FOUNDRY,
    "foundry_rope": replace(_FOUNDRY, rotary=1.0),
}
_FOUNDRY_NORMS = {
    **_FOUNDRY_POSITIONS,
    **{f"{arch}_wide": replace(t, narrow_norm=False) for arch, t in _FOUNDRY_POSITIONS.items()},
    **{f"{arch}_rms": replace(t, norm="rms") for arch, t in _FOUNDRY_POSITIONS.items()},
}
_FOUNDRY_BLOCKS = {
    **_FOUNDRY_NORMS,
    **{f"{arch}_plain": replace(t, norm_bias=False) for arch, t in _FOUNDRY_NORMS.items()},
}
# nanoGPT 3adf61e model.py: a GPT-2 whose activation is torch's nn.GELU, one kernel, and whose softmax is as wide as its scores.
_NANOGPT = Traits(norm="ln", fused_qkv=True, activation="gelu", all_biases=True, learned_positions=True, rotary=0,
                  dropout=True, attention_dropout=True, half_softmax=True)  # fmt: skip
# transformers 5.23 models/<arch>/modeling_<arch>.py, read class by class; what is not here
# behaves like Llama (rms) or like the plain pre-norm LayerNorm decoder (ln).
_TRAITS: dict[str, Traits] = {
    "gpt2": Traits(norm="ln", fused_qkv=True, activation="gelu_tanh_python", all_biases=True,
                   learned_positions=True, rotary=0, dropout=True, attention_dropout=True),
    "gpt_bigcode": Traits(norm="ln", fused_qkv=True, activation="gelu", all_biases=True,
                          learned_positions=True, rotary=0, dropout=True, attention_dropout=True),
    "gpt_neo": Traits(norm="ln", activation="gelu_tanh_python", output_bias=True,
                      learned_positions=True, rotary=0, refuses_sdpa=True, wide_scores=True),
    "gptj": Traits(norm="ln", norms=1, parallel=True, activation="gelu_tanh_python", rotary=0.25,
                   head_bias=True, refuses_sdpa=True, wide_scores=True),
    "gpt_neox": Traits(norm="ln", parallel=True, fused_qkv=True, activation="gelu",
                       all_biases=True, rotary=0.25, concatenated_rope=True),
    "opt": Traits(norm="ln", activation="relu", all_biases=True, learned_positions=True,
                  positions=2, rotary=0, dropout=True, scaled_query=True),
    "bloom": Traits(norm="ln", fused_qkv=True, activation="gelu_bloom", all_biases=True, rotary=0,
                    embed_norm=True, refuses_sdpa=True),
    "falcon": Traits(norm="ln", norms=1, parallel=True, fused_qkv=True, activation="gelu"),
    "phi": Traits(norm="ln", norms=1, parallel=True, activation="gelu_tanh_python",
                  all_biases=True, rotary=0.4, head_bias=True, concatenated_rope=True),
    "phi3": Traits(fused_qkv=True, fused_gate_up=True, concatenated_rope=True),
    "phi4_multimodal": Traits(fused_qkv=True, fused_gate_up=True, rotary=0.75,
                              concatenated_rope=True),
    **dict.fromkeys(BERTS, _BERT),
    **dict.fromkeys(("bert-generation", "xlm", "flaubert"), replace(_BERT, transforms_head=False)),
    "roformer": _BERT_ROTATED,
    # Rotations, a gated feed-forward part and biases of its own; the head is BERT's.
    "nomic_bert": Traits(norm="ln", transforms_head=True, dropout=True),
    "gte": Traits(norm="ln", transforms_head=True, output_bias=True, dropout=True),
    "modernbert": _MODERNBERT,
    "modernbert-decoder": replace(_MODERNBERT, fused_qkv=False),
    **dict.fromkeys(BARTS, _BART),
    **dict.fromkeys(("blenderbot-small", "marian", "pegasus"), replace(_BART, positions=0)),
    # Their positions are computed, and no parameters.
    **dict.fromkeys(("m2m_100", "pegasus_x"), replace(_BART, learned_positions=False)),
    "whisper": _WHISPER,
    "biogpt": Traits(norm="ln", activation="gelu", all_biases=True, learned_positions=True,
                     positions=2, rotary=0, dropout=True, attention_dropout=True),
    # Scores are kept for a maximum beside their softmax, as much together as a softmax in fp32 keeps.
    "xglm": Traits(norm="ln", activation="gelu", all_biases=True, rotary=0, dropout=True,
                   attention_dropout=True, refuses_sdpa=True),
    "ctrl": Traits(norm="ln", activation="relu", all_biases=True, rotary=0, dropout=True),
    "afmoe": Traits(norms=4, post_norms=True, attention_gate="elements", router="sigmoid",
                    router_fp32=True, linear_router=True),
    "laguna": Traits(attention_gate="heads", router="sigmoid", router_fp32=True),
    "beam": Traits(norms=4, post_norms=True, attention_gate="elements"),
    "lfm3": Traits(norms=4, post_norms=True, attention_gate="heads"),
    "codegen": Traits(norm="ln", norms=1, parallel=True, fused_qkv=True, activation="gelu_tanh_python",
                      rotary=0.25, head_bias=True, refuses_sdpa=True, wide_scores=True),
    "openai-gpt": Traits(norm="ln", fused_qkv=True, activation="gelu_tanh_python", all_biases=True,
                         learned_positions=True, rotary=0, dropout=True, attention_dropout=True),
    "gpt_neox_japanese": Traits(norm="ln", fused_qkv=True, activation="gelu"),
    "persimmon": Traits(norm="ln", fused_qkv=True, activation="relu2", rotary=0.5, concatenated_rope=True),
    "fuyu": Traits(norm="ln", fused_qkv=True, activation="relu2", rotary=0.5, concatenated_rope=True),
    "deberta": replace(_BERT, fused_qkv=True),
    "dbrx": Traits(norm="ln", norm_bias=False, fused_qkv=True, clamped_qkv=True, linear_router=True),
    "granitemoehybrid": Traits(fused_shared=True),
    "granitemoeshared": Traits(fused_shared=True),
    "minimax_m3_vl_text": Traits(fused_shared=True),
    "phimoe": Traits(norm="ln", linear_router=True),
    "hunyuan_v1_moe": Traits(linear_router=True),
    "bailing_hybrid": Traits(attention_gate="heads", router="sigmoid", router_fp32=True),
    "olmo_hybrid": Traits(qk_norm_full=True, rotary=0),
    "nemotron_h": Traits(router="sigmoid", router_fp32=True),
    "ernie4_5_moe": Traits(wide_rope=True, router_fp32=True),
    "mpt": Traits(norm="ln", norm_bias=False, fused_qkv=True, activation="gelu", rotary=0),
    "starcoder2": Traits(norm="ln", all_biases=True, activation="gelu", dropout=True,
                         attention_dropout=True),
    "stablelm": Traits(norm="ln", rotary=0.25, concatenated_rope=True),
    "cohere": Traits(norm="ln_fp32", norms=1, norm_bias=False, parallel=True, wide_rope=True),
    "cohere2": Traits(norm="ln_fp32", norms=1, norm_bias=False, parallel=True, wide_rope=True),
    "nemotron": Traits(norm="ln", rotary=0.5, concatenated_rope=True),
    "olmo": Traits(norm="ln_plain", wide_rope=True),
    "gemma": Traits(norm="rms_fp32_weight"),
    "gemma2": Traits(norm="rms_fp32_weight", norms=4, post_norms=True, refuses_sdpa=True,
                     attention_softcap=True, logit_softcap=True),
    "gemma3_text": Traits(norm="rms_fp32_weight", norms=4, post_norms=True),
    "gemma3": Traits(norm="rms_fp32_weight", norms=4, post_norms=True),
    "gemma3n": _GEMMA3N,
    "gemma3n_text": _GEMMA3N,
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4,
    "gemma4_unified": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "diffusion_gemma": _GEMMA4,
    # THUDM/glm-4-9b-chat modeling_chatglm.py: return_last_logit, before transformers had Glm.
    "glm": Traits(
        fused_gate_up=True, rotary=0.5, concatenated_rope=True, projects_last=True
    ),
    "glm4": _GLM4,
    # Glm4vTextDecoderLayer is GLM-4's, with rotations of its own for pictures.
    "glm4v": _GLM4,
    "glm46v": _GLM4,
    "olmo2": Traits(norm="rms_fp32_weight", qk_norm_full=True, wide_rope=True,
                    post_norms_only=True),
    "olmo3": Traits(norm="rms_fp32_weight", qk_norm_full=True, wide_rope=True,
                    post_norms_only=True),
    "seed_oss": Traits(dropout=True, attention_dropout=True),
    "ernie4_5": Traits(wide_rope=True),
    **dict.fromkeys(("apertus", "apertus1p5_text"), Traits(activation="xielu")),
    "glm4_moe": Traits(rotary=0.5, concatenated_rope=True, router="sigmoid", router_fp32=True),
    "glm4v_moe": Traits(rotary=0.5, concatenated_rope=True, router="sigmoid", router_fp32=True),
    "glm4_moe_lite": Traits(router="sigmoid", router_fp32=True),
    "deepseek_v2": Traits(router_fp32=True),
    "deepseek_v3": Traits(router="sigmoid", router_fp32=True),
    "kimi_vl": Traits(router="sigmoid", router_fp32=True),
    "minimax_m2": Traits(qk_norm_full=True, rotary=0.5, concatenated_rope=True, router="sigmoid"),
    "qwen2_moe": Traits(gated_shared=True),
    "qwen3_next": Traits(norm="rms_fp32_weight", rotary=0.25, concatenated_rope=True,
                         gated_query=True, gated_shared=True),
    "qwen3_5": Traits(norm="rms_fp32_weight", rotary=0.25, concatenated_rope=True,
                      gated_query=True),
    "qwen3_5_moe": Traits(norm="rms_fp32_weight", rotary=0.25, concatenated_rope=True,
                          gated_query=True, gated_shared=True),
    "gpt_oss": Traits(refuses_sdpa=True, sinks=True, clamped_glu=True, router="chosen"),
    "llama4": Traits(l2_qk_norm=True, dense_routing=True, linear_router=True),
    "olmoe": Traits(qk_norm_full=True),
    "chatglm": Traits(
        fused_qkv=True, fused_gate_up=True, rotary=0.5, concatenated_rope=True, projects_last=True
    ),
    # modeling_chatglm.py of ChatGLM-6B: scores and their softmax are tensors of their own (attention_fn), gelu_impl is
    # GELU's approximation by tanh written out, which TorchScript may fuse.
    "chatglm_6b": Traits(
        norm="ln", fused_qkv=True, all_biases=True, activation="gelu_tanh_python", refuses_sdpa=True,
        concatenated_rope=True,
    ),
    # modeling_baichuan.py and modeling_qwen.py of Baichuan2-13B-Chat and Qwen-7B: loss_fct(shift_logits, ...) of what lm_head gives.
    "baichuan": Traits(fused_qkv=True, narrow_loss=True),
    "qwen": Traits(fused_qkv=True, narrow_loss=True),
    "internlm2": Traits(fused_qkv=True),
    # litgpt/model.py GPT: one projection for all heads, rotated parts put together by torch.cat.
    "litgpt": Traits(fused_qkv=True, concatenated_rope=True, scattered_adapter=True),
    "litgpt_phi": Traits(norm="ln", norms=1, parallel=True, fused_qkv=True, activation="gelu",
                         all_biases=True, rotary=0.4, head_bias=True, concatenated_rope=True,
                         scattered_adapter=True),
    "t5": _T5,
    "mt5": _T5,
    "umt5": _T5,
    "nanogpt": _NANOGPT,
    # Dropout of nothing hands on what it gets (torch 2.13 aten/src/ATen/native/Dropout.cpp _dropout_impl).
    "nanogpt_dropless": replace(_NANOGPT, dropout=False, attention_dropout=False),
    **_FOUNDRY_BLOCKS,
    **_OLMO_NORMS,
    **{f"{arch}_clamped": replace(found, clamped_qkv=True) for arch, found in _OLMO_NORMS.items()},
}  # fmt: skip


# Their loss_fct took lm_logits as they came until ForCausalLMLoss (loss/loss_utils.py) took its place (transformers
# 4.34, 4.45, 4.47.1, 4.48.3 and 4.49 models/<arch>/modeling_<arch>.py).
_NARROW_BEFORE: dict[str, Release] = {
    **dict.fromkeys(
        ("biogpt", "bloom", "ctrl", "dbrx", "falcon", "gpt2", "gpt_bigcode", "gpt_neox_japanese", "mpt", "openai-gpt",
         "opt", "persimmon", "stablelm", "xglm"),
        (4, 48),
    ),
    "gpt_neox": (4, 49),
}  # fmt: skip
_TRAITS |= {
    arch: replace(_TRAITS[arch], wide_loss_since=since) for arch, since in _NARROW_BEFORE.items()
}


def traits_of(arch: str, layer_norm: bool) -> Traits:
    """The traits of an architecture; one that is not listed is like Llama, or like the plain
    pre-norm decoder with ``layer_norm``."""
    found = _TRAITS.get(arch)
    if found is not None:
        return found
    return _LAYERNORM if layer_norm else _LLAMA


def is_read(arch: str) -> bool:
    """Whether what layers of this architecture keep was read, and is not just taken for that of others."""
    return arch in _LLAMAS or (arch in _TRAITS and arch not in _COUNTED)


# Classes whose dimensions say it all, most of them measured (tests/memory/data/steps.jsonl).
# Arcee, Hunyuan and LFM2 are measured too, but Axolotl's published runs of them lie 18 % below
# to 70 % above what their layers explain: their bounds stay wide.
_LLAMAS = frozenset(
    "llama mistral ministral3 mistral4 qwen2 qwen3 qwen2_moe qwen3_moe mixtral smollm3 granite "
    "granitemoe granitemoehybrid phimoe dbrx falcon_h1 "
    # Multimodal models around one of them, measured with their towers.
    "qwen2_vl qwen2_5_vl qwen3_vl qwen3_vl_moe llava llava_next internvl mistral3 "
    "qwen2_5_omni_thinker qwen3_omni_moe_thinker idefics3 smolvlm voxtral paddleocr_vl".split()
)
# Classes of which the parameters are read, and not what their layers keep.
_COUNTED = frozenset(
    "bailing_hybrid beam chatglm_6b codegen ctrl fuyu gpt_neox_japanese granitemoeshared gte hunyuan_v1_moe laguna lfm3 "
    "minimax_m3_vl_text nomic_bert openai-gpt persimmon".split()
)
_LLAMA = Traits()
_LAYERNORM = Traits(norm="ln")

# Linear layers of experts that have such of their own.
EXPERT_ROLES = ("expert_gate", "expert_up", "expert_down")

# Names by which users (PEFT target_modules, freeze lists) call the linear layers; the role
# comes first. Collected from the modules of transformers 5.23 and of the remote-code Qwen,
# Baichuan, ChatGLM and InternLM2 models.
ROLE_NAMES: dict[str, frozenset[str]] = {
    "q": frozenset({"q_proj", "query", "wq", "q", "q_lin"}),
    "k": frozenset({"k_proj", "key", "wk", "k"}),
    "v": frozenset({"v_proj", "value", "wv", "v"}),
    "qkv": frozenset(
        {"qkv_proj", "query_key_value", "c_attn", "W_pack", "wqkv", "Wqkv", "qkv", "attn"}
    ),
    "o": frozenset(
        {"o_proj", "o", "out_proj", "dense", "c_proj", "wo", "output_proj", "proj", "attn.c_proj"}
    ),
    "gate": frozenset({"gate_proj", "w1", "gate", "wi_0"}),
    "up": frozenset({"up_proj", "wi", "wi_1", "fc1", "c_fc", "dense_h_to_4h", "w3", "fc_in", "fc"}),
    "down": frozenset(
        {"down_proj", "fc2", "c_proj", "dense_4h_to_h", "w2", "fc_out", "proj", "mlp.c_proj"}
    ),
    "gate_up": frozenset({"gate_up_proj", "dense_h_to_4h"}),
    "q_a": frozenset({"q_a_proj"}),
    "q_b": frozenset({"q_b_proj", "q_proj"}),
    "kv_a": frozenset({"kv_a_proj_with_mqa"}),
    "kv_b": frozenset({"kv_b_proj"}),
    "shared_gate": frozenset({"gate_proj"}),
    "shared_up": frozenset({"up_proj"}),
    "shared_down": frozenset({"down_proj"}),
    "router": frozenset({"router"}),
    "cross_q": frozenset({"q", "q_proj"}),
    "cross_k": frozenset({"k", "k_proj"}),
    "cross_v": frozenset({"v", "v_proj"}),
    "cross_o": frozenset({"o", "out_proj"}),
    "o_gate": frozenset({"gate_proj", "g_proj", "output_gate"}),
    "index_q": frozenset({"wq_b"}),
    "index_k": frozenset({"wk"}),
    "index_weights": frozenset({"weights_proj"}),
    "dt": frozenset({"dt_proj"}),
    "shared_weight": frozenset({"shared_expert_gate"}),
    "shared_gate_up": frozenset({"gate_up_proj", "input_linear"}),
    "la_q": frozenset({"q_proj"}),
    "la_k": frozenset({"k_proj"}),
    "la_v": frozenset({"v_proj"}),
    "la_o": frozenset({"o_proj"}),
    "la_a_in": frozenset({"f_a_proj"}),
    "la_z_in": frozenset({"g_a_proj"}),
    "la_qkv": frozenset({"in_proj_qkv"}),
    "la_qkvz": frozenset({"in_proj_qkvz"}),
    "la_z": frozenset({"in_proj_z", "g_proj", "g_b_proj"}),
    "la_b": frozenset({"in_proj_b", "b_proj"}),
    "la_a": frozenset({"in_proj_a", "a_proj", "f_proj", "f_b_proj"}),
    "la_ba": frozenset({"in_proj_ba"}),
    "la_out": frozenset({"out_proj"}),
    "ssm_in": frozenset({"in_proj"}),
    "ssm_x": frozenset({"x_proj"}),
    "ssm_dt": frozenset({"dt_proj"}),
    "ssm_out": frozenset({"out_proj"}),
    "conv_in": frozenset({"in_proj"}),
    "conv_out": frozenset({"out_proj"}),
    "laurel_left": frozenset({"linear_left"}),
    "laurel_right": frozenset({"linear_right"}),
    "stream_router": frozenset({"modality_router"}),
    "predict": frozenset({"prediction_coefs"}),
    "correct": frozenset({"correction_coefs"}),
    "input_gate": frozenset({"per_layer_input_gate"}),
    "input_out": frozenset({"per_layer_projection"}),
}
