"""optuna-dashboard on a run: its records and events as an Optuna study in memory, read-only."""

from importlib.util import find_spec
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import optuna
from optuna.storages import BaseStorage

from ...archs.errors import InputError
from ...results.ranking.front import costs_of_net
from ...results.ranking.run_leaderboard import leaderboard_of
from ...results.render.terminal import print_lines
from ...results.runs.store import read_events
from ..strategies.history import History
from ..strategies.optuna_strategy import DIRECTIONS, StudyMemory, distributions, frozen, quiet


def recorded_study(folder: Path) -> BaseStorage:
    """The storage of one study: that of a run's nets, each under its number, with accuracy and the run's own cost.

    Raises InputError if the run cannot be read.
    """
    quiet()
    board = leaderboard_of(folder)
    by_trial = {record.trial: record for record in board.records}
    events = [e for e in read_events(folder) if e.trial not in by_trial and e.event != "strategy"]
    genes = [line.genes for line in (*board.records, *events) if line.genes]
    options = {name: tuple(dict.fromkeys(own[name] for own in genes if name in own)) for name in next(iter(genes), ())}
    costs = {r.key: costs_of_net(r, by_trial, board.extra) for r in board.records}

    def cost_of(key: str, _: object) -> float:
        return costs[key][board.query.cost] or 0.0

    storage = StudyMemory()
    study = optuna.create_study(storage=storage, study_name=folder.name, directions=DIRECTIONS)
    metric = board.query.metric
    study.set_metric_names([f"{'-' * metric.minimize}{metric.name}", board.query.cost])
    history, spread = History(options, cost_of), distributions(options)
    for line in (*board.records, *events):
        history.apply(line)
    for past in history.trials:
        study.add_trial(frozen(past, spread))
    return storage


class Page:
    """The dashboard's pages; the study is built anew once the run has gone on."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._size = folder, -1
        self._refresh()

    def _refresh(self) -> None:
        from optuna_dashboard import wsgi

        path = self._folder / "records.jsonl"
        size = path.stat().st_size if path.exists() else 0
        if size != self._size:
            self._size, self._app = size, wsgi(recorded_study(self._folder))

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start_response("405 Method Not Allowed", [("Content-Type", "application/json")])
            return [b'{"reason": "alternas shows this study and does not change it"}']
        self._refresh()
        return self._app(environ, start_response)


def serve(folder: Path, host: str, port: int) -> None:
    """Show the run in `folder` in a browser, until Ctrl-C. Port 0 takes one that is free.

    Raises InputError if optuna-dashboard is not installed, the run cannot be read, or the address cannot be used.
    """
    if find_spec("optuna_dashboard") is None:
        raise InputError('dashboard: needs the package optuna-dashboard: pip install "alternas[dashboard]"')
    page = Page(folder)

    class ThreadingServer(ThreadingMixIn, WSGIServer):  # browsers open connections that they do not use at once
        daemon_threads = True

    class Handler(WSGIRequestHandler):
        def log_message(self, format: str, *args: Any) -> None: ...

    try:
        server = make_server(host, port, page, ThreadingServer, Handler)
    except (OSError, OverflowError, UnicodeError, TypeError) as error:  # the last two of a host that is no name
        raise InputError(f"dashboard: cannot listen on {host}:{port} ({error})") from None
    with server:
        address = f"[{host}]" if ":" in host else host
        print_lines(f"http://{address}:{server.server_port}/dashboard/studies/0  (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print_lines("")
