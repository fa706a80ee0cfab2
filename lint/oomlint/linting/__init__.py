"""What a rule is, running rules, and which of their findings are reported."""
