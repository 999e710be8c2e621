"""Which trained net of a run is meant: its record, its weights, the data it knows. Retrained weights come first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...archs.errors import InputError, short_repr
from ..ranking.leaderboard import leaderboard_of, pick
from ..render.net import find_trial
from .record import Record
from .retrained import FOLDER, best_of, by_net, mean_of, retrained
from .store import find_run, read_data_facts, run_and_trial, weights_file


def parse_run_spec(text: str) -> tuple[Path, int | None]:
    """The folder of the run and the number of the trial, if any, that RUN or RUN:TRIAL names.

    Raises:
        InputError: if there is no such run, or what stands behind it is no number.
    """
    run, trial = run_and_trial(text)
    name, _, number = run.rpartition(":")
    if name and not _is_run(run) and _is_run(name):
        raise InputError(f"{short_repr(text)}: RUN:TRIAL names a trial by its number, got {short_repr(number)}")
    return find_run(run), trial


def _is_run(name: str) -> bool:
    try:
        return bool(find_run(name))
    except InputError:
        return False


def select_net(run: Path, trial: int | None = None, how: str = "accuracy") -> tuple[Path, Record]:
    """The folder and the record of the weights to take: of a net that was retrained, its best retraining's.

    Args:
        run: folder of the run.
        trial: which net; None takes from the front, under the run's own limits, the one that `how` picks.
        how: accuracy, gain or cheapest.

    Raises:
        InputError: if there is no such net.
    """
    record = find_trial(run, _picked(run, how) if trial is None else trial)
    same = [group for group in by_net(retrained(run)) if group[0].key == record.key]
    return (run / FOLDER, best_of(max(same, key=mean_of))) if same else (run, record)


def _picked(run: Path, how: str) -> int:
    """The trial of the front that is picked, by the run's own objectives."""
    board = leaderboard_of(run)
    return pick(board.front, how, board.query.costs[0])["trial"]


def trained_weights(home: Path, record: Record) -> Path:
    """The file of a trained net's final weights.

    Raises:
        InputError: if the net was not trained to the end, or its weights are gone.
    """
    if record.status not in ("ok", "duplicate"):
        raise InputError(f"trial {record.trial}: was not trained to the end (status {record.status})")
    path = weights_file(home, record)
    if not path.exists():
        raise InputError(f"trial {record.trial}: its trained weights are not there, {path}")
    return path


def facts_of(home: Path, record: Record) -> dict[str, Any]:
    """What run.json says of the data, with the classes alone that the net was trained on.

    Raises:
        InputError: if it does not say.
    """
    facts = read_data_facts(home)
    kept = record.data.get("classes") or range(len(facts["classes"]))
    return facts | {"classes": [facts["classes"][i] for i in kept]}
