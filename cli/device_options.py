"""Options of devices that nets are measured on by commands of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ..archs.errors import InputError
from ..results.latency.device_command import MODEL_FORMS, TIMEOUT_SECONDS, UNNAMED
from .options import option

if TYPE_CHECKING:
    from ..results.latency.device_command import DeviceCommand


@dataclass(frozen=True)
class DeviceOptions:
    """Devices that nets are measured on, by commands."""

    latency_command: Annotated[
        list[str] | None,
        option(
            "Command that measures a net on the device that it is for, such as 'ssh board ./bench {model}': {model} is "
            "the exported net's file. It prints milliseconds, or JSON with latency_ms and other numbers. "
            f"NAME=COMMAND names the device (else: {UNNAMED}); its objectives are latency_ms@NAME, energy_mj@NAME and "
            "so on. May be given several times.",
            "--latency-command",
            metavar="<str>",
        ),
    ] = None
    latency_format: Annotated[str, option(f"Format of that file: {', '.join(MODEL_FORMS)}.")] = "onnx"
    latency_timeout: Annotated[float, option("Seconds after which one run of such a command is ended.")] = (
        TIMEOUT_SECONDS
    )

    def devices(self) -> tuple[DeviceCommand, ...]:
        """Raise InputError if a command, the format or the time is wrong."""
        from ..results.latency.device_command import device_commands

        if not self.latency_command and (self.latency_format, self.latency_timeout) != ("onnx", TIMEOUT_SECONDS):
            raise InputError("latency-format and latency-timeout: are of a --latency-command; leave them out")
        if not self.latency_timeout > 0:
            raise InputError(f"latency-timeout: must be above 0, got {self.latency_timeout}")
        return device_commands(self.latency_command or (), self.latency_format)
