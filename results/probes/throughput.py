"""How many images a second a net takes, and how many at once, by the size of the image.

Dosovitskiy et al., ICLR 2021, appendix D.5 and figure 12: peak inference speed of a device, and the largest batch per
device, over image sizes. Seconds are measured here and now, on the device that the net is on, as `alternas latency`
measures them; the largest batch follows from the closed form of `archs/cost.py` (its activations are within 12 % of
measured ones, tests/test_memory.py): the largest power of two whose activations, beside the weights, fit.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from ...archs import InputError, Network, resized, static_cost
from ...archs.cost import Cost
from ...archs.plan import Map
from ...archs.tally import FLOAT_BYTES
from ..latency.measure import measure
from ..latency.setting import Setting
from .subject import Finding, Subject

FACTORS = (1, 2, 3, 4)  # of the size that the net was built for


def largest_batch(cost: Cost, memory_bytes: int) -> int:
    """The largest power of two of images whose pass fits beside the weights; 0 if not even one does."""
    room = (memory_bytes - FLOAT_BYTES * cost.params) // cost.peak_activation_bytes
    return 1 << (room.bit_length() - 1) if room > 0 else 0


def sizes_of(net: Network) -> list[tuple[Map, Network]]:
    """Image sizes that the net can be moved to, of FACTORS, and the net moved to each.

    Windows must divide the larger maps too, and relative positions of an encoder stay where they are.
    """
    found = []
    for factor in FACTORS:
        size = (net.image_size[0] * factor, net.image_size[1] * factor)
        try:
            found.append((size, copy.deepcopy(net) if factor == 1 else resized(net, size)))
        except InputError:
            continue
    return found


def analyse(subject: Subject, batch: int = 32, memory_bytes: int = 2**30, threads: int = 1) -> Finding:
    """Images a second at `batch`, and the largest batch in `memory_bytes`, at each size that the net takes.

    Raises:
        InputError: if the net is not one of alternas.
    """
    net = subject.net
    if not isinstance(net, Network):
        raise InputError("throughput: takes nets of alternas alone")
    setting = Setting(next(net.parameters()).device.type, batch, threads=threads)
    rows = [_row(size, moved, setting, memory_bytes) for size, moved in sizes_of(net)]
    title = f"Throughput of {subject.name} by image size"
    return Finding("throughput", title, rows, _reading(rows), lambda figure: _draw(figure, rows))


def _row(size: Map, net: Network, setting: Setting, memory_bytes: int) -> dict[str, Any]:
    found = measure(net, (net.in_chans, *size), setting)
    cost = static_cost(net.genotype, net.num_classes, size, net.in_chans)
    return {
        "height": size[0], "width": size[1], "batch": setting.batch, "device": setting.device,
        "threads": setting.threads, "machine": found.machine, "latency_ms": found.latency_ms,
        "images_per_second": found.images_per_second, "macs": cost.macs, "memory_bytes": memory_bytes,
        "largest_batch": largest_batch(cost, memory_bytes),
    }  # fmt: skip


def _reading(rows: Sequence[dict[str, Any]]) -> str:
    first, last = rows[0], rows[-1]
    where = f"{first['machine']}, {first['threads']} threads of the CPU"
    if first["device"] == "cuda":
        where = first["machine"]
    text = [
        f"Measured on {where}, batches of {first['batch']}: {first['images_per_second']:.0f} images a second at "
        f"{first['height']}x{first['width']} px; {first['largest_batch']} at once fit in "
        f"{first['memory_bytes'] / 2**30:g} GiB."
    ]
    if len(rows) == 1:
        text.append("The net takes no other of the sizes tried.")
        return " ".join(text)
    pixels = last["height"] * last["width"] / (first["height"] * first["width"])
    slower = first["images_per_second"] / last["images_per_second"]
    macs = last["macs"] / first["macs"]
    text.append(
        f"With {pixels:.0f} times the pixels ({last['height']}x{last['width']}) it has {macs:.1f} times the MACs and "
        f"is {slower:.1f} times slower; {last['largest_batch']} fit."
    )
    return " ".join(text)


def _draw(figure: Figure, rows: Sequence[dict[str, Any]]) -> None:
    sides = [row["height"] for row in rows]
    for axes, field, label in zip(
        figure.subplots(1, 2), ("images_per_second", "largest_batch"), ("images a second", "largest batch"), strict=True
    ):
        axes.plot(sides, [row[field] for row in rows], marker="o")
        axes.set_xlabel("height of the image (px)")
        axes.set_ylabel(label)
        axes.set_yscale("symlog" if field == "largest_batch" else "log")
