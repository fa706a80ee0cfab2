"""Risks, doubts, causes and lengths by hand: of a run that is a plan, with estimates that are given."""

from __future__ import annotations

from math import log, sqrt
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tests.plans import LLAMA_8B, plan_of

from oomlint.datasets import Lengths, texts
from oomlint.documents.base import PythonDocument
from oomlint.documents.text import Source
from oomlint.errors import CannotEdit
from oomlint.hardware import parse_hardware, usable_bytes
from oomlint.judgement import (
    alternatives as ways,
    causes,
    doubts,
    evidence,
    lengths,
    peak,
    releases,
    unread,
    words,
)
from oomlint.judgement.change import Relief, may_survive
from oomlint.judgement.evidence import Basis
from oomlint.judgement.peak import Otherwise, Peak
from oomlint.judgement.plausible import plausible_of
from oomlint.judgement.trials import decided_from, decided_in, eased_in, elsewise, swing_of
from oomlint.linting.rule import Severity
from oomlint.memory import Bounds, DeviceEstimate, Estimate, HostEstimate, estimate as estimate_of
from oomlint.memory.build import skeleton
from oomlint.memory.result import GPU_PHASES, HOST_PHASES
from oomlint.models import resolve
from oomlint.plan import Plan, leaf_paths
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.plan.library_changes import FLATTENED_ON_HOST, NARROW_LOGITS
from oomlint.plan.model import Moe
from oomlint.runs.run import Limits

MIXED = replace(LLAMA_8B, arch="mixtral", moe=Moe(experts=8, topk=2))
GIB = 2**30
LIMIT = 80 * GIB
LEAVES: dict[str, Any] = {
    "model.dims": LLAMA_8B, "trainable.method": "full", "precision.param": "bf16",
    "precision.grad": "bf16", "precision.compute": "bf16", "batch.micro": 1, "seq.max_len": 4096,
    "parallel.backend": "none",
}  # fmt: skip
# Risks at which nothing is left of the law but its ends: a tenth of what needs little dies all the same, three
# in a hundred of what needs far more do not.
SMALL, LARGE = 0.1, 0.97


def on_gpu(**known: dict[str, float]) -> dict[str, dict[str, float]]:
    return {phase: known.get(phase, {}) for phase in GPU_PHASES}


def on_host(**known: dict[str, float]) -> dict[str, dict[str, float]]:
    return {phase: known.get(phase, {}) for phase in HOST_PHASES}


def given(gpu: int, host: int = 1, **more: Any) -> Estimate:
    return Estimate(
        gpu=DeviceEstimate(
            peak_bytes=gpu, low_bytes=gpu, high_bytes=gpu, peak_phase="backward",
            parts=on_gpu(backward={"parameters": float(gpu)}, save={"parameters": gpu / 2}), **more,
        ),
        host=HostEstimate(
            peak_bytes=host, low_bytes=host, high_bytes=host, peak_phase="train",
            parts=on_host(train={"process_overhead": float(host)}),
        ),
        disk_checkpoint_bytes=None, assumptions=(), unknown=(),
    )  # fmt: skip


LIGHT, HEAVY = given(GIB, GIB), given(2**50, 2**50)


class StandIn(SimpleNamespace):
    """What a judgement asks of a run, without files."""

    def __init__(self, plan: Plan, **told: Any) -> None:
        usual: dict[str, Any] = {
            "limits": Limits(gpu_bytes=LIMIT, host_bytes=None), "remembered": {},
            "alternatives": (), "open": {}, "is_measured": False, "attested": None, "said_to_run": (), "levels": {},
            "parts": SimpleNamespace(untold={}, changed={}, unread_program="", hardware=None), "changes": {}, "missing": (), "unreadable": (),
            "sharded": False, "settings": {}, "claims": (), "origins": {}, "estimated_by": estimate_of,
        }  # fmt: skip
        super().__init__(plan=plan, **{**usual, **told})
        self.dialect = SimpleNamespace(launcher_may_shard=self.sharded, reads_programs=False)

    @property
    def placed(self) -> StandIn:
        return self

    intended = placed

    @property
    def estimate(self) -> Estimate:
        return self.estimated_by(self.plan)

    def estimated(self, plan: Plan) -> Estimate:
        return self.estimated_by(plan)

    def assuming(self, values: Any) -> StandIn:
        # What a dialect keeps for itself is no part of the plan.
        own = {field: value for field, value in values.items() if str(field) in leaf_paths()}
        other = StandIn(self.plan.with_values(own))
        vars(other).update({k: v for k, v in vars(self).items() if k not in ("plan", "remembered")})
        other.changes = dict(values)
        return other

    what_if = assuming

    def level(self, field: Any) -> Level:
        return self.levels.get(field, Level.DEFAULT)

    def key(self, field: Any) -> str:
        return str(field)

    def roots(self, field: Any, but: Any = ()) -> tuple[Any, ...]:
        return (field,)

    def origin(self, field: Any) -> Any:
        return self.origins.get(field)

    def location(self, *fields: Any) -> Any:
        return fields

    def line_of(self, place: Any) -> int | None:
        return 7


def run(told: dict[str, Any] | None = None, **changes: Any) -> Any:
    return StandIn(plan_of(LEAVES, **changes), **(told or {}))


# -- risks ------------------------------------------------------------------------------------------------


def doubted(base: Estimate, *others: tuple[float, Estimate], **told: Any) -> Any:
    found = tuple(
        doubts.Doubt(weight, other, f"it is {n}") for n, (weight, other) in enumerate(others)
    )
    told = {"estimated_by": lambda plan: base, "remembered": {"doubts": found}, **told}
    return run(told)


@pytest.mark.parametrize(
    ("base", "others", "risk"),
    [
        (LIGHT, [], SMALL),
        (HEAVY, [], LARGE),
        # What else it may be alarms or calms by its weight.
        (LIGHT, [(0.3, HEAVY)], 0.7 * SMALL + 0.3 * LARGE),
        (HEAVY, [(0.25, LIGHT), (0.5, LIGHT)], 0.25 * LARGE + 0.75 * SMALL),
        (HEAVY, [(0.5, Estimate(DeviceEstimate(), HostEstimate(), None, (), ()))], LARGE),
        (Estimate(DeviceEstimate(), HostEstimate(), None, (), ()), [(0.5, HEAVY)], None),
    ],
)  # fmt: skip
def test_doubts_count_by_their_weight(
    base: Estimate, others: list[tuple[float, Estimate]], risk: float | None
) -> None:
    found = peak.risk_of(doubted(base, *others), "gpu")
    assert found == (None if risk is None else pytest.approx(risk, abs=1e-3))


def test_a_project_that_says_where_it_ran_is_mostly_believed() -> None:
    attested = SimpleNamespace(words="the README says that it ran on one A100")
    believed = doubted(HEAVY, attested=attested)
    assert peak.risk_of(believed, "gpu") == pytest.approx(LARGE / 9, abs=1e-3)
    assert peak.counts_as_run(believed) == attested.words
    # Of what is no risk nothing is taken off, and the machine is not said to have been large enough of RAM.
    calm = doubted(LIGHT, attested=attested)
    assert peak.risk_of(calm, "gpu") == pytest.approx(SMALL, abs=1e-3)
    assert peak.counts_as_run(calm) == ""
    assert peak.counts_as_run(doubted(HEAVY)) == ""
    limits = Limits(gpu_bytes=LIMIT, host_bytes=LIMIT)
    host = peak.risk_of(doubted(HEAVY, attested=attested, limits=limits), "host")
    assert host == pytest.approx(LARGE, abs=1e-3)
    nowhere = Limits(gpu_bytes=None, host_bytes=None)
    for resource in ("gpu", "host"):
        assert peak.risk_of(doubted(HEAVY, attested=attested, limits=nowhere), resource) is None
    assert peak.counts_as_run(doubted(HEAVY, attested=attested, limits=nowhere)) == ""


