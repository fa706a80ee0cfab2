"""From files to runs: what belongs together, what is an error, what is passed over."""

from pathlib import Path

import pytest

from oomlint.dialects import registry
from oomlint.dialects.axolotl.dialect import Axolotl
from oomlint.dialects.base import Registry
from oomlint.dialects.deepspeed.dialect import DeepSpeed
from oomlint.files.workspace import Workspace
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker

RUN = "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 1\ndatasets:\n  - path: a/b\n"
ZERO3 = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}'


def link(files, *, explicit=(), dialects=None, options=None, names=None):
    workspace = Workspace(
        Path("/project"),
        {n: t if isinstance(t, bytes) else t.encode() for n, t in files.items()},
    )
    linker = Linker(workspace, dialects or registry(), options or LinkOptions())
    return linker.link(names or list(files), explicit=frozenset(explicit))


def test_config_and_its_deepspeed_json_are_one_run():
    linked = link({"a.yaml": f"{RUN}deepspeed: ds.json\n", "ds.json": ZERO3})
    [run] = linked.runs
    assert run.files == ("a.yaml", "ds.json")
    assert run.plan.parallel.zero.stage == 3
    assert run.location("parallel.zero.stage").path == "ds.json"
    assert linked.recognised == {"a.yaml": "axolotl", "ds.json": "deepspeed"}
    assert linked.opened == {"a.yaml", "ds.json"}


def test_file_that_only_a_setting_names_counts_as_read():
    linked = link({"a.yaml": f"{RUN}deepspeed: ds.json\n", "ds.json": ZERO3}, names=["a.yaml"])
    assert linked.runs[0].plan.parallel.zero.stage == 3
    assert linked.opened == {"a.yaml", "ds.json"}


def test_named_json_is_deepspeeds_however_little_it_holds():
    linked = link({"a.yaml": f"{RUN}deepspeed: ds.json\n", "ds.json": '{"zero_optimization": {}}'})
    [run] = linked.runs
    assert run.files == ("a.yaml", "ds.json")
    assert run.plan.parallel.zero.stage == 0
    assert not run.missing


def test_part_that_no_run_uses_is_a_run_of_its_own():
    linked = link({"a.yaml": RUN, "ds.json": ZERO3})
    assert [(run.name, run.is_fragment) for run in linked.runs] == [
        ("a.yaml", False),
        ("ds.json", True),
    ]


def test_two_runs_share_a_json():
    config = f"{RUN}deepspeed: ds.json\n"
    linked = link({"a.yaml": config, "b.yaml": config, "ds.json": ZERO3})
    assert [run.files for run in linked.runs] == [("a.yaml", "ds.json"), ("b.yaml", "ds.json")]


def test_runs_of_two_launch_lines_follow_the_same_chain_of_files():
    accelerate = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\n"
        "deepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    line = "accelerate launch --config_file acc.yaml -m axolotl.cli.train {}.yaml\n"
    linked = link(
        {
            "a.yaml": RUN,
            "b.yaml": RUN,
            "go.sh": line.format("a") + line.format("b"),
            "acc.yaml": accelerate,
            "ds.json": ZERO3,
        }
    )
    trained = [run for run in linked.runs if "acc.yaml" in run.files]
    if not trained:
        pytest.skip("no dialect reads this launch line yet")
    assert [run.plan.parallel.zero.stage for run in trained] == [3] * len(trained)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (None, "was not found"),
        ("{", "cannot be used (line 1)"),
        (b"\xff", "cannot be used (line 1)"),
    ],
)
def test_reference_that_cannot_be_used_is_kept_with_its_place(target, problem):
    files = {"a.yaml": f"{RUN}deepspeed: x/ds.json\n"}
    if target is not None:
        files["x/ds.json"] = target
    linked = link(files, names=["a.yaml"])
    [missing] = linked.runs[0].missing
    assert missing.reference == "x/ds.json"
    assert missing.problem.startswith(problem)
    assert missing.location.path == "a.yaml"
    assert not linked.errors


def test_a_file_that_git_lfs_keeps_is_elsewhere():
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 1656\n"
    linked = link({"a.yaml": f"{RUN}deepspeed: x/ds.json\n", "x/ds.json": pointer})
    [missing] = linked.runs[0].missing
    assert missing.is_elsewhere
    assert "Git LFS" in missing.problem
    assert not linked.errors


@pytest.mark.parametrize("reference", ["a.yaml", ".", "x" * 3000])
def test_reference_to_itself_a_folder_or_nonsense(reference):
    linked = link({"a.yaml": f"{RUN}deepspeed: {reference}\n"})
    assert [run.name for run in linked.runs] == ["a.yaml"]
    assert not linked.errors


def test_preset_that_is_not_here_is_locked():
    linked = link({"a.yaml": f"{RUN}deepspeed: deepspeed_configs/zero3_bf16.json\n"})
    [run] = linked.runs
    assert run.plan.parallel.zero.stage == 3
    assert run.files == ("a.yaml",)
    assert run.block_with("parallel.zero.stage").locked


