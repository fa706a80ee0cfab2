"""``python -m oomlint``."""

import os
import sys

# `python -m` looks for modules in the working directory first, which may be a stranger's: what
# lies there under the name of a package that is needed later must not be imported.
_HERE = os.getcwd()
if sys.path[:1] in ([""], [_HERE]) and not os.path.abspath(__file__).startswith(_HERE + os.sep):
    del sys.path[0]

if __name__ == "__main__":
    try:
        from oomlint.cli import command

        command()
    except KeyboardInterrupt:  # before anybody could heed it
        os._exit(130)
