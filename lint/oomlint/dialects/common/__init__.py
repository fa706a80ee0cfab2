"""What the keys of several frameworks mean together, written once: see :mod:`.world` and its like."""