def test_every_document_of_a_yaml_stream_is_a_run_with_a_name_of_its_own():
    linked = link({"a.yaml": f"{RUN}---\nother: 1\n---\n{RUN}"})
    assert [run.name for run in linked.runs] == ["a.yaml (a.yaml:1)", "a.yaml (a.yaml:8)"]
    assert [run.plan.name for run in linked.runs] == [run.name for run in linked.runs]


# -- errors -----------------------------------------------------------------------------


def test_broken_file_in_a_folder_is_an_error_only_if_it_looks_like_training():
    linked = link({"train.yaml": f"{RUN}  bad: [\n", "other.yaml": "a: [\n", "x.json": "{"})
    assert [(e.path, e.kind) for e in linked.errors] == [("train.yaml", "parse")]


@pytest.mark.parametrize(
    ("line", "is_error"),
    [
        ("trainer = Trainer(model, args=args)", True),
        ("args = transformers.TrainingArguments(output_dir='out')", True),
        ("engine, *_ = deepspeed.initialize(model=model)", True),
        ("class OwnTrainer(Trainer):", False),
        ("from transformers import Trainer  # output_dir, python train.py", False),
    ],
)
def test_broken_script_in_a_folder_is_an_error_only_if_it_trains(line, is_error):
    """A module of a library may well be in a newer Python than the one that oomlint runs on."""
    text = f"from x import from_pretrained\n{line}\nthis is no Python\n"
    assert bool(link({"train.py": text}).errors) is is_error
    assert link({"train.py": text}, explicit=["train.py"]).errors


def test_data_a_line_is_no_broken_config_unless_somebody_names_it():
    record = '{"chosen": "a", "zero_optimization": {"stage": 3}}\n'
    assert not link({"pairs.json": record * 3}).errors
    assert link({"pairs.json": record + "{\n"}).errors
    assert link({"pairs.json": record * 3}, explicit=["pairs.json"]).errors
    (run,) = link({"pairs.json": record * 3, "a.yaml": f"{RUN}deepspeed: pairs.json\n"}).runs
    assert [file.reference for file in run.missing] == ["pairs.json"]


def test_broken_file_that_was_named_is_an_error():
    linked = link(
        {"other.yaml": "a: [\n", "notes.txt": b"\xff"}, explicit=["other.yaml", "notes.txt"]
    )
    assert [e.path for e in linked.errors] == ["other.yaml"]


def test_named_file_that_is_missing_is_an_error():
    linked = link({}, names=["gone.yaml"], explicit=["gone.yaml"])
    assert [(e.path, e.kind) for e in linked.errors] == [("gone.yaml", "io")]


def test_marker_of_another_kind_of_file_does_not_count():
    two = Registry.of([DeepSpeed(), Axolotl()])
    linked = link({"x.json": '{"base_model": [}', "y.yaml": "zero_optimization: [\n"}, dialects=two)
    assert not linked.errors


@pytest.mark.parametrize(
    ("text", "is_error"),
    [
        ('{"text": "as swift as a zero_optimization", "more": [}', False),
        ('{"zero_optimization": {"stage": 3,, }}', True),
        ("{zero_optimization : {stage: 3}", True),
        ('{"swift_version": [}', True),
    ],
)
def test_a_word_in_data_is_no_key_of_a_config(text, is_error):
    assert bool(link({"x.json": text}).errors) is is_error


class _Noted(DeepSpeed):
    """A dialect of a plug-in, whose files tell by any word."""

    origin = "a plug-in"
    markers = (b"acme",)


def test_a_word_that_a_plug_in_marks_counts_wherever_it_stands():
    linked = link({"x.json": '{"kind": "acme", [}'}, dialects=Registry.of([_Noted(), Axolotl()]))
    assert [error.path for error in linked.errors] == ["x.json"]


def test_suffixes_in_capitals():
    assert [run.name for run in link({"A.YAML": RUN}).runs] == ["A.YAML"]


class _Broken(Axolotl):
    def __init__(self, where):
        self.where = where

    def recognise(self, document):
        if self.where == "recognise":
            raise KeyError("oops")
        return super().recognise(document)

    def meaning_of(self, blocks):
        if self.where == "meaning":
            raise KeyError("oops")
        return super().meaning_of(blocks)


@pytest.mark.parametrize("where", ["recognise", "meaning"])
def test_dialect_that_fails_costs_only_its_own_runs(where):
    linked = link(
        {"a.yaml": RUN, "ds.json": ZERO3}, dialects=Registry.of([DeepSpeed(), _Broken(where)])
    )
    assert [run.name for run in linked.runs] == ["ds.json"]
    [error] = linked.errors
    assert (error.path, error.kind) == ("a.yaml", "internal")
    assert "axolotl failed: there is no 'oops' (KeyError)" in error.message


# -- options ----------------------------------------------------------------------------


def test_framework_option_leaves_runs_of_others_out():
    files = {"a.yaml": f"{RUN}deepspeed: ds.json\n", "ds.json": ZERO3}
    assert link(files, options=LinkOptions(framework="axolotl")).runs[0].name == "a.yaml"
    assert [r.name for r in link(files, options=LinkOptions(framework="trl")).runs] == ["ds.json"]


def test_set_values_win_over_files():
    [run] = link({"a.yaml": RUN}, options=LinkOptions(values={"batch.micro": 7})).runs
    assert run.plan.batch.micro == 7
    assert run.origin("batch.micro").kind == "option"