def test_the_weightiest_doubt_is_named_where_the_prediction_fits() -> None:
    larger, largest = given(200 * GIB), given(300 * GIB)
    found = peak._otherwise(doubted(LIGHT, (0.2, larger), (0.4, largest)), "gpu", None)
    assert found == Otherwise(300 * GIB, "it is 1")
    assert peak._otherwise(doubted(LIGHT, (0.4, larger), (0.2, largest)), "gpu", None) == (
        Otherwise(200 * GIB, "it is 0")
    )
    # In one phase, that phase's need.
    phase = peak._otherwise(doubted(LIGHT, (0.4, HEAVY)), "gpu", "save")
    assert phase == Otherwise(2**49, "it is 0")
    assert peak._otherwise(doubted(LIGHT, (0.01, HEAVY)), "gpu", None) is None, "no risk"
    assert peak._otherwise(doubted(HEAVY, (0.4, LIGHT)), "gpu", None) is None, "a risk by itself"
    assert peak._otherwise(doubted(LIGHT, (0.4, LIGHT)), "gpu", None) is None
    full = doubted(given(LIMIT), (0.4, HEAVY))
    assert peak._otherwise(full, "gpu", None) is None, "what it needs itself is a risk"
    limits = Limits(gpu_bytes=None, host_bytes=LIMIT)
    assert peak._otherwise(doubted(LIGHT, (0.4, HEAVY), limits=limits), "gpu", None) is None
    host = peak._otherwise(doubted(LIGHT, (0.4, HEAVY), limits=limits), "host", None)
    assert host == Otherwise(2**50, "it is 0")


PEAK = Peak(
    resource="gpu", predicted=100 * GIB, limit=None, risk=None, severity=None, confidence="high",
    phase="backward", card=None, where="a card",
    components={"logits": 20 * GIB, "activations": 4 * GIB, "engine": None},
)  # fmt: skip


def test_a_change_is_worth_a_word_from_three_hundredths_or_a_fourth_on() -> None:
    known = replace(PEAK, limit=LIMIT)
    assert (PEAK.worth, known.worth) == (25 * GIB, 3 * GIB)
    assert PEAK.share_of(("logits", "activations", "engine", "gradients")) == 24 * GIB
    assert known.may_gain_by("activations")
    assert not known.may_gain_by("engine")
    # On no card that is known a change has to spare one too.
    assert not PEAK.may_gain_by("logits")
    most = replace(PEAK, components={"logits": 60 * GIB})
    assert most.may_gain_by("logits")
    assert not replace(most, card=peak.smallest_card(40 * GIB)).may_gain_by("logits")
    assert not PEAK.overflows
    assert replace(PEAK, limit=100 * GIB - 1).overflows
    assert not replace(PEAK, limit=100 * GIB).overflows


def test_an_upper_bound_is_the_peaks_in_proportion() -> None:
    device = DeviceEstimate(peak_bytes=100, high_bytes=150)
    assert peak._upper(device, 100) == 150
    assert peak._upper(device, 50) == 75
    assert peak._upper(DeviceEstimate(peak_bytes=100), 50) is None
    assert peak._upper(DeviceEstimate(peak_bytes=0, high_bytes=1), 0) is None


def test_what_holds_it_is_said_of_what_is_not_known() -> None:
    assert PEAK.sentence == (
        "needs 100 GiB in the backward pass on a card; that is more than any common card has"
        if peak.smallest_card(100 * GIB) is None
        else PEAK.sentence
    )
    told = replace(PEAK, conditions=("x read as y", "samples of 10 tokens"))
    assert told.proviso == " (with x read as y, samples of 10 tokens)"
    assert told.context[2:] == ("reckoned with x read as y", "reckoned with samples of 10 tokens")
    assert replace(told, limit=LIMIT).context == told.context[2:]
    host = replace(PEAK, resource="host")
    assert "of host RAM a node; the host is unknown" in host.sentence
    named = replace(PEAK, card="H200-141GB").sentence
    assert named.endswith("; the smallest common card that holds it is H200-141GB")


# -- doubts -----------------------------------------------------------------------------------------------


def test_an_evaluation_set_of_unknown_size_is_one_of_three() -> None:
    keeps = {"eval__keeps_logits": True, "seq__packing": "multipack"}
    found = doubts.doubts(run(**keeps))
    assert [(each.weight, each.words) for each in found] == [
        (pytest.approx(0.9 * 7 / 20), "it evaluates 690 samples"),
        (pytest.approx(0.9 * 5 / 20), "it evaluates 2,900 samples"),
        (pytest.approx(0.9 * 8 / 20), "it evaluates 16,600 samples"),
    ]
    assert not any(each.is_of_lengths for each in found)
    for other in (
        {"eval__samples": 5}, {"eval__enabled": False}, {"eval__strategy": "no"},
        {"eval__keeps_logits": False},
    ):  # fmt: skip
        assert doubts.doubts(run(**{**keeps, **other})) == ()
    assert doubts.doubts(run({"levels": {f.eval.samples: Level.UNREAD}}, **keeps)) == ()
    assert doubts.doubts(run({"is_measured": True}, **keeps)) == ()


def test_weights_of_doubts_leave_a_tenth_to_the_prediction() -> None:
    two = [doubts.Doubt(weight, LIGHT, "") for weight in (0.3, 0.6)]
    assert list(doubts._scaled(two)) == two
    three = [doubts.Doubt(weight, LIGHT, "") for weight in (0.6, 0.9, 0.3)]
    assert [each.weight for each in doubts._scaled(three)] == pytest.approx([0.3, 0.45, 0.15])
    assert list(doubts._scaled([])) == []


def test_releases_share_their_weight_and_values_that_say_the_same_are_one_doubt() -> None:
    old, new = NARROW_LOGITS, FLATTENED_ON_HOST
    others = (((old,), SimpleNamespace(estimate=LIGHT)), ((new,), SimpleNamespace(estimate=HEAVY)))
    told = {
        "alternatives": others,
        "open": {old: True, new: False},
        "estimated_by": lambda p: LIGHT,
    }
    found = doubts.doubts(run(told, seq__packing="multipack"))
    assert [(each.weight, each.words) for each in found] == [
        (0.15, "transformers is older than 4.46"), (0.15, "deepspeed is 0.18.7 or newer"),
    ]  # fmt: skip
    assumed = {**told, "levels": {f.batch.micro: Level.ASSUMED}}
    assert len(doubts.doubts(run(assumed, seq__packing="multipack"))) == 2
    apart = {**assumed, "estimated_by": lambda p: given((p.batch.micro or 0) * 10 * GIB)}
    (value,) = doubts.doubts(run(apart, seq__packing="multipack"))[2:]
    # One micro batch of 16 beside that of one which it is taken for.
    assert (value.weight, value.words) == (pytest.approx(0.3), "batch.micro is 16")
    assert value.estimate.gpu.peak_bytes == 160 * GIB


@pytest.mark.parametrize(
    ("here", "there", "alike"),
    [(100, 102, True), (100, 98, True), (100, 103, False), (100, 97, False), (None, 1, False), (1, None, False)],
)  # fmt: skip
def test_within_a_fiftieth_estimates_are_alike(
    here: int | None, there: int | None, alike: bool
) -> None:
    one, other = (replace(LIGHT, gpu=DeviceEstimate(peak_bytes=size)) for size in (here, there))
    assert doubts._are_alike(one, other) is alike


