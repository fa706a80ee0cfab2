"""Habits in training scripts that waste or lose memory, where the text alone proves them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from oomlint.documents.base import UNKNOWN, Call, Fact, Mapping, Scalar
from oomlint.documents.python.calls import ReachedCall
from oomlint.documents.python.data_facts import data_facts
from oomlint.documents.python.endings import ending_facts
from oomlint.documents.python.evaluation_facts import evaluation_facts
from oomlint.documents.python.loss_facts import loss_facts
from oomlint.documents.python.nodes import option_of
from oomlint.documents.python.picture_facts import picture_facts
from oomlint.documents.python.process_variables import variable_set
from oomlint.documents.python.scopes import FunctionNode, Scope, call_name, dotted, enclosed
from oomlint.documents.python.side_facts import side_facts
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values import Evaluator, NodeSpans
from oomlint.documents.python.wording import code_says
from oomlint.documents.text import Edit, Location, Source

_TRAINS = re.compile(r"train|fit|backward")
_MULTI_GPU = re.compile(
    r"torch\.distributed|LOCAL_RANK|DistributedDataParallel|FullyShardedDataParallel|fully_shard"
    r"|\bdeepspeed\b|\bAccelerator\("
)
# What a file does that trains, by a loop of its own or by a Trainer; one that evaluates does none of it.
_LEARNS = re.compile(r"\.(?:backward|train|step|fit)\(|Trainer\(|[Oo]ptimizer")
# Whose tensors live on TPUs; a script that serves both imports it where there is one.
_ON_TPU = re.compile(r"^(?:import|from) torch_xla\b", re.MULTILINE)
_OOM_ERRORS = ("OutOfMemoryError",)
_ENGINES = re.compile(r"vllm|sglang", re.IGNORECASE)
_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_CONFIGS = re.compile(
    r"(?:TrainingArguments|(?:SFT|DPO|GRPO|KTO|ORPO|CPO|Reward|PPO|RLOO|GKD)Config)$"
)
_PICKS_CARD = frozenset({
    "Accelerator", "PartialState", "AcceleratorState", "set_device",
    "parse_args_into_dataclasses", "parse_args_and_config",
})  # fmt: skip
_COPIES_TO_HOST = frozenset({"cpu", "clone", "deepcopy", "offload_to_cpu"})


def facts_of(
    source: Source,
    tree: Tree,
    places: NodeSpans,
    evaluator: Evaluator,
    steps: Sequence[ReachedCall],
    calls: Sequence[Call],
    origin: dict[int, ReachedCall],
) -> tuple[Fact, ...]:
    """All facts of a script, in file order. Where the text leaves doubt there is no fact.

    Kinds and details: ``catches-sigkill`` (``tests``), ``retries-inside-except`` (``repeats``),
    ``async-save-thread`` (``through``), ``dcp-async-save``, ``load-before-zero3-config``
    (``load``, ``config``, ``config_line``, or ``reason: not-kept``), ``accelerator-before-load``, ``device-before-load``, ``torch-load-no-map-location``,
    ``state-dict-on-gpu`` (``reason``, and ``guards`` of a Trainer's), ``loss-accumulated-with-graph`` (``loss``, ``into``, ``how``, ``retained``),
    ``empty-cache-in-loop``, ``alloc-conf-after-import`` (``cuda_used``), ``shows-devices`` (``devices``), and those of
    :func:`~oomlint.documents.python.side_facts.side_facts`,
    :func:`~oomlint.documents.python.loss_facts.loss_facts`,
    :func:`~oomlint.documents.python.evaluation_facts.evaluation_facts`,
    :func:`~oomlint.documents.python.data_facts.data_facts`,
    :func:`~oomlint.documents.python.picture_facts.picture_facts` and
    :func:`~oomlint.documents.python.endings.ending_facts`.
    """
    look = _Look(source, tree, places, evaluator, steps, calls, origin)
    facts = [
        *look.handlers(),
        *look.saves(),
        *look.loads(),
        *look.state_dicts(),
        *look.loops(),
        *look.allocator(),
        *look.devices(),
        *loss_facts(source, tree.root, places),
        *side_facts(source, tree, places, steps),
        *evaluation_facts(source, tree, places, evaluator, steps),
        *data_facts(source, tree.root, places, evaluator, steps),
        *picture_facts(source, places, evaluator, steps),
        *ending_facts(source, tree, places, evaluator, steps),
    ]
    return tuple(sorted(facts, key=lambda fact: (fact.location.span, fact.kind)))


# torch 2.9 distributed/fsdp/fully_sharded_data_parallel.py. The optimizer's states go to the host by default
# (api.py OptimStateDictConfig).
_OF_OPTIMIZER = frozenset({"optim_state_dict", "full_optim_state_dict"})
_OTHER_STATES = frozenset({"load_state_dict", "optim_state_dict_to_load"}) | _OF_OPTIMIZER


# accelerate 1.15 accelerator.py get_state_dict(model).
_TAKES_STATES = frozenset({"state_dict", "get_state_dict"})
# What wrappers call the model that they wrap: of it all states are taken.
_WHOLE = frozenset({"model", "module", "base_model", "_fsdp_wrapped_module", "_orig_mod"})
# Methods of a module that give its tensors or parts as they are, shards of them under FSDP, or change what it does.
_LISTS = frozenset(
    {"named_parameters", "parameters", "named_buffers", "buffers", "named_modules", "modules", "eval", "train"}
)  # fmt: skip


def _may_be_model(given: ast.expr, model: str, made: set[str]) -> bool:
    """Whether what a call is given may be the model, or an object that has it: any from elsewhere than the block."""
    if isinstance(given, (ast.Starred, ast.Lambda)) or ast.dump(given) == model:
        return True
    if isinstance(given, ast.Name):
        return given.id not in made
    return isinstance(given, ast.Attribute) and given.attr in _WHOLE


def _is_of_part(call: ast.Call) -> bool:
    """Whether the states that a call takes are those of an attribute of a model: a projection, an adapter."""
    is_given = call_name(call) == "get_state_dict" and len(call.args) == 1
    of_method = call.func.value if isinstance(call.func, ast.Attribute) else None
    holder = call.args[0] if is_given else of_method
    return (
        isinstance(holder, ast.Attribute)
        and holder.attr not in _WHOLE
        and not (isinstance(holder.value, ast.Name) and holder.value.id == "self")
    )


class _Look(Struct, frozen=True, eq=False):
    source: Source
    tree: Tree
    places: NodeSpans
    evaluator: Evaluator
    steps: Sequence[ReachedCall]
    calls: Sequence[Call]
    origin: dict[int, ReachedCall]

    def _fact(
        self, kind: str, node: ast.expr | ast.stmt | ast.ExceptHandler, **detail: Any
    ) -> Fact:
        return Fact(kind, Location(self.source.path, self.places.span(node)), detail)

    # -- exception handlers -----------------------------------------------------------

    def handlers(self) -> Iterator[Fact]:
        for block, handler in ((t.body, h) for t in self.tree.tries for h in t.handlers):
            for test in _tests_for_sigkill(handler):
                if _asks_for_errno(test) or _trains(block):
                    yield self._fact("catches-sigkill", test, tests=ast.unparse(test))
                    break
            repeated = _repeated_training(handler, block)
            if repeated is not None:
                yield self._fact(
                    "retries-inside-except", repeated, repeats=dotted(repeated.func) or ""
                )

    # -- saving -----------------------------------------------------------------------

    def saves(self) -> Iterator[Fact]:
        for step in self.steps:
            name = step.name
            if (
                name.startswith("torch.distributed.checkpoint.") and name.endswith(".async_save")
            ) or name == "dcp.async_save":
                yield self._fact("dcp-async-save", step.node)
            target, rest = _background_work(step.node, name)
            if target is not None and self._saves_live_state(target, rest, step.scope):
                yield self._fact("async-save-thread", step.node, through=name)

    def _saves_live_state(self, target: ast.expr, rest: Sequence[ast.expr], scope: Scope) -> bool:
        """Whether the work is ``torch.save`` of a state dict that was not copied before."""
        given = [n for argument in rest for n in ast.walk(argument)]
        if _copies_to_host(given):
            return False
        if isinstance(target, ast.Lambda):
            body = list(ast.walk(target.body))
            return (
                self._torch_saves(body, scope) and _takes_state(body) and not _copies_to_host(body)
            )
        name = dotted(target)
        if name is None:
            return False
        if scope.resolved(name) == "torch.save":
            return _takes_state(given)
        function = self._function(name, scope)
        if function is None:
            return False
        body = [n for statement in function.body for n in ast.walk(statement)]
        takes = _takes_state(body) or _takes_state(given)
        return self._torch_saves(body, scope) and takes and not _copies_to_host(body)

    def _function(self, name: str, scope: Scope) -> FunctionNode | None:
        if name in self.tree.scopes.functions:
            return self.tree.scopes.functions[name]
        if "." in name and name.split(".")[0] != "self":
            return None
        last = name.rsplit(".", 1)[-1]
        found = [function for function in self.tree.functions if function.name == last]
        return found[0] if len(found) == 1 else None

    def _torch_saves(self, nodes: Sequence[ast.AST], scope: Scope) -> bool:
        return any(
            isinstance(n, ast.Call) and scope.resolved(dotted(n.func) or "") == "torch.save"
            for n in nodes
        )

    # -- loading ----------------------------------------------------------------------

    def loads(self) -> Iterator[Fact]:
        yield from self._load_before_config()
        yield from self._config_not_kept()
        loads = [step for step in self.steps if step.name == "torch.load"]
        text = self.source.text
        if not loads or _ON_TPU.search(text) or not code_says(self.tree.root, text, _MULTI_GPU):
            return
        if not _LEARNS.search(text) and any(step.last == "eval" for step in self.steps):
            return  # one process evaluates what others trained
        for step in loads:
            names = {keyword.arg for keyword in step.node.keywords}
            positional = len(step.node.args)
            starred = any(isinstance(a, ast.Starred) for a in step.node.args)
            if _names_files_by_rank(step.function or self.tree.root):
                continue  # each rank reads its own file, saved from the same device
            if step.function is not None and self._saves_again(step.function):
                continue  # a file is converted, once
            if step.function is not None and self._is_idle(step.function):
                continue
            if not _becomes_state(step.function or self.tree.root, step.node):
                continue  # arguments, cached features: no tensors on a GPU, as far as one sees
            if positional == 1 and "pretrain" in ast.unparse(step.node.args[0]).lower():
                continue  # weights to begin with, mostly converted on a CPU
            if positional == 1 and not starred and not names & {"map_location", None}:
                yield self._fact("torch-load-no-map-location", step.node)

    def _saves_again(self, function: FunctionNode) -> bool:
        return any(step.function is function and step.name == "torch.save" for step in self.steps)

    def _is_idle(self, function: FunctionNode) -> bool:
        """Whether nothing of a program names a function that nobody else can call: a class with a base may
        have it called from there, and a module by whoever imports it."""
        if "__main__" not in self.source.text:
            return False
        inherits = any(function in each.body and each.bases for each in self.tree.classes)
        named = re.findall(rf"\b{function.name}\b", self.source.text)
        return not inherits and not function.name.startswith("__") and len(named) == 1

    def _load_before_config(self) -> Iterator[Fact]:
        """A model is loaded before anything tells transformers that ZeRO-3 will shard it."""
        if "zero.Init" in self.source.text:
            return
        load = self._first(_loads_model)
        if load is None:
            return
        made = self._first(lambda call: call.callee.rpartition(".")[2] == "Accelerator")
        if made is not None and made.order < load.order:
            # It takes DeepSpeed's config from what accelerate launch says, and keeps it (accelerate 1.15
            # accelerator.py __init__, utils/dataclasses.py set_deepspeed_weakref).
            yield self._fact("accelerator-before-load", self.origin[id(made)].node)
        if self._picks_card_before(self.origin[id(load)]):
            yield self._fact("device-before-load", self.origin[id(load)].node)
        config = self._first(
            lambda call: _names_deepspeed(call) and not self._is_of_another(call, load)
        )
        if config is None:
            return
        if self._comes_before(load, config):
            line = self.source.position(config.span.start)[0]
            yield self._fact(
                "load-before-zero3-config", self.origin[id(load)].node,
                load=load.callee, config=config.callee, config_line=line, option=_option_of(config),
            )  # fmt: skip

    def _picks_card_before(self, load: ReachedCall) -> bool:
        """Whether something makes each process's own card the current one before a load: accelerate's state does when it
        is made (1.15 ``state.py`` ``PartialState.__init__``), and transformers' arguments make that (5.23
        ``training_args.py`` ``__post_init__``)."""
        for step in self.steps:
            if step is load:
                return False
            seen = step.function is load.function or (step.reached and load.reached)
            if seen and (step.last in _PICKS_CARD or _CONFIGS.search(step.last)):
                return True
        return False

    def _comes_before(self, first: Call, then: Call) -> bool:
        """Whether a call runs before another, as far as one function, or what the module runs, shows it."""
        one, other = self.origin[id(first)], self.origin[id(then)]
        seen = one.function is other.function or (one.reached and other.reached)
        return seen and first.order < then.order

    def _is_of_another(self, config: Call, load: Call) -> bool:
        """Whether a config is made for another model than the first that is loaded: in a function of its own,
        which loads that one right after (a copy that is averaged, a reference)."""
        function = self.origin[id(config)].function
        if function is None or function is self.origin[id(load)].function:
            return False
        return any(
            _loads_model(call)
            and self.origin[id(call)].function is function
            and call.order > config.order
            for call in self.calls
        )

    def _config_not_kept(self) -> Iterator[Fact]:
        """``HfDeepSpeedConfig(...)`` as a statement is collected at once and forgotten."""
        if "HfDeepSpeedConfig" not in self.tree.calls:
            return
        for node in ast.walk(self.tree.root):
            call = node.value if isinstance(node, ast.Expr) else None
            if isinstance(call, ast.Call) and call_name(call) == "HfDeepSpeedConfig":
                yield self._fact("load-before-zero3-config", call, reason="not-kept")

    def _first(self, wanted: Any) -> Call | None:
        return next((call for call in self.calls if wanted(call)), None)

    # -- state dicts of FSDP ----------------------------------------------------------

    def state_dicts(self) -> Iterator[Fact]:
        setters = [s for s in self.steps if s.last in ("state_dict_type", "set_state_dict_type")]
        if not setters:
            for step in self.steps:
                # Of a Trainer's model, which FSDP has wrapped if it wraps any.
                if (dotted(step.node.func) or "").endswith("trainer.model.state_dict"):
                    yield self._fact(
                        "state-dict-on-gpu", step.node, reason="of-trainer", guards=step.guards
                    )
            return
        # With one GPU there is nothing to gather.
        alone = {
            id(inner)
            for node in ast.walk(self.tree.root)
            if isinstance(node, ast.If) and "world_size" in ast.unparse(node.test)
            for inner in ast.walk(node)
        }
        others = set(map(id, self._contexts_of_others()))
        for step in setters:
            if id(step.node) in alone or id(step.node) in others:
                continue
            reason = self._why_on_gpu(step.node, step.scope)
            if reason:
                yield self._fact("state-dict-on-gpu", step.node, reason=reason)

    def _why_on_gpu(self, call: ast.Call, scope: Scope) -> str:
        """Why a call has FSDP gather its full state dict on every GPU; empty where it does not, or nobody knows."""
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        kind = call.args[1] if len(call.args) > 1 else keywords.get("state_dict_type")
        if kind is None or not (dotted(kind) or "").endswith("FULL_STATE_DICT"):
            return ""
        if None in keywords or any(isinstance(a, ast.Starred) for a in call.args):
            return ""
        config = call.args[2] if len(call.args) > 2 else keywords.get("state_dict_config")
        if config is None:
            return "no-config"
        return "not-offloaded" if self._keeps_on_gpu(config, scope) else ""

    def _contexts_of_others(self) -> Iterator[ast.expr]:
        """What opens a block in which the model's states are not taken, but given to it, or the optimizer's or those of
        a part of the model are."""
        for node in ast.walk(self.tree.root):
            if not isinstance(node, (ast.With, ast.AsyncWith)):
                continue
            inside = (each for part in node.body for each in ast.walk(part))
            calls = [each for each in inside if isinstance(each, ast.Call)]
            called = {call_name(each) for each in calls}
            taken = [each for each in calls if call_name(each) in _TAKES_STATES]
            of_parts = bool(taken) and all(map(_is_of_part, taken))
            if of_parts or (called & _OTHER_STATES and "state_dict" not in called):
                yield from (item.context_expr for item in node.items)
            elif not taken:
                yield from (
                    i.context_expr for i in node.items if self._leaves_alone(i, node, calls)
                )

    def _leaves_alone(
        self, item: ast.withitem, block: ast.With | ast.AsyncWith, calls: Sequence[ast.Call]
    ) -> bool:
        """Whether no call of a block can take the states of the model that it is opened with: none is given the model,
        or an object from elsewhere that may hold it, and the model itself is asked for no states."""
        opener = item.context_expr
        if not isinstance(opener, ast.Call) or not opener.args:
            return False
        inside = [each for part in block.body for each in ast.walk(part)]
        made = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        model = ast.dump(opener.args[0])
        return all(self._is_given_no_model(call, model, made) for call in calls)

    def _is_given_no_model(self, call: ast.Call, model: str, made: set[str]) -> bool:
        given = (*call.args, *(keyword.value for keyword in call.keywords))
        if any(_may_be_model(each, model, made) for each in given):
            return False
        if not isinstance(call.func, ast.Attribute):
            return True
        holder = call.func.value
        if ast.dump(holder) == model:
            # peft 0.10 and transformers 4.39 save_pretrained ask the model only where they are given no states.
            return call.func.attr in _LISTS or (
                call.func.attr == "save_pretrained"
                and any(
                    keyword.arg == "state_dict" and not isinstance(keyword.value, ast.Constant)
                    for keyword in call.keywords
                )
            )
        if isinstance(holder, ast.Attribute) and ast.dump(holder.value) == model:
            return holder.attr not in _WHOLE
        return (dotted(holder) or "").partition(".")[0] in self.tree.scopes.imports

    def _keeps_on_gpu(self, config: ast.expr, scope: Scope) -> bool:
        node = self.evaluator.node(config, scope)
        if not isinstance(node, Scalar) or not isinstance(node.value, Call):
            return False
        arguments = node.value.arguments
        if arguments.open_ended or "0" in arguments.entries:
            return False
        entry = arguments.entries.get("offload_to_cpu")
        return entry is None or (isinstance(entry.value, Scalar) and entry.value.value is False)

    # -- loops ------------------------------------------------------------------------

    def loops(self) -> Iterator[Fact]:
        # An inference engine on the same card needs what an emptied cache gives back.
        empties = "empty_cache" in self.tree.calls and not _ENGINES.search(self.source.text)
        if not empties and "backward" not in self.tree.calls:
            return
        lines = [call.lineno for call in self.tree.calls_to("backward", "empty_cache")]
        functions = (
            function
            for function in self.tree.functions
            if any(function.lineno <= n <= (function.end_lineno or n) for n in lines)
        )
        for body in (self.tree.root.body, *(function.body for function in functions)):
            nodes = [n for statement in body for n in _inside(statement)]
            yield from self._accumulated(nodes)
            if empties:
                yield from self._cache_emptied(nodes)

    def _accumulated(self, nodes: Sequence[ast.AST]) -> Iterator[Fact]:
        """``total += loss`` where ``loss`` is what ``backward`` ran on."""
        backward = _backward_names(nodes)
        if not backward:
            return
        loops = [n for n in nodes if isinstance(n, _LOOPS)]
        seen: set[int] = set()
        for node in (n for loop in loops for s in loop.body for n in _inside(s)):
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
                into, value, how = dotted(node.target), node.value, "+="
            elif _appends(node):
                assert isinstance(node, ast.Call)
                assert isinstance(node.func, ast.Attribute)
                into, value, how = dotted(node.func.value), node.args[0], "append"
            else:
                continue
            loss = _loss_in(value)
            if into is None or loss is None or loss not in backward or into in backward:
                continue
            if _detached(loss, nodes) or (how == "append" and _stacked(into, nodes)):
                continue
            if _starts_anew(into, node, loops):
                continue
            assert isinstance(node, (ast.AugAssign, ast.Call))
            retained = _retains_graph(nodes)
            yield self._fact(
                "loss-accumulated-with-graph",
                node,
                loss=loss,
                into=into,
                how=how,
                retained=retained,
            )

    def _cache_emptied(self, nodes: Sequence[ast.AST]) -> Iterator[Fact]:
        """``empty_cache()`` in every turn of a loop that trains; behind an ``if`` it may be rare."""
        for loop in (n for n in nodes if isinstance(n, _LOOPS)):
            if not _trains_here(loop):
                continue
            for statement in _unconditional(loop.body):
                if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
                    continue
                name = dotted(statement.value.func) or ""
                if name.endswith("cuda.empty_cache"):
                    place = Location(self.source.path, self.places.span(statement.value))
                    yield Fact("empty-cache-in-loop", place, {}, self._deletion(statement, loop))

    def _deletion(
        self, statement: ast.stmt, loop: ast.For | ast.While | ast.AsyncFor
    ) -> tuple[Edit, ...]:
        """The edit that deletes a statement's lines, where the loop does something else as well."""
        lines = self.source.whole_lines(self.places.span(statement))
        if lines is None or statement not in loop.body or len(loop.body) < 2:
            return ()
        return (Edit(self.source.path, lines.start, lines.end, ""),)

    # -- allocator --------------------------------------------------------------------

    def allocator(self) -> Iterator[Fact]:
        """The allocator's settings set when torch has been imported already."""
        if "ALLOC_CONF" not in self.source.text:
            return
        imported_at: int | None = None
        cuda_at = self._cuda_at()
        for statement in self.tree.root.body:
            if _imports_torch(statement):
                imported_at = imported_at or statement.lineno
            if imported_at is None:
                continue
            for node in enclosed(statement):
                if _sets_allocator(node):
                    assert isinstance(node, (ast.Subscript, ast.Call))
                    used = cuda_at is not None and cuda_at < node.lineno
                    yield self._fact(
                        "alloc-conf-after-import", node, import_line=imported_at, cuda_used=used
                    )

    def _cuda_at(self) -> int | None:
        """The first line at module level that uses a GPU."""
        at = (s.node.lineno for s in self.steps if _uses_cuda(s.node) and s.function is None)
        return min(at, default=None)

    # -- devices ----------------------------------------------------------------------

    def devices(self) -> Iterator[Fact]:
        """The GPUs that the script shows itself, the same ones wherever it says so, before CUDA has counted them
        (CUDA C Programming Guide, "CUDA Environment Variables": read when it is initialized)."""
        if _DEVICES not in self.source.text:
            return
        given = list(variable_set(_DEVICES, self.tree, self.steps))
        nodes = [self.evaluator.node(value, scope) for value, scope in given]
        found = {str(node.value) if isinstance(node, Scalar) else None for node in nodes}
        cuda_at = self._cuda_at()
        if len(found) != 1 or not (devices := found.pop()) or not _LISTED.fullmatch(devices):
            return
        if cuda_at is None or given[0][0].lineno < cuda_at:
            yield self._fact("shows-devices", given[0][0], devices=devices)


