"""What the code of an architecture decides: the classes of the repeated blocks, which FSDP wraps and
pipelines cut, and the dtype of one that casts itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Read off ``_no_split_modules`` of the classes of transformers 5.23 (models/*/modeling_*.py),
# vision and audio towers left out.
_BLOCKS: Final[Mapping[str, str]] = {
    "afmoe": "AfmoeDecoderLayer",
    "apertus": "ApertusDecoderLayer",
    "arcee": "ArceeDecoderLayer",
    "bert": "BertLayer",
    "bloom": "BloomBlock",
    "cohere": "CohereDecoderLayer",
    "cohere2": "Cohere2DecoderLayer",
    "dbrx": "DbrxBlock",
    "deepseek_v2": "DeepseekV2DecoderLayer",
    "deepseek_v3": "DeepseekV3DecoderLayer",
    "deepseek_v32": "DeepseekV32DecoderLayer",
    "deepseek_v4": "DeepseekV4DecoderLayer",
    "ernie4_5": "Ernie4_5DecoderLayer",
    "ernie4_5_moe": "Ernie4_5_MoeDecoderLayer",
    "ernie4_5_vl_moe": "Ernie4_5_VLMoeDecoderLayer",
    "falcon": "FalconDecoderLayer",
    "falcon_h1": "FalconH1DecoderLayer",
    "gemma": "GemmaDecoderLayer",
    "gemma2": "Gemma2DecoderLayer",
    "gemma3": "Gemma3DecoderLayer",
    "gemma3_text": "Gemma3DecoderLayer",
    "gemma3n": "Gemma3nTextDecoderLayer",
    "glm": "GlmDecoderLayer",
    "glm4": "Glm4DecoderLayer",
    "glm46v": "Glm4vTextDecoderLayer",
    "glm4_moe": "Glm4MoeDecoderLayer",
    "glm4_moe_lite": "Glm4MoeLiteDecoderLayer",
    "glm4v": "Glm4vTextDecoderLayer",
    "glm4v_moe": "Glm4vMoeTextDecoderLayer",
    "glm_moe_dsa": "GlmMoeDsaDecoderLayer",
    "gpt2": "GPT2Block",
    "gpt_bigcode": "GPTBigCodeBlock",
    "gpt_neo": "GPTNeoBlock",
    "gpt_neox": "GPTNeoXLayer",
    "gpt_oss": "GptOssDecoderLayer",
    "gptj": "GPTJBlock",
    "granite": "GraniteDecoderLayer",
    "granitemoe": "GraniteMoeDecoderLayer",
    "granitemoehybrid": "GraniteMoeHybridDecoderLayer",
    "hunyuan_v1_dense": "HunYuanDenseV1DecoderLayer",
    "hunyuan_vl": "HunYuanVLDenseV1DecoderLayer",
    "hy_v3": "HYV3DecoderLayer",
    "jamba": "JambaAttentionDecoderLayer JambaMambaDecoderLayer",
    "kimi_linear": "KimiLinearDecoderLayer",
    "lfm2": "Lfm2DecoderLayer",
    "lfm2_moe": "Lfm2MoeDecoderLayer",
    "lfm2_vl": "Lfm2DecoderLayer",
    "llama": "LlamaDecoderLayer",
    "llama4": "Llama4TextDecoderLayer",
    "mamba": "MambaBlock MambaMixer",
    "mimo_v2_flash": "MiMoV2FlashDecoderLayer",
    "minicpmv4_6": "Qwen3_5DecoderLayer",
    "minimax_m2": "MiniMaxM2DecoderLayer",
    "ministral3": "Ministral3DecoderLayer",
    "mistral": "MistralDecoderLayer",
    "mistral3": "MistralDecoderLayer",
    "mixtral": "MixtralDecoderLayer",
    "mllama": "MllamaCrossAttentionDecoderLayer MllamaSelfAttentionDecoderLayer",
    "modernbert": "ModernBertEncoderLayer",
    "mpt": "MptBlock",
    "mt5": "MT5Block",
    "nemotron": "NemotronDecoderLayer",
    "nemotron_h": "NemotronHBlock",
    "olmo": "OlmoDecoderLayer",
    "olmo2": "Olmo2DecoderLayer",
    "olmo3": "Olmo3DecoderLayer",
    "olmoe": "OlmoeDecoderLayer",
    "opt": "OPTDecoderLayer",
    "paddleocr_vl": "PaddleOCRDecoderLayer",
    "phi": "PhiDecoderLayer",
    "phi3": "Phi3DecoderLayer",
    "phi4_multimodal": "Phi4MultimodalDecoderLayer",
    "phimoe": "PhimoeDecoderLayer",
    "qwen2": "Qwen2DecoderLayer",
    "qwen2_5_omni_thinker": "Qwen2_5OmniDecoderLayer",
    "qwen2_5_vl": "Qwen2_5_VLDecoderLayer",
    "qwen2_audio": "Qwen2DecoderLayer",
    "qwen2_moe": "Qwen2MoeDecoderLayer",
    "qwen2_vl": "Qwen2VLDecoderLayer",
    "qwen3": "Qwen3DecoderLayer",
    "qwen3_5": "Qwen3_5DecoderLayer",
    "qwen3_5_moe": "Qwen3_5MoeDecoderLayer",
    "qwen3_moe": "Qwen3MoeDecoderLayer",
    "qwen3_next": "Qwen3NextDecoderLayer",
    "qwen3_omni_moe_thinker": "Qwen3OmniMoeThinkerTextDecoderLayer",
    "qwen3_vl": "Qwen3VLTextDecoderLayer",
    "qwen3_vl_moe": "Qwen3VLMoeTextDecoderLayer",
    "roberta": "RobertaLayer",
    "seed_oss": "SeedOssDecoderLayer",
    "smollm3": "SmolLM3DecoderLayer",
    "stablelm": "StableLmDecoderLayer",
    "starcoder2": "Starcoder2DecoderLayer",
    "whisper": "WhisperEncoderLayer WhisperDecoderLayer",
    "xlm-roberta": "XLMRobertaLayer",
    "t5": "T5Block",
}
BERTS: Final = frozenset(
    "bert bert-generation big_bird camembert data2vec-text deberta deberta-v2 distilbert electra ernie flaubert "
    "megatron-bert mpnet mra nystromformer roberta roberta-prelayernorm roformer xlm xlm-roberta "
    "xlm-roberta-xl yoso".split()
)
"""Encoders whose layers are BERT's: biases everywhere, layer norms, two matrices of feed-forward."""

