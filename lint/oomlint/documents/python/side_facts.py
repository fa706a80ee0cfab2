"""What a script does beside training that takes memory or spares it: merging, converting, debugging, holding data,
freezing a part of the model."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from oomlint.documents.base import Fact
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.environment import variable_asked
from oomlint.documents.python.scopes import call_name, dotted
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values import NodeSpans
from oomlint.documents.python.walking import walk
from oomlint.documents.text import Edit, Location, Source

# deepspeed edaa7221 utils/zero_to_fp32.py; the third holds the model in RAM whatever it is told.
_CONVERSIONS = frozenset(
    {"get_fp32_state_dict_from_zero_checkpoint", "load_state_dict_from_zero_checkpoint"}
)
# datasets 4.8: functions and methods with a ``keep_in_memory`` argument that default to mapped files.
_DATASET_CALLS = frozenset({"load_dataset", "load_from_disk", "map", "filter"})
_LOADS_MODEL = re.compile(r"(?:^|\.)(?!Peft)\w*(?:Model|LM)\w*\.from_pretrained$")
_QUANTIZES = frozenset({"load_in_4bit", "load_in_8bit", "quantization_config"})
_DEBUG_VARIABLES = {
    "CUDA_LAUNCH_BLOCKING": ("1",),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("1",),
    "TORCH_DISTRIBUTED_DEBUG": ("DETAIL",),
}

# What transformers 5.0 and the projects built upon it call the vision encoder of a model.
_TOWER = re.compile(
    r"\.(?:get_)?(?:vision_(?:model|tower|encoder|backbone)|visual|vit|image_encoder)(?:\(\))?$"
)
_PARAMETERS = frozenset({"parameters", "named_parameters"})
OTHER_MODEL = re.compile(r"ref|teacher|reward|critic|draft|judge|frozen", re.IGNORECASE)
"""What scripts call models that are never trained."""


def side_facts(
    source: Source, tree: Tree, places: NodeSpans, steps: Sequence[ReachedCall]
) -> Iterator[Fact]:
    """Facts of these kinds: ``merges-adapter`` (``how``, ``share``, ``quantized``), ``zero-to-fp32`` (``how``),
    ``dataset-in-memory`` (``how``), ``debug-mode`` (``what``, ``effect``), ``overrides-state-dict``,
    ``freezes-tower``, ``chooses-trained`` (``guards``, ``variables`` of the environment), ``own-deepspeed-option``.
    """
    look = _Look(source, tree, places)
    for step in _own_deepspeed_options(steps):
        yield look.fact("own-deepspeed-option", step.node)
    for step in steps:
        yield from _facts_of_call(look, step)
    for node in tree.assignments:
        if len(node.targets) != 1:
            continue
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            yield from look.sets_variable(node, target)
        elif isinstance(target, ast.Attribute) and target.attr == "state_dict":
            names = {call_name(n) for n in walk(node.value) if isinstance(n, ast.Call)}
            if "get_peft_model_state_dict" in names:
                yield look.fact("overrides-state-dict", node, look.deleted(node))


def _facts_of_call(look: _Look, step: ReachedCall) -> Iterator[Fact]:
    call, last = step.node, step.last
    if last in ("merge_and_unload", "save_pretrained_merged"):
        yield from look.merges(call, last)
    elif last in _CONVERSIONS and not _is_true(_keyword(call, "lazy_mode")):
        if last not in look.defined:  # as it is in DeepSpeed's own script
            yield look.fact("zero-to-fp32", call, how=last)
    elif last in _DATASET_CALLS and _is_true(_keyword(call, "keep_in_memory")):
        yield look.switched("dataset-in-memory", call, "keep_in_memory", how=last)
    elif last in _PARAMETERS or last == "requires_grad_":
        yield from look.freezes(step)
        yield from look.chooses(step)
    else:
        yield from look.debugs(call, step.name)


class _Look:
    """A script as its side facts are looked for."""

    def __init__(self, source: Source, tree: Tree, places: NodeSpans) -> None:
        self.source = source
        self.tree = tree
        self.defined = {function.name for function in tree.functions}
        loads = [call for call in tree.calls_to("from_pretrained") if _loads_model(call)]
        self.quantized = bool(loads) and all(
            {keyword.arg for keyword in call.keywords} & _QUANTIZES for call in loads
        )
        """Whether every model that the script loads is quantized, the one that is merged too."""
        self.places = places

    def fact(
        self, kind: str, node: ast.expr | ast.stmt, mend: tuple[Edit, ...] = (), **detail: Any
    ) -> Fact:
        return Fact(kind, Location(self.source.path, self.places.span(node)), detail, mend)

    def switched(self, kind: str, call: ast.Call, keyword: str, **detail: Any) -> Fact:
        """A fact whose cure is to say ``False`` where the keyword says ``True``."""
        value = _keyword(call, keyword)
        assert value is not None
        return self.fact(kind, call, (self._replaced(value, "False"),), **detail)

    def _replaced(self, node: ast.expr, text: str) -> Edit:
        span = self.places.span(node)
        return Edit(self.source.path, span.start, span.end, text)

    def deleted(self, statement: ast.stmt) -> tuple[Edit, ...]:
        """The edit that deletes a statement's lines, unless it is all that its block holds."""
        lines = self.source.whole_lines(self.places.span(statement))
        if lines is None or _is_alone(statement, self.tree):
            return ()
        return (Edit(self.source.path, lines.start, lines.end, ""),)

    def merges(self, call: ast.Call, how: str) -> Iterator[Fact]:
        """A fact of the kind ``merges-adapter``."""
        if how == "merge_and_unload":
            yield self.fact("merges-adapter", call, how=how, share=None, quantized=self.quantized)
            return
        method = _keyword(call, "save_method") or (call.args[2] if len(call.args) > 2 else None)
        # unsloth save.py: the default method saves the adapter alone.
        if isinstance(method, ast.Constant) and method.value in ("merged_16bit", "merged_4bit"):
            share = _keyword(call, "maximum_memory_usage")
            value = share.value if isinstance(share, ast.Constant) else None
            yield self.fact("merges-adapter", call, how=how, share=value, quantized=self.quantized)

    def debugs(self, call: ast.Call, name: str) -> Iterator[Fact]:
        """A fact of the kind ``debug-mode``, for what slows training down or holds its history."""
        first = call.args[0] if call.args else None
        if name.endswith("autograd.set_detect_anomaly"):
            mode = first or _keyword(call, "mode")
            if mode is not None and _is_true(mode):
                mend = (self._replaced(mode, "False"),)
                yield self.fact(
                    "debug-mode", call, mend, what="torch.autograd.set_detect_anomaly",
                    effect="keeps a Python traceback for every operation of the graph and looks "
                    "through every gradient for NaN",
                )  # fmt: skip
        elif name.endswith("cuda.memory._record_memory_history"):
            enabled = _keyword(call, "enabled") or first
            stops = isinstance(enabled, ast.Constant) and enabled.value in (None, False)
            bounded = _keyword(call, "max_entries") is not None
            if not stops and not bounded and not _stops_recording(self.tree):
                yield self.fact(
                    "debug-mode", call, what="torch.cuda.memory._record_memory_history",
                    effect="keeps a stack trace in host RAM for every allocation of the whole run: "
                    "max_entries is unlimited where it is not given",
                )  # fmt: skip
        elif name == "wandb.watch":
            log = _keyword(call, "log")
            if isinstance(log, ast.Constant) and log.value == "all":
                yield self.fact(
                    "debug-mode", call, what='wandb.watch(log="all")',
                    effect="builds a histogram of every weight and every gradient",
                )  # fmt: skip

    def freezes(self, step: ReachedCall) -> Iterator[Fact]:
        """``model.vision_tower.requires_grad_(False)``, or a loop over its parameters that switches off each."""
        call = step.node
        if step.guards or step.arms or not step.reached or not isinstance(call.func, ast.Attribute):
            return
        if not _TOWER.search(ast.unparse(call.func.value)):
            return
        if step.last == "requires_grad_":
            is_off = _is_false(_asked(call))
        else:
            is_off = call in self.switched_off
        if is_off:
            yield self.fact("freezes-tower", call)

    def chooses(self, step: ReachedCall) -> Iterator[Fact]:
        """``model.requires_grad_(False)``, or a loop over parameters that says of each whether it is trained, so that not
        all are; of towers that are frozen in any case :meth:`freezes` tells."""
        call = step.node
        if not step.reached or not isinstance(call.func, ast.Attribute):
            return
        is_one = step.last == "requires_grad_" and _may_switch_off(_asked(call))
        if not is_one and call not in self.chosen_from:
            return
        if self._is_another(step, call.func.value) or next(self.freezes(step), None) is not None:
            return
        yield self.fact(
            "chooses-trained", call, guards=step.guards, variables=self._variables_around(step)
        )

    def _variables_around(self, step: ReachedCall) -> tuple[str, ...]:
        """Of the environment: those that the branches around a statement ask for to be set."""
        inside = {line for line, is_body in step.arms if is_body}
        return tuple(
            asked[0]
            for branch in self.tree.of_kind(ast.If)
            if branch.lineno in inside and isinstance(branch.test, ast.Call)
            if (asked := variable_asked(branch.test, step.scope)) is not None
        )

    def _is_another(self, step: ReachedCall, owner: ast.expr) -> bool:
        """Whether the model is called like one that is not trained, in the function or by all that call it."""
        if OTHER_MODEL.search(ast.unparse(owner)):
            return True
        function, root = step.function, ast.unparse(owner).partition(".")[0]
        if function is None or root not in {each.arg for each in function.args.args}:
            return False
        given = [ast.unparse(call) for call in self.tree.calls_to(function.name)]
        return bool(given) and all(map(OTHER_MODEL.search, given))

    @cached_property
    def chosen_from(self) -> set[ast.expr]:
        """The calls that loops go over of which the body sets ``requires_grad``, not to ``True`` alone."""
        return {
            call
            for loop in self.tree.of_kind(ast.For)
            if any(sets_gradient(node) for part in loop.body for node in walk(part))
            for call in walk(loop.iter)
            if isinstance(call, ast.Call)
        }

    @cached_property
    def switched_off(self) -> set[ast.expr]:
        """What loops go over that do nothing but ``parameter.requires_grad = False``."""
        return {loop.iter for loop in self.tree.of_kind(ast.For) if _switches_off(loop.body)}

    def sets_variable(self, node: ast.Assign, target: ast.Subscript) -> Iterator[Fact]:
        """``os.environ["CUDA_LAUNCH_BLOCKING"] = "1"``."""
        if dotted(target.value) != "os.environ" or not isinstance(target.slice, ast.Constant):
            return
        values = _DEBUG_VARIABLES.get(str(target.slice.value), ())
        if isinstance(node.value, ast.Constant) and str(node.value.value).upper() in values:
            name = str(target.slice.value)
            yield self.fact("debug-mode", node, self.deleted(node), what=name, effect=None)


