"""Which calls of a Python file matter for memory, in the order in which they run."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Call, Node, Scalar
from oomlint.documents.python.built import is_built, name_of_built
from oomlint.documents.python.helper_cuts import Cut, helper_cuts
from oomlint.documents.python.lengths import LENGTH_NAMES
from oomlint.documents.python.nodes import Arm, Guard, PythonEntry, PythonMapping
from oomlint.documents.python.own_arguments import class_of_arguments, with_defaults
from oomlint.documents.python.scopes import FunctionNode, Scope, call_name, dotted, settled
from oomlint.documents.python.trainer_names import names_trainer
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values import Evaluator, NodeSpans

_CONFIGS = (
    "SFT DPO GRPO KTO ORPO CPO Reward PRM PPO PPOv2 RLOO GKD XPO NashMD OnlineDPO BCO GOLD MiniLLM Model "
    "Lora AdaLora LoHa LoKr OFT BOFT IA3 Vera RandLora LNTuning PromptTuning PrefixTuning "
    "GPTQ Awq HQQ Hqq Eetq Quanto TorchAo Aqlm FineGrainedFP8 Mxfp4 BitsAndBytes HfDeepSpeed "
    "FullStateDict ShardedStateDict LocalStateDict "
    "FullOptimStateDict ShardedOptimStateDict LocalOptimStateDict"
)
_NAMES = frozenset(
    {
        "TrainingArguments", "Seq2SeqTrainingArguments", "UnslothTrainingArguments",
        *(f"{kind}Config" for kind in _CONFIGS.split()),
        "get_peft_model", "get_peft_config", "add_adapter", "prepare_model_for_kbit_training", "prepare_model_for_int8_training",
        "gradient_checkpointing_enable", "gradient_checkpointing_disable",
        "enable_input_require_grads", "Accelerator", "FullyShardedDataParallelPlugin",
        "DeepSpeedPlugin", "GradientAccumulationPlugin", "DummyOptim", "ParallelismConfig", "Fabric", "FSDPStrategy",
        "DeepSpeedStrategy", "DDPStrategy", "ModelParallelStrategy", "ModelCheckpoint", "FullyShardedDataParallel", "FSDP",
        "fully_shard", "DistributedDataParallel", "DDP", "DataParallel", "StateDictOptions",
        "MixedPrecision", "MixedPrecisionPolicy", "CPUOffload", "CPUOffloadPolicy",
        "apply_activation_checkpointing", "checkpoint_wrapper", "DataLoader", "load_dataset",
        "tokenizer", "apply_chat_template", "set_per_process_memory_fraction", "cce_patch",
    }
)  # fmt: skip
_FAMILIES = (
    "Paged", "Fused", "Adam", "SGD", "Lion", "LAMB", "LARS", "RMSprop", "Adagrad", "AdEMAMix",
    "Adafactor", "CPUAdam", "DeepSpeedCPU", "AnyPrecision", "GaLore", "Muon", "Lomo", "AdaLomo",
    "CAME", "Sophia", "Prodigy", "Shampoo", "apply_liger_kernel_to_", "_apply_liger_kernel_to_",
)  # fmt: skip
# Methods that count only with the right thing before the dot.
_DEEPSPEED = frozenset({"deepspeed.initialize", "deepspeed.init_inference", "deepspeed.zero.Init"})
# Functions of frameworks that train by themselves. Their own names tell nothing, so that they are
# reported by the full one.
_WHOLE_RUNS = frozenset({"llama_recipes.finetuning.main", "llama_cookbook.finetuning.main"})
# What hands a script over to SageMaker, and the parts that it is told in; how many workers Ray is asked for.
_HANDS_OVER = re.compile(
    r"sagemaker\.(?:[a-z_.]+\.)?(?:HuggingFace|PyTorch|ModelTrainer|SourceCode|Compute|Torchrun)"
    r"|ray\.(?:[a-z_.]+\.)?ScalingConfig"
)
_LOADERS = frozenset({"from_pretrained", "from_config"})
_NO_MODEL = re.compile(
    r"Tokenizer|Processor|FeatureExtractor|Config$|^Generation|Pipeline|tokenizer"
)


class ReachedCall(Struct, frozen=True, eq=False):
    """A call of any kind as the program reaches it."""

    node: ast.Call
    name: str
    """What it calls, dotted, with imports resolved; empty where that is computed."""
    last: str
    """The last name of what it calls, as written: see :func:`call_name`."""
    scope: Scope
    function: FunctionNode | None
    """The function in whose body it stands; ``None`` at module level."""
    reached: bool
    """Whether module-level code leads here in a plain way."""
    guards: tuple[Guard, ...] = ()
    arms: tuple[Arm, ...] = ()


class Store(Struct, frozen=True, eq=False):
    """``training_args.bf16 = True``: a statement that changes an attribute of an object."""

    node: ast.Assign
    holder: str
    attribute: str
    scope: Scope
    guards: tuple[Guard, ...]
    arms: tuple[Arm, ...]


class _Walk(Struct):
    """One walk through a file, and what it has met so far."""

    tree: Tree
    steps: list[ReachedCall] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    entered: set[int] = field(default_factory=set)
    called: FunctionNode | None = None
    """The function that another file calls."""


def run_order(tree: Tree) -> tuple[list[ReachedCall], list[Store]]:
    """Every call of the file: module level first, functions where they are first called,
    and what nobody calls at the end, in the order of the file; so the attributes that it sets."""
    walk = _Walk(tree)
    _run(tree.root.body, walk, tree.scopes.module, None, reached=True)
    for function in tree.functions:
        _enter(function, walk, reached=False)
    return walk.steps, walk.stores


def steps_of(function: FunctionNode, tree: Tree) -> list[ReachedCall]:
    """Every call that a function makes, in it and in functions of its file."""
    walk = _Walk(tree, called=function)
    _enter(function, walk, reached=True)
    return walk.steps


def _enter(
    function: FunctionNode,
    walk: _Walk,
    *,
    reached: bool,
    guards: tuple[Guard, ...] = (),
    arms: tuple[Arm, ...] = (),
) -> None:
    """Run what stands in a function, the first time that it is called."""
    if id(function) in walk.entered:
        return
    walk.entered.add(id(function))
    scope = walk.tree.scopes.of_node[id(function)]
    _run(function.body, walk, scope, function, reached=reached, guards=guards, arms=arms)


def _run(
    body: list[ast.stmt],
    walk: _Walk,
    scope: Scope,
    function: FunctionNode | None,
    *,
    reached: bool,
    guards: tuple[Guard, ...] = (),
    arms: tuple[Arm, ...] = (),
) -> None:
    """Note the calls and stores of statements as they run; ``reached``: whether the module itself leads there."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(statement, ast.ClassDef):
            inner = walk.tree.scopes.of_node[id(statement)]
            _run(statement.body, walk, inner, function, reached=reached, guards=guards, arms=arms)
            continue
        if isinstance(statement, ast.Assign):
            walk.stores += _stores_of(statement, scope, guards, arms)
        for call in _calls_in(statement, walk.tree):
            name = scope.resolved(dotted(call.func) or "")
            step = ReachedCall(call, name, call_name(call), scope, function, reached, guards, arms)
            walk.steps.append(step)
            target = _entered_by(call, scope, walk.tree)
            if target is not None:
                _enter(target, walk, reached=reached, guards=guards, arms=arms)
        is_settled = (
            isinstance(statement, ast.If)
            and settled(statement.test, scope, walk.called) is not None
        )
        for block in _blocks(statement, scope, walk.called):
            more = () if is_settled else _guards_of(statement, block)
            inside = arms if is_settled else (*arms, *_arm_of(statement, block))
            _run(
                block, walk, scope, function,
                reached=reached, guards=(*guards, *more), arms=inside,
            )  # fmt: skip


