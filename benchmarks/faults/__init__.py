"""Seeded faults: how much of the arithmetic the tests hold in place."""
