"""Latency of nets: those of a run that were trained for the full budget, or one architecture; measured and kept."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from torch import nn

from ...archs.cost import FLOAT_BYTES, Cost
from ...archs.errors import InputError, OperationError
from ...archs.timm_net import TIMM, Net, net_from_dict, side_seen
from ...archs.timm_network import build_net
from ..ranking.metric import Metric, as_shown
from ..ranking.objectives import RankingQuery
from ..ranking.pareto import pareto_ranks
from ..ranking.quantities import ACCURACY
from ..ranking.remarks import why_empty
from ..ranking.run_leaderboard import leaderboard_of
from ..ranking.stats import rank_correlation
from ..render.describe_net import InputSpec, find_arch, input_spec, parse_size, recorded_cut
from ..render.tables import filled_columns, short
from ..render.terminal import plain
from ..runs.status import Status
from ..runs.store import Store, find_run, locked, read_records
from .device_command import TIMEOUT_SECONDS, DeviceCommand, DeviceError, Latency, Setting
from .kept import measured_event
from .measurements import FULL, Effort, LatencySetting
from .on_device import SPREAD, measure_on
from .on_this_machine import BUSY, meter_of
from .predictor import MIN_NETS, LatencyPredictor

log = logging.getLogger("alternas")
NOT_TIGHT = "?: the median's 95 % interval stayed wider than 2 %; other work on the machine?"
NOT_TIGHT_ON_DEVICE = f"?: the quartiles of repeats stayed more than {SPREAD:.0%} apart: the device is busy"


@dataclass(frozen=True)
class TimedNet:
    """A net to be measured."""

    name: str  # what it is called on the terminal
    key: str  # of its genotype; timm's name for one of timm's
    make: Callable[[], nn.Module]  # builds it
    shape: tuple[int, int, int]  # of an image: channels, height, width
    facts: dict[str, Any]  # trial, family, accuracy, macs, params, as far as they are known
    image_size: tuple[int, int]  # of the run, which measurements are kept under: a cut net may see smaller images
    cost: Cost | None = None  # None of timm's nets
    metric: Metric = field(default_factory=Metric)  # that accuracy is the score of

    def check_memory(self, batch: int) -> None:
        """Raise InputError unless its weights and maps fit this machine, where a net is built, wherever it runs."""
        peak_bytes = self.cost.peak_activation_bytes if self.cost else 0
        needed = FLOAT_BYTES * (self.facts["params"] + batch * prod(self.shape)) + batch * peak_bytes
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > memory:
            rule = f"its weights and maps take {needed / 2**30:,.1f} GiB at batch {batch}"
            raise InputError(f"latency: {self.name}: {rule}, this machine has {memory / 2**30:,.1f} GiB")


def nets_of(target: str, image_size: str = "", top: int = 0) -> tuple[list[TimedNet], Path | None]:
    """The nets of a run trained for the full budget, the best ranked first, and its folder; or one net.

    The target is a run, a zoo name, a genotype's .json file, RUN:TRIAL, or timm:NAME; without a size it is the run's,
    timm's or 224. Of a run `top` nets, 0 for all. InputError if there is no such net or run, or the size does not fit.
    """
    if top < 0:
        raise InputError(f"top: must be 1 or more, or 0 for all nets, got {top}")
    if target.startswith(TIMM):
        return [_timm_net(target.removeprefix(TIMM), image_size)], None
    if os.path.isdir(target) or os.path.isdir(Path("runs") / target):  # False where no folder can have that name
        folder = find_run(target)
        return _nets_of_run(folder, image_size, top), folder
    net, scene = recorded_cut(target, image_size) or find_arch(target, image_size)
    return [timed_net(target, net, scene, {"family": net.family})], None


def _nets_of_run(folder: Path, image_size: str, top: int) -> list[TimedNet]:
    scene, records = input_spec(folder), {r.trial: r for r in read_records(folder)}
    if image_size:
        scene = InputSpec(parse_size(image_size), scene.classes, scene.channels)
    board, nets = leaderboard_of(folder, RankingQuery((ACCURACY, "macs"))), []
    if not board.rows:
        raise InputError(f"run {folder.name}: {why_empty(board)}")
    for row in board.rows[: top or None]:
        facts = {name: getattr(row, name) for name in ("trial", "family", "kind", "accuracy")}
        net = net_from_dict(records[row.trial].genotype)
        timed = timed_net(f"trial {row.trial}", net, scene, facts)
        nets.append(replace(timed, metric=board.query.metric))
    return nets


def timed_net(name: str, net: Net, scene: InputSpec, facts: dict[str, Any]) -> TimedNet:
    """A net of a run or of the zoo, to be measured on images of the run."""
    cost, size = scene.cost(net), side_seen(net, scene.image_size)
    make = partial(build_net, net, scene.classes, size, scene.channels)
    facts = facts | {"macs": cost.macs, "params": cost.params}
    known = cost if isinstance(cost, Cost) else None
    return TimedNet(name, net.key, make, (scene.channels, *size), facts, scene.image_size, known)


def _timm_net(name: str, image_size: str) -> TimedNet:
    from ...archs.timm import count_timm, create

    size = parse_size(image_size) if image_size else None
    counts, shape = count_timm(name, size, None, None)
    facts: dict[str, Any] = {"macs": counts["macs"], "params": counts["params"]}
    return TimedNet(name, f"{TIMM}{name}", lambda: create(name, image_size=size), shape, facts, shape[1:])


def measure_nets(
    nets: Sequence[TimedNet],
    asked: Mapping[Setting, Sequence[str]],
    folder: Path | None = None,
    on_net: Callable[[str], None] = lambda name: None,
    timeout_s: float = TIMEOUT_SECONDS,
    effort: Effort = FULL,
) -> Generator[tuple[TimedNet, Latency], None, None]:
    """Measure every net in every setting, one after the other, and keep each result in the run's log, if there is one.

    A run that is being searched is refused: its trainings would be in the way. Nets that do not run on a device are
    left out with a warning. `asked` are the numbers that must be had by setting; () of any. InputError if a net and its
    batch are larger than this machine's memory, or it lacks the device; OperationError if a device is not there.
    """
    for setting in asked:
        for net in nets:
            net.check_memory(setting.batch)
    with _log_of(folder) as store:
        for setting, needed in asked.items():
            for net in nets:
                on_net(net.name)
                try:
                    latency = measure_on(setting, net.make(), net.shape, needed, timeout_s, effort)
                except DeviceError as error:
                    if error.status == Status.UNREACHABLE:
                        raise OperationError(f"{error}; is it there?") from None
                    log.warning("%s: %s", net.name, error)
                    continue
                if store:
                    store.append(measured_event(net.facts["trial"], net.key, net.image_size, latency.to_dict()))
                yield net, latency


@contextmanager
def _log_of(folder: Path | None) -> Iterator[Store | None]:
    """The log of a run, which nobody else has meanwhile; None where there is no run."""
    if folder is None:
        yield None
        return
    with locked(folder), closing(Store(folder)) as store:
        yield store


def latency_rows(pairs: Sequence[tuple[TimedNet, Latency]]) -> list[dict[str, Any]]:
    """A row for each net in one setting, the quickest first: what is known of it, its latency, ranks by both costs.

    `rank` is the Pareto rank on accuracy and latency, `rank_macs` that on accuracy and MACs; None without accuracies.
    Of a run that is ranked by another metric rows are as `as_shown` makes them.
    """
    rows: list[dict[str, Any]] = [
        {"name": net.name, "key": net.key, **net.facts, **latency.to_dict(), "rank": None, "rank_macs": None}
        for net, latency in pairs
    ]
    for name, cost in (("rank", "latency_ms"), ("rank_macs", "macs")):
        known = [row for row in rows if row.get("accuracy") is not None and row[cost]]
        ranks = pareto_ranks([(row["accuracy"], row[cost]) for row in known])
        for row, rank in zip(known, ranks, strict=True):
            row[name] = rank
    rows.sort(key=lambda row: (row["rank"] or 0, row["latency_ms"]))
    return [as_shown(row, pairs[0][0].metric) for row in rows]


def rank_correlation_macs(rows: Sequence[dict[str, Any]]) -> float | None:
    """Spearman's rank correlation of MACs and latency; None for fewer than three nets, or where all are equal."""
    return rank_correlation([(row["macs"], row["latency_ms"]) for row in rows])


