"""How many workers fit, by what a cluster says it has. Ray itself is not started."""

import signal
import subprocess
import sys
from typing import Any

import pytest
from ray._private import utils

from alternas.archs import InputError
from alternas.results.latency.setting import LatencySetting
from alternas.search.engine import connection
from alternas.search.engine.resources import Resources, check_alone, resolve_gpus, threads_of, worker_slots


def fit(*nodes: dict[str, float], **asked: Any) -> tuple[int, float | None]:
    """Workers that fit, and GPUs of each."""
    found = resolve_gpus(Resources(**asked), nodes)
    return worker_slots(found, nodes), found.gpus


@pytest.mark.parametrize(("have", "asked", "found"), [
    ({"CPU": 2.0}, {}, (2, 0.0)),
    ({"CPU": 2.0}, {"cpus": 0.5}, (4, 0.0)),
    ({"CPU": 3.0}, {"cpus": 2.0}, (1, 0.0)),
    ({"CPU": 10.0}, {"cpus": 0.1}, (100, 0.0)),
    ({"CPU": 16.0, "GPU": 2.0}, {}, (2, 1.0)),
    ({"CPU": 16.0, "GPU": 2.0}, {"gpus": 0.0}, (16, 0.0)),
    ({"CPU": 16.0, "GPU": 2.0}, {"gpus": 0.25}, (8, 0.25)),
    ({"CPU": 64.0, "GPU": 2.0}, {"gpus": 0.15}, (12, 0.15)),
    ({"CPU": 64.0, "GPU": 8.0}, {"gpus": 4.0}, (2, 4.0)),
    ({"CPU": 4.0, "GPU": 8.0}, {}, (4, 1.0)),
    ({"CPU": 8.0}, {"workers": 3}, (3, 0.0)),
])  # fmt: skip
def test_workers_that_fit(have: dict[str, float], asked: dict[str, float], found: tuple[int, float]) -> None:
    assert fit(have, **asked) == found


@pytest.mark.parametrize(("have", "asked", "size", "threads"), [
    ({"CPU": 16.0}, {"cpus": 2.0}, 8, 2),
    ({"CPU": 16.0}, {"workers": 1}, 1, 1),
    ({"CPU": 16.0, "GPU": 1.0}, {}, 1, 16),
    ({"CPU": 16.0, "GPU": 1.0}, {"gpus": 0.25}, 4, 4),
    ({"CPU": 16.0, "GPU": 4.0}, {"workers": 1}, 1, 16),
    ({"CPU": 16.0, "GPU": 4.0}, {"gpus": 2.0}, 2, 4),
    ({"CPU": 4.0, "GPU": 8.0}, {}, 4, 1),
])  # fmt: skip
def test_a_worker_on_a_gpu_reads_with_its_part_of_the_node(
    have: dict[str, float], asked: dict[str, float], size: int, threads: int
) -> None:
    assert threads_of(resolve_gpus(Resources(**asked), [have]), [have, {"CPU": 0.0}], size) == threads  # type: ignore[arg-type]


def test_a_worker_stays_on_one_node() -> None:
    assert fit({"CPU": 3.0}, {"CPU": 3.0}, cpus=2.0) == (2, 0.0), "not three"
    assert fit({"CPU": 8.0}, {"CPU": 2.0, "GPU": 4.0}) == (2, 1.0), "the first has no GPU, the second no more CPUs"
    with pytest.raises(InputError, match="4 asked for, 3 on the largest node there"):
        fit({"CPU": 3.0}, {"CPU": 3.0}, cpus=4.0)


def test_devices_of_a_trial_may_lie_on_two_nodes() -> None:
    three: dict[str, float] = {"CPU": 16.0, "GPU": 3.0}
    assert fit(three, three, gpus=2.0) == (3, 2.0)
    with pytest.raises(InputError, match="gpus-per-trial: 8 asked for, 6 there"):
        fit(three, three, gpus=8.0)


@pytest.mark.parametrize(("have", "asked", "hint"), [
    ({"CPU": 2.0}, {"cpus": 4.0}, "cpus-per-trial"),
    ({"CPU": 2.0}, {"gpus": 1.0}, "gpus-per-trial"),
    ({"CPU": 2.0}, {"workers": 3}, "workers: 3 asked for"),
    ({}, {}, "cpus-per-trial"),
])  # fmt: skip
def test_what_does_not_fit_is_named(have: dict[str, float], asked: dict[str, float], hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        fit(have, **asked)


CPU, CUDA = LatencySetting(), LatencySetting("cuda")


def test_where_latency_cannot_be_measured() -> None:
    with pytest.raises(InputError, match="workers: 2 asked for"):
        check_alone(Resources(workers=2, gpus=0.0), CPU, [{"CPU": 4}])
    with pytest.raises(InputError, match="no GPU"):
        check_alone(Resources(gpus=0.0), CUDA, [{"CPU": 4}])
    check_alone(Resources(workers=1, gpus=1.0), CUDA, [{"CPU": 4}])
    with pytest.raises(InputError, match="latency cpu/1/float32/eager/8: 8 threads asked for, 4 CPUs there"):
        check_alone(Resources(gpus=0.0), LatencySetting(threads=8), [{"CPU": 1}, {"CPU": 4}])


def test_of_rays_messages_a_worker_s_death_is_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    died = "A worker died or was killed while executing a task by an unexpected system error. To troubleshoot, ..."
    connection._log_line({"lines": [f"{died}\nmore"]})
    connection._log_line({"lines": ["the disk is almost full\nmore"]})
    assert caplog.messages == ["Ray: the disk is almost full"]


def test_signals_while_ray_starts_come_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would answer SIGTERM with exit code 15, in the midst of its start."""
    came, before = list[str](), signal.getsignal(signal.SIGTERM)

    def init(*_: Any, **__: Any) -> None:
        utils.set_sigterm_handler(lambda *_: came.append("Ray's"))
        signal.raise_signal(signal.SIGTERM)
        came.append("started")

    monkeypatch.setattr(connection.ray, "init", init)
    signal.signal(signal.SIGTERM, lambda *_: came.append("ours"))
    try:
        connection._init("local")
        assert came == ["started", "ours"]
        signal.raise_signal(signal.SIGTERM)
        assert came[2:] == ["ours"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_ray_s_sockets_get_a_short_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a Unix socket it has 107 characters at most (man 7 unix); Ray's own names take 68 of them."""
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    for folder, found in (("/tmp", None), ("/" + 37 * "x", None), ("/" + 38 * "x", "/tmp/ray")):
        monkeypatch.setenv("TMPDIR", folder)
        assert connection._short_folder() == found
    monkeypatch.setenv("RAY_TMPDIR", "/" + 110 * "x")
    with pytest.raises(InputError, match=r"set RAY_TMPDIR to a shorter one, got /x{110}$"):
        connection._short_folder()


def test_no_escape_sequence_at_the_end() -> None:
    """tqdm begins the colorama that Ray brings, which resets colours at exit, through our guard."""
    code = (
        "import atexit, sys; from alternas.search.engine import connection; import colorama;"
        "sys.stdout.isatty = lambda: True; colorama.init()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
