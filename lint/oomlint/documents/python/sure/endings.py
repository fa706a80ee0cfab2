"""What makes it certain that a script ends with an error before it has trained a step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from oomlint.documents.base import Fact
from oomlint.documents.python.asked_arguments import asked_arguments, made_arguments
from oomlint.documents.python.calls import ReachedCall, guards_of_test
from oomlint.documents.python.nodes import Arm, Guard
from oomlint.documents.python.parsers import argparse_defaults
from oomlint.documents.python.scopes import dotted
from oomlint.documents.python.strict_parsers import ALL_MAKERS
from oomlint.documents.python.sure.calls import misfit, signature_of
from oomlint.documents.python.sure.facts import sure_facts
from oomlint.documents.python.tree import Tree
from oomlint.documents.python.values import Evaluator, NodeSpans
from oomlint.documents.text import Location, Source

# Calls that may train: behind one, an error comes too late to matter. To make an object trains nothing, nor does what
# divides samples (datasets, scikit-learn), readies quantized weights or counts parameters (PEFT).
_MAY_TRAIN = re.compile(
    r"(?<!pre)(?<!kbit_)(?<!int8_)train(?!_test_split|able)|fit|learn|backward|step|update|run|main|launch|start|loop|execute|process"
)


def ending_facts(
    source: Source,
    tree: Tree,
    places: NodeSpans,
    evaluator: Evaluator,
    steps: Sequence[ReachedCall],
) -> Iterator[Fact]:
    """``ends-early``: ``why`` in words, the ``guards`` around it, and the library that it is ``refused_by`` if not all
    releases of that do; ``never-trains``: ``why`` in words; ``trains-on-demand``: the first call
    that trains, of ``ways`` of which each hangs on switches or ``choices`` (see :class:`Training`); ``asks-argument``: an
    ``argument`` that an object ``of`` a library's class is asked for, and the ``guards``;
    ``makes-arguments``: such an object is made, with ``arguments`` of which each has its place; ``refuses-dashed-rank``: an argument parser that knows ``--local_rank`` and no
    ``--local-rank``."""
    ends = (
        *_refused_calls(tree, evaluator, steps),
        *_unlabelled(tree, steps),
        *_declared_twice(tree, steps),
        *_declared_without_name(tree, steps),
    )
    for step, why in ends:
        where = Location(source.path, places.span(step.node))
        yield Fact("ends-early", where, {"why": why, "guards": step.guards})
    for step, why in _configured_twice(tree, steps):
        where = Location(source.path, places.span(step.node))
        refused = {"why": why, "guards": step.guards, "refused_by": "deepspeed"}
        yield Fact("ends-early", where, refused)
    yield from sure_facts(source, tree, places, evaluator, _MAY_TRAIN)
    idle = (
        *((step, f"nothing asks {step.last} to train") for step in _never_asked(tree, steps)),
        *((step, f"no trainer is given its {step.last}") for step in _never_given(tree, steps)),
    )
    for step, why in idle:
        yield Fact("never-trains", Location(source.path, places.span(step.node)), {"why": why})
    for step, training in _on_demand(tree, steps):
        detail = {"ways": training.ways, "choices": training.choices, "is_left": training.is_left}
        yield Fact("trains-on-demand", Location(source.path, places.span(step.node)), detail)
    for asked in asked_arguments(tree, steps, _MAY_TRAIN):
        where = Location(source.path, places.span(asked.node))
        detail = {"argument": asked.node.attr, "of": asked.of_class, "guards": asked.guards}
        yield Fact("asks-argument", where, detail)
    for made in made_arguments(tree, steps, _MAY_TRAIN):
        if evaluator.modules.has(made.step.name.partition(".")[0], source.path):
            continue  # a copy of the library that the project has decides
        at = {name: Location(source.path, places.span(v)) for name, v in made.keywords.items()}
        detail = {"arguments": at, "of": made.step.name, "guards": made.guards}
        yield Fact("makes-arguments", Location(source.path, places.span(made.step.node)), detail)
    for step in _knows_old_rank(steps):
        yield Fact("refuses-dashed-rank", Location(source.path, places.span(step.node)), {})


# -- calls of the project's own --------------------------------------------------------------


def _refused_calls(
    tree: Tree, evaluator: Evaluator, steps: Sequence[ReachedCall]
) -> Iterator[tuple[ReachedCall, str]]:
    """The first call at module level, ahead of all that may train, which Python refuses."""
    for step in steps:
        if not step.reached or (step.last[:1].islower() and _MAY_TRAIN.search(step.last)):
            return
        # What hangs on no switch is looked at on the way that the script is sure to go.
        if step.function is not None or not step.guards or len(step.arms) > len(step.guards):
            continue
        why = _why_refused(step, evaluator) if id(step.node) not in tree.tried else ""
        if why:
            yield step, why
            return


def _why_refused(step: ReachedCall, evaluator: Evaluator) -> str:
    """Why a class or a function of the project's refuses the arguments of a call, in words."""
    call = step.node
    name = dotted(call.func)
    if name is None or "." in name:
        return ""
    home, called = evaluator, name
    if step.scope.imported(name) is not None:
        elsewhere = evaluator.elsewhere(name, step.scope)
        if elsewhere is None or not isinstance(elsewhere[1], ast.Name):
            return ""
        home, called = elsewhere[0], elsewhere[1].id
    found = home.scopes.module.bindings.get(called, [])
    if len(found) != 1 or found[0].kind != "definition":
        return ""
    signature = signature_of(home.scopes.functions.get(called) or home.scopes.classes.get(called))
    return "" if signature is None else misfit(call, signature)


