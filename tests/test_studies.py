"""Retraining, transfer, build-up and studies with real training, as a user types them; what is killed is on Ray."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from safetensors.numpy import load_file

from alternas.archs import Genotype, Stage, Stem
from alternas.archs.weights import describe
from alternas.results.ranking.stats import mean_ci
from alternas.search.experiments.studies import STUDIES
from command_line import Run, records, start

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(served: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small search, the best nets of which are retrained."""
    folder = tmp_path_factory.mktemp("user")
    code, _, err = served(folder, "search", "--data", "digits", "--trials", "3", "--name", "first", "--epochs", "2")
    assert code == 0, err
    code, out, err = served(folder, "retrain", "first", "--top", "2", "--seeds", "2")
    assert code == 0, err
    assert "export the best:  alternas export first --out first-retrained" in out
    assert "4 of 4 done  " in err + out
    return folder


def retrained(home: Path) -> list[dict[str, Any]]:
    return records(home, "first/retrain")


def test_retraining_trains_each_net_with_each_seed(home: Path) -> None:
    found = [r for r in retrained(home) if r["recipe"]["epochs"] == 2]
    assert sorted(r["seed"] for r in found) == [2, 2, 3, 3], "not the search's 0 and 1, which made nets look good"
    assert {r["kind"] for r in found} == {"retrain"}
    assert len({r["key"] for r in found}) == 2
    searched = {r["key"]: r for r in records(home, "first")}
    for r in found:
        assert 0 < r["metrics"]["test_accuracy"] <= 1
        assert r["recipe"] == searched[r["key"]]["recipe"]
    assert not any("test_accuracy" in r["metrics"] for r in searched.values()), "a search never sees the test split"


def test_the_best_weights_of_each_net_stay(home: Path) -> None:
    for key in {r["key"] for r in retrained(home)}:
        group = [r for r in retrained(home) if r["key"] == key and r["recipe"]["epochs"] == 2]
        best = min(group, key=lambda r: (-r["accuracy"], r["seed"]))
        kept = [r for r in group if (home / "runs/first/retrain/weights" / f"{r['training_id']}.safetensors").exists()]
        assert kept == [best]


def test_the_same_command_has_nothing_to_do_and_more_seeds_only_those(served: Run, home: Path) -> None:
    before = retrained(home)
    began = time.monotonic()
    code, out, _ = served(home, "retrain", "first", "--top", "2", "--seeds", "2", "--json")
    assert code == 0
    assert time.monotonic() - began < 60
    assert retrained(home) == before
    rows = json.loads(out)
    for row in rows:
        group = [r for r in before if r["key"] == row["net"] and r["recipe"]["epochs"] == 2]
        assert row["accuracy"]["mean"] == pytest.approx(np.mean([r["accuracy"] for r in group]))
        assert row["accuracy"]["sd"] == pytest.approx(np.std([r["accuracy"] for r in group], ddof=1))
        assert row["test_accuracy"]["n"] == row["seeds"] == 2
    assert rows[0]["accuracy"]["mean"] >= rows[1]["accuracy"]["mean"]


def test_export_takes_the_retrained_weights(served: Run, home: Path) -> None:
    code, out, err = served(home, "export", "first", "--out", "best", "--json")
    assert code == 0, err
    facts = json.loads(out)
    group = [r for r in retrained(home) if r["key"] == facts["key"] and r["recipe"]["epochs"] == 2]
    best = min(group, key=lambda r: (-r["accuracy"], r["seed"]))
    assert (facts["accuracy"], facts["test_accuracy"]) == (best["accuracy"], best["metrics"]["test_accuracy"])
    assert facts["seeds"] == 2
    assert facts["accuracy_over_seeds"]["mean"] == pytest.approx(mean_ci([r["accuracy"] for r in group]).mean)
    ours = load_file(home / "best" / "weights.safetensors")
    theirs = load_file(home / "runs/first/retrain/weights" / f"{best['training_id']}.safetensors")
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    assert "test accuracy over seeds" in (home / "best" / "README.md").read_text(encoding="utf-8")


def test_transfer_from_the_export_to_other_pictures(served: Run, home: Path) -> None:
    """To larger colour pictures in class folders, from what was trained on small grey ones."""
    random = np.random.default_rng(0)
    for label in ("stripes", "noise", "flat"):
        (home / "pictures" / label).mkdir(parents=True, exist_ok=True)
        for i in range(24):
            x = random.integers(0, 256, (20, 20, 3)) * (label == "noise") + 128 * (label == "flat")
            x = np.where((np.arange(20) % 4 < 2)[:, None, None], 200, 30) + x if label == "stripes" else x
            Image.fromarray(x.astype(np.uint8)).save(home / "pictures" / label / f"{i}.png")
    if not (home / "best").exists():
        assert served(home, "export", "first", "--out", "best")[0] == 0
    words = ("--data", "pictures", "--image-size", "16", "--recipe", "smoke", "--epochs", "30", "--seeds", "1")
    code, out, err = served(
        home, "finetune", "--from", "best", *words, "--freeze", "backbone", "--json", "--name", "to"
    )
    assert code == 0, err
    found = json.loads(out)
    assert found["rows"][0]["test_accuracy"]["mean"] > 0.5
    parts = {part["place"]: part for part in found["lineage"]["parts"]}
    assert parts["head"]["how"] == "zero"
    assert parts["stem"]["how"] == "fitted", "grey to colour"
    (record,) = records(home, "to")
    weights = home / "runs/to/weights" / f"{record['training_id']}.safetensors"
    about = describe(weights)
    assert about is not None
    assert (about["num_classes"], about["in_chans"], about["image_size"]) == (3, 3, [16, 16])
    code, _, err = served(home, "export", "to", "--out", "to-best")
    assert code == 0, err


