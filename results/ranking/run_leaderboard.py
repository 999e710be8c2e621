"""The leaderboard of a run's folder: with its own objectives and limits, its latencies and retrainings."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from ...archs.errors import InputError, check_choice
from ..latency.measurement import Measurement, latencies_of, measured_on, settings_in
from ..latency.setting import UNNAMED, LatencySetting, devices_in
from ..runs.append_only import no_collection
from ..runs.arrays import right_share
from ..runs.retrained import retrained
from ..runs.status import Status
from ..runs.store import read_data_facts, read_events, read_records, read_settings
from .front import ExtraResults, Leaderboard, rank_rows
from .metric import run_metric
from .objectives import RankingQuery
from .quantities import ACCURACY, LATENCY, Limits, costs, is_number_of_device, split_number
from .verdict import RECOMMENDED, pick, recommended


def best_trial(folder: Path, how: str = RECOMMENDED) -> int:
    """The trial of a run's front, under its own limits, that `recommended` or `pick` takes; InputError as theirs."""
    board = leaderboard_of(folder)
    row = recommended(board) if how == RECOMMENDED else pick(board.front, how, board.query.cost)
    return row.trial


def leaderboard_of(folder: Path, query: RankingQuery | None = None) -> Leaderboard:
    """A run's leaderboard, on its own objectives by default, within its limits too; InputError if the run is broken."""
    query, records = query or RankingQuery(), read_records(folder)
    limits = limits_of(folder)
    tighter = {name: min(most, limits.get(name, most)) for name, most in query.limits.items()}
    objectives = query.objectives or (ACCURACY, *costs_of(folder)[:2])
    query = replace(query, objectives=objectives, limits=limits | tighter, metric=run_metric(folder))
    query = query.checked({name for r in records if r.status == Status.OK for name in (*r.metrics, query.metric.name)})
    with no_collection():
        measured, device_settings = _on_devices(folder, query)
        latencies, images = _latencies(folder, query), validation_images(folder)
        by_trial = {record.trial: record for record in records}
        right_of = cache(lambda trial: right_share(folder, by_trial[trial]))
        by_class = _class_images(right_of, by_trial) if query.metric.kind.weighs_classes else ()
        extra = ExtraResults(
            latencies, measured, device_settings, retrained(folder), images, lambda row: right_of(row.trial), by_class
        )
        return replace(rank_rows(records, query, extra), folder=folder)


def _class_images(right_of: Callable[[int], Any], trials: Iterable[int]) -> list[int]:
    """Of the pictures that answers are kept to those of each class, by the first net that has any."""
    known = next(filter(None, map(right_of, trials)), None)
    return list(Counter(known[0].tolist()).values()) if known else []


def read_latencies(folder: Path) -> list[Measurement]:
    """All measurements of a run, in the order written; InputError if one is broken."""
    return [event.measurement for event in read_events(folder, "measured")]


def _latencies(folder: Path, query: RankingQuery) -> dict[str, Measurement]:
    """Latencies in the setting asked for; else in that of the search, or in the last one that its end measures in."""
    settings = read_settings(folder).get("settings", {})
    searched_with = str(settings.get("latency", ""))
    measured, which = read_latencies(folder), query.latency_of or searched_with
    if not (measured or query.latency_of) and which:
        return {}  # its search has not come so far
    unnamed = devices_in(settings, folder.name).get(UNNAMED)
    if unnamed and not query.latency_of:
        return {m.key: m for m in measured_on(measured, UNNAMED, unnamed, folder.name)}
    if which or LATENCY in (*query.objectives, *query.limits) or len(settings_in(measured)) == 1:
        return latencies_of(measured, which, folder.name)
    settings_here = [m.setting for m in measured if m.setting.startswith(f"{LatencySetting()}/")]
    return latencies_of(measured, settings_here[-1], folder.name) if settings_here else {}


def _on_devices(folder: Path, query: RankingQuery) -> tuple[dict[str, dict[str, float]], list[str]]:
    """What is asked for of devices, by objective and key, and the settings; InputError of one that has no number."""
    wanted = [name for name in dict.fromkeys((*query.objectives, *query.limits)) if is_number_of_device(name)]
    measured = read_latencies(folder) if wanted else []
    own = devices_in(read_settings(folder).get("settings", {}), folder.name) if wanted else {}
    values, device_settings = dict[str, dict[str, float]](), list[str]()
    for objective in wanted:
        number, device = split_number(objective)
        found = measured_on(measured, device, own.get(device), folder.name)
        known = {m.key: value for m in found if (value := m.value(number)) is not None}
        if not known and device not in own:
            names = sorted({m.setting.split("/")[0] for m in measured})
            rule = f"run {folder.name} has no {number} of {device!r}; devices: {', '.join(names) or 'none'}"
            raise InputError(f"objectives: {rule}; measure it: alternas latency {folder.name} --latency-command ...")
        values[objective] = known
        device_settings += settings_in(found)
    return values, list(dict.fromkeys(device_settings))


def device_of(folder: Path, cost: str) -> tuple[str, str]:
    """Name of the number that a cost is, and the setting that the run's search measures it in; "" if it is counted."""
    settings, (number, name) = read_settings(folder).get("settings", {}), split_number(cost)
    if cost != LATENCY and not name:
        return number, ""
    devices = devices_in(settings, folder.name)
    setting = devices.get(name or UNNAMED) or (None if name else LatencySetting.parse(settings.get("latency") or ""))
    if setting is None:
        raise InputError(f"run {folder.name}: objective {cost}: no device {name!r} in its settings")
    return number, setting.setting_id(read_data_facts(folder)["image_size"])


def validation_images(folder: Path) -> int:
    """Images that the accuracies of a run are measured on, all where it has folds; 0 if run.json does not say."""
    facts = read_settings(folder)
    images = read_data_facts(folder).get("images", {}) if facts.get("data") else {}
    folds = facts.get("settings", {}).get("folds", 0)
    return images.get("val", 0) + (images.get("train", 0) if folds else 0)


def costs_of(folder: Path) -> tuple[str, ...]:
    """The kinds of cost that a run weighs accuracy against, first that which its strategy looks at."""
    settings = read_settings(folder).get("settings", {})
    named = (settings.get("objective", "macs"), *(settings.get("other_costs") or ()))
    for cost in named:
        if not (isinstance(cost, str) and is_number_of_device(cost)):
            check_choice("objective", cost, costs())
    return named


def limits_of(folder: Path) -> Limits:
    """The limits of a run; InputError if its run.json is broken."""
    limits = read_settings(folder).get("settings", {}).get("limits") or {}
    for name in limits:
        if not is_number_of_device(name):
            check_choice(f"{folder / 'run.json'}: limits", name, costs())
    return Limits(limits)