# -- samples without labels ------------------------------------------------------------------------

# transformers 5.23 trainer.py __init__: by which a Trainer may get labels, or another loss.
_BY_OTHERS = frozenset(
    {"data_collator", "tokenizer", "processing_class", "compute_loss_func", "model_init", None}
)
_LABELS = "label"
_OF_CAUSAL = "ForCausalLM"


def _unlabelled(tree: Tree, steps: Sequence[ReachedCall]) -> Iterator[tuple[ReachedCall, str]]:
    """The one Trainer of a script that makes tokens itself and labels nowhere: default_data_collator adds none, a
    causal model without labels returns no loss, and the Trainer stops (transformers 5.23 data/data_collator.py,
    trainer.py compute_loss)."""
    trainers = [step for step in steps if step.last.endswith("Trainer")]
    if len(trainers) != 1 or trainers[0].name != "transformers.Trainer":
        return
    (trainer,) = trainers
    given = {keyword.arg for keyword in trainer.node.keywords}
    if given & _BY_OTHERS or len(trainer.node.args) > 2 or not trainer.reached:
        return
    loaders = [step for step in steps if step.last == "from_pretrained"]
    is_causal = any(_OF_CAUSAL in step.name for step in loaders)
    if is_causal and _makes_tokens(steps) and not any(map(_speaks_of_labels, tree.nodes)):
        yield trainer, "no sample has labels, and the Trainer has no collator that makes them"


def _makes_tokens(steps: Sequence[ReachedCall]) -> bool:
    """Whether all columns that samples have are those that the script makes: of files of text, or where it removes
    those that were there."""
    maps = [step.node for step in steps if step.last == "map"]
    sets = [step for step in steps if step.last == "load_dataset"]
    if not maps or not sets or not any(step.last == "tokenizer" for step in steps):
        return False
    removes = any(
        keyword.arg == "remove_columns" and "column_names" in ast.unparse(keyword.value)
        for call in maps
        for keyword in call.keywords
    )
    return removes or all(_is_plain_text(step.node) for step in sets)


def _is_plain_text(load: ast.Call) -> bool:
    """``load_dataset("text", data_files=...)``, whose only column is ``text``."""
    first = load.args[0] if load.args else None
    return isinstance(first, ast.Constant) and first.value == "text"


def _speaks_of_labels(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str(word)) | ast.Name(id=word) | ast.Attribute(attr=word):
            return _LABELS in word.lower()
        case ast.keyword(arg=str(word)) | ast.arg(arg=word):
            return _LABELS in word.lower()
    return False


# -- a trainer that nobody asks to train ------------------------------------------------------------

# Up to 0.11 TRL's PPOTrainer takes its steps one by one (trl 0.11.4 trainer/ppo_trainer.py step).
_TRAINERS_METHOD = re.compile(r"train|fit|search|loop|resume|learn|^step$", re.IGNORECASE)