BARTS: Final = frozenset(
    "bart bigbird_pegasus blenderbot blenderbot-small m2m_100 marian mbart mvp pegasus pegasus_x plbart".split()
)
"""Encoder-decoders whose layers are BART's."""


def block_classes(arch: str) -> tuple[str, ...]:
    """Names of the decoder block classes of ``arch``; empty where it is not known."""
    return tuple(_BLOCKS.get(arch, "").split())


def is_in_transformers(arch: str | None) -> bool:
    """Whether transformers itself has the classes. Checkpoints of these models that bring code have none for
    AutoModel, or a class without a head (``auto_map`` in the config.json of tiiuae/falcon-7b and
    deepseek-ai/DeepSeek-V3); ChatGLM's, InternLM's and MiniCPM-V's name one with it."""
    return arch in _BLOCKS


# Models whose own code makes them bf16 wherever the GPU can, though nobody asks for it (Qwen-7B and
# Qwen-VL, modeling_qwen.py of 58362a19 and later, QWenLMHeadModel.__init__: ``autoset_precision``).
_CAST_THEMSELVES: Final = frozenset({"qwen", "qwen_vl"})


def own_dtype(arch: str | None) -> str | None:
    """The dtype that a model takes by itself where none is named."""
    return "bf16" if arch in _CAST_THEMSELVES else None


# Mixtures of experts that no transformers below 5.0 has: before, they ran from its main branch or on code
# that came with the weights, which says otherwise how it holds experts (the dates in the
# models' pages of transformers' documentation, all after 4.57 of 2025-10-03).
_SINCE_TRANSFORMERS_5: Final = frozenset({"afmoe", "kimi_linear", "lfm2_moe"})


def is_new_in_transformers_5(arch: str | None) -> bool:
    """Whether a pinned transformers 4 cannot be what holds the model."""
    return arch in _SINCE_TRANSFORMERS_5


# Mixtures of experts that stacked their weights in one parameter before all others did, with transformers 5
# (transformers 4.57 models/*/modeling_*.py: Llama4TextExperts, GptOssExperts, DbrxExpertGLU, GraniteMoeParallelExperts
# and the like of JetMoe, Qwen3VLMoeTextExperts).
_STACKED_EARLY: Final = frozenset(
    "dbrx gpt_oss granitemoe granitemoehybrid granitemoeshared jetmoe llama4 qwen3_vl_moe".split()
)