# -- causes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("component", "changes", "code", "remedy"),
    [
        ("parameters", {"parallel__world": 2, "parallel__backend": "ddp"}, "OOM302", "share the weights"),
        ("parameters", {"parallel__world": 2, "parallel__backend": None}, "OOM302", "share the weights"),
        ("parameters", {"parallel__world": 2, "parallel__backend": "zero", "parallel__zero__stage": 2}, "OOM301",
         "share the weights"),
        ("parameters", {"parallel__world": 2, "parallel__backend": "zero", "parallel__zero__stage": 3}, "OOM105",
         "keep the weights in host RAM"),
        ("parameters", {"parallel__world": 1, "parallel__backend": "ddp"}, "OOM105", "keep the weights in host RAM"),
        ("parameters", {"parallel__world": None, "parallel__backend": "ddp"}, "OOM105", "keep the weights in host"),
        ("parameters", {"offload__params": "cpu"}, "OOM105", None),
        ("parameters", {"trainable__method": "lora"}, "OOM105", "keep the frozen base in 4 bit"),
        ("parameters", {"trainable__method": "qlora", "quant__method": "bnb4"}, "OOM105", None),
        ("parameters", {"trainable__method": "qlora", "quant__method": "bnb4", "parallel__backend": "fsdp2"}, "OOM105",
         "keep the frozen base in 4 bit"),
        ("optimizer_states", {}, "OOM201", "keep the optimizer in host RAM"),
        ("gradients", {"trainable__method": None}, "OOM105", "keep the optimizer in host RAM"),
        ("gradients", {"trainable__method": "lora"}, "OOM105", "train fewer parameters"),
        ("gradients", {"offload__optimizer": "cpu"}, "OOM105", None),
        ("activations", {"checkpointing__mode": "none"}, "OOM101", "gradient checkpointing"),
        ("activations", {"checkpointing__mode": None}, "OOM102", "gradient checkpointing"),
        ("activations", {"checkpointing__mode": "full"}, "OOM102", "shorter samples"),
        ("activations", {"checkpointing__mode": "full", "batch__micro": 2}, "OOM102", "a smaller micro batch"),
        ("activations", {"checkpointing__mode": "full", "batch__micro": None}, "OOM102", "shorter samples"),
        ("logits", {"loss__logits_materialised": "full"}, "OOM103", "a fused loss"),
        ("logits", {}, "OOM103", "fewer tokens"),
        ("engine", {"objective__rollout__sleep": True}, "OOM606", "a smaller share"),
        ("engine", {}, "OOM606", "let the engine sleep"),
        ("communication", {}, "OOM306", None),
        ("temporary", {}, "OOM206", None),
    ],
)  # fmt: skip
def test_each_part_of_a_need_has_its_rule_and_its_remedy(
    component: str, changes: dict[str, Any], code: str, remedy: str | None
) -> None:
    plan = plan_of(LEAVES, **changes)
    part = causes._part(plan, "gpu", component)
    assert part is not None
    assert part.code == code
    found = part.remedy(plan)
    assert (found or "").startswith(remedy or "\0") or found is remedy


@pytest.mark.parametrize(
    ("component", "changes", "remedy"),
    [
        ("model_copies", {}, "load the model once a node, or on the meta device"),
        ("offloaded_states", {"offload__params": "cpu"}, "offload the optimizer alone"),
        ("pinned_rounding", {}, "keep the optimizer's states in 8 bit, or on the GPUs"),
        ("gather", {}, None),
    ],
)
def test_parts_of_host_ram(component: str, changes: dict[str, Any], remedy: str | None) -> None:
    plan = plan_of(LEAVES, **changes)
    part = causes._part(plan, "host", component)
    assert part is not None
    assert part.remedy(plan) == remedy
    assert causes._part(plan, "host", "activations") is None
    assert causes._part(plan, "gpu", "context") is None


def test_causes_are_parts_of_eight_hundredths_and_more_the_largest_first() -> None:
    parts = {
        "activations": 8.0,
        "logits": 7.0,
        "parameters": 50.0,
        "context": 35.0,
        "gradients": 0.0,
    }
    gpu = DeviceEstimate(peak_bytes=100, peak_phase="backward", parts=on_gpu(backward=parts))
    host = HostEstimate(
        peak_bytes=100,
        peak_phase="train",
        parts=on_host(train={"dataset": 9.0, "process_overhead": 91.0}),
    )
    found = replace(LIGHT, gpu=gpu, host=host)
    stand_in = run({"estimated_by": lambda plan: found})
    at = replace(PEAK, predicted=100)
    assert [(c.component, c.size, c.line) for c in causes.causes_of(stand_in, at)] == [
        ("parameters", 50, 7), ("activations", 8, 7),
    ]  # fmt: skip
    (other,) = causes.causes_of(stand_in, replace(at, resource="host", phase="train"))
    assert (other.component, other.words) == ("dataset", "dataset")


# -- lengths ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "coming"),
    [
        ({"seq__packing": "multipack"}, "filled"),
        ({"seq__pad": "max_len"}, "filled"),
        ({}, "padded"),
        ({"seq__pad": "longest"}, "padded"),
        ({"seq__pad": "none"}, "padded"),
        ({"seq__pad": "none", "batch__micro": 2}, "joined"),
        ({"seq__pad": "none", "batch__micro": None}, "padded"),
        ({"seq__packing": "varlen", "batch__micro": 2}, "joined"),
        ({"seq__packing": "varlen"}, "padded"),
        ({"seq__pad": "none", "seq__packing": "multipack", "batch__micro": 2}, "filled"),
        ({"batch__max_tokens_per_gpu": 1, "seq__packing": "multipack"}, "budgeted"),
    ],
)
def test_how_samples_come_together(changes: dict[str, Any], coming: str) -> None:
    assert lengths.coming_together(run(**changes)) == coming


def test_the_fullest_batch_is_the_largest_of_so_many_means() -> None:
    """1,000 samples of 100 on the mean, deviation 50: none is much above 100 + 50 sqrt(2 ln 1000), and the largest of
    ten means of a hundred is 100 + 50 sqrt(2 ln 10 / 100)."""
    known = Lengths(
        names=("x",), samples=1000, mean=100, deviation=50, longest=400, language="en", source="", date=""
    )  # fmt: skip
    reached = 100 + 50 * sqrt(2 * log(1000))
    assert known.reached == pytest.approx(reached)
    assert lengths._fullest_of(known, 1) == 1
    assert lengths._fullest_of(known, 2) == pytest.approx((100 + 50 * sqrt(log(500))) / reached)
    assert lengths._fullest_of(known, 100) == pytest.approx(
        (100 + 50 * sqrt(2 * log(10) / 100)) / reached
    )
    # Of fewer than two batches as of two.
    assert lengths._fullest_of(known, 900) == pytest.approx(
        (100 + 50 * sqrt(2 * log(2) / 900)) / reached
    )
    cut = replace(known, longest=200)
    assert lengths._fullest_of(cut, 100) == pytest.approx(
        (100 + 50 * sqrt(2 * log(10) / 100)) / 200
    )
    assert lengths._fullest_of(cut, 2) == 1
    assert [list(group) for group in lengths._grouped(range(10))] == [
        [0, 1], [2, 3, 4], [5, 6, 7], [8, 9],
    ]  # fmt: skip
    assert len(lengths.fullest(4)) == 4


@pytest.mark.parametrize(
    ("changes", "several", "together"),
    [
        ({}, False, 1),
        ({"seq__pad": "none", "batch__micro": 8, "batch__grad_accum": 4}, True, 8),
        ({"batch__max_tokens_per_gpu": 8192, "batch__micro": 8, "batch__grad_accum": 4}, True, 32),
        ({"batch__max_tokens_per_gpu": 8192, "batch__micro": 1, "batch__grad_accum": None}, False, 1),
        ({"batch__max_tokens_per_gpu": 8192, "batch__micro": None, "batch__grad_accum": 2}, True, 2),
        ({"batch__micro": 8}, False, 8),
    ],
)  # fmt: skip
def test_how_many_samples_decide(changes: dict[str, Any], several: bool, together: int) -> None:
    found = run(**changes)
    assert (lengths.takes_several(found), lengths._together(found)) == (several, together)


BUDGET: dict[str, Any] = {
    "batch__max_tokens_per_gpu": 8192, "batch__micro": 2, "batch__grad_accum": 2,
}  # fmt: skip


def test_shares_of_what_samples_may_have() -> None:
    half = lengths._filled_to(run(), 0.5)
    assert half.changes == {f.seq.max_len: 2048}
    assert lengths._filled_to(run(), 1e-9).changes == {f.seq.max_len: 1}
    # Four samples of 1,024 together leave a budget of 8,192 half empty; of 2,048 they fill it.
    part = lengths._filled_to(run(**BUDGET), 0.25)
    assert part.changes == {f.seq.max_len: 1024, f.batch.max_tokens_per_gpu: 4096}
    assert lengths._filled_to(run(**BUDGET), 0.5) is None
    for told, left in ((6000, 4096), (1000, 1000)):
        scored = lengths._filled_to(run(**BUDGET, objective__rollout__scored_tokens=told), 0.25)
        assert scored.changes[f.objective.rollout.scored_tokens] == left


