"""A PostgreSQL server of our own, from Debian's package, for as long as a test needs it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PASSWORD = "open:sesame/7%"
IN_URL = "open%3Asesame%2F7%25"


def programs() -> Path | None:
    """The folder of PostgreSQL's programs; Debian keeps them off the path."""
    found = shutil.which("postgres")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)


def why_not() -> str:
    """Why no server can be started here; "" if it can."""
    if programs() is None:
        return "needs PostgreSQL: apt-get install postgresql"
    if os.getuid() == 0:  # the server refuses to run as root
        import pwd

        if "postgres" not in [user.pw_name for user in pwd.getpwall()]:
            return "needs the user postgres, for root may not run the server"
    return ""


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty database of a fresh server, which asks for a password."""
    folder, port = Path(tempfile.mkdtemp(prefix="alternas-postgres-")), _free_port()
    server = None
    try:
        _make(folder)
        where = ["-k", str(folder), "-h", "127.0.0.1", "-p", str(port), "-c", "fsync=off"]
        server = subprocess.Popen(
            [str(_program("postgres")), "-D", str(folder / "data"), *where], stderr=subprocess.DEVNULL, **_user()
        )
        _wait(folder, port)
        yield f"postgresql://alternas:{IN_URL}@127.0.0.1:{port}/postgres"
    finally:
        if server:
            server.send_signal(signal.SIGINT)  # a fast shutdown; SIGTERM would wait for every client to leave
            server.wait()
        shutil.rmtree(folder)


def _program(name: str) -> Path:
    place = programs()
    assert place
    return place / name


def _user() -> dict[str, Any]:
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _make(folder: Path) -> None:
    (folder / "password").write_text(PASSWORD)
    if os.getuid() == 0:
        for path in (folder, folder / "password"):
            shutil.chown(path, "postgres", "postgres")
    words = ["-D", folder / "data", "-U", "alternas", "-A", "scram-sha-256", "--no-sync"]
    subprocess.run(
        [_program("initdb"), *words, f"--pwfile={folder / 'password'}"], check=True, capture_output=True, **_user()
    )


def _wait(folder: Path, port: int) -> None:
    end = time.monotonic() + 60
    ready = [_program("pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-q"]
    while subprocess.run(ready).returncode:
        assert time.monotonic() < end, "the server does not come up"
        time.sleep(0.05)
