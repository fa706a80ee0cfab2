"""What a script puts in place of the model's loss, and flags that it never looks at."""

from __future__ import annotations

import pytest
from tests.linked import run_of

_IMPORTS = (
    "from transformers import AutoModel, AutoModelForCausalLM, Qwen2ForCausalLM\n"
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
)
_ARGUMENTS = "args = TrainingArguments(output_dir='o', per_device_train_batch_size=2, bf16=True)\n"
_LAUNCH = (
    "torchrun --nproc_per_node 8 train.py --output_dir o --per_device_train_batch_size 16 "
    "--learning_rate 1e-5 --bf16 True --model_name_or_path Qwen/Qwen2.5-7B\n"
)


def _script(body: str, *, model: str = "AutoModelForCausalLM", trainer: str = "Trainer") -> str:
    return (
        f"{_IMPORTS}{body}model = {model}.from_pretrained('Qwen/Qwen2.5-7B', torch_dtype='bfloat16')\n"
        f"{_ARGUMENTS}trainer = {trainer}(model=model, args=args, train_dataset=data)\ntrainer.train()\n"
    )


_CHUNKED = """\
class Model(Qwen2ForCausalLM):
    def forward(self, input_ids, labels=None):
        hidden = self.model(input_ids).last_hidden_state
        return {"loss": ChunkedCE.apply(hidden, self.lm_head.weight, labels)}
"""
_PLAIN = """\
class Model(Qwen2ForCausalLM):
    def forward(self, input_ids, labels=None):
        hidden = self.model(input_ids).last_hidden_state
        logits = self.lm_head(hidden)
        return {"loss": self.loss_function(logits, labels)}
"""
_CONTRASTIVE = """\
class PairsTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        texts, labels = inputs
        return self.loss_function(self.model(texts[0]), self.model(texts[1]))
"""
_WEIGHTED = """\
class PairsTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        return self.weight * model(**inputs).loss
"""
_OF_HELPER = """\
class PairsTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        return -self.likelihood(model, inputs).mean()

    def likelihood(self, model, inputs):
        return select(model(**inputs).logits, inputs)
"""
_FIRST_OUTPUT = """\
class PairsTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        return self.weight * model(**inputs)[0]
"""
_INHERITED = """\
class PairsTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        loss = super().compute_loss(model, inputs)
        return loss
"""


@pytest.mark.parametrize(
    ("body", "names", "logits"),
    [
        (_CHUNKED, {"model": "Model"}, "fused"),
        (_CHUNKED, {}, "full"),  # the class is not what is trained
        (_PLAIN, {"model": "Model"}, "full"),
        (_CONTRASTIVE, {"trainer": "PairsTrainer"}, "fused"),
        (_WEIGHTED, {"trainer": "PairsTrainer"}, "full"),
        (_FIRST_OUTPUT, {"trainer": "PairsTrainer"}, "full"),
        (_OF_HELPER, {"trainer": "PairsTrainer"}, "full"),
        (_INHERITED, {"trainer": "PairsTrainer"}, "full"),
        ("", {}, "full"),
        ("", {"model": "AutoModel"}, "fused"),
    ],
)
def test_a_loss_of_the_scripts_own_may_need_no_logits(
    body: str, names: dict[str, str], logits: str
) -> None:
    run = run_of({"train.py": _script(body, **names)})
    assert run.plan.loss.logits_materialised == logits
    if body and logits == "fused":
        assert any("script's own" in (s.origin.source or "") for s in run.settings.values())


def test_code_of_a_checkpoint_may_give_auto_model_a_head() -> None:
    """Qwen2 is transformers' own, whatever code may run; InternLM2 is its checkpoint's, which gives it a head."""
    text = _script("", model="AutoModel").replace(
        "torch_dtype", "trust_remote_code=True, torch_dtype"
    )
    assert run_of({"train.py": text}).plan.loss.logits_materialised == "fused"
    text = text.replace("Qwen/Qwen2.5-7B", "internlm/internlm2-7b")
    run = run_of({"train.py": text})
    assert (run.plan.model.arch, run.plan.loss.logits_materialised) == ("internlm2", "full")