@pytest.mark.parametrize(
    ("changes", "short"),
    [
        ({}, {f.seq.max_len: 1024}),
        ({"seq__max_len": 2000}, {f.seq.max_len: 500}),
        ({"seq__max_len": 100_000}, {f.seq.max_len: 1024}),
        ({"seq__packing": "multipack"}, None),
        ({"seq__max_len": None}, None),
        # All four samples of a step are fewer tokens than one micro batch may have.
        (BUDGET, {f.batch.max_tokens_per_gpu: 4096, f.batch.grad_accum: 1}),
        ({**BUDGET, "batch__max_tokens_per_gpu": 4096}, None),
        ({**BUDGET, "batch__micro": None}, None),
        ({**BUDGET, "batch__grad_accum": None}, None),
        # Of a rollout the prompts alone may all be short.
        (
            {"objective__rollout__max_prompt_tokens": 2048, "objective__rollout__max_completion_tokens": 2000},
            {f.seq.max_len: 2512, f.objective.rollout.max_prompt_tokens: 512},
        ),
    ],
)  # fmt: skip
def test_short_samples(changes: dict[str, Any], short: dict[Any, Any] | None) -> None:
    found = lengths.short_samples(run(**changes))
    assert (None if found is None else found.changes) == short


def test_joined_samples_are_as_full_as_data_sets_make_them() -> None:
    joined = {"seq__pad": "none", "batch__micro": 8}
    found = list(lengths.otherwise_long(run(**joined)))
    # Four groups of data sets, of each three fourths reach the limit and a fourth a quarter of it.
    assert [weight for weight, *_ in found] == [0.75 / 4, 0.25 / 4] * 4
    assert sum(weight for weight, *_ in found) == 1
    shares = lengths.fullest(8)
    assert [each.plan.seq.max_len for _, each, _ in found][::2] == [int(4096 * s) for s in shares]
    assert [each.plan.seq.max_len for _, each, _ in found][1::2] == [int(1024 * s) for s in shares]
    known = list(lengths.otherwise_long(run(**joined, seq__longest=4000)))
    assert [weight for weight, *_ in known] == [1 / 4] * 4
    assert list(lengths.otherwise_long(run(seq__packing="multipack"))) == []
    assert list(lengths.otherwise_long(run(seq__max_len=None))) == []
    assert list(lengths.otherwise_long(run(seq__longest=3000))) == []


def test_padded_samples_are_as_long_as_the_longest_of_data_sets() -> None:
    found = list(lengths.otherwise_long(run(seq__max_len=100_000)))
    assert [weight for weight, *_ in found] == [0.5 / 4] * len(found)
    assert [words for *_, words in found] == [
        f"no sample has more than {each.plan.seq.max_len:,} tokens" for _, each, _ in found
    ]
    prompts = {
        "objective__rollout__max_prompt_tokens": 400,
        "objective__rollout__max_completion_tokens": 600,
    }
    ((weight, short, words_),) = lengths.otherwise_long(run(**prompts))
    assert (weight, words_) == (0.25, "no sample has more than 700 tokens")
    assert short.changes[f.objective.rollout.max_prompt_tokens] == 100


def test_a_run_with_samples_as_short_as_any() -> None:
    shortest = lengths._shortest_longest()
    assert 0 < shortest < 4096
    assert lengths.as_short_as_any(run()).changes == {f.seq.max_len: shortest}
    assert lengths.as_short_as_any(run(seq__max_len=shortest)) is None
    assert lengths.as_short_as_any(run(seq__packing="multipack")) is None
    assert lengths.as_short_as_any(run(seq__longest=3000)) is None
    # Without any limit a run is predicted at an assumed one.
    assert lengths.as_short_as_any(run(seq__max_len=None)).plan.seq.max_len == shortest
    joined = {"seq__pad": "none", "batch__micro": 8}
    known = lengths.as_short_as_any(run(**joined, seq__longest=4096))
    assert known.plan.seq.max_len == int(4096 * min(lengths.fullest(8)))
    assert lengths.as_short_as_any(run(**joined)).plan.seq.max_len in (shortest, shortest - 1)
    rollout = {
        "objective__rollout__max_prompt_tokens": 1000,
        "objective__rollout__max_completion_tokens": 3096,
    }
    for alone in rollout:
        one = lengths.as_short_as_any(run(**{alone: rollout[alone]}))
        assert one.changes == {f.seq.max_len: shortest}
    found = lengths.as_short_as_any(run(**rollout))
    parts = found.plan.objective.rollout
    assert (parts.max_prompt_tokens, parts.max_completion_tokens) == (
        shortest // 2, shortest - shortest // 2,
    )  # fmt: skip


def test_too_many_tokens_each_are_found_by_halves() -> None:
    """Half the limit fits and no more: after six halvings within a sixty-fourth of it, in tens or hundreds."""
    joined = {"seq__pad": "none", "batch__micro": 8}

    def fits_up_to(most: int) -> Any:
        return {"estimated_by": lambda plan: LIGHT if (plan.seq.max_len or 0) <= most else HEAVY}

    assert lengths.too_many_each(run(fits_up_to(2048), **joined), None, LIMIT) == 2100
    assert lengths.too_many_each(run(fits_up_to(1000), **joined), None, LIMIT) == 1000
    assert lengths.too_many_each(run(fits_up_to(0), **joined), None, LIMIT) is None
    assert lengths.too_many_each(run(fits_up_to(2048)), None, LIMIT) is None
    small = run(fits_up_to(500), **joined, seq__max_len=1000)
    assert lengths.too_many_each(small, None, LIMIT) == 520
    whole = run(fits_up_to(512), seq__pad="none", batch__micro=8, seq__max_len=1024)
    assert lengths.too_many_each(whole, None, LIMIT) == 500


@pytest.mark.parametrize(
    ("host", "ram", "depends"),
    [(10, None, True), (10, 20, True), (20, 20, True), (21, 20, False), (None, 20, True)],
)
def test_data_decide_where_ram_is_enough(host: int | None, ram: int | None, depends: bool) -> None:
    def estimated(plan: Plan) -> Estimate:
        return given(GIB if (plan.seq.max_len or 0) < 4096 else 2**50, host or 1)

    def without(plan: Plan) -> Estimate:
        return replace(estimated(plan), host=HostEstimate())

    told = {
        "estimated_by": estimated if host else without,
        "limits": Limits(gpu_bytes=LIMIT, host_bytes=ram),
    }
    assert lengths.depends_on_data(run(told, seq__pad="none", batch__micro=8)) is depends
    assert not lengths.depends_on_data(run(told))


def test_samples_are_usually_as_long_as_those_of_their_sets() -> None:
    """51,760 samples of 177.9 tokens and 1,866 of 1,144.3."""
    small, large = "yahma/alpaca-cleaned", "huangjintao/agentinstruct_copy"
    varied: dict[str, Any] = {"seq__pad": "longest", "batch__micro": 4}

    def usual(*sets: str, **changes: Any) -> int | None:
        return lengths.usual_length(run(**{**varied, "data__sets": sets, **changes}))

    assert (usual(small), usual(large), usual(small, large)) == (178, 1144, 212)
    # Of a set that nobody knows: the median of those of text that are known.
    means = sorted(each.mean for each in texts())
    below = sum(mean < (usual("ours/own") or 0) - 0.5 for mean in means)
    assert (
        below <= len(means) / 2 <= below + sum(round(mean) == usual("ours/own") for mean in means)
    )
    assert usual() == usual("ours/own") == usual(small, "ours/own")
    assert usual(small, seq__packing="bfd") is None
    assert usual(small, objective__kind="grpo") is None


# -- evidence ---------------------------------------------------------------------------------------------


def test_what_a_field_moves_is_tried_at_what_it_plausibly_is() -> None:
    told = {"estimated_by": lambda plan: given((plan.batch.micro or 0) * GIB)}
    assert list(evidence.moves(run(told, batch__micro=4), f.batch.micro)) == [
        (4, 4 * GIB), (1, GIB), (16, 16 * GIB),
    ]  # fmt: skip
    assert list(evidence.moves(run(told), f.batch.micro)) == [(1, GIB), (16, 16 * GIB)]
    assert list(evidence.moves(run(told, batch__micro=None), f.batch.micro)) == [
        (1, GIB), (16, 16 * GIB),
    ]  # fmt: skip
    assert list(evidence.moves(run(told), f.seed)) == [] if hasattr(f, "seed") else True
    nothing = {
        "estimated_by": lambda plan: Estimate(DeviceEstimate(), HostEstimate(), None, (), ())
    }
    assert list(evidence.moves(run(nothing), f.batch.micro)) == []


