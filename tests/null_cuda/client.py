"""Starts the server of the null device, and asks it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SERVER = Path(__file__).parent / "server.py"
OnNullDevice = Callable[..., Any]  # a function of a test module, its arguments, and settings of the device by name


@contextmanager
def null_device(library: Path) -> Iterator[OnNullDevice]:
    """What calls a function in a process of its own that sees the null device, and gives back what it returns."""
    environment = os.environ | {"LD_PRELOAD": str(library)}
    server = subprocess.Popen(
        [sys.executable, str(SERVER)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    requests, answers = server.stdin, server.stdout

    def call(function: Callable[..., Any], *arguments: Any, **settings: str) -> Any:
        request = {
            "file": function.__code__.co_filename, "function": function.__name__, "arguments": arguments,
            "environment": settings,
        }  # fmt: skip
        print(json.dumps(request), file=requests, flush=True)
        answer = json.loads(answers.readline())
        assert "value" in answer, answer["error"]
        return answer["value"]

    try:
        yield call
    finally:
        requests.close()
        server.wait()
        answers.close()