def test_corpus_is_recognised():
    root = Path(__file__).parents[2] / "../shared/corpus"
    if not root.is_dir():
        pytest.skip("../shared/corpus is not here")
    workspace = Workspace(root.resolve())
    names = sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())
    linked = Linker(workspace, registry(), LinkOptions()).link(names)
    assert not linked.errors
    axolotl = {n for n, framework in linked.recognised.items() if framework == "axolotl"}
    assert axolotl == {n for n in names if n.startswith("axolotl/")}
    deepspeed = {n for n, framework in linked.recognised.items() if framework == "deepspeed"}
    signature = (b"zero_optimization", b"train_micro_batch_size_per_gpu", b"train_batch_size")
    assert deepspeed == {
        n for n in names if n.endswith(".json") and any(s in workspace.read(n) for s in signature)
    }


def test_other_files_are_not_claimed():
    root = Path(__file__).parents[2] / "../shared/corpus-other"
    if not root.is_dir():
        pytest.skip("../shared/corpus-other is not here")
    names = sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())
    linked = Linker(Workspace(root.resolve()), registry(), LinkOptions()).link(names)
    assert linked.recognised == {}
    assert linked.runs == []
    assert linked.errors == []


def test_habits_of_a_library_module_are_its_callers_business():
    text = (
        b"import torch\nfrom torch.nn.parallel import DistributedDataParallel\n\n"
        b"model = DistributedDataParallel(build())\nmodel.load_state_dict(torch.load('last.pt'))\n"
    )
    files = {"pkg/__init__.py": b"", "pkg/io.py": text, "tool.py": text}
    linker = Linker(Workspace(Path("/x"), files), registry(), LinkOptions())
    linked = linker.link(list(files), explicit=frozenset(files))
    assert [run.name for run in linked.asides] == ["tool.py"]


LLAMA_FACTORY = "stage: sft\nmodel_name_or_path: meta-llama/Llama-3.2-1B\nfinetuning_type: full\ntemplate: llama3\ndataset: identity\noutput_dir: out\ndo_train: true\n"
FSDP = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n"
SUGGESTED = "# accelerate launch --config_file acc.yaml \\\n#   src/train.py examples/run.yaml\n"


def test_comment_at_the_head_of_a_config_says_how_it_is_started():
    files = {"examples/run.yaml": SUGGESTED + LLAMA_FACTORY, "acc.yaml": FSDP}
    [run] = link(files).runs
    assert run.name == "examples/run.yaml"
    assert run.plan.parallel.backend == "fsdp2"
    assert run.plan.parallel.world == 8
    assert set(run.files) == {"examples/run.yaml", "acc.yaml"}
    assert run.location("parallel.world").path == "acc.yaml"


def test_launch_script_counts_more_than_a_comment():
    script = "llamafactory-cli train examples/run.yaml\n"
    files = {"examples/run.yaml": SUGGESTED + LLAMA_FACTORY, "acc.yaml": FSDP, "run.sh": script}
    runs = [run for run in link(files).runs if not run.is_fragment]
    assert [run.plan.parallel.backend for run in runs] != ["fsdp2"]
    assert len(runs) == 1


@pytest.mark.parametrize(
    "comment",
    [
        SUGGESTED.replace("run.yaml", "other.yaml"),
        SUGGESTED + SUGGESTED.replace("acc.yaml", "ddp.yaml"),
        "# accelerate launch 'src/train.py examples/run.yaml\n",
    ],
    ids=["another config", "two ways", "no shell"],
)
def test_comment_that_does_not_say_how_this_config_is_started(comment):
    files = {"examples/run.yaml": comment + LLAMA_FACTORY, "acc.yaml": FSDP, "ddp.yaml": FSDP}
    run = next(run for run in link(files).runs if not run.is_fragment)
    assert run.plan.parallel.backend != "fsdp2"


@pytest.mark.parametrize(
    ("files", "known"),
    [
        (
            {
                "a/examples/run.yaml": LLAMA_FACTORY + "our_key: 1\ntheir_key: 2\n",
                "a/src/llamafactory/hparams/data_args.py": "our_key: int = field(default=1)\n",
            },
            {"a/examples/run.yaml"},
        ),
        (
            {
                "run.sh": "ray job submit -- python -m ours.cli.train_sft --pretrain Qwen/Qwen2.5-7B"
                " --micro_train_batch_size 1 --zero_stage 2 --max_epochs 1 --our_key 1 --their_key 2\n",
                "ours/cli/train_sft.py": 'parser.add_argument("--our_key")\n',
            },
            {"run.sh"},
        ),
    ],
    ids=["llama-factory", "openrlhf"],
)
def test_keys_that_the_projects_own_copy_of_a_framework_declares(files, known):
    [run] = link(files).runs
    assert {stray.block.path for stray in run.stray} == known
    assert [stray.path for stray in run.stray] == ["their_key"]


