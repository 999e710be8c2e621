"""Option values: each function makes one of what was typed, or of what Python or a `--config` file holds.

Each raises InputError, which names the option.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..archs import Genotype
from ..archs.cost import MIN_COST
from ..archs.errors import InputError, is_whole, short_repr
from ..archs.timm_net import TIMM, TimmNet
from ..results.ranking.quantities import ACCURACY, LATENCY, is_number_of_device

if TYPE_CHECKING:
    from ..results.latency.setting import LatencySetting
    from ..search.known_nets import StartWith
    from ..search.spec import Supernet

Amount: TypeAlias = int
Gpus: TypeAlias = float
Costs: TypeAlias = tuple[str, ...]
_AMOUNT = re.compile(r"(\d+(?:\.\d*)?)\s*([kKMGT]?)")
_FRACTION = re.compile(r"\d{1,9}(\.\d{1,9}|/0*[1-9]\d{0,8})?")  # 1e999999999 would take Fraction for ever
_POSITIVE = re.compile(r"\d{1,9}(\.\d{0,9})?|\.\d{1,9}")
_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def words(option: str, value: Any) -> tuple[str, ...]:
    """The texts of "a, b" or ["a", "b"], empty ones left out; "" has none, others at least one."""
    parts = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(part, str) for part in parts):
        raise InputError(f"{option}: must be a text or a list of texts, got {short_repr(value)}")
    found = tuple(word.strip() for part in parts for word in part.split(",") if word.strip())
    if value and not found:
        raise InputError(f"{option}: must be names separated by commas, got {short_repr(value)}")
    return found


def _numbers(option: str, value: Any) -> tuple[str, ...]:
    parts = value if isinstance(value, list | tuple) else [value]
    return words(option, [str(part) if isinstance(part, Real) and part is not True else part for part in parts])


def amount(option: str, value: Any) -> int:
    """A positive amount such as 500000, "50M" or "1.2G"."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    match = _AMOUNT.fullmatch(text) if len(text) < 40 else None
    found = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    if found < 1:
        raise InputError(f"{option}: must be a positive amount such as 500000, 50M or 1.2G, got {short_repr(value)}")
    return found


def gpus(option: str, value: Any) -> float:
    """The GPUs of a trial, of 0.25, "0.25", or "auto", which is what was measured on this machine."""
    from ..search.engine.resources import kept_share

    if value == "auto":
        return kept_share()
    try:
        return float(value) if isinstance(value, str | Real) and not isinstance(value, bool) else math.nan
    except ValueError:
        raise InputError(f"{option}: must be a number of GPUs or auto, got {short_repr(value)}") from None


def shares(option: str, value: Any) -> tuple[float, ...]:
    """Shares of the budget, of "1/8,1/4,1/2" or [0.125, 0.25]."""
    parts = _numbers(option, value)
    if not parts or not all(_FRACTION.fullmatch(part) for part in parts):
        rule = "must be shares of the budget separated by commas, such as 1/8,1/2"
        raise InputError(f"{option}: {rule}, got {short_repr(value)}")
    return tuple(float(Fraction(part)) for part in parts)


def whole_numbers(option: str, value: Any) -> tuple[int, ...]:
    """The numbers of "1,5,20" or [1, 5, 20]."""
    parts = _numbers(option, value)
    if not all(map(is_whole, parts)):
        raise InputError(f"{option}: whole numbers with commas between, such as 1,5,20, got {short_repr(value)}")
    return tuple(int(part) for part in parts)


def size(option: str, value: Any) -> tuple[int, int]:
    """(height, width) of 32, "32" or "32x48"."""
    from ..results.render.describe_net import parse_size

    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(f"{option}: a side in pixels or HEIGHTxWIDTH, got {short_repr(value)}")
    return parse_size(str(value))


