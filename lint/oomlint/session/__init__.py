"""What the command line, the language server and reviews share: which files are linted, in which processes, and what is kept."""