def stacks_experts_early(arch: str | None) -> bool:
    """Whether the experts of a model are one parameter in every release that has its classes."""
    return arch in _STACKED_EARLY


# Decoders that are built of other parts than the usual keys say, and what these are: by transformers 5.24's defaults
# their classes have other numbers of parameters than is read from these (benchmarks/catalogue/classes.py).
_BUILT_OTHERWISE: Final[Mapping[str, str]] = {
    "albert": "its layers are one, whose gradient adds up as it is run again, and its embeddings are narrower",
    "axk2": "its norms and its attention are gated at a low rank",
    "bitnet": "norms stand inside its attention and feed-forward parts, and it computes with ternary copies of its weights",
    "blt": "bytes are hashed to embeddings, and patches of them mixed in between",
    "cohere_compass_text": "transformers builds none from its defaults to compare with",
    "convbert": "spans are convolved beside half of the attention heads",
    "cpmant": "it embeds prompts beside tokens",
    "deepseek_v4": "it compresses keys and values over time",
    "dory": "its layers are run several times",
    "dots3_note": "layers with a window have latent ranks of their own",
    "dots3_note_text": "layers with a window have latent ranks of their own",
    "encoder-decoder": "two models are joined in it",
    "esm": "transformers builds none from its defaults to compare with",
    "fnet": "it mixes tokens by Fourier transforms",
    "fsmt": "source and target have vocabularies of their own",
    "funnel": "it pools tokens between its layers",
    "gemma4_assistant": "it drafts for another model, whose states it reads",
    "gemma4_unified_assistant": "it drafts for another model, whose states it reads",
    "git": "its captions are written from a vision tower's tokens",
    "got_ocr2": "its vision tower is another",
    "granite_speech": "its encoder for sound is not counted",
    "granite_speech_plus": "its encoder for sound is not counted",
    "hrm_text": "its layers are run in cycles",
    "hy_v4": "it mixes streams between its layers",
    "ibert": "its layers compute in integers",
    "inkling2_loop_text": "it convolves keys and values, and biases attention by distances that are projected",
    "inkling2_text": "it convolves keys and values, and biases attention by distances that are projected",
    "inkling_text": "it convolves keys and values, and biases attention by distances that are projected",
    "jetmoe": "experts project its queries",
    "jina_embeddings_v3": "it holds an adapter for each of its tasks",
    "layoutlm": "it embeds places on a page beside words",
    "led": "some tokens attend to all with weights of their own",
    "longcat_flash": "each of its layers attends twice",
    "longformer": "some tokens attend to all with queries, keys and values of their own, the others within windows",
    "longt5": "it attends to summaries of blocks",
    "luke": "it embeds entities beside words",
    "mobilebert": "its layers are bottlenecks with several feed-forward parts",
    "modernvbert": "its vision tower is not counted",
    "moshi": "it predicts several streams of sound at a time",
    "moss_transcribe_diarize": "its encoder for sound is not counted",
    "musicgen": "it predicts several streams of sound at a time",
    "musicgen_melody": "it predicts several streams of sound at a time",
    "nemo_speechlm": "its encoder for sound is not counted",
    "neomme": "its embeddings are narrower than its layers, and values have some of their own",
    "nllb-moe": "its experts stand in some layers of encoder and decoder",
    "omniasr": "its encoder for sound is not counted",
    "perceiver": "it attends from a fixed number of latents",
    "prophetnet": "it predicts several tokens at a time",
    "qwen3_asr": "its encoder for sound is not counted",
    "qwen4_exp": "it embeds sequences of tokens, and mixes streams between its layers",
    "qwen4_exp_text": "it embeds sequences of tokens, and mixes streams between its layers",
    "recurrent_gemma": "gated recurrences take the place of attention in most layers",
    "reformer": "it hashes tokens to those that they attend to",
    "rembert": "its embeddings are narrower than its layers, and its head wider",
    "roc_bert": "it embeds sounds and shapes of characters beside them",
    "rwkv": "recurrences take the place of attention",
    "squeezebert": "its layers are grouped convolutions",
    "switch_transformers": "its experts stand in some layers of encoder and decoder, and drop tokens beyond a capacity",
    "t5gemma": "its encoder and decoder have sizes and embeddings of their own",
    "t5gemma2": "its encoder and decoder are of different sizes",
    "tapas": "it embeds rows, columns and ranks of tables",
    "trocr": "it reads lines of text from images",
    "ultravbert": "its tower for images is not counted",
    "vibevoice_asr": "its encoder for sound is not counted",
    "voxtral_realtime": "its encoder for sound is not counted",
    "xlnet": "it attends in two streams, by permutations",
    "xlstm": "recurrences take the place of attention",
    "xmod": "it holds a module for each of its languages",
    "zamba": "its layers share a block of attention",
    "zamba2": "its layers share blocks of attention, twice as wide, each with adapters of its own",
    "zaya": "it convolves queries and keys",
}


