"""What is trained, where a script's own code says so."""

CHOSEN_BY_CODE = "the script itself chooses which parameters are trained"
"""Why it is not known what is trained, in words."""
