"""What may be done to a model without anything about its memory being decided, or with what: by libraries' names, and
by words where code is not at hand. Words of functions (``_HARMLESS``) are no library's: they are those that came up in
1,087 scripts of public repositories and, by their files, leave a model as it is.

The names are those of torch 2.9 (nn/modules/module.py), transformers 5.23 (modeling_utils.py, trainer.py), PEFT 0.21.2
(peft_model.py, tuners/tuners_utils.py), accelerate 1.15 (accelerator.py), TRL 1.16 (models/utils.py), Unsloth 2026.10
(models, save.py) and DeepSpeed 0.18 (runtime/engine.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

ALL: Final = frozenset({"trainable", "dtype", "quantization", "checkpointing", "attention"})
"""What a function may decide that is given a model."""
LOAD: Final = ALL | {"placement"}
"""What a function may decide that makes one."""

CALLED_MODEL: Final = re.compile(r"(?:\w+_)?(?:model|policy|actor|llm|backbone|net)")
"""What scripts call a model, where nothing shows what a function is given."""

# -- methods of a model -------------------------------------------------------------------------------

METHODS: Final = frozenset(
    # torch
    "add_module apply buffers children compile cpu cuda eval extra_repr forward get_buffer get_parameter get_submodule "
    "load_state_dict modules named_buffers named_children named_modules named_parameters parameters npu register_backward_hook "
    "register_buffer register_forward_hook register_forward_pre_hook register_full_backward_hook register_module "
    "register_parameter share_memory state_dict to to_empty train type xpu zero_grad "
    # transformers
    "active_adapters add_model_tags can_generate create_extended_attention_mask disable_adapters disable_input_require_grads "
    "enable_adapters enable_input_require_grads from_pretrained generate get_base_model get_decoder get_encoder "
    "get_input_embeddings get_memory_footprint get_output_embeddings init_weights load_adapter num_parameters post_init "
    "push_to_hub resize_position_embeddings resize_token_embeddings save_pretrained set_adapter set_input_embeddings "
    "set_output_embeddings tie_weights "
    # PEFT
    "base_model create_or_update_model_card delete_adapter disable_adapter enable_adapter_layers get_nb_trainable_parameters "
    "merge_adapter merge_and_unload print_trainable_parameters unload unmerge_adapter "
    # DeepSpeed, accelerate, DDP
    "backward clip_grad_norm_ no_sync save_16bit_model save_checkpoint load_checkpoint step is_gradient_accumulation_boundary "
    # Unsloth
    "for_inference for_training push_to_hub_gguf push_to_hub_merged save_pretrained_gguf save_pretrained_merged "
    # of dicts and modules
    "module transformer encoder decoder visual lm_head items keys values get split lower upper strip rstrip lstrip replace startswith endswith format join".split()
)  # fmt: skip
MEANINGS: Final[Mapping[str, frozenset[str]]] = {
    "gradient_checkpointing_enable": frozenset({"checkpointing"}),
    "gradient_checkpointing_disable": frozenset({"checkpointing"}),
    "prepare_model_for_kbit_training": frozenset({"checkpointing"}),
    "prepare_model_for_int8_training": frozenset({"checkpointing"}),
    "apply_activation_checkpointing": frozenset({"checkpointing"}),
    "requires_grad_": frozenset({"trainable"}),
    "get_peft_model": frozenset({"trainable"}),
    "add_adapter": frozenset({"trainable"}),
    "inject_adapter_in_model": frozenset({"trainable"}),
    "half": frozenset({"dtype"}),
    "bfloat16": frozenset({"dtype"}),
    "float": frozenset({"dtype"}),
    "double": frozenset({"dtype"}),
    "_apply_liger_kernel_to_instance": frozenset({"loss"}),
}
"""Of the tables' own: what they decide. In the script itself they are read as calls."""

# -- functions ----------------------------------------------------------------------------------------

