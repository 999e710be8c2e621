"""Measures a net on a device by the user's command: exports it, runs the command, judges its repeats.

What goes wrong is a `DeviceError`, which says how the job ends. It takes another net to tell whose fault that was.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from ...archs.children import ended_after
from ...archs.cost import MAX_COST, MIN_COST
from ..export.export_net import export_net_of
from ..export.formats import check_formats, format_of
from ..runs.status import Status
from .device_command import LATENCY, TIMEOUT_SECONDS, DeviceCommand, read_numbers
from .measurements import FULL, Effort
from .on_this_machine import Latency

AWAY = (255, 75)  # exit codes of a device that is not there: ssh's own, and EX_TEMPFAIL of sysexits.h
MAX_REPEATS = 9  # runs of the command
AGREE = 0.02  # two runs that are no further apart, as a share of the lesser, need no third one
SPREAD = 0.1  # distance of the quartiles over the median: above it there are more repeats, and the device is busy
TAIL_BYTES = 65536  # of the output, that are read


class DeviceError(Exception):
    """A net was not measured.

    Attributes:
        status: unreachable, the device is not there; timeout; infeasible, the command failed; or error, it printed no
            number.
    """

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


def measure_on(
    device: DeviceCommand,
    network: Any,
    shape: tuple[int, int, int],
    needed: Sequence[str] = (LATENCY,),
    timeout_s: float = TIMEOUT_SECONDS,
    effort: Effort = FULL,
) -> Latency:
    """Measure a network on a device, for images of `shape` (channels, height, width): medians over repeats.

    Args:
        device: whose command is run.
        network: one that alternas built; exported as it is.
        shape: of an image.
        needed: numbers that the command must print; more repeats are made until the first of them is certain.
        timeout_s: of one run of the command.
        effort: so many repeats at least.

    Raises:
        InputError: if a package for the export is missing.
        DeviceError: if the device does not measure it.
        RuntimeError: if the network cannot be exported.
    """
    began = time.monotonic()
    check_formats(device.form)
    form = format_of(device.form)
    with tempfile.TemporaryDirectory(prefix="alternas-") as folder:
        form.write(export_net_of(network), Path(folder))
        words = device.words(str(Path(folder) / form.file), shape, network.genotype.key)
        found = [_numbers(device, words, needed, timeout_s) for _ in range(effort.repeats)]
        while not _is_enough([of[needed[0]] for of in found]):
            found.append(_numbers(device, words, needed, timeout_s))
    names = [name for name in found[0] if all(name in of for of in found)]
    numbers = {name: statistics.median(of[name] for of in found) for name in names}
    times = [of.get(LATENCY, 0.0) for of in found]
    spread = _spread([of[needed[0]] for of in found])
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
        seconds=round(time.monotonic() - began, 3),
    )


def _is_enough(values: Sequence[float]) -> bool:
    """Whether no further run is needed."""
    if len(values) == 2:
        return max(values) <= (1 + AGREE) * min(values)
    return len(values) >= MAX_REPEATS or _spread(values) <= SPREAD


def _numbers(device: DeviceCommand, words: Sequence[str], needed: Sequence[str], timeout_s: float) -> dict[str, float]:
    """Numbers printed by one run of the command."""
    output = _output(device, words, timeout_s)
    numbers = read_numbers(output)
    if missing := [name for name in needed if name not in numbers]:
        shown = " ".join(output.split())[-120:] or "nothing"
        rule = f"no {', '.join(missing)} from {MIN_COST:g} to {MAX_COST:g} in what it printed"
        raise DeviceError(Status.ERROR, f"device {device.name}: {rule}: {shown}")
    return numbers


def _output(device: DeviceCommand, words: Sequence[str], timeout_s: float) -> str:
    """The end of what the command writes to stdout."""
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
