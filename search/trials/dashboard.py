"""optuna-dashboard on a run's study, read-only: the driver of the search is the one writer of a study."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from ...archs.errors import InputError
from ...results.render.terminal import print_lines
from .storage import study_of
from .study import quiet


def serve(folder: Path, host: str, port: int, storage: str = "") -> None:
    """Show the study of the run in `folder` in a browser, until Ctrl-C. Port 0 takes one that is free.

    Raises:
        InputError: if optuna-dashboard is not installed, there is no study, or the address cannot be used.
    """
    if find_spec("optuna_dashboard") is None:
        raise InputError('dashboard: needs the package optuna-dashboard: pip install "alternas[dashboard]"')
    from optuna_dashboard import wsgi

    quiet()
    study, number = study_of(folder, storage)
    app = wsgi(study)

    def read_only(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return app(environ, start_response)
        start_response("405 Method Not Allowed", [("Content-Type", "application/json")])
        return [b'{"reason": "alternas shows this study and does not change it"}']

    class ThreadingServer(ThreadingMixIn, WSGIServer):  # browsers open connections that they do not use at once
        daemon_threads = True

    class Handler(WSGIRequestHandler):
        def log_message(self, format: str, *args: Any) -> None: ...

    try:
        server = make_server(host, port, read_only, ThreadingServer, Handler)
    except (OSError, OverflowError) as error:
        raise InputError(f"dashboard: cannot listen on {host}:{port} ({error})") from None
    with server:
        address = f"[{host}]" if ":" in host else host
        print_lines(f"http://{address}:{server.server_port}/dashboard/studies/{number}  (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print_lines("")
