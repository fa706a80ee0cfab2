"""OLMo-core: Python scripts that build a run's config, and the lines that start them."""
