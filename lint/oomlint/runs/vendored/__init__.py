"""Copies of frameworks that projects carry: what such a copy declares is legal in the project's runs,
and what its code makes of a key is what the key does there.

A copy is often of another version, or changed: it has keys of its own, and values. A program that was
built after a framework's model has arguments of the same names in a package of its own, and its
configs are none of the framework's. And a program may load a config by itself: what it asks for by
name is no slip of the pen.
"""
