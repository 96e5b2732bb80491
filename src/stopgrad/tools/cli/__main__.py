"""``python -m stopgrad.cli``."""

import sys

from stopgrad.cli import main

if __name__ == "__main__":
    sys.exit(main())
