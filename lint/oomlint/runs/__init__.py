"""From files to runs: which belong together, on which machine, and what each run is made of."""
