"""What a file tells its readers beside its values, by its name and in its comments.

``zero2.json`` that shards with stage 3, a ``llama3_full_sft.yaml`` that trains an adapter and a ``train_1gpu.sh``
that shards read right to a machine and wrong to everybody else; and a comment such as "only support
full for now" says what no table knows. A change that such words forbid is not written there.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterable, Iterator, Mapping as MappingABC
from typing import Any, TypeAlias

from msgspec import Struct

from oomlint.dialects.machine.named_hardware import cards_in
from oomlint.documents import SHELL_SUFFIXES, TOML_SUFFIXES, YAML_SUFFIXES, kind_of
from oomlint.documents.text import Edit, Source
from oomlint.hardware import Gpu, Hardware
from oomlint.plan import Plan
from oomlint.plan.fields import f

Wishes: TypeAlias = MappingABC[Any, Any]

# A word of a file's name, between anything that is no letter or digit.
_START, _END = r"(?<![a-z0-9])", r"(?![a-z0-9])"
_STAGE = rf"(?i){_START}(zero|ds|z|stage)([_-]?)([0-3])(?![0-9])"
_UNSHARDED = r"(?:not?|non|without)[_-]?(?:zero|deepspeed)"
_NO_OFFLOAD = "(?:no|without)[_-]?offload(?:ing)?"
_CARDS = r"(?:rtx|gtx|tesla)?[_-]?(?:[2-5]0[5-9]0(?:ti)?|[abhlvp]\d{2,3}s?|[tl]4)(?:[_-]?\d+gb?)?"
# Accelerators of other makers: what fits one of ours is nothing for them.
_OTHER_MAKERS = r"npu|ascend|amd|rocm|mi\d{3}x?|xpu|hpu|gaudi|tpu"
# transformers 5 integrations/accelerate.py check_and_set_device_map: a word is the device of the whole model.
_ON_CPU = r"""\bdevice_map\s*=\s*["']cpu["']"""
# What is no training, though a config for it may look like one: nobody asks there what a step needs.
_NO_TRAINING = r"pre_?process(?:ing)?|tokeni[sz](?:e|ation)"
# NeMo RL 0.4 names its recipes by nodes and by GPUs of each (examples/configs/recipes/llm: grpo-llama3.1-8b-instruct-1n8g).
_MACHINE = rf"(?i){_START}(\d+)n(\d+)g(?:pus?)?{_END}"
_OPTIMIZERS = "adamw|adam|adafactor|lion|muon|sgd|galore|apollo|badam|lomo|adalomo|lamb"
_SHARDING = ("parallel.zero.", "parallel.fsdp.", "parallel.backend")


class NamedPurpose(Struct, frozen=True):
    """A ``pattern`` for words of a name, the wishes that it concerns, and whether such a word, which holds for a
    run with a plan, no longer would with a wish for it. Names are searched for words of few purposes: each
    takes longer to compile than most rules take."""

    pattern: str
    concerns: Callable[[Wishes], bool]
    is_broken: Callable[[str, Plan, Wishes], bool]


def contradiction(path: str, plan: Plan, wishes: Wishes) -> str | None:
    """The word in a file's name that holds for a run and would no longer, if there is one."""
    stem, folders = _stem(path), path.rpartition("/")[0]
    if f.parallel.zero.stage in wishes:
        for stage in re.finditer(_STAGE, stem):
            if _passes_stage(int(stage[3]), plan, wishes):
                return stage[0]
    for purpose in _PURPOSES:
        for word in _words(stem, purpose.pattern) if purpose.concerns(wishes) else ():
            if purpose.is_broken(word, plan, wishes):
                return word
    return _other_maker(folders) if wishes else None


def variant_beside(path: str, others: Iterable[str], wishes: Wishes) -> str | None:
    """A file beside this one that is this one with an adapter, with its base quantized or sharded, by its name, where
    that is wished: ``train_lora.sh`` beside ``train.sh``, ``8B_qlora.yaml`` beside ``8B_lora.yaml``,
    ``sft_ds3.yaml`` beside ``sft.yaml``."""
    if str(wishes.get(f.trainable.method, "")).endswith("lora"):
        pattern, words = "q?lora", _OF_TRAINING
    elif wishes.get(f.quant.method) not in (None, "none"):
        pattern, words = "qlora", _OF_TRAINING
    elif wishes.get(f.parallel.zero.stage):
        pattern = words = _OF_SHARDING
    else:
        return None
    stem = _without(words, _stem(path))
    return next(
        (
            other
            for other in others
            if other != path
            and any(_words(_stem(other), pattern))
            and not any(_words(_stem(path), pattern))
            and _without(words, _stem(other)) == stem
        ),
        None,
    )


# What names say of what is trained, and of how it is spread over cards.
_OF_TRAINING = "q?lora|full|ft|finetune"
_OF_SHARDING = r"(?:(?:deepspeed|ds)[_-]?)?(?:zero|ds|z|stage)[_-]?[1-3]|deepspeed|fsdp[12]?"


def _without(words: str, stem: str) -> str:
    """A name without some of its words."""
    return re.sub(rf"[_.-]?{_START}(?:{words}){_END}", "", stem, flags=re.IGNORECASE)


def _other_maker(folders: str) -> str | None:
    """What the folders of a file say of all that lies in them: ``examples/ascend``."""
    makers = (each for each in folders.split("/") if each)
    return next((m for m in makers if re.fullmatch(_OTHER_MAKERS, m, re.IGNORECASE)), None)


def machine_in_name(path: str, hardware: Hardware) -> str | None:
    """The word in a file's name that says of how many nodes and GPUs another machine is than the named one."""
    here = (hardware.nodes, hardware.gpus_per_node)
    said = re.finditer(_MACHINE, _stem(path))
    return next((word[0] for word in said if (int(word[1]), int(word[2])) != here), None)


def made_for_others(text: str, gpu: Gpu) -> str | None:
    """The card that a text names where it names none of the maker of ``gpu``, or none with memory of its own like that, or
    the CPUs that a script puts its model on where it speaks of no GPU's software: what fits it is reckoned for that."""
    if re.search(_ON_CPU, text) and not re.search(r"(?i)cuda|rocm|nvidia", text):
        return "CPUs"
    named = list(cards_in(text))
    if any(_kind(each) == _kind(gpu) for _, each in named):
        return None
    other = next((name for name, _ in named), None)
    if other is None and not gpu.unified_memory and re.search(_UNIFIED, text):
        return "a machine with unified memory"
    return other


def says_it_shards(text: str) -> bool:
    """Whether the comments of a script, its docstring included, tell of a launch that shards the model: ``accelerate
    launch`` with a config of DeepSpeed's, which whoever starts it has made."""
    told = "\n".join("".join(each) for each in re.findall(_TOLD, text))
    return bool(re.search(_LAUNCH, told) and re.search(_SHARDS, told))


# Strings of several lines and comments of Python.
_TOLD = r"(?s)\"{3}(.*?)\"{3}|'{3}(.*?)'{3}|#([^\n]*)"
_LAUNCH = r"\b(?:accelerate[ \t]+launch|torchrun|deepspeed)[ \t]+[\w.<\[-]"
_SHARDS = r"(?i)\bdeepspeed\b|\bzero[ _-]?(?:stage)?[ _-]?[123]\b|\bfsdp\b"


def _kind(gpu: Gpu) -> tuple[str, bool]:
    return gpu.vendor, gpu.unified_memory


# As comments say it of a DGX Spark, a Jetson, or a Mac.
_UNIFIED = r"(?i)\bunified memory\b|\bDGX[ -]Spark\b"


def _passes_stage(stage: int, plan: Plan, wishes: Wishes) -> bool:
    """Whether a name says another stage of ZeRO than is wished; a run of a lower one, or of none, may come up to it,
    and not pass it."""
    now = plan.parallel.zero.stage
    if now is None and plan.parallel.backend != "ddp":
        return False
    return (now or 0) <= stage and wishes[f.parallel.zero.stage] != stage


def _always(word: str, plan: Plan, wishes: Wishes) -> bool:
    return True


def _shards(wishes: Wishes) -> bool:
    return any(str(field).startswith(_SHARDING) for field in wishes)


def _zeroes(wishes: Wishes) -> bool:
    return bool(wishes.get(f.parallel.zero.stage))


def _offloads(wishes: Wishes) -> bool:
    wished = (wishes.get(field) for field in (f.offload.optimizer, f.offload.params))
    return bool(wishes.get(f.parallel.fsdp.cpu_offload)) or any(
        device not in (None, "none") for device in wished
    )


def _lengths(word: str) -> tuple[int, ...]:
    """Tokens: ``8k`` may be 8,000 or 8,192."""
    number = int(word.rstrip("kK"))
    return (number,) if word.isdigit() else (number * 1000, number * 1024)


def _says(pattern: str, field: Any, value: Callable[[str], Any]) -> NamedPurpose:
    """Words that say which ``value`` a field has."""
    return NamedPurpose(
        pattern,
        lambda wishes: field in wishes,
        lambda word, plan, wishes: bool(
            plan.get(field) == value(word) and wishes[field] != value(word)
        ),
    )


def _words(stem: str, pattern: str) -> Iterator[str]:
    for match in re.finditer(f"{_START}(?:{pattern}){_END}", stem, re.IGNORECASE):
        yield match[0]


_PURPOSES = (
    NamedPurpose(_UNSHARDED, _zeroes, lambda _, plan, __: not plan.parallel.zero.stage),
    _says(
        r"full(?:[_-]?(?:ft|finetun\w*|sft|params?|parameters?))?",
        f.trainable.method,
        lambda _: "full",
    ),
    NamedPurpose(
        rf"(?:single|one|1)[_-]?(?:x[_-]?)?(?:gpu|card|device|{_CARDS})", _shards, _always
    ),
    NamedPurpose(f"{_OTHER_MAKERS}|{_NO_TRAINING}", bool, _always),
    NamedPurpose("ddp", _shards, lambda _, plan, __: plan.parallel.backend in (None, "ddp")),
    # It is started by an Accelerate config that is not here.
    NamedPurpose("fsdp[12]?", _zeroes, lambda _, plan, __: plan.parallel.backend == "ddp"),
    _says("fp32|fp16|bf16", f.precision.compute, str.lower),
    NamedPurpose(
        rf"(?:paged[_-]?)?(?:{_OPTIMIZERS})(?:[_-]?\d+bit)?",
        lambda wishes: f.optimizer.kind in wishes,
        _always,
    ),
    NamedPurpose(_NO_OFFLOAD, _offloads, _always),
    NamedPurpose(
        r"\d+k|\d{4,6}",
        lambda wishes: f.seq.max_len in wishes,
        lambda word, plan, _: plan.seq.max_len in _lengths(word),
    ),
    _says(
        r"(?:u?bsz?|mbs|micro|batch(?:size)?)[_-]?\d+",
        f.batch.micro,
        lambda word: int(re.findall(r"\d+", word)[-1]),
    ),
)


def _stem(path: str) -> str:
    return os.path.splitext(path.rpartition("/")[2])[0]


# -- the name of a copy --------------------------------------------------------------------------


def name_for(stem: str, wishes: Wishes) -> str:
    """The name of a copy in which ``wishes`` hold: ``ds_z3_config`` of ``ds_z2_config``, with what else it
    is for behind."""
    stage = wishes.get(f.parallel.zero.stage)
    words = list(_purposes(wishes))
    if stage is not None:
        plain = re.sub(f"{_START}{_UNSHARDED}{_END}", f"zero{stage}", stem, flags=re.IGNORECASE)
        renamed = re.sub(_STAGE, rf"\g<1>\g<2>{stage}", plain)
        if renamed == stem and not re.search(_STAGE, stem):
            renamed = f"{stem}_zero{stage}"
        stem = renamed
    if any(word.startswith("offload") for word in words):
        # "ds_zero2_no_offload" is what its copy is not.
        stem = re.sub(rf"[_-]?{_START}{_NO_OFFLOAD}{_END}", "", stem, flags=re.IGNORECASE).lstrip(
            "_-"
        )
    words = [word for word in dict.fromkeys(words) if word not in stem.lower()]
    return "_".join(filter(None, (stem, *words[:_MOST_WORDS])))


def says_offloading_twice(stem: str, name: str) -> bool:
    """Whether the name of a copy speaks of offloading beside what the file that it is made of says of it already:
    ``offload_opt_param_offload_optimizer``."""
    spoken = r"(?i)(?:^|[^a-z0-9])(?:offload|on_gpu)"
    said, saying = len(re.findall(spoken, stem)), len(re.findall(spoken, name))
    return 0 < said < saying


def _purposes(wishes: Wishes) -> Iterator[str]:
    params, optimizer = wishes.get(f.offload.params), wishes.get(f.offload.optimizer)
    devices = {device for device in (params, optimizer) if device is not None}
    if devices == {"none"} or wishes.get(f.parallel.fsdp.cpu_offload) is False:
        yield "on_gpu"
    elif "nvme" in devices:
        yield "nvme"
    elif params == "cpu" or wishes.get(f.parallel.fsdp.cpu_offload):
        yield "offload"
    elif optimizer == "cpu":
        yield "offload_optimizer"
    if wishes.get(f.parallel.zero.gather16_on_save) is False:
        yield "sharded_save"
    for field, value in wishes.items():
        if field in _SIZES:
            yield _SIZES[field]
        elif field not in _NAMED_ABOVE:
            yield _purpose(str(field), value)


_SIZES: dict[Any, str] = {
    f.parallel.zero.reduce_bucket_elems: "small_buckets",
    f.parallel.zero.allgather_bucket_elems: "small_buckets",
    f.parallel.zero.max_live_params: "few_live_params",
    f.parallel.zero.max_reuse_distance: "few_live_params",
}
# More words make no name.
_MOST_WORDS = 2

_NAMED_ABOVE = frozenset(
    (
        f.parallel.zero.stage,
        f.offload.params,
        f.offload.optimizer,
        f.parallel.fsdp.cpu_offload,
        # What comes with stage 3 by itself.
        f.parallel.zero.gather16_on_save,
    )
)


# Last parts of fields that say nothing without the part before them.
_GENERIC = ("mode", "kind", "method", "enabled", "strategy", "share", "every")


def _purpose(field: str, value: Any) -> str:
    """A field and its value as words: ``micro_1``, ``no_pin_memory``, ``fused``, and ``fp16_auto`` where it is left to
    whoever reads the file."""
    group, _, name = field.rpartition(".")
    if name in _GENERIC:
        name = group.rpartition(".")[2]
    if value is True:
        return name
    if value is None:
        return f"{name}_auto"
    if value is False:
        return f"no_{name}"
    if isinstance(value, (int, str)) and re.fullmatch(r"[\w-]{1,16}", str(value)):
        return f"{name}_{value}"
    return name


# -- comments ------------------------------------------------------------------------------------

# Words with which somebody says why a value is what it is, or warns of another.
_WARNS = (
    r"(?i)\b(only|must|should|never|always|do not|don'?t|requires?|fails?|failed|crash\w*|bugs?|break\w*|broken"
    r"|unsupported|not supported?|doesn'?t|does not|can'?t|cannot|won'?t|hangs?|keep|important|careful|otherwise"
    r"|avoid|instead of)\b"
)
_COMMENT = {
    ".json": "//",
}
_MOST_SHOWN = 60


def variable_in(source: Source, edit: Edit) -> str | None:
    """What a script has in place of a number that an edit would write there: ``$GPUS_PER_NODE``, of which more
    of it is made."""
    written = "" if edit.creates else " ".join(source.text[edit.start : edit.end].split())
    if kind_of(source.path) not in SHELL_SUFFIXES or not written.startswith(("$", '"$')):
        return None
    return written if len(written) <= _MOST_SHOWN else f"{written[: _MOST_SHOWN - 1]}…"


def branch_at(source: Source, edit: Edit) -> str | None:
    """The condition under which a script sets the variable whose value an edit would change: what it is called for
    (``if [ "$CKPT" = true ]; then FLAG="--gradient_checkpointing"; fi``) it then no longer does."""
    if edit.creates or kind_of(source.path) not in SHELL_SUFFIXES:
        return None
    start = source.text.rfind("\n", 0, edit.start) + 1
    end = source.text.find("\n", edit.end)
    line = source.text[start : end if end >= 0 else len(source.text)]
    one_line = re.search(_ONE_BRANCH, line)
    if one_line is not None and start + one_line.start(2) <= edit.start:
        return one_line[1]
    if not re.match(_ASSIGNS, line):
        return None
    open_now: list[str] = []
    for word in re.finditer(_BRANCHES, source.text[:start]):
        if word["fi"]:
            open_now[-1:] = []
        else:
            open_now.append(" ".join(word["condition"].split()))
    return open_now[-1] if open_now else None


_ONE_BRANCH = r"\bif\s+(.+?)\s*;\s*then\s+(\w+\+?=.*?);?\s*(?:fi|else|elif)\b"
_ASSIGNS = r"\s*\w+\+?="
_BRANCHES = r"(?m)^[ \t]*(?:if\s+(?P<condition>[^\n;]+)(?!.*\bfi\b)|(?P<fi>fi)\b)"


def added_elsewhere(source: Source, edit: Edit) -> str | None:
    """An option that an edit adds to a command and that the script keeps in a variable for it already, as one of
    several that it picks from: ``FLAGS+=(--deepspeed "$DS_CONFIG")``."""
    if edit.creates or kind_of(source.path) not in SHELL_SUFFIXES:
        return None
    replaced = source.text[edit.start : edit.end]
    for option in re.findall(r"(?<![\w-])--[\w.-]+", edit.replacement):
        kept = rf"^[ \t]*\w+\+?=[(\"'][^\n#]*(?<![\w-]){re.escape(option)}(?![\w-])"
        if option not in replaced and re.search(kept, source.text, re.MULTILINE):
            return str(option)
    return None


def commented_out(source: Source, edit: Edit) -> str | None:
    """A call that an edit adds to Python code and that somebody has made a comment there: it was switched off, and
    mostly the lines beside it say why."""
    if edit.creates or kind_of(source.path) != ".py":
        return None
    replaced = source.text[edit.start : edit.end]
    for call in re.findall(r"\.([A-Za-z_]\w+)\(", edit.replacement):
        off = rf"^[ \t]*#[^\n]*\b{call}\("
        if f"{call}(" not in replaced and re.search(off, source.text, re.MULTILINE):
            return str(call)
    return None


def starts_what_is_given(source: Source, edit: Edit) -> bool:
    """Whether an edit writes into a command whose program is the script's own arguments: ``python "$@"``."""
    if edit.creates or kind_of(source.path) not in SHELL_SUFFIXES:
        return False
    start = source.text.rfind("\n", 0, edit.start) + 1
    before = source.text[start : edit.end]
    given = re.search(r"(?<!\w)[\"']?\$(?:[@*]|\{[@*]\})", before)
    return given is not None and not re.search(_PROGRAM, before[: given.start()])


_PROGRAM = r"\.py\b|(?<!\w)-m[ \t]+\w|\b(?:swift|tune|axolotl|trl|llamafactory-cli)[ \t]+\w|=|\\\n"


def tried_before(source: Source, edit: Edit) -> str | None:
    """The line that an edit would write and that stands there as a comment: somebody tried it, and left it out."""
    if edit.creates or edit.start == edit.end or kind_of(source.path) not in _DATA:
        return None
    start = source.text.rfind("\n", 0, edit.start) + 1
    key = re.match(r"[ \t]*([\w.-]+)[ \t]*[:=][ \t]*", source.text[start : edit.start])
    new = edit.replacement.strip()
    if key is None or key.end() != edit.start - start or not new or "\n" in new:
        return None
    line = rf"^[ \t]*#[ \t]*({re.escape(key[1])}[ \t]*[:=][ \t]*{re.escape(new)})[ \t]*$"
    found = re.search(line, source.text, re.MULTILINE)
    return None if found is None else found[1]


_DATA = (*YAML_SUFFIXES, *TOML_SUFFIXES)


def warning_at(source: Source, edit: Edit) -> str | None:
    """What a comment behind the text that an edit replaces says against it, or one above its line that says by
    name what is "only supported"."""
    if edit.creates or edit.start == edit.end:
        return None
    end = source.text.find("\n", edit.end)
    rest = source.text[edit.end : end if end >= 0 else len(source.text)]
    mark = _COMMENT.get(os.path.splitext(source.path)[1], "#")
    _, found, comment = rest.partition(f" {mark}")
    said = " ".join(comment.split())
    if found and re.search(_WARNS, said):
        return _shortened(said)
    old = source.text[edit.start : edit.end]
    if explained := _explained(source, edit):
        return explained
    for above in _comments_above(source, edit, mark):
        only = re.search(_SUPPORTS_ONLY, above)
        if only and len(only[1]) > 1 and only[1].lower() in old.lower():
            return _shortened(above)
    return _declined(source, edit, mark)


def _declined(source: Source, edit: Edit, mark: str) -> str | None:
    """The comment over a group of lines that says what they leave out (``# no quantization needed``), where an edit brings
    just that into one of them. A blank line ends a group."""
    start = source.text.rfind("\n", 0, edit.start) + 1
    end = source.text.find("\n", edit.start)
    group = re.split(r"\n[ \t]*\n", source.text[:start])[-1]
    line = source.text[start : end if end >= 0 else len(source.text)]
    for comment in re.findall(rf"(?m)^[ \t]*{re.escape(mark)}([^\n]*)$", group):
        for topic, keys in _TOPICS.items():
            if re.search(rf"(?i)\bno {topic}", comment) and re.search(keys, line):
                return _shortened(" ".join(comment.split()))
    return None


# What a comment says that there is none of, and the keys that would bring it.
_TOPICS = {
    r"quanti[sz]": r"(?i)quanti|load_in_[48]bit|\bbnb_",
    r"(?:cpu |host )?off-?load": r"(?i)offload",
    r"(?:gradient |activation )?(?:checkpointing|recompu)": r"(?i)checkpointing|recompu",
}


def _explained(source: Source, edit: Edit) -> str | None:
    """The comment of a script that names an argument with its value, which an edit takes away: somebody says what it
    is for (``# Use device_map="auto" to distribute across GPUs``), behind it in whatever words."""
    if edit.replacement.strip() or kind_of(source.path) != ".py":
        return None
    if behind := re.search(_BEHIND_IT, source.text[edit.start : edit.end]):
        return _shortened(" ".join(behind[0].split()))
    gone = re.fullmatch(_ARGUMENT, source.text[edit.start : edit.end])
    if gone is None:
        return None
    named = rf"(?m)#[^\n#]*(?<!\w){re.escape(gone[1])}[\"']?[ \t]*[=:][ \t]*[\"']?{re.escape(gone[2])}(?!\w)[^\n]*"
    found = re.search(named, source.text)
    return None if found is None else _shortened(" ".join(found[0].split()))


# The text that goes ends in a comment, of an argument without a "#" of its own.
_BEHIND_IT = r"(?<=\s)#[ \t]*\w[^\n]*\s*\Z"
_ARGUMENT = r"""[\s,"']*(\w+)["']?[ \t]*[=:][ \t]*["']?([\w.-]+)[\s,"']*"""


def _shortened(said: str) -> str:
    return said if len(said) <= _MOST_SHOWN else f"{said[: _MOST_SHOWN - 1]}…"


def _comments_above(source: Source, edit: Edit, mark: str) -> list[str]:
    """The lines of comment that stand right above the line of an edit, a few at most."""
    start = source.text.rfind("\n", 0, edit.start) + 1
    above = re.search(
        rf"(?:^[ \t]*{re.escape(mark)}[^\n]*\n){{0,{_MOST_ABOVE}}}\Z",
        source.text[:start],
        re.MULTILINE,
    )
    return [" ".join(line.split()) for line in above[0].splitlines()] if above else []


def stage_in_comment(source: Source, plan: Plan, wishes: Wishes) -> str | None:
    """What a config or a launch script says of the stage of ZeRO in a comment, once the run has another, whichever file
    has the number: ``# deepspeed (ZeRO-2, shards gradients too)``. A comment with the new one, too, stays true, and an
    option or a file's name is none."""
    now, wanted = plan.parallel.zero.stage, wishes.get(f.parallel.zero.stage)
    if not now or wanted is None or now == wanted or kind_of(source.path) not in _SAYS_STAGE:
        return None
    for comment in re.findall(r"(?m)(?:^|[ \t])#([^\n]*)$", source.text):
        stages = {int(stage) for stage in re.findall(_SPOKEN_STAGE, comment)}
        is_said = not re.match(_LEFT_OUT, comment) and not re.search(_POSSIBLE, comment)
        if now in stages and wanted not in stages and is_said:
            return _shortened(" ".join(comment.replace("#", " ").split()))
    return None


_SAYS_STAGE = (*SHELL_SUFFIXES, *_DATA)
_SPOKEN_STAGE = r"(?i)(?<![\w/.-])zero[ _-]*(?:stage[ _-]*)?([0-3])(?![\w/]|[.-]\w)"
# What could be is nothing that is so.
_POSSIBLE = r"(?i)\b(?:support|compatib|works? with|\w*require|need)"
# What somebody took out of the file, in place of words.
_LEFT_OUT = r"[ \t]*(?:-|[\w.-]+[ \t]*[:=])"


def untrue_beside(source: Source, edit: Edit) -> str | None:
    """What a comment behind a number, or above its line, says with that number, once an edit writes another:
    ``gradient_accumulation_steps: 8  # 2 x 8 x 4 GPUs = 64``. Choices that a comment lists stay true."""
    old = source.text[edit.start : edit.end].strip("\"' \n")
    gone = re.fullmatch(r"([\w.-]+):[ \t]*(\S+)", old) if not edit.replacement.strip() else None
    is_number = re.fullmatch(r"\d+(?:\.\d+)?", old) and old not in edit.replacement.split()
    if edit.creates or not (gone or is_number):
        return None
    # A key that goes is named with its value: "recommended to use fused=True".
    named = rf"{re.escape(gone[1])}\s*[:=]\s*{re.escape(gone[2])}" if gone else re.escape(old)
    mark = _COMMENT.get(os.path.splitext(source.path)[1], "#")
    end = source.text.find("\n", edit.end)
    behind = source.text[edit.end : end if end >= 0 else len(source.text)]
    comments = [*behind.partition(mark)[2:], *_comments_above(source, edit, mark)]
    for comment in comments:
        said = " ".join(comment.split())
        names = re.search(rf"(?<![\w.]){named}(?![\w.])", said)
        if names and not re.search(_CHOICES, said) and (old != "1" or re.search(_RECKONS, said)):
            return _shortened(said)
    return None


_MOST_ABOVE = 3
# "MoE model only supports zero2": what the line below names.
_SUPPORTS_ONLY = (
    r"(?i)\b(?:only supports?|supports? only|only works? with|works? only with)\s+([\w-]+)"
)
_CHOICES = r"(?i)[\[|]|\bchoices?\b|\bor\b|\be\.g\b|\bdefaults?\b"
_RECKONS = r"\d\s*[*x×/=]\s*\d"
