"""oomlint."""
