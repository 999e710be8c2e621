"""What a person sees while nets are trained: drawn on a console that is a terminal, and on a pseudo-terminal."""

import errno
import fcntl
import io
import itertools
import logging
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from alternas.results.ranking.front import leaderboard
from alternas.results.render.tables import nets_table, short
from alternas.results.render.terminal import Console, LogHandler
from alternas.results.runs.record import Record
from alternas.results.runs.store import Store
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.engine import progress
from alternas.search.engine.progress import LiveView, PlainView, view_of
from alternas.search.engine.shown import ShownSearch
from alternas.search.experiments.plan import ExperimentContext, PlanTrials
from alternas.search.experiments.run_plan import ShownPlan
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.trials.search_trials import SearchTrials
from command_line import EVIL, STYLE, obeyed
from fakes import FakeExecutor, run_loop, timed, training
from runs import drawn_records, made_run

WIDTHS = pytest.mark.parametrize("width", [80, 20])
MOVES = re.compile(r"\x1b\[\?25[hl]|\x1b\[[0-9]*[AK]|\r")  # by which rich draws anew


class Output:
    """An output of a notebook's cell, which keeps what it showed."""

    def __init__(self, first: Any, display_id: bool) -> None:
        assert display_id
        self.shown = [first.data]

    def update(self, picture: Any) -> None:
        self.shown.append(picture.data)


