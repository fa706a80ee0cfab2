"""AReaL: YAML of RL, SFT and DPO, with one line a role for its backend and its degrees."""
