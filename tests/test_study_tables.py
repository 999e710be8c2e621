"""Rows, tables, CSV and plots of made-up studies."""

import csv
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from rich.console import Console

from alternas.archs import InputError
from alternas.results.analysis_tools.inputs import AnalysisResult
from alternas.results.analysis_tools.output import write_results
from alternas.results.render.experiment import PlotSpec, seed_noise, study_csv, study_rows, study_table
from alternas.results.render.plots import draw

VIEW = PlotSpec("Accuracy over data", "fraction", line="net", log_x=True, metrics=("accuracy", "nll"))
SVG = "{http://www.w3.org/2000/svg}"


@dataclass
class Fake:
    factors: dict[str, Any]
    seed: int
    accuracy: float | None
    metrics: dict[str, Any] = field(default_factory=dict)
    cost: dict[str, int] = field(default_factory=dict)
    status: str = "ok"
    seconds: float = 2.0


def study(nets: tuple[str, ...] = ("vit", "resnet"), fractions: tuple = (0.3, 0.03, 1), seeds: int = 3) -> list[Fake]:
    """Seeds outermost, as a study that is cut short leaves them."""
    return [
        Fake(
            {"net": net, "fraction": fraction},
            seed,
            accuracy=0.5 + 0.1 * i + 0.2 * fraction + 0.01 * seed,
            metrics={"nll": 1.0 + seed, "train_flops": 1e12 * fraction * (1 + i)},
            cost={"params": 1000 + i},
        )
        for seed in range(seeds)
        for i, net in enumerate(nets)
        for fraction in fractions
    ]


def shown(rows: list[dict[str, Any]], sight: PlotSpec, width: int = 80) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    console.print(study_table(rows, sight))
    return console.export_text()


def words(paths: list[Path]) -> list[str]:
    """Texts of the SVG, which must be well formed."""
    return ["".join(node.itertext()) for node in ET.parse(paths[1]).iter(f"{SVG}text")]


def pixels(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))


# rows


def test_rows_group_seeds_in_order_of_appearance() -> None:
    rows = study_rows(study(), ("accuracy", "nll", "params"))
    combinations = [(row["net"], row["fraction"]) for row in rows]
    assert combinations == [(net, f) for net in ("vit", "resnet") for f in (0.3, 0.03, 1)]
    assert list(rows[0]) == ["net", "fraction", "accuracy", "nll", "params", "failed", "seconds"]
    first = rows[0]
    assert (first["accuracy"]["mean"], first["accuracy"]["sd"]) == pytest.approx((0.57, 0.01))
    assert (first["nll"]["mean"], first["nll"]["n"], first["failed"], first["seconds"]) == (2.0, 3, 0, 2.0)
    assert [row["params"]["mean"] for row in rows] == [1000] * 3 + [1001] * 3


def test_intervals_of_shares_lie_between_0_and_1_those_of_other_metrics_where_they_lie() -> None:
    names = ("accuracy", "error", "test_accuracy", "top5", "5way_1shot", "nll")
    records = [Fake({"a": 1}, i, v, dict.fromkeys(names[2:], v)) for i, v in enumerate((0.2, 0.9))]
    (row,) = study_rows(records, names)
    assert {name: (row[name]["low"], row[name]["high"]) for name in names[:-1]} == dict.fromkeys(names[:-1], (0, 1))
    assert row["nll"]["low"] < 0 < 1 < row["nll"]["high"]


def test_only_trainings_that_are_ok_are_measured() -> None:
    factors = {"net": "vit"}
    records = [
        Fake(factors, 0, 0.9, seconds=4.0),
        Fake(factors, 1, 0.8, seconds=6.0),
        Fake(factors, 2, 0.1, status="pruned", seconds=1.0),
        Fake(factors, 3, None, status="oom"),
        Fake(factors, 1, None, status="lost"),  # trained again, above
    ]
    (row,) = study_rows(records, ["accuracy"])
    assert (row["accuracy"]["mean"], row["accuracy"]["n"]) == (pytest.approx(0.85), 2)
    assert (row["failed"], row["seconds"]) == (3, 5.0)


def test_what_is_missing_is_none() -> None:
    records = [Fake({"a": 1}, 0, None, status="nan"), Fake({"b": 2}, 0, 0.5, {"nll": None}), Fake({"b": 2}, 1, 0.7)]
    first, second = study_rows(records, ["accuracy", "nll"])
    assert (first["a"], first["b"], second["a"], second["b"]) == (1, None, None, 2)
    assert first["accuracy"] == {"mean": None, "sd": None, "n": 0, "low": None, "high": None}
    assert (first["failed"], first["seconds"]) == (1, None)
    assert second["nll"]["mean"] is None
    assert second["accuracy"]["n"] == 2


