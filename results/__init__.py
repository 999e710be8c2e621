"""Results of runs: records, rankings, drawings, reports, analyses, exports. Knows no search."""

from typing import TYPE_CHECKING, Any

from .runs.record import Record
from .runs.store import find_run, read_records

if TYPE_CHECKING:
    from .saved_run import load_run

__all__ = ["Record", "find_run", "load_run", "read_records"]


def __getattr__(name: str) -> Any:
    if name == "load_run":
        from .saved_run import load_run

        return load_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