@pytest.mark.parametrize(
    ("path", "strays"),
    [("src/llamafactory/hparams/data_args.py", ["their_key"]), ("a.py", ["our_key", "their_key"])],
)
def test_keys_that_a_patch_of_the_framework_adds(tmp_path, path, strays):
    patch = f"--- a/{path}\n+++ b/{path}\n@@ -1 +1,2 @@\n     a: int\n+    our_key: int = 0\n-their_key\n"
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches/key.patch").write_text(patch)
    (tmp_path / "run.yaml").write_text(LLAMA_FACTORY + "our_key: 1\ntheir_key: 2\n")
    workspace = Workspace(tmp_path, named=[tmp_path])
    [run] = Linker(workspace, registry(), LinkOptions()).link(["run.yaml"]).runs
    assert [stray.path for stray in run.stray] == strays


@pytest.mark.parametrize(
    ("declared", "wrong"),
    [
        ('stage: Literal["pt", "sft", "ours"] = field(default="sft")\n', []),
        ('stage: Literal["pt", "sft", "theirs"] = field(default="sft")\n', ["stage"]),
    ],
)
def test_values_that_the_projects_own_copy_of_a_framework_declares(declared, wrong):
    files = {
        "examples/run.yaml": LLAMA_FACTORY.replace("stage: sft", "stage: ours"),
        "src/llamafactory/hparams/finetuning_args.py": declared,
    }
    [run] = link(files).runs
    assert [each.entry.key for each in run.wrong] == wrong


@pytest.mark.parametrize(
    ("path", "knows"),
    [("swift/arguments/new_args.py", True), ("other/arguments/new_args.py", False)],
)
def test_keys_that_any_file_of_the_projects_own_copy_of_a_package_declares(tmp_path, path, knows):
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(
        "class Ours:\n    our_weight: float = 1.0\n    kind: Literal['dpo', 'ours'] = 'dpo'\n"
    )
    command = "swift rlhf --rlhf_type ours --model Qwen/Qwen2.5-7B --dataset a.jsonl --our_weight 2"
    (tmp_path / "run.sh").write_text(f"{command} --their_weight 3\n")
    workspace = Workspace(tmp_path, named=[tmp_path])
    [run] = Linker(workspace, registry(), LinkOptions()).link(["run.sh"]).runs
    assert [stray.path for stray in run.stray] == [*["our_weight"][knows:], "their_weight"]
    assert [wrong.entry.key for wrong in run.wrong] == ["rlhf_type"][knows:]


@pytest.mark.parametrize(
    ("folder", "name", "strays"),
    [
        ("ms-swift-3.1.1", "ms-swift", ["their_weight"]),
        ("third_party/ms-swift", "ms_swift", ["their_weight"]),
        ("ms-swift-3.1.1", "another", ["our_weight", "their_weight"]),
    ],
)
def test_keys_that_the_frameworks_whole_repository_in_a_folder_declares(folder, name, strays):
    command = "swift sft --model Qwen/Qwen2.5-7B --dataset a.jsonl"
    files = {
        "scripts/run.sh": f"{command} --our_weight 2 --their_weight 3\n",
        f"{folder}/setup.py": f"from setuptools import setup\nsetup(name='{name}')\n",
        f"{folder}/swift/llm/args.py": "class Ours:\n    our_weight: float = 1.0\n",
    }
    [run] = link(files).runs
    assert [stray.path for stray in run.stray] == strays


def test_a_package_above_the_project_is_no_copy_of_its_own(tmp_path):
    (tmp_path / "swift").mkdir()
    (tmp_path / "swift/args.py").write_text("class Ours:\n    our_weight: float = 1.0\n")
    project = tmp_path / "project"
    project.mkdir()
    command = "swift sft --model Qwen/Qwen2.5-7B --dataset a.jsonl --our_weight 2"
    (project / "run.sh").write_text(f"{command}\n")
    workspace = Workspace(project, named=[project])
    [run] = Linker(workspace, registry(), LinkOptions()).link(["run.sh"]).runs
    assert [stray.path for stray in run.stray] == ["our_weight"]


@pytest.mark.parametrize(
    ("between", "wrong"),
    [("type=int, help='how many (of each)', ", []), ("'x', " * 200, ["moe_router_topk"])],
)
def test_an_option_takes_several_values_by_its_own_call(tmp_path, between, wrong):
    (tmp_path / "megatron").mkdir()
    declared = f"group.add_argument('--moe-router-topk', {between}nargs='+')\n"
    (tmp_path / "megatron/arguments.py").write_text(declared)
    options = (
        "--num-layers 2 --hidden-size 8 --num-attention-heads 2 --seq-length 8 --micro-batch-size 1"
    )
    command = f"torchrun pretrain_gpt.py {options} --max-position-embeddings 8"
    (tmp_path / "run.sh").write_text(f"{command} --moe-router-topk '1 2'\n")
    workspace = Workspace(tmp_path, named=[tmp_path])
    [run] = Linker(workspace, registry(), LinkOptions()).link(["run.sh"]).runs
    assert [each.entry.key for each in run.wrong] == wrong


def test_numbers_out_of_range_are_so_in_every_copy():
    files = {
        "run.yaml": f"{LLAMA_FACTORY}per_device_train_batch_size: -1\n",
        "src/llamafactory/hparams/training_args.py": 'x: str = "-1"\n',
    }
    [run] = link(files).runs
    assert [each.entry.key for each in run.wrong] == ["per_device_train_batch_size"]


_ARGUMENTS = "@dataclass\nclass FinetuningArguments:\n    finetuning_type: str = 'lora'\n"


