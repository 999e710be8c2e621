"""`Setting`: this machine's, or a `DeviceCommand`, a device that nets are measured on by a command of the user's.

The command gets the file of an exported net and prints what it has measured, which is read here. `Latency` is what
either has measured, `DeviceError` why it has not. Knows no torch. on_device.py measures.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from ...archs.cost import MAX_COST, MIN_COST
from ...archs.errors import InputError, check_choice, short_repr
from ...archs.json_files import check_fields, convert
from ..export.formats import FORMATS
from ..runs.status import Status
from .measurements import DEVICES, LatencySetting, Measurement, settings_in, side_text

LATENCY = "latency_ms"  # what a bare number is
UNNAMED = "device"  # name of a device that was given none
FOLDERS = ("package", "timm", "openvino")  # formats that are no single file
MODEL_FORMS = tuple(name for name in FORMATS if name not in FOLDERS)
TIMEOUT_SECONDS = 300.0  # of one run of the command
PLACEHOLDERS = ("model", "shape", "key")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
_NAMED = re.compile(rf"({_NAME.pattern})=(.*)", re.DOTALL)
_NUMBER = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True)
class DeviceCommand:
    """A device, by the command that measures a net on it; `str` spells its setting, NAME/1/-/FORM/-."""

    name: str  # of the device
    # its words as a shell splits them, though no shell runs them. `{model}` is the file of the net, `{shape}` that of
    # an image, such as 3x32x32, `{key}` the net's key.
    command: str
    form: str = "onnx"  # the export format of the file

    batch = 1  # images at once, as far as we know: the command has its own say
    device = property(lambda self: self.name)

    def __post_init__(self) -> None:
        check_fields(self, "latency-command")
        if not _NAME.fullmatch(self.name) or self.name in DEVICES:
            rule = f"a letter, then letters, digits, '.', '_' and '-', and not {' or '.join(DEVICES)}"
            raise InputError(f"latency-command: the name of a device is {rule}, got {short_repr(self.name)}")
        check_choice("latency-format", self.form, MODEL_FORMS)
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise InputError(f"latency-command: {error}, got {short_repr(self.command)}") from None
        if not any("{model}" in word for word in words):
            rule = "must hold {model}, the net's file, as in 'ssh board ./bench {model}'"
            raise InputError(f"latency-command: {rule}, got {short_repr(self.command)}")
        if "{model}" in words[0]:
            raise InputError(f"latency-command: the first word is the program, got {short_repr(self.command)}")

    def __str__(self) -> str:
        return f"{self.name}/{self.batch}/-/{self.form}/-"

    @property
    def parts(self) -> dict[str, Any]:
        """The setting's fields in a measurement."""
        return {"device": self.name, "batch": self.batch, "dtype": None, "runtime": self.form, "threads": None}

    def setting_id(self, image_size: Sequence[int]) -> str:
        """The setting with image size and machine; another command is another setting."""
        return f"{self}/{side_text(image_size)}/{self.machine}"

    @property
    def machine(self) -> str:
        """The command as it stands in a setting."""
        return self.command.replace("/", "-")

    def words(self, model: str, shape: Sequence[int], key: str) -> list[str]:
        """The command for one net. What is put in for a placeholder stays within its word."""
        values: dict[str, str] = dict(zip(PLACEHOLDERS, (model, "x".join(map(str, shape)), key), strict=True))
        return [
            re.sub(rf"\{{({'|'.join(PLACEHOLDERS)})\}}", lambda found: values[found[1]], word)
            for word in shlex.split(self.command)
        ]


Setting = LatencySetting | DeviceCommand


@dataclass(frozen=True)
class Latency:
    """Milliseconds a batch takes."""

    setting: Setting  # what it was measured under
    latency_ms: float  # the median; 0 of a device that measures other things alone
    low_ms: float  # of the 95 % interval of the median; of a device the least
    high_ms: float  # likewise, or the most
    latency_spread_ms: float  # distance of the quartiles
    repeats: int  # times that these were taken from
    tight: bool  # whether they agree as well as is asked for
    # where the figures are doubtful, load of the machine before, over its cores; of a device how far repeats differ
    busy: float = 0.0
    memory_bytes: int | None = None  # peak on a GPU, weights included; of runtime onnx, over the runtime's own
    machine: str = ""  # name of the device, or the command that measures on it
    # what else was measured, by name: energy_mj of a batch where there is a meter; all that a command prints
    numbers: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0  # that measuring took, export included; 0 where it is not known
    when: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))  # in UTC

    @property
    def images_per_second(self) -> float:
        return 1e3 * self.setting.batch / self.latency_ms if self.latency_ms else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Flat dict, as the log keeps it."""
        rest = asdict(self)
        del rest["setting"]
        return self.setting.parts | rest | {"images_per_second": self.images_per_second}


class DeviceError(Exception):
    """A net was not measured: the device is unreachable, timeout, oom, infeasible, or error, no number was printed."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


def device_commands(texts: Iterable[str], form: str = "onnx") -> tuple[DeviceCommand, ...]:
    """The devices of texts such as "phone=./on_phone {model}"; InputError if one is wrong, or two have one name."""
    found = list[DeviceCommand]()
    check_choice("latency-format", form, MODEL_FORMS)
    for text in texts:
        named = _NAMED.fullmatch(text.strip())
        name, command = (named[1], named[2]) if named else (UNNAMED, text)
        found.append(DeviceCommand(name, command.strip(), form))
    names = [device.name.lower() for device in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"latency-command: two devices are called {twice[0]!r}; name them: NAME=COMMAND")
    return tuple(found)


def split_number(objective: str) -> tuple[str, str]:
    """The number and the device of an objective: "energy_mj@board" is ("energy_mj", "board"); "macs" has no device."""
    number, _, device = objective.partition("@")
    return number, device


def is_number_of_device(objective: str) -> bool:
    """Whether it is spelled NUMBER@DEVICE."""
    number, at, device = objective.partition("@")
    return bool(at and _NUMBER.fullmatch(number) and _NAME.fullmatch(device))


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
        if known := {name: float(n) for name, n in costs.items() if _NUMBER.fullmatch(name)}:
            return known
    return {}


def devices_in(settings: Mapping[str, Any], where: str) -> dict[str, DeviceCommand]:
    """The devices of a run's settings, by name; InputError if they are none; `where` they stand."""
    found = convert(settings.get("devices") or [], list[DeviceCommand], f"{where}: settings.devices")
    return {device.name: device for device in found}


def measured_on(
    measured: Iterable[Measurement], device: str, own: DeviceCommand | None = None, where: str = ""
) -> list[Measurement]:
    """Measurements on a device, by its name in any case: all in one setting.

    The command of `own`, the device of the run's search, goes before others of that name; `where` is the run, for the
    message. InputError if several commands have measured under that name.
    """
    found = [m for m in measured if m.setting.lower().startswith(f"{device.lower()}/")]
    if own:
        found = [m for m in found if m.setting.endswith(f"/{own.machine}")] or found
    if len(known := settings_in(found)) > 1:
        rule = f"run {where} has numbers of {len(known)} settings on {device!r}: {', '.join(known)}"
        raise InputError(f"objectives: {rule}; say which with --latency-of, and call it {LATENCY}")
    return found
