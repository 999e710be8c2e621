"""Measures the nets of a run's front once its search has ended: their time on this machine, or what devices say."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from ...archs.errors import InputError, OperationError
from ...archs.timm_net import net_from_dict
from ..ranking.objectives import RankingQuery
from ..ranking.quantities import ACCURACY
from ..ranking.run_leaderboard import leaderboard_of
from ..render.describe_net import input_spec
from ..runs.record import Record
from ..runs.store import read_records
from .device_command import TIMEOUT_SECONDS, Setting
from .kept import read_latencies
from .measurements import SHORT, LatencySetting, cpu_name

log = logging.getLogger("alternas")
MAX_SECONDS = 5.0  # that measuring on this machine takes, beside the net under way when they are over


def measure_front(
    folder: Path, cost: str, asked: Mapping[Setting, Sequence[str]], timeout_s: float = TIMEOUT_SECONDS
) -> None:
    """Measure what is not yet known of a run's front, the cheapest nets first, and keep it in the run.

    `cost` is what the front weighs accuracy against; `asked` are numbers by setting, of this machine, which measures
    for `MAX_SECONDS`, and of commands. What cannot be measured is left out with a warning: the search is done.
    """
    trials = [row.trial for row in leaderboard_of(folder, RankingQuery((ACCURACY, cost))).front]
    by_trial = {record.trial: record for record in read_records(folder)}
    for setting, needed in asked.items():
        if missing := _missing(folder, [by_trial[trial] for trial in trials], setting, needed):
            try:
                _measure(folder, missing, setting, needed, timeout_s)
            except (InputError, OperationError) as error:
                log.warning("the front was not measured to its end: %s; alternas latency measures it", error)


def _missing(folder: Path, front: Sequence[Record], setting: Setting, needed: Sequence[str]) -> list[Record]:
    """The nets that have not all of these numbers of this machine, or of the command."""
    setting_id = setting.setting_id(input_spec(folder).image_size)
    if setting.device == "cpu":
        setting_id = f"{setting_id}/{cpu_name().replace('/', '-')}"
    known = {m.key for m in read_latencies(folder) if m.is_of(setting_id) and m.has(needed)}
    return [record for record in front if record.key not in known]


def _measure(
    folder: Path, records: Sequence[Record], setting: Setting, needed: Sequence[str], timeout_s: float
) -> None:
    from .nets import measure_nets, timed_net

    scene, until = input_spec(folder), time.monotonic() + MAX_SECONDS
    nets = [timed_net(f"trial {r.trial}", net_from_dict(r.genotype), scene, {"trial": r.trial}) for r in records]
    with closing(measure_nets(nets, {setting: needed}, folder, timeout_s=timeout_s, effort=SHORT)) as measured:
        for _ in measured:
            if isinstance(setting, LatencySetting) and time.monotonic() > until:
                return
