"""Kubernetes manifests: the command that trains, and what its pod may use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fixing import fix_of, fixed
from tests.linked import link

from oomlint.dialects import registry
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_WORDS = (
    "--output_dir out --per_device_train_batch_size 1 --learning_rate 1e-5"
    " --num_train_epochs 1 --bf16 True --model_name_or_path meta-llama/Llama-2-7b-hf"
)

_JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: tune}
spec:
  parallelism: 2
  template:
    spec:
      nodeSelector:
        nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3
      containers:
        - name: sidecar
          command: [sleep, infinity]
        - name: tune
          image: trainer
          env:
            - name: CUDA_VISIBLE_DEVICES
              value: "0,1,2,3"
            - name: TOKEN
              valueFrom: {secretKeyRef: {name: t, key: t}}
COMMAND
          resources:
            limits:
              nvidia.com/gpu: 8
              memory: 64Gi
          volumeMounts:
            - {mountPath: /dev/shm, name: shm}
      volumes:
        - name: shm
          emptyDir: {medium: Memory, sizeLimit: 8Gi}
"""

_LAUNCH = "torchrun --nnodes 2 --nproc_per_node 8 train.py"
_COMMANDS = {
    "block": f'command: ["bash", "-c"]\nargs:\n  - |\n    set -e\n    {_LAUNCH} \\\n      {_WORDS}\n',
    "wrapped": f"command: [stdbuf, -o0, bash, -lc]\nargs:\n  - |-\n    {_LAUNCH} {_WORDS}\n",
    "folded": f"command: [bash, -c]\nargs:\n  - >-\n    {_LAUNCH}\n    {_WORDS}\n",
    "quoted": f"command: [\"sh\", \"-c\", 'cd /w && {_LAUNCH} {_WORDS}']\n",
    "plain": f"command:\n  - bash\n  - -c\n  - {_LAUNCH}\n    {_WORDS}\n",
    "list": "command:\n" + "".join(f"  - {w!r}\n" for w in f"{_LAUNCH} {_WORDS}".split()),
    "flow": f"command: [{', '.join(_LAUNCH.split())}]\nargs: [{', '.join(map(repr, _WORDS.split()))}]\n",
}  # fmt: skip


def _job(command: str) -> str:
    indented = "\n".join(" " * 10 + line if line else "" for line in command.splitlines())
    return _JOB.replace("COMMAND", indented)


def _runs(text: str) -> list[Run]:
    return link({"job.yaml": text}).runs


def _run(text: str) -> Run:
    (run,) = _runs(text)
    return run


@pytest.mark.parametrize("style", _COMMANDS)
def test_reads_a_command_however_it_is_written(style: str) -> None:
    text = _job(_COMMANDS[style])
    run = _run(text)
    assert run.framework == "hf-trainer"
    assert run.plan.model.id == "meta-llama/Llama-2-7b-hf"
    assert (run.plan.parallel.nodes, run.plan.parallel.gpus_per_node) == (2, 8)
    assert run.plan.env.cuda_visible_devices == "0,1,2,3"
    place = run.location("batch.micro")
    assert text[place.span.start : place.span.end].startswith(
        ("--per_device_train_batch_size", "'--per_device_train_batch_size")
    )


@pytest.mark.parametrize("style", ["list", "flow"])
def test_a_bare_flag_in_a_list_gets_its_value_in_one_word(style: str) -> None:
    value = ", 'True'" if style == "flow" else "\n  - 'True'"
    text = _job(_COMMANDS[style].replace(value, ""))
    run = _run(text)
    assert run.settings["hf.bf16"].value is True
    new = fixed(_run, text, {"precision.compute": "fp16"})
    assert "--bf16=False" in new
    assert _run(new).plan.precision.compute == "fp16"


@pytest.mark.parametrize("style", _COMMANDS)
@pytest.mark.parametrize(
    "changes",
    [
        {"batch.micro": 2},
        {"batch.micro": 2, "batch.grad_accum": 4},
        {"checkpointing.mode": "full", "data.workers": 2},
    ],
)
def test_edits_of_the_command_are_edits_of_the_yaml(style: str, changes: dict[str, Any]) -> None:
    text = _job(_COMMANDS[style])
    run = _run(text)
    new = fixed(_run, text, changes)
    again = _run(new)
    for field, value in changes.items():
        assert again.plan.get(field) == value
    changed = {*changes, *fix_of(run, changes).expected}
    assert _said(run, changed) == _said(again, changed)
    untouched = [line for line in text.splitlines() if "train" not in line and "- '" not in line]
    assert [line for line in untouched if line not in new.splitlines()] == [
        line for line in untouched if "--per_device" in line and "batch.micro" in changes
    ]


