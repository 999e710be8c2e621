"""Measures the nets of a run's front once its search has ended: their time on this machine, or what devices say."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from ...archs.errors import OperationError
from ...archs.timm_net import net_from_dict
from ..ranking.objectives import RankingQuery
from ..ranking.quantities import ACCURACY
from ..ranking.run_leaderboard import leaderboard_of
from ..render.describe_net import input_spec
from ..runs.record import Record
from ..runs.store import Store, locked, read_records
from .device_command import TIMEOUT_SECONDS, DeviceCommand
from .kept import measured_event, read_latencies
from .measurements import SHORT, LatencySetting, cpu_name

log = logging.getLogger("alternas")
MAX_SECONDS = 5.0  # that measuring on this machine takes, beside the net under way when they are over


def measure_front(
    folder: Path, cost: str, settings: Sequence[LatencySetting | DeviceCommand], timeout_s: float = TIMEOUT_SECONDS
) -> None:
    """Measure what is not yet known of a run's front, the cheapest nets first, and keep it in the run.

    What cannot be measured is left out with a warning: the search is done.

    Args:
        folder: of the run.
        cost: that the front weighs accuracy against; it is known already.
        settings: of this machine, which measures for `MAX_SECONDS`, and commands.
        timeout_s: of one run of a command.

    Raises:
        InputError: if the run is broken, or being searched.
    """
    trials = [row.trial for row in leaderboard_of(folder, RankingQuery((ACCURACY, cost))).front]
    by_trial = {record.trial: record for record in read_records(folder)}
    front = [by_trial[trial] for trial in trials]
    for setting in settings:
        if missing := _missing(folder, front, setting):
            with locked(folder), closing(Store(folder)) as store:
                try:
                    _measure(store, missing, setting, timeout_s)
                except OperationError as error:
                    log.warning("the front was not measured to its end: %s; alternas latency measures it", error)


def _missing(folder: Path, front: Sequence[Record], setting: LatencySetting | DeviceCommand) -> list[Record]:
    """The nets that this machine, or the command, has not measured."""
    setting_id = setting.setting_id(input_spec(folder).image_size)
    if setting.device == "cpu":
        setting_id = f"{setting_id}/{cpu_name().replace('/', '-')}"
    known = {m.key for m in read_latencies(folder) if m.is_of(setting_id)}
    return [record for record in front if record.key not in known]


def _measure(
    store: Store, records: Sequence[Record], setting: LatencySetting | DeviceCommand, timeout_s: float
) -> None:
    """Measure nets in one setting; OperationError if it cannot."""
    from .nets import measured, timed_net

    until = time.monotonic() + MAX_SECONDS
    for record in records:
        net = timed_net(f"trial {record.trial}", net_from_dict(record.genotype), input_spec(store.folder), {})
        if latency := measured(net, setting, timeout_s, SHORT):
            store.append(measured_event(record.trial, net.key, net.image_size, latency.to_dict()))
        if isinstance(setting, LatencySetting) and time.monotonic() > until:
            return