def _inside(statement: ast.stmt) -> Iterator[ast.AST]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    yield from enclosed(statement)


def _trains_here(loop: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Call) and call_name(node) in ("backward", "train_batch")
        for node in ast.walk(loop)
    )


def _unconditional(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run in every turn: of ``with`` blocks too, not of ``if`` or ``try``."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            yield from _unconditional(statement.body)


# -- exception handlers -------------------------------------------------------------------


def _trains(block: Sequence[ast.stmt]) -> bool:
    return any(_TRAINS.search(call_name(call)) for call in _calls_in(block))


def _calls_in(block: Sequence[ast.stmt]) -> list[ast.Call]:
    return [n for statement in block for n in enclosed(statement) if isinstance(n, ast.Call)]


def _tests_for_sigkill(handler: ast.ExceptHandler) -> Iterator[ast.Compare]:
    """Comparisons with -9 that no handler will ever see come true.

    A child's ``returncode`` is -9 after SIGKILL, and a parent may well test that: only where
    the process itself was training does the test miss its aim.
    """
    for node in (n for statement in handler.body for n in ast.walk(statement)):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        if not any(_is_minus_nine(part) for side in sides for part in ast.walk(side)):
            continue
        caught = ast.unparse(handler.type) if handler.type is not None else ""
        if "CalledProcessError" not in caught:
            yield node


def _asks_for_errno(test: ast.Compare) -> bool:
    sides = [test.left, *test.comparators]
    return any(isinstance(side, ast.Attribute) and side.attr == "errno" for side in sides)


def _is_minus_nine(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
        and node.operand.value == 9
    )


def _repeated_training(handler: ast.ExceptHandler, block: Sequence[ast.stmt]) -> ast.Call | None:
    """The call of a block that the handler of its running out of memory makes again, before it has
    let go of the first."""
    if handler.type is None:
        return None
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    if not any((dotted(t) or "").endswith(_OOM_ERRORS) for t in types):
        return None
    before = {dotted(call.func) for call in _calls_in(block)} - {None}
    for statement in handler.body:
        for node in enclosed(statement):
            if not isinstance(node, ast.Call) or dotted(node.func) not in before:
                continue
            if _TRAINS.search(call_name(node)) or call_name(node) in ("step", "forward", "model"):
                return node
    return None


# -- saving -------------------------------------------------------------------------------


def _background_work(call: ast.Call, name: str) -> tuple[ast.expr | None, list[ast.expr]]:
    """What a thread, process or executor is told to run, and with which arguments."""
    last = name.rsplit(".", 1)[-1]
    if last in ("Thread", "Process"):
        target = next((k.value for k in call.keywords if k.arg == "target"), None)
        given = [k.value for k in call.keywords if k.arg in ("args", "kwargs")]
        return target, given
    if last in ("submit", "apply_async") and call.args:
        return call.args[0], [*call.args[1:], *(k.value for k in call.keywords)]
    return None, []


def _takes_state(nodes: Sequence[ast.AST]) -> bool:
    return any(isinstance(n, ast.Call) and call_name(n) == "state_dict" for n in nodes)


def _copies_to_host(nodes: Sequence[ast.AST]) -> bool:
    for node in nodes:
        if isinstance(node, ast.Call):
            if call_name(node) in _COPIES_TO_HOST:
                return True
            if call_name(node) == "to" and any("cpu" in ast.unparse(a) for a in node.args):
                return True
        if isinstance(node, ast.keyword) and node.arg in ("cpu_offload", "offload_to_cpu"):
            return True
    return False


# -- loading ------------------------------------------------------------------------------


# Numbers and positions, a few bytes each.
_SMALL_STATE = re.compile(r"sched|scaler|sampler|loader|rng|generator|tracker", re.IGNORECASE)


def _becomes_state(function: ast.AST, load: ast.Call) -> bool:
    """Whether what is loaded goes to a ``load_state_dict`` of the same function."""
    names: set[str] = set()
    given: list[ast.expr] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and load in ast.walk(node.value):
            names |= {name.id for name in node.targets if isinstance(name, ast.Name)}
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "load_state_dict"
            and not _SMALL_STATE.search(ast.unparse(node.func.value))
        ):
            given += node.args
    inside = [node for argument in given for node in ast.walk(argument)]
    return load in inside or any(isinstance(node, ast.Name) and node.id in names for node in inside)


