"""The command line of every benchmark, what a figure was measured on, and where figures are kept.

With --tiny a benchmark runs on a scale of seconds, to show that it works; its figures go to the current folder.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from alternas.archs.cpus import usable_cpus
from alternas.results.latency.setting import cpu_name

TINY = "--tiny" in sys.argv  # processes that a benchmark spawns have its arguments
RESULTS = Path() if TINY else Path(__file__).parent / "results"
MOST_SECONDS = 250 if TINY else 600  # of a part in a process of its own
T = TypeVar("T")


def sized(full: T, tiny: T) -> T:
    """A number of the benchmark as it is meant, and with --tiny."""
    return tiny if TINY else full


def shown(data: Any) -> Any:
    """A data set as the benchmark is meant to see it; with --tiny few of its images are validated on."""
    split = data.val
    return replace(data, val=replace(split, images=split.images[:128], y_N=split.y_N[:128])) if TINY else data


def options(description: str | None) -> argparse.ArgumentParser:
    """A benchmark's command line: what all of them understand."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="seconds, on a tiny scale; figures to the current folder")
    return parser


def machine() -> dict[str, Any]:
    """CPU, cores and versions."""
    versions = {name: version(name) for name in ("alternas", "torch", "timm", "ray", "optuna")}
    return {"cpu": cpu_name(), "cores": usable_cpus(), "python": platform.python_version(), "versions": versions}


def in_own_process(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A script with these words, in a process and a folder of its own; exits if that takes `MOST_SECONDS`."""
    command = [sys.executable, str(Path(script).resolve()), *words, *["--tiny"] * TINY]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            return subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired as error:
            sys.exit(f"{error}: {(error.stderr or b'')[-2000:].decode(errors='replace')}")


def summary(seconds: list[float]) -> dict[str, float]:
    """Median, least and most of repeated measurements."""
    return {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds), "repeats": len(seconds)}


def keep(name: str, figures: dict[str, Any]) -> None:
    """Print the figures and write them to NAME.json among the results."""
    record = {"date": date.today().isoformat(), "machine": machine(), "load": os.getloadavg()[0]} | figures
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(figures, indent=2))
