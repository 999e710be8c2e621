"""Nets that still rose at the end of their budget: when that is said, where it stands, and what is offered."""

import csv
import json
import re
import shlex
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from alternas.results import load_run
from alternas.results.ranking.compare import compare
from alternas.results.ranking.front import still_rose
from alternas.results.ranking.objectives import RankingQuery
from alternas.results.ranking.run_leaderboard import leaderboard_of
from alternas.results.render.tables import duration
from alternas.results.runs.record import Record
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.training import recipes
from alternas.search.training.job import JobResult, TrainJob
from fakes import FakePool
from runs import drawn_records, made_run

pytestmark = pytest.mark.usefixtures("elsewhere")

RECIPE = recipes.smoke().with_epochs(4).to_dict()  # 32 steps on digits
LINE = re.compile(r"; 4 x the steps would cost (\S+) FLOPs \(about (\S+ \S+) on cpu, as measured here\)")
OFFER = re.compile(r"^train longer: +alternas (.*)$", re.MULTILINE)


def net(*readings: tuple[int, float | None], full: int = 16, **more: Any) -> Record:
    curve: list[Any] = [{"step": step, "loss": 1.0, "accuracy": accuracy} for step, accuracy in readings]
    cost = {"macs": 10, "params": 1}
    return Record(0, "search", "resnet", "k", {}, {}, cost, "ok", curve=curve, budget={"done": full, "full": full})


# A rise from 1/2 to q on n images is beyond two standard deviations where (q - 1/2)^2 > 4 (1/4 + q (1 - q)) / n: with
# d = q - 1/2 where d^2 (1 + 4 / n) > 2 / n, so from d = sqrt(2 / (n + 4)) on.
@pytest.mark.parametrize(("images", "end", "rose"), [
    (100, 0.63, False), (100, 0.64, True),  # sqrt(2 / 104) = 0.1387
    (10_000, 0.514, False), (10_000, 0.515, True),  # 0.01414
    (4, 1.0, False), (5, 1.0, True),  # 0.5, which is not beyond itself, and 0.47
])  # fmt: skip
def test_a_rise_is_held_against_the_noise_of_two_readings(images: int, end: float, rose: bool) -> None:
    assert still_rose(net((8, 0.5), (16, end)), images) is rose


def test_the_last_half_counts_and_nothing_between() -> None:
    early, late = net((4, 0.1), (8, 0.9), (16, 0.9)), net((4, 0.1), (8, 0.1), (16, 0.9))
    assert (still_rose(early, 1000), still_rose(late, 1000)) == (False, True)
    assert still_rose(net((8, 0.5), (12, 0.99), (16, 0.5)), 1000) is False, "what was lost again"
    assert still_rose(net((8, 0.9), (16, 0.1)), 1000) is False
    assert still_rose(net((8, 1.0), (16, 1.0)), 10) is False, "no noise, and no rise"
    assert still_rose(net((39, 0.1), (312, 0.6), (624, 0.8), (625, 0.8), full=625), 4000) is True


@pytest.mark.parametrize(("record", "images"), [
    (net((8, 0.1), (16, 0.9)), 0), (net(), 1000), (net((16, 0.9)), 1000),
    (net((6, 0.1), (10, 0.1), (16, 0.9)), 1000),  # 6 and 10 are an eighth of the budget away
    (net((8, None), (16, 0.9)), 1000), (net((8, 0.1), (16, None)), 1000), (net((8, 0.1), (12, 0.9)), 1000),
])  # fmt: skip
def test_what_is_not_known_is_not_denied(record: Record, images: int) -> None:
    assert still_rose(record, images) is None


@cache
def digits() -> dict[str, Any]:
    return load(DataConfig("digits")).facts()


def run_of(name: str, ends: list[float | None], **told: Any) -> Path:
    """A run of nets of rising cost and accuracy, each with 0.3 at half of 32 steps; None has no reading there."""
    rows = sorted(drawn_records(len(ends), stops=False), key=lambda row: row["cost"]["macs"])
    for i, (row, end) in enumerate(zip(rows, ends, strict=True)):
        row |= {"trial": i, "kind": "search", "accuracy": 0.5 + i / 100, "recipe": RECIPE}
        row["curve"] = [{"step": 16, "loss": 1.0, "accuracy": 0.3}] * (end is not None)
        row["curve"] = [*row["curve"], {"step": 32, "loss": 1.0, "accuracy": end}]
    settings = {"space": "all", "objective": "macs", "recipe": RECIPE} | told
    return made_run(Path(name), rows, settings=settings, data=digits())


