"""Peak speed over batch sizes, and the largest batch that a device holds.

Dosovitskiy et al., ICLR 2021, figure 12: images a second of the best batch, and how many images fit a core. Batches are
powers of two. A GPU is asked by running; what the CPU's memory holds is estimated, and only for nets of alternas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from rich.console import Group, RenderableType
from rich.table import Table

from ..ranking.metric import as_shown
from ..render.tables import short
from ..render.terminal import plain
from .measure import Latency, check_device, measure
from .measurements import MOST_BATCH, LatencySetting
from .nets import TimedNet, describe_setting

SLOWER = 3  # larger batches in a row that are no quicker an image end the search for the peak
MOST_SECONDS = 10.0  # of a batch; larger ones are not measured


def peak_rows(
    nets: Sequence[TimedNet], setting: LatencySetting, on_net: Callable[[str], None] = lambda name: None
) -> list[dict[str, Any]]:
    """A row for each net: peak images a second and at which batch, the largest batch (None if unknown), all speeds.

    Raises:
        InputError: if this machine has not the device, or its memory does not hold a net at batch 1.
        OperationError: if a net does not run in the setting.
    """
    check_device(setting)
    rows = []
    for net in nets:
        net.check_memory(1)
        on_net(net.name)
        found = list(_over_batches(net, setting))
        best = max(found, key=lambda latency: latency.images_per_second)
        row = {"name": net.name, "key": net.key, **net.facts, **best.to_dict()}
        row |= {"largest_batch": largest_batch(net, setting)}
        row |= {"by_batch": {latency.setting.batch: latency.images_per_second for latency in found}}
        rows.append(as_shown(row, net.metric))
    return rows


def _over_batches(net: TimedNet, setting: LatencySetting) -> Iterator[Latency]:
    """Latencies at batches 1, 2, 4 and so on, until images a second no longer rise or no more fit."""
    best, slower, batch = 0.0, 0, 1
    while slower < SLOWER and batch <= MOST_BATCH and _fits(net, replace(setting, batch=batch)):
        found = measure(net.make(), net.shape, replace(setting, batch=batch))
        yield found
        slower = 0 if found.images_per_second > best else slower + 1
        best, batch = max(best, found.images_per_second), 2 * batch
        if found.latency_ms > 1e3 * MOST_SECONDS:
            return


def largest_batch(net: TimedNet, setting: LatencySetting) -> int | None:
    """The largest power of two that fits the device; None on a CPU where the net's maps are not known."""
    if setting.device == "cpu" and net.cost is None:
        return None
    batch = 1
    while batch < MOST_BATCH and _fits(net, replace(setting, batch=2 * batch)):
        batch *= 2
    return batch


def _fits(net: TimedNet, setting: LatencySetting) -> bool:
    """Whether a batch fits: on a GPU by one pass, on the CPU by what the maps take."""
    if setting.device == "cpu":
        return net.fits(setting.batch)
    dtype = getattr(torch, setting.dtype)
    try:
        with torch.inference_mode():
            net.make().eval().to(setting.device, dtype)(
                torch.rand(setting.batch, *net.shape, dtype=dtype, device=setting.device)
            )
        torch.cuda.synchronize()
    except torch.OutOfMemoryError:
        return False
    finally:
        torch.cuda.empty_cache()
    return True


def peak_table(rows: Sequence[dict[str, Any]], setting: LatencySetting) -> RenderableType:
    """The rows of `peak_rows` for the terminal."""
    title = describe_setting(setting, rows[0]["machine"]).replace("batch 1,", "best batch,")
    table = Table(title=title, title_justify="left", header_style="bold", box=None)
    table.add_column("net")
    for name in ("images/s", "at batch", "largest batch", "MACs", rows[0].get("metric", "accuracy")):
        table.add_column(name, justify="right")
    for row in rows:
        accuracy, largest = row.get("value", row.get("accuracy")), row["largest_batch"]
        table.add_row(
            row["name"], short(row["images_per_second"]), str(row["batch"]),
            "-" if largest is None else f"{largest:,}", short(row["macs"]),
            "-" if accuracy is None else f"{accuracy:.4f}",
        )  # fmt: skip
    how = "estimated from this machine's memory, float32" if setting.device == "cpu" else "a forward pass of it fits"
    return Group(table, plain(f"largest batch, a power of two: {how}", style="dim"))
