"""The trained weights of a run's nets: the search's or a retraining's, whichever are better on validation."""

import math
from pathlib import Path
from typing import Any

from ...archs import Genotype
from ...archs.errors import InputError
from ...archs.files import file_digest
from ...archs.layout import as_map
from ...archs.timm_net import net_from_dict
from ...archs.timm_network import AnyNetwork, build_net
from ...archs.weights import fill, read
from ..ranking.run_leaderboard import best_trial
from ..render.describe_net import find_trial
from .nets import better_weights, trained_twin
from .record import Record
from .retrained import FOLDER, best_of, by_net, mean_of, retrained
from .status import Status
from .store import read_data_facts, read_records, weights_file


def select_net(run: Path, trial: int | None = None, how: str = "recommended") -> tuple[Path, Record]:
    """The folder and the record of the weights to take of a trial, or of that of the front that `how` picks.

    Of a net that the search has trained on the weights that are better on validation; those of its best retraining
    where they are as good, for retraining begins with nothing. InputError if there is no such net.
    """
    named = find_trial(run, best_trial(run, how) if trial is None else trial)
    record = better_weights(read_records(run), named)
    same = [group for group in by_net(retrained(run)) if group[0].key == record.key]
    again = best_of(max(same, key=mean_of)) if same else record
    return (run / FOLDER, again) if same and _score(again) >= _score(record) else (run, record)


def _score(record: Record) -> float:
    """What a net has on validation; nothing is less than that of one that was not trained to the end."""
    trained = record.status in (Status.OK, Status.DUPLICATE)
    return record.accuracy if trained and record.accuracy is not None else -math.inf


def trained_weights(home: Path, record: Record) -> Path:
    """The file of a trained net's final weights; InputError if there is none, or it is not the record's any more."""
    if record.status not in (Status.OK, Status.DUPLICATE):
        raise InputError(f"trial {record.trial}: was not trained to the end (status {record.status})")
    path = weights_file(home, record)
    if not path.exists():
        raise InputError(f"trial {record.trial}: its trained weights are not there, {path}")
    recorded = trained_twin(read_records(home), record).runtime.get("weights_sha256")
    if recorded and (found := file_digest(path)) != recorded:
        rule = f"has changed since it was trained (SHA-256 {found}, recorded {recorded}): its accuracy is another net's"
        raise InputError(f"trial {record.trial}: {path} {rule}")
    return path


def trained_network(home: Path, record: Record) -> AnyNetwork:
    """A trained net of a run with its final weights, in training mode; errors as `trained_weights`."""
    path, net, facts = trained_weights(home, record), net_from_dict(record.genotype), facts_of(home, record)
    size = as_map(facts["image_size"])
    if isinstance(net, Genotype):
        return read(path, net, size)
    network = build_net(net, len(facts["classes"]), size, facts["in_chans"])
    fill(network, path)
    return network


def trained_head(home: Path, record: Record) -> Path | None:
    """The file of the final weights of a head of the user's own, kept beside the net's; None if there is none."""
    path = trained_weights(home, record).with_suffix(".head.safetensors")
    return path if record.runtime.get("head") and path.exists() else None


def facts_of(home: Path, record: Record) -> dict[str, Any]:
    """Facts about the data in run.json, with the classes that the net was trained on; InputError if it does not say."""
    facts = read_data_facts(home)
    classes = record.data.get("classes") or range(len(facts["classes"]))
    return facts | {"classes": [facts["classes"][i] for i in classes]}
