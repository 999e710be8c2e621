"""The nets whose latency is wanted: those of a run that were trained whole, or one architecture; measured, and kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from torch import nn

from ...archs import Genotype, build
from ...archs.cost import FLOAT_BYTES
from ...archs.errors import InputError
from ..ranking.leaderboard import leaderboard_of
from ..ranking.objectives import ACCURACY, RankingQuery
from ..ranking.pareto import pareto_ranks
from ..render.net import InputSpec, find_arch, input_spec, parse_size
from ..render.tables import short
from ..render.terminal import plain
from ..runs.store import find_run, locked, read_records
from .measure import BUSY, Latency, check_device, measure
from .setting import LatencySetting
from .store import keep

TIMM = "timm:"
Tell = Callable[[str], None]


@dataclass(frozen=True)
class TimedNet:
    """A net to be measured.

    Attributes:
        name: what it is called on the terminal.
        key: of its genotype; timm's name for one of timm's.
        make: builds it.
        shape: of an image: channels, height, width.
        facts: trial, family, accuracy, macs, params, as far as they are known.
        peak_bytes: of the maps of one image that are alive at once; 0 where it is not known.
    """

    name: str
    key: str
    make: Callable[[], nn.Module]
    shape: tuple[int, int, int]
    facts: dict[str, Any]
    peak_bytes: int = 0


@dataclass(frozen=True)
class TimedNets:
    """Nets, and the run that they are of, if they are of one."""

    nets: Sequence[TimedNet]
    folder: Path | None = None


def subjects_of(target: str, image_size: str = "", top: int = 0) -> TimedNets:
    """The nets of a run, the best ranked first, or one net: a zoo name, a genotype's .json file, RUN:TRIAL, timm:NAME.

    Args:
        target: which.
        image_size: side or HEIGHTxWIDTH; "" is the run's, timm's, or 224.
        top: so many nets of a run; 0 is all that were trained whole.

    Raises:
        InputError: if there is no such net or run, or the size does not fit.
    """
    if top < 0:
        raise InputError(f"top: must be 1 or more, or 0 for all nets, got {top}")
    if target.startswith(TIMM):
        return TimedNets([_timm(target.removeprefix(TIMM), image_size)])
    if _is_run(target):
        folder = find_run(target)
        return TimedNets(_of_run(folder, image_size, top), folder)
    net, scene = find_arch(target, image_size)
    return TimedNets([_subject(target, net, scene, {"family": net.family})])


def measured(subjects: TimedNets, settings: Sequence[LatencySetting], tell: Tell) -> Iterator[tuple[TimedNet, Latency]]:
    """Measure every net under every setting, one after the other, and keep each result in the run's latency.jsonl.

    A run that is being searched is refused: its trainings would be in the way.

    Raises:
        InputError: if so, or a net and its batch are larger than this machine's memory.
        OperationError: if a net does not run under a setting.
    """
    for setting in settings:
        check_device(setting)
        for subject in subjects.nets:
            _check_memory(subject, setting.batch)
    with locked(subjects.folder) if subjects.folder else nullcontext():
        for setting in settings:
            for subject in subjects.nets:
                tell(subject.name)
                latency = measure(subject.make(), subject.shape, setting)
                if subjects.folder:
                    keep(subjects.folder, subject.key, subject.shape[1:], latency.to_dict())
                yield subject, latency


def _check_memory(subject: TimedNet, batch: int) -> None:
    """Raise InputError for what has no room: a net is made here, wherever it runs then."""
    need = FLOAT_BYTES * (subject.facts["params"] + batch * prod(subject.shape)) + batch * subject.peak_bytes
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > have:
        rule = f"its weights and maps take {need / 2**30:,.1f} GiB at batch {batch}"
        raise InputError(f"latency: {subject.name}: {rule}, this machine has {have / 2**30:,.1f} GiB")


def _is_run(target: str) -> bool:
    return os.path.isdir(target) or os.path.isdir(Path("runs") / target)  # False where no folder can have that name


def _of_run(folder: Path, image_size: str, top: int) -> list[TimedNet]:
    scene, records = input_spec(folder), {r.trial: r for r in read_records(folder)}
    if image_size:
        scene = InputSpec(parse_size(image_size), scene.classes, scene.channels)
    board, found = leaderboard_of(folder, RankingQuery((ACCURACY, "macs"))), []
    if board.why_empty:
        raise InputError(f"run {folder.name}: {board.why_empty}")
    for row in board.rows[: top or None]:
        net = Genotype.from_dict(records[row["trial"]].genotype)
        facts = {name: row[name] for name in ("trial", "family", "kind", "accuracy")}
        found.append(_subject(f"trial {row['trial']}", net, scene, facts))
    return found


def _subject(name: str, net: Genotype, scene: InputSpec, facts: dict[str, Any]) -> TimedNet:
    cost = scene.cost(net)
    size, shape = scene.image_size, (scene.channels, *scene.image_size)
    known = facts | {"macs": cost.macs, "params": cost.params}
    made = partial(build, net, scene.classes, size, scene.channels)
    return TimedNet(name, net.key, made, shape, known, cost.peak_activation_bytes)


def _timm(name: str, image_size: str) -> TimedNet:
    from ...archs.timm import count_timm, create

    size = parse_size(image_size) if image_size else None
    counted, shape = count_timm(name, size, None, None)
    known: dict[str, Any] = {"macs": counted["macs"], "params": counted["params"]}
    return TimedNet(name, f"{TIMM}{name}", lambda: create(name, image_size=size), shape, known)


Pairs = Sequence[tuple[TimedNet, Latency]]


def rows_of(pairs: Pairs) -> list[dict[str, Any]]:
    """A row for each net under one setting, the quickest first: what is known of it, its latency, ranks by both costs.

    `rank` is the Pareto rank on accuracy and latency, `rank_macs` that on accuracy and MACs; None without accuracies.
    """
    rows: list[dict[str, Any]] = [
        {"name": subject.name, "key": subject.key} | subject.facts | latency.to_dict() for subject, latency in pairs
    ]
    known = [row for row in rows if row.get("accuracy") is not None]
    for name, cost in (("rank", "latency_ms"), ("rank_macs", "macs")):
        for row in rows:
            row[name] = None
        ranks = pareto_ranks([(row["accuracy"], row[cost]) for row in known])
        for row, rank in zip(known, ranks, strict=True):
            row[name] = rank
    return sorted(rows, key=lambda row: (row["rank"] or 0, row["latency_ms"]))


def agreement(rows: Sequence[dict[str, Any]]) -> float | None:
    """Spearman's rank correlation of MACs and latency; None for fewer than three nets, or where all are equal."""
    from scipy.stats import spearmanr

    macs, latencies = ([row[name] for row in rows] for name in ("macs", "latency_ms"))
    if len(rows) < 3 or min(len(set(macs)), len(set(latencies))) == 1:
        return None
    return float(spearmanr(macs, latencies).statistic)  # pyright: ignore[reportAttributeAccessIssue]