def _never_asked(tree: Tree, steps: Sequence[ReachedCall]) -> Iterator[ReachedCall]:
    """The first Trainer of a script whose Trainers all have a name by which nothing is done that may train: they are
    handed to nobody, and their own methods are others."""
    trainers = [step for step in steps if _MAKES_TRAINER.search(step.last) and _is_given(step.node)]
    if not trainers:
        return
    named = {id(n.value): n.targets[0] for n in tree.assignments if len(n.targets) == 1}
    dropped = {id(n.value) for n in tree.of_kind(ast.Expr)}
    names: set[str] = set()
    for step in trainers:
        if step.reached and id(step.node) in dropped and _OF_LIBRARY.match(step.name):
            continue  # made, and kept by nobody
        target = named.get(id(step.node))
        if not step.reached or not isinstance(target, ast.Name):
            return
        names.add(target.id)
    if not any(_may_ask(node, names) for node in _uses(tree)):
        yield trainers[0]


def _never_given(tree: Tree, steps: Sequence[ReachedCall]) -> Iterator[ReachedCall]:
    """The first arguments for a Trainer of a script that makes none and loops over nothing itself: each has a name, of
    which attributes are read at most."""
    if any(_MAKES_TRAINER.search(step.last) or step.last in _LOOPS for step in steps):
        return
    made = [step for step in steps if _MAKES_ARGUMENTS.search(step.last)]
    if not made:
        return
    named = {id(n.value): n.targets[0] for n in tree.assignments if len(n.targets) == 1}
    targets = [named.get(id(step.node)) for step in made]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    is_handed = any(name.id in names and held is None for name, held in _uses(tree))
    if all(isinstance(target, ast.Name) for target in targets) and not is_handed:
        yield made[0]


_MAKES_ARGUMENTS = re.compile(r"^(?:Seq2Seq)?TrainingArguments$")
_LOOPS = frozenset({"train", "fit", "backward"})
_OF_LIBRARY = re.compile(r"(?:transformers|trl)\.")
# Lightning's are given the model later.
_MAKES_TRAINER = re.compile(r"^(?!TF[A-Z])\w*Trainer$")


def _is_given(call: ast.Call) -> bool:
    return bool(call.args) or any(k.arg in ("model", "args", None) for k in call.keywords)


def _uses(tree: Tree) -> Iterator[tuple[ast.Name, ast.AST | None]]:
    """Every name that is read, with the attribute of it that is."""
    held = {
        id(node.value): node
        for node in tree.of_kind(ast.Attribute)
        if isinstance(node.value, ast.Name)
    }
    for node in tree.of_kind(ast.Name):
        if isinstance(node.ctx, ast.Load):
            yield node, held.get(id(node))


def _may_ask(use: tuple[ast.Name, ast.AST | None], names: set[str]) -> bool:
    name, attribute = use
    if name.id not in names:
        return False
    return not isinstance(attribute, ast.Attribute) or bool(
        _TRAINERS_METHOD.search(attribute.attr) and not attribute.attr.startswith("train_dataset")
    )


# -- training that nobody asks for -----------------------------------------------------------------

_ASKED = "do_train"
_PARSER = "ArgumentParser"


class Choice(Struct, frozen=True):
    """``if args.mode == "train":`` around a call, or the other branch of it: an option, and whether it is one of these
    words."""

    option: str
    words: frozenset[str]
    holds: bool


class Training(Struct, frozen=True):
    """Of each call that trains, the switches that lead to it, and the choices. ``is_left``: they are the command's
    alone, as ``if training_args.do_train:`` where a script parses TrainingArguments and sets nothing itself."""

    ways: tuple[tuple[Guard, ...], ...]
    choices: tuple[tuple[Choice, ...], ...]
    is_left: bool


def _on_demand(tree: Tree, steps: Sequence[ReachedCall]) -> Iterator[tuple[ReachedCall, Training]]:
    """The first call that trains in a script of which each such call hangs on switches."""
    trains = [step for step in steps if _asks_trainer(step) or step.last == "backward"]
    ways = tuple(_switches_around(step, tree) for step in trains)
    choices = tuple(_choices_around(step, tree) for step in trains)
    if not trains or not all(map(any, zip(ways, choices, strict=True))):
        return
    is_parsed = any(step.last == "HfArgumentParser" for step in steps)
    is_demanded = all((_ASKED, True) in way for way in ways)
    is_left = is_demanded and is_parsed and not any(map(_sets_demand, tree.nodes))
    yield trains[0], Training(ways, choices, is_left)


def _choices_around(step: ReachedCall, tree: Tree) -> tuple[Choice, ...]:
    """Those of the branches that a call stands in; none where its function is called in several places, of which each
    has its own."""
    if step.function is not None and tree.scopes.reads[step.function.name] > 1:
        return ()
    branches = ((tree.branches[line][0].test, side) for line, side in step.arms)
    return tuple(choice for test, side in branches for choice in _choices_of(test, side))


