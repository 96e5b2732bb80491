"""Run the array API's test suite, data-apis/array-api-tests, against ``stopgrad.xp``.

    python tests/helpers/array_api/run.py PATH_OF_CHECKOUT [--traced] [pytest arguments]

``PATH_OF_CHECKOUT`` holds the suite with its submodule. Without ``--traced`` every function is called on
NumPy arrays as it is; with it, through :mod:`traced`: each call becomes a graph that an engine runs. What is
left out, and why, stands in ``skips.txt`` and, for traced calls too, in ``skips_traced.txt``. Prints how many
tests passed, failed and were skipped. The suite needs what the extra ``array-api`` installs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "src"
OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}


def outcomes(report: Path) -> Counter[str]:
    """How many tests of a JUnit report came out how."""
    found: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        found[next((OUTCOMES[part.tag] for part in case if part.tag in OUTCOMES), "passed")] += 1
    return found


def run(checkout: Path, arguments: list[str], traced: bool = False, examples: int = 20) -> Counter[str]:
    """Run the suite of a checkout, with further arguments for pytest."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        names = ["skips.txt", "skips_traced.txt"] if traced else ["skips.txt"]
        skips = work / "skips.txt"
        skips.write_text("".join((HERE / name).read_text() for name in names))
        before = os.environ.get("PYTHONPATH")
        environment = os.environ | {
            "ARRAY_API_TESTS_MODULE": "traced" if traced else "stopgrad.xp",
            "PYTHONPATH": os.pathsep.join([str(SOURCE), str(HERE), *([before] if before else [])]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [
            *(sys.executable, "-m", "pytest", "array_api_tests", "-q", "-p", "no:cacheprovider"),
            *("--disable-deadline", f"--max-examples={examples}", f"--skips-file={skips}"),
            *(f"--junitxml={work / 'report.xml'}", *arguments),
        ]
        subprocess.run(command, cwd=checkout, env=environment, check=False)
        return outcomes(work / "report.xml")


def main() -> int:
    arguments = sys.argv[1:]
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    traced = "--traced" in arguments
    found = run(Path(arguments[0]), [a for a in arguments[1:] if a != "--traced"], traced)
    style = "traced" if traced else "immediate"
    print(f"{style}: {found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped")
    return 1 if found["failed"] or not found["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