def test_groups_and_sizes_are_tried_by_what_the_run_says() -> None:
    each = f.objective.pairs_per_sample
    assert plausible_of(run(objective__rollout__n=6), each) == ({each: 1}, {each: 6})
    assert plausible_of(run(), each) == ()
    dims = f.model.dims
    sized = run(model__dims=replace(LLAMA_8B, params_total=7_000_000_000), model__id="ours-7b")
    tried = [change[dims] for change in plausible_of(sized, dims)]
    assert [(d.vocab, d.params_total) for d in tried] == [
        (32_000, 7_000_000_000), (152_064, 7_000_000_000),
    ]  # fmt: skip
    assert plausible_of(run(), dims) == ()
    assert plausible_of(run(model__dims=None), dims) == ()
    # A shape that is said leaves its vocabulary open; of one that nobody says nothing is tried.
    made = {"levels": {dims: Level.ASSUMED}, "roots": lambda field, but=(): ()}
    shapes = [change[dims] for change in plausible_of(run(made), dims)]
    assert {shape.hidden for shape in shapes} == {LLAMA_8B.hidden}
    assert len({shape.vocab for shape in shapes}) == len(shapes) > 1
    assert plausible_of(run(made, model__dims=None), dims) == ()


def test_a_published_model_is_not_tried_with_another_vocabulary() -> None:
    """Else its own count of parameters would not be that of its shape: layers of BERT without a single weight."""
    dims = f.model.dims
    told = {"levels": {dims: Level.ASSUMED}, "roots": lambda field: (f.model.id,)}
    shape = replace(LLAMA_8B, params_total=None)
    tried = [change[dims].vocab for change in plausible_of(run(told, model__dims=shape), dims)]
    assert tried == [256, 152_064]
    bert = resolve("bert-base-uncased", read=lambda path: None).dims
    for change in plausible_of(run(told, model__dims=bert), dims):
        layers = [each for block in skeleton(change[dims]).blocks for each in block.linears]
        assert all(each.outputs for each in layers)


def test_swings_and_what_is_needed_otherwise() -> None:
    three = [given(5, 50), given(9, 50), given(7, 40)]
    nobody = Estimate(DeviceEstimate(), HostEstimate(), None, (), ())
    assert swing_of([*three, nobody]) == 4
    assert swing_of([nobody]) is None
    assert elsewise([*three, nobody], {"gpu": 5, "host": 50}) == {
        "gpu": (7, 9), "host": (40, 40),
    }  # fmt: skip
    assert elsewise([given(5, 50)], {"gpu": 5, "host": 50}) == {}


@pytest.mark.parametrize(
    ("estimates", "decided", "eased"),
    [
        ([LIGHT, HEAVY], {"gpu"}, set()),
        ([HEAVY, LIGHT], {"gpu"}, {"gpu"}),
        ([LIGHT, LIGHT], set(), set()),
        ([HEAVY, HEAVY], set(), set()),
        ([], set(), set()),
    ],
)
def test_what_decides_and_what_eases(
    estimates: list[Estimate], decided: set[str], eased: set[str]
) -> None:
    assert decided_in(run(), estimates) == decided
    assert eased_in(run(), estimates) == eased
    # Where nobody says which GPU, the largest that most have; of RAM then nothing.
    nowhere = run({"limits": Limits(gpu_bytes=None, host_bytes=None)})
    assert decided_in(nowhere, estimates) == decided
    ram = run({"limits": Limits(gpu_bytes=2**60, host_bytes=LIMIT)})
    assert decided_in(ram, estimates) == ({"host"} if decided else set())


def test_what_dies_with_some_risk_by_the_run_itself() -> None:
    heavy = run({"estimated_by": lambda plan: HEAVY})
    assert decided_from(heavy, 0.97) == set()
    assert decided_from(heavy, 0.9) == {"gpu"}
    assert decided_from(run({"estimated_by": lambda plan: LIGHT}), 0.2) == set()


BASIS = Basis(
    field=f.batch.micro, leaf=f.batch.micro, subject=f.batch.micro, value=4, level=Level.ASSUMED,
    why="", path=None, line=None, key="micro_batch_size", swing_bytes=None,
    otherwise={"gpu": (46 * GIB, 133 * GIB), "host": (20 * GIB, 20 * GIB)}, decides=frozenset({"gpu"}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "micro_batch_size is assumed to be 4"),
        ({"value": None}, "nobody says micro_batch_size"),
        ({"level": Level.UNREAD}, "micro_batch_size was not read"),
        (
            {"is_stated": True, "path": "a.sh"},
            "a.sh is taken to count for this run, which no file says",
        ),
        ({"is_stated": True}, "micro_batch_size is assumed to be 4"),
        ({"subject": f.model.dims, "value": "7B"}, "the model is assumed to have 7B parameters"),
        ({"subject": f.load.dtype, "value": "fp32"}, "loading dtype is assumed to be fp32"),
    ],
)
def test_bases_in_words(changes: dict[str, Any], said: str) -> None:
    assert words.basis_words(replace(BASIS, **changes)) == said


def test_amounts_of_other_values_in_words() -> None:
    assert words.elsewise(BASIS, None) == "; otherwise 46.0 to 133 GiB"
    assert words.elsewise(BASIS, replace(PEAK, resource="host")) == "; otherwise 20.0 GiB"
    assert words.elsewise(replace(BASIS, otherwise={}), None) == ""


def test_what_was_not_read_is_named_up_to_three() -> None:
    found = [replace(BASIS, level=Level.UNREAD, why=f"${name} has no value") for name in "abcde"]
    named = evidence.Evidence(Level.UNREAD, tuple(found[:3]))
    assert evidence.left_open(named) == "$a has no value, $b has no value and $c has no value"
    four = evidence.left_open(evidence.Evidence(Level.UNREAD, tuple(found[:4])))
    assert four == "$a has no value, $b has no value and 2 more were not read"
    harmless = replace(found[0], decides=frozenset())
    assert evidence.left_open(evidence.Evidence(Level.UNREAD, (harmless, BASIS))) == ""
    twice = evidence.Evidence(Level.UNREAD, (found[0], found[0]))
    assert evidence.left_open(twice) == "$a has no value"


def test_a_risk_says_on_what_it_hangs() -> None:
    risky = replace(PEAK, limit=LIMIT, risk=0.97, predicted=100 * GIB, is_problem=True)
    assert words.need(risky).endswith(" (risk 97 %)")
    guessed = replace(risky, is_problem=False)
    assert words.need(guessed).endswith(" (risk 97 % as assumed)")
    # What is rather not the case says already by what other reading it is at risk.
    assert words.need(replace(guessed, risk=0.4)).endswith(" (risk 40 %)")
    full = replace(guessed, is_up_to_data=True)
    assert words.need(full).endswith(" (risk 97 % with samples of full length)")


def test_titles_drop_when_it_is_needed_first() -> None:
    risky = replace(PEAK, limit=LIMIT, risk=0.7, predicted=100 * GIB, is_problem=True)
    assert words.short_need(risky, as_meant=False, most=200) == (
        "needs 100 of 80.0 GiB per GPU in the backward pass (risk 70 %)"
    )
    assert (
        words.short_need(risky, as_meant=False, most=45)
        == "needs 100 of 80.0 GiB per GPU (risk 70 %)"
    )
    assert words.short_need(risky, as_meant=True, most=200) == (
        "needs 100 of 80.0 GiB per GPU as meant (risk 70 %)"
    )
    open_ = words.short_need(risky, as_meant=False, is_open=True, most=200)
    assert open_ == "would need 100 of 80.0 GiB per GPU in the backward pass"
    # From a fifth of room on the upper bound is what is at risk.
    bound = replace(risky, predicted=63 * GIB, upper=90 * GIB)
    assert "63.0 to 90.0 of 80.0 GiB" in words.need(bound)
    assert "65.0 of 80.0 GiB" in words.need(replace(bound, predicted=65 * GIB))
    assert "of host RAM a node" in words.need(replace(risky, resource="host"))


