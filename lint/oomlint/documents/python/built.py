"""Models that a script builds after another one's configuration instead of loading it.

``config = AutoConfig.from_pretrained("gpt2", vocab_size=len(tokenizer))``, ``model =
GPT2LMHeadModel(config)``: the dimensions are that model's, the weights are new.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from oomlint.documents.python.scopes import Binding, Scope, dotted

if TYPE_CHECKING:
    from oomlint.documents.python.calls import ReachedCall

_MODEL = re.compile(r"transformers\.\w*(?:ForCausalLM|LMHeadModel)(?P<loads>\.from_config)?")
_CONFIG = re.compile(r"\w*Config\.from_pretrained")
# What leaves the dimensions as they are; a vocabulary as long as the tokenizer's is that of the model.
_HARMLESS = frozenset(
    {
        "attn_implementation", "bos_token_id", "cache_dir", "eos_token_id", "n_ctx", "n_positions",
        "pad_token_id", "revision", "token", "trust_remote_code", "use_auth_token", "use_cache",
    }
)  # fmt: skip


def is_built(name: str) -> bool:
    """Whether a call of this dotted name makes a model of a configuration."""
    return _MODEL.fullmatch(name) is not None


def name_of_built(step: ReachedCall) -> tuple[ast.expr, Scope] | None:
    """The expression that names the model whose configuration a call builds one of, and where it stands;
    ``None`` where that is not plain, or where the script changes its dimensions."""
    given = [*step.node.args[:1], *(k.value for k in step.node.keywords if k.arg == "config")]
    if not given:
        return None
    config, scope = given[0], step.scope
    if isinstance(config, ast.Name):
        found = scope.find(config.id)
        value = None if found is None else _only(found[1])
        if found is None or value is None:
            return None
        config, scope = value, found[0]
    if not isinstance(config, ast.Call) or _CONFIG.fullmatch(dotted(config.func) or "") is None:
        return None
    if not config.args or not all(map(_is_harmless, config.keywords)):
        return None
    return config.args[0], scope


def _only(bindings: list[Binding]) -> ast.expr | None:
    """What a name is bound to, if that is one thing."""
    return bindings[0].value if len(bindings) == 1 else None


def _is_harmless(keyword: ast.keyword) -> bool:
    if keyword.arg == "vocab_size":
        value = keyword.value
        return isinstance(value, ast.Call) and dotted(value.func) == "len"
    return keyword.arg in _HARMLESS
