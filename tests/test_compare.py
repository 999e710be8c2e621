"""Runs side by side, fronts on the command line, and a run as a DataFrame, on runs written by hand."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import image_files as image
from alternas.archs import InputError, zoo
from alternas.results import load_run
from alternas.results.ranking.compare import compare, differing
from alternas.results.ranking.objectives import RankingQuery
from alternas.results.ranking.pareto import hypervolume
from alternas.results.runs.record import Record
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from pages import ROOT
from runs import DATA, add_measured, made_run

pytestmark = pytest.mark.usefixtures("elsewhere")

PAGE = (ROOT / "docs" / "reading-a-front.md").read_text(encoding="utf-8")
RECIPE = {"name": "smoke", "epochs": 2.0, "batch_size": 32}
NETS = {"one": [(0, 0.8, 100), (1, 0.9, 1000), (2, 0.7, 900)], "two": [(0, 0.85, 100), (1, 0.88, 2000)]}


def write(name: str, nets: list[Any] | None = None, split: str = "s", data: str = "digits", **settings: Any) -> Path:
    """A run of nets (trial, accuracy, MACs), or of these and more fields."""
    usual = {"objective": "macs", "recipe": RECIPE, "seed": 0, "repeats": 1, "image_size": [8, 8]}
    rows = [record(*net[:3], **dict(*net[3:])).to_dict() for net in nets or NETS[name]]
    facts = DATA | {"name": data, "split": split}
    return made_run(Path("runs") / name, rows, settings=usual | settings, data=facts)


def record(trial: int, accuracy: float | None, macs: int, **more: Any) -> Record:
    cost = {"macs": macs, "params": macs // 2, "activation_bytes": 1, "peak_activation_bytes": 5}
    given: dict[str, Any] = {"kind": "search", "family": "resnet", "status": "ok", "recipe": RECIPE, "seconds": 2.0}
    given |= {"budget": {"done": 8, "full": 8}, "key": f"{macs:012x}", "genotype": {}, "genes": {}, "cost": cost}
    return Record(trial=trial, accuracy=accuracy, **(given | more))


def test_runs_are_measured_against_one_reference() -> None:
    write("one")
    write("two")
    found = compare(["one", "two"], RankingQuery())
    assert [row["run"] for row in found.runs] == ["one", "two"]
    for row in found.runs:
        points = [(a, m) for _, a, m in NETS[row["run"]]]
        assert row["hypervolume"] == pytest.approx(hypervolume(points, 0.1, [(100, 2000)]))
    assert [(row["best_accuracy"], row["on_front"], row["on_joint_front"]) for row in found.runs] == [
        (0.9, 2, 1), (0.88, 2, 1),
    ]  # fmt: skip
    assert found.coverage == {"one": {"two": 0.5}, "two": {"one": 0.5}}
    write("three", [(0, 0.89, 90)])
    assert compare(["one", "three"], RankingQuery()).coverage == {"one": {"three": 0.0}, "three": {"one": 0.5}}
    assert [(row.run, row.trial) for row in found.front] == [("two", 0), ("one", 1)]
    assert found.notes == []
    assert json.loads(json.dumps(found.to_dict()))["seed_noise"] is None


def test_noise_of_pictures_alone_is_no_seed_noise() -> None:
    """Runs whose number of pictures is known and whose seeds are not: the usual small ones."""
    for name in ("one", "two"):
        told = json.loads((write(name) / "run.json").read_text(encoding="utf-8"))
        told["data"]["images"] = {"val": 100}
        Path("runs", name, "run.json").write_text(json.dumps(told), encoding="utf-8")
    found = compare(["one", "two"], RankingQuery())
    assert found.noise
    assert found.noise.images == 100
    assert found.to_dict()["seed_noise"] is None
    assert found.front[-1].interval == pytest.approx(1.96 * (92 / 104 * 12 / 104 / 104) ** 0.5, rel=1e-4)


def test_ties_between_runs_are_named_by_run() -> None:
    seeds = {"0": 0.794, "1": 0.806, "2": 0.8, "3": 0.806, "4": 0.794}
    write("one", [(0, 0.8, 100, {"accuracies": seeds}), (1, 0.9, 1000)])
    write("two")
    found = compare(["one", "two"], RankingQuery())
    assert [(row.run, row.trial, row.tied_with) for row in found.front] == [("two", 0, []), ("one", 1, ["two:1"])]
    assert found.to_dict()["seed_noise"] == {"sd": pytest.approx(0.006), "trainings": 5, "nets": 1}


def test_runs_on_other_images_are_refused() -> None:
    write("one")
    write("two", split="t")
    with pytest.raises(InputError, match=r"same images and validation split, got one digits \(s\), two digits \(t\)"):
        compare(["one", "two"], RankingQuery())
    write("three", NETS["two"], split="", data="cue")
    with pytest.raises(InputError, match=r"three cue \(unknown\)"):
        compare(["one", "three"], RankingQuery())
    for names in (["one"], ["one", "one"], ["one", "runs/one"], []):
        with pytest.raises(InputError, match="two different runs or more"):
            compare(names, RankingQuery())


def test_what_is_not_fair_is_said() -> None:
    folders = {
        "one": write("one"),
        "two": write("two", recipe=RECIPE | {"epochs": 3.0}, seed=1, strategy="random"),
        "old": write("old", NETS["one"], split="", repeats=3),
    }
    assert differing(folders) == [
        "whether the splits are the same is unknown: old do not say",
        "no fair comparison, runs differ in epochs (2 in one, 3 in two, 2 in old); "
        "seed (0 in one, 1 in two, 0 in old); trainings of each net (1 in one, 1 in two, 3 in old)",
    ]
    many = {"epochs": 3.0, "lr": 0.006, "batch_size": 64, "ema_decay": 0.5, "augment": {"flip": True, "pad": 1}}
    few = {"lr": 0.0005, "ema_decay": 0.0, "augment": {"flip": False, "pad": 2}}
    recipes = {"a": write("a", NETS["one"], recipe=RECIPE | many), "b": write("b", NETS["one"], recipe=RECIPE | few)}
    assert differing(recipes) == [
        "no fair comparison, runs differ in epochs (3 in a, 2 in b); learning rate (0.006 in a, 0.0005 in b); "
        "batch size (64 in a, 32 in b); ema decay (0.5 in a, 0 in b), and 2 more settings of the recipe"
    ]


def test_a_finetuned_run_says_its_recipe_by_its_nets() -> None:
    finetuned = write("finetuned", NETS["two"])
    facts = json.loads((finetuned / "run.json").read_text(encoding="utf-8"))
    facts["settings"] = {"from": "run one, trial 0", "freeze": "none"}
    (finetuned / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    assert differing({"one": write("one"), "finetuned": finetuned}) == [
        "no fair comparison, runs differ in weights that nets begin with (none in one, run one, trial 0 in finetuned)"
    ]


def test_the_same_pictures_at_two_sizes_are_compared() -> None:
    for i in range(20):
        image.write(Path("photos") / "ab"[i % 2] / f"{i}.png", image.noise(i, 24, 24))
        image.write(Path("others") / "ab"[i % 2] / f"{i}.png", image.noise(i, 24, 25))

    def read(side: int, name: str = "photos", **how: Any) -> dict[str, Any]:
        return load(DataConfig(name, (side, side), **how)).facts()

    for run, facts in {"small": read(8), "large": read(16, loader="stream"), "other": read(8, "others")}.items():
        nets = [record(0, 0.8, 100).to_dict()]
        made_run(Path("runs") / run, nets, settings={"objective": "macs", "recipe": RECIPE}, data=facts)
    size = "no fair comparison, pictures are read at 8x8 in small, 16x16 in large: larger ones cost more and show more"
    assert compare(["small", "large"], RankingQuery()).notes == [size]
    for runs in (["small", "other"], ["large", "other"]):
        with pytest.raises(InputError, match="must have the same images and validation split"):
            compare(runs, RankingQuery())


def test_other_budgets_are_said_and_marked(alternas: Any, caplog: pytest.LogCaptureFixture) -> None:
    child = {"budget": {"done": 4, "full": 4}, "weights": "inherited", "lineage": {"trial": 0, "flops": 5}}
    write("one", [(0, 0.8, 100), (1, 0.9, 1000, child)])
    write("two", [(0, 0.85, 100, {"budget": {"done": 16, "full": 16}})])
    said = "budgets differ, which is no fair comparison: 1 net 8 steps, 1 net 4 steps on inherited weights"
    code, out, _ = alternas("front", "one", "--json")
    assert code == 0
    assert [(row["budget_steps"], row["weights"]) for row in json.loads(out)] == [(8, "alone"), (4, "inherited")]
    assert said in caplog.text
    code, out, _ = alternas("front", "one")
    assert said in " ".join(out.split())
    assert [line.split()[0] for line in out.splitlines() if line.rstrip().endswith(" inherited")] == ["1"]
    (note,) = compare(["one", "two"], RankingQuery()).notes
    assert note.endswith(": 1 net 16 steps, 1 net 4 steps on inherited weights, 1 net 8 steps")


def test_latencies_of_different_settings_are_not_compared() -> None:
    for name, device in (("one", "cpu"), ("two", "cuda")):
        folder = write(name)
        lines = [{"key": f"{m:012x}", "latency_ms": m / 50, "device": device, "batch": 1} for _, _, m in NETS[name]]
        add_measured(folder, lines)
    assert compare(["one", "two"], RankingQuery()).front
    with pytest.raises(InputError, match="of one setting, got cpu/1/-/-/-/-/-, cuda/1/-/-/-/-/-"):
        compare(["one", "two"], RankingQuery(("accuracy", "latency_ms")))


def test_front_and_leaderboard_on_the_command_line(alternas: Any, caplog: pytest.LogCaptureFixture) -> None:
    folder = write("one", [*NETS["one"], (3, 0.6, 5000, {"family": "hybrid"})])
    code, out, _ = alternas("leaderboard", "one", "--json")
    rows = json.loads(out)
    assert (code, [(row["trial"], row["rank"]) for row in rows]) == (0, [(0, 1), (1, 1), (2, 2), (3, 3)])
    assert json.loads(alternas("front", "one", "--json")[1]) == rows[:2]
    for words in (["--objective", "macs"], ["--objectives", "accuracy,macs"]):
        assert json.loads(alternas("front", "one", "--json", *words)[1]) == rows[:2], "two ways to say one thing"
    for words, trials in (
        (["--top", "3"], [0, 1, 2]),
        (["--max-macs", "950"], [0, 2]),
        (["--max-params", "50"], [0]),
        (["--family", "hybrid, vit"], [3]),
        (["--max-macs", "1k", "--family", "resnet"], [0, 1, 2]),
    ):
        assert [row["trial"] for row in json.loads(alternas("leaderboard", "one", "--json", *words)[1])] == trials
    add_measured(folder, [{"key": "000000000064", "latency_ms": 3.0, "device": "cpu"}])
    code, out, _ = alternas("front", "one", "--objectives", "accuracy,macs,latency_ms", "--json")
    assert [(row["trial"], row["latency_ms"]) for row in json.loads(out)] == [(0, 3.0)]
    assert "left out: 3 nets without latency ms" in caplog.text
    code, out, _ = alternas("front", "one", "--objectives", "macs,latency_ms,accuracy")
    assert "left out: 3 nets without latency ms" in " ".join(out.split())
    assert "latency: cpu/-/-/-/-/-" in out
    assert json.loads(alternas("leaderboard", "one", "--max-latency-ms", "2", "--json")[1]) == []


def test_the_noise_is_said_under_every_front(alternas: Any) -> None:
    write("one")
    assert "seed noise: unknown (too few nets trained again)" in alternas("front", "one")[1]
    seeds = {"0": 0.843, "1": 0.843, "2": 0.85, "3": 0.857, "4": 0.857}
    write("two", [(0, 0.85, 100, {"accuracies": seeds}), (1, 0.87, 2000), (2, 0.852, 90)])
    for command in ("front", "leaderboard"):
        out = alternas(command, "two")[1]
        assert "seed noise: 0.7 points (sd over 5 trainings of 1 net)" in out
        assert "= 2 +1" in out
    rows = json.loads(alternas("leaderboard", "two", "--json")[1])
    assert {row["trial"]: row["tied_with"] for row in rows} == {0: [2, 1], 1: [2, 0], 2: [0, 1]}


def test_compare_on_the_command_line(alternas: Any) -> None:
    write("one")
    write("two", seed=3)
    code, out, _ = alternas("compare", "one", "two", "--json", "--max-macs", "1000")
    found = json.loads(out)
    assert code == 0
    assert set(found) == {"objectives", "runs", "coverage", "front", "seed_noise", "notes"}
    assert [row["nets"] for row in found["runs"]] == [3, 1]
    assert {"run", "trial", "key", "accuracy", "macs", "params", "rank", "gain"} <= set(found["front"][0])
    code, out, _ = alternas("compare", "one", "two")
    assert "no fair comparison, runs differ in seed (0 in one, 3 in two)" in " ".join(out.split())
    assert "covers" in out


@pytest.mark.parametrize(("words", "hint"), [
    (("front", "one", "--objectives", "macs,maccs"), "did you mean 'macs'"),
    (("front", "one", "--objectives", "accuracy"), "two or three"),
    (("front", "one", "--objectives", "latency_ms"), "nothing was measured in run one"),
    (("front", "one", "--latency-of", "cpu"), "nothing was measured in run one"),
    (("front", "one", "--family", "resnets"), "did you mean 'resnet'"),
    (("front", "one", "--max-macs", "few"), "max-macs"),
    (("front", "one", "--max-latency-ms", "0"), "max-latency-ms"),
    (("leaderboard", "one", "--top", "-1"), "top"), (("leaderboard", "nowhere"), "nowhere"),
    (("compare", "one"), "two different runs"), (("compare", "one", "nowhere"), "nowhere"), (("compare",), "runs"),
])  # fmt: skip
def test_bad_input_is_one_line(alternas: Any, words: tuple[str, ...], hint: str) -> None:
    write("one")
    code, out, err = alternas(*words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert hint in err.lower()


def test_a_frame_has_the_columns_that_the_page_names() -> None:
    always = PAGE.split("These columns are always there")[1].split("Behind them")[0]
    rows = re.findall(r"^\| (`[^|]+) \|", always, re.MULTILINE)
    named = re.findall(r"`(\w+)`", "".join(rows) + always.split("as in [Columns]")[1])
    folder = write("one", [*NETS["one"], (3, 0.5, 9, {"status": "pruned", "metrics": {"nll": 1.5}})])
    frame = load_run(folder).frame()
    assert ([*frame.columns], frame.index.name) == ([*named, "nll"], "trial")
    (folder / "records.jsonl").write_text("", encoding="utf-8")
    assert [*load_run(folder).frame().columns] == named


def test_a_frame_holds_what_the_leaderboard_says() -> None:
    child = {"factors": {"size": 3}, "weights": "inherited", "lineage": {"trial": 0, "flops": 5}}
    run = load_run(write("one", [*NETS["one"], (3, 0.5, 9, child), (4, None, 9, {"status": "nan"})]))
    frame = run.frame()
    assert frame["rank"].dropna().to_dict() == {0: 1, 1: 1, 2: 2, 3: 1}
    assert frame.loc[3, ["factor_size", "weights", "train_flops", "memory", "steps_full"]].tolist() == [
        3, "inherited", 6 * 9 * 8 * 32 + 5, 5, 8,
    ]  # fmt: skip
    assert frame.loc[4, ["rank", "gain", "train_flops"]].isna().all()
    assert run.frame("params,memory")["rank"].dropna().to_dict() == {0: 2, 1: 4, 2: 3, 3: 1}


def test_the_pages_commands_run(alternas: Any) -> None:
    write("small", NETS["one"])
    write("mixed", NETS["two"])
    commands = re.findall(r"^(alternas (?!search)[^#\n]+)", PAGE, re.MULTILINE)
    assert len(commands) == 7
    for command in commands:
        assert alternas(*command.split()[1:])[0] == 0, command


def test_the_page_says_every_field(alternas: Any) -> None:
    write("one")
    write("two")
    row = json.loads(alternas("front", "one", "--json")[1])[0]
    found = json.loads(alternas("compare", "one", "two", "--json")[1])
    assert not [name for name in (*row, *found) if f"`{name}`" not in PAGE]


def test_nothing_is_cut_at_80_columns(alternas: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = "a-first-search-of-everything-with-a-long-name"
    scores = dict.fromkeys(("balanced_accuracy", "macro_f1", "auroc", "top5", "nll", "ece"), 0.5)
    scores |= {f"{part}_{name}": 0.25 for part in ("train", "test") for name in ("accuracy", *scores)}
    net = zoo.get("resnet18", (8, 8))
    own = {"metrics": scores, "genotype": net.to_dict(), "key": net.key}
    write(long, [(0, 0.8, 10**9, own), (1, 0.9, 2 * 10**9, own)])
    write("two", [(0, 0.85, 10**9), (1, 0.86, 10**10)])
    shown = alternas("show", f"{long}:0")[1]
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line}
    assert rows["validation"][:3] == ["0.8000", "0.5000", "0.5000"]
    assert rows["training"] == rows["test"] == ["0.2500"] * 7, "a row of its own, of the same columns"
    for out in (shown, alternas("compare", long, "two")[1]):
        assert "…" not in out
        assert max(map(len, out.splitlines())) <= 80
    many = {f"score_of_my_own_{n}": 0.5 for n in range(9)}
    write("many", [(0, 0.8, 100, own | {"metrics": many})])
    out = alternas("show", "many:0")[1]
    assert "…" not in out
    assert [line.split() for line in out.splitlines() if "own_8" in line] == [["score_of_my_own_8", "0.5000"]]
