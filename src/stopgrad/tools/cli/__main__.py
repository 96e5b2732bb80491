"""``python -m stopgrad.tools.cli``."""

import sys

from stopgrad.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
