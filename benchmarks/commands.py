"""Start-up of the commands that must answer at once: wall and process seconds, with pandas's import beside them.

python benchmarks/commands.py RUN          # a finished run; without one, only --help
"""

import resource
import subprocess
import sys
import time
from typing import Any

from machine import keep, options, sized, summary

REPEATS = sized(7, 1)


def measure(command: list[str]) -> dict[str, Any]:
    """Wall and CPU seconds of a command, repeated."""
    wall, cpu = [], []
    for _ in range(REPEATS):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall.append(time.monotonic() - began)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"wall": summary(wall), "process": summary(cpu)}


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("run", nargs="?", help="a finished run")
    run = parser.parse_args().run
    alternas = [sys.executable, "-m", "alternas"]
    found = {"python": measure([sys.executable, "-c", "pass"])}
    found["import pandas"] = measure([sys.executable, "-c", "import pandas"])
    found["--help"] = measure([*alternas, "--help"])
    if run:
        found["front"] = measure([*alternas, "front", run])
        found["show"] = measure([*alternas, "show", run, "1"])
    keep("commands", found)
