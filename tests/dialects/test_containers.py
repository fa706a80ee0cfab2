"""docker run and docker compose: the command in the container, and the container's limits."""

from __future__ import annotations

from functools import partial

import pytest
from tests.fixing import fixed
from tests.linked import link, run_of

from oomlint.runs.run import Run

_WORDS = (
    "--output_dir out --per_device_train_batch_size 1 --learning_rate 1e-5"
    " --num_train_epochs 1 --bf16 True --model_name_or_path meta-llama/Llama-2-7b-hf"
)
_TRAIN = f"torchrun --nproc_per_node 4 train.py {_WORDS}"


def _runs(name: str, text: str) -> list[Run]:
    return link({name: text}).runs


def _run(name: str, text: str) -> Run:
    (run,) = _runs(name, text)
    return run


@pytest.mark.parametrize(
    ("options", "ram", "shm"),
    [
        ("--gpus all", None, 1 / 16),
        ("--rm -it --gpus all --shm-size=16g -v $PWD:/w -e A=b", None, 16),
        ("-d --memory 64g --shm-size 512m", 64, 0.5),
        ("-m 65536m --ipc=host", 64, None),
        ("--ipc private", None, 1 / 16),
        ("--ipc=$MODE", None, None),
        ("--shm-size $SHM", None, None),
        ("$OPTIONS --gpus all", None, None),
        ("--name a --gpus all \\\n  --rm", None, 1 / 16),
    ],
)
@pytest.mark.parametrize("command", [_TRAIN, f'bash -c "cd /w && {_TRAIN}"'])
def test_docker_run_limits_what_it_starts(
    options: str, ram: float | None, shm: float | None, command: str
) -> None:
    text = f"set -e\ndocker run {options} nvcr.io/nvidia/pytorch:24.01-py3 {command}\n"
    run = _run("train.sh", text)
    assert run.plan.model.id == "meta-llama/Llama-2-7b-hf"
    assert run.plan.parallel.gpus_per_node == 4
    assert (run.plan.host.ram_gib, run.plan.host.shm_gib) == (ram, shm)
    new = fixed(partial(_run, "train.sh"), text, {"batch.micro": 2})
    assert new == text.replace("batch_size 1", "batch_size 2")


def test_limits_of_docker_run_are_changed_or_added() -> None:
    text = f"docker run --gpus all --shm-size=1g image \\\n  {_TRAIN}\n"
    new = fixed(partial(_run, "train.sh"), text, {"host.shm_gib": 15.5, "host.ram_gib": 100})
    assert "--memory 100g" in new
    assert "--shm-size=16g" in new
    again = _run("train.sh", new)
    assert (again.plan.host.ram_gib, again.plan.host.shm_gib) == (100, 16)


def test_docker_run_names_the_gpus_for_what_takes_all() -> None:
    run = _run("a.sh", f"docker run --gpus '\"device=0,2\"' image python train.py {_WORDS}\n")
    assert run.plan.parallel.gpus_per_node == 2


@pytest.mark.parametrize(
    "text", ["docker run image\n", "docker run\n", "docker ps\n", "docker run --gpus\n",
             "docker run --gpus all image python -m http.server\n", "docker compose run x y\n"]
)  # fmt: skip
def test_other_uses_of_docker_are_left_alone(text: str) -> None:
    assert _runs("a.sh", text) == []


_COMPOSE = f"""services:
  db:
    image: postgres
  train:
    image: trainer
    mem_limit: 64g
    command: >
      torchrun --nproc_per_node 4
      train.py {_WORDS}
    environment:
      CUDA_VISIBLE_DEVICES: 0,1,2,3
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: 8
              capabilities: [gpu]
"""


def test_reads_a_service() -> None:
    run = _run("compose.yaml", _COMPOSE)
    assert run.framework == "hf-trainer"
    assert run.plan.parallel.gpus_per_node == 4
    assert run.plan.env.cuda_visible_devices == "0,1,2,3"
    assert (run.plan.host.ram_gib, run.plan.host.shm_gib) == (64, 1 / 16)
    changes = {"batch.micro": 2, "host.shm_gib": 16, "host.ram_gib": 99.5}
    new = fixed(partial(_run, "compose.yaml"), _COMPOSE, changes)
    changed = _COMPOSE.replace("batch_size 1", "batch_size 2").replace(
        "    mem_limit: 64g\n", "    mem_limit: 100g\n    shm_size: 16g\n"
    )
    assert new == changed


@pytest.mark.parametrize(
    ("old", "new", "shm"),
    [
        ("    mem_limit: 64g\n", "    shm_size: 2gb\n", 2),
        ("    mem_limit: 64g\n", "    ipc: host\n", None),
        ("    mem_limit: 64g\n", "    shm_size: ${SHM}\n", None),
    ],
)
def test_reads_shared_memory_of_a_service(old: str, new: str, shm: float | None) -> None:
    assert _run("compose.yaml", _COMPOSE.replace(old, new)).plan.host.shm_gib == shm


