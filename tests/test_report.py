"""The report's content, read back from the page: numbers of the run, nothing loaded, nothing users wrote as markup."""

import itertools
import json
import math
import random
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from alternas.archs import InputError, zoo
from alternas.cli import app as cli
from alternas.results.ranking.front import leaderboard
from alternas.results.ranking.pareto import hypervolume
from alternas.results.report.elements import Matrix
from alternas.results.report.front_plot import front_plot
from alternas.results.report.genes import MIN_NETS, attention_of, attention_plot, common_table, importances
from alternas.results.report.page import write_report
from alternas.results.report.run import elapsed, known_net, open_run, used_genes
from alternas.results.report.search_progress import hypervolumes, phases_table, rung_rows
from alternas.results.report.sections import command_of, drawings, leaderboard_table
from alternas.results.report.svg import matrix_svg
from alternas.results.runs.record import Record
from alternas.spaces import FixedChooser, get
from alternas.spaces.base import options_of, random_genes
from runs import DATA, STEPS, add_measured, drawn_records, made_run

EVIL = "</script><img src=x onerror=alert(1)>'\"&lt;<b>"
TABLES = ("nets", "rungs_table", "common", "statuses", "failures", "settings", "versions", "data", "recipe")


class Page(HTMLParser):
    """What a browser would take from a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._within: list[str] = []  # of each tag the id of the plot that it stands in
        self._plot = ""
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.data = json.loads(next(t for tag, t in self.texts if tag == "script" and t.startswith("{")))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self._plot = known.get("id") or self._plot if tag == "div" and "id" in known else self._plot
        self.tags.append((tag, known))
        self._within.append(self._plot)
        if tag not in ("meta", "link", "img", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def tags_in(self, plot: str) -> list[tuple[str, dict[str, str | None]]]:
        """All tags of a plot, up to the next one."""
        return [tag for tag, within in zip(self.tags, self._within, strict=True) if within == plot]

    @property
    def plots(self) -> list[str]:
        """Their names."""
        ids = [attrs.get("id") or "" for _, attrs in self.tags]
        return [name.removeprefix("plot-") for name in ids if name.startswith("plot-")]

    @property
    def said(self) -> str:
        """Its text; an option of a command stands in a span, and spaces around that are one."""
        return re.sub("  +", " ", " ".join(text for tag, text in self.texts if tag not in ("script", "style")))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_run(tmp_path_factory.mktemp("report") / "a run", drawn_records(240))


@pytest.fixture(scope="module")
def report(run: Path) -> Page:
    write_report(run)
    return Page(run / "report.html")


def points_of(report: Page) -> list[tuple[int, float, float]]:
    """The place of each net in the page's list, and where the middle of its mark lies in the wide front plot."""
    found = []
    for tag, attrs in report.tags_in("plot-front"):
        if tag == "path" and "data-nets" in attrs:
            middles = re.findall(r"M([\d.]+) ([\d.]+)m", attrs["d"] or "")
            places = map(int, (attrs["data-nets"] or "").split())
            found += [(place, float(x), float(y)) for place, (x, y) in zip(places, middles, strict=True)]
    return found


def test_every_ranked_net_is_a_point_that_knows_itself(run: Path, report: Page) -> None:
    """Pixels are affine in log10 MACs and in accuracy: fitted by two nets, they hold for all."""
    known = open_run(run)
    nets = [dict(zip(report.data["nets"]["columns"], row, strict=False)) for row in report.data["nets"]["rows"]]
    desk = points_of(report)[: len({place for place, _, _ in points_of(report)})]
    ranked = {row.trial for row in known.rows}
    assert ranked <= {nets[place]["trial"] for place, _, _ in desk}
    for pixel, value in ((1, lambda net: math.log10(net["macs"])), (2, lambda net: net["accuracy"])):
        low, high = (f(desk, key=lambda point: value(nets[point[0]])) for f in (min, max))
        slope = (high[pixel] - low[pixel]) / (value(nets[high[0]]) - value(nets[low[0]]))
        for point in desk:
            wanted = low[pixel] + slope * (value(nets[point[0]]) - value(nets[low[0]]))
            assert point[pixel] == pytest.approx(wanted, abs=0.15)


def test_nets_of_the_page_have_the_genes_that_they_use(run: Path, report: Page) -> None:
    known, genes = open_run(run), report.data["nets"]["genes"]
    for record, row in zip(known.nets, report.data["nets"]["rows"], strict=True):
        shown = {gene: value for gene, value in zip(genes, row[-1], strict=True) if value is not None}
        assert shown == known.used(record)
        assert shown.items() <= record.genes.items()