def _names_files_by_rank(body: ast.AST) -> bool:
    return any(isinstance(n, ast.JoinedStr) and "rank" in ast.unparse(n) for n in ast.walk(body))


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


def _loads_model(call: Call) -> bool:
    receiver, _, method = call.callee.rpartition(".")
    return method == "from_pretrained" and "Peft" not in receiver


# -- loops --------------------------------------------------------------------------------


def _backward_names(nodes: Sequence[ast.AST]) -> set[str]:
    """Names that ``backward`` is called on, or with (``accelerator.backward(loss)``)."""
    names: set[str] = set()
    for node in nodes:
        if not isinstance(node, ast.Call) or call_name(node) != "backward":
            continue
        assert isinstance(node.func, (ast.Attribute, ast.Name))
        holder = node.args[0] if node.args else None
        if isinstance(node.func, ast.Attribute) and holder is None:
            holder = node.func.value
        while isinstance(holder, ast.BinOp):
            holder = holder.left
        if isinstance(holder, ast.Call) and isinstance(holder.func, ast.Attribute) and holder.args:
            holder = holder.args[0]  # scaler.scale(loss).backward()
        name = dotted(holder) if holder is not None else None
        if name is not None:
            names.add(name)
    return names


def _retains_graph(nodes: Sequence[ast.AST]) -> bool:
    """Whether ``backward`` is told to keep what the graph saved."""
    return any(
        isinstance(node, ast.Call)
        and call_name(node) == "backward"
        and any(k.arg == "retain_graph" and not _is_false(k.value) for k in node.keywords)
        for node in nodes
    )


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def _loss_in(value: ast.expr) -> str | None:
    """The tensor that an expression keeps alive: ``loss`` of ``loss / steps``."""
    while isinstance(value, ast.BinOp):
        value = value.left
    name = dotted(value)
    return name if name is not None and "loss" in name.rsplit(".", 1)[-1] else None


