"""Whole scripts: what runs they start, whatever way they start them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.linked import link, report_of, run_of

from oomlint.documents.text import apply_edits
from oomlint.fix.edits import make_fix
from oomlint.linting.rule import Applicability, Proposal, SetFields
from oomlint.runs.run import Run

_OPTIONS = (
    "--model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 2 "
    "--gradient_accumulation_steps 4 --bf16 --output_dir out"
)
_TRAIN = f"train.py {_OPTIONS}"
_DS = '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}'


def _runs(**files: str) -> list[Run]:
    """Runs of files whose names have ``_`` for ``.`` and ``__`` for ``/``."""
    return link(
        {name.replace("__", "/").replace("_", "."): text for name, text in files.items()}
    ).runs


@pytest.mark.parametrize(
    ("script", "nodes", "per_node"),
    [
        (f"mpirun -np 16 -npernode 8 python {_TRAIN}", 2, 8),
        (f"mpirun -n 8 --allow-run-as-root -x A=1 -mca pml ob1 python {_TRAIN}", 1, 8),
        (f"mpirun -np 8 -H a:4,b:4 -map-by slot python {_TRAIN}", 2, 4),
        (f"mpirun -np 8 --map-by ppr:4:node python {_TRAIN}", 2, 4),
        (f"mpirun -np 16 -npernode 8 bash -c 'python {_TRAIN}' > log 2>&1", 2, 8),
        (f'mpiexec -n 8 sh -c "cd /a && python {_TRAIN}"', 1, 8),
        (f"mpirun -np 2 -npernode 1 bash -c 'torchrun --nnodes 2 --nproc_per_node 4 {_TRAIN}'", 2, 4),
        (f"srun -N2 --ntasks-per-node=8 bash -c 'python {_TRAIN}'", 2, 8),
        (f"srun -p x --gres=gpu:8 -N2 -n16 --ntasks-per-node=8 python -u {_TRAIN}", 2, 8),
        (f"salloc -N 2 --gres=gpu:8 srun torchrun --nnodes 2 --nproc_per_node 8 {_TRAIN}", 2, 8),
        (f"numactl --membind=0 torchrun --standalone --nproc_per_node 4 {_TRAIN}", 1, 4),
        (f"nsys profile -o out -t cuda,nvtx torchrun --nproc_per_node 4 {_TRAIN}", 1, 4),
        (f"timeout 3h torchrun --nproc_per_node 4 {_TRAIN}", 1, 4),
        (f"singularity exec --nv -B /a img.sif torchrun --nproc_per_node 4 {_TRAIN}", 1, 4),
        (f"pdsh -w h[1-2] torchrun --nnodes 2 --nproc_per_node 4 {_TRAIN}", 2, 4),
        (f'C="torchrun --nproc_per_node 8 {_TRAIN}"\necho $C\neval $C', 1, 8),
        (f'C="torchrun --nproc_per_node 8 {_TRAIN}"\n$C', 1, 8),
        (f"L='torchrun --nproc_per_node 8'\n$L {_TRAIN}", 1, 8),
        (f"CUDA_VISIBLE_DEVICES=0,1,2 torchrun --nproc_per_node=gpu {_TRAIN}", 1, 3),
        (f"CUDA_VISIBLE_DEVICES=0,1\\\n torchrun --nproc_per_node 2 {_TRAIN}", 1, 2),
        (f"docker run --gpus all -e CUDA_VISIBLE_DEVICES=0,1 i torchrun --nproc_per_node gpu {_TRAIN}", 1, 2),
        (f"docker run --gpus '\"device=0,1\"' --env-file .env i torchrun --nproc_per_node 2 {_TRAIN}", 1, 2),
        (f"deepspeed --include localhost:0,1,2 {_TRAIN}", 1, 3),
        (f"accelerate launch --multi_gpu --num_machines 2 --num_processes 16 {_TRAIN}", 2, 8),
    ],
)  # fmt: skip
def test_ranks(script: str, nodes: int, per_node: int) -> None:
    (run,) = _runs(run_sh=script + "\n")
    assert (run.plan.parallel.nodes, run.plan.parallel.gpus_per_node) == (nodes, per_node)


def test_what_is_only_printed_is_no_run() -> None:
    assert not _runs(run_sh=f"echo torchrun --nproc_per_node 8 {_TRAIN}\n")


@pytest.mark.parametrize(
    ("script", "ram", "cpus"),
    [
        (f"sbatch --mem=64G --gres=gpu:4 --wrap='torchrun --nproc_per_node 4 {_TRAIN}'", 64, None),
        (f"srun --mem=64G -c 8 --ntasks-per-node=4 --gres=gpu:4 python {_TRAIN}", 64, 32),
        (f"srun --mem=64G --gres=gpu:4 bash -c 'torchrun --nproc_per_node 4 {_TRAIN}'", 64, None),
        (f"#SBATCH --mem=32G\nsrun --mem=64G torchrun --nproc_per_node 4 {_TRAIN}", 64, None),
        (
            f"sbatch <<EOF\n#SBATCH --mem=64G\nsrun torchrun --nproc_per_node 4 {_TRAIN}\nEOF",
            64,
            None,
        ),
    ],
)
def test_slurm_options_on_a_line(script: str, ram: float, cpus: int | None) -> None:
    (run,) = _runs(run_sh=script + "\n")
    assert run.plan.host.ram_gib == ram
    assert run.plan.host.cpus == cpus


def test_options_of_sbatch_win_over_the_job_s_own() -> None:
    job = (
        f"#!/bin/bash\n#SBATCH --mem=32G --gres=gpu:4\nsrun torchrun --nproc_per_node 4 {_TRAIN}\n"
    )
    (run,) = _runs(submit_sh="sbatch --mem=64G job.sh\n", job_sh=job)
    assert run.plan.host.ram_gib == 64
    location = run.location("host.ram_gib")
    assert location.path == "submit.sh"
    # Two lines that submit it: nobody knows which.
    (run,) = _runs(submit_sh="sbatch --mem=64G job.sh\nsbatch --mem=8G job.sh\n", job_sh=job)
    assert run.plan.host.ram_gib == 32


def test_a_loop_is_a_run_for_each_value_that_matters() -> None:
    runs = _runs(
        run_sh=f"for b in 1 4; do python {_TRAIN} --per_device_train_batch_size $b; done\n"
    )
    assert [run.plan.batch.micro for run in runs] == [1, 4]
    assert len({run.name for run in runs}) == 2
    assert len(_runs(run_sh=f"for s in 1 2; do python {_TRAIN} --seed $s; done\n")) == 1
    assert len(_runs(run_sh=f"for s in 1 2; do python {_TRAIN} --output_dir $s; done\n")) == 1


@pytest.mark.parametrize("write", [f"cat > ds.json <<EOF\n{_DS}\nEOF", f"echo '{_DS}' > ./ds.json"])
def test_a_config_that_the_script_writes_is_read_and_edited_there(write: str) -> None:
    text = f"{write}\ndeepspeed --num_gpus 8 {_TRAIN} --deepspeed $PWD/ds.json\n"
    (run,) = _runs(run_sh=text)
    assert run.plan.parallel.zero.stage == 3
    assert not run.missing
    assert run.files == ("run.sh",)
    wish = Proposal("t", (SetFields({"parallel.zero.stage": 2}),), Applicability.SAFE)
    fix = make_fix(run, wish, None)
    assert fix is not None
    assert apply_edits(text, fix.edits) == text.replace('"stage": 3', '"stage": 2')


def test_a_yaml_that_the_script_writes_leads_on() -> None:
    yaml = (
        "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\nfinetuning_type: full\n"
        "template: llama3\ndataset: x\ncutoff_len: 512\ndeepspeed: ds.json\n"
    )
    text = f"cat <<EOF > t.yaml\n{yaml}EOF\ncat <<EOF > ds.json\n{_DS}\nEOF\n"
    (run,) = _runs(run_sh=text + "FORCE_TORCHRUN=1 llamafactory-cli train t.yaml\n")
    assert run.framework == "llama-factory"
    assert (run.plan.seq.max_len, run.plan.parallel.zero.stage) == (512, 3)


_WRITTEN = (
    "model_name_or_path: {model}\nstage: sft\nfinetuning_type: full\ntemplate: llama3\n"
    "dataset: x\ncutoff_len: 512\nper_device_train_batch_size: $b\n"
)


@pytest.mark.parametrize(
    ("written", "model"),
    [
        ("$m", "meta-llama/Llama-3.1-8B"),
        ('"$m"', "meta-llama/Llama-3.1-8B"),
        ("${m}  # the base", "meta-llama/Llama-3.1-8B"),
        ("$m-$s", "meta-llama/Llama-3.1-8B-Instruct"),
        ("$m-$t", None),
    ],
)
def test_a_value_that_has_no_room_in_a_written_yaml_is_filled_in(
    written: str, model: str | None
) -> None:
    """``$b`` and ``$t`` have no value, which is not the default."""
    yaml = _WRITTEN.format(model=written)
    text = f"m=meta-llama/Llama-3.1-8B\ns=Instruct\ncat <<EOF > t.yaml\n{yaml}EOF\nllamafactory-cli train t.yaml\n"
    (run,) = _runs(run_sh=text)
    assert not run.missing
    assert (run.plan.model.id, run.plan.seq.max_len, run.plan.batch.micro) == (model, 512, None)
    wish = Proposal("t", (SetFields({"seq.max_len": 256}),), Applicability.UNSAFE)
    fix = make_fix(run, wish, None)
    assert fix is not None
    assert apply_edits(text, fix.edits) == text.replace("512", "256")


def test_of_the_texts_that_a_loop_writes_the_first_is_what_it_starts_with() -> None:
    yaml = _WRITTEN.format(model="$1").replace("$b", "$2")
    text = (
        f"train() {{\ncat <<EOF > t.yaml\n{yaml}EOF\nllamafactory-cli train t.yaml\n}}\n"
        "train meta-llama/Llama-3.1-8B 2\ntrain ./out-of-the-first 4\n"
    )
    (run,) = _runs(run_sh=text)
    assert (run.plan.model.id, run.plan.batch.micro) == ("meta-llama/Llama-3.1-8B", 2)
    twice = f"{text}cat <<EOF > t.yaml\n{yaml.replace('$2', '8')}EOF\n"
    assert _runs(run_sh=twice)[0].plan.batch.micro == 8


def test_paths_of_a_container_lead_to_the_files_here() -> None:
    (run,) = _runs(
        jobs__run_sh=f"torchrun --nproc_per_node 8 {_TRAIN} --deepspeed /workspace/p/cfg/ds.json\n",
        cfg__ds_json=_DS,
    )
    assert run.plan.parallel.zero.stage == 3


def test_a_json_by_another_name_is_read_where_a_line_names_it() -> None:
    (run,) = _runs(
        run_sh=f"accelerate launch --use_deepspeed --num_processes 8 --deepspeed_config_file z.conf {_TRAIN}\n",
        z_conf=_DS,
    )
    assert run.plan.parallel.zero.stage == 3


def test_a_line_that_a_submitting_script_hands_on() -> None:
    line = f"python mason.py --num_nodes 2 --gpus 8 -- accelerate launch --num_processes 16 --num_machines 2 {_TRAIN}"
    (run,) = _runs(run_sh=line + "\n")
    assert (run.plan.parallel.nodes, run.plan.parallel.gpus_per_node) == (2, 8)


def test_a_launcher_kept_in_a_variable_with_its_environment() -> None:
    script = (
        f'export CMD="{_TRAIN}"\n'
        'export LAUNCHER="CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_machines 2 --num_processes 4 "\n'
        'clear; srun --nodes=2 bash -c "$LAUNCHER $CMD" 2>&1\n'
    )
    (run,) = _runs(run_sh=script)
    assert (run.plan.parallel.nodes, run.plan.parallel.gpus_per_node) == (2, 2)
    assert run.plan.env.cuda_visible_devices == "0,1"


def test_a_loop_that_builds_its_own_deepspeed_config_is_not_the_trainer_s() -> None:
    assert not _runs(run_sh=f"deepspeed main.py {_OPTIONS} --zero_stage 3\n")
    assert not _runs(run_sh=f"deepspeed main.py {_OPTIONS} --deepspeed --deepspeed_config d.json\n")


def test_an_fsdp_config_may_be_a_file() -> None:
    (run,) = _runs(
        run_sh=f"torchrun --nproc_per_node 8 {_TRAIN} --fsdp 'full_shard auto_wrap' --fsdp_config f.json\n",
        f_json='{"fsdp_state_dict_type": "SHARDED_STATE_DICT", "backward_prefetch": "backward_pre"}',
    )
    assert run.plan.parallel.fsdp.state_dict == "sharded"
    assert run.files == ("run.sh", "f.json")


def test_a_length_of_null_cuts_nothing_in_trl() -> None:
    text = _OPTIONS.replace("--", "").split()
    yaml = "".join(f"{k}: {v}\n" for k, v in zip(text[0:6:2], text[1:6:2], strict=True))
    (run,) = _runs(
        a_yaml=yaml + "dataset_name: x\noutput_dir: o\nnum_train_epochs: 1\nmax_length: null\n"
    )
    assert (run.framework, run.plan.seq.max_len, run.plan.seq.unbounded) == ("trl", None, True)


def _mpi_job() -> str:
    return f"""\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: a}}
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - name: l
            image: i
            command: [mpirun, -np, "16", --allow-run-as-root, python, train.py]
            args: [{", ".join(_OPTIONS.replace(" 2 ", ' "2" ').replace(" 4 ", ' "4" ').split())}]
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: w
            image: i
            resources: {{limits: {{nvidia.com/gpu: 8, memory: 256Gi}}}}