@pytest.mark.parametrize("name", ["all", "alternet", "hybrid", "modern", "resnet", "free", "bench", "edge"])
def test_genes_said_to_be_dormant_make_no_difference(name: str) -> None:
    """Against the spaces: with another value of such a gene it is the same net. Most that make none are named."""
    space, draw = get(name, 32), random.Random(1)
    options = options_of(space)
    silent, told = 0, 0
    for seed in range(12):
        genes = random_genes(random.Random(seed), options, {})
        net = space.sample(FixedChooser(genes))
        row = drawn_records(1)[0] | {"genes": genes, "genotype": net.to_dict()}
        used = used_genes(Record.from_dict(row), net)
        for gene, choices in options.items():
            other = draw.choice([*{*choices} - {genes[gene]}] or [genes[gene]])
            same = space.sample(FixedChooser(genes | {gene: other})).key == net.key
            assert gene in used or same, (genes, gene)
            silent, told = silent + (same and len(choices) > 1), told + (gene not in used and len(choices) > 1)
    assert told >= 0.6 * silent


def test_genes_of_a_users_space_are_all_used() -> None:
    record = Record.from_dict(drawn_records(9)[8])
    assert used_genes(record, None) == record.genes


def test_the_front_and_the_baselines_are_drawn(run: Path, report: Page) -> None:
    found = open_run(run)
    best = [row for row in leaderboard(found.records).rows if row.rank == 1]
    steps = next(series for series in front_plot(found).series if series.name == "the front")
    assert steps.x == [row.costs["macs"] for row in best]
    assert {row.key for row in best} <= set(report.data["drawings"])
    assert {r.key for r in found.records if r.kind == "baseline"} <= set(report.data["drawings"])
    assert all(svg.startswith("<svg") for svg in report.data["drawings"].values())


def test_drawings_of_the_front_come_first_and_stop_where_room_does(run: Path) -> None:
    found = open_run(run)
    one = drawings(found, 1)
    assert list(one) == [found.front[0].key]
    must = {r.key for r in found.front} | {r.kind == "baseline" for r in found.records}
    assert len(drawings(found, 200_000)) >= len(must)
    assert drawings(found, 0) == {}