def test_cards_and_limits_in_words() -> None:
    from oomlint.judgement.cards import cards_that_hold

    a100 = parse_hardware("1xA100-80GB")
    forecast = SimpleNamespace(host_limit=None)
    usable = usable_bytes(a100.gpu) / GIB
    assert words.limits(forecast, a100) == f"({usable:.1f} GiB usable per GPU)"  # type: ignore[arg-type]
    forecast.host_limit = 512 * GIB
    assert words.limits(forecast, a100) == f"({usable:.1f} GiB usable per GPU, 512 GiB per host)"  # type: ignore[arg-type]
    first, *_ = cards_that_hold(40 * GIB)
    assert first.name in words._cards(40 * GIB)
    sizes = {
        card.nameplate_gb
        for card in cards_that_hold(40 * GIB)
        if card.name in words._cards(40 * GIB)
    }
    assert sizes == {first.nameplate_gb}
    assert words._cards(2**50) == "no common card holds it"


def test_a_larger_card_has_more_than_a_twentieth_more() -> None:
    from oomlint.judgement.cards import cards_that_hold

    def above(name: str, need: int = GIB) -> str:
        beyond = usable_bytes(parse_hardware(f"1x{name}").gpu)
        return cards_that_hold(need, beyond=beyond)[0].name

    # 14.56 GiB are usable of a T4, of others as its name says 15.57 (7 % more) and 15.75; of two cards of 24 GB 22.00
    # and 22.03, then 23.52, which is 7 % more too; an A100 and an H100 differ by a thousandth.
    assert above("T4-16GB") == "RTX-4080-16GB"
    assert above("A10G-24GB") == "RTX-4090-24GB"
    assert above("A100-80GB") == "H200-141GB"
    # A twentieth of the card stays free of what the run needs.
    assert above("T4-16GB", int(0.96 * 15.57 * GIB)) == "V100-16GB"
    assert above("T4-16GB", int(0.94 * 15.57 * GIB)) == "RTX-4080-16GB"


# -- releases ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("here", "there", "moved"),
    [
        (100 * GIB, 102 * GIB, True), (100 * GIB, 100 * GIB + GIB // 2, False), (100 * GIB, 98 * GIB, True),
        (GIB, GIB + GIB // 20, False), (GIB, GIB + GIB // 5, True), (None, GIB, False), (GIB, None, False),
    ],
)  # fmt: skip
def test_a_hundredth_or_a_tenth_of_a_gib_is_worth_a_word(
    here: int | None, there: int | None, moved: bool
) -> None:
    assert bool([*releases._differing([("per GPU", here, there)])]) is moved


def test_bounds_cover_those_of_other_releases() -> None:
    own = replace(
        given(100).gpu,
        low_bytes=90,
        high_bytes=110,
        allocated=Bounds(80, 105),
        reserved=Bounds(85, 120),
        at_first_sight=Bounds(50, 170),
    )
    other = replace(
        own,
        low_bytes=70,
        high_bytes=100,
        allocated=Bounds(60, 90),
        reserved=Bounds(90, 140),
        at_first_sight=Bounds(40, 160),
    )
    both = releases._covering(own, other)
    assert (both.low_bytes, both.high_bytes) == (70, 110)
    assert (both.allocated, both.reserved) == (Bounds(60, 105), Bounds(85, 140))
    assert both.told == Bounds(40, 170)
    assert releases._covering(own, replace(other, low_bytes=None)) == own
    assert releases._covering(own, replace(other, allocated=None)).allocated == own.allocated
    host = HostEstimate(peak_bytes=5, low_bytes=4, high_bytes=6)
    assert releases._covering(host, replace(host, low_bytes=3)).low_bytes == 3
    assert releases._covering(host, replace(host, high_bytes=9)) == replace(host, high_bytes=9)
    unknown = replace(host, high_bytes=None)
    assert releases._covering(host, unknown) == host
    assert releases._covering(unknown, host) == unknown


def test_what_is_saved_counts_where_the_peaks_are_the_same() -> None:
    assert releases._moved(given(10 * GIB), given(20 * GIB)) == [
        "20.0 GiB per GPU instead of 10.0 GiB"
    ]
    saving = replace(
        given(10 * GIB),
        gpu=replace(given(10 * GIB).gpu, parts=on_gpu(save={"temporary": 8.0 * GIB})),
    )
    assert releases._moved(given(10 * GIB), saving) == [
        "8.0 GiB per GPU while saving instead of 5.0 GiB"
    ]
    assert releases._moved(given(10 * GIB), given(10 * GIB)) == []


# -- judging ----------------------------------------------------------------------------------------------

KNOWN: dict[str, Any] = {
    "model": SimpleNamespace(confidence="verified"), "misspelt": (), "nearest_measured": None,
    "hardware": parse_hardware("1xA100-80GB"), "estimated_by": lambda plan: LIGHT,
}  # fmt: skip


@pytest.mark.parametrize(
    ("told", "changes", "confidence"),
    [
        ({}, {}, "high"),
        ({"model": None}, {}, "low"),
        ({"model": SimpleNamespace(confidence="guessed")}, {}, "low"),
        ({"model": SimpleNamespace(confidence="declared")}, {}, "medium"),
        ({"missing": ("ds.json",)}, {}, "low"),
        ({"unreadable": ("x",)}, {}, "medium"),
        ({"estimated_by": lambda plan: replace(LIGHT, assumptions=("x",))}, {}, "medium"),
        # bitsandbytes packs experts or not, by the release of transformers.
        ({}, {"quant__method": "bnb4", "model__dims": MIXED}, "low"),
        ({}, {"quant__method": "bnb8", "model__dims": MIXED}, "low"),
        ({}, {"quant__method": "bnb4", "model__dims": MIXED, "versions": {"transformers": "5.0"}}, "high"),
        ({}, {"quant__method": "bnb4", "model__dims": MIXED, "quant__quantises_moe_experts": True}, "high"),
        # Llama-4's are one parameter in each, and Kimi-VL's own code has linear layers.
        ({}, {"quant__method": "bnb4", "model__dims": MIXED, "model__arch": "llama4"}, "high"),
        ({}, {"quant__method": "bnb4", "model__dims": MIXED, "model__arch": "kimi_vl"}, "high"),
        ({}, {"quant__method": "bnb4"}, "high"),
        ({}, {"quant__method": "gptq", "model__dims": MIXED}, "high"),
        ({}, {"quant__method": "nvfp4", "model__dims": MIXED}, "low"),
        ({}, {"quant__method": "nvfp4"}, "high"),
        ({}, {"quant__method": "nvfp4", "model__dims": None}, "high"),
    ],
)  # fmt: skip
def test_confidence_is_what_facts_leave(
    told: dict[str, Any], changes: dict[str, Any], confidence: str
) -> None:
    assert doubts.confidence(run({**KNOWN, **told}, **changes)) == confidence


def test_a_change_that_nobody_can_write_saves_no_run() -> None:
    changes = {f.checkpointing.mode: "full"}
    assert may_survive(run(KNOWN), changes)
    assert not may_survive(run({**KNOWN, "estimated_by": lambda plan: HEAVY}), changes)

    def refuses(_changes: Any) -> Any:
        raise CannotEdit("no key says that")

    assert not may_survive(run({**KNOWN, "what_if": refuses}), changes)


def judged(base: Estimate, *, phase: str | None = None, **told: Any) -> Peak | None:
    remembered = {"doubts": (), "rests_on": ()}
    return peak.judge_gpu(
        run({**KNOWN, "estimated_by": lambda plan: base, "remembered": remembered, **told}),
        phase=phase,
    )


def test_a_gpu_is_judged_by_its_peak_or_by_one_phase() -> None:
    found = judged(replace(given(20 * GIB), gpu=replace(given(20 * GIB).gpu, high_bytes=30 * GIB)))
    assert found is not None
    assert (found.predicted, found.limit, found.phase) == (20 * GIB, LIMIT, "backward")
    assert (found.upper, found.where, found.holds) == (30 * GIB, "an A100-80GB", True)
    assert (found.severity, found.otherwise, found.conditions) == (None, None, ())
    assert found.risk == pytest.approx(SMALL, abs=1e-3)
    assert found.card == peak.smallest_card(20 * GIB)
    saving = judged(given(20 * GIB), phase="save")
    assert saving is not None
    assert (saving.predicted, saving.phase, saving.upper) == (10 * GIB, "save", 10 * GIB)
    nobody = Estimate(DeviceEstimate(), HostEstimate(), None, (), ())
    assert judged(nobody) is None
    assert judged(nobody, phase="save") is None


def test_what_surely_dies_is_an_error_and_up_to_data_a_remark() -> None:
    dies = judged(HEAVY)
    assert dies is not None
    assert (dies.severity, dies.holds, dies.is_up_to_data) == (Severity.ERROR, False, False)

    def long(plan: Plan) -> Estimate:
        return HEAVY if (plan.seq.max_len or 0) > 2000 else LIGHT

    found = judged(HEAVY, estimated_by=long)
    assert found is not None
    assert (found.severity, found.is_up_to_data) == (Severity.INFO, True)
    assert found.conditions == ("samples of 4,096 tokens",)


@pytest.mark.parametrize(("size", "severity"), [(GIB, Severity.INFO), (2**50, Severity.WARNING)])
def test_without_hardware_a_run_is_held_against_what_most_have(
    size: int, severity: Severity
) -> None:
    nowhere = Limits(gpu_bytes=None, host_bytes=None)
    found = judged(given(size), limits=nowhere, hardware=None)
    assert found is not None
    assert (found.severity, found.risk, found.limit, found.holds) == (severity, None, None, False)
    assert found.where == "unknown hardware"
    host = peak.judge_host(run({**KNOWN, "limits": nowhere, "remembered": {"doubts": ()}}))
    assert host is not None
    assert (host.severity, host.risk, host.where, host.holds) == (
        None,
        None,
        "an unknown host",
        False,
    )


def test_a_host_is_judged_like_a_gpu() -> None:
    ram = Limits(gpu_bytes=LIMIT, host_bytes=LIMIT)
    for base, holds, severity in ((LIGHT, True, None), (HEAVY, False, Severity.ERROR)):
        told = {
            **KNOWN, "limits": ram, "estimated_by": lambda plan, base=base: base,
            "remembered": {"doubts": (), "rests_on": ()},
        }  # fmt: skip
        found = peak.judge_host(run(told))
        assert found is not None
        assert (found.holds, found.severity, found.phase) == (holds, severity, "train")
        assert found.where == "a host with 80.0 GiB of RAM"
        assert (found.card, found.upper) == (None, base.host.peak_bytes)
        loading = peak.judge_host(
            run({**told, "remembered": {"doubts": (), "rests_on": ()}}), phase="load"
        )
        assert loading is not None
        assert (loading.predicted, loading.phase) == (0, "load")


def test_needs_at_one_instant_are_as_uncertain_as_the_peak() -> None:
    known = run({**KNOWN, "limits": Limits(gpu_bytes=LIMIT, host_bytes=LIMIT)})
    assert not peak.exceeds(known, "gpu", GIB)
    assert peak.exceeds(known, "gpu", 2**50)
    assert peak.exceeds(known, "host", 2**50)
    assert peak.severity_of_need(known, "gpu", GIB) is None
    assert peak.severity_of_need(known, "host", 2**50) is Severity.ERROR
    nowhere = run({**KNOWN, "limits": Limits(gpu_bytes=None, host_bytes=None)})
    for resource in ("gpu", "host"):
        assert not peak.exceeds(nowhere, resource, 2**50)
        assert peak.severity_of_need(nowhere, resource, 2**50) is None


# -- what was not read ------------------------------------------------------------------------------------


def written(text: str, **told: Any) -> Any:
    """A value that stands in a file, which nothing else is known of."""
    source = SimpleNamespace(text=text)
    block = SimpleNamespace(
        level=Level.STATED,
        doubt="",
        document=SimpleNamespace(source=source, commands=()),
        anchor=None,
    )
    value = SimpleNamespace(span=SimpleNamespace(start=0, end=len(text)))
    entry = SimpleNamespace(key="tp", key_span=None, value=value)
    usual = {
        "block": block, "entry": entry, "source": "", "location": SimpleNamespace(path="a.sh"),
        "row": SimpleNamespace(field=f.parallel.tp),
    }  # fmt: skip
    return SimpleNamespace(**{**usual, **told})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("$TP", "$TP has no value"),
        ("${TP}", "$TP has no value"),
        ("${TP:-8}", "$TP has no value"),
        ("$1", "$1 is known only when the script runs"),
        ("${1}", "$1 is known only when the script runs"),
        ("$(nproc)", "parallel.tp in a.sh:7 is known only when it runs"),
        ("${oc.env:TP}", "parallel.tp in a.sh:7 is known only when it runs"),
    ],
)
def test_why_a_value_is_not_known(text: str, said: str) -> None:
    assert unread.in_words(run({"origins": {f.parallel.tp: written(text)}}), f.parallel.tp) == said
    nowhere = {"origins": {f.parallel.tp: written(text, location=None)}}
    assert unread.in_words(run(nowhere), f.parallel.tp) == said.replace(" in a.sh:7", "")


