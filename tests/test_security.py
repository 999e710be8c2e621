"""What others wrote into a run's folder is read and never run: no code imported, no pickle loaded, no name followed."""

import json
import pickle
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from alternas.archs import InputError
from alternas.cli import app as cli
from alternas.results.export.write import sample_images
from alternas.results.render.describe_net import InputSpec
from alternas.search.engine import connection
from alternas.search.training.checkpoint import read_checkpoint
from runs import finished_run

pytestmark = pytest.mark.usefixtures("elsewhere")

READERS = [
    ("front", "mine"), ("leaderboard", "mine"), ("compare", "mine", "other"), ("show", "mine", "0"),
    ("report", "mine"), ("export", "mine", "--out", "d"), ("cost", "mine:0"), ("search", "resnet", "--name", "mine"),
]  # fmt: skip
PLANTED = "from pathlib import Path\nPath('sprung').touch()\nraise RuntimeError('this code must not run')\n"


class Trap:
    """A pickle that touches a file when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("sprung"),)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose folder and records name code that lies in it and in the current folder."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    folder = finished_run()
    finished_run("other")
    for place in (Path(), folder):
        for name in ("my_space.py", "planted.py", "sitecustomize.py", "resnet.py"):
            (place / name).write_text(PLANTED, encoding="utf-8")
        monkeypatch.syspath_prepend(place.absolute())
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    settings = {"space": "my_space.py of source 0123456789abcdef", "strategy": "planted:Sampler", "objective": "macs"}
    (folder / "run.json").write_text(
        json.dumps(facts | {"settings": settings, "space_source": PLANTED}), encoding="utf-8"
    )
    return folder


@pytest.mark.parametrize("words", READERS, ids=lambda words: words[0])
def test_code_in_a_run_is_never_imported(alternas: Any, planted: Path, words: tuple[str, ...]) -> None:
    code, _, err = alternas(*words)
    assert not Path("sprung").exists()
    assert (code, "Traceback" in err) == ({"export": 2, "search": 2}.get(words[0], 0), False), err


@pytest.mark.parametrize("words", [["./my_space.py"], ["resnet", "--strategy", "planted:Sampler"]])
def test_code_that_the_command_names_is_imported(alternas: Any, planted: Path, words: list[str]) -> None:
    code, _, err = alternas("search", *words)
    assert (code, "this code must not run" in err) == (2, True)
    assert Path("sprung").exists(), "a trap that works"


@pytest.mark.parametrize("words", ["search resnet", "study data-size --data digits"])
def test_a_name_that_leads_elsewhere_is_refused(alternas: Any, words: str) -> None:
    for name in ("../../x", "/tmp/x", "..", "a/b", "~", ".x"):
        code, out, err = alternas(*words.split(), "--name", name)
        assert (code, out, err.count("\n"), "run name" in err) == (2, "", 1, True)
    assert not Path("runs").exists()


def test_a_pickle_in_a_run_or_among_data_is_never_loaded(alternas: Any) -> None:
    folder = finished_run()
    trap: Any = np.array([Trap()], dtype=object)
    np.savez(folder / "sample.npz", x=trap)
    np.savez("data.npz", x=trap, y=trap)
    np.savez("labels.npz", x=np.zeros((4, 8, 8), np.uint8), y=np.array([Trap()] * 4, dtype=object))
    torch.save({"net": Trap()}, folder / "state.pt")
    with pytest.raises(InputError, match="must hold images"):
        sample_images(folder, InputSpec((8, 8), 10, 1))
    for name in ("data.npz", "labels.npz"):
        code, out, err = alternas("data", name)
        assert (code, out, err.count("\n")) == (2, "", 1)
    assert read_checkpoint(folder / "state.pt", torch.device("cpu")) is None
    assert (folder / "state.pt.broken").exists(), "put aside, and the training begun anew"
    assert not Path("sprung").exists()
    pickle.loads(pickle.dumps(Trap()))
    assert Path("sprung").exists(), "a trap that works"


@pytest.fixture
def door() -> Iterator[socket.socket]:
    """A socket of this machine that nobody should knock at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def test_what_a_run_names_is_not_reached(alternas: Any, door: socket.socket) -> None:
    """Data at a URL are asked for."""
    folder, port = finished_run(), door.getsockname()[1]
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    hub = {"name": f"hfds/http://127.0.0.1:{port}/set"}
    (folder / "run.json").write_text(json.dumps(facts | {"data": facts["data"] | hub}), encoding="utf-8")
    refused(alternas("retrain", "mine", "--recipe", "smoke"), f"127.0.0.1:{port}", "not opened")
    with pytest.raises(BlockingIOError):
        door.accept()


def refused(answer: tuple[int, str, str], *said: str) -> None:
    """One line with all of these words, and no password."""
    code, _, err = answer
    assert (code, err.count("\n")) == (2, 1), err
    assert all(words in err for words in said), err
    assert "sesame" not in err


def test_half_a_character_can_be_shown(alternas: Any) -> None:
    """A class or an error may hold bytes that are no text; no terminal can show them."""
    path = finished_run() / "records.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace('"alternet"', '"\\ud800"'))
    code, out, err = alternas("front", "mine")
    assert (code, err, "\\ud800" in out) == (0, "", True)


def test_we_open_no_doors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dashboard listens on this machine alone; a Ray of our own comes without its dashboard."""
    from typer.main import get_command

    options: Any = get_command(cli.app).commands["dashboard"].params  # type: ignore[attr-defined]
    assert next(option.default for option in options if option.name == "host") == "127.0.0.1"
    asked: dict[str, Any] = {}
    monkeypatch.setattr(connection.ray, "is_initialized", lambda: False)  # whatever ran before in this process
    monkeypatch.setattr(connection.ray, "init", lambda address, **how: asked.update(how, address=address))
    connection.connect("")
    assert (asked["address"], asked["include_dashboard"]) == ("local", False)