def test_few_shots_of_a_run(served: Run, home: Path) -> None:
    code, out, err = served(
        home, "few-shot", "--from", "first", "--data", "digits", "--episodes", "50", "--json", "--plot", "few"
    )
    assert code == 0, err
    found = json.loads(out)
    assert sorted(found["files"]) == sorted(
        f"few-{part}.{end}" for part in ("probe", "episodes") for end in ("png", "svg")
    )
    assert all((home / name).stat().st_size > 5000 for name in found["files"])
    assert found["seen"] is True
    assert [row["shots"] for row in found["probe"]] == [1, 5, 10]
    assert [(row["ways"], row["shots"]) for row in found["episodes"]] == [(w, s) for w in (2, 5) for s in (1, 5, 10)]
    assert found["probe"][0]["mean"] < found["probe"][2]["mean"]


def test_build_up_of_trained_weights(served: Run, home: Path) -> None:
    """Every net begins with the ResNet's weights, and is compared with it seed by seed."""
    deep = Genotype(Stem("cifar", 8), (Stage("basic", 1, 8), Stage("basic", 2, 16, 2)))
    (home / "deep.json").write_text(deep.to_json(), encoding="utf-8")
    code, _, err = served(
        home, "train", "deep.json", "--data", "digits", "--epochs", "2", "--seeds", "1", "--name", "deep"
    )
    assert code == 0, err
    words = ("--data", "digits", "--epochs", "1", "--seeds", "2", "--name", "up")
    code, out, err = served(home, "buildup", "--from", "deep:0", *words)
    assert code == 0, err
    plain, *grown = records(home, "up")
    assert (plain["kind"], [stage["msa"] for stage in grown[0]["genotype"]["stages"]]) == ("baseline", [0, 1])
    assert [len(record["accuracies"]) for record in (plain, grown[0])] == [2, 2]
    gaps = [grown[0]["accuracies"][seed] - plain["accuracies"][seed] for seed in ("0", "1")]
    assert f"{100 * np.mean(gaps):+.2f} (95 %" in out
    hows = {part["place"]: part["how"] for part in grown[0]["lineage"]["parts"]}
    assert (hows["stage 1 block 1"], hows["stage 2 block 2"]) == ("copied", "identity")


def by_factors(home: Path, run: str) -> list[list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records(home, run):
        if record["factors"]:
            groups.setdefault(json.dumps(record["factors"]), []).append(record)
    return list(groups.values())


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_runs_to_its_table_and_plot(served: Run, home: Path, name: str) -> None:
    words = ("--data", "digits", "--quick", "--epochs", "0.2", "--seeds", "2", "--json")
    code, out, err = served(home, "study", name, *words)
    assert code == 0, err
    found = json.loads(out)
    folder = home / "runs" / f"{name}-digits-quick"
    assert found["folder"] == f"runs/{name}-digits-quick"
    assert found["seed_noise"] is not None
    of = found["noise_of"]
    groups = [[r["metrics"].get(of, r["accuracy"]) for r in group] for group in by_factors(home, folder.name)]
    assert found["seed_noise"] == pytest.approx(np.mean([np.var(group, ddof=1) for group in groups]) ** 0.5)
    assert len(found["rows"]) >= 2
    frame = pd.read_csv(folder / "table.csv")
    assert len(frame) == len(found["rows"])
    assert json.loads((folder / "table.json").read_text(encoding="utf-8")) == found
    with Image.open(folder / "plot.png") as picture:
        assert picture.size[0] > 600
    assert (folder / "plot.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert not any(r["status"] != "ok" for r in records(home, f"{name}-digits-quick"))


def test_the_nets_of_a_study_and_states_of_a_training_are_explained(served: Run, home: Path) -> None:
    quick = ("--data", "digits", "--quick", "--epochs", "0.2", "--seeds", "2")
    assert served(home, "study", "windows", *quick)[0] == 0
    code, out, err = served(home, "explain", "windows-digits-quick", "--analyses", "distance,cka", "--quick", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert len(told["nets"]) == 6
    changes = [f for part in told["analyses"] for f in part["findings"] if f["name"].endswith("the whole map less 3x3")]
    assert len(changes) >= 4
    assert {finding["verdict"] for finding in changes} <= {"more", "less", "undecided"}


def test_a_killed_retraining_goes_on(served: Run, home: Path) -> None:
    words = ("retrain", "first", "--top", "2", "--seeds", "2", "--epochs", "12", "--workers", "2")
    process = start(home, *words)
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and len([r for r in retrained(home) if r["recipe"]["epochs"] == 12]) < 1:
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = [r for r in retrained(home) if r["recipe"]["epochs"] == 12]
    assert len(before) >= 1
    code, _, err = served(home, *words)
    assert code == 0, err
    after = [r for r in retrained(home) if r["recipe"]["epochs"] == 12]
    assert after[: len(before)] == before
    assert len({r["training_id"] for r in after}) == len(after) == 4
