"""Runs scripts by ``stopgrad run``, each in a fork that ends as a process of its own does.

``python run_like_python.py JOBS`` reads jobs as JSON: the options by name. Each writes NAME.out, NAME.err and
NAME.status in the present folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from stopgrad.tools.cli import main
from stopgrad.tools.cli.run import run_script  # noqa: F401 - imported once, for all forks

if __name__ == "__main__":
    for name, options in json.loads(Path(sys.argv[1]).read_text()).items():
        child = os.fork()
        if child == 0:
            for number, suffix in ((1, "out"), (2, "err")):
                os.dup2(os.open(f"{name}.{suffix}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            sys.exit(main(["run", *options]))
        _, ended = os.waitpid(child, 0)
        Path(f"{name}.status").write_text(str(os.waitstatus_to_exitcode(ended)))