def test_why_a_whole_file_or_program_was_not_read() -> None:
    def said(origin: Any, program: str = "", field: Any = f.parallel.tp, **changes: Any) -> str:
        parts = SimpleNamespace(untold={}, changed={}, unread_program=program)
        return unread.in_words(run({"origins": {field: origin}, "parts": parts}, **changes), field)

    doubted_ = written("$TP")
    doubted_.block.doubt = "a.sh is not known to be run"
    assert said(doubted_) == "a.sh is not known to be run"
    assert unread.lost_with_all(run(), f.parallel.tp) == ""
    assert said(written("x", source="ours is not read"), "ours is not read") == "ours is not read"
    lost = run({"origins": {f.parallel.tp: written("x", source="other")}})
    assert unread.lost_with_all(lost, f.parallel.tp) == ""
    assert said(written("x", source="a reason")) == "a reason"
    assert said(None) == "parallel.tp is not known"
    assert said(written("x", block=None)) == "parallel.tp is not known"
    assert said(written("x", entry=None, source="a reason")) == "a reason"
    assert said(written("x", block=None, source="a reason")) == "a reason"
    launched = written("x")
    launched.block.level = Level.UNREAD
    assert said(launched) == "no file says for certain how it is started"
    called = written("LoraConfig(r=8)", row=None)
    called.block.document = PythonDocument(Source("a.py", "LoraConfig(r=8)"))
    called.entry.key, called.entry.key_span = "LoraConfig", called.entry.value.span
    assert said(called) == "LoraConfig is called in a branch that only running takes"
    assert said(None, field=f.model.id, model__id="a/b") == "there is no config.json of a/b here"
    assert said(None, field=f.model.id) == "model.id is not known"


# -- reliefs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "severity", "suffices"),
    [
        # On a known card: what dies, or needs more than there is.
        ({"limit": LIMIT, "severity": Severity.ERROR}, {"limit": LIMIT, "holds": True}, Severity.ERROR, True),
        ({"limit": LIMIT, "severity": Severity.ERROR}, {"limit": LIMIT}, Severity.ERROR, False),
        ({"limit": LIMIT, "severity": Severity.WARNING, "predicted": 70 * GIB, "holds": True}, {"limit": LIMIT}, None,
         False),
        ({"limit": LIMIT, "severity": Severity.INFO, "holds": True}, {"limit": LIMIT}, Severity.INFO, False),
        ({"limit": LIMIT, "severity": Severity.INFO, "predicted": 70 * GIB}, {"limit": LIMIT}, Severity.INFO, False),
        # Anywhere: what spares a card, a warning where it then fits the card that most have.
        ({"severity": Severity.WARNING}, {"card": "A", "predicted": 40 * GIB}, Severity.WARNING, True),
        ({"severity": Severity.WARNING}, {"card": "A", "predicted": 90 * GIB}, Severity.INFO, True),
        ({"severity": Severity.WARNING, "confidence": "low"}, {"card": "A", "predicted": 40 * GIB}, Severity.INFO, True),
        ({"severity": Severity.INFO}, {"card": "A", "predicted": 40 * GIB}, Severity.INFO, True),
        ({"severity": Severity.WARNING, "card": "A"}, {"card": "A", "predicted": 40 * GIB}, None, False),
        ({"severity": Severity.WARNING}, {"card": None, "predicted": 90 * GIB}, None, False),
        ({"severity": None}, {"card": "A", "predicted": 40 * GIB}, None, True),
    ],
)  # fmt: skip
def test_a_change_relieves(
    before: dict[str, Any], after: dict[str, Any], severity: Severity | None, suffices: bool
) -> None:
    is_problem = before["severity"] is Severity.WARNING
    now = replace(PEAK, is_problem=is_problem, **before)
    found = Relief(now, replace(PEAK, **{"predicted": 60 * GIB, **after}), {})
    assert (found.severity, found.suffices) == (severity, suffices)
    assert found.saved == found.before.predicted - found.after.predicted
    least = (0.03 if found.before.limit else 0.25) * found.before.predicted
    assert found.is_worthwhile is (severity is not None and found.saved >= least)


