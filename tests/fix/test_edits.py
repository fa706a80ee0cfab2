"""From proposals to edits: where they are written, and when they are only shown."""

import pytest
from tests import linked

from oomlint.documents.text import Edit, apply_edits
from oomlint.fix.edits import make_fix
from oomlint.linting.rule import (
    Applicability,
    Proposal,
    ReadyEdits,
    RemoveKey,
    RenameKey,
    SetFields,
)

RUN = "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 4\ndatasets:\n  - path: a/b\n"


def run_of(files):
    return linked.run_of({"a.yaml": files} if isinstance(files, str) else files)


def after(run, fix):
    texts = {claim.path: claim.document.source.text for claim in run.claims}
    return {
        path: apply_edits(texts[path], [e for e in fix.edits if e.path == path])
        for path in {e.path for e in fix.edits}
    }


def set_fields(files, values, **more):
    run = run_of(files)
    fix = make_fix(run, Proposal.set("do it", values, **more), "gpu")
    return run, fix


def test_value_is_changed_where_it_stands_and_a_new_key_goes_beside_its_kin():
    run, fix = set_fields(RUN, {"batch.micro": 1, "batch.grad_accum": 4})
    text = "size: 1\ngradient_accumulation_steps: 4"
    assert after(run, fix) == {"a.yaml": RUN.replace("size: 4", text)}
    assert fix.expected == {"batch.micro": 1, "batch.grad_accum": 4}
    assert fix.freed == frozenset()
    assert fix.applicability is Applicability.SAFE
    assert fix.predicted_bytes_after is not None


def test_alias_that_the_file_uses_is_kept():
    run, fix = set_fields(f"{RUN}sequence_parallel_degree: 2\n", {"parallel.cp": 4})
    assert after(run, fix)["a.yaml"] == f"{RUN}sequence_parallel_degree: 4\n"


def test_fields_of_two_files_are_one_fix():
    files = {
        "a.yaml": f"{RUN}deepspeed: ds.json\n",
        "ds.json": '{"zero_optimization": {"stage": 2}}',
    }
    run, fix = set_fields(files, {"batch.micro": 2, "parallel.zero.stage": 3})
    assert after(run, fix) == {
        "a.yaml": files["a.yaml"].replace("size: 4", "size: 2"),
        "ds.json": '{"zero_optimization": {"stage": 3}}',
    }


def test_word_auto_is_written_where_the_value_is_left_to_others():
    files = {
        "a.yaml": f"{RUN}deepspeed: ds.json\n",
        "ds.json": '{"zero_optimization": {"stage": 3, "reduce_bucket_size": 500000000}}',
    }
    run, fix = set_fields(files, {"parallel.zero.reduce_bucket_elems": None})
    assert '"reduce_bucket_size": "auto"' in after(run, fix)["ds.json"]
    # transformers fills it with hidden_size squared: 2048 * 2048.
    assert fix.expected == {"parallel.zero.reduce_bucket_elems": 2048 * 2048}


@pytest.mark.parametrize(
    ("files", "values", "reason"),
    [
        (RUN, {"parallel.zero.stage": 3}, "no key for parallel.zero.stage"),
        (RUN, {"checkpointing.mode": "selective_op"}, "every layer or none"),
        (
            f"defaults: &d\n  x: &m 4\n{RUN}".replace("size: 4", "size: *m"),
            {"batch.micro": 1},
            "",
        ),
        (RUN.replace("size: 4", "size: ${MICRO}"), {"batch.micro": 1}, ""),
    ],
)
def test_what_cannot_be_written_is_shown_with_the_reason(files, values, reason):
    _, fix = set_fields(files, values)
    assert fix.applicability is Applicability.DISPLAY
    assert fix.edits == ()
    assert reason in fix.reason
    assert fix.reason


def test_parts_that_change_the_same_text_are_shown_only():
    run = run_of(RUN)
    at = RUN.index("4")
    edits = (Edit("a.yaml", at, at + 1, "1"), Edit("a.yaml", at - 1, at + 1, " 2"))
    fix = make_fix(run, Proposal("both", (ReadyEdits(edits),)), None)
    assert fix.applicability is Applicability.DISPLAY
    assert "same text" in fix.reason


def test_insertions_of_several_wishes_keep_their_order():
    run = run_of(RUN)
    end = len(RUN)
    wishes = tuple(
        ReadyEdits((Edit("a.yaml", end, end, f"{name}: 1\n"),)) for name in ("zulu", "alpha")
    )
    fix = make_fix(run, Proposal("add", wishes), None)
    assert fix.edits == (Edit("a.yaml", end, end, "zulu: 1\nalpha: 1\n"),)
    assert fix.freed is None
    assert fix.predicted_bytes_after is None


def test_key_is_renamed_and_its_field_is_free_to_change():
    run = run_of(f"{RUN}sequence_length: 64\n")
    [stray] = run.stray
    fix = make_fix(run, Proposal("rename", (RenameKey(stray, "sequence_len"),)), None)
    assert after(run, fix)["a.yaml"] == f"{RUN}sequence_len: 64\n"
    assert fix.freed == {"seq.max_len"}


def test_rename_to_a_key_that_is_there_is_shown_only():
    run = run_of(f"{RUN}sequence_len: 32\nsequence_length: 64\n")
    [stray] = run.stray
    fix = make_fix(run, Proposal("rename", (RenameKey(stray, "sequence_len"),)), None)
    assert fix.reason == "sequence_len is already set"


def test_key_with_a_table_frees_every_field_of_it():
    run = run_of(f"{RUN}fsdp_conf:\n  offload_params: true\n")
    [stray] = run.stray
    fix = make_fix(run, Proposal("rename", (RenameKey(stray, "fsdp_config"),)), None)
    assert {"parallel.fsdp.cpu_offload", "axolotl.fsdp_config"} <= fix.freed


def test_key_is_removed_and_its_field_is_free_to_change():
    run = run_of(f"{RUN}sequence_len: 64\n")
    block = run.parts.blocks[0][0]
    entry = block.find("sequence_len")
    fix = make_fix(run, Proposal("remove", (RemoveKey(block, entry),)), None)
    assert after(run, fix)["a.yaml"] == RUN
    assert fix.freed == {"seq.max_len"}


def test_host_fixes_predict_the_host():
    run = run_of(RUN)
    proposal = Proposal("x", (SetFields({"batch.micro": 1}),))
    changed = run.what_if({"batch.micro": 1}).estimate
    assert make_fix(run, proposal, "host").predicted_bytes_after == changed.host.peak_bytes
    assert make_fix(run, proposal, "gpu").predicted_bytes_after == changed.gpu.peak_bytes


def test_unsafe_stays_unsafe():
    _, fix = set_fields(RUN, {"seq.max_len": 64}, applicability=Applicability.UNSAFE)
    assert fix.applicability is Applicability.UNSAFE