@pytest.mark.parametrize(
    ("files", "runs"),
    [
        ({"ours/configs/finetuning_args.py": _ARGUMENTS}, []),
        ({"ours/configs/finetuning_args.py": "from llamafactory import x\n"}, ["run.yaml"]),
        ({"src/llamafactory/hparams/finetuning_args.py": _ARGUMENTS}, ["run.yaml"]),
    ],
    ids=["a program of its own", "a file of that name", "a copy of the framework"],
)
def test_config_of_a_program_that_took_over_a_frameworks_arguments(files, runs):
    linked = link({"run.yaml": LLAMA_FACTORY, **files}, names=["run.yaml"])
    assert [run.name for run in linked.runs] == runs


def test_program_of_ones_own_beside_a_launch_of_the_framework():
    files = {
        "run.yaml": LLAMA_FACTORY,
        "run.sh": "llamafactory-cli train run.yaml\n",
        "ours/configs/finetuning_args.py": _ARGUMENTS,
    }
    assert [run.name for run in link(files, names=["run.yaml", "run.sh"]).runs] == ["run.yaml"]


_TRAIN = "--model_name_or_path meta-llama/Llama-3.2-1B --output_dir out --bf16 True"
_BATCH = f"{_TRAIN} --per_device_train_batch_size 1 --learning_rate 1e-5 --num_train_epochs 1"


@pytest.mark.parametrize("enter", ["cd sub", "cd /workspace/code/sub", "pushd sub", "cd a/../sub"])
def test_a_command_opens_files_from_where_it_runs(enter):
    files = {
        "run.sh": f"{enter}\ntorchrun train.py {_BATCH} --deepspeed ds.json\n",
        "sub/ds.json": ZERO3,
        "ds.json": ZERO3.replace("3", "1"),
    }
    [run] = link(files, names=["run.sh"]).runs
    assert run.plan.parallel.zero.stage == 3


@pytest.mark.parametrize(
    "left", ["(cd sub; ls)", "cd sub\ncd ..", "pushd sub\npopd", "cd sub\ncd -", "cd $SUB"]
)
def test_a_command_runs_where_the_last_cd_leads(left):
    files = {
        "run.sh": f"{left}\ntorchrun train.py {_BATCH} --deepspeed ds.json\n",
        "sub/ds.json": ZERO3,
        "ds.json": ZERO3.replace("3", "1"),
    }
    [run] = link(files, names=["run.sh"]).runs
    assert run.plan.parallel.zero.stage == 1


@pytest.mark.parametrize(("folder", "is_elsewhere"), [("src", True), (".", False)])
def test_a_file_for_a_program_of_another_repository_is_not_missing_here(folder, is_elsewhere):
    options = "--tensor-model-parallel-size 2 --num-layers 32 --hidden-size 4096"
    launch = f"torchrun {folder}/pretrain_gpt.py {options} --deepspeed --deepspeed_config ds.json\n"
    [run] = link({"run.sh": launch, "pretrain_gpt.py": ""}, names=["run.sh"]).runs
    assert [missing.is_elsewhere for missing in run.missing] == [is_elsewhere]


_JOB = "#!/bin/bash\n#SBATCH --nodes=1\nsrun torchrun --nproc_per_node 4 train.py --bf16 True {}\n"
_HANDED = (
    "--model_name_or_path {} --per_device_train_batch_size 2 --num_train_epochs 1 --output_dir o"
)


@pytest.mark.parametrize("taken", ['"$@"', "$@", '"${@}"', "$*"])
def test_script_runs_with_the_arguments_that_another_hands_to_it(taken):
    lines = [
        f"sbatch --gres=gpu:4 job.slurm {_HANDED.format(m)}\n"
        for m in ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-4B")
    ]
    runs = link({"all.sh": "".join(lines), "job.slurm": _JOB.format(taken)}).runs
    assert [run.plan.model.id for run in runs] == ["Qwen/Qwen3-0.6B", "Qwen/Qwen3-4B"]
    for run in runs:
        assert run.files == ("job.slurm", "all.sh")
        assert run.plan.batch.micro == 2
        assert run.plan.precision.compute == "bf16"
        assert run.plan.parallel.gpus_per_node == 4


def test_numbered_arguments():
    job = "torchrun train.py --model_name_or_path $1 --bf16 True --output_dir o {}\n"
    files = {
        "all.sh": "bash job.sh Qwen/Qwen3-4B 8\n",
        "job.sh": job.format("--per_device_train_batch_size ${2:-1}"),
    }
    [run] = link(files).runs
    assert (run.plan.model.id, run.plan.batch.micro) == ("Qwen/Qwen3-4B", 8)
    [alone] = link(files, names=["job.sh"]).runs
    assert alone.plan.batch.micro == 1


_TAKES_APART = (
    'BATCH=1\nMODEL=none\n{loop}; do\n  case "$1" in\n    --batch) BATCH="$2"; shift 2 ;;\n'
    "    -m|--model) MODEL=$2; shift; shift ;;\n"
    '    *) echo "Unknown option: $1"; exit 1 ;;\n  esac\ndone\n'
    "torchrun train.py --model_name_or_path $MODEL --output_dir o"
    " --learning_rate 1e-5 --bf16 True --per_device_train_batch_size $BATCH\n"
)