@pytest.mark.parametrize(
    ("saved", "holds", "severity"),
    [(15, False, Severity.ERROR), (14.9, False, Severity.INFO), (14.9, True, Severity.ERROR)],
)
def test_what_takes_away_less_than_a_fourth_of_what_is_too_much_is_a_remark(
    saved: float, holds: bool, severity: Severity
) -> None:
    now = replace(PEAK, limit=40 * GIB, severity=Severity.ERROR, is_problem=True)
    after = replace(now, predicted=int((100 - saved) * GIB), holds=holds)
    assert Relief(now, after, {}).severity is severity


def test_a_relief_in_words() -> None:
    found = Relief(PEAK, replace(PEAK, predicted=60 * GIB), {})
    assert found.sentence == "the peak falls from 100 GiB to 60.0 GiB"
    still = Relief(replace(PEAK, limit=50 * GIB), replace(PEAK, predicted=60 * GIB), {})
    assert still.sentence == "the peak falls from 100 GiB to 60.0 GiB, still 10.0 GiB too much"
    enough = Relief(replace(PEAK, limit=60 * GIB), replace(PEAK, predicted=60 * GIB), {})
    assert enough.sentence == "the peak falls from 100 GiB to 60.0 GiB"


# -- ways out ---------------------------------------------------------------------------------------------


def fitting(fits: Any, **told: Any) -> dict[str, Any]:
    """A run that fits where its plan is so."""
    return {"estimated_by": lambda plan: LIGHT if fits(plan) else HEAVY, **told}


RANKS: dict[str, Any] = {
    "parallel__world": 8, "parallel__nodes": 1, "parallel__gpus_per_node": 8, "parallel__backend": "ddp",
}  # fmt: skip


def test_zero_3_over_the_cards_at_hand() -> None:
    sharded = fitting(lambda plan: plan.parallel.zero.stage == 3)
    assert ways._shard(run(sharded, **RANKS)) == "sharding with ZeRO-3 or FSDP (1.0 GiB a card)"
    assert ways._shard(run(sharded, **{**RANKS, "parallel__backend": None})) != ""
    for other in (
        {"parallel__world": 1}, {"parallel__world": None}, {"parallel__backend": "fsdp1"},
    ):  # fmt: skip
        assert ways._shard(run(sharded, **{**RANKS, **other})) == ""
    assert ways._shard(run(fitting(lambda plan: False), **RANKS)) == ""
    assert ways._shard(run(sharded, **{**RANKS, "parallel__world": 2})) != ""


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (None, "ZeRO-3 with the optimizer in host RAM (1.0 GiB a card, 1.0 GiB of RAM a node)"),
        (LIMIT, "ZeRO-3 with the optimizer in host RAM (1.0 GiB a card, 1.0 of 80.0 GiB of RAM a node)"),
        (GIB // 4, "ZeRO-3 with the optimizer in host RAM (1.0 GiB a card) and 1.0 GiB of RAM a node instead of 256 MiB"),
    ],
)  # fmt: skip
def test_states_in_host_ram(host: int | None, said: str) -> None:
    limits = Limits(gpu_bytes=LIMIT, host_bytes=host)
    told = fitting(lambda plan: plan.offload.optimizer == "cpu", limits=limits)
    zero = {**RANKS, "parallel__backend": "zero", "parallel__zero__stage": 2}
    found = run(told, **zero)
    assert ways._offload(found) == said
    assert ways._offload(run(told, **{**zero, "parallel__zero__stage": 3})) == said
    for other in (
        {"parallel__backend": "ddp"}, {"trainable__method": "lora"}, {"offload__optimizer": "cpu"},
    ):  # fmt: skip
        assert ways._offload(run(told, **{**zero, **other})) == ""
    assert ways._offload(run({**told, "estimated_by": lambda plan: HEAVY}, **zero)) == ""


def test_more_cards_of_the_machine_or_more_nodes() -> None:
    machine = parse_hardware("8xA100-80GB")
    parts = SimpleNamespace(untold={}, changed={}, unread_program="", hardware=machine)

    def cards(needed: int, **changes: Any) -> str:
        told = fitting(
            lambda plan: (plan.parallel.nodes or 0) * (plan.parallel.gpus_per_node or 0) >= needed,
            parts=parts,
        )
        return ways._more_cards(run(told, **{**RANKS, **changes}))

    assert cards(8, parallel__gpus_per_node=4) == "all 8 cards instead of 4 (1.0 GiB each)"
    assert cards(16, parallel__gpus_per_node=4) == "16 such cards instead of 4 (1.0 GiB each)"
    assert cards(32) == "32 such cards instead of 8 (1.0 GiB each)"
    assert cards(512) == "512 such cards instead of 8 (1.0 GiB each)"
    assert cards(513) == ""
    assert cards(8, parallel__nodes=None) == cards(8, parallel__gpus_per_node=None) == ""
    parts.hardware = None
    assert cards(16) == ""


def test_an_adapter_instead() -> None:
    told = fitting(lambda plan: plan.trainable.method == "lora" and plan.trainable.r == 16)
    assert ways._lora(run(told)) == "LoRA of rank 16 (1.0 GiB a card)"
    assert ways._lora(run(told, trainable__method="freeze")) != ""
    assert ways._lora(run(told, trainable__method="lora")) == ""
    assert ways._lora(run(fitting(lambda plan: False))) == ""
    # Where no limit is known, whatever can be predicted.
    nowhere = Limits(gpu_bytes=None, host_bytes=None)
    assert ways._lora(run(fitting(lambda plan: False, limits=nowhere))) != ""


def test_ways_are_told_one_after_another() -> None:
    parts = SimpleNamespace(untold={}, changed={}, unread_program="", hardware=None)
    sharded = fitting(lambda plan: plan.parallel.zero.stage == 3, parts=parts)
    assert ways.ways_out(run(sharded, **RANKS)) == "sharding with ZeRO-3 or FSDP (1.0 GiB a card)"
    anything = fitting(lambda plan: True, parts=parts)
    assert ways.ways_out(run(anything, **RANKS)) == (
        "sharding with ZeRO-3 or FSDP (1.0 GiB a card) or LoRA of rank 16 (1.0 GiB a card)"
    )
    assert ways.ways_out(run(fitting(lambda plan: False, parts=parts), **RANKS)) == ""


def test_a_run_without_hardware_is_told_which_cards_hold_it() -> None:
    forecast = SimpleNamespace(
        estimate=given(40 * GIB), hardware=None, verdict="unknown", because=(), because_of="",
        evidence=None, host_limit=None, name="it", risk=None, endings=(),
    )  # fmt: skip
    said = words.conclusion(forecast)  # type: ignore[arg-type]
    assert said == f"hardware unknown; {words._cards(40 * GIB)}"
    assert words.verdict_first(forecast).endswith(said)  # type: ignore[arg-type]
    forecast.hardware, forecast.verdict = parse_hardware("1xA100-80GB"), "fits"
    assert words.conclusion(forecast).startswith("fits A100-80GB (")  # type: ignore[arg-type]
    first = words.verdict_first(forecast)  # type: ignore[arg-type]
    assert first.startswith("fits A100-80GB: predicted peak 40.0 GiB per GPU (backward), ")
    forecast.because_of = "the project says that it ran"
    assert words.left_open(forecast) == ": the project says that it ran"  # type: ignore[arg-type]
    forecast.verdict = "does_not_fit"
    assert words.left_open(forecast) == ""  # type: ignore[arg-type]
