"""optuna-dashboard on the study of a run: to look at, never to write, for the driver is the one writer of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from optuna.storages import BaseStorage

from ...archs.errors import InputError
from ...results.render.terminal import print_lines
from .storage import connect, parse_url, shown, study_note
from .study import BROKEN, JOURNAL_STUDY, journal, quiet


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def serve(folder: Path, host: str, port: int, storage: str = "") -> None:
    """Show the study of the run in `folder` in a browser, until Ctrl-C. Port 0 takes one that is free.

    `storage` is the URL of the run's database, where it has one: a run that others made could name any.

    Raises:
        InputError: if optuna-dashboard is not installed, there is no study, or the address cannot be used.
    """
    if find_spec("optuna_dashboard") is None:
        raise InputError('dashboard: needs the package optuna-dashboard: pip install "alternas[dashboard]"')
    from optuna_dashboard import wsgi

    quiet()
    study, name = study_of(folder, storage)
    try:
        number = study.get_study_id_from_name(name)
    except KeyError:
        raise InputError(f"run {folder.name!r}: its study {name!r} is not in the storage any more") from None
    pages = wsgi(study)

    def read_only(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return pages(environ, start_response)
        start_response("405 Method Not Allowed", [("Content-Type", "application/json")])
        return [b'{"reason": "alternas shows this study and does not change it"}']

    try:
        server = make_server(host, port, read_only, server_class=_Server, handler_class=_SilentHandler)
    except (OSError, OverflowError) as error:
        raise InputError(f"dashboard: cannot listen on {host}:{port} ({error})") from None
    with server:
        at = f"[{host}]" if ":" in host else host
        print_lines(f"http://{at}:{server.server_port}/dashboard/studies/{number}  (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print_lines("")


def study_of(folder: Path, storage: str = "") -> tuple[BaseStorage, str]:
    """Where the study of a run is, and its name there.

    Raises:
        InputError: if it is not there, or in a database that is not the one at `storage`.
    """
    note = study_note(folder)
    if not note:
        path = folder / "study.journal"
        if storage:
            raise InputError(f"storage: the study of run {folder.name!r} is in its journal, {path}")
        if not path.exists():
            raise InputError(f"run {folder.name!r} has no study: {path} is not there; its search makes it")
        try:
            return journal(path), JOURNAL_STUDY
        except BROKEN as error:
            again = "the command of its search rebuilds it from the records"
            raise InputError(f"{path}: is broken ({error!r}); {again}") from None
    kept = shown(parse_url(note["storage"]))
    if not storage:
        rule = "a URL is opened where you give it: repeat it, with its password if it has one: --storage URL"
        raise InputError(f"storage: the study of run {folder.name!r} is in {kept}; {rule}")
    url = parse_url(storage)
    if shown(url) != kept:
        raise InputError(f"storage: the study of run {folder.name!r} is in {kept}, not in {shown(url)}")
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        raise InputError(f"run {folder.name!r} has no study: {url.database} is not there")
    return connect(url), note["study"]