def _said(run: Run, but: set[str]) -> dict[str, Any]:
    said = (name for name in run.settings if run.is_explicit(name) and name not in but)
    return {name: run.settings[name].value for name in said}


def test_values_in_escaped_quotes_are_shown_and_never_changed() -> None:
    script = f'export A=\\"x\\" && {_LAUNCH} {_WORDS}'
    run = _run(_job(f'command: ["bash", "-c", "{script}"]\n'))
    assert run.plan.batch.micro == 1
    fix = fix_of(run, {"batch.micro": 2})
    assert not fix.edits
    assert "a person" in (fix.reason or "")


def test_what_does_not_belong_into_the_quotes_is_refused() -> None:
    run = _run(_job(f'command: ["bash", "-c", "{_LAUNCH} {_WORDS}"]\n'))
    document = next(b.document for b, _ in run.parts.blocks if b.table.section == "training")
    micro = run.origin("model.id")
    assert micro is not None
    assert micro.entry is not None
    for value in ('a"b', "a\\b"):
        with pytest.raises(CannotEdit):
            document.set_value(micro.entry.value, value)


def test_infers_the_hardware_and_its_limits() -> None:
    run = _run(_job(_COMMANDS["block"]))
    assert run.hardware is not None
    assert run.hardware.name == "2x8xH100-80GB"
    assert run.hardware.source == "Kubernetes asks for NVIDIA-H100-80GB-HBM3 (job.yaml:9)"
    assert run.limits.host_bytes == 64 * 2**30
    assert run.plan.host.shm_gib == 8
    new = fixed(_run, _job(_COMMANDS["block"]), {"host.ram_gib": 100.2, "host.shm_gib": 16})
    assert "memory: 101Gi" in new
    assert "sizeLimit: 16Gi" in new


@pytest.mark.parametrize(
    ("old", "new", "ram", "shm"),
    [
        ("memory: 64Gi", "memory: 64G", 64e9 / 2**30, 8),
        ("memory: 64Gi", "cpu: 4", None, 8),
        ("memory: 64Gi", "memory: 4Gi", 4, 4),
        (", sizeLimit: 8Gi", "", 64, 64),
        ("emptyDir: {medium: Memory, sizeLimit: 8Gi}", "hostPath: {path: /dev/shm}", 64, None),
        ("mountPath: /dev/shm", "mountPath: /data", 64, 64 / 1024),
        ("      nodeSelector:", "      hostIPC: true\n      nodeSelector:", 64, 8),
    ],
)
def test_reads_memory_as_kubernetes_does(
    old: str, new: str, ram: float | None, shm: float | None
) -> None:
    text = _job(_COMMANDS["block"])
    assert old in text
    host = _run(text.replace(old, new)).plan.host
    assert (host.ram_gib, host.shm_gib) == (ram, shm)


@pytest.mark.parametrize(
    "volume", ["hostPath: {path: /dev/shm}", "emptyDir: {sizeLimit: 8Gi}", "emptyDir: {}"]
)
def test_only_a_volume_in_memory_can_grow(volume: str) -> None:
    text = _job(_COMMANDS["block"])
    run = _run(text.replace("emptyDir: {medium: Memory, sizeLimit: 8Gi}", volume))
    fix = fix_of(run, {"host.shm_gib": 16})
    assert not fix.edits
    assert "medium: Memory" in (fix.reason or "")


@pytest.mark.parametrize(
    ("label", "gpu", "ram"),
    [
        ("nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB", "A100-80GB", None),
        ("cloud.google.com/gke-accelerator: nvidia-tesla-a100", "A100-40GB", None),
        ("cloud.google.com/gke-accelerator: nvidia-h100-mega-80gb", "H100-80GB", None),
        ("node.kubernetes.io/instance-type: p4d.24xlarge", "A100-40GB", 1134),
        ("accelerator: a100", "A100-80GB", None),
        ("kubernetes.io/arch: amd64", None, None),
    ],
)
def test_reads_labels(label: str, gpu: str | None, ram: float | None) -> None:
    text = _job(_COMMANDS["block"]).replace("              memory: 64Gi\n", "")
    text = text.replace("nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3", label)
    run = _run(text)
    assert run.plan.device.type == gpu
    assert run.plan.host.ram_gib == ram


def test_reads_an_affinity_that_leaves_no_choice() -> None:
    text = _job(_COMMANDS["block"])
    selector = "      nodeSelector:\n        nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3\n"
    affinity = (
        "      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution:"
        " {nodeSelectorTerms: [{matchExpressions: [{key: nvidia.com/gpu.product, operator: In,"
        " values: [NVIDIA-L40S]}]}]}}}\n"
    )
    assert _run(text.replace(selector, affinity)).plan.device.type == "L40S-48GB"
    either = affinity.replace("NVIDIA-L40S", "NVIDIA-L40S, NVIDIA-L4")
    assert _run(text.replace(selector, either)).plan.device.type is None


