"""What others hand over (records, payloads, TOML), checked against type hints and schemas."""
