"""A run and its nets as Python has them: read from the run's folder at each call, drawn in notebooks."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..archs import Cost, Genotype
from ..archs.errors import check_path, check_texts
from ..archs.timm_net import CountedCost, net_from_dict
from .ranking.metric import run_metric
from .ranking.objectives import RankingQuery, parse_objectives
from .ranking.run_leaderboard import best_trial, leaderboard_of
from .ranking.verdict import verdict_of
from .render.board import board_drawing
from .render.describe_net import draw_trial, find_trial, input_spec
from .render.terminal import html_of, plain, print_text
from .runs.store import as_argument, find_run, read_data_facts

if TYPE_CHECKING:
    import pandas as pd

    from ..archs.timm_network import AnyNetwork


def load_run(run: str | Path) -> SavedRun:
    """A run, by its name below runs/ or its folder; InputError if there is none."""
    return SavedRun(find_run(run if isinstance(run, str) else check_path("run", run)))


class SavedRun:
    """A run in its absolute `folder`, of a search or an experiment; `spec` is the run as commands take it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.spec = folder.resolve(), as_argument(folder)

    def __repr__(self) -> str:
        return f"<SavedRun {self.spec}>"

    @property
    def data(self) -> dict[str, Any]:
        """Facts of its data: name, image_size, in_chans, classes, and mean and std of the images' raw values."""
        return read_data_facts(self.folder)

    def front(self, objectives: str | Sequence[str] = "") -> pd.DataFrame:
        """Pareto front: the rows of `alternas front --json`, indexed by trial; objectives as --objectives or a list."""
        import pandas as pd

        board = leaderboard_of(self.folder, RankingQuery(parse_objectives(objectives)))
        rows = [row.to_dict(board.query.metric) for row in board.front]
        return pd.DataFrame(rows, columns=[*rows[0]] if rows else ["trial"]).set_index("trial")

    def frame(self, objectives: str | Sequence[str] = "") -> pd.DataFrame:
        """All records, one row each, indexed by trial; for the columns see `results.runs.frame.run_frame`."""
        from .runs.frame import run_frame

        return run_frame(self.folder, objectives)

    def net(self, trial: int) -> SavedNet:
        """The net of a trial; InputError if there is none."""
        return SavedNet(self, trial)

    def best(self, pick: str = "recommended") -> SavedNet:
        """The net of the front that the verdict recommends, or with most accuracy or gain, or the cheapest."""
        return SavedNet(self, best_trial(self.folder, pick))

    def verdict(self) -> list[str]:
        """The sentences that `alternas front` begins with: which net to take, what is as good, what is not known."""
        return verdict_of(leaderboard_of(self.folder))

    def report(self, out: str | Path | None = None) -> Path:
        """Write the HTML report to `out`, or report.html in the run's folder, and return its path."""
        from .report.page import write_report

        return Path(write_report(self.folder, None if out is None else check_path("out", out))["page"])

    def _repr_html_(self) -> str:
        from .report.front_plot import front_plot
        from .report.run import open_run
        from .report.svg import plot_svg

        board, plot = leaderboard_of(self.folder), front_plot(open_run(self.folder))
        table = html_of(board_drawing(board, board.front, f"Pareto front of {self.folder.name}"))
        return table + (_image(plot_svg(plot)) if plot.series else "")


class SavedNet:
    """One net of a `run`, by its `trial`: the `record`, the `genotype`, or timm's net, and `spec`, RUN:TRIAL."""

    def __init__(self, run: SavedRun, trial: int) -> None:
        self.run, self.trial, self.spec = run, trial, f"{run.spec}:{trial}"
        self.record = find_trial(run.folder, trial)
        self.genotype = net_from_dict(self.record.genotype)

    def __repr__(self) -> str:
        return f"<SavedNet {self.spec}: {self._result()}>"

    def _result(self) -> str:
        metric, record = run_metric(self.run.folder), self.record
        score = "" if record.accuracy is None else f", {metric.name} {metric.text(record.accuracy)}"
        return f"{record.kind}, {record.label} {record.key}, {record.cost['macs']} MACs, {record.status}{score}"

    @property
    def cost(self) -> Cost | CountedCost:
        """Parameters, MACs and memory at the run's image size and classes."""
        return input_spec(self.run.folder).cost(self.genotype)

    def build(self) -> AnyNetwork:
        """The trained torch module, on the CPU, in evaluation mode; of a net that was retrained, its better weights.

        It takes normalised images (B, C, H, W): (raw - mean) / std by channel, with those of `run.data`; a cut net of
        timm takes pictures of 0 to 1. InputError if the net was not trained to the end, or its weights are gone.
        """
        from .runs.trained_weights import select_net, trained_network

        return trained_network(*select_net(self.run.folder, self.trial)).eval()

    def show(self) -> None:
        """Print its drawing and its scores, as `alternas show` does."""
        print_text(draw_trial(self.run.folder, self.trial))

    def export(self, out: str | Path, formats: str | Sequence[str] = "package") -> dict[str, Any]:
        """Export to the new folder `out`, as `alternas export` does; return what config.json says.

        `out`: folder to create. `formats`: package, onnx, pt2, openvino, litert, timm: one, several, or several in one
        string with commas. Raises InputError if the net has no weights, a format is unknown or of lower precision,
        which `alternas export` measures on the run's data, or `out` cannot be written. Raises OperationError if a
        format cannot be written or does not give the net's outputs.
        """
        from .export.write import export_net

        names = check_texts("formats", formats)
        return export_net(self.run.folder, check_path("out", out), self.trial, formats=names)

    def _repr_html_(self) -> str:
        text = html_of(plain(f"{self.spec}: {self._result()}"))
        if not isinstance(self.genotype, Genotype):
            return text
        return text + _image(input_spec(self.run.folder).svg(self.genotype))


def _image(svg: str) -> str:
    return f'<img src="data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"/>'
