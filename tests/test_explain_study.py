"""`alternas explain` of a study's nets and of states of a training; weights that nobody trained stand for them."""

import csv
import dataclasses
import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from matplotlib.figure import Figure
from rich.console import Console

from alternas.archs import InputError, build
from alternas.archs.weights import save
from alternas.results.analysis.cka import cka_map, findings_by_place, same_place_rows
from alternas.results.analysis.hessian import NEP
from alternas.results.analysis_tools.findings import Finding
from alternas.results.analysis_tools.hooks import residual_points
from alternas.results.analysis_tools.trends import TRENDS, StudiedNet, trend
from alternas.results.runs.store import read_records
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.data.views import View, seen
from alternas.search.experiments import trained_nets as subjects
from alternas.search.experiments.explain import Explain, explain
from alternas.search.experiments.explain_study import reference, study_nets
from alternas.search.experiments.plan import Training
from alternas.search.experiments.study_nets import net_of
from alternas.search.experiments.trained_nets import analysis_context
from alternas.search.training import recipes
from alternas.search.training.recipe import Augment
from runs import made_run, record

QUIET = Console(quiet=True)
CPU = torch.device("cpu")
EXACT = "donot_use_mm_for_euclid_dist"
RECIPE = dataclasses.replace(recipes.get("smoke"), augment=Augment())


@cache
def digits() -> DataSet:
    return load(DataConfig("digits"))


def made_study(folder: Path, name: str, plan: Sequence[Training], weights: bool = True) -> Path:
    """A study's run on digits; the weights of a net depend on its key, its factors and its seed."""
    rows = []
    for i, training in enumerate(plan):
        row = record(i, training.net, {}, random.Random(i), "study", stops=False)
        row |= {"recipe": training.recipe.to_dict(), "seed": training.seed, "factors": training.factors}
        rows.append(row | {"training_id": training.id, "data": {"name": "digits"} | training.view.facts()})
    made_run(folder, rows, data=digits().facts(), settings={"study": name, "quick": True})
    for i, training in enumerate(plan if weights else ()):
        torch.manual_seed(i)
        save(build(training.net, 10, 8, 1), folder / "weights" / f"{training.id}.safetensors")
    return folder


def sized(families: Sequence[str], sizes: Sequence[str], shares: Sequence[float], seeds: int = 2) -> list[Training]:
    nets = {f"{family} {size}": net_of(family, size, (8, 8)) for family in families for size in sizes}
    return [
        Training(
            net, RECIPE, 9, seed, {"net": name, "fraction": share}, View(share, draw=seed) if share < 1 else View()
        )
        for share in shares
        for name, net in nets.items()
        for seed in range(seeds)
    ]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return made_study(tmp_path / "runs" / "mine", "model-size", sized(("resnet", "vit"), ("s", "m"), (0.1, 1.0)))