def test_what_rows_cannot_be_made_of() -> None:
    with pytest.raises(InputError, match=r"seed 1 is there 2 times at net vit, fraction 3 %"):
        study_rows([Fake({"net": "vit", "fraction": 0.03}, 1, 0.5)] * 2, ["accuracy"])
    with pytest.raises(InputError, match="'seconds'"):  # a factor may not hide a column
        study_rows([Fake({"seconds": 3}, 0, 0.5)], ["accuracy"])


def test_seed_noise_leaves_out_what_factors_do() -> None:
    assert seed_noise(study(), "accuracy") == pytest.approx(0.01)
    assert seed_noise(
        [*study(), Fake({"net": "vit", "fraction": 1}, 7, 0.1, status="pruned")], "accuracy"
    ) == pytest.approx(0.01)
    assert seed_noise(study(), "nll") == pytest.approx(1.0)
    assert seed_noise(study(seeds=1), "accuracy") is None


# tables


def test_table_shows_every_number_at_80_columns() -> None:
    records = [Fake(r.factors | {"augmentation": "randaugment"}, r.seed, r.accuracy, r.metrics) for r in study()]
    sight = PlotSpec("Study", "fraction", metrics=("accuracy", "error", "nll"))
    said = shown(study_rows(records, sight.names), sight)
    for number in ("3 %", "30 %", "100 %", "0.5700", "0.4300", "2.0000", "1.0000", "0.0100", "seeds", "2.0"):
        assert number in said
    assert said.count("0.0100") == 12  # sd of accuracy and of error, six rows
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said


def test_table_of_missing_values_and_odd_names() -> None:
    rows = study_rows([Fake({"net": "[/red] <$>"}, 0, None, status="nan")], ["accuracy"])
    said = shown(rows, PlotSpec("[/bold] title", "net"))
    assert "[/bold] title" in said
    head, line = said.splitlines()[1:3]
    assert head.split() == ["net", "accuracy", "seeds", "failed", "seconds"]
    assert line.split() == ["[/red]", "<$>", "-", "0", "1", "-"]
    assert "failed" not in shown(study_rows(study(), ["accuracy", "nll"]), VIEW)


def test_csv_is_what_pandas_reads(tmp_path: Path) -> None:
    records = [*study(seeds=2), Fake({"net": 'a "net", odd', "fraction": 1}, 0, 0.25)]
    rows = study_rows(records, ["accuracy"])
    study_csv(rows, tmp_path / "deep" / "study.csv")
    frame = pd.read_csv(tmp_path / "deep" / "study.csv")
    parts = [f"accuracy_{part}" for part in ("mean", "sd", "n", "low", "high")]
    assert list(frame) == ["net", "fraction", *parts, "failed", "seconds"]
    assert frame["net"].tolist() == [row["net"] for row in rows]
    assert frame["accuracy_low"].tolist()[:-1] == [row["accuracy"]["low"] for row in rows[:-1]]
    assert frame["accuracy_mean"].iloc[-1] == 0.25
    assert frame["accuracy_sd"].isna().tolist() == [False] * 6 + [True]
    with pytest.raises(InputError, match="no rows"):
        study_csv([], tmp_path / "none.csv")


# plots


def test_plot_is_a_png_and_an_svg_the_same_each_time(tmp_path: Path) -> None:
    rows = study_rows(study(), VIEW.names)
    paths = draw(rows, VIEW, tmp_path / "new" / "a.b")
    assert [p.name for p in paths] == ["a.b.png", "a.b.svg"]
    image = pixels(paths[0])
    assert image.shape == (750, 1200, 3)
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):  # of the first two curves
        assert (image == colour).all(-1).sum() > 200
    assert {"vit", "resnet", "net", "fraction", "validation accuracy", "Accuracy over data"} <= set(words(paths))
    again = draw(rows, VIEW, tmp_path / "again")
    assert [p.read_bytes() for p in paths] == [p.read_bytes() for p in again]


