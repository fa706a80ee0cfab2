"""A training loop that a script writes out itself: who runs backward, which model it trains.

A file is one by what it does: it calls ``backward`` and lets an optimizer step, or hands a
LightningModule to ``Trainer.fit``. A script that only runs a model forward never is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, reduce
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Call, Entry, Mapping, Node, Scalar
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.flow import Flow
from oomlint.documents.python.lightning import (
    ProjectClass,
    given_to,
    holds,
    imports_lightning,
    is_trained,
    parts_in,
)
from oomlint.documents.python.named_lengths import named_lengths
from oomlint.documents.python.plain_values import plain_value
from oomlint.documents.python.process_variables import variable_set
from oomlint.documents.python.scopes import call_name, dotted
from oomlint.documents.python.side_facts import OTHER_MODEL
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values import Evaluator, NodeSpans
from oomlint.documents.python.wording import code_says
from oomlint.documents.text import Span

Kind = Literal["accelerate", "deepspeed", "fabric", "lightning", "torch"]

# Classes of optimizers, by torch, bitsandbytes, DeepSpeed, apex, transformers, torchao and packages
# of single ones; accelerate's DummyOptim stands for the one that a DeepSpeed config names.
OPTIMIZER: Final = re.compile(
    r"(?:Paged|Fused|DeepSpeedCPU|CPU|AnyPrecision|GaLore|Distributed)?"
    r"(?:Adam|AdamW|SGD|Lion|Lamb|LAMB|LARS|RMSprop|Adagrad|AdEMAMix|Adafactor|Muon|Lomo|AdaLomo"
    r"|CAME|SophiaG|Prodigy|Shampoo)(?:W?(?:4|8|32)bit|WFp8|_mini|WScheduleFree|ScheduleFree)?"
    r"|DummyOptim"
)
# What has a ``step`` and is no optimizer.
_EITHER: Final = "it is one of several dicts"
_NO_OPTIMIZER: Final = re.compile(r"sched|warmup|prof|env|bar|progress", re.IGNORECASE)
_LOADERS: Final = ("from_pretrained", "from_config")
_CASTS: Final = frozenset({"half", "bfloat16", "float", "to"})
# pytorch_lightning 1.9 trainer/trainer.py from_argparse_args, besides the class itself.
_TRAINERS: Final = frozenset({"Trainer", "from_argparse_args"})
_MODEL_NAME: Final = re.compile(r"model|engine|net|fsdp|ddp", re.IGNORECASE)
_CROSS_ENTROPY: Final = re.compile(
    r"cross_?entropy|(?:^|\.)(?:nll|lm|ce)_loss$|(?:^|\.)(?:loss_f(?:n|ct|unction)|criterion)$",
    re.IGNORECASE,
)
_SPLITS: Final = re.compile(
    r"seq(?:uence)?_?parallel|context_?parallel|ring_?(?:flash_?)?att|zig_?zag|ulysses",
    re.IGNORECASE,
)
_JOINS: Final = re.compile(
    r"torch\.distributed|LOCAL_RANK|WORLD_SIZE|init_process_group|device_mesh|tp_plan"
)
# A model is put in order for it or its gradients are switched off, or a function is called like it.
_EVALUATES: Final = re.compile(
    r"no_grad|inference_mode|set_grad_enabled|\beval\(|\beval\b|evaluat|validation|validate\(|\bval_|_eval\b|\beval_"
    r"|perplexity|\btest_",
    re.IGNORECASE,
)
# accelerate 1.15 accelerator.py Accelerator.__init__: what takes a plugin, or several.
_PLUGINS: Final = {
    "DeepSpeedPlugin": "deepspeed_plugin",
    "FullyShardedDataParallelPlugin": "fsdp_plugin",
}
_QUOTED_PLUGIN: Final = r"[\"'](deepspeed_plugin|fsdp_plugin)s?[\"']"
_STEPS_AGAIN: Final = re.compile(r"accum", re.IGNORECASE)


class InsertionPoint(Struct, frozen=True):
    """Where a line can be added that speaks of the model, just behind the one that loads it."""

    name: str
    offset: int
    indent: str


class Loop(Struct, frozen=True, eq=False):
    """What the text of a loop settles about what it trains.

    ``centre`` is the call that runs backward, or that of ``fit``. ``models`` load what an optimizer
    is given; several may be alternatives. ``others`` load models that are not trained.
    ``batches`` makes the batches that the loop goes over. ``accumulation`` is after how many
    of them it steps, where it counts them itself. ``own_loss``: no loss of the model's and no cross
    entropy is what backward runs from, as far as one sees. ``outputs_kept``: the model's outputs have a name,
    so that they stay alive through backward. ``frozen`` is where parameters of the trained model are kept from training.
    ``switches`` are the defaults of the script's options.
    """

    kind: Kind
    centre: Call
    models: tuple[Call, ...] = ()
    others: tuple[Call, ...] = ()
    configs: tuple[tuple[Call, Node], ...] = ()
    """Of loaders by ``from_config``: the name of the model whose configuration it is."""
    optimizers: tuple[Call, ...] = ()
    batches: Call | None = None
    casts: tuple[Call, ...] = ()
    autocasts: tuple[Call, ...] = ()
    frozen: Span | None = None
    checkpoints: Entry | None = None
    """Where ``gradient_checkpointing`` of the model is set as an attribute."""
    joins: bool = False
    """Whether it speaks of processes that are joined."""
    evaluates: bool = True
    """Whether anything in it may run the model forward alone."""
    ranks: Scalar | None = None
    """How many processes it says itself that there are, where no launcher does."""
    splits_samples: Span | None = None
    """A call that divides each sample among the ranks."""
    accumulation: Node | None = None
    own_loss: bool = False
    outputs_kept: bool | None = None
    switches: Mapping | None = None
    engine_config: Node | None = None
    """The file that DeepSpeed's config is read from, or the config itself."""
    behind_load: InsertionPoint | None = None
    """Where the one call that loads the model is all that a statement gives a name."""
    lengths: tuple[Entry, ...] = ()
    """Values of options and variables that are named for the length of samples."""
    parts: tuple[ProjectClass, ...] = ()
    """Classes of other files that Lightning is given: they load what is trained, or make its batches."""
    name: str = ""
    """Of a class for Lightning by itself, which another file trains: its name."""
    is_started: bool = False
    """Whether it is what the file does when it runs, and no function's."""
    idle_plugins: frozenset[Span] = frozenset()
    """Calls that make a plugin which no Accelerator is given."""