GIVES_BACK: Final = frozenset(
    "to cuda cpu half bfloat16 float double eval train requires_grad_ merge_and_unload unload to_empty npu xpu "
    "share_memory".split()
)
"""Methods that give the model back, or its base."""
WRAPPERS: Final = frozenset(
    "get_peft_model prepare_model_for_kbit_training prepare_model_for_int8_training compile unwrap_model _unwrap_model "
    "extract_model_from_parallel DistributedDataParallel DDP DataParallel FullyShardedDataParallel FSDP fully_shard "
    "prepare_model setup_module dispatch_model setup_chat_format clone_chat_template prepare setup setup_for_distributed "
    "for_training for_inference torch_distributed_zero_first cast deepcopy".split()
)
"""Functions that give back the model that they are given first, in whatever it is wrapped."""
LOADERS: Final = frozenset({"from_pretrained", "from_config", "_from_config"})
CLASSES: Final = re.compile(
    r"(?:^|\.)(?:\w+(?:ForCausalLM\w*|LMHeadModel|ForConditionalGeneration|For\w+Classification|ForMaskedLM"
    r"|ForQuestionAnswering|LMModel|ForPreTraining)|SentenceTransformer|CrossEncoder)$"
)
"""Libraries' classes of models, called with a config or a name."""
FUNCTIONS: Final = frozenset(
    # Python
    "print len isinstance issubclass type id hasattr getattr callable str repr hash iter next list dict tuple set vars "
    "dir sum any all max min sorted enumerate zip map filter append update partial pprint debug info warning error "
    # torch, accelerate, DeepSpeed
    "autocast clip_grad_norm_ clip_grad_value_ summon_full_params summary state_dict_type set_state_dict_type no_sync "
    "get_model_state_dict get_state_dict get_optimizer_state_dict set_model_state_dict set_optimizer_state_dict wait_for_everyone accumulate "
    "GatheredParameters initialize register_for_checkpointing infer_auto_device_map get_balanced_memory "
    "find_tied_parameters load_state_dict load_state_dict_from_zero_checkpoint load_checkpoint watch parameters_to_vector backward no_init_weights "
    "skip_first_batches safe_save_model_for_hf_trainer register_comm_hook init_process_group export full_state_dict "
    # transformers, PEFT, TRL, Unsloth
    "get_peft_model_state_dict set_peft_model_state_dict get_parameter_names get_decay_parameter_names add_hook_to_module "
    "disable_dropout_in_model parse_args parse_known_args parse_args_into_dataclasses asdict to_dict pop basename "
    "unwrap_model_for_generation set_z3_leaf_modules train_on_responses_only get_chat_template create_reference_model pipeline "
    "save_model push_to_hub log_model get_last_checkpoint unsloth_train LoraModel".split()
)  # fmt: skip
PACKAGES: Final = ("torch.", "accelerate.", "unsloth.", "unsloth_zoo.")
"""Whose functions decide nothing about a model that their names do not tell."""
OF_NO_MODEL: Final = tuple(
    f"{module}."
    for module in "os posixpath ntpath pathlib glob shutil tempfile json csv re string textwrap math statistics random secrets "
    "datetime time calendar logging warnings traceback pprint platform socket getpass uuid hashlib base64 argparse sys gc".split()
)  # fmt: skip
"""Modules of Python's own whose functions make texts, numbers and paths, and know of no model (Python 3.14 library)."""
READ_ELSEWHERE: Final = ("unsloth", "cut_cross_entropy")
"""Packages whose patches the dialects read."""
HARMLESS_CLASSES: Final = re.compile(
    r"(?:Trainer|Collator\w*|Callback\w*|Dataset\w*|DataLoader|Config|Arguments|Evaluator|Pipeline|Logger|Streamer|Monitor"
    r"|Tracker|Profiler|Processor|Scheduler|Sampler|Saver|Tester|Metrics?|Inferencer?|Judge|Client|Checkpointer|EMA"
    r"|Analyzer|Recorder|Visualizer|Parser|Generator|Loss|Interface|Path|TensorBoard\w*|SummaryWriter|LLM|SamplingParams)$"
)
_HARMLESS: Final = frozenset(
    "all analyse analyze answer ask assert attach backward barrier benchmark broadcast build calc calculate "
    "call chat check clean clear clip collate collect compare compute count create debug decode deploy "
    "describe diagnose display dump embed empty encode ensure estimate eval evaluate evaluation export "
    "extract find finetune fit flush format forward free gen generate get has human infer inference init "
    "initialize inspect is list load log main make measure memory merge monitor moving name num on optimizer "
    "param parameters plot predict prediction prepare print profile publish push rank register report reset "
    "resize resolve respond restore resume run sample save score seed serve show size smart step summarize "
    "summary sync synchronize test tie tokenize total track train training translate update upload validate "
    "validation verify visualize write zero".split()
)
_FIRST_WORD: Final = re.compile(r"_*([A-Z]?[a-z]+)")
# Of these it depends on what follows: a data set or an optimizer is made of a model, and so is another model.
_MAKES: Final = frozenset("build create init initialize load make prepare register update".split())
_OF_MODELS: Final = re.compile(
    r"model|peft|lora|adapter|layers?(?:_|$)|att(?:entio)?n|quant|checkpointing|kernel", re.I
)


