"""What is loaded before, or without, what would have kept it off a GPU or sharded it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from oomlint.documents.base import UNKNOWN, Call, Fact, Mapping, Scalar
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.facts.script import Script
from oomlint.documents.python.nodes import option_of
from oomlint.documents.python.scopes import FunctionNode, call_name
from oomlint.documents.python.walking import walk
from oomlint.documents.python.wording import code_says

_MULTI_GPU = re.compile(
    r"torch\.distributed|LOCAL_RANK|DistributedDataParallel|FullyShardedDataParallel|fully_shard"
    r"|\bdeepspeed\b|\bAccelerator\("
)
# What a file does that trains, by a loop of its own or by a Trainer; one that evaluates does none of it.
_LEARNS = re.compile(r"\.(?:backward|train|step|fit)\(|Trainer\(|[Oo]ptimizer")
# Whose tensors live on TPUs; a script that serves both imports it where there is one.
_ON_TPU = re.compile(r"^(?:import|from) torch_xla\b", re.MULTILINE)
_CONFIGS = re.compile(
    r"(?:TrainingArguments|(?:SFT|DPO|GRPO|KTO|ORPO|CPO|Reward|PPO|RLOO|GKD)Config)$"
)
_PICKS_CARD = frozenset({"Accelerator", "PartialState", "AcceleratorState", "set_device"})
_QUANTIZERS = ("quantization_config", "load_in_4bit", "load_in_8bit")
# Where one of the parser's classes is of training arguments.
_PARSES = frozenset({"parse_args_into_dataclasses", "parse_args_and_config"})
_PARSERS = ("HfArgumentParser", "TrlParser", "H4ArgumentParser")


def load_facts(script: Script) -> Iterator[Fact]:
    yield from _load_before_config(script)
    yield from _config_not_kept(script)
    loads = [step for step in script.steps if step.name == "torch.load"]
    text = script.source.text
    if not loads or _ON_TPU.search(text) or not code_says(script.tree.root, text, _MULTI_GPU):
        return
    if not _LEARNS.search(text) and any(step.last == "eval" for step in script.steps):
        return  # one process evaluates what others trained
    for step in loads:
        names = {keyword.arg for keyword in step.node.keywords}
        positional = len(step.node.args)
        starred = any(isinstance(a, ast.Starred) for a in step.node.args)
        if _names_files_by_rank(step.function or script.tree.root):
            continue  # each rank reads its own file, saved from the same device
        if step.function is not None and _saves_again(script, step.function):
            continue  # a file is converted, once
        if step.function is not None and _is_idle(script, step.function):
            continue
        if not _becomes_state(step.function or script.tree.root, step.node):
            continue  # arguments, cached features: no tensors on a GPU, as far as one sees
        if positional == 1 and "pretrain" in ast.unparse(step.node.args[0]).lower():
            continue  # weights to begin with, mostly converted on a CPU
        if positional == 1 and not starred and not names & {"map_location", None}:
            yield script.fact("torch-load-no-map-location", step.node)


def _saves_again(script: Script, function: FunctionNode) -> bool:
    return any(step.function is function and step.name == "torch.save" for step in script.steps)


def _is_idle(script: Script, function: FunctionNode) -> bool:
    """Whether nothing of a program names a function that nobody else can call: a class with a base may
    have it called from there, and a module by whoever imports it."""
    if "__main__" not in script.source.text:
        return False
    inherits = any(function in each.body and each.bases for each in script.tree.classes)
    named = re.findall(rf"\b{function.name}\b", script.source.text)
    return not inherits and not function.name.startswith("__") and len(named) == 1


def _load_before_config(script: Script) -> Iterator[Fact]:
    """A model is loaded before anything tells transformers that ZeRO-3 will shard it."""
    if "zero.Init" in script.source.text:
        return
    load = _first(script, _loads_model)
    if load is None:
        return
    made = _first(script, lambda call: call.callee.rpartition(".")[2] == "Accelerator")
    if made is not None and made.order < load.order:
        # It takes DeepSpeed's config from what accelerate launch says, and keeps it (accelerate 1.15
        # accelerator.py __init__, utils/dataclasses.py set_deepspeed_weakref).
        yield script.fact("accelerator-before-load", script.origin[id(made)].node)
    if _picks_card_before(script, script.origin[id(load)]):
        yield script.fact("device-before-load", script.origin[id(load)].node)
    config = _first(
        script, lambda call: _names_deepspeed(call) and not _is_of_another(script, call, load)
    )
    if config is None or _is_quantized(load):
        return
    if _option_of(config) and _is_parsed_before(script, load):
        return
    if _comes_before(script, load, config):
        line = script.source.position(config.span.start)[0]
        yield script.fact(
            "load-before-zero3-config", script.origin[id(load)].node,
            load=load.callee, config=config.callee, config_line=line, option=_option_of(config),
        )  # fmt: skip


def _picks_card_before(script: Script, load: ReachedCall) -> bool:
    """Whether something makes each process's own card the current one before a load: accelerate's state does when it
    is made (1.15 ``state.py`` ``PartialState.__init__``), and transformers' arguments make that (5.23
    ``training_args.py`` ``__post_init__``)."""
    for step in script.steps:
        if step is load:
            return False
        seen = step.function is load.function or (step.reached and load.reached)
        if seen and (step.last in _PICKS_CARD or _CONFIGS.search(step.last)):
            return True
        if seen and step.last in _PARSES and _parses_training_arguments(script):
            return True
    return False


def _is_parsed_before(script: Script, load: Call) -> bool:
    """Whether a parser makes transformers' arguments before a load, which tell it of DeepSpeed's config and keep that
    (5.23 ``training_args.py`` ``__post_init__``, ``integrations/deepspeed.py`` ``HfTrainerDeepSpeedConfig``): arguments
    that are made of them later come too late for nothing."""
    plain = {each.name for each in script.tree.classes if not each.bases}
    made = (call for call in script.tree.calls_to(*_PARSERS) if call.args)
    if not any(_CONFIGS.search(name) for call in made for name in _names(call.args[0]) - plain):
        return False
    then = script.origin[id(load)]
    before = script.steps[: next(n for n, step in enumerate(script.steps) if step is then)]
    here = (
        step for step in before if step.function is then.function or (step.reached and then.reached)
    )
    return any(step.last in _PARSES for step in here)


def _parses_training_arguments(script: Script) -> bool:
    """Whether a parser of the script may make transformers' arguments: all of its classes being the script's own, made
    of no other, it makes none."""
    made = [call for call in script.tree.calls_to(*_PARSERS) if call.args]
    plain = {each.name for each in script.tree.classes if not each.bases}
    return not made or not all(_names(call.args[0]) <= plain for call in made)


def _names(classes: ast.expr) -> set[str]:
    each = classes.elts if isinstance(classes, (ast.Tuple, ast.List)) else [classes]
    return {ast.unparse(one) for one in each}


def _comes_before(script: Script, first: Call, then: Call) -> bool:
    """Whether a call runs before another, as far as one function, or what the module runs, shows it."""
    one, other = script.origin[id(first)], script.origin[id(then)]
    seen = one.function is other.function or (one.reached and other.reached)
    return seen and first.order < then.order


def _is_of_another(script: Script, config: Call, load: Call) -> bool:
    """Whether a config is made for another model than the first that is loaded: in a function of its own,
    which loads that one right after (a copy that is averaged, a reference)."""
    function = script.origin[id(config)].function
    if function is None or function is script.origin[id(load)].function:
        return False
    return any(
        _loads_model(call)
        and script.origin[id(call)].function is function
        and call.order > config.order
        for call in script.calls
    )


def _config_not_kept(script: Script) -> Iterator[Fact]:
    """``HfDeepSpeedConfig(...)`` as a statement is collected at once and forgotten."""
    if "HfDeepSpeedConfig" not in script.tree.calls:
        return
    for node in script.tree.of_kind(ast.Expr):
        call = node.value
        if isinstance(call, ast.Call) and call_name(call) == "HfDeepSpeedConfig":
            yield script.fact("load-before-zero3-config", call, reason="not-kept")


def _first(script: Script, wanted: Any) -> Call | None:
    return next((call for call in script.calls if wanted(call)), None)


# Numbers and positions, a few bytes each.
_SMALL_STATE = re.compile(r"sched|scaler|sampler|loader|rng|generator|tracker", re.IGNORECASE)


def _becomes_state(function: ast.AST, load: ast.Call) -> bool:
    """Whether what is loaded goes to a ``load_state_dict`` of the same function."""
    names: set[str] = set()
    given: list[ast.expr] = []
    for node in walk(function):
        if isinstance(node, ast.Assign) and load in walk(node.value):
            names |= {name.id for name in node.targets if isinstance(name, ast.Name)}
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "load_state_dict"
            and not _SMALL_STATE.search(ast.unparse(node.func.value))
        ):
            given += node.args
    inside = [node for argument in given for node in walk(argument)]
    return load in inside or any(isinstance(node, ast.Name) and node.id in names for node in inside)


def _names_files_by_rank(body: ast.AST) -> bool:
    return any(isinstance(n, ast.JoinedStr) and "rank" in ast.unparse(n) for n in walk(body))


def _names_deepspeed(call: Call) -> bool:
    if call.callee.endswith("HfDeepSpeedConfig"):
        return True
    if not _CONFIGS.search(call.callee):
        return False
    entry = call.arguments.entries.get("deepspeed")
    if entry is None:
        return False
    if isinstance(entry.value, Mapping):
        return True
    value = entry.value.value if isinstance(entry.value, Scalar) else UNKNOWN
    return isinstance(value, str) or bool(_option_of(call))


def _option_of(call: Call) -> str:
    """The option of the command line that a config is named by, if one does."""
    entry = call.arguments.entries.get("deepspeed")
    return "" if entry is None else option_of(entry.value)


def _is_quantized(load: Call) -> bool:
    """Whether a load is given a quantizer: what it makes is built whole on each rank whatever is known of ZeRO-3
    (transformers 4.44 and 4.57 ``modeling_utils.py``: ``zero.Init`` where ``not is_quantized``; 4.38 refuses the
    ``low_cpu_mem_usage`` of quantized loads beside it)."""
    entries = load.arguments.entries
    given = [entries[name].value for name in _QUANTIZERS if name in entries]
    return any(
        isinstance(each, Scalar) and isinstance(each.value, (Call, bool)) and each.value
        for each in given
    )


def _loads_model(call: Call) -> bool:
    receiver, _, method = call.callee.rpartition(".")
    return method == "from_pretrained" and "Peft" not in receiver
