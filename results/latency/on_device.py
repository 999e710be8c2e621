"""`measure_on`: measures a net on a device, which is this machine or one that the user has a command for.

All milliseconds come from here. The clock of this machine is in on_this_machine.py; for a command the net is exported,
the command run, and its repeats judged below. What goes wrong is a `DeviceError`, which says how the job ends. It takes
another net to tell whose fault that was.

Who asks: a search before it trains a net (search/trials/measuring.py, done by search/training/latency_job.py), and for
its front at its end (nets.py, as `alternas latency`). Numbers are lines of the run's log (measurement.py), of which
ranking/run_leaderboard.py takes those of a column, and ranking/front.py puts them into rows.
"""

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from ...archs.children import ended_after
from ...archs.cost import MAX_COST, MIN_COST
from ..ranking.quantities import LATENCY, NUMBER_NAME
from ..runs.status import Status
from .measurement import DeviceError, Latency
from .on_this_machine import exported, measure
from .setting import FULL, TIMEOUT_SECONDS, DeviceCommand, Effort, Setting

AWAY = (255, 75)  # exit codes of a device that is not there: ssh's own, and EX_TEMPFAIL of sysexits.h
MAX_REPEATS = 9  # runs of the command
AGREE = 0.02  # two runs that are no further apart, as a share of the lesser, need no third one
SPREAD = 0.1  # distance of the quartiles over the median: above it there are more repeats, and the device is busy
TAIL_BYTES = 65536  # of the output, that are read


def measure_on(
    setting: Setting,
    network: Any,
    shape: tuple[int, int, int],
    needed: Sequence[str] = (),
    timeout_s: float = TIMEOUT_SECONDS,
    effort: Effort = FULL,
) -> Latency:
    """Measure a network on a device, for images of `shape` (channels, height, width): medians over repeats.

    The network is moved and converted for this machine, exported for a command, which must print the numbers `needed`.
    InputError if this machine lacks the device, or a package for the export; DeviceError if the device does not measure
    it; RuntimeError if the network cannot be exported.
    """
    began = time.monotonic()
    if isinstance(setting, DeviceCommand):
        latency = _by_command(setting, network, shape, needed, timeout_s, effort)
    else:
        latency = measure(network, shape, setting, effort)
    return replace(latency, seconds=round(time.monotonic() - began, 3))


def _by_command(
    device: DeviceCommand,
    network: Any,
    shape: tuple[int, int, int],
    needed: Sequence[str],
    timeout_s: float,
    effort: Effort,
) -> Latency:
    """Measure by a command; it is run until the first number needed is certain, or else latency, or what it prints."""
    with tempfile.TemporaryDirectory(prefix="alternas-") as folder:
        file = exported(network, device.form, Path(folder))
        words = device.words(str(file), shape, network.genotype.key)
        found = [_numbers(device, words, needed, timeout_s)]
        judged = [*needed, *({LATENCY} & found[0].keys()), *found[0]][0]
        while len(found) < effort.repeats or not _is_enough([of[judged] for of in found]):
            found.append(_numbers(device, words, (*needed, judged), timeout_s))
    names = [name for name in found[0] if all(name in of for of in found)]
    numbers = {name: statistics.median(of[name] for of in found) for name in names}
    times = [of.get(LATENCY, 0.0) for of in found]
    spread = _spread([of[judged] for of in found])
    return Latency(
        device,
        latency_ms=numbers.pop(LATENCY, 0.0),
        low_ms=min(times),
        high_ms=max(times),
        latency_spread_ms=_quartile_distance(times),
        repeats=len(found),
        tight=spread <= SPREAD,
        busy=round(spread, 3) if spread > SPREAD else 0.0,
        machine=device.command,
        numbers=numbers,
    )


def _is_enough(values: Sequence[float]) -> bool:
    if len(values) == 2:
        return max(values) <= (1 + AGREE) * min(values)
    return len(values) >= MAX_REPEATS or _spread(values) <= SPREAD


def _numbers(device: DeviceCommand, words: Sequence[str], needed: Sequence[str], timeout_s: float) -> dict[str, float]:
    output = _output(device, words, timeout_s)
    numbers = read_numbers(output)
    if (missing := [name for name in dict.fromkeys(needed) if name not in numbers]) or not numbers:
        shown = " ".join(output.split())[-120:] or "nothing"
        rule = f"no {', '.join(missing) or 'number'} from {MIN_COST:g} to {MAX_COST:g} in what it printed"
        raise DeviceError(Status.ERROR, f"device {device.name}: {rule}: {shown}")
    return numbers


def read_numbers(output: str) -> dict[str, float]:
    """Numbers that a command printed: a JSON object's numbers by name, or a bare number, which is `latency_ms`.

    The whole output may be one object. Else the last line counts that is an object with a number, or a number.
    Numbers outside of `MIN_COST` to `MAX_COST` are left out. Empty if there is none.
    """
    for text in (output, *reversed(output.splitlines())):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        numbers = value if isinstance(value, dict) else {LATENCY: value}
        costs = {name: n for name, n in numbers.items() if type(n) in (int, float) and MIN_COST <= n <= MAX_COST}
        if known := {name: float(n) for name, n in costs.items() if NUMBER_NAME.fullmatch(name)}:
            return known
    return {}


def _output(device: DeviceCommand, words: Sequence[str], timeout_s: float) -> str:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        files = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, "start_new_session": True}
        try:
            with ended_after() as environment:
                code = subprocess.run(words, check=False, timeout=timeout_s, env=environment, **files).returncode
        except (OSError, ValueError) as error:
            raise DeviceError(Status.INFEASIBLE, f"device {device.name}: {words[0]} does not start ({error})") from None
        except subprocess.TimeoutExpired:
            raise DeviceError(Status.TIMEOUT, f"device {device.name}: took longer than {timeout_s:g} s") from None
        if code:
            said = " ".join((_tail(err) or _tail(out)).split())[-200:]
            status = Status.UNREACHABLE if code in AWAY else Status.INFEASIBLE
            raise DeviceError(status, f"device {device.name}: exit code {code}{f': {said}' if said else ''}")
        return _tail(out)


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL_BYTES))
    return file.read().decode(errors="replace")


def _quartile_distance(values: Sequence[float]) -> float:
    quartiles = statistics.quantiles(values, n=4, method="inclusive")
    return quartiles[2] - quartiles[0]


def _spread(values: Sequence[float]) -> float:
    """Distance of the quartiles over the median."""
    return _quartile_distance(values) / statistics.median(values)