def _choices_of(test: ast.expr, holds: bool) -> Iterator[Choice]:
    match test:
        case ast.BoolOp(op=ast.And(), values=parts) if holds:
            for part in parts:
                yield from _choices_of(part, holds)
        case ast.BoolOp(op=ast.Or(), values=parts) if not holds:
            for part in parts:
                yield from _choices_of(part, holds)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield from _choices_of(inner, not holds)
        case ast.Compare(left=ast.Attribute(attr=option), ops=[asks], comparators=[against]):
            words = _words_of(against, asks)
            if words:
                yield Choice(option, words, holds == isinstance(asks, (ast.Eq, ast.In)))


def _words_of(against: ast.expr, asks: ast.cmpop) -> frozenset[str]:
    """The words that an option is compared with."""
    match asks, against:
        case ast.Eq() | ast.NotEq(), ast.Constant(value=str(word)):
            return frozenset({word})
        case ast.In() | ast.NotIn(), ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(
            elts=items
        ):
            words = [each.value for each in items if isinstance(each, ast.Constant)]
            texts = frozenset(word for word in words if isinstance(word, str))
            return (
                texts if len(words) == len(items) and len(texts) == len(set(words)) else frozenset()
            )
    return frozenset()


def _switches_around(step: ReachedCall, tree: Tree) -> tuple[Guard, ...]:
    """The switches that a call hangs on, of which one may end its function before it; where its function is called in
    several places (``main()`` for itself and in ``_mp_fn`` of transformers' examples), of which each has its own, those alone
    that stand in the function."""
    if step.function is None:
        return (*step.guards, *_left_before(step, tree.root.body))
    before = tuple(_left_before(step, step.function.body))
    if tree.scopes.reads[step.function.name] > 1:
        tests = ((tree.branches[line][0].test, side) for line, side in _arms_inside(step))
        return (*(g for test, side in tests for g in guards_of_test(test, holds=side)), *before)
    return (*step.guards, *before)


def _arms_inside(step: ReachedCall) -> Iterator[Arm]:
    """The branches around a call that stand in its function, and not around what calls that."""
    function = step.function
    if function is not None:
        last = function.end_lineno or function.lineno
        yield from (arm for arm in step.arms if function.lineno <= arm[0] <= last)


def _left_before(step: ReachedCall, body: list[ast.stmt]) -> Iterator[Guard]:
    """``if args.eval_only: evaluate(); return`` ahead of a call."""
    for statement in body:
        if statement.lineno >= step.node.lineno:
            return
        if isinstance(statement, ast.If) and not statement.orelse and _leaves(statement.body[-1]):
            switches = guards_of_test(statement.test, holds=True)
            if len(switches) == 1 and not isinstance(statement.test, ast.BoolOp):
                yield switches[0][0], not switches[0][1]


def _leaves(statement: ast.stmt) -> bool:
    match statement:
        case ast.Return():
            return True
        case ast.Expr(value=ast.Call(func=func)):
            return dotted(func) in ("exit", "quit", "sys.exit")
    return False


def _asks_trainer(step: ReachedCall) -> bool:
    """``trainer.train()``, but not ``model.train()``."""
    match step.node.func:
        case ast.Attribute(value=holder, attr="train"):
            return (dotted(holder) or "trainer").lower().endswith("trainer")
        case _:
            return False


def _sets_demand(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr=name, ctx=ast.Store()) | ast.keyword(arg=name):
            return name == _ASKED
        case ast.Constant(value=str(word)):
            return word.lstrip("-") == _ASKED
        case ast.AnnAssign(target=ast.Name(id=name)):
            return name == _ASKED
    return False


# -- an option that is declared twice, or by no name ---------------------------------------------------------------


