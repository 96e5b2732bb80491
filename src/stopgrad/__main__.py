"""``python -m stopgrad``: the command."""

import sys

from stopgrad.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