def test_names_on_the_x_axis_are_columns_without_lines(tmp_path: Path) -> None:
    sight = PlotSpec("t", "net", line="fraction")
    paths = draw(study_rows(study(), sight.names), sight, tmp_path / "names")
    assert {"vit", "resnet", "3 %", "30 %", "100 %"} <= set(words(paths))
    lone = draw(study_rows(study(seeds=1), sight.names), sight, tmp_path / "lone")
    blue = [(pixels(p[0])[:, :900] == (0x00, 0x72, 0xB2)).all(-1).sum() for p in (paths, lone)]
    assert 0 < blue[1] < blue[0] / 1.5  # bars are gone, two markers are left


def test_other_factors_make_curves_where_rows_would_share_an_x(tmp_path: Path) -> None:
    records = [
        Fake({"fraction": f, "net": n, "mix": m}, 0, 0.5) for f in (0.1, 1.0) for n in "ab" for m in ("on", "off")
    ]
    said = words(draw(study_rows(records, ["accuracy"]), VIEW, tmp_path / "split"))
    assert {"a, on", "a, off", "b, on", "b, off", "net, mix"} <= set(said)
    tied = [Fake({"fraction": f, "net": n, "epochs": e}, 0, 0.5) for f, e in ((0.1, 9), (1.0, 3)) for n in "ab"]
    assert {"a", "b", "net"} <= set(words(draw(study_rows(tied, ["accuracy"]), VIEW, tmp_path / "tied")))


def test_special_characters_are_only_characters(tmp_path: Path) -> None:
    odd = ("<a & b>", "$x$", "_net", r"50 % \alpha $")
    sight = PlotSpec("$\\frac{1$ & <title>", "fraction", line="net", y_label="$y", x_label="a & $b$")
    paths = draw(study_rows(study(odd), sight.names), sight, tmp_path / "odd")
    said = {word.strip() for word in words(paths)}
    assert {*odd, "$\\frac{1$ & <title>", "$y"} <= said
    columns = PlotSpec("t", "net")
    assert set(odd) <= set(words(draw(study_rows(study(odd, (1,)), columns.names), columns, tmp_path / "odd2")))


def test_rows_with_missing_values_are_left_out(tmp_path: Path) -> None:
    records = [*study(("vit",)), Fake({"net": "broken", "fraction": 0.3}, 0, None, status="nan")]
    records += [Fake({"net": "nowhere"}, 0, 0.5)]
    said = words(draw(study_rows(records, ["accuracy"]), VIEW, tmp_path / "missing"))
    assert "vit" in said
    assert not {"broken", "nowhere"} & set(said)


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    rows = study_rows(study(), VIEW.names)
    broken = study_rows([Fake({"net": "a", "fraction": 1}, 0, None, status="oom")], ["accuracy"])
    zero = study_rows([Fake({"net": "a", "fraction": 0}, 0, 0.5)], ["accuracy"])
    cases = [
        ([], VIEW, "none of 0 rows"),
        (broken, VIEW, "none of 1 rows"),
        (zero, VIEW, "above 0, got 0"),
        (rows, PlotSpec("t", "fractoin"), "did you mean 'fraction'"),
        (rows, PlotSpec("t", "fraction", y="net"), "y: unknown value 'net'"),
        (rows, PlotSpec("t", "fraction", line="nett"), "did you mean 'net'"),
    ]
    for bad, sight, why in cases:
        with pytest.raises(InputError, match=why):
            draw(bad, sight, tmp_path / "bad")
    assert not list(tmp_path.iterdir())


def test_cells_that_a_spreadsheet_would_run_are_text(tmp_path: Path) -> None:
    evil = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1"]
    rows = study_rows([Fake({"net": net, "=shift": -0.5}, 0, 0.5) for net in evil], ["accuracy"])
    study_csv(rows, tmp_path / "table.csv")
    folder, told = tmp_path / "explain", {"=layer": 1, "=cmd": -1.5, "text": "-3e-2"}
    folder.mkdir()
    finding = AnalysisResult("a title", [told | {"name": name} for name in evil], [], lambda part: None)
    write_results(folder, "variance", [("=net", finding)])
    lines = list[str]()
    for path in (tmp_path / "table.csv", folder / "variance.csv"):
        with open(path, encoding="utf-8", newline="") as file:
            lines += [cell for row in csv.reader(file) for cell in row]
    assert {f"'{net}" for net in evil} < set(lines)
    assert {"-0.5", "-1.5", "-3e-2", "'=shift", "'=cmd", "'=net"} < set(lines), "numbers stay as they are"
    assert not [cell for cell in lines if cell.startswith(("=", "+", "@", "\t", "\r"))]
