"""`Prices`: what an hour of a worker costs. Knows no Ray."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ...archs.errors import InputError, short_repr

NAME = re.compile(r"cpu|gpu|gpu:[A-Za-z0-9 ._-]+")
RULE = "must be such as cpu=0.04,gpu=2.5 or gpu:H100=4,gpu:T4=0.5, an hour of each"


@dataclass(frozen=True)
class Prices:
    """Prices of an hour, in any currency: of one CPU, one GPU, and one GPU whose name holds TYPE as "gpu:TYPE".

    Raises:
        InputError: if there is no such name, or a price is below 0.
    """

    by_name: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        for name, price in self.by_name:
            if not NAME.fullmatch(name):
                raise InputError(f"price: {RULE}, got {short_repr(name)}")
            if not (math.isfinite(price) and price >= 0):
                raise InputError(f"price: that of {name} must be 0 or more, got {price}")
        if len(dict(self.by_name)) < len(self.by_name):
            raise InputError(f"price: each name once, got {', '.join(name for name, _ in self.by_name)}")
        if self.by_name and not any(price for _, price in self.by_name):
            raise InputError("price: at least one must be above 0")

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def hour(self, cpus: float, gpus: float, device: str) -> float:
        """Price of an hour of a worker with so many CPUs and GPUs; 0 without prices.

        Args:
            device: name of its GPUs, such as NVIDIA H100 80GB HBM3.

        Raises:
            InputError: if it has a GPU that no price is for.
        """
        if not self:
            return 0.0
        known = dict(self.by_name)
        of_type = [name for name in known if name.startswith("gpu:") and name[4:].lower() in device.lower()]
        name = max(of_type, key=len, default="gpu")
        if gpus and name not in known:
            raise InputError(f"price: none is given for a {device}; add gpu=... or gpu:TYPE=...")
        return cpus * known.get("cpu", 0.0) + gpus * known.get(name, 0.0)


def parse_prices(text: str) -> Prices:
    """Prices of "cpu=0.04,gpu:H100=4"; none of "".

    Raises:
        InputError: if one is wrong.
    """
    pairs = []
    for part in text.split(",") if text else []:
        name, _, price = part.partition("=")
        try:
            pairs.append((name.strip(), float(price)))
        except ValueError:
            raise InputError(f"price: {RULE}, got {short_repr(part)}") from None
    return Prices(tuple(pairs))
