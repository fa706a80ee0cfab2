"""``python -m oomlint``."""

import sys

from oomlint.cli import main

if __name__ == "__main__":
    sys.exit(main())