def is_harmless(name: str) -> bool:
    """Whether a function of such a name looks at a model, keeps it, runs it or trains it."""
    first = _FIRST_WORD.match(name)
    word = first[1].lower() if first else ""
    if word not in _HARMLESS:
        return False
    return word not in _MAKES or _OF_MODELS.search(name) is None


# -- by their words -----------------------------------------------------------------------------------

_KINDS: Final = (
    ("trainable", re.compile(r"freez|frozen|trainab|tunab|requires_?grad|lora|peft|adapter|unfreez|prefix|prompt_?tun", re.I)),
    ("quantization", re.compile(r"quant|int8|int4|[48]_?bit|fp8|bnb|gptq|awq", re.I)),
    ("dtype", re.compile(r"half|b?f(?:loat|p)_?(?:16|32)|dtype|cast|precision|quant", re.I)),
    ("checkpointing", re.compile(r"(?:grad|act)\w*checkpoint|recompute|remat", re.I)),
    ("attention", re.compile(r"att(?:entio)?n|flash|sdpa|xformers|bettertransformer|ring_|ulysses", re.I)),
    ("placement", re.compile(r"parallelize$|device_?map|dispatch_model", re.I)),
    ("loss", re.compile(r"loss|logits|cross_?entropy|lm_?head|liger|(?:For(?:CausalLM|ConditionalGeneration)|LMHeadModel|(?:^|[._])model)\.forward$", re.I)),
)  # fmt: skip
PATCHES: Final = re.compile(r"(?:^|_)(?:monkey|patch|replace|inject|hijack|swap|override)", re.I)


def kinds_of(words: str) -> frozenset[str]:
    """What a name speaks of; nothing where it tells nothing."""
    return frozenset(kind for kind, speaks in _KINDS if speaks.search(words))


def decided_by(words: str) -> frozenset[str]:
    """What something of such a name may decide about a model that it is given."""
    return kinds_of(words) or ALL


# transformers 5.23 modeling_utils.py from_pretrained; unsloth 2026.10 models/loader.py.
OF_LOADING: Final[Mapping[str, frozenset[str]]] = {
    "torch_dtype": frozenset({"dtype"}),
    "dtype": frozenset({"dtype"}),
    "load_in_4bit": frozenset({"quantization"}),
    "load_in_8bit": frozenset({"quantization"}),
    "load_in_16bit": frozenset({"quantization", "dtype"}),
    "full_finetuning": frozenset({"quantization", "trainable"}),
    "quantization_config": frozenset({"quantization"}),
    "device_map": frozenset({"placement"}),
    "attn_implementation": frozenset({"attention"}),
    "use_flash_attention_2": frozenset({"attention"}),
    "use_gradient_checkpointing": frozenset({"checkpointing"}),
}
"""What each argument of a call that loads a model decides."""
OPTIONS: Final = frozenset(
    "torch_dtype dtype attn_implementation load_in_4bit load_in_8bit use_flash_attention_2 use_flash_attn "
    "bits device_map model_init_kwargs".split()
)
"""Options of transformers' examples, TRL's ModelConfig and QLoRA's script that the tables read by these names."""
SWITCHES: Final = frozenset(
    "use_peft use_lora lora_enable enable_lora use_peft_lora q_lora use_qlora "
    "gradient_checkpointing activation_checkpointing".split()
)
"""Switches of such scripts that the tables read."""
BY_OPTIONS: Final = frozenset({"get_quantization_config", "get_kbit_device_map"})
"""What TRL (f2cd5771 trainer/utils.py) makes of them."""