def test_nothing_is_loaded_and_nothing_runs_but_ours(report: Page) -> None:
    for tag, attrs in report.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        assert not {"src", "srcset", "data", "action", "style", "xlink:href"} & set(attrs)
        assert not [name for name in attrs if name.startswith("on")]
        assert (attrs.get("href") or "#").startswith("#")
    policy = next(a["content"] for t, a in report.tags if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert "connect-src" not in policy


def test_tables_can_be_read_without_javascript(run: Path, report: Page) -> None:
    ids = [attrs.get("id") for tag, attrs in report.tags if tag == "table"]
    assert ids == [f"table-{name}" for name in TABLES if name != "failures"]
    assert "No net failed or was refused." in report.said
    for row in leaderboard(open_run(run).records).rows:
        assert row.key in report.said
    assert "alternas search all --name 'a run' --scheduler mo-asha" in report.said
    assert ("span", "--scheduler") in report.texts, "no line of a browser ends behind its hyphens"


def test_cuts_are_judged_and_have_no_gain(tmp_path: Path) -> None:
    """Nothing is said of a curve, a column or a training that cuts of pretrained nets have none of."""
    cut: dict[str, Any] = {
        "genotype": {"timm": "resnet18.a1_in1k", "side": 48},
        "genes": {},
        "curve": [],
        "weights": "frozen",
    }
    cut |= {"accuracies": {}, "budget": {"done": 0, "full": 0}, "runtime": {"evaluated": 10}}
    rows: list[dict[str, Any]] = [row | cut | {"key": str(row["trial"]), "kind": "search"} for row in drawn_records(40)]
    folder = made_run(tmp_path / "cuts", rows)
    write_report(folder, tmp_path / "page.html")
    page = Page(tmp_path / "page.html")
    assert re.search(r"\d+ cuts judged, \d+ on the front", page.said)
    for absent in ("dashed curve", "Gain:", "Rising:"):
        assert absent not in page.said
    assert hypervolumes(open_run(folder))[-1][1] == sum(2 * row["cost"]["macs"] * 10 for row in rows), "of probes"
    assert page.data["undrawn"] == [*range(len(page.data["nets"]["rows"]))], "their code is timm's"


def test_gains_beyond_the_baselines_are_bounds_on_the_page_too(tmp_path: Path) -> None:
    rows = drawn_records(12, stops=False)
    costs = [row["cost"]["macs"] for row in rows if row["kind"] == "baseline"]
    cheap, dear = rows[-2:]
    cheap["cost"]["macs"], dear["cost"]["macs"] = min(costs) - 1, max(costs) + 1
    cheap["accuracy"] = dear["accuracy"] = 0.999
    found = open_run(made_run(tmp_path / "r", rows))
    write_report(found.folder, tmp_path / "page.html", tmp_path / "assets")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    for row, bound in ((cheap, "lower"), (dear, "upper")):
        known = found.row_of[row["trial"]]
        assert known.gain_bound == bound
        assert f"{'&gt;=' if bound == 'lower' else '&lt;='} {known.gain:.1f}</td>" in text
    nets = Page(tmp_path / "page.html").data["nets"]
    at = [nets["columns"].index(name) for name in ("trial", "gain_bound")]
    bounds = {row[at[0]]: row[at[1]] for row in nets["rows"]}
    assert (bounds[cheap["trial"]], bounds[dear["trial"]], bounds[0]) == ("lower", "upper", None)
    frame = pd.read_csv(tmp_path / "assets" / "nets.csv").set_index("trial")
    assert frame.loc[cheap["trial"], "gain_bound"] == "lower"


def test_what_users_wrote_is_text(report: Page, tmp_path: Path) -> None:
    rows = drawn_records(40)
    for row in rows:
        row["genes"] = {EVIL: EVIL if row["trial"] % 2 else "b"} | row["genes"]
        row["device"] = EVIL
    rows[-1] |= {"status": "error", "accuracy": None, "error": EVIL, "family": EVIL}
    rows[-2] |= {"status": "ok", "family": EVIL}
    rows[-3] |= {"status": "error", "accuracy": None, "error": "half a character: \ud800"}
    data = DATA | {"name": EVIL, "classes": [EVIL, *DATA["classes"]], "notes": {EVIL: EVIL}}
    told = {"data": data, "command": ["alternas", EVIL], "versions": {EVIL: EVIL}}
    folder = made_run(tmp_path / "<script>alert(1)<", rows, **told, settings={"recipe": {EVIL: EVIL}, EVIL: EVIL})
    write_report(folder, tmp_path / "page.html", tmp_path / "assets")
    page = Page(tmp_path / "page.html")
    assert {tag for tag, _ in page.tags} | {"span"} == {tag for tag, _ in report.tags}
    assert [a for _, a in page.tags if set(a) & {"src", "onerror"}] == []
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 2
    assert page.said.count(EVIL) > 10, "as it was written"
    assert EVIL in page.data["nets"]["genes"]
    names = [text for tag, text in page.texts if tag == "text"]
    assert [text for text in names if text.startswith("</script><img")], "as it was written, cut to its room"
    assert list((tmp_path / "assets").glob("*.parquet"))


def test_no_cell_of_the_assets_is_a_formula(tmp_path: Path) -> None:
    rows, evil = drawn_records(40), "=cmd|' /C calc'!A0"
    for row in rows:
        row["genes"] = {evil: evil} | row["genes"]
    rows[-1] |= {"status": "error", "accuracy": None, "error": evil, "family": evil}
    folder = made_run(tmp_path / "run", rows, settings={evil: evil})
    write_report(folder, tmp_path / "page.html", tmp_path / "assets")
    frames = [pd.read_csv(path, dtype=str, header=None) for path in (tmp_path / "assets").glob("*.csv")]
    cells = [str(cell) for frame in frames for cell in frame.to_numpy().flat]
    assert cells.count(f"'{evil}") > 10
    assert not [cell for cell in cells if cell.startswith(("=", "@", "+"))]
    (net,) = pd.read_parquet(tmp_path / "assets" / "all_nets.parquet")[f"gene_{evil}"].unique()
    assert net == evil, "Parquet is no spreadsheet"


def test_hypervolume_after_each_net_is_that_of_all_before_it(tmp_path: Path) -> None:
    run = open_run(made_run(tmp_path / "r", drawn_records(60, seed=1, stops=False)))
    costs = [row.costs["macs"] for row in run.rows]
    points = [(r.accuracy or 0.0, float(r.cost["macs"])) for r in run.records]
    found = hypervolumes(run)
    at = {round(s, 3): area for s, _, area in found}
    assert found[-1][1] == pytest.approx(sum(6 * r.cost["macs"] * 128 * r.budget["done"] for r in run.records))
    seconds = 0.0
    for i, record in enumerate(run.records):
        seconds += record.seconds
        latest = [area for s, area in at.items() if s <= seconds + 1e-6][-1]
        assert latest == pytest.approx(hypervolume(points[: i + 1], 0.1, [(min(costs), max(costs))]), abs=1e-5)


def stamped(rows: list[dict[str, Any]], minutes: Sequence[float]) -> list[dict[str, Any]]:
    """Records that say when they ended, so many minutes after noon."""
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    return [r | {"finished_at": (noon + timedelta(minutes=m)).isoformat()} for r, m in zip(rows, minutes, strict=True)]


def test_time_goes_by_the_clock_where_records_know_it(tmp_path: Path) -> None:
    rows = [r | {"seconds": 30.0} for r in drawn_records(5, stops=False)]
    run = open_run(made_run(tmp_path / "r", stamped(rows, [1, 2, 1.5, 4, 10])))
    assert elapsed(run.records) == [30.0, 90.0, 90.0, 210.0, 570.0], "a clock that was set back stands still"
    assert hypervolumes(run)[-1][0] == 570.0
    plain = sum(r["kind"] == "baseline" for r in rows)
    phases = phases_table(run).rows
    assert [(row["phase"], row["nets"], row["from s"], row["to s"]) for row in phases] == [
        ("plain ResNets", plain, 0.0, 210.0), ("nets of the search", 1, 540.0, 570.0)
    ]  # fmt: skip
    assert phases[0]["at a time"] == pytest.approx(plain * 30 / 210, abs=0.01)
    run = open_run(made_run(tmp_path / "old", [*stamped(rows[:4], [1, 2, 3, 4]), rows[4]]))
    assert elapsed(run.records) is None
    assert not phases_table(run).rows


def test_the_clock_starts_when_the_first_training_does(tmp_path: Path) -> None:
    """One worker, four baselines whose seeds take turns, and two nets, of which the first waits at a rung.

    Seconds:  0  10  20  30  40  50  60  70  80  84  90  96
    trains:   0   1   2   3   0   1   2   3   4   5   4        the trial; each seed of a baseline takes 10 seconds
    """
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    spans = {0: (0, 50, 20), 1: (10, 60, 20), 2: (20, 70, 20), 3: (30, 80, 20), 5: (84, 90, 6), 4: (80, 96, 10)}
    known = {row["trial"]: row for row in drawn_records(6, stops=False)}
    rows = [
        known[trial]
        | {"started_at": (noon + timedelta(seconds=began)).isoformat(), "seconds": float(seconds)}
        | {"finished_at": (noon + timedelta(seconds=ended)).isoformat()}
        for trial, (began, ended, seconds) in spans.items()
    ]
    run = open_run(made_run(tmp_path / "r", rows))
    assert elapsed(run.records) == [50.0, 60.0, 70.0, 80.0, 90.0, 96.0]
    assert hypervolumes(run)[1][0] == 50.0, "that of the first net that ended"
    first, second = phases_table(run).rows
    assert (first["from s"], first["to s"], first["training s"], first["at a time"]) == (0.0, 80.0, 80.0, 1.0)
    assert (second["from s"], second["to s"], second["training s"], second["at a time"]) == (80.0, 96.0, 16.0, 1.0)


def test_a_run_searched_for_latency(tmp_path: Path) -> None:
    rows = drawn_records(12, stops=False)
    settings = {"objective": "latency_ms", "latency": "cpu/1/float32/eager/1"}
    folder = made_run(tmp_path / "r", rows, settings=settings)
    setting = {"device": "cpu", "batch": 1, "dtype": "float32", "runtime": "eager", "threads": 1, "machine": "Chip"}
    for i, row in enumerate(rows):
        known = {"key": row["key"], "image_size": (8, 8), "latency_spread_ms": 0.1, **setting}
        add_measured(folder, [known | {"latency_ms": 1.0 + i}, known | {"latency_ms": 9.0, "batch": 32}])
    write_report(folder)
    run = open_run(folder)
    cost = {row["key"]: 1.0 + i for i, row in enumerate(rows)}
    assert front_plot(run).x == "latency, ms a batch"
    drawn = {x for series in front_plot(run).series if series.kind == "points" for x in series.x}
    assert drawn == set(cost.values())
    assert {row["net"]: row["ms"] for row in leaderboard_table(run).rows} == cost
    points = [(row["accuracy"], cost[row["key"]]) for row in rows]
    assert hypervolumes(run)[-1][2] == pytest.approx(hypervolume(points, 0.1), abs=1e-5)


def test_rungs_count_who_came_and_who_went_on(run: Path) -> None:
    records, rows = open_run(run).records, rung_rows(open_run(run))
    assert [row["step"] for row in rows] == list(STEPS[:-1])
    for i, row in enumerate(rows):
        assert row["came"] == sum(r.rung > i for r in records)
        assert row["went on"] == sum(r.rung > i + 1 for r in records)
        assert row["came"] == row["went on"] + row["stopped"]
        assert row["median, went on"] is not None


def records_of(rows: list[dict[str, Any]]) -> list[Record]:
    return [Record.from_dict(row) for row in rows]


def test_importance_finds_the_gene_that_decides() -> None:
    rows = drawn_records(200, stops=False)
    for row in rows:
        row["genes"] = {"idle": row["trial"] % 3, "strong": row["trial"] % 5, "spoils": row["trial"] % 7, "same": 1}
        row["accuracy"] = 0.5 + 0.1 * (row["genes"]["strong"] == 2) - 0.3 * (row["genes"]["spoils"] == 3)
    found = importances(records_of(rows))
    assert set(found) == {"strong", "spoils", "idle"}, "a gene of one value decides nothing"
    assert found["strong"] > 0.8, "being among the best counts, not keeping from the worst"
    assert math.isclose(sum(found.values()), 1)
    assert importances(records_of(rows[: MIN_NETS - 1])) == {}


def test_where_attention_sits() -> None:
    rows = drawn_records(2)
    nets = {
        ("stage 2", "stage 3", "stage 4"): zoo.get("alternet18", 32),
        ("encoder",): zoo.get("vit_tiny_patch16"),
        (): zoo.get("resnet18"),
    }
    for parts, net in nets.items():
        assert attention_of(known_net(Record.from_dict(rows[0] | {"genotype": net.to_dict()}))) == parts
    assert attention_of(known_net(Record.from_dict(rows[0] | {"genotype": {"of": "later"}}))) == ()


def test_what_the_front_has_in_common(tmp_path: Path) -> None:
    """Two nets on the front, both with a = 1; of six searched, three have it. One net in two of them is an AlterNet."""
    plain, attended = zoo.get("resnet18", 32).to_dict(), zoo.get("alternet18", 32).to_dict()
    rows = drawn_records(10)[4:]
    for i, row in enumerate(rows):
        row |= {"status": "ok", "genes": {"a": int(i < 3), "b": 7}, "genotype": attended if i in (0, 5) else plain}
        row |= {"accuracy": (0.9, 0.8, 0.1, 0.1, 0.1, 0.1)[i], "cost": row["cost"] | {"macs": 800 if i == 1 else 900}}
    run = open_run(made_run(tmp_path / "r", rows))
    assert len(run.front) == 2
    table = common_table(run)
    assert table.rows == [
        {"gene": "a", "value": "1", "on the front": 1.0, "among all": 0.5, "difference": 0.5, "nets": 2}
    ]
    front, everywhere = attention_plot(run).series
    assert (front.x, front.y) == (["stage 2", "stage 3", "stage 4"], [0.5] * 3)
    assert everywhere.y == pytest.approx([2 / 6] * 3, abs=1e-4)


def test_failures_are_counted_by_reason_whatever_its_numbers(tmp_path: Path) -> None:
    rows = drawn_records(9)
    for row in rows[4:7]:
        message = f"out of memory: {row['trial']}.5 MiB"
        row |= {"status": "oom", "accuracy": None, "error": message, "seconds": 2.0}
    rows[8] |= {"status": "nan", "accuracy": None, "error": "loss is nan"}
    write_report(made_run(tmp_path / "r", rows), tmp_path / "page.html", tmp_path / "assets")
    found = pd.read_csv(tmp_path / "assets" / "failures.csv", keep_default_na=False)
    assert found.to_dict("records") == [
        {"status": "oom", "nets": 3, "first trial": 4, "message": "out of memory: 4.5 MiB"},
        {"status": "nan", "nets": 1, "first trial": 8, "message": "loss is nan"},
    ]
    spent = pd.read_csv(tmp_path / "assets" / "seconds.csv")
    assert spent[spent.series == "oom"].y.sum() == pytest.approx(6.0)


def test_assets_hold_every_plot_and_table(run: Path, report: Page, tmp_path: Path) -> None:
    facts = write_report(run, tmp_path / "page.html", tmp_path / "assets")
    made = {path.name for path in (tmp_path / "assets").iterdir()}
    assert {Path(path).name for path in facts["assets"]} == made
    plots, tables = set(report.plots), set(TABLES) - {"failures"}
    assert made == {f"{n}.{end}" for n in (*plots, *tables, "all_nets") for end in ("csv", "parquet")}
    nets = pd.read_parquet(tmp_path / "assets" / "all_nets.parquet")
    assert len(nets) == 240
    assert nets.accuracy.tolist() == pd.read_csv(tmp_path / "assets" / "all_nets.csv").accuracy.tolist()
    assert {f"gene_{name}" for name in report.data["nets"]["genes"]} < set(nets.columns)
    front = pd.read_parquet(tmp_path / "assets" / "front.parquet")
    assert (front.series == "the front").sum() == facts["front"]


@pytest.mark.parametrize("rows", [[], drawn_records(1), [r for r in drawn_records(30) if r["status"] == "pruned"]])
def test_short_runs_have_a_report_that_says_what_is_missing(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    facts = write_report(made_run(tmp_path / "r", rows, settings={}, command=None, versions=None))
    page = Page(tmp_path / "r" / "report.html")
    assert facts["hypervolume"] == 0
    assert "The hypervolume needs two nets" in page.said
    assert "Gene importance needs" in page.said
    assert "not recorded in run.json" in page.said


def test_the_command_can_be_typed_again() -> None:
    assert command_of({"command": ["/x/__main__.py", "search", "--data", "my photos"]}) == (
        "alternas search --data 'my photos'"
    )
    assert command_of({"command": "alternas"}) == command_of({}) == ""


def test_the_command_line_says_where_it_is(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    monkeypatch.setattr(sys, "argv", ["alternas", "report", str(run), "--out", str(out), "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    found = json.loads(capsys.readouterr().out)
    assert (ended.value.code or 0, found["page"], found["bytes"]) == (0, str(out), out.stat().st_size)
    assert {"run", "records", "trained", "front", "hypervolume", "best_accuracy", "seconds"} <= set(found)


def test_what_cannot_be_reported_is_an_input_error(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_report(run, tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="assets"):
        write_report(run, tmp_path / "page.html", tmp_path / "file")
    broken = made_run(tmp_path / "nan", [drawn_records(5)[0] | {"seconds": math.nan}])
    with pytest.raises(InputError, match="NaN is no number"):
        write_report(broken)


@pytest.mark.slow
def test_ten_thousand_records_stay_small(tmp_path: Path) -> None:
    facts = write_report(made_run(tmp_path / "r", drawn_records(10_000, stops=False)))
    assert facts["records"] == facts["trained"] == 10_000
    assert facts["bytes"] < 8_000_000
    assert len(Page(tmp_path / "r" / "report.html").data["drawings"]) > 100


@pytest.mark.parametrize(("count", "upright"), [(3, False), (24, True)])
def test_heads_of_a_confusion_are_whole(count: int, upright: bool) -> None:
    """Beside three classes there is room for their names, over 24 they stand upright."""
    names = [f"kind-number-{i:02}" for i in range(count)]
    counts = [[int(i == j) for j in range(count)] for i in range(count)]
    tree = ElementTree.fromstring(matrix_svg(Matrix("confusion", "Confusion", "", names, counts), 590))
    texts = [node.text for node in tree.iter("text")]
    assert [texts.count(name) for name in names] == [2] * count, "of rows and columns"
    width = float(tree.attrib["width"])
    assert width <= 590
    turned = [node for node in tree.iter("g") if "rotate(-90)" in node.attrib.get("transform", "")]
    assert len(turned) == count * upright
    heads = [node for node in tree.iter("text") if node.text in names and "p-m" in node.attrib["class"]]
    middles = [float(node.attrib["x"]) for node in heads]
    assert all(b - a > 6.5 * len(names[0]) for a, b in itertools.pairwise(middles)), "none on another"
    tall = float(tree.attrib["viewBox"].split()[3])
    assert all(float(rect.attrib["y"]) + float(rect.attrib["height"]) <= tall for rect in tree.iter("rect"))