"""


def test_an_mpi_job_has_its_workers_gpus() -> None:
    (run,) = _runs(job_yaml=_mpi_job())
    assert (run.plan.parallel.nodes, run.plan.parallel.gpus_per_node) == (2, 8)
    assert run.plan.host.ram_gib == 256


def test_sky_accelerators_in_brackets_without_quotes() -> None:
    task = f"resources:\n  accelerators: [H100:8]\nrun: |\n  torchrun --nproc_per_node $SKYPILOT_NUM_GPUS_PER_NODE {_TRAIN}\n"
    (run,) = _runs(task_yaml=task)
    plan: Any = run.plan
    assert (plan.device.type, plan.parallel.gpus_per_node) == ("H100-80GB", 8)


_TRAINS = """\
import transformers
from transformers import AutoModelForTokenClassification, TrainingArguments
from ours.prm import PRMTrainer

model = AutoModelForTokenClassification.from_pretrained("Qwen/Qwen2.5-7B", num_labels=1)
trainer = PRMTrainer(model=model, args=TrainingArguments("out"), train_dataset=data)
"""


@pytest.mark.parametrize(
    ("library", "framework"),
    [
        ("from transformers import Trainer", "hf-trainer"),
        ("from trl import PRMTrainer as Trainer", "trl"),
    ],
)
def test_a_trainer_of_another_file_is_what_it_is_derived_from(library: str, framework: str) -> None:
    files = {
        "train.py": _TRAINS,
        "ours/prm.py": f"{library}\n\n\nclass PRMTrainer(Trainer):\n    pass\n",
    }
    (run,) = link(files, "train.py").runs
    assert run.framework == framework


_CONFIGURES = """\
from trl import setup_chat_format