def read_loop(
    tree: Tree,
    steps: Sequence[ReachedCall],
    evaluator: Evaluator,
    places: NodeSpans,
    calls: Sequence[Call],
    origin: dict[int, ReachedCall],
) -> Loop | None:
    """The loop of a script; ``None`` where it has none, or trains several models at once."""
    if not tree.calls.keys() & {"backward", "fit"}:
        return None
    reader = _Reader(tree, steps, evaluator, places, calls, origin)
    centre = reader.centre()
    return None if centre is None else reader.loop(*centre)


def read_parts(
    tree: Tree,
    steps: Sequence[ReachedCall],
    evaluator: Evaluator,
    places: NodeSpans,
    calls: Sequence[Call],
    origin: dict[int, ReachedCall],
) -> tuple[Loop, ...]:
    """What each class of a file says that Lightning trains, or takes batches from, in another file."""
    if "fit" in tree.calls or not imports_lightning(tree):
        return ()
    families = tuple(parts_in(tree))
    if not families:
        return ()
    reader = _Reader(tree, steps, evaluator, places, calls, origin)
    found = (reader.part(family) for family in families)
    return tuple(part for part in found if part is not None)


class _Reader:
    def __init__(
        self,
        tree: Tree,
        steps: Sequence[ReachedCall],
        evaluator: Evaluator,
        places: NodeSpans,
        calls: Sequence[Call],
        origin: dict[int, ReachedCall],
    ) -> None:
        self.tree, self.steps, self.evaluator, self.places = tree, steps, evaluator, places
        self.calls = calls
        self.node_of = {id(call): origin[id(call)].node for call in calls}
        self.flow = Flow(tree)
        self.loaders = self._named(_loads_model)
        self.optimizers = tuple(
            call for call in calls if OPTIMIZER.fullmatch(call.callee.rpartition(".")[2])
        )

    def _named(self, wanted: object) -> dict[int, Call]:
        assert callable(wanted)
        return {id(self.node_of[id(call)]): call for call in self.calls if wanted(call)}

    # -- who trains --------------------------------------------------------------------------------

    def centre(self) -> tuple[Kind, ReachedCall] | None:
        """Who runs backward, and where, if an optimizer steps too."""
        backward = [(self._kind(step), step) for step in self.steps if step.last == "backward"]
        found = [(kind, step) for kind, step in backward if kind is not None]
        if found and (self._steps() or found[0][0] == "deepspeed"):
            kind, step = found[0]
            return kind, step
        return self._fits()

    def _steps(self) -> bool:
        for call in self.tree.calls_to("step"):
            holder = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else None
            if holder is not None and not _NO_OPTIMIZER.search(holder.rpartition(".")[2]):
                return True
        return False

    def _kind(self, step: ReachedCall) -> Kind | None:
        """Of a call of ``backward``: who runs it; that of an autograd function is nobody's."""
        function = step.node.func
        if not isinstance(function, ast.Attribute):
            return None
        if not step.node.args and not step.node.keywords:
            return "torch"
        makers = {call_name(call) for call in self.flow.made(function.value, step.scope)}
        if "Accelerator" in makers:
            return "accelerate"
        if "Fabric" in makers:
            return "fabric"
        if "initialize" in makers:
            return "deepspeed"
        holder = (dotted(function.value) or "").rpartition(".")[2].lower()
        if "accelerator" in holder and "accelerate.Accelerator" in self.tree.scopes.imports:
            return "accelerate"
        if holder == "fabric" and imports_lightning(self.tree):
            return "fabric"
        return "torch" if _keeps_graph(step.node) else None

    def _fits(self) -> tuple[Kind, ReachedCall] | None:
        """``Trainer(...).fit(module)`` of Lightning, where the module is defined in the project."""
        if not imports_lightning(self.tree):
            return None
        is_here = any(map(is_trained, parts_in(self.tree)))
        for step in self.steps:
            if step.last == "fit" and isinstance(step.node.func, ast.Attribute):
                makers = {call_name(c) for c in self.flow.made(step.node.func.value, step.scope)}
                if makers & _TRAINERS and (is_here or self._parts(step)):
                    return "lightning", step
        return None

    def _parts(self, step: ReachedCall) -> tuple[ProjectClass, ...]:
        found = given_to(
            step.node, step.scope, self.flow, self.evaluator.modules, self.places.source
        )
        return tuple(dict.fromkeys(found))

    # -- what is trained ---------------------------------------------------------------------------

    def loop(self, kind: Kind, step: ReachedCall) -> Loop | None:
        self.loaders = {
            node: call for node, call in self.loaders.items() if not self._comes_after(call, step)
        }
        models = self._trained()
        parts = self._parts(step) if kind == "lightning" else ()
        if not models and not parts:
            return None
        trained = {id(self.node_of[id(model)]) for model in models}
        others = tuple(call for node, call in self.loaders.items() if node not in trained)
        return Loop(
            kind,
            self._call(step, len(self.calls)),
            models,
            others,
            tuple(self._configs(models)),
            self.optimizers,
            self._batches(step),
            tuple(self._casts(trained)),
            tuple(self._autocasts()),
            self._frozen(trained),
            self._checkpoints(),
            code_says(self.tree.root, self.places.source.text, _JOINS),
            bool(parts) or code_says(self.tree.root, self.places.source.text, _EVALUATES),
            self._ranks(),
            self._splits_samples(),
            self._accumulation(),
            self._has_own_loss(kind, step),
            self._keeps_outputs(trained),
            self._switches(),
            self._engine_config(),
            self._behind_load(models),
            tuple(named_lengths(self.evaluator)),
            parts,
            is_started=step.function is None,
            idle_plugins=frozenset(call.span for call in self.calls if self._is_idle(call)),
        )

    def part(self, family: Sequence[ast.ClassDef]) -> Loop | None:
        """What a class loads, optimizes and takes batches from; what stands outside of all classes it may use."""
        self.loaders = self._used_by(family, self._named(_loads_model))
        models = tuple(self.loaders.values())
        makers = self._named(lambda call: call.callee.rpartition(".")[2] == "DataLoader")
        batches = self._for_training(self._used_by(family, makers))
        if not models and batches is None:
            return None
        made = {id(self.node_of[id(call)]): call for call in self.optimizers}
        trained = {id(self.node_of[id(model)]) for model in models}
        return Loop(
            "lightning",
            models[0] if models or batches is None else batches,
            models,
            configs=tuple(self._configs(models)),
            optimizers=tuple(self._used_by(family, made).values()),
            batches=batches,
            casts=tuple(self._casts(trained)),
            frozen=self._frozen(trained) if models else None,
            checkpoints=self._checkpoints(),
            switches=self._switches(),
            behind_load=self._behind_load(models),
            lengths=tuple(named_lengths(self.evaluator)),
            name=family[0].name,
        )

    def _used_by(self, family: Sequence[ast.ClassDef], calls: dict[int, Call]) -> dict[int, Call]:
        """Of some calls those in a class, else in one that it is derived from, else outside of all."""
        for classes in ((family[0],), family):
            found = {n: c for n, c in calls.items() if holds(classes, self.node_of[id(c)])}
            if found:
                return found
        return {n: c for n, c in calls.items() if not holds(self.tree.classes, self.node_of[id(c)])}

    def _trained(self) -> tuple[Call, ...]:
        """The loaders of what the optimizers, or who prepares the model for them, are given."""
        nodes: set[int] = set()
        for optimizer in self.optimizers:
            for call, scope in self.flow.asked(
                self.node_of[id(optimizer)], ("parameters", "named_parameters")
            ):
                assert isinstance(call.func, ast.Attribute)
                nodes |= self.flow.leads_to(call.func.value, scope, self.loaders)
        if not nodes:
            for step in self.steps:
                if step.last in ("prepare", "prepare_model", "setup", "setup_module", "initialize"):
                    given = (*step.node.args, *(k.value for k in step.node.keywords))
                    for value in given:
                        nodes |= self.flow.leads_to(value, step.scope, self.loaders)
        if not nodes and len(self.loaders) == 1:
            ((node, loader),) = self.loaders.items()
            # What is trained is made elsewhere where the one model here goes by the name of another.
            nodes = set() if OTHER_MODEL.search(self._named_by(node, loader)) else {node}
        return tuple(call for node, call in self.loaders.items() if node in nodes)

    def _configs(self, models: Iterable[Call]) -> Iterator[tuple[Call, Node]]:
        named = {
            id(step.node): step
            for step in self.steps
            if step.last == "from_pretrained" and "Config" in step.name
        }
        for model in models:
            node = self.node_of[id(model)]
            scope = self.flow.scope_of[id(node)]
            given = (*node.args, *(k.value for k in node.keywords if k.arg == "config"))
            if not model.callee.endswith("from_config") or not given:
                continue
            for found in self.flow.leads_to(given[0], scope, named):
                step = named[found]
                names = [*step.node.args, *(k.value for k in step.node.keywords if k.arg)]
                if names:
                    yield model, self.evaluator.node(names[0], step.scope)
                    break

    def _call(self, step: ReachedCall, order: int) -> Call:
        arguments = replace(
            self.evaluator.arguments(step.node, step.scope), guards=step.guards, arms=step.arms
        )
        return Call(
            dotted(step.node.func) or step.last, arguments, self.places.span(step.node), order
        )

    # -- how ---------------------------------------------------------------------------------------

    def _batches(self, step: ReachedCall) -> Call | None:
        """The DataLoader that the loop around ``backward`` goes over, or the one for training."""
        makers = self._named(lambda call: call.callee.rpartition(".")[2] == "DataLoader")
        if not makers:
            return None
        around = [
            node
            for node in ast.walk(self.tree.root)
            if isinstance(node, (ast.For, ast.AsyncFor))
            and node.lineno <= step.node.lineno <= (node.end_lineno or 0)
        ]
        for loop in sorted(around, key=lambda node: -node.lineno):
            found = self.flow.leads_to(loop.iter, step.scope, makers)
            if len(found) == 1:
                return makers[found.pop()]
        return self._for_training(makers)

    def _for_training(self, makers: dict[int, Call]) -> Call | None:
        """Of the calls that make batches the only one, or the one that training is named with."""
        if len(makers) == 1:
            return next(iter(makers.values()))
        trains = [c for n, c in makers.items() if "train" in self._named_by(n, c)]
        return trains[0] if len(trains) == 1 else None

    def _named_by(self, node: int, call: Call) -> str:
        """The names that a call's value is given, or the method of a class that gives it back."""
        function = self.flow.scope_of[id(self.node_of[id(call)])].node
        method = function.name if isinstance(function, ast.FunctionDef) else ""
        is_method = any(function in each.body for each in self.tree.classes)
        return f"{self.flow.names_of(node)} {method if is_method else ''}".lower()

    def _casts(self, trained: set[int]) -> Iterator[Call]:
        """``model.half()``, ``model.to(torch.bfloat16)``: what changes the dtype of the whole model."""
        wanted = {node: call for node, call in self.loaders.items() if node in trained}
        for step in self.steps:
            if step.last not in _CASTS or not isinstance(step.node.func, ast.Attribute):
                continue
            names = {keyword.arg for keyword in step.node.keywords}
            is_bare = not step.node.args and not names
            if is_bare is (step.last == "to"):
                continue
            if step.last == "to" and "dtype" not in names and not self._names_dtype(step):
                continue
            receiver = step.node.func.value
            if not _MODEL_NAME.search(_root(receiver)):
                continue
            if self.flow.leads_to(receiver, step.scope, wanted):
                yield self._call(step, len(self.calls))

    def _names_dtype(self, step: ReachedCall) -> bool:
        for value in step.node.args:
            said = self.evaluator.node(value, step.scope)
            if isinstance(said, Scalar) and "torch." in str(said.value):
                return True
        return len(step.node.args) == 1 and "dtype" in ast.unparse(step.node.args[0])

    def _autocasts(self) -> Iterator[Call]:
        for step in self.steps:
            if (
                step.last == "autocast"
                and "accelerator" not in step.name
                and "fabric" not in step.name
            ):
                yield self._call(step, len(self.calls))

    def _frozen(self, trained: set[int]) -> Span | None:
        wanted = {node: call for node, call in self.loaders.items() if node in trained}
        for step in self.steps:
            if step.last == "requires_grad_" and isinstance(step.node.func, ast.Attribute):
                value = step.node.args[0] if step.node.args else None
                off = isinstance(value, ast.Constant) and value.value is False
                if off and self.flow.may_lead_to(step.node.func.value, step.scope, wanted):
                    return self.places.span(step.node)
        for node in self.tree.assignments:
            target = node.targets[0]
            if not isinstance(target, ast.Attribute) or target.attr != "requires_grad":
                continue
            if isinstance(node.value, ast.Constant) and node.value.value is True:
                continue
            scope = self.flow.scope_at(node)
            if self.flow.may_lead_to(target.value, scope, wanted):
                return self.places.span(node)
        return None

    def _checkpoints(self) -> Entry | None:
        for node in self.tree.assignments:
            target = node.targets[0]
            if not isinstance(target, ast.Attribute) or target.attr != "gradient_checkpointing":
                continue
            if _MODEL_NAME.search(_root(target.value)):
                value = self.evaluator.node(node.value, self.flow.scope_at(node))
                return Entry("on", self.places.span(node), value, self.places.span(node))
        return None

    def _splits_samples(self) -> Span | None:
        for step in self.steps:
            if _SPLITS.search(step.last):
                return self.places.span(step.node)
        return None

    def _accumulation(self) -> Node | None:
        """What a count of batches is divided by before the optimizer steps."""
        for node in ast.walk(self.tree.root):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                name = dotted(node.right)
                if name is not None and _STEPS_AGAIN.search(name):
                    return self.evaluator.node(node.right, self.flow.scope_at(node))
        return None

    def _comes_after(self, call: Call, step: ReachedCall) -> bool:
        """Whether a call loads a model when the loop is done, to try it."""
        node = self.node_of[id(call)]
        is_beside = self.flow.scope_of[id(node)] is step.scope
        return is_beside and node.lineno > (step.node.end_lineno or 0)

    def _ranks(self) -> Scalar | None:
        """``os.environ.setdefault("WORLD_SIZE", "1")``: the number of processes, where it is one number."""
        found = list(variable_set("WORLD_SIZE", self.tree, self.steps))
        nodes = [self.evaluator.node(value, scope) for value, scope in found]
        numbers = {str(node.value) for node in nodes if isinstance(node, Scalar)}
        if len(numbers) != 1 or not (number := numbers.pop()).isdigit():
            return None
        return Scalar(self.places.span(found[0][0]), int(number), locked="a launcher may set it")

    def _has_own_loss(self, kind: Kind, step: ReachedCall) -> bool:
        if kind == "lightning" or not isinstance(step.node.func, ast.Attribute):
            return False
        value = step.node.args[0] if step.node.args else step.node.func.value
        for keyword in step.node.keywords:
            value = keyword.value if keyword.arg == "loss" else value
        return not any(map(_is_usual_loss, self.flow.path(value, step.scope)))

    def _keeps_outputs(self, trained: set[int]) -> bool | None:
        """Whether ``outputs = model(...)`` is what the loop computes its loss from."""
        wanted = {node: call for node, call in self.loaders.items() if node in trained}
        for step in self.steps:
            function = step.node.func
            if not isinstance(function, ast.Name) or not _MODEL_NAME.search(function.id):
                continue
            if self.flow.leads_to(function, step.scope, wanted):
                return any(node.value is step.node for node in self.tree.assignments)
        return None

    def _behind_load(self, models: tuple[Call, ...]) -> InsertionPoint | None:
        if len(models) != 1:
            return None
        loader = self.node_of[id(models[0])]
        for node in self.tree.assignments:
            name = dotted(node.targets[0]) if len(node.targets) == 1 else None
            if name is not None and _chain_of(node.value) is loader:
                span = self.places.span(node)
                lines = self.places.source.whole_lines(span)
                if lines is None:
                    return None
                start = self.places.source.text.rfind("\n", 0, span.start) + 1
                return InsertionPoint(name, span.end, self.places.source.text[start : span.start])
        return None

    def _engine_config(self) -> Node | None:
        """What DeepSpeed is given, as far as the file says it: of one dict or another, what they agree on."""
        idle = {id(self.node_of[id(call)]) for call in self.calls if self._is_idle(call)}
        for step in self.steps:
            if step.last not in ("DeepSpeedPlugin", "initialize") or id(step.node) in idle:
                continue
            for keyword in step.node.keywords:
                if keyword.arg not in ("hf_ds_config", "config", "config_params"):
                    continue
                dicts = [
                    node
                    for value, scope in self.flow.stands_for(keyword.value, step.scope)
                    if isinstance(node := self.evaluator.node(value, scope), Mapping)
                ]
                if len(dicts) > 1:
                    return reduce(_agreed, dicts)
                changed = False
                for value in self.flow.path(keyword.value, step.scope):
                    changed |= dotted(value) in self.tree.scopes.changed
                    if isinstance(value, (ast.Constant, ast.Name, ast.Attribute, ast.Dict)):
                        node = self.evaluator.node(value, self.flow.scope_at(value))
                        if isinstance(node, Mapping):
                            # What is put in later may be anything.
                            return replace(node, open_ended=node.open_ended or changed)
                        if _names_file(node):
                            return node
        return None

    def _is_idle(self, call: Call) -> bool:
        """Whether a call makes a plugin of Accelerate's that is handed to no Accelerator, though the file has one."""
        option = _PLUGINS.get(call.callee.rpartition(".")[2])
        makers = [step for step in self.steps if step.last == "Accelerator"] if option else []
        if option is None or not makers or option in self._unpacked:
            return False
        wanted = (id(self.node_of[id(call)]),)
        return not any(
            self.flow.may_lead_to(keyword.value, step.scope, wanted)
            for step in makers
            for keyword in step.node.keywords
            if keyword.arg in (option, f"{option}s")
        )

    @cached_property
    def _unpacked(self) -> frozenset[str]:
        """The arguments of plugins that the text quotes, as it does where it unpacks a dictionary."""
        return frozenset(re.findall(_QUOTED_PLUGIN, self.places.source.text))

    def _switches(self) -> Mapping | None:
        entries: dict[str, Entry] = {}
        for name, value in self.evaluator.options.items():
            node = self.evaluator.node(value, self.tree.scopes.module)
            if isinstance(node, Scalar) and node.value is not UNKNOWN:
                entries[name] = Entry(name, node.span, node, node.span)
        if not entries:
            return None
        return Mapping(Span(0, 0), entries, locked="the script's options are no call to add to")


