"""`explain` of a study's run: what analyses say of its nets, beside what the study varies, over all seeds.

Raghu et al., NeurIPS 2021, section 7 (shares of the data, sizes of nets); Park & Kim, ICLR 2022 (windows).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from ...archs import InputError
from ...results.analysis.cka import same_place_rows
from ...results.analysis.registry import analyse
from ...results.analysis_tools.across_nets import NetRows, trend
from ...results.analysis_tools.index import Explained
from ...results.analysis_tools.inputs import AnalysisResult
from ...results.analysis_tools.output import write_results
from ...results.render.experiment import factor_text
from ...results.runs.store import read_records, read_settings
from ..data.dataset import DataSet
from ..data.load import coming, progress_on
from ..training.recipe import Recipe
from .comparison import ComparisonSetting
from .registry import STUDIES
from .trained_nets import AnalysisContext, TrainedNet, kept


@dataclass(frozen=True)
class StudyNet(TrainedNet):
    """A trained net of a study: the curve's panel that it belongs to ("vit"), and what is varied there ("3 %")."""

    line: str
    label: str


def is_study(run: Path) -> bool:
    """Whether a run's folder holds one of `alternas studies`."""
    return read_settings(run).get("settings", {}).get("study") in STUDIES


def study_nets(run: Path, data: DataSet) -> list[StudyNet]:
    """The nets of a study that were trained on all classes, in the order of their trainings.

    Raises:
        InputError: if there is none.
    """
    study = STUDIES[read_settings(run)["settings"]["study"]]
    records = [r for r in read_records(run) if r.status == "ok" and r.factors and not r.data.get("classes")]
    if not records:
        raise InputError(f"explain: study {run.name} has no net that was trained on all classes")
    line = study.sight(ComparisonSetting(data, Recipe.from_dict(records[0].recipe), 1)).line
    nets = []
    for record in sorted(records, key=lambda r: r.trial):
        of = str(record.factors.get(line, study.name))
        label = ", ".join(factor_text(name, value) for name, value in record.factors.items() if name != line)
        nets.append(StudyNet(f"{of}, {label}, seed {record.seed}", run, record, of, label))
    return nets


def study_parts(
    run: Path, names: Sequence[str], nets: Sequence[StudyNet], ground: AnalysisContext, folder: Path, console: Console
) -> Iterator[Explained]:
    """Each analysis: a panel for each line of the study; what was found of a net is kept, and not done again."""
    lines = list(dict.fromkeys(net.line for net in nets))
    with progress_on(console) as progress:
        task = progress.add_task("", total=len(names) * len(nets))
        for name in names:
            seen: dict[str, list[tuple[StudyNet, Any]]] = {line: [] for line in lines}
            for net in nets:
                coming(progress, task, f"{name} of {net.name}")
                seen[net.line].append((net, _rows(name, net, reference(name, net, nets), ground)))
                progress.advance(task)
            yield write_results(folder, name, [(line, _panel(name, line, seen[line])) for line in lines])


def reference(name: str, net: StudyNet, nets: Sequence[StudyNet]) -> StudyNet | None:
    """The net that another is held against; of another seed, if there is one: equal seeds begin with equal weights.

    Args:
        name: "cka" takes the last of its panel, such as the one trained on all data; "cka_between" the largest net of
            its family of the same label; other analyses take none.
        net: the one.
        nets: all.
    """
    found: list[StudyNet] = []
    if name == "cka":
        line = [other for other in nets if other.line == net.line]
        found = [other for other in line if other.label == line[-1].label and other is not net]
    elif name == "cka_between":
        same = [n for n in nets if (n.label, n.record.family) == (net.label, net.record.family)]
        most = max(n.record.cost["macs"] for n in same)
        found = [n for n in same if net.record.cost["macs"] < n.record.cost["macs"] == most]
    seeds = 1 + max(other.record.seed for other in nets)
    return min(found, key=lambda other: (other.record.seed - net.record.seed - 1) % seeds, default=None)


def _rows(name: str, net: StudyNet, other: StudyNet | None, ground: AnalysisContext) -> list[dict[str, Any]] | str:
    """What the analysis found of a net, or why it found nothing."""
    if other is None and name.startswith("cka"):
        return "no other training to hold it against"

    def measured() -> list[dict[str, Any]] | str:
        subject = ground.subject(net)
        if other is not None:
            return same_place_rows(subject, ground.subject(other))
        found = analyse(name, subject)
        return found.rows if isinstance(found, AnalysisResult) else found

    of = [net.record.training, name, *([other.record.training] if other else []), str(len(ground.images))]
    return kept(net.home / "analyses" / f"{'-'.join(of)}.json", measured)


def _panel(name: str, line: str, seen: Sequence[tuple[StudyNet, Any]]) -> AnalysisResult | str:
    nets = [NetRows(n.label, n.record.seed, n.record.factors, rows) for n, rows in seen if not isinstance(rows, str)]
    return trend(name, line, nets) if nets else seen[0][1]
