"""NeMo AutoModel: YAML of its recipes and the lines that start them."""
