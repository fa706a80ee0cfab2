"""Files as a check sees them: read, watched for changes, named by each other, with what they pin."""