@pytest.mark.parametrize(
    "loop", ["while [[ $# -gt 0 ]]", 'while [ "$#" -gt 0 ]', 'while [[ -n "$1" ]]']
)
def test_options_that_a_script_takes_apart_itself(loop):
    job = _TAKES_APART.format(loop=loop)
    line = "bash job.sh --batch 64 -m Qwen/Qwen3-4B\n"
    [run] = link({"all.sh": line, "job.sh": job}).runs
    assert (run.plan.model.id, run.plan.batch.micro) == ("Qwen/Qwen3-4B", 64)


_GETS = (
    'BATCH=1\nwhile getopts ":b:m:v" option; do\n  case ${{option}} in\n    b ) BATCH="$OPTARG" ;;\n'
    "    m ) MODEL=$OPTARG ;;\n    v ) set -x ;;\n  esac\ndone\nshift $((OPTIND - 1))\n"
    "torchrun train.py --model_name_or_path $MODEL --output_dir {out}"
    " --learning_rate 1e-5 --bf16 True --per_device_train_batch_size $BATCH\n"
)


@pytest.mark.parametrize(
    ("line", "micro"),
    [("-b 64 -m Qwen/Qwen3-4B", 64), ("-v -m Qwen/Qwen3-4B", 1), ("-m Qwen/Qwen3-4B -- x", 1)],
)
def test_options_that_getopts_takes_apart(line, micro):
    files = {"all.sh": f"bash job.sh {line}\n", "job.sh": _GETS.format(out="o")}
    [run] = link(files).runs
    assert (run.plan.model.id, run.plan.batch.micro) == ("Qwen/Qwen3-4B", micro)


def test_options_that_are_taken_apart_in_a_way_that_is_not_followed_are_not_its_defaults():
    for line in ("-x -b 64", "-b 64 -vb"):
        job = _GETS.format(out="o").replace("$MODEL", "Qwen/Qwen3-4B")
        [run] = link({"all.sh": f"bash job.sh {line}\n", "job.sh": job}).runs
        assert "batch.micro" in {str(field) for field in run.unreadable}


@pytest.mark.parametrize("job", [{}, {"job.slurm": "torchrun other.py\n"}])
def test_line_that_starts_a_script_trains_nothing_itself(job):
    line = f"sbatch job.slurm {_HANDED.format('Qwen/Qwen3-4B')} --learning_rate 1e-5\n"
    assert not link({"all.sh": line, **job}).runs


@pytest.mark.parametrize(
    ("line", "is_elsewhere"),
    [
        ("sed s/GB/4/ ds_TEMPLATE.json | sed s/MB/2/ > ds.json", True),
        ("python make_config.py > ds.json", True),
        ("python make_config.py > other.json", False),
        ("cp $HERE/zero3.json ./ds.json", True),
        ("cp -r /mnt/configs/ds.json .", True),
        ("cp ds.json other.json", False),
    ],
)
def test_file_that_the_script_writes_itself_is_not_missing(line, is_elsewhere):
    start = f"deepspeed train.py {_BATCH} --deepspeed ds.json"
    [run] = link({"run.sh": f"{line}\n{start}\n", "train.py": "import torch\n"}).runs
    [missing] = run.missing
    assert missing.is_elsewhere is is_elsewhere


@pytest.mark.parametrize(
    ("made", "is_elsewhere"),
    [
        ("with open('ds.json', 'w') as f:\n    f.write(text)\n", True),
        ("with open(f'{out}/ds.json', mode='w') as f:\n    f.write(text)\n", True),
        ("with open('ds.json') as f:\n    text = f.read()\n", False),
        ("with open('other_ds.json', 'w') as f:\n    f.write(text)\n", False),
    ],
)
def test_file_that_a_program_of_the_project_writes_is_not_missing(made, is_elsewhere):
    start = f"deepspeed train.py {_BATCH} --deepspeed ds.json\n"
    [run] = link(
        {"run.sh": start, "train.py": "import torch\n", "make.py": made}, names=["run.sh"]
    ).runs
    [missing] = run.missing
    assert missing.is_elsewhere is is_elsewhere


@pytest.mark.parametrize(
    ("told", "is_elsewhere"),
    [
        ("mv zero.json Framework/examples/configs/zero.json\n", True),
        ("    $ cp zero.json ../Framework/examples/configs/zero.json\n", True),
        ("mv zero.json Framework/other/zero.json\n", False),
        ("look at Framework/examples/configs/zero.json\n", False),
    ],
)
def test_file_that_a_readme_has_put_elsewhere_is_not_missing(told, is_elsewhere):
    start = f"deepspeed train.py {_BATCH} --deepspeed examples/configs/zero.json\n"
    files = {"run.sh": start, "train.py": "import torch\n", "README.md": told}
    [run] = link(files, names=["run.sh"]).runs
    [missing] = run.missing
    assert missing.is_elsewhere is is_elsewhere


