"""Habits in training scripts: each is found, and its innocent look-alikes are not."""

from __future__ import annotations

import pytest

from oomlint.documents.python.document import parse_python
from oomlint.documents.text import Source


def kinds(text: str) -> list[tuple[str, int]]:
    source = Source.from_bytes("train.py", text.encode())
    document = parse_python(source)
    assert document is not None
    # Which data is loaded is no habit (tests/documents/test_python_data.py), nor that these fragments train nothing.
    others = (
        "loads-sets", "takes-names", "imports-module", "never-trains", "makes-arguments",
    )  # fmt: skip
    habits = (fact for fact in document.facts if fact.kind not in others)
    return [(f.kind, source.position(f.location.span.start)[0]) for f in habits]


LOAD = "from transformers import Trainer, TrainingArguments, AutoModel\n"
FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, FullStateDictConfig\n"
LOOP = "for b in d:\n    loss = model(b).loss\n    loss.backward()\n"

FOUND = {
    "own-option": ("p.add_argument('--deepspeed')\na = p.parse_args()\nt.deepspeed = a.deepspeed\n", ("own-deepspeed-option", 1)),
    "errno": ("try:\n    trainer.train()\nexcept OSError as e:\n    if e.errno == -9:\n        pass\n",
              ("catches-sigkill", 4)),
    "memory-error": ("try:\n    trainer.train()\nexcept MemoryError as e:\n    if e.args[0] == -9:\n        pass\n",
                     ("catches-sigkill", 4)),
    "retry": ("try:\n    trainer.train()\nexcept torch.cuda.OutOfMemoryError:\n    trainer.train()\n",
              ("retries-inside-except", 4)),
    "retry-step": ("try:\n    loss.backward()\nexcept (torch.OutOfMemoryError,):\n    loss.backward()\n",
                   ("retries-inside-except", 4)),
    "thread-args": (("import torch, threading\n"
                    "threading.Thread(target=torch.save, args=(m.state_dict(), p)).start()\n"),
                    ("async-save-thread", 2)),
    "thread-function": (("import torch\nfrom threading import Thread\ndef save():\n"
                        "    torch.save(model.state_dict(), p)\nThread(target=save).start()\n"),
                        ("async-save-thread", 5)),
    "executor": ("import torch\npool.submit(torch.save, m.state_dict(), p)\n", ("async-save-thread", 2)),
    "lambda": ("import torch\npool.submit(lambda: torch.save(m.state_dict(), p))\n", ("async-save-thread", 2)),
    "dcp": ("import torch.distributed.checkpoint as dcp\ndcp.async_save(s)\n", ("dcp-async-save", 2)),
    "dcp-from": ("from torch.distributed.checkpoint import async_save\nasync_save(s)\n", ("dcp-async-save", 2)),
    "zero3": (LOAD + "m = AutoModel.from_pretrained('x')\na = TrainingArguments(deepspeed='z3.json')\n",
              ("load-before-zero3-config", 2)),
    "zero3-in-main": (LOAD + "def load():\n    return AutoModel.from_pretrained('x')\ndef main():\n"
                      "    m = load()\n    a = TrainingArguments(deepspeed={'a': 1})\nmain()\n",
                      ("load-before-zero3-config", 3)),
    "zero3-by-option": ("import argparse\n" + LOAD + "p = argparse.ArgumentParser()\np.add_argument('--ds', default=None)\n"
                        "args = p.parse_args()\nm = AutoModel.from_pretrained('x')\n"
                        "a = TrainingArguments(deepspeed=args.ds)\n", ("load-before-zero3-config", 6)),
    "zero3-by-option-of-its-own": ("from transformers import HfArgumentParser\n" + LOAD
                                   + "from dataclasses import dataclass\n@dataclass\nclass Plain:\n    deepspeed: str = None\n"
                                   "(args,) = HfArgumentParser((Plain,)).parse_args_into_dataclasses()\n"
                                   "m = AutoModel.from_pretrained('x')\n"
                                   "a = TrainingArguments(deepspeed=args.deepspeed)\n", ("load-before-zero3-config", 8)),
    "zero3-not-kept": ("HfDeepSpeedConfig(c)\nm = AutoModel.from_pretrained('x')\n",
                       ("load-before-zero3-config", 1)),
    "torch-load": ("import torch\nimport torch.distributed\ns = torch.load(p)\nm.load_state_dict(s['m'])\n", ("torch-load-no-map-location", 3)),
    "asked for by another": (FSDP + "with FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT):\n    save(trainer)\n",
                             ("state-dict-on-gpu", 2)),
    "saved by itself": (FSDP + "with FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT):\n    m.save_pretrained('out')\n",
                        ("state-dict-on-gpu", 2)),
    "full-state": (FSDP + "FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT)\n", ("state-dict-on-gpu", 2)),
    "full-state-gpu": (FSDP + "c = FullStateDictConfig(rank0_only=True)\n"
                       "FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT, c)\n", ("state-dict-on-gpu", 3)),
    "loss": (LOOP + "    total += loss\n", ("loss-accumulated-with-graph", 4)),
    "loss-scaled": (LOOP + "    total += loss / len(d)\n", ("loss-accumulated-with-graph", 4)),
    "loss-of-epoch": ("for e in es:\n  total = 0\n  for b in d:\n    loss = m(b)\n    loss.backward()\n    total += loss\n",
                      ("loss-accumulated-with-graph", 6)),
    "loss-averaged": (LOOP + "    total += loss\n    total = mean_of_ranks(total)\n    mean = total.item()\n",
                      ("loss-accumulated-with-graph", 4)),
    "loss-appended": (LOOP + "    losses.append(loss)\n", ("loss-accumulated-with-graph", 4)),
    "loss-accelerate": ("def f():\n  for b in d:\n    loss = m(b)\n    accelerator.backward(loss)\n    t += loss\n",
                        ("loss-accumulated-with-graph", 5)),
    "empty-cache": (LOOP + "    torch.cuda.empty_cache()\n", ("empty-cache-in-loop", 4)),
    "alloc": ("# Trainer\nimport os\nimport torch\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'x'\n",
              ("alloc-conf-after-import", 4)),
    "alloc-default": ("import os\nfrom torch import nn\nos.environ.setdefault('PYTORCH_CUDA_ALLOC_CONF', 'x')\n",
                      ("alloc-conf-after-import", 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    script, expected = FOUND[name]
    assert kinds(script) == [expected]
    assert kinds(script.replace("\n", "\r\n")) == [expected]


INNOCENT = {
    "an option that is handed on": "p.add_argument('--deepspeed')\na = p.parse_args()\nTrainingArguments(deepspeed=a.deepspeed)\n",
    "an option for DeepSpeed itself": "p.add_argument('--deepspeed')\ndeepspeed.initialize(config=p.parse_args().deepspeed)\n",
    "the optimizer's states": FSDP + "with FSDP.state_dict_type(\n"
    "    m, StateDictType.FULL_STATE_DICT, optim_state_dict_config=FullOptimStateDictConfig(True)\n"
    "):\n    s = FSDP.optim_state_dict(m, o)\n",
    "states that are given": FSDP + "with FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT):\n    m.load_state_dict(s)\n",
    "a schedule's state": "import torch\nimport torch.distributed\ns = torch.load(p)\nlr_scheduler.load_state_dict(s)\n",
    "loss that starts anew": LOOP + "    total += loss\n    if step:\n        log(total.item())\n        total = 0\n",
    "a number by the end of the turn": LOOP + "    total += loss\n    total = mean_of_ranks(total).item()\n",
    "a float by the end of the turn": LOOP + "    total += loss\n    total = float(total) / 2\n",
    "detached by the end of the turn": LOOP + "    total += loss\n    total = total.detach().cpu()\n",
    "losses that are cleared": LOOP + "    losses.append(loss)\n    if step:\n        losses.clear()\n",
    "conversion": "import torch\nimport torch.distributed\ndef convert(p):\n    s = torch.load(p)\n    torch.save(s, p)\n",
    "child's return code": "try:\n    subprocess.run(c, check=True)  # Trainer\n"
    "except subprocess.CalledProcessError as e:\n    if e.returncode == -9:\n        pass\n",
    "another errno": "try:\n    trainer.train()\nexcept OSError as e:\n    if e.errno == 28:\n        pass\n",
    "handler lets go": "try:\n    trainer.train()\nexcept torch.cuda.OutOfMemoryError:\n    failed = True\n",
    "retry in another error": "try:\n    trainer.train()\nexcept ValueError:\n    trainer.train()\n",
    "copied to host": "import torch\ndef save(s):\n    torch.save({k: v.cpu() for k, v in s.state_dict().items()}, p)\n"
    "Thread(target=save)\n",
    "thread saves nothing": "import torch\ndef log():\n    print(1)\nThread(target=log)  # Trainer\n",
    "synchronous save": "import torch\ntorch.save(m.state_dict(), p)\n",
    "config first": LOAD + "a = TrainingArguments(deepspeed='z3.json')\nm = AutoModel.from_pretrained('x')\n",
    "no deepspeed": LOAD + "m = AutoModel.from_pretrained('x')\na = TrainingArguments(deepspeed=None)\n",
    "kept config": LOAD + "c = HfDeepSpeedConfig(x)\nm = AutoModel.from_pretrained('x')\n"
    "a = TrainingArguments(deepspeed='z')\n",
    "config of another model": LOAD + "def averaged():\n    c = HfDeepSpeedConfig(x)\n"
    "    return AutoModel.from_pretrained('x')\ndef main():\n    m = AutoModel.from_pretrained('x')\n"
    "    e = averaged()\nmain()\n",
    "unrelated functions": LOAD + "def f():\n    return AutoModel.from_pretrained('x')\n"
    "def g():\n    return TrainingArguments(deepspeed='z')\n",
    "single GPU load": "import torch\ntorch.load(p)\n",
    "weights to begin with": "import torch, torch.distributed\nm.load_state_dict(torch.load(args.pretrained_path))\n",
    "on TPUs": "import torch, torch.distributed\nimport torch_xla\ns = torch.load(p)\nm.load_state_dict(s)\n",
    "evaluates what others trained": "import torch, torch.distributed\nfrom own import OwnTrainer\n"
    "m.load_state_dict(torch.load(p))\nm.eval()\n",
    "nobody calls it": "import torch, torch.distributed\nclass Loop:\n    def resume(self):\n"
    "        self.model.load_state_dict(torch.load(p))\nif __name__ == '__main__':\n    Loop().train()\n",
    "mapped": "import torch, torch.distributed\ntorch.load(p, map_location='cpu')\ntorch.load(p, 'cpu')\ntorch.load(p, **k)\n",
    "offloaded": FSDP + "c = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)\n"
    "FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT, c)\n",
    "one GPU": FSDP
    + "if world_size == 1:\n    FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT)\n",
    "a file for each rank": "import torch, torch.distributed\ntorch.load(f'{d}/rank{rank}.pt')\n",
    "a part": FSDP + "with FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT):\n"
    "    s = accelerator.get_state_dict(m.projection)\n",
    "shards that are listed": FSDP + "import torch\nwith FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT):\n"
    "    m.config.use_cache = True\n    s = gathered(m.named_parameters(), a.bias)\n    m.save_pretrained(a.out, state_dict=s)\n"
    "    torch.save(s, 'last.pt')\n",
    "sharded": FSDP + "FSDP.state_dict_type(m, StateDictType.SHARDED_STATE_DICT)\n",
    "item": LOOP + "    total += loss.item()\n    t2 += loss.detach()\n    ls.append(float(loss))\n",
    "summed then backward": "for b in d:\n    loss = m(b)\n    total += loss\ntotal.backward()\n",
    "evaluation": "for b in d:\n    loss = m(b)  # Trainer\n    total += loss\n",
    "detached before": LOOP + "    loss = loss.detach()\n    total += loss\n",
    "cache emptied now and then": LOOP + "    if step % 100 == 0:\n        torch.cuda.empty_cache()\n",
    "cache emptied once": LOOP + "torch.cuda.empty_cache()\n",
    "alloc before": "import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'x'\nimport torch\n",
    "zero3 quantized": LOAD + "q = dict(quantization_config=BitsAndBytesConfig(load_in_4bit=c['x']))\n"
    "m = AutoModel.from_pretrained('x', **q)\na = TrainingArguments(deepspeed='z3.json')\n",
    "zero3 in 8 bit": LOAD + "m = AutoModel.from_pretrained('x', load_in_8bit=True)\na = TrainingArguments(deepspeed='z3.json')\n",
    "alloc read": "import os\nimport torch\nprint(os.environ['PYTORCH_CUDA_ALLOC_CONF'])\n",
}  # fmt: skip


def test_arguments_that_are_parsed_before_a_load_tell_it_of_deepspeed() -> None:
    script = (
        "from transformers import HfArgumentParser\nfrom trl import DPOConfig\ndef main():\n"
        "    parser = HfArgumentParser((ModelArguments, {}))\n"
        "    model_args, args = parser.parse_args_into_dataclasses()\n"
        "    m = AutoModel.from_pretrained('x')\n    a = DPOConfig(deepspeed=args.deepspeed)\nmain()\n"
    )
    too_late = ("load-before-zero3-config", 7)
    assert too_late not in kinds(LOAD + script.format("TrainingArguments"))
    assert too_late in kinds(LOAD + script.format("DataArguments"))


@pytest.mark.parametrize(
    "given", ["quantization_config=None", "load_in_4bit=False", "load_in_8bit=q"]
)
def test_a_load_that_may_not_be_quantized_would_be_sharded(given: str) -> None:
    script = (
        LOAD
        + f"m = AutoModel.from_pretrained('x', {given})\na = TrainingArguments(deepspeed='z3.json')\n"
    )
    assert ("load-before-zero3-config", 2) in kinds(script)


@pytest.mark.parametrize("name", INNOCENT)
def test_innocent(name: str) -> None:
    # That each process picks its card before it loads is told to who asks, and is no mistake.
    assert [kind for kind in kinds(INNOCENT[name]) if kind[0] != "device-before-load"] == []


SIDE = {
    "merge": ("m = m.merge_and_unload()\n", "merges-adapter"),
    "unsloth": ("m.save_pretrained_merged('x', t, save_method='merged_16bit')\n", "merges-adapter"),
    "convert": ("s = get_fp32_state_dict_from_zero_checkpoint('x')\n", "zero-to-fp32"),
    "in memory": ("d = load_dataset('x', keep_in_memory=True)\n", "dataset-in-memory"),
    "anomaly": ("import torch\ntorch.autograd.set_detect_anomaly(True)\n", "debug-mode"),
    "history": ("import torch\ntorch.cuda.memory._record_memory_history()\n", "debug-mode"),
    "blocking": ("import os\nos.environ['CUDA_LAUNCH_BLOCKING'] = '1'\n", "debug-mode"),
    "state dict": (
        "m.state_dict = (lambda s: get_peft_model_state_dict(s)).__get__(m)\n",
        "overrides-state-dict",
    ),
}
NO_SIDE = {
    "adapter only": "m.save_pretrained_merged('x', t, save_method='lora')\n",
    "lazy": "s = get_fp32_state_dict_from_zero_checkpoint('x', lazy_mode=True)\n",
    "own": "def load_state_dict_from_zero_checkpoint(x):\n    pass\n"
    "load_state_dict_from_zero_checkpoint('x')\n",
    "mapped": "d = load_dataset('x', keep_in_memory=False)\n",
    "off": "import torch\ntorch.autograd.set_detect_anomaly(False)\n",
    "bounded": "import torch\ntorch.cuda.memory._record_memory_history(max_entries=10)\n",
    "stopped": "import torch\ntorch.cuda.memory._record_memory_history()\nstep()\n"
    "torch.cuda.memory._record_memory_history(enabled=None)\n",
    "not blocking": "import os\nos.environ['CUDA_LAUNCH_BLOCKING'] = '0'\n",
    "engine": f"import vllm\n{LOOP}    torch.cuda.empty_cache()\n",
    "no training": "import torch\nfor b in d:\n    m(b)\n    torch.cuda.empty_cache()\n",
}


@pytest.mark.parametrize("name", SIDE)
def test_what_a_script_does_beside_training(name: str) -> None:
    text, kind = SIDE[name]
    assert [found for found, _ in kinds(LOAD + text)] == [kind]


@pytest.mark.parametrize("name", NO_SIDE)
def test_nothing_is_said_of_what_takes_no_memory(name: str) -> None:
    assert not kinds(LOAD + NO_SIDE[name])


def test_a_statement_is_deleted_with_its_lines_unless_it_stands_alone() -> None:
    line = "os.environ['CUDA_LAUNCH_BLOCKING'] = '1'\n"
    document = parse_python(Source("x.py", f"{LOAD}{line}x = 1\n"))
    assert document is not None
    [fact] = (f for f in document.facts if f.kind == "debug-mode")
    assert (fact.mend[0].start, fact.mend[0].end) == (len(LOAD), len(LOAD + line))
    document = parse_python(Source("x.py", f"{LOAD}if debug:\n    {line}"))
    assert document is not None
    [fact] = (f for f in document.facts if f.kind == "debug-mode")
    assert not fact.mend


_TOO_LATE = "# Trainer\nimport os\nimport torch\n{}\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'x'\n"


@pytest.mark.parametrize(
    ("call", "is_used"),
    [
        ("torch.cuda.set_device(0)", True),
        ("torch.cuda.synchronize()", True),
        ("name = torch.cuda.get_device_name()", True),
        ("model.cuda()", True),
        ("model.to('cuda:0')", True),
        ("model = AutoModel.from_pretrained(name, device_map='auto')", True),
        ("model = AutoModel.from_pretrained(name, device_map={'': 'cuda:0'})", True),
        ("torch.cuda.empty_cache()", False),
        ("torch.cuda.is_available()", False),
        ("torch.cuda.manual_seed_all(1)", False),
        ("used = torch.cuda.memory_allocated()", False),
        ("tokenizer = AutoTokenizer.from_pretrained(name)", False),
        ("model = AutoModel.from_pretrained(name)", False),
        ("model = AutoModel.from_pretrained(name, device_map='cpu')", False),
    ],
)
def test_what_initialises_cuda(call: str, is_used: bool) -> None:
    document = parse_python(Source.from_bytes("train.py", _TOO_LATE.format(call).encode()))
    assert document is not None
    (fact,) = [each for each in document.facts if each.kind == "alloc-conf-after-import"]
    assert fact.detail["cuda_used"] is is_used
