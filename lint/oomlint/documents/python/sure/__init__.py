"""What a script is sure to do before it trains: the statements on its way, the errors among them, and where it ends."""