def _detached(name: str, nodes: Sequence[ast.AST]) -> bool:
    """Whether the name is also given a value that holds no graph."""
    for node in nodes:
        if not isinstance(node, ast.Assign) or not any(dotted(t) == name for t in node.targets):
            continue
        for part in ast.walk(node.value):
            if isinstance(part, ast.Call) and call_name(part) in (
                "item",
                "detach",
                "float",
                "tolist",
            ):
                return True
    return False


def _appends(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "append"
        and len(node.args) == 1
    )


def _starts_anew(name: str, node: ast.AST, loops: Sequence[ast.AST]) -> bool:
    """Whether the loop around ``node`` itself gives the name a new start, as after each step of
    accumulated gradients, or makes a number of the sum: then no more than their graphs are kept."""
    around = [loop for loop in loops if any(inner is node for inner in ast.walk(loop))]
    innermost = max(around, key=lambda loop: loop.lineno)  # type: ignore[attr-defined]
    for inner in ast.walk(innermost):
        match inner:
            case ast.Assign(targets=[target], value=value):
                if dotted(target) == name and _holds_no_graph(value):
                    return True
            case ast.Call(func=ast.Attribute(value=held, attr="clear")):
                if dotted(held) == name:
                    return True
    return False


def _holds_no_graph(value: ast.expr) -> bool:
    """Whether what an expression comes to refers to no graph, whatever it is made of."""
    match value:
        case ast.Constant() | ast.List(elts=[]):
            return True
        case ast.Call(func=ast.Name(id="float" | "int")):
            return True
        case ast.Call(func=ast.Attribute(attr="item" | "detach" | "tolist")):
            return True
        case ast.Call(func=ast.Attribute(value=tensor)):
            return _holds_no_graph(tensor)
        case ast.BinOp(left=left, right=right):
            return _holds_no_graph(left) and _holds_no_graph(right)
    return False