@pytest.fixture(autouse=True)
def always_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is."""
    monkeypatch.setattr(progress, "DRAWING_SHARE", 1e9)


def test_the_live_view_names_the_cause_of_failures(open_controller: Callable[..., SearchTrials]) -> None:
    def fate(job: TrainJob) -> JobResult | None:
        return JobResult(job.id, "error", error="no such\nmap") if job.trial == 5 else None

    controller, console = open_controller(trials=3), Console(file=io.StringIO(), force_terminal=True, width=100)
    with view_of(ShownSearch(controller), console) as shown:
        run_loop(controller, FakeExecutor(1, fate), shown)
        shown.refresh()
    drawn = STYLE.sub("", console.file.getvalue())  # type: ignore[attr-defined]
    assert "1 failed" in drawn
    family = next(record.family for record in controller.store.records if record.trial == 5)
    assert f"failed: 1 net; the last, trial 5 ({family}): no such\\nmap\n" in MOVES.sub("", drawn)


def test_in_a_notebook_one_output_is_drawn_anew(
    open_controller: Callable[..., SearchTrials], monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = pytest.importorskip("IPython.display")
    outputs = list[Output]()
    monkeypatch.setattr(
        notebook, "display", lambda *given, **more: outputs.append(Output(*given, **more)) or outputs[-1]
    )
    monkeypatch.setattr(progress, "NOTEBOOK_SECONDS", 0.0)
    with view_of(ShownSearch(open_controller(trials=3)), Console(force_jupyter=True)) as shown:
        run_loop(shown.shown.trials, FakeExecutor(2), shown)  # pyright: ignore[reportAttributeAccessIssue]
    [output] = outputs
    assert len(output.shown) > 3
    assert "workers are starting" in output.shown[0]
    assert "front so far" in output.shown[-1]
    assert "[1m" not in output.shown[-1]
    counted = re.search(r"(\d+) of (\d+) nets", output.shown[-1])
    assert counted
    assert counted[1] == counted[2]


def terminal(width: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=60)


def said(console: Console, width: int) -> str:
    """What was written to a terminal, without styles, and with blanks between words alone; it must fit and obey."""
    text = MOVES.sub("\n", STYLE.sub("", console.file.getvalue()))  # type: ignore[attr-defined]
    assert not obeyed(text)
    assert max(map(cell_len, text.split("\n"))) <= width
    return " ".join(text.split())


def watched(controller: SearchTrials, width: int, fate: Callable[[TrainJob], Any] = lambda job: None) -> str:
    """A search in a live view."""
    console = terminal(width)
    with view_of(ShownSearch(controller), console) as shown:
        assert isinstance(shown, LiveView)
        run_loop(controller, FakeExecutor(2, fate), shown)
    return said(console, width)


@WIDTHS
def test_all_nets_fail(open_controller: Callable[..., SearchTrials], width: int) -> None:
    controller = open_controller(trials=3)
    text = watched(controller, width, lambda job: JobResult(job.id, "error", error=EVIL))
    assert "front so far no net has been trained to the end" in text
    assert f"{3 + len(controller.baselines)} failed" in text


@WIDTHS
def test_no_net_is_within_the_limits(open_controller: Callable[..., SearchTrials], width: int) -> None:
    """The baselines, trained with two seeds, tell the noise; no net that there is is within the limits."""
    controller = open_controller(trials=2)
    watched(controller, width)
    for trials in (3, 4):  # the second time it is resumed
        text = watched(open_controller(trials=trials, limits={"macs": 1}), width)
        assert f"no net is within the limits (at most 1 MACs): {2 + len(controller.baselines)} nets left out" in text


@WIDTHS
@pytest.mark.parametrize("scheduler", ["none", "mo-asha"])
def test_a_search_and_its_front(open_controller: Callable[..., SearchTrials], scheduler: str, width: int) -> None:
    for trials in (16, 20):  # the second time it is resumed
        controller = open_controller(trials=trials, scheduler=scheduler)
        text = watched(controller, width)
        nets = trials + len(controller.baselines)
        assert f"{nets} of {nets} nets" in text
        assert "front so far" in text
        assert "no net" not in text.rpartition("front so far")[2]
        assert "front so far" not in text.rpartition(f"{nets} of {nets} nets")[2]  # the command prints it below


def test_words_give_way_to_numbers_at_80_columns() -> None:
    known = {
        "sd": 0.02, "seeds": 2, "retrained_accuracy": 0.5, "retrained_sd": 0.01, "retrained_seeds": 2,
        "rising": True, "knee": True, "tied_with": [6, 1, 2, 3, 4, 5],
    }  # fmt: skip
    rows = [replace(row, **known) for row in leaderboard([Record.from_dict(found) for found in drawn_records(8)]).rows]
    console = terminal(80)
    console.print(nets_table(rows))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for row in rows:
        cells = f"{row.accuracy:.4f}", short(row.costs["macs"]), short(row.costs["params"])
        assert all(cell in text for cell in cells)


@WIDTHS
def test_latency_is_measured_first(open_controller: Callable[..., SearchTrials], width: int) -> None:
    controller = open_controller(trials=4, costs=("latency_ms",))
    text = watched(controller, width, timed)
    assert "latency" in text
    assert "no net" not in text.rpartition("front so far")[2]


@WIDTHS
@pytest.mark.parametrize("status", ["ok", "error"])
def test_a_plan_of_trainings(tmp_path: Path, status: str, width: int) -> None:
    def fate(job: TrainJob) -> Any:
        return None if status == "ok" else JobResult(job.id, status, error=EVIL)

    console, plan = terminal(width), [training(seed=seed, factors={"net": EVIL}) for seed in range(3)]
    with closing(Store(tmp_path)) as store:
        context = ExperimentContext(tmp_path, "study", load(DataConfig("digits")))
        work = PlanTrials(plan, context, store)
        with view_of(ShownPlan(work), console) as shown:
            run_loop(work, FakeExecutor(1, fate), shown)
    assert "3 of 3 trainings" in said(console, width)


def test_a_line_for_each_net_on_a_pipe(open_controller: Callable[..., SearchTrials]) -> None:
    console, controller = Console(file=io.StringIO(), width=20), open_controller(trials=3)
    with view_of(ShownSearch(controller), console) as shown:
        assert isinstance(shown, PlainView)
        run_loop(controller, FakeExecutor(2, lambda job: JobResult(job.id, "error", error=EVIL)), shown)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert not obeyed(text)
    lines = re.findall(r"^(\d) of (\d) nets  trial \d: error ", text, re.M)
    assert lines == [(str(n + 1), str(3 + len(controller.baselines))) for n in range(3 + len(controller.baselines))]


def test_log_lines_stay_above_a_view_and_in_their_file(
    open_controller: Callable[..., SearchTrials], monkeypatch: pytest.MonkeyPatch
) -> None:
    warning = logging.LogRecord("alternas", logging.WARNING, "", 0, "a warning", (), None)
    for shared in (True, False):
        console, stderr = terminal(80), io.StringIO()
        monkeypatch.setattr(stderr, "isatty", lambda shared=shared: shared)
        monkeypatch.setattr(sys, "stderr", stderr)
        with view_of(ShownSearch(open_controller(trials=1)), console):
            LogHandler().handle(warning)
        on_screen = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("alternas: a warning\n" in on_screen, stderr.getvalue() != "") == (shared, not shared)


def in_terminal(words: list[str], columns: int, cwd: Path) -> tuple[int, str]:
    """Exit code, and what `alternas WORDS` writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    code = "from alternas.cli.app import main; main()"
    command = [sys.executable, "-c", code, *words]
    environ["TERM"] = "xterm-256color"
    with subprocess.Popen(command, cwd=cwd, env=environ, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        text = bytearray()
        try:
            while part := os.read(ours, 65536):
                text += part
        except OSError as error:  # how Linux says that nobody holds the other end
            if error.errno != errno.EIO:
                raise
    os.close(ours)
    shown = MOVES.sub("\n", STYLE.sub("", text.decode()))
    assert not obeyed(shown)
    assert "Traceback" not in shown
    return process.returncode, " ".join(shown.split())


@pytest.mark.parametrize("width", [20, pytest.param(80, marks=pytest.mark.slow)])
def test_a_front_in_a_terminal(tmp_path: Path, width: int) -> None:
    made_run(tmp_path / "runs" / "made", drawn_records(8))
    code, text = in_terminal(["front", "made", "--max-macs", "7"], width, tmp_path)
    assert (code, "no net is within the limits (at most 7 MACs): 4 nets left out" in text) == (0, True), text


SMALL = ["--epochs", "1", "--workers", "1"]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "width", "ends"), [
    (["--trial-minutes", "0.00001", "--epochs", "300"], 20, (1, "alternas: run 'run': none of")),
    (["--scheduler", "mo-asha", "--trials", "4"], 80, (0, "Pareto front of run")),
    (["--objective", "latency_ms", "--trials", "1"], 20, (0, "Pareto front of run")),
], ids=["all fail", "scheduler", "latency"])  # fmt: skip
def test_searches_in_a_terminal(tmp_path: Path, words: list[str], width: int, ends: tuple[int, str]) -> None:
    search = ["search", "--data", "digits", "--name", "run", "--trials", "2", *SMALL, *words]
    code, text = in_terminal([*search, "--max-hours", "0.0015"], width, tmp_path)
    assert code in (0, ends[0]), text
    code, text = in_terminal(search, width, tmp_path)
    assert (code, ends[1] in text) == (ends[0], True), text