def test_rows_say_it_everywhere(alternas: Any, caplog: pytest.LogCaptureFixture) -> None:
    folder = run_of("runs/mine", [0.3, 0.9, None, 0.9])
    rows = json.loads(alternas("front", "mine", "--json")[1])
    assert [row["rising"] for row in rows] == [False, True, None, True]
    assert {"trial", "key", "accuracy", "macs", "params", "rank", "gain", "gain_bound", "weights"} <= set(rows[0])
    (told,) = caplog.messages
    assert told.startswith("2 of 4 nets on the front still rose at the end of 32 steps (1 unknown)")
    assert told.endswith(": alternas retrain mine --trials 1,3 --epochs 16 --seeds 1")
    assert load_run("mine").frame()["rising"].tolist() == [False, True, None, True]
    assert [json.loads(alternas("show", "mine", str(i), "--json")[1])["rising"] for i in range(4)] == [
        False, True, None, True,
    ]  # fmt: skip
    assert "and still rose at the end" in alternas("show", "mine", "1")[1]
    shutil.copytree(folder, "runs/other")
    assert [row.rising for row in compare(["mine", "other"], RankingQuery()).front].count(True) == 4
    assert "4 of 8 nets on the front still rose" in " ".join(alternas("compare", "mine", "other")[1].split())
    facts = json.loads(alternas("report", "mine", "--assets", "plots", "--json")[1])
    assert facts["rising"] == 2
    page = Path(facts["page"]).read_text(encoding="utf-8")
    assert told.split(";")[0] in page.replace("2 Of", "2 of")
    assert "alternas retrain mine --trials 1,3 --epochs 16 --seeds 1" in re.sub("<[^>]+>", "", page)
    with open("plots/nets.csv", encoding="utf-8") as file:
        assert [row["rising"] for row in csv.DictReader(file)] == ["False", "True", "", "True"]


@pytest.mark.parametrize(("ends", "said"), [
    ([0.3, 0.3], "no net on the front still rose at the end of its training"),
    ([0.3, None], "no net on the front still rose at the end of its training (1 unknown)"),
    ([None, None], "whether nets on the front still rose at the end of their training is unknown"),
])  # fmt: skip
def test_nothing_is_offered_where_no_net_rose(
    alternas: Any, caplog: pytest.LogCaptureFixture, ends: list[float | None], said: str
) -> None:
    run_of("runs/mine", ends)
    out = alternas("leaderboard", "mine")[1]
    assert said in " ".join(out.split())
    assert "retrain mine" not in out
    assert alternas("front", "mine", "--json")[0] == 0
    assert caplog.messages == [], "the rows say it"


def test_no_front_and_a_front_of_costs_alone_say_nothing(alternas: Any) -> None:
    run_of("runs/mine", [0.9, 0.9])
    for words in (["--max-macs", "7"], ["--objectives", "macs,params"]):
        assert "rose" not in alternas("front", "mine", *words)[1]


@pytest.fixture
def trained(fake_pool: type[FakePool]) -> list[TrainJob]:
    """What commands train: every net comes out well."""
    fake_pool.fate_of_all = staticmethod(lambda job: JobResult(job.id, "ok", job.stop_step, 0.9))
    return fake_pool.jobs_of_all


def test_the_command_that_is_offered_costs_what_is_said(alternas: Any, trained: list[TrainJob]) -> None:
    """What `retrain` counts before it starts, from its plan and the nets, is what the front said, from the records."""
    folder = run_of("runs/mine", [0.9, 0.3, 0.9])
    nets = {row.trial: row.key for row in leaderboard_of(folder).rows}
    out = alternas("front", "mine")[1]
    (flops, time), (command,) = LINE.findall(" ".join(out.split()))[0], OFFER.findall(out)
    assert time == "26 s"  # two nets of 3.2 s each
    code, out, err = alternas(*shlex.split(command))
    assert code == 0, err
    assert f"2 trainings, {flops} FLOPs" in out
    assert [(job.genotype.key, job.total_steps) for job in trained] == [(nets[0], 128), (nets[2], 128)]
    out = alternas("front", "mine")[1]
    assert "2 of 3 nets on the front still rose at the end of 32 steps" in " ".join(out.split())
    assert not OFFER.search(out), "done"


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize("name", ["runs/deep/mine", "here", "a run; of mine"])
def test_a_run_is_named_so_that_the_command_finds_it(alternas: Any, name: str) -> None:
    run_of(name, [0.9, 0.9])
    (command,) = OFFER.findall(alternas("front", name)[1])
    assert alternas(*shlex.split(command))[0] == 0
    assert (Path(name) / "retrain" / "records.jsonl").exists()