def _entered_by(call: ast.Call, scope: Scope, tree: Tree) -> FunctionNode | None:
    """The function of the file that a call enters: by its name, as a class of the file makes an object, or as a method
    of one that it made."""
    if isinstance(call.func, ast.Attribute):
        cls = _class_of(call.func.value, scope, tree)
        return None if cls is None else _method(cls, call.func.attr)
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    cls = tree.scopes.classes.get(name)
    return tree.scopes.functions.get(name) if cls is None else _method(cls, "__init__")


def _class_of(value: ast.expr, scope: Scope, tree: Tree) -> ast.ClassDef | None:
    """The class of the file that an object is of: of ``self``, or of what is made in place or at the one place where its
    name is given a value."""
    if isinstance(value, ast.Name):
        found = scope.find(value.id)
        if value.id == "self" and found is not None and found[0].parent is not None:
            owner = found[0].parent.node
            return owner if isinstance(owner, ast.ClassDef) else None
        made = found[1][0].value if found is not None and len(found[1]) == 1 else None
        value = value if made is None else made
    name = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
    return tree.scopes.classes.get(name)


def _method(cls: ast.ClassDef, name: str) -> FunctionNode | None:
    for each in cls.body:
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.name == name:
            return each
    return None


def _stores_of(
    statement: ast.Assign, scope: Scope, guards: tuple[Guard, ...], arms: tuple[Arm, ...]
) -> Iterator[Store]:
    for target in statement.targets:
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            yield Store(statement, target.value.id, target.attr, scope, guards, arms)