def table(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_panel_for_each_net_and_the_table_of_all(run: Path) -> None:
    told = explain(Explain("mine", analyses=("distance", "variance"), samples=16), QUIET)
    assert len(told["nets"]) == 16
    parts = {part["analysis"]: part for part in told["analyses"]}
    found = parts["distance"]["findings"]
    assert list(dict.fromkeys(finding["net"] for finding in found)) == ["resnet s", "resnet m", "vit s", "vit m"]
    assert found[0]["verdict"] == "attention: this net has no attention"
    values = {finding["name"]: finding["value"] for finding in found if finding["net"] == "vit m"}
    rows = table(run / "explain" / "distance.csv")
    assert {(r["net"], r["fraction"], r["seed"]) for r in rows} == {
        (net, share, seed) for net in ("vit s", "vit m") for share in ("0.1", "1.0") for seed in "01"
    }
    first = [r for r in rows if r["net"] == "vit m" and r["layer"] == rows[0]["layer"]]
    for share, label in (("0.1", "10 %"), ("1.0", "100 %")):
        near = [(float(r["distance_px"]), float(r["even_map_px"])) for r in first if r["fraction"] == share]
        local = sum(px < 0.5 * even for px, even in near) / 2
        assert values[f"local heads of the first layer: {label}"] == local
        assert values[f"mean distance, first layer: {label}"] == pytest.approx(sum(px for px, _ in near) / len(near))
    assert (run / "explain" / "variance.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_what_was_found_of_a_net_is_kept(run: Path) -> None:
    told = explain(Explain("mine", analyses=("variance",), samples=16), QUIET)
    files = list((run / "analyses").iterdir())
    assert len(files) == 16
    for path in files:
        path.write_text(path.read_text(encoding="utf-8").replace("stage 1 block 1", "stage 1 block one"))
    explain(Explain("mine", analyses=("variance",), samples=16), QUIET)
    assert "stage 1 block one" in (run / "explain" / "variance.csv").read_text(encoding="utf-8"), (
        "kept rows are read, not made anew"
    )
    assert len(told["analyses"]) == 1


def test_nets_are_held_against_another_seed_on_all_data_and_the_largest(tmp_path: Path) -> None:
    plan = sized(("vit", "resnet"), ("s", "m", "l"), (0.1, 1.0))
    nets = study_nets(made_study(tmp_path / "mine", "model-size", plan, weights=False), digits())
    by = {net.name: net for net in nets}
    few = by["vit s, 10 %, seed 0"]
    assert reference("cka", few, nets) is by["vit s, 100 %, seed 1"]
    assert reference("cka", by["vit s, 100 %, seed 1"], nets) is by["vit s, 100 %, seed 0"]
    assert reference("cka_between", few, nets) is by["vit l, 10 %, seed 1"]
    assert reference("cka_between", by["vit m, 100 %, seed 1"], nets) is by["vit l, 100 %, seed 0"]
    assert reference("cka_between", by["vit l, 10 %, seed 0"], nets) is None
    assert reference("variance", few, nets) is None
    alone = [net for net in nets if net.record.seed == 0]
    assert reference("cka", few, alone) is by["vit s, 100 %, seed 0"], "one seed is better than none"
    assert reference("cka", by["vit s, 100 %, seed 0"], alone) is None


@pytest.mark.slow
def test_cka_is_that_of_the_same_places(run: Path) -> None:
    ids = {(r.factors["net"], r.factors["fraction"], r.seed): r.training_id for r in read_records(run)}
    weights = run / "weights"
    data = (weights / f"{ids['vit s', 1.0, 1]}.safetensors").read_bytes()
    (weights / f"{ids['vit s', 0.1, 0]}.safetensors").write_bytes(data)
    told = explain(Explain("mine", analyses=("cka", "cka_between"), samples=16), QUIET)
    found = {(r["net"], r["fraction"], r["seed"]): [] for r in table(run / "explain" / "cka.csv")}
    for row in table(run / "explain" / "cka.csv"):
        assert row["place"] == row["match"]
        found[row["net"], row["fraction"], row["seed"]].append(float(row["cka"]))
    assert len(found) == 16
    assert found["vit s", "0.1", "0"] == pytest.approx([1.0] * 7)
    assert max(found["vit s", "0.1", "1"]) < 0.999
    alone = [finding["net"] for part in told["analyses"] for finding in part["findings"] if not finding["name"]]
    assert alone == ["resnet m", "vit m"], "the largest"
    assert {r["net"] for r in table(run / "explain" / "cka_between.csv")} == {"resnet s", "vit s"}


def test_a_net_of_another_depth_is_held_against_its_best_match(run: Path) -> None:
    ground = analysis_context(digits(), 24, CPU)
    small, large = (ground.analysis_input(net) for net in study_nets(run, digits())[0:4:2])
    sites = [residual_points(one.net) for one in (small, large)]
    assert len(sites[0]) == len(sites[1]), "these ResNets have the same places"
    small, large = (ground.analysis_input(net) for net in study_nets(run, digits())[4:8:2])
    sites = [residual_points(one.net) for one in (small, large)]
    assert len(sites[0]) < len(sites[1])
    x = small.images.seen(small.images.x_NCHW)
    whole = cka_map(small.net, large.net, [x], *sites)
    rows = same_place_rows(small, large)
    assert [row["cka"] for row in rows] == pytest.approx(whole.max(1).values.tolist())
    assert [row["match"] for row in rows] == [sites[1][k].name for k in whole.argmax(1)]


def test_training_batches_are_those_of_the_nets_share(run: Path) -> None:
    nets = {net.name: net for net in study_nets(run, digits())}
    few, whole = nets["vit s, 10 %, seed 1"], nets["vit s, 100 %, seed 1"]
    ground = analysis_context(digits(), 256, CPU)
    assert len(ground.analysis_input(whole).training) == 16
    x = torch.cat([x for x, _ in ground.analysis_input(few).training])
    shown = torch.as_tensor(seen(digits(), View(0.1, draw=1)).train.images).float()
    (mean,), (std,) = digits().mean, digits().std
    assert len(shown) < len(x) == 256, "images are shown again"
    near = torch.cdist(x.flatten(1), ((shown - mean) / std).flatten(1), compute_mode=EXACT).min(1).values
    assert near.max() < 1e-3


@pytest.mark.slow
def test_windows_are_one_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subjects, "MINIBATCHES", 1)
    vit = net_of("vit", "s", (8, 8))
    assert vit.encoder is not None
    plan = [
        Training(dataclasses.replace(vit, encoder=dataclasses.replace(vit.encoder, local=local)), RECIPE, 9, seed, of)
        for local, of in ((3, {"window": "3x3"}), (0, {"window": "8x8"}))
        for seed in range(2)
    ]
    run = made_study(tmp_path / "runs" / "windows", "windows", plan)
    told = explain(Explain("windows", analyses=("hessian", "distance"), samples=8), QUIET)
    found = {finding["name"]: finding for part in told["analyses"] for finding in part["findings"]}
    assert {finding["net"] for finding in found.values()} == {"windows"}
    rows = table(run / "explain" / "hessian.csv")
    assert len(rows) == 4 * 5
    for window in ("3x3", "8x8"):
        values = np.array([float(row["eigenvalue"]) for row in rows if row["window"] == window])
        assert found[f"{NEP}: {window}"]["value"] == pytest.approx((values < 0).mean())
    assert f"{NEP}: 8x8 less 3x3" in found
    wider = found["mean distance, first layer: 8x8 less 3x3"]
    assert wider["value"] > 1, "in pixels: a window is not divided by what it is itself"
    assert (wider["unit"], wider["verdict"]) == ("px", "more")


def seen_nets(resolution: float = 0.0, **values: Sequence[float]) -> list[StudiedNet]:
    """Nets of a finding for each seed, by label."""
    return [
        StudiedNet(
            label, seed, {"of": label}, [{"eigenvalue": v}], [Finding("it", v, unit="px", resolution=resolution)]
        )
        for label, found in values.items()
        for seed, v in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("last", "said"), [((0.5, 0.54, 0.52), "more"), ((0.01, 0.02, 0.0), "less"), ((0.2, 0.5, 0.1), "undecided")]
)
def test_the_change_and_its_interval(last: tuple[float, ...], said: str) -> None:
    first = (0.2, 0.22, 0.25)
    found = trend("hessian", "net", seen_nets(a=first, b=(0.9, 0.9, 0.9), c=last))
    gaps = np.subtract(last, first)
    low, high = scipy.stats.t.interval(0.95, 2, gaps.mean(), scipy.stats.sem(gaps))
    assert [(f.name, f.value) for f in found.findings] == [
        ("it: a", pytest.approx(np.mean(first))), ("it: b", pytest.approx(0.9)),
        ("it: c", pytest.approx(np.mean(last))),
        ("it: c less a", pytest.approx(gaps.mean())),
    ]  # fmt: skip
    change = found.findings[-1]
    assert (change.low, change.high, change.n) == (pytest.approx(low), pytest.approx(high), 3)
    assert (change.verdict, change.unit) == (said, "px")
    assert found.rows[0] == {"of": "a", "seed": 0, "eigenvalue": 0.2}


def test_equal_changes_are_known_to_the_resolution() -> None:
    seeds = {"a": (0.1, 0.2), "b": (0.2, 0.3)}
    assert trend("hessian", "net", seen_nets(**seeds)).findings[-1].verdict == "more"
    assert trend("hessian", "net", seen_nets(0.1, **seeds)).findings[-1].verdict == "undecided"


def test_curves_are_means_over_seeds() -> None:
    figure = Figure()
    trend("hessian", "net", seen_nets(a=(0.0, 1.0), b=(2.0,))).draw(figure)
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines] == ["a", "b"]
    assert np.asarray(axes.lines[0].get_ydata()) == pytest.approx([0.5] * 11)
    assert np.asarray(axes.lines[1].get_ydata()) == pytest.approx([2.0] * 11)