def test_what_cannot_be_retrained_is_not_offered(alternas: Any) -> None:
    for name, settings, data in (("study", {"recipe": None}, {}), ("url", {}, {"name": "wds/https://x/{0..9}.tar"})):
        folder = run_of(f"runs/{name}", [0.9, 0.9], **settings)
        told = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        (folder / "run.json").write_text(json.dumps(told | {"data": digits() | data}), encoding="utf-8")
        out = alternas("front", name)[1]
        assert "2 of 2 nets on the front still rose" in out
        assert "retrain " not in out


def test_inherited_nets_are_priced_from_scratch(alternas: Any) -> None:
    """They took half of the steps, and their ancestors 32: they are to take four times as many as both."""
    folder = run_of("runs/mine", [0.3, 0.9])
    rows = rows_of(folder)
    rows[1] |= {"weights": "inherited", "budget": {"done": 16, "full": 16}, "seconds": 2.0}
    rows[1] |= {"lineage": {"trial": 0, "steps": 32, "flops": 9}}
    rows[1]["curve"] = [point | {"step": point["step"] // 2} for point in rows[1]["curve"]]
    written(folder, rows)
    out = " ".join(alternas("front", "mine")[1].split())
    assert "1 of 2 nets on the front still rose at the end of 48 steps" in out
    assert LINE.findall(out)[0] == (f"{6 * rows[1]['cost']['macs'] * 128 * 192:.2g}", "24 s")


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "records.jsonl").read_text(encoding="utf-8").splitlines()]


def written(folder: Path, rows: list[dict[str, Any]]) -> None:
    (folder / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def trained_on(row: dict[str, Any], trial: int, steps: int, accuracy: float, source: str = "") -> dict[str, Any]:
    """The record of a net that was trained on for so many steps from its own weights, and still rose."""
    curve = [{"step": at, "loss": 1.0, "accuracy": end} for at, end in ((steps // 2, 0.3), (steps, 0.9))]
    lineage = {"weights": f"trial {row['trial']}", "trial": row["trial"], "steps": row["budget"]["done"]}
    more = {"trial": trial, "weights": "finetuned", "accuracy": accuracy, "curve": curve, "lineage": lineage}
    return row | more | {"genes": {}, "budget": {"done": steps, "full": steps}, "seconds": steps / 10}


def test_steps_before_a_net_was_trained_on_count(alternas: Any, trained: list[TrainJob]) -> None:
    """32 steps and 368 on: 4 x are 1,600 from fresh weights, in the sentence, its cost and the command."""
    folder = run_of("runs/mine", [0.3, 0.3, 0.9])
    rows = rows_of(folder)
    written(folder, [*rows, trained_on(rows[1], 3, 368, 0.515)])
    out = alternas("front", "mine")[1]
    told = " ".join(out.split())
    assert "2 of 3 nets on the front still rose at the end of 32 to 400 steps" in told
    assert "; 4 x the most of these steps would cost" in told
    (command,) = OFFER.findall(out)
    assert command == "retrain mine --trials 3,2 --epochs 200 --seeds 1"
    code, out, err = alternas(*shlex.split(command))
    assert code == 0, err
    assert {job.genotype.key: job.total_steps for job in trained} == {rows[1]["key"]: 1600, rows[2]["key"]: 1600}
    (flops,) = re.findall(r"would cost (\S+) FLOPs", told)
    assert f"2 trainings, {flops} FLOPs" in out
    assert not OFFER.search(alternas("front", "mine")[1]), "done"


def test_steps_that_nobody_knows_offer_no_command(alternas: Any) -> None:
    """Of a start from outside, and of slices, each of which was in some of its bank's steps."""
    folder = run_of("runs/mine", [0.3, 0.9])
    rows = rows_of(folder)
    for source, lineage in (
        ({}, {"weights": "timm", "steps": None}),
        ({"weights": "shared"}, {"trial": 0, "steps": 9}),
    ):
        written(folder, [rows[0] | source, rows[1] | {"weights": "inherited", "lineage": lineage}])
        out = alternas("front", "mine")[1]
        assert "1 of 2 nets on the front still rose at the end of their training" in " ".join(out.split())
        assert not OFFER.search(out)


def test_times_in_the_unit_that_reads_best() -> None:
    assert [duration(s) for s in (3.4, 119, 120, 840, 7199, 7200, 11520)] == [
        "3 s", "119 s", "2 min", "14 min", "120 min", "2 h", "3.2 h",
    ]  # fmt: skip


@pytest.mark.parametrize("images", [5, {"val": "many"}, {"val": -1}, {"val": True}])
def test_image_counts_that_are_none_are_named(alternas: Any, images: Any) -> None:
    folder = run_of("runs/mine", [0.9])
    told = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (folder / "run.json").write_text(json.dumps(told | {"data": digits() | {"images": images}}), encoding="utf-8")
    code, _, err = alternas("front", "mine")
    assert code == 2
    assert "data: images must" in err