def _arm_of(statement: ast.stmt, block: list[ast.stmt]) -> tuple[Arm, ...]:
    """Which side of an ``if`` a block is; an ``elif`` is an ``if`` in the other side."""
    if not isinstance(statement, ast.If) or _asks_for_main(statement.test):
        return ()
    if block is statement.body and _asks_for_method(statement.test):
        return ()
    return ((statement.lineno, block is statement.body),)


def _asks_for_main(test: ast.expr) -> bool:
    """``__name__ == "__main__"``, which holds for whatever is started."""
    return isinstance(test, ast.Compare) and dotted(test.left) == "__name__"


def _asks_for_method(test: ast.expr) -> bool:
    """``hasattr(model, "gradient_checkpointing_enable")``, which holds where it matters."""
    return isinstance(test, ast.Call) and dotted(test.func) == "hasattr"


def _guards_of(statement: ast.stmt, block: list[ast.stmt]) -> tuple[Guard, ...]:
    """``if args.use_lora:`` around a block: the switch, and whether it must be on."""
    if not isinstance(statement, ast.If):
        return ()
    return guards_of_test(statement.test, holds=block is statement.body)


def guards_of_test(test: ast.expr, *, holds: bool) -> tuple[Guard, ...]:
    """The switches that a test asks for, and how each is where it holds, or does not."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and holds:
        return tuple(g for part in test.values for g in _switch(part, holds=True))
    return _switch(test, holds=holds)


def _switch(test: ast.expr, *, holds: bool) -> tuple[Guard, ...]:
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, holds = test.operand, not holds
    if isinstance(test, ast.Compare) and _asks_for_any(test):
        holds = holds != isinstance(test.ops[0], (ast.Eq, ast.Is))
        test = test.left
    name = dotted(test) if isinstance(test, (ast.Attribute, ast.Name)) else None
    return () if name is None else ((name.rpartition(".")[2], holds),)


def is_switch(test: ast.expr) -> bool:
    """Whether a test asks for one switch and nothing else, so that a guard says all of it."""
    return not isinstance(test, ast.BoolOp) and bool(_switch(test, holds=True))


def _asks_for_any(test: ast.Compare) -> bool:
    """``rank > 0``, ``rank != 0``, ``path is not None``, and their opposites with ``==`` and ``is``."""
    if len(test.ops) != 1 or not isinstance(test.comparators[0], ast.Constant):
        return False
    against = test.comparators[0].value
    if isinstance(test.ops[0], (ast.Is, ast.IsNot)):
        return against is None
    return (
        isinstance(test.ops[0], (ast.Gt, ast.Eq, ast.NotEq))
        and against == 0
        and against is not False
    )


def _blocks(
    statement: ast.stmt, scope: Scope, called: FunctionNode | None
) -> Iterator[list[ast.stmt]]:
    """The blocks of statements within a statement, but for those that never run."""
    if isinstance(statement, ast.If):
        # `if False:` is how notebooks offer a step that nobody has asked for yet.
        holds = settled(statement.test, scope, called)
        if holds is not None:
            yield statement.body if holds else statement.orelse
            return
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        part = getattr(statement, name, None)
        if not isinstance(part, list):
            continue
        if name in ("handlers", "cases"):
            for item in part:
                yield item.body
        else:
            yield part


def _calls_in(statement: ast.stmt, tree: Tree) -> list[ast.Call]:
    """The calls of a statement, inner before outer: arguments are evaluated first."""
    calls = tree.calls_of.get(id(statement), [])
    return sorted(calls, key=lambda call: (call.end_lineno, call.end_col_offset))


def matters(name: str, last: str) -> bool:
    """Whether a call of the dotted ``name`` is one of those that documents report."""
    if last in _LOADERS:
        receiver = name.rpartition(".")[0].rsplit(".", 1)[-1]
        return bool(receiver) and not _NO_MODEL.search(receiver)
    return (
        last in _NAMES
        or name in _DEEPSPEED
        or name in _WHOLE_RUNS
        or _HANDS_OVER.fullmatch(name) is not None
        or names_trainer(last)
        or last.startswith(_FAMILIES)
    )


def cuts_samples(call: ast.Call, last: str) -> bool:
    """``OwnDataset(path, tokenizer=tokenizer, max_len=512)``: a dataset that makes tokens, told how many, by name or
    in a variable that is called so."""
    given = {keyword.arg for keyword in call.keywords}
    is_own = last.endswith("Dataset") and "tokenizer" in given
    return is_own and (not LENGTH_NAMES.isdisjoint(given) or _length_by_place(call) is not None)


def _length_by_place(call: ast.Call) -> tuple[str, str] | None:
    """Of ``OwnDataset(path, SEQ_LENGTH, tokenizer=tokenizer)`` the place of the length, as arguments without a name are
    called, and what it is called."""
    for place, argument in enumerate(call.args):
        name = (dotted(argument) or "").rpartition(".")[2].lower()
        if name in LENGTH_NAMES:
            return str(place), name
    return None


def _with_named_length(arguments: PythonMapping, call: ast.Call) -> PythonMapping:
    place, name = _length_by_place(call) or ("", "")
    entry = arguments.entries.get(place)
    if entry is None or not LENGTH_NAMES.isdisjoint(arguments.entries):
        return arguments
    return replace(arguments, entries={**arguments.entries, name: replace(entry, key=name)})


_Reached = TypeVar("_Reached", ReachedCall, Store)


def reached_by_files(steps: list[_Reached], tree: Tree, evaluator: Evaluator) -> list[_Reached]:
    """The steps without those that lie behind a test which config files decide otherwise; the rest
    without the branches and the switches that are so decided."""
    if not evaluator.may_load:
        return steps
    decided: dict[int, bool | None] = {}
    found: list[_Reached] = []
    for step in steps:
        for line, _ in step.arms:
            if line not in decided:
                branch, scope = tree.branches[line]
                decided[line] = evaluator.decided(branch.test, scope)
        if all(decided[line] in (None, side) for line, side in step.arms):
            known = [
                (tree.branches[line][0], side) for line, side in step.arms if decided[line] is side
            ]
            gone = {g for branch, side in known for g in _guards_of(branch, _side(branch, side))}
            guards = tuple(guard for guard in step.guards if guard not in gone)
            arms = tuple((line, side) for line, side in step.arms if decided[line] is None)
            found.append(replace(step, guards=guards, arms=arms) if known else step)
    return found


def _side(branch: ast.If, holds: bool) -> list[ast.stmt]:
    return branch.body if holds else branch.orelse


_ARGUMENTS = re.compile(
    r"(?:^|\.)(?:\w*Training\w*Arguments|\w*(?:SFT|DPO|GRPO|KTO|ORPO|CPO|Reward|PRM|PPO|RLOO|GKD)\w*Config)$"
)


def read_stores(
    stores: list[Store], calls: list[Call], tree: Tree, evaluator: Evaluator, places: NodeSpans
) -> Iterator[Call]:
    """The statements that change training arguments, each as a call that is given the new value;
    open-ended behind a test of which its switches do not tell all."""
    for store in stores:
        if not _holds_arguments(store, evaluator):
            continue
        target = store.node.targets[0]
        key, value = places.span(target), evaluator.node(store.node.value, store.scope)
        entry = PythonEntry(store.attribute, key, value, places.span(store.node))
        branches = [(tree.branches[line][0], side) for line, side in store.arms]
        is_open = not all(_guards_of(branch, _side(branch, side)) for branch, side in branches)
        mapping = PythonMapping(
            places.span(store.node),
            {store.attribute: entry},
            open_ended=is_open,
            kind="statement",
            guards=store.guards,
            arms=store.arms,
        )
        yield Call(f"{store.holder}.{store.attribute}", mapping, key, len(calls))


def _holds_arguments(store: Store, evaluator: Evaluator) -> bool:
    """Whether the object that a statement changes is what a parser makes of TrainingArguments, or a call."""
    cls = evaluator.settings.get(store.holder)
    if cls is not None:
        return bool(_ARGUMENTS.search(cls))
    found = store.scope.find(store.holder)
    value = found[1][0].value if found is not None and len(found[1]) == 1 else None
    call = evaluator.calls.get(id(value))
    return call is not None and bool(_ARGUMENTS.search(call.callee))


# transformers 5.23 models/auto/tokenization_auto.py, and the classes of one family (LlamaTokenizerFast).
_MAKES_TOKENIZER = re.compile(r"Tokenizer\w*\.from_pretrained$")


def _is_of_tokenizer(step: ReachedCall) -> bool:
    """Whether a call is one of a variable, whatever its name, that was given a tokenizer."""
    if not isinstance(step.node.func, ast.Name):
        return False
    found = step.scope.find(step.node.func.id)
    values = [] if found is None else [binding.value for binding in found[1]]
    return any(
        isinstance(value, ast.Call) and _MAKES_TOKENIZER.search(dotted(value.func) or "")
        for value in values
    )


def read_calls(
    steps: list[ReachedCall], evaluator: Evaluator, places: NodeSpans
) -> tuple[list[Call], dict[int, ReachedCall]]:
    """The calls that matter, and the step that each one (by ``id``) was read from."""
    calls: list[Call] = []
    origin: dict[int, ReachedCall] = {}
    cut_by_helpers = list(helper_cuts(steps, evaluator))
    # Of several that are made of one class the longest, or one that is not known, is what counts.
    own = {
        id(cut.node): cut for cut in sorted(cut_by_helpers, key=_tokens) if cut.home is evaluator
    }
    for step in steps:
        last = step.name.rpartition(".")[2] or step.last
        cuts = _is_of_tokenizer(step)
        named = name_of_built(step) if is_built(step.name) else None
        counts = matters(step.name, last) or cuts_samples(step.node, last)
        own_class = class_of_arguments(step, evaluator)
        if not cuts and named is None and not counts and not own_class:
            continue
        # An import under another name is reported by the name that it has at home.
        written = dotted(step.node.func) if last == step.last else None
        if step.name in _WHOLE_RUNS or _HANDS_OVER.fullmatch(step.name):
            written = step.name
        arguments = replace(
            evaluator.arguments(step.node, step.scope), guards=step.guards, arms=step.arms
        )
        if named is not None:
            arguments = _after(arguments, evaluator.node(*named))
        if cuts_samples(step.node, last):
            arguments = _with_named_length(arguments, step.node)
        if own_class:
            arguments = with_defaults(arguments, own_class)
        if id(step.node) in own:
            arguments = _cut_to(own[id(step.node)], arguments)
        # A tokenizer goes by one word, whatever its variable is called.
        callee = "tokenizer" if cuts else written or last
        call = Call(callee, arguments, places.span(step.node), len(calls))
        evaluator.note_call(step.node, call)
        origin[id(call)] = step
        calls.append(call)
    for cut in cut_by_helpers:
        if cut.home is not evaluator:
            call = _of_helper(cut, len(calls), places)
            origin[id(call)] = cut.step
            calls.append(call)
    return calls, origin


def in_order(
    steps: Sequence[ReachedCall],
    calls: Sequence[Call],
    origin: Mapping[int, ReachedCall],
    carried: Sequence[tuple[ReachedCall, Call]],
) -> tuple[Call, ...]:
    """The calls of a script, and before those of the same step or later ones what it calls through functions of other
    files; these are as late as the call that they stand behind."""
    place = {id(step.node): number for number, step in enumerate(steps)}
    waiting = sorted(carried, key=lambda each: place[id(each[0].node)])
    found: list[Call] = []
    order = -1
    for call in calls:
        here = place[id(origin[id(call)].node)]
        while waiting and place[id(waiting[0][0].node)] <= here:
            found.append(replace(waiting.pop(0)[1], order=order))
        found.append(call)
        order = call.order
    found += (replace(call, order=order) for _, call in waiting)
    return tuple(found)


_CUT_BY_HELPER = "a helper of the project's cuts samples to it"


def _tokens(cut: Cut) -> float:
    """How long samples are that a helper cuts, to sort by: what is not known behind all others."""
    said = cut.length.value if isinstance(cut.length, Scalar) else UNKNOWN
    return float(said) if isinstance(said, int) else math.inf


def _cut_to(cut: Cut, arguments: PythonMapping) -> PythonMapping:
    """The arguments of a tokenizer's call with the length that those who call its function give it."""
    entries = {
        name: entry
        for name, entry in arguments.entries.items()
        if not (cut.is_of_samples and name == "return_tensors")
    }
    entry = entries["max_length"]
    if not isinstance(entry.value, Scalar) or entry.value.value is not UNKNOWN:
        return replace(arguments, entries=entries)
    entries["max_length"] = replace(entry, value=cut.length)
    return replace(arguments, entries=entries, locked=_CUT_BY_HELPER)