def _stacked(name: str, nodes: Sequence[ast.AST]) -> bool:
    """Whether the list is made a tensor again: then the graph may be wanted."""
    return any(
        isinstance(node, ast.Call)
        and call_name(node) in ("stack", "cat", "sum", "mean")
        and any(dotted(argument) == name for argument in node.args)
        for node in nodes
    )


# -- devices and their allocator -----------------------------------------------------------

_DEVICES = "CUDA_VISIBLE_DEVICES"
_LISTED = re.compile(r"\d+(?:\s*,\s*\d+)*")


def _imports_torch(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Import):
        return any(alias.name.split(".")[0] == "torch" for alias in statement.names)
    return (
        isinstance(statement, ast.ImportFrom) and (statement.module or "").split(".")[0] == "torch"
    )


def _sets_allocator(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return dotted(node.value) == "os.environ" and _is_allocator(node.slice)
    if isinstance(node, ast.Call) and dotted(node.func) in ("os.environ.setdefault", "os.putenv"):
        return bool(node.args) and _is_allocator(node.args[0])
    return False


def _is_allocator(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (
        "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF",
    )  # fmt: skip


def _uses_cuda(call: ast.Call) -> bool:
    name = dotted(call.func) or ""
    if name.startswith("torch.cuda.") or name.endswith((".cuda", ".from_pretrained")):
        return True
    return call_name(call) == "to" and any("cuda" in ast.unparse(a) for a in call.args)
