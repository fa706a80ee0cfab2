"""What a project says that a script ran on is evidence against a prediction that it dies there."""

from __future__ import annotations

import pytest
from tests import linked

from oomlint.judgement import judgement_of
from oomlint.runs.documented_hardware import Attestations
from oomlint.runs.run import Run

SCRIPT = "examples/tuning/14b/qwen2_14b_4_h800.sh"
# By the prediction it needs 90 GiB and more with samples of any length.
TEXT = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=a "
    "data.train_batch_size=1024 data.max_prompt_length=1024 data.max_response_length=1024 "
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-14B-Instruct "
    "actor_rollout_ref.actor.ppo_mini_batch_size=256 "
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 "
    "actor_rollout_ref.model.use_remove_padding=True "
    "actor_rollout_ref.model.enable_gradient_checkpointing=True "
    "actor_rollout_ref.rollout.n=5 trainer.n_gpus_per_node=4 trainer.nnodes=1\n"
)
LIST_TABLE = """\
.. list-table::

    * - Model
      - Resource
      - Link
    * - Qwen2.5-7B
      - 2*H100
      - `other <https://example.org/blob/main/examples/tuning/7b/qwen2_7b_2_h100.sh>`_
    * - Qwen2-14B
      - 4*H800
      - `qwen2-14b_4_h800 <https://example.org/blob/main/examples/tuning/14b/qwen2-14b_4_h800.sh>`_
    * - Qwen2.5-72B
      - 8*H100
      - other
"""
ROW = f"| [script]({SCRIPT}) | 4 x H800 80GB | 62 GiB |\n"


def said(document: str, text: str, script: str = TEXT) -> str | None:
    workspace = linked.workspace_of({document: text, SCRIPT: script})
    found = next(Attestations(workspace).of([SCRIPT]), None)
    return None if found is None or found.kind != "seen" else found.words


def run_of(files: dict[str, str], hardware: str, values: dict[str, object] | None = None) -> Run:
    return linked.run_of(files, SCRIPT, hardware=hardware, values=values or {})


def test_row_of_a_list_table_counts_whole() -> None:
    expected = "docs/perf/tuning.rst:11 lists it on 4xH800-80GB"
    assert said("docs/perf/tuning.rst", LIST_TABLE) == expected


def test_row_of_a_readme_above_the_script_counts() -> None:
    assert said("examples/README.md", ROW) == "examples/README.md:1 lists it on 4xH800-80GB"


@pytest.mark.parametrize(
    "text",
    [
        ROW.replace("62 GiB", "OOM"),
        ROW.replace("4 x H800 80GB", "4 x H800 80GB, not enough memory"),
        ROW.replace("4 x H800 80GB", "4 x H800 80GB or 8 x A100-40GB"),
        ROW.replace("4 x H800 80GB", "some GPUs"),
        ROW.replace("14b/", "7b/"),
        f"| 4 x H800 80GB |\n\n{SCRIPT}\n",
    ],
)
def test_row_that_does_not_say_so_of_this_script_is_passed_over(text: str) -> None:
    assert said("README.md", text) is None


def test_command_or_output_in_a_fenced_block_is_no_claim() -> None:
    shown = f"$ oomlint fit {SCRIPT}\n{SCRIPT} (verl) on 4xH800-80GB\n"
    assert said("docs/fit.md", f"```console\n{shown}```\n") is None
    assert said("docs/fit.md", f"~~~\n```\n{shown}~~~\n") is None
    fenced = f"```sh\npip install .\n```\n{ROW}"
    assert said("docs/fit.md", fenced) == "docs/fit.md:4 lists it on 4xH800-80GB"


def test_name_alone_counts_beside_the_script() -> None:
    name, folder = SCRIPT.rpartition("/")[2], SCRIPT.rpartition("/")[0]
    row = f"| {name} | 4xH800 |\n"
    assert said(f"{folder}/README.md", row) is not None
    assert said("README.md", row) is None


def test_comment_at_the_head_counts() -> None:
    head = "# Copyright\n# run on 8xH100\n\n"
    assert said("README.md", "", head + TEXT) == f"{SCRIPT}:2 says that it runs on 8xH100-80GB"
    assert said("README.md", "", "# 8xH100\n" + TEXT) is None
    assert said("README.md", "", TEXT + "# run on 8xH100\n") is None


def test_line_above_a_block_of_commands_counts() -> None:
    block = "Train{}:\n\n```bash\nexport A=1\nbash {}\n```\n"
    told = block.format(" (tested on 4 H800)", SCRIPT)
    assert said("README.md", told) == "README.md:1 says that it runs on 4xH800-80GB"
    assert said("README.md", block.format(" on 4 H800", SCRIPT)) is None
    assert said("README.md", block.format(" (tested on 4 H800, OOM)", SCRIPT)) is None
    assert said("README.md", told.replace("bash " + SCRIPT, "ls") + f"\n{SCRIPT}\n") is None
    # A fence of another kind within is a line of the block.
    nested = f"Train (tested on 4 H800):\n\n~~~bash\n```\nbash {SCRIPT}\n~~~\n"
    assert said("README.md", nested) == "README.md:1 says that it runs on 4xH800-80GB"


def test_script_that_is_listed_as_run_on_such_cards_rather_fits() -> None:
    files = {SCRIPT: TEXT}
    listed = {**files, "docs/perf/tuning.rst": LIST_TABLE}
    assert judgement_of(run_of(files, "4xA100-80GB")).is_lost
    judgement = judgement_of(run_of(listed, "4xA100-80GB"))
    assert judgement.verdict == "fits"
    assert judgement.spoken.because_of == "docs/perf/tuning.rst:11 lists it on 4xH800-80GB"


def test_smaller_cards_and_another_batch_are_another_run() -> None:
    listed = {SCRIPT: TEXT, "docs/perf/tuning.rst": LIST_TABLE}
    # By the prediction it dies where it is listed, so that on smaller cards nobody knows.
    assert judgement_of(run_of(listed, "4xA100-40GB")).verdict == "unknown"
    assert judgement_of(run_of(listed, "4xA100-80GB", {"batch.micro": 32})).is_lost
    fewer = {**listed, SCRIPT: TEXT.replace("n_gpus_per_node=4", "n_gpus_per_node=2")}
    assert judgement_of(run_of(fewer, "2xA100-80GB")).is_lost
