"""nanotron: YAML of the whole run, its model's dimensions among it."""
