"""Keys of LLaMA-Factory and the environment variables that it reads.

Read from LLaMA-Factory ff6d4d12 (2026-08-18); ``LF`` below is ``src/llamafactory``.
"""

from __future__ import annotations

from msgspec.structs import replace

from oomlint.dialects.common.fields import registry
from oomlint.dialects.key_releases import key_spans, past_keys
from oomlint.dialects.kinds import (
    BOOLEAN,
    COUNT,
    DTYPE_OR_AUTO_LOAD,
    INTEGER,
    LIST,
    NUMBER,
    POSITIVE,
    TEXT,
    Kind,
    choice,
    read_list,
)
from oomlint.dialects.llamafactory.releases import LARGER_IMAGES, LONGER_CUTOFF, MORE_FRAMES
from oomlint.dialects.table import Renaming, Row, Table, known_keys
from oomlint.dialects.trainer.arguments import (
    KNOWN_PREFIXES,
    KNOWN_TRAINING_ARGUMENTS,
    RENAMED_ARGUMENTS,
    SEQ2SEQ_ARGUMENTS,
    TRAINING_ARGUMENTS,
)
from oomlint.plan.fields import Private, f


class lf(Private, prefix="lf"):  # noqa: N801  a namespace of fields, read like ``f``
    """Keys of LLaMA-Factory whose meaning takes more than one of them."""

    unsloth: bool
    unsloth_gc: bool
    liger: bool
    no_checkpointing: bool
    reentrant: bool
    logits_fp32: bool
    resize_vocab: bool
    crops: bool
    pans: bool
    ktransformers: bool
    quant_bits: int
    quant_method: str
    double_quant: bool
    stage: str
    lora_rank: int
    lora_target: tuple[str, ...]
    dora: bool
    pissa: bool
    oft_rank: int
    oft_target: tuple[str, ...]
    freeze_layers: int
    freeze_modules: tuple[str, ...]
    freeze_extra: tuple[str, ...]
    freeze_projector: bool
    freeze_language: bool
    pure_bf16: bool
    galore: bool
    galore_rank: int
    galore_layerwise: bool
    apollo: bool
    apollo_rank: int
    apollo_layerwise: bool
    badam: bool
    badam_mode: str
    adam_mini: bool
    muon: bool
    pref_loss: str
    ref_model: str
    ref_bits: int
    reward_model: str
    reward_type: str
    asft: bool
    packing: bool
    neat_packing: bool
    fp8: bool
    tokenized_path: str
    fp8_backend: str
    ray_workers: int
    recompute: str
    trains: bool
    export_dir: str
    export_bits: int
    adapters: tuple[str, ...]
    infer_dtype: str
    max_new_tokens: int


class lf_megatron(Private, prefix="lf.megatron"):  # noqa: N801
    """Degrees of Megatron Bridge and mcore_adapter."""

    tp: int
    pp: int
    cp: int
    ep: int


class lf_env(Private, prefix="lf.env"):  # noqa: N801
    """Variables that choose how LLaMA-Factory trains."""

    torchrun: bool
    ray: bool
    ktransformers: bool
    mca: bool
    bridge: bool
    optim_torch: bool


ATTENTION = choice(
    {
        "disabled": "eager",
        "sdpa": "sdpa",
        "fa2": "flash2",
        "fa3": "flash3",
        "auto": None,
        # Before v0.7.1 the key was a boolean.
        True: "flash2",
        False: None,
    }
)

_COMMAS = Kind(
    lambda raw: read_list(raw),
    lambda names: ",".join(names),
    {"type": "string"},
)

_METHODS = choice(
    {"lora": "lora", "oft": "oft", "freeze": "freeze", "full": "full", "none": "none"},
    write={"qlora": "lora", "dora": "lora"},
)