def drawn(rows: Sequence[dict[str, Any]], setting: LatencySetting) -> RenderableType:
    """The rows as a table, with what must be said about them."""
    table = Table(title=said(setting, rows[0]["machine"]), title_justify="left", header_style="bold", box=None)
    table.add_column("net")
    for title in ("latency", "± quartiles", "images/s", "MACs", "accuracy", "rank", "by MACs"):
        table.add_column(title, justify="right")
    for row in rows:
        accuracy = row.get("accuracy")
        table.add_row(
            row["name"],
            f"{row['latency_ms']:.3g} ms" + ("" if row["tight"] else " ?"), f"{row['latency_spread_ms']:.2g}",
            short(row["images_per_second"]), short(row["macs"]), "-" if accuracy is None else f"{accuracy:.4f}",
            str(row["rank"] or "-"), str(row["rank_macs"] or "-"),
        )  # fmt: skip
    return Group(table, *(plain(note, style="dim") for note in _notes(rows)))


def said(setting: LatencySetting, machine: str) -> str:
    """A setting in words."""
    threads = "" if setting.device == "cuda" else f", {setting.threads} thread{'s' * (setting.threads > 1)}"
    return f"{machine} ({setting.device}{threads}): batch {setting.batch}, {setting.dtype}, {setting.runtime}"


def _notes(rows: Sequence[dict[str, Any]]) -> list[str]:
    notes, correlation = [], agreement(rows)
    if correlation is not None:
        notes.append(f"rank correlation of MACs and latency: {correlation:.2f} (Spearman, {len(rows)} nets)")
    if not all(row["tight"] for row in rows):
        notes.append("?: the median's 95 % interval stayed wider than 2 %; other work on the machine?")
    if busy := max(row["busy"] for row in rows):
        notes.append(f"the machine was busy: a load of {busy:.2f} a core, and more than {BUSY} is not to be trusted")
    return notes
