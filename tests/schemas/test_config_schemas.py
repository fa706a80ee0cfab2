"""The JSON Schemas of config files: valid, in step with the dialects, true of real files."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator, Draft202012Validator

import oomlint_schemas
from oomlint.dialects import registry
from oomlint.errors import FileError
from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint_schemas import CATALOG, load
from oomlint_schemas.configs import CONFIGS, catalogue
from oomlint_schemas.generate import text_of

CORPUS = Path(__file__).parents[2] / "../shared/corpus"


def errors(name, text, loads=yaml.safe_load):
    return [
        ("/".join(map(str, error.absolute_path)), error.message)
        for error in Draft202012Validator(load(name)).iter_errors(loads(text))
    ]


def property_of(name, path):
    schema = load(name)
    for key in path.split("."):
        ways = [schema, *schema.get("anyOf", ())]
        schema = next(way["properties"][key] for way in ways if key in way.get("properties", {}))
    return schema


def test_every_kind_of_config_has_a_file():
    assert tuple(config.name for config in CONFIGS) == oomlint_schemas.CONFIGS
    assert CATALOG.read_text("utf-8") == text_of(catalogue()), "run `python -m oomlint_schemas`"


@pytest.mark.parametrize("name", oomlint_schemas.CONFIGS)
def test_it_is_a_schema_for_old_tools_and_new(name):
    schema = load(name)
    Draft202012Validator.check_schema(schema)
    Draft7Validator.check_schema({**schema, "$schema": "http://json-schema.org/draft-07/schema#"})
    assert schema["$id"].endswith(f"/{name}.schema.json")
    assert '"$ref": "#/$defs/integer"' in text_of(schema)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_every_key_of_the_dialect_is_a_property(config):
    def has(schema, parts):
        if not parts:
            return True
        ways = [schema, *schema.get("anyOf", ())]
        return any(
            parts[0] in way.get("properties", {}) and has(way["properties"][parts[0]], parts[1:])
            for way in ways
        )

    schema, table = load(config.name), config.load()
    assert [key for key in sorted(table.legal_keys) if not has(schema, key.split("."))] == []


def test_what_an_editor_shows_of_a_key():
    micro = property_of("axolotl", "micro_batch_size")
    assert micro["default"] == 1
    assert "How many samples one GPU works on at a time." in micro["description"]
    assert "Activations and logits grow with it" in micro["description"]
    assert "oomlint's plan" not in json.dumps(load("axolotl"))
    assert "moves no memory" in property_of("axolotl", "adam_beta1")["description"]
    assert "axolotl src/axolotl/utils/schemas/training.py:77" in micro["description"]
    assert property_of("axolotl", "sample_packing")["default"] is False
    old = property_of("trl", "max_seq_length")
    assert old["deprecated"] is True
    assert old["deprecationMessage"] == "Ignored since TRL 0.20; write max_length."
    alias = property_of("axolotl", "sequence_parallel_degree")
    assert "Another spelling of context_parallel_size." in alias["description"]
    nested = load("axolotl")["$defs"]["fsdp_config"]["properties"]
    for spelling in ("sharding_strategy", "fsdp_sharding_strategy"):
        assert {"FULL_SHARD", "HYBRID_SHARD"} <= set(nested[spelling]["anyOf"][0]["enum"])


@pytest.mark.parametrize("name", oomlint_schemas.CONFIGS)
def test_every_key_says_something_beside_no_reference(name):
    def silent(schema, path=""):
        for key, inner in schema.get("properties", {}).items():
            assert "$ref" not in inner or len(inner) == 1, path + key
            ways = [inner, *inner.get("anyOf", ()), *inner.get("allOf", ())]
            if not any("properties" in way for way in ways) and "description" not in inner:
                yield path + key
            for way in ways:
                yield from silent(way, f"{path}{key}.")

    schema = load(name)
    assert [*silent(schema)] == []
    assert all("description" not in schema["$defs"][plain] for plain in ("integer", "open"))


RAY = """
train: {model: Qwen/Qwen2.5-7B, gpus: 4}
rollout: {gpus: 4}
colocate_groups: [[train, rollout]]
rlhf_type: grpo
"""


def test_files_for_ray_are_those_of_megatron_swift():
    config = next(c for c in CONFIGS if c.name == "megatron-swift")
    assert "**/ms-swift/examples/ray/**/*.yaml" in config.files
    assert errors("megatron-swift", RAY) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "axolotl",
            "base_model: x/y\nlearning_rate: 2e-5\nmicro_batch_size: '4'\nwandb_project:\n",
        ),
        ("axolotl", "base_model: x\nfsdp_config:\n  fsdp_offload_params: yes\n  version: 2\n"),
        ("axolotl", "base_model: x\ndeepspeed: deepspeed_configs/zero3.json\n"),
        ("axolotl", "base_model: x\ndeepspeed:\n  zero_optimization: {stage: 3}\n"),
        ("torchtune", "batch_size: ${size}\nmodel: {_component_: a.b, anything: 1}\n"),
        ("deepspeed", "zero_optimization: {stage: 2}\ntrain_micro_batch_size_per_gpu: auto\n"),
        ("llama-factory", "model_name_or_path: x\nstage: sft\ncutoff_len: '{{ n }}'\n"),
    ],
)
def test_what_is_right(name, text):
    assert errors(name, text) == []


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("axolotl", "base_model: x\nmicro_batchsize: 4\n", "'micro_batchsize' was unexpected"),
        ("axolotl", "base_model: x\nmicro_batch_size: two\n", "is not valid"),
        ("axolotl", "base_model: x\nmicro_batch_size: 0\n", "less than the minimum of 1"),
        ("axolotl", "base_model: x\ngradient_checkpointing: maybe\n", "is not valid"),
        ("deepspeed", "zero_optimization: {stage: 4}\n", "is not valid"),
        ("deepspeed", "zero_optimization: {stagee: 3}\n", "is not valid"),
        ("torchtitan", "training: {local_batchsize: 1}\n", "is not valid"),
        ("accelerate", "mixed_precison: bf16\n", "'mixed_precison' does not match"),
    ],
)
def test_what_is_wrong(name, text, says):
    found = errors(name, text)
    assert len(found) == 1
    assert says in found[0][1]


def is_wrong(block):
    """Whether oomlint, too, knows of a key that has no business here, or of a wrong value."""
    reading = block.read()
    strays = reading.stray if block.table.ignores_unknown is not None else ()
    return bool(strays or reading.wrong) or any(map(is_wrong, reading.nested))


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real configs is not here")
def test_the_schemas_say_of_real_configs_what_the_linter_says():
    names = {id(config.load()): config.name for config in CONFIGS}
    workspace = Workspace(CORPUS.resolve())
    linker = Linker(workspace, registry(), LinkOptions())
    validators = {name: Draft202012Validator(load(name)) for name in oomlint_schemas.CONFIGS}
    seen, differing = 0, []
    for file in walk(workspace.cwd, (".yaml", ".yml", ".json", ".toml")):
        path = workspace.name(file)
        for root, position, block in roots_of(linker, path):
            name = names.get(id(block.table))
            if block.mapping is not root or name is None:
                continue
            text = file.read_text("utf-8")
            documents = (
                [json.loads(text)] if file.suffix == ".json" else [*yaml.safe_load_all(text)]
            )
            found = [error.message for error in validators[name].iter_errors(documents[position])]
            seen += 1
            if bool(found) != is_wrong(block):
                differing.append((path, name, found))
    assert seen > 300
    assert differing == []


def roots_of(linker, path):
    try:
        claims = linker.claims(path)
    except FileError:
        return
    for claim in claims:
        for position, root in enumerate(claim.document.roots):
            for block in claim.blocks:
                yield root, position, block