_ROWS = (
    Row("model_name_or_path", f.model.id, TEXT, source="LF/hparams/model_args.py:38"),
    Row("model_revision", f.model.revision, TEXT),
    Row("trust_remote_code", f.model.trust_remote_code, BOOLEAN, default=False, source="LF/hparams/model_args.py:201"),
    Row("flash_attn", f.model.attn_impl, ATTENTION, source="LF/hparams/model_args.py:117"),
    Row("use_unsloth", lf.unsloth, BOOLEAN, default=False, source="LF/hparams/model_args.py:129"),
    Row("use_unsloth_gc", lf.unsloth_gc, BOOLEAN, default=False, source="LF/hparams/model_args.py:133"),
    Row("enable_liger_kernel", lf.liger, BOOLEAN, default=False, source="LF/hparams/model_args.py:137"),
    Row("disable_gradient_checkpointing", lf.no_checkpointing, BOOLEAN, default=False, source="LF/hparams/model_args.py:145"),
    Row("use_reentrant_gc", lf.reentrant, BOOLEAN, default=True, source="LF/hparams/model_args.py:149"),
    Row("upcast_layernorm", f.precision.norms_fp32, BOOLEAN, default=False, source="LF/hparams/model_args.py:153"),
    Row("upcast_lmhead_output", lf.logits_fp32, BOOLEAN, default=False, source="LF/hparams/model_args.py:157"),
    Row("train_from_scratch", f.model.from_scratch, BOOLEAN, default=False, source="LF/hparams/model_args.py:161"),
    Row("low_cpu_mem_usage", f.load.low_cpu_mem, BOOLEAN, default=True, source="LF/hparams/model_args.py:109"),
    Row("resize_vocab", lf.resize_vocab, BOOLEAN, default=False, source="LF/hparams/model_args.py:60"),
    Row("use_kt", lf.ktransformers, BOOLEAN, default=False, source="LF/hparams/model_args.py KTransformersArguments"),
    Row("quantization_bit", lf.quant_bits, POSITIVE, source="LF/hparams/model_args.py:283"),
    Row(
        "quantization_method", lf.quant_method,
        choice({"bnb": "bnb", "bitsandbytes": "bnb", "hqq": "hqq", "eetq": "eetq"}, otherwise="other"),
        default="bnb", source="LF/hparams/model_args.py:279",
    ),
    Row("double_quantization", lf.double_quant, BOOLEAN, default=True, source="LF/hparams/model_args.py:291"),
    Row("image_max_pixels", f.model.vision.max_pixels, POSITIVE, default=768 * 768, source="LF/hparams/model_args.py:305", changes=(LARGER_IMAGES,)),
    Row("crop_to_patches", lf.crops, BOOLEAN, default=False, source="LF/hparams/model_args.py:317"),
    Row("image_do_pan_and_scan", lf.pans, BOOLEAN, default=False, source="LF/hparams/model_args.py:313"),
    Row("video_maxlen", f.model.vision.max_frames, POSITIVE, default=128, source="LF/hparams/model_args.py:333", changes=(MORE_FRAMES,)),
    Row(
        "stage", lf.stage,
        choice({"pt": "pt", "sft": "sft", "rm": "rm", "ppo": "ppo", "dpo": "dpo", "kto": "kto", "orpo": "orpo"}),
        default="sft", source="LF/hparams/finetuning_args.py:460",
    ),
    Row("finetuning_type", f.trainable.method, _METHODS, default="lora", source="LF/hparams/finetuning_args.py:464"),
    Row("lora_rank", lf.lora_rank, POSITIVE, default=8, source="LF/hparams/finetuning_args.py:77"),
    Row("lora_alpha", f.trainable.alpha, NUMBER),
    Row("lora_dropout", f.trainable.dropout, NUMBER, default=0.0, source="LF/hparams/finetuning_args.py:73"),
    Row("lora_target", lf.lora_target, _COMMAS, default=("all",), source="LF/hparams/finetuning_args.py:81"),
    Row("use_dora", lf.dora, BOOLEAN, default=False, source="LF/hparams/finetuning_args.py:103"),
    Row("pissa_init", lf.pissa, BOOLEAN, default=False, source="LF/hparams/finetuning_args.py:107"),
    Row("oft_rank", lf.oft_rank, COUNT, default=0, source="LF/hparams/finetuning_args.py OFTArguments"),
    Row("oft_target", lf.oft_target, _COMMAS, default=("all",), source="LF/hparams/finetuning_args.py OFTArguments"),
    Row("additional_target", f.trainable.modules_to_save, _COMMAS),
    Row(
        "freeze_trainable_layers", lf.freeze_layers, INTEGER, default=2,
        aliases=("num_layer_trainable",), source="LF/hparams/finetuning_args.py:23",
    ),
    Row("freeze_trainable_modules", lf.freeze_modules, _COMMAS, default=("all",), source="LF/hparams/finetuning_args.py:33"),
    Row("freeze_extra_modules", lf.freeze_extra, _COMMAS),
    Row("freeze_vision_tower", f.model.vision.freeze_tower, BOOLEAN, default=True, source="LF/hparams/finetuning_args.py:546"),
    Row("freeze_multi_modal_projector", lf.freeze_projector, BOOLEAN, default=True, source="LF/hparams/finetuning_args.py:550"),
    Row("freeze_language_model", lf.freeze_language, BOOLEAN, default=False, source="LF/hparams/finetuning_args.py:554"),
    Row("pure_bf16", lf.pure_bf16, BOOLEAN, default=False, source="LF/hparams/finetuning_args.py:456"),
    Row("use_galore", lf.galore, BOOLEAN, default=False, source="LF/hparams/finetuning_args.py:266"),
    Row("galore_rank", lf.galore_rank, POSITIVE, default=16, source="LF/hparams/finetuning_args.py:281"),
    Row("galore_layerwise", lf.galore_layerwise, BOOLEAN, default=False, source="LF/hparams/finetuning_args.py:297"),
    Row("use_apollo", lf.apollo, BOOLEAN, default=False, source="LF/hparams/finetuning_args.py APOLLO"),
    Row("apollo_rank", lf.apollo_rank, POSITIVE, default=16, source="LF/hparams/finetuning_args.py APOLLO"),
    Row("apollo_layerwise", lf.apollo_layerwise, BOOLEAN, default=False, source="LF/hparams/finetuning_args.py APOLLO"),
    Row("use_badam", lf.badam, BOOLEAN, default=False, source="LF/hparams/finetuning_args.py BAdam"),
    Row("badam_mode", lf.badam_mode, TEXT, default="layer", source="LF/hparams/finetuning_args.py BAdam"),
    Row("use_adam_mini", lf.adam_mini, BOOLEAN, default=False, source="LF/hparams/finetuning_args.py:472"),
    Row("use_muon", lf.muon, BOOLEAN, default=False, source="LF/hparams/finetuning_args.py:522"),
    Row("pref_loss", lf.pref_loss, TEXT, default="sigmoid", aliases=("dpo_loss",), source="LF/hparams/finetuning_args.py:183"),
    Row("ref_model", lf.ref_model, TEXT),
    Row("ref_model_quantization_bit", lf.ref_bits, POSITIVE),
    Row("reward_model", lf.reward_model, TEXT),
    Row(
        "reward_model_type", lf.reward_type,
        choice({"lora": "lora", "oft": "oft", "full": "full", "api": "api"}),
        default="lora", source="LF/hparams/finetuning_args.py:247",
    ),
    Row("use_asft_loss", lf.asft, BOOLEAN, default=False, source="LF/hparams/finetuning_args.py:530"),
    Row("dataset", f.data.sets, LIST),
    Row("dataset_dir", registry.folder, TEXT, default="data", source="LF/hparams/data_args.py:38"),
    Row("tokenized_path", lf.tokenized_path, TEXT),
    Row("cutoff_len", f.seq.max_len, POSITIVE, default=2048, source="LF/hparams/data_args.py:46", changes=(LONGER_CUTOFF,)),
    Row("packing", lf.packing, BOOLEAN, aliases=("sft_packing",), source="LF/hparams/data_args.py:108"),
    Row("neat_packing", lf.neat_packing, BOOLEAN, default=False, source="LF/hparams/data_args.py:112"),
    Row("streaming", f.data.streaming, BOOLEAN, default=False, source="LF/hparams/data_args.py:58"),
    Row("buffer_size", f.data.shuffle_buffer, POSITIVE, default=16384, source="LF/hparams/data_args.py:62"),
    Row("preprocessing_num_workers", f.data.preprocess_workers, COUNT),
    Row("max_samples", f.data.max_samples, POSITIVE),
    Row("fp8", lf.fp8, BOOLEAN, default=False, source="LF/hparams/training_args.py:123"),
    Row("fp8_backend", lf.fp8_backend, TEXT, default="auto", source="LF/hparams/training_args.py:130"),
    Row("ray_num_workers", lf.ray_workers, POSITIVE, source="LF/hparams/training_args.py:43"),
    Row("hyper_parallel_cp_size", f.parallel.cp, POSITIVE),
    Row("tensor_model_parallel_size", lf_megatron.tp, POSITIVE),
    Row("pipeline_model_parallel_size", lf_megatron.pp, POSITIVE),
    Row("context_parallel_size", lf_megatron.cp, POSITIVE),
    Row("expert_model_parallel_size", lf_megatron.ep, POSITIVE),
    Row("virtual_pipeline_model_parallel_size", f.parallel.vpp, POSITIVE),
    Row("sequence_parallel", f.parallel.sp, BOOLEAN),
    Row("recompute_granularity", lf.recompute, choice({"full": "full", "selective": "selective_op", "none": "none"})),
    Row("use_distributed_optimizer", f.parallel.megatron.dist_optimizer, BOOLEAN),
    Row("overlap_param_gather", f.parallel.megatron.overlap_param_gather, BOOLEAN),
    Row("do_train", lf.trains, BOOLEAN),
    Row("export_dir", lf.export_dir, TEXT),
    Row("export_device", f.save.merge_device, choice({"cpu": "cpu", "auto": "auto"}), default="cpu", source="LF/hparams/model_args.py:366"),
    Row("export_quantization_bit", lf.export_bits, POSITIVE),
    Row("adapter_name_or_path", lf.adapters, _COMMAS),
    Row("infer_dtype", lf.infer_dtype, DTYPE_OR_AUTO_LOAD, default="auto", source="LF/hparams/model_args.py:181"),
    Row("max_new_tokens", lf.max_new_tokens, POSITIVE, default=1024, source="LF/hparams/generating_args.py"),
    *SEQ2SEQ_ARGUMENTS,
    *TRAINING_ARGUMENTS,
)  # fmt: skip

