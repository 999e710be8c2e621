"""Measures nets, of a run or one architecture, and keeps what a device says as lines of the run's log."""

import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from torch import nn

from ...archs.cost import FLOAT_BYTES, Cost
from ...archs.errors import InputError, OperationError
from ...archs.timm_net import TIMM, Net, net_from_dict, side_seen
from ...archs.timm_network import build_net
from ..ranking.metric import Metric
from ..ranking.objectives import RankingQuery
from ..ranking.quantities import ACCURACY
from ..ranking.remarks import why_empty
from ..ranking.run_leaderboard import leaderboard_of, read_latencies
from ..render.describe_net import InputSpec, find_arch, input_spec, parse_size, recorded_cut
from ..runs.events import measured_event
from ..runs.status import Status
from ..runs.store import Store, find_run, locked, read_records
from .measurement import DeviceError, Latency
from .on_device import measure_on
from .setting import FULL, SHORT, TIMEOUT_SECONDS, Effort, LatencySetting, Setting, cpu_name

log = logging.getLogger("alternas")
MAX_SECONDS = 5.0  # that measuring a front on this machine takes, beside the net under way when they are over


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


def measure_front(
    folder: Path, cost: str, asked: Mapping[Setting, Sequence[str]], timeout_s: float = TIMEOUT_SECONDS
) -> None:
    """Measure what is not yet known of a run's front, the cheapest nets first, and keep it in the run.

    `cost` is what the front weighs accuracy against; `asked` are numbers by setting, of this machine, which measures
    for `MAX_SECONDS`, and of commands. What cannot be measured is left out with a warning: the search is done.
    """
    trials = [row.trial for row in leaderboard_of(folder, RankingQuery((ACCURACY, cost))).front]
    by_trial, scene = {record.trial: record for record in read_records(folder)}, input_spec(folder)
    for setting, needed in asked.items():
        setting_id = setting.setting_id(scene.image_size)
        if setting.device == "cpu":
            setting_id = f"{setting_id}/{cpu_name().replace('/', '-')}"
        known = {m.key for m in read_latencies(folder) if m.is_of(setting_id) and m.has(needed)}
        missing = [by_trial[trial] for trial in trials if by_trial[trial].key not in known]
        nets = [timed_net(f"trial {r.trial}", net_from_dict(r.genotype), scene, {"trial": r.trial}) for r in missing]
        try:
            if nets:
                _measure_for_a_while(nets, setting, needed, folder, timeout_s)
        except (InputError, OperationError) as error:
            log.warning("the front was not measured to its end: %s; alternas latency measures it", error)


def _measure_for_a_while(
    nets: Sequence[TimedNet], setting: Setting, needed: Sequence[str], folder: Path, timeout_s: float
) -> None:
    until = time.monotonic() + MAX_SECONDS
    with closing(measure_nets(nets, {setting: needed}, folder, timeout_s=timeout_s, effort=SHORT)) as measured:
        for _ in measured:
            if isinstance(setting, LatencySetting) and time.monotonic() > until:
                return