def _agreed(one: Mapping, other: Mapping) -> Mapping:
    """What two dicts both say; of a key that only one of them has, or that says something else in each, that it is
    not known."""
    entries: dict[str, Entry] = {}
    for key in (*one.entries, *(key for key in other.entries if key not in one.entries)):
        entry = one.entries.get(key) or other.entries[key]
        sides = [each.entries[key].value for each in (one, other) if key in each.entries]
        value = _unsettled(entry.value)
        if len(sides) > 1 and isinstance(sides[0], Mapping) and isinstance(sides[1], Mapping):
            value = _agreed(sides[0], sides[1])
        elif len(sides) > 1 and len({repr(plain_value(side)) for side in sides}) == 1:
            value = sides[0]
        entries[key] = replace(entry, value=value)
    return replace(
        one, entries=entries, open_ended=one.open_ended or other.open_ended, locked=_EITHER
    )


def _unsettled(node: Node) -> Node:
    """A value, or each that a dict has, as one that is not known."""
    if not isinstance(node, Mapping):
        return Scalar(node.span, UNKNOWN, locked=_EITHER)
    entries = {key: replace(e, value=_unsettled(e.value)) for key, e in node.entries.items()}
    return replace(node, entries=entries, locked=_EITHER)


def _names_file(node: Node) -> bool:
    said = node.value if isinstance(node, Scalar) else None
    return isinstance(said, str) and said.endswith((".json", ".yaml", ".yml"))


