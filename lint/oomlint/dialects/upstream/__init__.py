"""What is known of the code of frameworks that projects copy and change.

``frameworks.py`` says which of a framework's modules decide the memory of a run, and which files are its examples;
``known.py`` has, of each, what these were over the whole history of the framework's main branch; ``statements.py``
reads of a changed module what in it is new. Nothing here is imported for projects without such a copy.
"""