def test_reads_entrypoint_and_environment_as_lists() -> None:
    words = ", ".join(f'"{word}"' for word in _WORDS.split())
    run = _run(
        "compose.yml",
        "services:\n  t:\n    entrypoint: [torchrun, --nproc_per_node=2]\n"
        f"    command: [train.py, {words}]\n    runtime: nvidia\n"
        "    environment: [CUDA_VISIBLE_DEVICES=0, A]\n",
    )
    assert run.plan.parallel.gpus_per_node == 2
    assert run.plan.env.cuda_visible_devices == "0"


@pytest.mark.parametrize(
    "text",
    [
        "services: [shm_size: 1]\n",
        "services: {a: 1, b: {shm_size: 1g, command: null}, c: {command: [sleep, 1], gpus: all}}\n",
        "on: push\nservices: {x: {options: 'gpus: 1', command: [[]]}}\nz: {gpus: 1}\n",
    ],
)
def test_services_that_do_not_train_are_left_alone(text: str) -> None:
    assert _runs("compose.yaml", text) == []


# -- files of variables ------------------------------------------------------------------------


def _linked(files: dict[str, str], name: str) -> Run:
    return run_of(files, name)


_ENV = "# devices\nCUDA_VISIBLE_DEVICES='0,1,2'\nexport A=1\nTOKEN\n"
_ALL_GPUS = f"torchrun --nproc_per_node gpu train.py {_WORDS}"


def test_docker_takes_variables_from_a_file() -> None:
    script = f"docker run --gpus all --env-file ./job.env image {_ALL_GPUS}\n"
    run = _linked({"run.sh": script, "job.env": _ENV}, "run.sh")
    assert run.plan.parallel.gpus_per_node == 3
    assert set(run.files) == {"run.sh", "job.env"}
    own = script.replace("--env-file", "-e CUDA_VISIBLE_DEVICES=0,1 --env-file")
    assert _linked({"run.sh": own, "job.env": _ENV}, "run.sh").plan.parallel.gpus_per_node == 2


@pytest.mark.parametrize(
    "said", ["env_file: job.env", "env_file: [job.env]", "env_file: [{path: job.env}]"]
)
def test_compose_takes_variables_from_a_file(said: str) -> None:
    service = f"services:\n  t:\n    shm_size: 8g\n    {said}\n    command: {_ALL_GPUS}\n"
    run = _linked({"compose.yaml": service, "job.env": _ENV}, "compose.yaml")
    assert run.plan.parallel.gpus_per_node == 3


def test_a_missing_file_of_variables_is_nobodys_fault() -> None:
    run = _run("run.sh", f"docker run --gpus all --env-file /etc/job.env image {_TRAIN}\n")
    assert not run.missing


@pytest.mark.parametrize(
    "command",
    [
        "command: >\n      torchrun --nproc_per_node 4 train.py {words}",
        "command: >\n      torchrun --nproc_per_node 4 train.py\n        {words}",
        "command: |\n      torchrun --nproc_per_node 4 train.py\n      {words}",
        "command: |\r\n      torchrun --nproc_per_node 4 train.py \\\r\n      {words}",
        "entrypoint: >\n      torchrun --nproc_per_node 4 \\\n      train.py\n      {words}",
        "command: |\n      bash -c 'cd /w\n      torchrun --nproc_per_node 4 train.py {words}'",
    ],
)
def test_a_line_break_in_a_string_of_compose_is_a_blank(command: str) -> None:
    """Compose splits the string into words: none of its lines is a command of its own, but in what a shell is handed."""
    broken = _WORDS if "bash" in command else _WORDS.replace(" --bf16", "\n      --bf16")
    service = command.format(words=broken)
    (run,) = _runs("compose.yaml", f"services:\n  t:\n    shm_size: 8gb\n    {service}\n")
    assert (run.plan.model.id, run.plan.parallel.gpus_per_node) == ("meta-llama/Llama-2-7b-hf", 4)
    assert not run.facts


def test_a_script_that_a_string_of_compose_hands_to_a_shell_may_be_cut() -> None:
    words = _WORDS.replace(" --bf16", "\n      --bf16")
    text = f"services:\n  t:\n    shm_size: 8gb\n    command: |\n      bash -c 'torchrun train.py \\\n      {words}'\n"
    (run,) = _runs("compose.yaml", text)
    assert [fact.kind for fact in run.facts] == ["broken-continuation"]


def test_a_value_in_a_string_of_compose_over_several_lines_is_changed_where_it_stands() -> None:
    words = _WORDS.replace(" --learning", " \\\n        --learning")
    text = f"services:\n  t:\n    shm_size: 8gb\n    command: |\n      torchrun train.py\n        {words}\n"
    new = fixed(partial(_run, "compose.yaml"), text, {"batch.micro": 2})
    assert new == text.replace("batch_size 1", "batch_size 2")