_LENGTHS = tuple(
    Renaming(
        old, None, "LLaMA-Factory 0.2", advice="cutoff_len limits prompt and answer together",
        source="LLaMA-Factory dc68c313 (2023-09-21)",
    )
    for old in ("max_source_length", "max_target_length")
)  # fmt: skip

LLAMA_FACTORY = Table(
    name="LLaMA-Factory config",
    renamed=(*RENAMED_ARGUMENTS, *_LENGTHS),
    rows=_ROWS,
    known=known_keys("llamafactory") | KNOWN_TRAINING_ARGUMENTS,
    past=past_keys("llamafactory", "llamafactory"),
    spans=key_spans("llamafactory", "llamafactory"),
    known_prefixes=(
        *KNOWN_PREFIXES, "kt_config.", "vllm_config.", "sglang_config.", "generation_config.",
        "ray_init_kwargs.", "rope_scaling.",
    ),
    ignores_unknown=False,
    loader="omegaconf",
    section="training",
)  # fmt: skip

_ENV = "LF/launcher.py:51-63"
ENVIRONMENT = Table(
    name="LLaMA-Factory environment",
    rows=(
        Row("FORCE_TORCHRUN", lf_env.torchrun, BOOLEAN, source=_ENV),
        Row("USE_RAY", lf_env.ray, BOOLEAN, source="LF/extras/misc.py use_ray"),
        Row("USE_KT", lf_env.ktransformers, BOOLEAN, source="LF/extras/misc.py use_kt"),
        Row("USE_MCA", lf_env.mca, BOOLEAN, source=_ENV),
        Row("USE_MEGATRON_BRIDGE", lf_env.bridge, BOOLEAN, source=_ENV),
        Row("OPTIM_TORCH", lf_env.optim_torch, BOOLEAN, default=True, source="LF/launcher.py:74"),
    ),
    # Everything else in the environment is somebody else's.
    known_prefixes=("",),
    section="environment",
)
CLI_ENVIRONMENT = replace(ENVIRONMENT, name="llamafactory-cli environment")
"""The environment of ``llamafactory-cli``, which starts torchrun itself."""