def why_built_otherwise(arch: str | None) -> str | None:
    """What a model is built of that its dimensions in the usual keys do not tell, so that nothing is predicted
    from them; ``None`` of others."""
    return _BUILT_OTHERWISE.get(arch or "")


# Mixtures of experts that transformers has no class for: the code that comes with the weights has a linear layer for each
# expert (moonshotai/Kimi-VL-A3B-Instruct modeling_kimi_vl.py, whose language model is DeepSeek-V3's
# modeling_deepseek.py DeepseekV3MoE: an nn.ModuleList).
_LISTED_BY_OWN_CODE: Final = frozenset({"kimi_vl"})


def lists_experts(arch: str | None) -> bool:
    """Whether each expert of a model has linear layers of its own, whatever the release of transformers."""
    return arch in _LISTED_BY_OWN_CODE


# Whose experts' own layers have other names than gate_proj, up_proj and down_proj (transformers 4.57
# models/*/modeling_*.py: MixtralBlockSparseTop2MLP and the like of PhiMoE and MiniMax).
_NUMBERED_EXPERTS: Final = frozenset({"minimax", "mixtral", "phimoe"})
# Whose router was an nn.Linear until it became a parameter, with transformers 5 (4.57 models/*/modeling_*.py).
_ROUTED_LINEARLY: Final = frozenset(
    "ernie4_5_moe jamba minimax mixtral olmoe phimoe qwen2_moe qwen3_moe qwen3_next".split()
)


def names_of_expert_layers(arch: str | None) -> tuple[str, str, str]:
    """What the layers of experts that have layers of their own are called: gate, up and down."""
    is_numbered = arch in _NUMBERED_EXPERTS
    return ("w1", "w3", "w2") if is_numbered else ("gate_proj", "up_proj", "down_proj")


def routed_linearly(arch: str | None) -> bool:
    """Whether a linear layer chooses among experts that have layers of their own."""
    return arch in _ROUTED_LINEARLY


# Names of single experts' layers that PEFT translates into the parameters that stack them, by the architecture
# whose checkpoints a model's are converted as (peft 0.21.2 utils/transformers_weight_conversion.py
# _MOE_TARGET_MODULE_MAPPING, and Mixtral, which it adds; transformers 5.23 conversion_mapping.py
# _MODEL_TO_CONVERSION_PATTERN).
_CONVERTED_AS_MIXTRAL: Final = frozenset({"minimax", "minimax_m2", "mixtral"})
_CONVERTED_AS_QWEN2_MOE: Final = frozenset(
    "afmoe cohere2_moe deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5_moe exaone_moe flex_olmo glm4_moe "
    "glm4_moe_lite glm4v_moe glm_moe_dsa hunyuan_v1_moe longcat_flash mellum olmoe qwen3_moe qwen3_next "
    "qwen3_omni_moe qwen3_omni_moe_text qwen3_omni_moe_thinker solar_open".split()
)


def translated_expert_layers(arch: str | None) -> tuple[str, str, str] | None:
    """The names of experts' layers, gate, up and down, that PEFT takes for the stacks of them on transformers 5;
    ``None`` where it translates none."""
    if arch in _CONVERTED_AS_MIXTRAL:
        return ("w1", "w3", "w2")
    return ("gate_proj", "up_proj", "down_proj") if arch in _CONVERTED_AS_QWEN2_MOE else None


# Models of text and pictures of which AutoModelForCausalLM makes the text model alone (transformers 4.46 and 4.57
# models/auto/modeling_auto.py MODEL_FOR_CAUSAL_LM_MAPPING_NAMES: MllamaForCausalLM, Llama4ForCausalLM).
_READS_TEXT_ALONE: Final = frozenset({"llama4", "mllama"})


def loses_tower(arch: str | None) -> bool:
    """Whether AutoModelForCausalLM loads a model without its vision tower."""
    return arch in _READS_TEXT_ALONE