def _switches_off(body: list[ast.stmt]) -> bool:
    match body:
        case [ast.Assign(targets=[ast.Attribute(attr="requires_grad")], value=value)]:
            return _is_false(value)
        case [ast.Expr(value=ast.Call(func=ast.Attribute(attr="requires_grad_"), args=[value]))]:
            return _is_false(value)
    return False


def sets_gradient(node: ast.AST) -> bool:
    """``weight.requires_grad = ...``, ``requires_grad_(...)``, unless that can only switch gradients on."""
    match node:
        case ast.Assign(targets=[ast.Attribute(attr="requires_grad")], value=value):
            return _may_switch_off(value)
        case ast.Call(func=ast.Attribute(attr="requires_grad_")):
            return _may_switch_off(_asked(node))
    return False


def _asked(call: ast.Call) -> ast.expr | None:
    """What ``requires_grad_`` is told; nothing is ``True`` (torch 2.9 nn/modules/module.py)."""
    return call.args[0] if call.args else _keyword(call, "requires_grad")


def _may_switch_off(value: ast.expr | None) -> bool:
    return value is not None and not _is_true(value)


def _is_alone(statement: ast.stmt, tree: Tree) -> bool:
    blocks = (
        getattr(node, name, None) for node in tree.nodes for name in ("body", "orelse", "finalbody")
    )
    return any(isinstance(block, list) and block == [statement] for block in blocks)


def _loads_model(call: ast.Call) -> bool:
    return _LOADS_MODEL.search(dotted(call.func) or "") is not None


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _stops_recording(tree: Tree) -> bool:
    """Whether the history is switched off somewhere, so that only a part of the run is traced."""
    for call in tree.calls_to("_record_memory_history"):
        enabled = _keyword(call, "enabled") or (call.args[0] if call.args else None)
        if isinstance(enabled, ast.Constant) and enabled.value in (None, False):
            return True
    return False


def _own_deepspeed_options(steps: Sequence[ReachedCall]) -> Iterator[ReachedCall]:
    """``add_argument("--deepspeed")`` of a parser of the script's own, of which no call is handed the value by that name: an
    attribute that is set on training arguments comes too late (transformers 4.30 and 5.23 training_args.py
    __post_init__ makes the plugin)."""
    for step in steps:
        is_told = any(
            keyword.arg == "deepspeed" or (keyword.arg is None and step.last.endswith("Arguments"))
            for keyword in step.node.keywords
        )
        if is_told or step.last in ("initialize", "add_config_arguments"):
            return
    for step in steps:
        names = {each.value for each in step.node.args if isinstance(each, ast.Constant)}
        if step.last == "add_argument" and "--deepspeed" in names:
            yield step
