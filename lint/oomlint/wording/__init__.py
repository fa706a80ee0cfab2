"""How amounts, names and addresses are said."""