def test_a_loop_over_a_model_without_its_head_has_no_logits() -> None:
    script = (
        "import torch\nfrom transformers import AutoModel, AutoModelForCausalLM\n"
        "class Encoder:\n"
        "    def __init__(self, path):\n"
        "        self.model = {}.from_pretrained(path, trust_remote_code=True)\n"
        "model = Encoder('Qwen/Qwen3-0.6B').model\n"
        "optimizer = torch.optim.AdamW(model.parameters())\n"
        "for batch in loader:\n"
        "    loss = contrast(model(**batch))\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
    )
    headless = run_of({"train.py": script.format("AutoModel")})
    assert headless.plan.loss.logits_materialised == "fused"
    whole = run_of({"train.py": script.format("AutoModelForCausalLM")})
    assert whole.plan.loss.logits_materialised != "fused"


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        ("apply_liger_kernel_to_qwen2()", ("fused", None, True, True, True)),
        ("apply_liger_kernel_to_qwen2(rope=False)", ("fused", None, False, True, True)),
        (
            "apply_liger_kernel_to_qwen2(cross_entropy=True, fused_linear_cross_entropy=False)",
            ("full", "in_place", True, True, True),
        ),
        ("cce_patch('qwen2')", ("fused", None, False, False, False)),
    ],
)
def test_kernels_that_a_script_asks_for_itself(call: str, facts: tuple[object, ...]) -> None:
    loss = run_of({"train.py": _script(f"{call}\n")}).plan.loss
    liger = loss.liger
    assert (loss.logits_materialised, loss.algorithm, liger.rope, liger.rms, liger.swiglu) == facts


@pytest.mark.parametrize("option", ["pooling_mode", "sentence_pooling_method", "pooling"])
def test_a_run_that_pools_its_samples_has_no_logits(option: str) -> None:
    plain, pooled = _LAUNCH, _LAUNCH.replace("--bf16 True", f"--bf16 True --{option} mean")
    assert run_of({"run.sh": plain}).plan.loss.logits_materialised == "full"
    plan = run_of({"run.sh": pooled}).plan
    assert (plan.objective.kind, plan.loss.logits_materialised) == ("embedding", "fused")
    assert (
        run_of(
            {"run.sh": plain.replace("--bf16", "--mm_spatial_pool_mode x --bf16")}
        ).plan.objective.kind
        == "sft"
    )


_PARSES = "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"


@pytest.mark.parametrize(
    ("script", "micro"),
    [
        (_script(""), 2),
        (_script("").replace(_ARGUMENTS, _PARSES), 16),
        (_script("").replace("batch_size=2", "batch_size=options.per_device_train_batch_size"), 16),
    ],
)
def test_a_flag_does_not_change_what_the_script_writes_out(script: str, micro: int) -> None:
    assert run_of({"train.py": script, "run.sh": _LAUNCH}).plan.batch.micro == micro


_REWARDS = """\
class RewardTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        better = model(input_ids=inputs["input_ids_j"])[0]
        SECOND
        return -log_sigmoid(better - worse).mean()
"""


@pytest.mark.parametrize(
    ("second", "rows"),
    [
        ("worse = model(input_ids=inputs['input_ids_k'])[0]", 2),
        ("worse = inputs['target']", 1),
        ("if self.both: worse = model(inputs)\n        else: worse = self.model(inputs)", 2),
        ("with torch.no_grad(): worse = model(inputs)", 1),
        ("worse = other(inputs)", 1),
    ],
)
def test_a_trainer_that_runs_the_model_twice_keeps_two_samples(second: str, rows: int) -> None:
    body = _REWARDS.replace("SECOND", second)
    run = run_of({"train.py": _script(body, trainer="RewardTrainer")})
    assert (run.plan.objective.pairs_per_sample or 1) == rows


@pytest.mark.parametrize(
    ("said", "keeps"),
    [
        ("True, ignore_keys", False),
        ("prediction_loss_only=True", False),
        ("prediction_loss_only", True),
    ],
)
def test_evaluation_by_the_loss_alone_keeps_no_logits(said: str, keeps: bool) -> None:
    body = (
        "class PairsTrainer(Trainer):\n"
        "    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):\n"
        f"        loss, logits, labels = super().prediction_step(model, inputs, {said})\n"
        "        return loss, None, None\n"
    )
    script = _script(body, trainer="PairsTrainer").replace(
        "train_dataset=data", "train_dataset=data, eval_dataset=data, compute_metrics=measure"
    )
    assert run_of({"train.py": script}).plan.eval.keeps_logits is keeps
