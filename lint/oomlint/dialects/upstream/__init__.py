"""What is known of the code of frameworks that projects copy and change.

``frameworks.py`` says which of a framework's modules decide the memory of a run, and which files are its examples;
``known.py`` has, of each, what these were over the whole history of the framework's main branch; ``statements.py``
tells what a module decides. Of all this only the names of folders are imported for projects without such a copy.
"""

PACKAGES = (
    "torchtitan", "src/llamafactory", "src/llmtuner", "openrlhf", "swift", "verl", "src/nanotron", "nanotron", "torchtune",
    "litgpt", "lit_gpt", "src/axolotl", "trl", "megatron", "nemo_rl", "slime", "src/open_r1", "src/alignment", "open_instruct",
)  # fmt: skip
"""The folders of the frameworks' own code in their repositories."""