def _is_usual_loss(value: ast.expr) -> bool:
    """``outputs.loss``, ``outputs[0]``, ``outputs["loss"]``, or a cross entropy."""
    if isinstance(value, ast.Attribute):
        return value.attr == "loss" and dotted(value) != "self.loss"
    if isinstance(value, ast.Subscript):
        key = value.slice
        return isinstance(key, ast.Constant) and key.value in (0, "loss")
    return isinstance(value, ast.Call) and bool(_CROSS_ENTROPY.search(dotted(value.func) or ""))


def _loads_model(call: Call) -> bool:
    holder, _, method = call.callee.rpartition(".")
    return method in _LOADERS and "config" not in holder.lower()


def _chain_of(value: ast.expr) -> ast.expr:
    """What a chain of methods begins with that give the model back: ``.to(device)``."""
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("to", "cuda", "half", "bfloat16", "float", "train")
    ):
        value = value.func.value
    return value


def _root(value: ast.expr) -> str:
    """The name that a chain of attributes and calls begins with: ``self.model`` of ``self.model.half``."""
    while isinstance(value, ast.Call):
        value = value.func.value if isinstance(value.func, ast.Attribute) else value.func
    return dotted(value) or ""


def _keeps_graph(call: ast.Call) -> bool:
    """``loss.backward(retain_graph=True)``."""
    return not call.args and {k.arg for k in call.keywords} <= {"retain_graph", "gradient"}