def test_one_seed_has_no_interval() -> None:
    found = trend("hessian", "net", seen_nets(a=(0.1,), b=(0.2,))).findings
    assert [(f.name, f.low, f.verdict) for f in found] == [
        ("it: a", None, ""), ("it: b", None, ""), ("it: b less a", None, ""),
    ]  # fmt: skip


def test_halves_and_heads() -> None:
    cka = [{"place": str(i), "match": str(i), "cka": v} for i, v in enumerate((0.9, 0.7, 0.5, 0.2, 0.2))]
    assert [finding.value for finding in findings_by_place(cka)] == pytest.approx([0.8, 0.3])
    heads = [{"layer": i, "distance_px": d} for i, d in ((1, 3.0), (1, 1.0), (1, 0.5), (2, 0.0))]
    assert TRENDS["distance"][1](heads) == {"head 1": 0.5, "head 2": 1.0, "head 3": 3.0}
    kinds = (("stem", "gap", 0.2), ("stem", "cls", 0.9), ("end", "token 0,0", 0.8), ("end", "gap", 0.6))
    probes = [{"place": place, "features": kind, "accuracy": value} for place, kind, value in kinds]
    assert TRENDS["linear"][1](probes) == {"stem": 0.2, "end": 0.6}
    spectrum = TRENDS["hessian"][1]([{"eigenvalue": value} for value in (5.0, -5.0, 0.0)])
    assert [spectrum[place] for place in ("0 %", "50 %", "100 %")] == [-5, 0, 5]


@pytest.mark.parametrize(
    ("words", "hint"),
    [(("mine", "--against", "1"), "is a study"), (("mine", "--analyses", "noise"), "analysis of a study")],
)
def test_bad_words(alternas: Callable[..., Any], run: Path, words: tuple[str, ...], hint: str) -> None:
    code, out, err = alternas("explain", *words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert hint in err
    assert not (run / "explain").exists()


def test_a_study_on_some_classes_has_no_net_to_look_at(run: Path) -> None:
    path = run / "records.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text(
        "".join(json.dumps(row | {"data": row["data"] | {"classes": [0, 1]}}) + "\n" for row in rows), encoding="utf-8"
    )
    with pytest.raises(InputError, match="no net that was trained on all classes"):
        explain(Explain("mine", analyses=("variance",)), QUIET)