def go(trains):
    from ours import SFTConfig

    return trains(SFTConfig(output_dir="out", per_device_train_batch_size=2, val_file="a.jsonl"))
"""


@pytest.mark.parametrize(
    ("bases", "strays"),
    [("", None), ("(trl.SFTConfig)", [False])],
    ids=["a record of its own", "one with a field more"],
)
def test_a_config_of_another_file_is_what_it_is_derived_from(
    bases: str, strays: list[bool] | None
) -> None:
    files = {
        "train.py": _CONFIGURES,
        "ours/__init__.py": "from .config import SFTConfig\n",
        "ours/config.py": f"import trl\n\n\nclass SFTConfig{bases}:\n    val_file: str\n",
    }
    runs = link(files, "train.py").runs
    found = [[s.block.table.refuses(s.path) for s in run.stray] for run in runs]
    assert found == ([] if strays is None else [strays])


_IDLE_LENGTH = """\
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class Own:
    base: str = "Qwen/Qwen2.5-1.5B"
    model_max_length: int = 16384


own, args = HfArgumentParser((Own, SFTConfig)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(own.base)
SFTTrainer(model=model, args=args, train_dataset=load(LENGTH)).train()
"""


@pytest.mark.parametrize(
    ("asked", "option", "length"),
    [
        ("", "--model_max_length 16384", 1024),  # SFTConfig's own default
        ("", "--model-max-length 16384 --max_length 4096", 4096),
        ("own.model_max_length", "--model_max_length 16384", 16384),
    ],
)
def test_a_length_that_the_script_declares_and_never_reads_cuts_nothing(
    asked: str, option: str, length: int
) -> None:
    command = f"python train.py {option} --output_dir out\n"
    files = {"train.py": _IDLE_LENGTH.replace("LENGTH", asked), "train.sh": command}
    assert run_of(files).plan.seq.max_len == length


@pytest.mark.parametrize(("given", "samples"), [("-1", None), ("0", None), ("50", 50)])
def test_of_samples_to_evaluate_a_number_that_is_not_positive_is_no_limit(
    given: str, samples: int | None
) -> None:
    command = (
        f"python train.py --model_name_or_path gpt2 --output_dir out"
        f" --per_device_train_batch_size 4 --learning_rate 1e-5 --max_eval_samples {given}\n"
    )
    files = {"train.py": _OWN_LIMIT, "train.sh": command}
    run = run_of(files)
    assert run.plan.eval.samples == samples
    assert not [each for each in report_of(files).diagnoses if each.rule.code == "OOM904"]


_HALVED = """\
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default={default})
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
given = TrainingArguments("out", per_device_train_batch_size=args.size, per_device_eval_batch_size=int(args.size / 2))
Trainer(model=model, args=given).train()
"""


@pytest.mark.parametrize(
    ("command", "default", "halved", "refused"),
    [
        ("python train.py --size 5", 1, 2, []),
        ("python train.py --size 8", 0, 4, []),
        ("python train.py", 6, 3, []),
        ("python train.py", 1, None, ["per_device_eval_batch_size cannot be args.size / 2"]),
    ],
)
def test_what_the_command_makes_of_options_is_what_the_framework_is_given(
    command: str, default: int, halved: int | None, refused: list[str]
) -> None:
    files = {"train.py": _HALVED.format(default=default), "train.sh": f"{command}\n"}
    assert run_of(files).plan.batch.eval_micro == halved
    told = [d.finding.message for d in report_of(files).diagnoses if d.rule.code == "OOM904"]
    assert told == refused


_OWN_LIMIT = """\
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class Own:
    model_name_or_path: str
    max_eval_samples: int | None = None