def test_a_file_that_the_launching_script_writes_is_what_its_config_names():
    """Axolotl ships a deepspeed_configs/zero3.json; this project's script writes its own."""
    script = (
        "mkdir -p deepspeed_configs\nif [ ! -f deepspeed_configs/zero3.json ]; then\n"
        "cat > deepspeed_configs/zero3.json << 'EOF'\n"
        '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}\n'
        "EOF\nfi\naccelerate launch --num_processes 4 -m axolotl.cli.train axolotl.yaml\n"
    )
    config = f"{RUN}deepspeed: deepspeed_configs/zero3.json\n"
    (run,) = link({"axolotl.yaml": config, "run.sh": script}).runs
    assert run.plan.offload.optimizer == "cpu"
    (alone,) = link({"axolotl.yaml": config}).runs
    assert alone.plan.offload.optimizer != "cpu"


def test_a_module_may_lie_in_src():
    files = {
        "run.sh": "export PYTHONPATH=src\ntorchrun --nproc_per_node 2 -m train" + _OPTIONS,
        "src/train.py": _OWN_TRAINER,
    }
    (run,) = link(files).runs
    assert run.plan.checkpointing.mode == "full"


_OPTIONS = (
    " --model_name_or_path Qwen/Qwen2.5-7B-Instruct --output_dir o"
    " --per_device_train_batch_size 1 --num_train_epochs 1 --learning_rate 1e-5\n"
)
_OWN_TRAINER = """\
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Own:
    model_name_or_path: str = None
    gradient_checkpointing: bool = True

def main():
    (args,) = HfArgumentParser((Own,)).parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, dtype="bfloat16")
    options = TrainingArguments(
        output_dir="o", gradient_checkpointing=args.gradient_checkpointing, bf16=True
    )
    Trainer(model=model, args=options, train_dataset=data).train()

main()
"""


_OWN = f"{_TRAIN} --per_device_train_batch_size 1 --learning_rate 1e-5 --num_train_epochs 1"


@pytest.mark.parametrize(
    ("command", "program", "runs"),
    [
        (f"torchrun train/train.py --stage stage2 {_OWN}", "train/train.py", 0),
        (f"torchrun train/train.py --stage sft {_OWN}", "train/train.py", 0),
        (f"deepspeed --module ours.trainers.dpo {_TRAIN} --beta 0.1", "ours/trainers/dpo.py", 0),
        (f"torchrun src/train.py --stage sft {_OWN}", "src/elsewhere.py", 1),
    ],
    ids=["words of its own", "words of the framework's", "a module", "a program that is not here"],
)
def test_a_program_of_the_projects_own_is_no_frameworks_by_its_name(command, program, runs):
    files = {"run.sh": f"{command}\n", program: "from transformers import AutoModelForCausalLM\n"}
    found = link(files, names=["run.sh"]).runs
    assert len([run for run in found if run.framework in ("llama-factory", "trl")]) == runs


def test_a_program_that_names_the_framework_is_its():
    command = f"torchrun src/train.py --stage sft {_OWN}\n"
    files = {"run.sh": command, "src/train.py": "from llmtuner import run_exp\n"}
    [run] = link(files, names=["run.sh"]).runs
    assert run.framework == "llama-factory"


_LOOP = "from diffusers import AutoencoderKL\nfor batch in data:\n    accelerator.backward(loss)\n"
_FUNCTIONAL = "from torch.func import grad_and_value\nstep = grad_and_value(loss)\n"


@pytest.mark.parametrize(
    ("script", "runs"),
    [
        (_LOOP, []),
        (_FUNCTIONAL, []),
        (_LOOP + "class Ours(Trainer): pass\n", ["run.sh"]),
        (None, ["run.sh"]),
        ("import jax\n# Initialize our Trainer\nstep = jax.pmap(train_step)\n", []),
        ("import pytorch_lightning as pl\ntrainer = pl.Trainer.from_argparse_args(args)\n", []),
        ("from transformers import (\n    TFTrainer,\n)\ntrainer = TFTrainer(model, args)\n", []),
        ("import tensorflow as tf\nfrom transformers import Trainer\n", ["run.sh"]),
    ],
    ids=[
        "a loop",
        "a function",
        "a trainer with a step of its own",
        "not here",
        "JAX",
        "Lightning",
        "TensorFlow",
        "TensorFlow beside a trainer",
    ],
)
def test_options_like_the_trainers_of_a_loop_without_one(script, runs):
    files = {"run.sh": f"accelerate launch train.py {_OWN}\n"}
    files |= {} if script is None else {"train.py": script}
    assert [run.name for run in link(files, names=["run.sh"]).runs] == runs


_NAMESAKE = """\
import argparse
import jax
from transformers import LlamaForCausalLM
from ours.trainer import Trainer
parser = argparse.ArgumentParser()
parser.add_argument("--per_device_train_batch_size", type=int, default=4)
args = parser.parse_args()
weights = LlamaForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
trainer = Trainer(args=args, model=model, params=convert(weights))
trainer.train()
"""


@pytest.mark.parametrize(
    ("trainer", "runs"),
    [
        ("class Trainer:\n    def train(self):\n        step(self.params)\n", []),
        ("class Trainer(object):\n    def train(self):\n        step(self.params)\n", []),
        ("import transformers\nclass Trainer(transformers.Trainer):\n    pass\n", ["run.sh"]),
    ],
    ids=["of nothing", "of an object", "of the library's"],
)
def test_a_class_with_the_name_of_a_trainer_that_is_none(trainer, runs):
    files = {"run.sh": f"python train.py {_OWN}\n", "train.py": _NAMESAKE}
    files |= {"ours/__init__.py": "", "ours/trainer.py": trainer}
    assert [run.name for run in link(files, names=["run.sh", "train.py"]).runs] == runs