_PYTORCH_JOB = f"""apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  nprocPerNode: "8"
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template: &pod
        spec:
          containers:
          - name: pytorch
            command: [bash, -c]
            args: ["torchrun --nnodes $PET_NNODES train.py {_WORDS}"]
            resources: {{limits: {{nvidia.com/gpu: 8}}}}
    Worker:
      replicas: 3
      template: *pod
"""


def test_a_job_of_master_and_workers_is_one_run() -> None:
    run = _run(_PYTORCH_JOB)
    assert (run.plan.parallel.nodes, run.plan.parallel.gpus_per_node) == (4, 8)
    fix = fix_of(run, {"batch.micro": 2})
    assert not fix.edits
    assert "anchor" in (fix.reason or "")


def test_reads_a_train_job() -> None:
    run = _run(
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec:\n  trainer:\n"
        "    numNodes: 4\n    resourcesPerNode: {limits: {nvidia.com/gpu: 8, memory: 200Gi}}\n"
        f"    command: [torchrun, train.py]\n    args: [{', '.join(map(repr, _WORDS.split()))}]\n"
    )
    assert (run.plan.parallel.nodes, run.plan.parallel.gpus_per_node) == (4, 8)
    assert run.plan.host.ram_gib == 200


def test_replicas_of_a_deployment_are_no_nodes() -> None:
    launch = f"torchrun --nnodes $N --nproc_per_node 8 train.py {_WORDS}"
    text = _job(f"command: [bash, -c, '{launch}']\n")
    assert _run(text).plan.parallel.nodes == 2
    text = text.replace("kind: Job", "kind: Deployment").replace("parallelism: 2", "replicas: 2")
    assert _run(text).plan.parallel.nodes == 1


@pytest.mark.parametrize(
    "text",
    [
        _job("command: [python, -m, http.server]\n"),
        _job("command: [nvidia-smi]\n"),
        _job("command: {a: b}\n"),
        _job("command: [[a], {b: c}]\n"),
        _job("args: []\n"),
        _job(""),
        "apiVersion: v1\nkind: Pod\nspec: ['nvidia.com/gpu']\n",
        "apiVersion: v1\nkind: TrainJob\nspec: {trainer: {command: 3, a: nvidia.com/gpu}}\n",
        "kind: [nvidia.com/gpu]\napiVersion:\n",
    ],
)
def test_what_does_not_train_is_left_alone(text: str) -> None:
    assert _runs(text) == []


def test_a_chart_is_no_broken_training_config() -> None:
    text = (
        "kind: Job\nresources:\n  limits:\n    nvidia.com/gpu: {{ .Values.gpus }}\n  {{- end }}\n"
    )
    workspace = Workspace(Path("/x"), {"job.yaml": text.encode()})
    linker = Linker(workspace, registry(), LinkOptions())
    assert not linker.link(["job.yaml"]).errors
    assert linker.link(["job.yaml"], explicit=frozenset(["job.yaml"])).errors


_HYPERPOD = """apiVersion: sagemaker.amazonaws.com/v1
kind: HyperPodPyTorchJob
metadata: {name: tune}
spec:
  nprocPerNode: "8"
  replicaSpecs:
    - name: pods
      replicas: 4
      template:
        spec:
          nodeSelector: {node.kubernetes.io/instance-type: ml.p5.48xlarge}
          containers:
            - name: pytorch
              command: [hyperpodrun, --nproc_per_node=8, --nnodes=4, train.py, WORDS]
              resources: {limits: {nvidia.com/gpu: 8}}
"""


def test_a_job_of_hyperpod() -> None:
    plan = _run(_HYPERPOD.replace("WORDS", ", ".join(map(repr, _WORDS.split())))).plan
    assert (plan.parallel.nodes, plan.parallel.gpus_per_node, plan.device.type) == (
        4,
        8,
        "H100-80GB",
    )
    bare = _HYPERPOD.replace("--nproc_per_node=8, --nnodes=4, ", "")
    assert (
        _run(
            bare.replace("WORDS", ", ".join(map(repr, _WORDS.split())))
        ).plan.parallel.gpus_per_node
        == 8
    )


def test_what_the_manifest_gives_a_process_needs_no_export() -> None:
    run = _run(_job(_COMMANDS["block"]))
    assert run.plan.env.cuda_visible_devices == "0,1,2,3"
    assert not [fact for fact in run.facts if fact.kind == "env-not-exported"]
