"""Meta Lingua: one YAML for a run, and ``apps.main.train``, which is given it."""
