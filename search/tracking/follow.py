"""`alternas track`: tells a tracker of a run from outside, while it goes on or afterwards."""

from __future__ import annotations

import time
from pathlib import Path

from ...archs.children import mark_children
from ...archs.errors import OperationError
from ...results.runs.store import LogReader
from .tracked_run import TrackedRun
from .tracker import SessionEnd, TrackerEvent, check_trackers
from .view import error_of, opened_tracker, report_of

POLL_SECONDS = 1.0  # between two looks at the log


def follow(folder: Path, name: str) -> None:
    """Tell a tracker of the run in `folder`, from its first line until it has ended; what the tracker has is left out.

    Raises:
        InputError: if the tracker is unknown, not installed or cannot be opened, or the run is broken.
        OperationError: if the tracker fails.
        KeyboardInterrupt: once the tracker knows that no more will come.
    """
    check_trackers((name,))
    log = LogReader(folder)
    lines = log.new()  # a broken run is refused before the tracker hears of it
    mark_children()
    tracker = opened_tracker(name, folder)

    def send(event: TrackerEvent) -> None:
        if error := error_of(lambda: tracker.on_event(event)):
            raise OperationError(f"track: {name} failed: {error}; the same command sends what is missing")

    run = TrackedRun(folder, send)
    try:
        while True:
            for line in lines:
                run.apply(line)
            if run.ended:
                break
            time.sleep(POLL_SECONDS)
            lines = log.new()
    except KeyboardInterrupt:
        send(SessionEnd(False, None))
        raise
    send(SessionEnd(True, report_of(folder) if tracker.takes_report else None))
