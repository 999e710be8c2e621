"""`explain` of a study: all its nets side by side, beside what the study varies, over all seeds.

Raghu et al., NeurIPS 2021, section 7; Park & Kim, ICLR 2022.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from typing import Any

from rich.console import Console

from ...archs import InputError
from ...results.analysis.cka import findings_by_place, same_place_rows
from ...results.analysis.registry import analyse
from ...results.analysis_tools.findings import Finding, as_rows
from ...results.analysis_tools.index import Explained
from ...results.analysis_tools.inputs import Rows
from ...results.analysis_tools.output import write_results
from ...results.analysis_tools.trends import StudiedNet, trend
from ...results.render.experiment import factor_text
from ...results.runs.status import Status
from ...results.runs.store import read_records, read_settings
from ..data.dataset import DataSet
from ..data.load import track
from .studies import STUDIES
from .study_nets import StudySetting
from .trained_nets import AnalysisContext, TrainedNet, cached

Found = tuple[Rows, list[Finding]]


@dataclass(frozen=True)
class StudyNet(TrainedNet):
    """A trained net of a study: the curve's panel that it belongs to ("vit"), and what is varied there ("3 %")."""

    line: str
    label: str


def study_nets(run: Path, data: DataSet) -> list[StudyNet]:
    """The nets of a study that were trained on all classes, in the order of their trainings; at least one."""
    name = read_settings(run)["settings"]["study"]
    records = [r for r in read_records(run) if r.status == Status.OK and r.factors and not r.data.get("classes")]
    if not records:
        raise InputError(f"explain: study {run.name} has no net that was trained on all classes")
    line = STUDIES[name].plot(StudySetting(data, TrainedNet("", run, records[0]).recipe, 1)).line
    nets = []
    for record in sorted(records, key=lambda r: r.trial):
        of = str(record.factors.get(line, name))
        label = ", ".join(factor_text(name, value) for name, value in record.factors.items() if name != line)
        nets.append(StudyNet(f"{of}, {label}, seed {record.seed}", run, record, of, label))
    return nets


def study_parts(
    names: Sequence[str], nets: Sequence[StudyNet], context: AnalysisContext, folder: Path, console: Console
) -> Iterator[Explained]:
    """Carry out each analysis: a panel for each line of the study; what was measured of a net is cached."""
    pairs = track(list(product(names, nets)), lambda pair: f"{pair[0]} of {pair[1].name}", console)
    for name, of_name in groupby(pairs, key=lambda pair: pair[0]):
        panels: dict[str, list[StudiedNet]] = {}
        unfit: dict[str, str] = {}
        for _, net in of_name:
            found = _found(name, net, reference(name, net, nets), context)
            if isinstance(found, str):
                unfit[net.line] = found
            else:
                panel = panels.setdefault(net.line, [])
                panel.append(StudiedNet(net.label, net.record.seed, net.record.factors, *found))
        lines = dict.fromkeys(net.line for net in nets)
        yield write_results(
            folder, name, [(line, trend(name, line, panels[line]) if line in panels else unfit[line]) for line in lines]
        )


def reference(name: str, net: StudyNet, nets: Sequence[StudyNet]) -> StudyNet | None:
    """The net that another is held against; of another seed, if there is one: equal seeds begin with equal weights.

    "cka" takes the last of its panel, such as the one trained on all data; "cka_between" the largest net of its family
    of the same label; other analyses take none.
    """
    candidates: list[StudyNet] = []
    if name == "cka":
        line = [other for other in nets if other.line == net.line]
        candidates = [other for other in line if other.label == line[-1].label and other is not net]
    elif name == "cka_between":
        same = [n for n in nets if (n.label, n.record.family) == (net.label, net.record.family)]
        most = max(n.record.cost["macs"] for n in same)
        candidates = [n for n in same if net.record.cost["macs"] < n.record.cost["macs"] == most]
    seeds = 1 + max(other.record.seed for other in nets)
    return min(candidates, key=lambda other: (other.record.seed - net.record.seed - 1) % seeds, default=None)


def _found(name: str, net: StudyNet, other: StudyNet | None, context: AnalysisContext) -> Found | str:
    if other is None and name.startswith("cka"):
        return "no other training to hold it against"

    def facts() -> dict[str, Any] | str:
        own = context.analysis_input(net)
        if other is None:
            result = analyse(name, own)
            return result if isinstance(result, str) else {"rows": result.rows, "findings": as_rows(result.findings)}
        rows = same_place_rows(own, context.analysis_input(other))
        return {"rows": rows, "findings": as_rows(findings_by_place(rows))}

    shown = str(len(context.images)), str(context.minibatches)
    of = [net.record.training_id, name, *([other.record.training_id] if other else []), *shown]
    found = cached(net.home / "analyses" / f"{'-'.join(of)}.json", facts)
    return found if isinstance(found, str) else (found["rows"], [Finding(**each) for each in found["findings"]])
