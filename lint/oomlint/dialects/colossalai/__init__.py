"""Colossal-AI: command lines of its two applications' trainers."""
