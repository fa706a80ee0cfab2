"""What a user says: settings, overrides of single fields, whole plans."""