def test_nothing_is_cut_at_80_columns() -> None:
    """Notes take three lines at the most, whatever columns there are."""
    known = {"sd": 0.02, "seeds": 2, "retrained_accuracy": 0.5, "retrained_sd": 0.01, "retrained_seeds": 2}
    known |= {"rising": True, "knee": True, "tied_with": [6, 1, 2, 3, 4, 5], "latency_ms": 12.3}
    board = [Record.from_dict(found) for found in drawn_records(8)]
    for names in itertools.chain.from_iterable(itertools.combinations(known, n) for n in range(len(known) + 1)):
        own = {name: known[name] for name in names}
        if ("sd" in own) != ("seeds" in own) or ("retrained_accuracy" in own) != ("retrained_seeds" in own):
            continue
        ms, fields = own.get("latency_ms"), {name: value for name, value in own.items() if name != "latency_ms"}
        rows = [replace(row, costs={**row.costs, "latency_ms": ms}, **fields) for row in leaderboard(board).rows]
        run = {"run": "a-run-with-a-name-that-is-very-long-indeed"}
        for more, others, ranks in (({}, ["latency_ms"], True), (run, [], False)):
            console = terminal(80)
            console.print(nets_table([replace(row, **more) for row in rows], "", others, ranks))
            text = console.file.getvalue()  # type: ignore[attr-defined]
            assert "…" not in text, own
            assert len(text.splitlines()) <= 2 + 3 * len(rows), own