def _of_helper(cut: Cut, number: int, places: NodeSpans) -> Call:
    """A tokenizer's call in another file, as the script's own call of the helper."""
    span = places.span(cut.step.node)
    padding = next((k.value for k in cut.node.keywords if k.arg == "padding"), None)
    said: dict[str, Node] = {"truncation": Scalar(span, True), "max_length": cut.length}
    if isinstance(padding, ast.Constant):
        said["padding"] = Scalar(span, padding.value)
    if not cut.is_of_samples and any(k.arg == "return_tensors" for k in cut.node.keywords):
        said["return_tensors"] = Scalar(span, UNKNOWN)
    entries = {name: PythonEntry(name, span, value, span) for name, value in said.items()}
    arguments = PythonMapping(
        span, entries, locked=_CUT_BY_HELPER, guards=cut.step.guards, arms=cut.step.arms
    )
    return Call("tokenizer", arguments, span, number)


def _after(arguments: PythonMapping, name: Node) -> PythonMapping:
    """The arguments of a call that builds a model, with the name of the one that it is built after."""
    entry = PythonEntry("pretrained_model_name_or_path", name.span, name, name.span)
    kept = {key: given for key, given in arguments.entries.items() if key not in ("0", "config")}
    return replace(arguments, entries={**kept, entry.key: entry})
