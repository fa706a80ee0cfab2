"""How a README says that a config is started counts where no launch line here does."""

from tests.linked import run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

CONFIG = """\
base_model: meta-llama/Llama-3.1-8B
datasets: [{path: a, type: alpaca}]
sequence_len: 2048
micro_batch_size: 1
"""
LAUNCH = "accelerate launch --num_processes 4 -m axolotl.cli.train configs/{name}.yaml"


def _readme(*commands: str) -> str:
    return "# Training\n\nRun this:\n\n```bash\n" + "\n".join(commands) + "\n```\n"


def _run(readme: str, name: str = "a"):
    files = {"README.md": readme, f"configs/{name}.yaml": CONFIG}
    return run_of(files, f"configs/{name}.yaml")


def test_the_line_that_names_the_config_counts():
    run = _run(_readme(LAUNCH.format(name="a")))
    assert run.plan.parallel.world == 4
    assert run.level(f.parallel.world) is Level.DEFAULT


def test_lines_outside_of_fences_and_of_other_programs_do_not():
    line = LAUNCH.format(name="a")
    assert _run(f"Start {line} or so\n\n    {line}\n").plan.parallel.world is None
    assert _run(_readme("cat configs/a.yaml")).plan.parallel.world is None


def test_a_prompt_and_a_continued_line_are_read():
    readme = _readme(
        "$ accelerate launch --num_processes 2 \\",
        "    -m axolotl.cli.train \\",
        "  configs/a.yaml",
    )
    assert _run(readme).plan.parallel.world == 2


def test_of_lines_that_differ_the_first_is_assumed():
    run = _run(_readme(LAUNCH.format(name="a"), LAUNCH.format(name="a").replace("4", "8")))
    assert run.plan.parallel.world == 4
    assert run.level(f.parallel.world) is Level.ASSUMED


def test_the_line_of_a_sibling_is_taken_for_its_own():
    files = {
        "README.md": _readme(LAUNCH.format(name="b")),
        "configs/a.yaml": CONFIG,
        "configs/b.yaml": CONFIG,
    }
    run = run_of(files, "configs/a.yaml")
    assert run.plan.parallel.world == 4
    assert run.level(f.parallel.world) is Level.ASSUMED