_READER = "import yaml\nraw = yaml.safe_load(file)\nours = raw['our_section']\n"


@pytest.mark.parametrize(
    ("launch", "strays"),
    [("", []), ("llamafactory-cli train run.yaml\n", ["our_section"])],
    ids=["whatever starts it", "the framework's command"],
)
def test_a_key_that_the_projects_own_program_reads(launch, strays):
    files = {
        "run.yaml": f"{LLAMA_FACTORY}our_section: {{a: 1}}\n",
        "ours.py": _READER,
        "run.sh": launch,
    }
    [run] = link(files, names=["run.yaml", "run.sh"]).runs
    assert [stray.path for stray in run.stray] == strays


def test_a_program_that_cannot_be_read_costs_no_other_run():
    files = {
        "run.sh": f"accelerate launch train.py {_OWN}\n",
        "train.py": "accelerator.backward(loss)\ndef (:\n",
        "run.yaml": LLAMA_FACTORY,
    }
    linked = link(files, names=["run.sh", "run.yaml"])
    assert [run.name for run in linked.runs if run.framework == "llama-factory"] == ["run.yaml"]


_MANAGER = (
    "def _dict_to_dataclass(cls, data):\n"
    "{refusal}"
    "    return cls(**{{f.name: data[f.name] for f in fields(cls) if f.name in data}})\n"
)


@pytest.mark.parametrize(
    ("refusal", "is_refused"),
    [
        ("", False),
        (
            (
                "    if invalid_fields := set(data) - valid_fields:\n"
                "        raise ValueError(invalid_fields)\n"
            ),
            True,
        ),
    ],
)
def test_whether_the_projects_own_copy_refuses_keys_that_it_does_not_know(refusal, is_refused):
    files = {
        "torchtitan/config_manager.py": _MANAGER.format(refusal=refusal),
        "train_configs/ours.toml": (
            '[model]\nname = "llama3"\nflavor = "8B"\nour_key = 1\n'
            "[training]\nseq_len = 4096\n[parallelism]\ntensor_parallel_degree = 2\n"
        ),
    }
    [run] = link(files, names=["train_configs/ours.toml"]).runs
    assert [(stray.path, stray.is_refused) for stray in run.stray] == [
        ("model.our_key", is_refused)
    ]


@pytest.mark.parametrize(("nargs", "wrong"), [("", ["num_experts"]), ("nargs='+', ", [])])
def test_options_that_take_several_values_in_the_projects_own_copy(tmp_path, nargs, wrong):
    (tmp_path / "megatron").mkdir()
    (tmp_path / "megatron" / "arguments.py").write_text(
        "def add(group):\n"
        f"    group.add_argument('--num-experts', type=int, {nargs}default=max(1, 0), help='per (MoE) layer')\n"
        "    group.add_argument('--data-path', nargs='*')\n"
    )
    (tmp_path / "pretrain_gpt.py").write_text("from megatron.arguments import add\n")
    (tmp_path / "run.sh").write_text(
        'EP_SIZE="64 64 128"\n'
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 "
        "--num-attention-heads 16 --seq-length 2048 --micro-batch-size 4 --num-experts ${EP_SIZE}\n"
    )
    workspace = Workspace(tmp_path, named=[tmp_path])
    [run] = Linker(workspace, registry(), LinkOptions()).link(["run.sh"]).runs
    assert [each.entry.key for each in run.wrong] == wrong


def test_a_folder_that_only_running_tells_may_be_any_of_the_project():
    script = 'cd "$HERE"\nllamafactory-cli train examples/sft.yaml\n'
    text = "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\ndo_train: true\ndataset: alpaca\n"
    [run] = link({"run.sh": script, "tool/examples/sft.yaml": text}, names=["run.sh"]).runs
    assert run.plan.model.id == "Qwen/Qwen2.5-7B"
    two = {"run.sh": script, "tool/examples/sft.yaml": text, "old/examples/sft.yaml": text}
    [run] = link(two, names=["run.sh"]).runs
    [missing] = run.missing
    assert missing.is_elsewhere
    there = {"run.sh": script.replace('"$HERE"', "tool"), "tool/README.md": "# Tool\n"}
    [run] = link(there, names=["run.sh"]).runs
    assert not run.missing[0].is_elsewhere


def test_a_file_that_is_missing_has_a_namesake(tmp_path):
    """The one that the project has elsewhere; of two nobody knows which is meant."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "ds.json").write_text("{}")
    (tmp_path / "a.yaml").write_text(f"{RUN}deepspeed: x/ds.json\n")
    for more in ((), ("other",)):
        for folder in more:
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "ds.json").write_text("{}")
        workspace = Workspace(tmp_path, named=[tmp_path])
        (run,) = Linker(workspace, registry(), LinkOptions()).link(["a.yaml"]).runs
        (missing,) = run.missing
        assert bool(missing.namesake) is not bool(more)
