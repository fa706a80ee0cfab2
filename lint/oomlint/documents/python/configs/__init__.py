"""What a script takes from config files which it loads itself: the files, what it changes in them, and their values."""