def prediction_lines(pairs: Sequence[tuple[TimedNet, Latency]]) -> list[str]:
    """How well latency of other nets is predicted from these in one setting; nothing where they are too few."""
    known = {net.key: (net.cost, latency.latency_ms) for net, latency in pairs if net.cost and latency.latency_ms}
    if len(known) < MIN_NETS:
        return []
    error = LatencyPredictor(*zip(*known.values(), strict=True)).left_out_error()
    return [f"latency of other nets: predicted from {len(known)} nets, leave-one-out error {100 * error:.0f} %"]


def latency_table(rows: Sequence[dict[str, Any]], setting: Setting) -> RenderableType:
    """The rows as a table, with what must be said about them; numbers of a device beside latency have columns too."""
    numbers = dict.fromkeys(name for row in rows for name in row["numbers"])
    title = describe_setting(setting, rows[0]["machine"])
    table = Table(title=title, title_justify="left", header_style="bold", box=None)
    cells = [
        {
            "net": row["name"],
            "latency": (f"{row['latency_ms']:.3g} ms" if row["latency_ms"] else "") + ("" if row["tight"] else " ?"),
            "± quartiles": f"{row['latency_spread_ms']:.2g}" if row["latency_ms"] else "",
            "images/s": short(row["images_per_second"]) if row["latency_ms"] else "",
            "MACs": short(row["macs"]),
            row.get("metric", "accuracy"): "" if (a := row.get("value", row.get("accuracy"))) is None else f"{a:.4f}",
            "rank": str(row["rank"] or ""),
            "by MACs": str(row["rank_macs"] or ""),
            "memory": f"{row['memory_bytes'] / 1e6:.1f} MB" if row["memory_bytes"] else "",
            **{name: f"{row['numbers'][name]:.3g}" if name in row["numbers"] else "" for name in numbers},
        }
        for row in rows
    ]
    for name in (names := filled_columns(cells)):
        if name == "net":
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for row in cells:
        table.add_row(*(row[name] or "-" for name in names))
    notes, correlation = [], rank_correlation_macs(rows)
    if correlation is not None:
        notes.append(f"rank correlation of MACs and latency: {correlation:.2f} (Spearman, {len(rows)} nets)")
    if isinstance(setting, LatencySetting):
        notes.append(f"energy: {meter_of(setting).name}")
    if not all(row["tight"] for row in rows):
        notes.append(NOT_TIGHT if isinstance(setting, LatencySetting) else NOT_TIGHT_ON_DEVICE)
    if (busy := max(row["busy"] for row in rows)) and isinstance(setting, LatencySetting):
        notes.append(f"the machine was busy: a load of {busy:.2f} a core, and more than {BUSY} is not to be trusted")
    return Group(table, *(plain(note, style="dim") for note in notes))


def describe_setting(setting: Setting, machine: str) -> str:
    if isinstance(setting, DeviceCommand):
        return f"device {setting.name}: {setting.form}, by {setting.command}"
    threads = "" if setting.device == "cuda" else f", {setting.threads} thread{'s' * (setting.threads > 1)}"
    return f"{machine} ({setting.device}{threads}): batch {setting.batch}, {setting.dtype}, {setting.runtime}"