def _declared_twice(tree: Tree, steps: Sequence[ReachedCall]) -> Iterator[tuple[ReachedCall, str]]:
    """The first option that one parser of argparse is given a second time, which it refuses as it is told (CPython 3.13
    argparse.py _handle_conflict_error: "conflicting option string")."""
    if not any(step.last == "add_argument" for step in steps):
        return
    made = [
        target.id
        for each in tree.assignments
        for target in each.targets
        if isinstance(target, ast.Name)
    ]
    plain = {
        each.targets[0].id
        for each in tree.assignments
        if isinstance(each.targets[0], ast.Name) and _is_plain_parser(each.value)
    }
    seen: set[tuple[str, int, object]] = set()
    for step in steps:
        holder = dotted(step.node.func.value) if isinstance(step.node.func, ast.Attribute) else None
        if step.last != "add_argument" or holder not in plain or made.count(holder) != 1:
            continue
        if step.arms or not step.reached:
            continue
        for name in sorted(map(str, _option_names(step))):
            key = (holder, id(step.function), name)
            if key in seen and name.startswith("-"):
                yield step, f"argparse refuses the option {name}, which is declared twice"
                return
            seen.add(key)


def _declared_without_name(
    tree: Tree, steps: Sequence[ReachedCall]
) -> Iterator[tuple[ReachedCall, str]]:
    """The first ``add_argument()`` of a parser that says nothing (CPython 3.13 argparse.py add_argument:
    _get_positional_kwargs wants a ``dest``); the parsers of classes of options are argparse's, too."""
    parsers = {
        each.targets[0].id
        for each in tree.assignments
        if isinstance(each.targets[0], ast.Name)
        and isinstance(each.value, ast.Call)
        and (dotted(each.value.func) or "").split(".")[-1] in ALL_MAKERS
    }
    for step in steps:
        call = step.node
        holder = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else None
        is_empty = step.last == "add_argument" and not call.args and not call.keywords
        if is_empty and holder in parsers and step.reached and not step.arms:
            yield step, "argparse refuses an option without a name"
            return


def _is_plain_parser(value: ast.expr) -> bool:
    """``ArgumentParser(...)`` that is not told what to do with options that are declared twice."""
    if not isinstance(value, ast.Call) or (dotted(value.func) or "").split(".")[-1] != _PARSER:
        return False
    return not {keyword.arg for keyword in value.keywords} & {"conflict_handler", "parents", None}


# -- a config that is given twice ------------------------------------------------------------------


def _configured_twice(
    tree: Tree, steps: Sequence[ReachedCall]
) -> Iterator[tuple[ReachedCall, str]]:
    """The call of ``deepspeed.initialize`` with a config and with arguments that have one by default, which DeepSpeed
    refuses from 0.9 on (0.15.4 deepspeed/__init__.py:174, "Not sure how to proceed")."""
    default = argparse_defaults(tree).get("deepspeed_config")
    if not isinstance(default, ast.Constant) or default.value is None:
        return
    if any(
        n.attr == "deepspeed_config" and not isinstance(n.ctx, ast.Load)
        for n in tree.of_kind(ast.Attribute)
    ):
        return
    for step in steps:
        given = {keyword.arg: keyword.value for keyword in step.node.keywords}
        config = given.get("config", given.get("config_params"))
        is_given = config is not None and not (
            isinstance(config, ast.Constant) and config.value is None
        )
        if step.name == "deepspeed.initialize" and is_given and _is_parsed(given.get("args"), step):
            yield (
                step,
                "DeepSpeed refuses config beside the deepspeed_config of args, which has a default",
            )
            return


def _is_parsed(args: ast.expr | None, step: ReachedCall) -> bool:
    """Whether a name is all that a parser of argparse gave, or a function that calls one."""
    found = step.scope.find(args.id) if isinstance(args, ast.Name) else None
    values = [] if found is None else [binding.value for binding in found[1]]
    called = [dotted(each.func) or "" for each in values if isinstance(each, ast.Call)]
    return len(called) == len(values) == 1 and "parse" in called[0]


# -- an option that the parser does not know -------------------------------------------------------


def _knows_old_rank(steps: Sequence[ReachedCall]) -> Iterator[ReachedCall]:
    """``add_argument("--local_rank")`` where ``parse_args`` refuses what is not declared, and nothing declares
    ``--local-rank``. DeepSpeed's own arguments have the first alone, and other libraries' parsers may have both."""
    declares = [step for step in steps if step.last == "add_argument"]
    ranks = [step for step in declares if "--local_rank" in _option_names(step)]
    knows_both = any("--local-rank" in _option_names(step) for step in declares)
    calls = {step.last for step in steps}
    if "parse_args" in calls and not calls & {"parse_known_args", "HfArgumentParser"}:
        yield from ranks[: 0 if knows_both else 1]


def _option_names(step: ReachedCall) -> set[object]:
    return {each.value for each in step.node.args if isinstance(each, ast.Constant)}
