"""`Setting`: how nets are measured, by this machine (`LatencySetting`) or by a `DeviceCommand` of the user's.

The command gets the file of an exported net and prints what it has measured. on_device.py measures. Knows no torch.
"""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ...archs.errors import InputError, check_choice, is_whole, short_repr
from ...archs.json_files import check_fields, convert
from ..export.formats import FORMATS
from ..ranking.quantities import DEVICE_NAME

DEVICES = ("cpu", "cuda")
DTYPES = ("float32", "bfloat16", "float16", "int8")
ONNX_FORMATS = {"float32": "onnx", "float16": "onnx-fp16", "int8": "onnx-int8"}  # of export, by dtype
RUNTIMES = ("eager", "compile", "graph", "onnx")
MAX_BATCH = 2**20  # and threads
UNNAMED = "device"  # name of a device that was given none
FOLDERS = ("package", "timm", "openvino")  # formats that are no single file
MODEL_FORMS = tuple(name for name in FORMATS if name not in FOLDERS)
TIMEOUT_SECONDS = 300.0  # of one run of the command
PLACEHOLDERS = ("model", "shape", "key")
_NAMED = re.compile(rf"({DEVICE_NAME.pattern})=(.*)", re.DOTALL)


@dataclass(frozen=True)
class LatencySetting:
    """Setting of a latency measurement; `str` spells it DEVICE/BATCH/DTYPE/RUNTIME/THREADS."""

    device: str = "cpu"  # cpu or cuda
    batch: int = 1  # images at once
    dtype: str = "float32"  # float32, bfloat16, float16 or, by onnxruntime alone, int8
    runtime: str = "eager"  # eager, compile (torch.compile), graph (a CUDA graph) or onnx (onnxruntime)
    threads: int = 1  # of the CPU

    def __post_init__(self) -> None:
        check_choice("device", self.device, DEVICES)
        check_choice("dtype", self.dtype, DTYPES)
        check_choice("runtime", self.runtime, RUNTIMES)
        for name, value in (("batch", self.batch), ("threads", self.threads)):
            if not 1 <= value <= MAX_BATCH:
                raise InputError(f"{name}: must be from 1 to {MAX_BATCH}, got {short_repr(value)}")
        if self.runtime == "onnx" and (self.dtype not in ONNX_FORMATS or self.device != "cpu"):
            rule = f"measured in {', '.join(ONNX_FORMATS)} on the CPU alone"
            raise InputError(f"runtime onnx: {rule}, got {self.dtype} on {self.device}")
        if self.runtime == "graph" and self.device != "cuda":
            raise InputError(f"runtime graph: measured on cuda alone, got {self.device}")
        if self.dtype == "int8" and self.runtime != "onnx":
            raise InputError(f"dtype int8: measured by runtime onnx alone, got {self.runtime}")

    def __str__(self) -> str:
        return "/".join(str(getattr(self, field.name)) for field in fields(self))

    @property
    def parts(self) -> dict[str, Any]:
        """The setting's fields in a measurement."""
        return asdict(self)

    def setting_id(self, image_size: Sequence[int]) -> str:
        """The setting with an image size; the machine is that of the first measurement."""
        return f"{self}/{side_text(image_size)}"

    @classmethod
    def parse(cls, text: str) -> LatencySetting:
        """The setting that "cuda/32/float16" spells; parts left out, at the end or between, are the defaults."""
        parts, names = [part.strip() for part in text.split("/")], [field.name for field in fields(cls)]
        if len(parts) > len(names):
            raise InputError(f"latency: DEVICE/BATCH/DTYPE/RUNTIME/THREADS, got {short_repr(text)}")
        given: dict[str, Any] = {name: part for name, part in zip(names, parts, strict=False) if part}
        for name in given.keys() & {"batch", "threads"}:
            if not is_whole(given[name]):
                raise InputError(f"latency: {name} must be a whole number, got {short_repr(given[name])}")
            given[name] = int(given[name])
        return cls(**given)


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
        if not DEVICE_NAME.fullmatch(self.name) or self.name in DEVICES:
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
class Effort:
    """How long a net is measured, and until its figures agree how well."""

    repeats: int = 3  # runs of a device's command at least; of two runs both must agree
    warm_s: float = 0.3  # seconds of warm-up on this machine
    least_s: float = 0.5  # and of measuring
    most_s: float = 10.0


FULL = Effort()
SHORT = Effort(repeats=2, warm_s=0.1, least_s=0.1, most_s=1.0)  # of the nets of a search


def latency_settings(
    device: str, batch: str, dtype: str, compiled: bool, graph: bool, onnx: bool, threads: int
) -> list[LatencySetting]:
    """Every batch size of a comma list with every dtype of another; InputError if one is unknown or does not fit."""
    flags = {"compile": compiled, "graph": graph, "onnx": onnx}
    runtime, *more = [name for name, wanted in flags.items() if wanted] or ["eager"]
    if more:
        raise InputError(f"{runtime} and {more[0]}: one of them")
    sizes = [part.strip() for part in batch.split(",") if part.strip()]
    if bad := [size for size in sizes if not is_whole(size)] or (not sizes and [batch]):
        raise InputError(f"batch: whole numbers with commas between, such as 1,32, got {short_repr(bad[0])}")
    dtypes = [part.strip() for part in dtype.split(",") if part.strip()] or [dtype]
    return [LatencySetting(device, int(size), name, runtime, threads) for name in dtypes for size in sizes]


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


def devices_in(settings: Mapping[str, Any], where: str) -> dict[str, DeviceCommand]:
    """The devices of a run's settings, by name; InputError if they are none; `where` they stand."""
    found = convert(settings.get("devices") or [], list[DeviceCommand], f"{where}: settings.devices")
    return {device.name: device for device in found}


def side_text(image_size: Iterable[int]) -> str:
    """An image size in a setting: "32" of a square, "32x48"."""
    return "x".join(map(str, dict.fromkeys(image_size)))


def cpu_name() -> str:
    """The CPU's model, where the system says it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
