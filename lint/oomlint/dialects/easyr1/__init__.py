"""EasyR1: a fork of verl with keys and workers of its own."""
