"""xtuner: Python files of settings, in the manner of mmengine."""
