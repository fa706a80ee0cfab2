"""Profiles: training scripts of single projects, said as data.

A profile is a TOML file: how the project's scripts are told from others, what their own options
are called and default to, and what the scripts make of them. ``docs/profiles.md`` describes it.
"""
