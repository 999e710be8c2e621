"""`alternas` for tests that run many commands: a process that has loaded what they need forks for each of them.

    python tests/command_server.py SOCKET           # the server
    python tests/command_server.py SOCKET WORDS     # `alternas WORDS` in a fork of it

Where one worker would train whole nets, they are trained in the command's own process: starting Ray takes longer than
most trainings of a test. Searches on Ray are what test_search.py, test_cluster.py and others are about.
"""

import json
import os
import signal
import socket
import sys

PRELOADED = (
    *("torch._dynamo", "timm", "optuna", "pandas", "matplotlib.pyplot", "alternas.cli.app", "alternas.search.run"),
    *("alternas.search.training.loop", "alternas.search.experiments.studies", "alternas.results.export.write"),
)
ALONE = ("search", "retrain", "finetune", "study")  # commands that train with one worker, unless told how many


def serve(path: str) -> None:
    """Fork for each command that comes, until this process is ended."""
    import importlib

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        for name in PRELOADED:
            importlib.import_module(name)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        listening.listen(64)
        print("listening", flush=True)
        while True:
            with listening.accept()[0] as connection:
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    code = 1
                    try:
                        code = answer(connection)
                    finally:
                        connection.sendall(bytes([code]))
                        os._exit(0)


def answer(connection: socket.socket) -> int:
    """Run the command that a client sends, with its folder, environment, input and outputs; its exit code."""
    message, descriptors, *_ = socket.recv_fds(connection, 2**20, 3)
    words, folder, environment = json.loads(message)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    sys.stdout, sys.stderr = open(1, "w", encoding="utf-8"), open(2, "w", encoding="utf-8")  # noqa: SIM115 - of another kind than the server's
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["alternas", *words[:1], *(("--workers", "1") if words[:1] and words[0] in ALONE else ()), *words[1:]]
    from local_pool import pool

    from alternas.cli import app
    from alternas.search.engine import pool as pools

    pools.Pool = pool  # type: ignore[assignment,misc]
    try:
        app.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 1


def ask(path: str, words: list[str]) -> int:
    """Have the server run `alternas WORDS` here; its exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        message = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()
        socket.send_fds(connection, [message], [0, 1, 2])
        return (connection.recv(1) or b"\x01")[0]


if __name__ == "__main__":
    sys.exit(ask(sys.argv[1], sys.argv[2:]) if len(sys.argv) > 2 else serve(sys.argv[1]))