own, args = HfArgumentParser((Own, TrainingArguments)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(own.model_name_or_path)
Trainer(model=model, args=args, train_dataset=load(), eval_dataset=load(own.max_eval_samples)).train()
"""


_OWN_HEAD = """\
import torch
from transformers import OPTModel, Trainer, TrainingArguments


class {name}(torch.nn.Module):
    def __init__(self, labels):
        super().__init__()
        self.opt = OPTModel.from_pretrained("facebook/opt-1.3b")
        self.classifier = torch.nn.Linear(2048, labels)


model = {name}(9)
Trainer(model=model, args=TrainingArguments("out"), train_dataset=load()).train()
"""


@pytest.mark.parametrize(
    ("name", "logits"), [("OptForTokenClassification", "fused"), ("OptAndHead", "full")]
)
def test_a_head_of_the_scripts_own_that_is_called_a_classifiers_has_no_vocabulary(
    name: str, logits: str
) -> None:
    run = run_of({"train.py": _OWN_HEAD.format(name=name)})
    assert run.plan.loss.logits_materialised == logits


def test_a_trainer_of_transformers_takes_its_arguments_by_place() -> None:
    text = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', torch_dtype='bfloat16')\n"
        "args = TrainingArguments('out', bf16=True)\n"
        "Trainer(model, args, train_dataset=data).train()\n"
    )
    plan = run_of({"train.py": text}).plan
    assert (plan.model.id, plan.batch.micro) == ("Qwen/Qwen2.5-7B", 8)
    own = text.replace("Trainer, Tr", "Tr").replace("Trainer(m", "ours.Trainer(m")
    assert not link({"train.py": own}).runs
