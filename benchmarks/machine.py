"""What a figure was measured on, and where figures are kept."""

from __future__ import annotations

import json
import os
import platform
import statistics
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from alternas.results.latency.machine import cpu_name

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """CPU, cores and versions."""
    versions = {name: version(name) for name in ("alternas", "torch", "timm", "ray", "optuna")}
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "python": platform.python_version(), "versions": versions}


def summary(seconds: list[float]) -> dict[str, float]:
    """Median, least and most of repeated measurements."""
    return {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds), "repeats": len(seconds)}


def keep(name: str, figures: dict[str, Any]) -> None:
    """Print the figures and write them to results/NAME.json."""
    record = {"date": date.today().isoformat(), "machine": machine()} | figures
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