def costs(option: str, value: Any) -> tuple[str, ...]:
    """The costs of "macs" or "accuracy,latency_ms@board,energy_mj@board"; accuracy is weighed against them anyway."""
    found = tuple(name for name in words(option, value) if name != ACCURACY)
    if not found:
        raise InputError(f"{option}: one cost or more, such as macs or accuracy,{LATENCY}, got {short_repr(value)}")
    return found


def latency_limits(option: str, value: Any) -> Mapping[str, float]:
    """Largest milliseconds by cost, of 12, "12", "board=12,phone=30" or ["12", "board=12"]."""
    found = dict[str, float]()
    for part in _numbers(option, value) or [str(value)]:
        device, named, most = part.rpartition("=")
        cost = f"{LATENCY}@{device.strip()}" if named else LATENCY
        is_number = _POSITIVE.fullmatch(most.strip()) and float(most) >= MIN_COST
        if (named and not is_number_of_device(cost)) or not is_number:
            rule = f"milliseconds from {MIN_COST:g} on, or DEVICE=MILLISECONDS, such as 12 or board=12"
            raise InputError(f"{option}: {rule}, got {short_repr(part)}")
        found[cost] = float(most)
    return found


def latency_setting(option: str, value: Any) -> LatencySetting:
    """How latency is measured: "cuda/32/float16"; parts left out are those of `LatencySetting`."""
    from ..results.latency.setting import LatencySetting

    if isinstance(value, LatencySetting):
        return value
    (text,) = words(option, value) or ("",)
    return LatencySetting.parse(text)


def supernet(option: str, value: Any) -> Supernet:
    """The supernet of 8 or "8" full trainings, or with the bank of a run."""
    from ..search.prepare import bank_trainings
    from ..search.spec import Supernet

    if isinstance(value, bool) or not isinstance(value, str | Real):
        raise InputError(f"{option}: must be a number of full trainings or a run, got {short_repr(value)}")
    try:
        trainings = float(value)
    except ValueError:
        return Supernet(bank_trainings(str(value)), str(value))
    return Supernet(trainings)


def references(option: str, value: Any) -> tuple[TimmNet, ...]:
    """The nets of "timm:resnet18,timm:vit_tiny_patch16_224"."""
    nets = list[TimmNet]()
    for part in words(option, value):
        name = part.removeprefix(TIMM)
        if name == part or not name:
            raise InputError(f"{option}: must be nets of timm such as {TIMM}resnet18, got {short_repr(part)}")
        if "." in name:
            hint = f"write {TIMM}{name.split('.')[0]}; --from takes weights"
            raise InputError(f"{option}: is trained from fresh weights, got those of {short_repr(part)}; {hint}")
        if TimmNet(name) in nets:
            raise InputError(f"{option}: {part} is listed twice")
        nets.append(TimmNet(name))
    return tuple(nets)


def start_with(option: str, value: Any) -> StartWith:
    """The nets to begin with: genotypes, a run or net of one, or a text that names them."""
    from ..archs import zoo
    from ..results.runs.nets import run_and_trial
    from ..results.saved_run import SavedNet, SavedRun
    from ..search.known_nets import StartWith, nets_of_json

    nets = value if isinstance(value, list | tuple) else [value]
    if nets and all(isinstance(net, Genotype) for net in nets):
        return StartWith(nets=tuple(nets))
    if isinstance(value, SavedRun | SavedNet):
        value = value.spec
    if isinstance(value, str) and value.startswith(("{", "[")):
        return StartWith(nets=nets_of_json("JSON", value))
    text = str(value) if isinstance(value, str | Path) else ",".join(words(option, value))
    if text.endswith(".json") or os.path.isfile(text):
        return StartWith(file=Path(text))
    run, trial = run_and_trial(text)
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in zoo.names()]
    if trial is not None or Path(text).is_dir() or unknown == [text]:  # a run, perhaps gone by now
        return StartWith(run=run, trial=trial)
    if unknown or not names:
        rule = "must be a .json file, a run, RUN:TRIAL or names of the zoo"
        raise InputError(f"{option}: {rule}, got {short_repr(unknown[0] if unknown else text)}")
    return StartWith(zoo=names)
