"""Experiment trackers: what one is told, what a later session sends, and what MLflow and W&B themselves hold then."""

import json
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from alternas.archs import InputError
from alternas.results.ranking.pareto import hypervolume
from alternas.results.runs.record import Record
from alternas.results.runs.status import UNTRAINED
from alternas.results.runs.store import read_records
from alternas.search.tracking import tracker as tracker_file
from alternas.search.tracking import view as view_file
from alternas.search.tracking.front_scalars import round_costs
from alternas.search.tracking.tracker import RUN, Notes, Points, Results, Tracker, check_trackers
from alternas.search.tracking.view import TrackingView, follow, trackers
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import get
from fakes import FakeExecutor, FakePool, KilledError, SilentView, run_loop
from runs import made_run

Open = Callable[..., SearchTrials]


class ServerGoneError(Exception):
    """Of a tracker's own."""


class Server(Tracker):
    """A tracker whose server is a class; it fails at the calls that `fails_at` names, counted over all sessions."""

    runs: ClassVar[dict[str, dict[str, Any]]] = {}
    fails_at: ClassVar[tuple[int, ...]] = ()
    calls: ClassVar[int] = 0

    def __init__(self, folder: Path) -> None:
        super().__init__("server", folder, "here")

    def _called(self) -> None:
        type(self).calls += 1
        if self.calls in self.fails_at:
            raise ServerGoneError("no route to http://me:hidden@host")

    def _open(self, id: str, label: str, params: Any, parent: str) -> str:
        if id:
            self.runs[id]["state"] = "open"
            return id
        self._called()
        id = f"id-{len(self.runs)}"
        self.runs[id] = {"label": label, "params": params, "parent": parent, "points": [], "state": "open"}
        return id

    def _send(self, id: str, points: Points) -> None:
        self._called()
        assert self.runs[id]["state"] == "open"
        self.runs[id]["points"] += points

    def _rest(self, id: str, results: Results | None) -> None:
        if results is None:
            self.runs[id]["state"] = "rests"
            return
        self._called()
        self.runs[id] |= {"state": "finished", "results": results}

    def _close(self, id: str, ended: bool, report: Path | None) -> None:
        self.runs[id] |= {"state": "finished" if ended else "stopped", "report": report}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> type[Server]:
    """Stands in for every tracker; it has nothing yet."""
    monkeypatch.setattr(view_file, "open_tracker", lambda name, folder: Server(folder))
    for name, value in (("runs", {}), ("fails_at", ()), ("calls", 0)):
        monkeypatch.setattr(Server, name, value)
    return Server


def searched(controller: SearchTrials, fate: Callable[[TrainJob], Any] = lambda job: None, **told: Any) -> None:
    """Run a search with a tracker."""
    made_run(controller.folder, None, **told)
    with trackers(("mlflow",), controller) as threads:
        view = TrackingView(SilentView(), controller.folder, controller.live, threads)
        run_loop(controller, FakeExecutor(fate=fate), view)


def by_label(runs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    assert not [label for label, n in Counter(run["label"] for run in runs.values()).items() if n > 1]
    return {run["label"]: run for run in runs.values()}


def check_all_is_there(server: type[Server], controller: SearchTrials) -> None:
    """Each training has a run of its own, each point of its curve once, and what came of it."""
    runs, (whole,) = by_label(server.runs), [run for run in server.runs.values() if not run["parent"]]
    for record in controller.store.records:
        if record.status in UNTRAINED:
            assert f"trial-{record.trial:05d}" not in runs
            continue
        run = runs[f"trial-{record.trial:05d}"]
        steps = [step for step, _ in run["points"]]
        assert steps == sorted(set(steps))
        assert run["parent"] in server.runs
        assert {"key": record.key, "kind": record.kind, **record.genes}.items() <= run["params"].items()
        values = {"accuracy": record.accuracy, "cost/macs": record.cost["macs"], "nll": 0.5}
        assert values.items() <= run["results"].values.items()
        assert (run["state"], run["results"].status) == ("finished", record.status)
        for seed, accuracy in record.accuracies.items():
            if int(seed) != record.seed:
                assert runs[f"trial-{record.trial:05d}-seed-{seed}"]["results"].values["accuracy"] == accuracy
    ended = [record for record in controller.store.records if record.status == "ok"]
    assert [step for step, _ in whole["points"]] == list(range(1, len(ended) + 1))
    for step, values in whole["points"]:
        check_front(values, ended[:step])


def check_front(values: dict[str, float], ended: list[Record]) -> None:
    nets = [(record.accuracy or 0.0, float(record.cost["macs"])) for record in ended]
    assert values["front/hypervolume"] == pytest.approx(hypervolume(nets, 0.1), abs=1e-12)
    assert values["front/best_accuracy"] == max(accuracy for accuracy, _ in nets)
    assert values["front/nets"] == len(
        {
            (accuracy, cost)
            for accuracy, cost in nets
            if not any(a >= accuracy and c <= cost and (a, c) != (accuracy, cost) for a, c in nets)
        }
    )
    if "front/accuracy_up_to_100k_macs" in values:
        assert values["front/accuracy_up_to_100k_macs"] == max(accuracy for accuracy, cost in nets if cost <= 1e5)
    assert any(name.startswith("front/accuracy_up_to_") for name in values) == bool(
        round_costs(min(c for _, c in nets), max(c for _, c in nets))
    )


@pytest.mark.parametrize("scheduler", ["none", "mo-asha"])
@pytest.mark.parametrize("tracked_from", [0, 1, 2], ids=["always", "second session", "third"])
def test_a_search_that_is_killed_has_everything_once(
    open_controller: Open, server: type[Server], scheduler: str, tracked_from: int
) -> None:
    """Also where trackers are told from a later session on."""
    left = [9, 13]

    def fate(job: TrainJob) -> None:
        left[0] -= 1
        if not left[0]:
            raise KilledError

    for session in range(4):
        controller = open_controller(get("resnet", 8), trials=10, scheduler=scheduler)
        with suppress(KilledError):
            if session >= tracked_from:
                searched(controller, fate)
            else:
                run_loop(controller, FakeExecutor(fate=fate), SilentView())
        if left[0] <= 0 and len(left) > 1:
            left.pop(0)
        runs = [run for run in server.runs.values() if not run["parent"]]
        assert [run["state"] for run in runs] == (
            [] if session < tracked_from else ["finished" if controller.complete else "stopped"]
        )
    assert controller.complete
    check_all_is_there(server, controller)


@pytest.mark.parametrize("fails_at", [3, 8, 11, 20])
def test_a_server_that_goes_is_a_warning_and_gets_the_rest_later(
    open_controller: Open, server: type[Server], caplog: pytest.LogCaptureFixture, fails_at: int
) -> None:
    server.fails_at = (fails_at,)
    controller = open_controller(get("resnet", 8), trials=6)
    searched(controller)
    assert controller.complete
    assert len([r for r in controller.store.records if r.status == "ok"]) == 6 + len(controller.baselines)
    (line,) = [r.getMessage() for r in caplog.records if "track" in r.getMessage() and "report" not in r.getMessage()]
    assert "mlflow failed" in line
    assert "hidden" not in line
    caplog.clear()
    searched(open_controller(get("resnet", 8), trials=6))
    assert not [r for r in caplog.records if "failed" in r.getMessage()]
    check_all_is_there(server, controller)


def test_failures_and_further_tries_have_their_status(open_controller: Open, server: type[Server]) -> None:
    controller = open_controller(get("resnet", 8), trials=3)
    first = len(controller.baselines)

    seen = list[int]()

    def fate(job: TrainJob) -> Any:
        seen.extend([job.trial] * (job.trial >= first))
        return JobResult(job.id, "nan", error="loss is nan") if job.trial >= first and len(seen) == 2 else None

    assert first
    searched(controller, fate)
    (record,) = [r for r in controller.store.records if r.status == "nan"]
    results = by_label(server.runs)[f"trial-{record.trial:05d}"]["results"]
    assert (results.status, results.error) == ("nan", "loss is nan")
    assert "accuracy" not in results.values


def test_another_metric_is_told_as_people_know_it(open_controller: Open, server: type[Server]) -> None:
    """Records hold its score, minus the value where less is better."""
    from alternas.results.ranking.metric import Metric

    controller = open_controller(get("resnet", 8), trials=2, metric=Metric("error", minimize=True))
    searched(controller, settings={"metric": {"name": "error", "minimize": True}})
    runs = by_label(server.runs)
    for record in (r for r in controller.store.records if r.status == "ok"):
        run = runs[f"trial-{record.trial:05d}"]
        assert run["results"].values["error"] == -(record.accuracy or 0.0)
        assert run["points"][-1][1]["validation/error"] == -(record.curve[-1]["accuracy"] or 0.0)
    (whole,) = [run for run in server.runs.values() if not run["parent"]]
    assert whole["points"][-1][1]["front/best_error"] == -max(r.accuracy or 0.0 for r in controller.store.records)


def test_a_plan_that_is_tried_again_goes_on_in_the_same_runs(
    alternas: Any, fake_pool: type[FakePool], server: type[Server], elsewhere: None
) -> None:
    words = ["study", "windows", "--data", "digits", "--quick", "--seeds", "2", "--epochs", "1", "--name", "mine"]
    fake_pool.fate_of_all = staticmethod(lambda job: JobResult(job.id, "error", error="so") if job.seed == 1 else None)
    assert alternas(*words, "--track", "mlflow")[0] == 0
    fake_pool.fate_of_all = staticmethod(lambda job: None)
    assert alternas(*words, "--track", "mlflow")[0] == 0
    runs = by_label(server.runs)
    assert len(runs) == 7
    assert {run["results"].status for label, run in runs.items() if label != "mine"} == {"ok"}
    assert all(len(run["points"]) == 1 for label, run in runs.items() if label != "mine")
    assert runs["mine"]["params"]["data.name"] == "digits"


@pytest.mark.usefixtures("elsewhere")
def test_bad_trackers_are_one_line(alternas: Any, monkeypatch: pytest.MonkeyPatch, fake_pool: type[FakePool]) -> None:
    words = ("search", "resnet", "--data", "digits", "--trials", "1", "--name", "mine")
    for name in ("nothing", "mlflow,,nothing"):
        code, out, err = alternas(*words, "--track", name)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "'mlflow', 'wandb', 'tensorboard'" in err or "mlflow, wandb, tensorboard" in err
    monkeypatch.setattr(tracker_file, "find_spec", lambda name: None)
    code, out, err = alternas(*words, "--track", "wandb")
    assert (code, out) == (2, "")
    assert err == 'alternas: track: wandb needs the package wandb: pip install "alternas[wandb]"\n'
    assert not Path("runs").exists()
    monkeypatch.setattr(tracker_file, "find_spec", lambda name: name)

    def refused(name: str, folder: Path) -> Any:
        raise ServerGoneError("no such\nserver")

    monkeypatch.setattr(view_file, "open_tracker", refused)
    code, _, err = alternas(*words, "--track", "mlflow")
    assert (code, err) == (2, "alternas: track: mlflow cannot be opened: no such server\n")
    assert check_trackers(["mlflow", "mlflow", "tensorboard"]) == ("mlflow", "tensorboard")


@pytest.mark.parametrize("cut", [0, 7, 30])
def test_a_run_that_is_followed_from_outside_has_everything_once(
    open_controller: Open, server: type[Server], monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """From its first lines, the middle or its end, and again once it is over: what `--track` sends but for ticks."""
    controller = open_controller(get("resnet", 8), trials=6, scheduler="mo-asha")
    run_loop(controller, FakeExecutor(), SilentView())
    log = controller.folder / "records.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:cut]) + b'{"event": "st')  # a line that is being written
    made_run(controller.folder, None)
    waits = list[float]()

    def go_on(seconds: float) -> None:
        waits.append(seconds)
        log.write_bytes(b"".join(lines[: cut + 5 * len(waits)]))
        made_run(controller.folder, None, cut + 5 * len(waits) >= len(lines))

    monkeypatch.setattr(time, "sleep", go_on)
    follow(controller.folder, "mlflow")
    assert len(waits) == max(1, -(-(len(lines) - cut) // 5))
    check_all_is_there(server, controller)
    for record in controller.store.records:
        points = by_label(server.runs)[f"trial-{record.trial:05d}"]["points"]
        assert [step for step, _ in points] == [point["step"] for point in record.curve]
    before = {id: dict(run) for id, run in server.runs.items()}
    follow(controller.folder, "mlflow")
    assert {id: run | {"report": None} for id, run in server.runs.items()} == {
        id: run | {"report": None} for id, run in before.items()
    }


def test_following_a_run_ends_in_a_line(
    alternas: Any, open_controller: Open, server: type[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = open_controller(get("resnet", 8), trials=2)
    run_loop(controller, FakeExecutor(), SilentView())
    words = ("track", str(made_run(controller.folder, None)))
    assert alternas("track", "none", "mlflow")[0] == 2
    assert alternas(*words, "nothing")[:2] == (2, "")

    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", stop)
    assert alternas(*words, "mlflow") == (130, "", "alternas: stopped; the same command resumes\n")
    assert {run["state"] for run in server.runs.values()} == {"finished", "stopped"}
    server.fails_at = (server.calls + 1,)
    with (controller.folder / "records.jsonl").open("ab") as log:
        record = {**controller.store.records[-1].to_dict(), "trial": 99}
        log.write((json.dumps(record) + "\n").encode())
    code, _, err = alternas(*words, "mlflow")
    assert (code, err.count("\n")) == (1, 1)
    assert "track: mlflow failed: " in err
    assert "hidden" not in err
    (controller.folder / "records.jsonl").write_text("broken\n", encoding="utf-8")
    code, _, err = alternas(*words, "mlflow")
    assert (code, err.count("\n")) == (2, 1)
    assert "line 1 is broken" in err


def test_notes_survive_a_torn_line_and_tell_places_apart(tmp_path: Path) -> None:
    path = tmp_path / "tracking" / "x.jsonl"
    notes = Notes(path, "a")
    notes.change(RUN, id="1")
    notes.change(RUN, step=5)
    Notes(path, "b").change(RUN, id="2")
    with path.open("ab") as file:
        file.write(b'{"where": "a", "na')
    again, other = Notes(path, "a").get(RUN), Notes(path, "b").get(RUN)
    assert again is not None
    assert other is not None
    assert (again.id, again.step, other.id, other.step) == ("1", 5, "2", -1)
    assert path.read_bytes().endswith(b"\n")
    for line in ("[]", "{}", '{"where": "a", "name": "", "id": "1", "step": "5"}', "x"):
        path.write_text(line + "\n", encoding="utf-8")
        with pytest.raises(InputError, match="line 1 is broken"):
            Notes(path, "a")


# The real ones, with a pool that trains nothing.

SEARCH = "search resnet --data digits --trials 4 --epochs 1 --scheduler mo-asha --name mine --track"


def killed_and_resumed(alternas: Any, fake_pool: type[FakePool], name: str) -> list[Record]:
    """A search that is stopped in the middle and goes on, then is asked for once more; its records."""

    def stop(job: TrainJob) -> None:
        if len(fake_pool.jobs_of_all) == 7:
            raise KeyboardInterrupt

    fake_pool.fate_of_all = staticmethod(stop)
    assert alternas(*SEARCH.split(), name)[0] == 130
    for _ in range(2):
        code, _, err = alternas(*SEARCH.split(), name)
        assert (code, [line for line in err.splitlines() if "track" in line]) == (0, [])
    return read_records(Path("runs/mine"))


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
def test_mlflow_itself(alternas: Any, fake_pool: type[FakePool], monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///here.db")
    records = killed_and_resumed(alternas, fake_pool, "mlflow")
    client = mlflow.MlflowClient("sqlite:///here.db")
    runs = client.search_runs([client.get_experiment_by_name("alternas").experiment_id])
    named = {run.info.run_name: run for run in runs}
    assert len(named) == len(runs)
    whole = named.pop("mine")
    assert (whole.info.status, whole.data.params["space"], whole.data.params["recipe.epochs"]) == (
        "FINISHED", "resnet", "1.0",
    )  # fmt: skip
    assert [file.path for file in client.list_artifacts(whole.info.run_id)] == ["report.html"]
    for record in records:
        run = named[f"trial-{record.trial:05d}"]
        assert run.data.tags["mlflow.parentRunId"] == whole.info.run_id
        assert (run.info.status, run.data.tags["status"]) == ("FINISHED", record.status)
        assert run.data.metrics["accuracy"] == record.accuracy
        assert run.data.metrics["cost/macs"] == record.cost["macs"]
        assert run.data.params["key"] == record.key
        history = client.get_metric_history(run.info.run_id, "validation/accuracy_ema")
        known = {point["step"]: point["accuracy"] for point in record.curve}
        assert [point.step for point in history] == sorted({point.step for point in history})
        assert all(point.value == known[point.step] for point in history)
        assert history[-1].step == record.budget["done"]
    volumes = client.get_metric_history(whole.info.run_id, "front/hypervolume")
    assert [point.step for point in volumes] == list(range(1, 1 + sum(r.status == "ok" for r in records)))


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
def test_weights_and_biases_itself(alternas: Any, fake_pool: type[FakePool], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    records = killed_and_resumed(alternas, fake_pool, "wandb")
    names, groups, steps = dict[str, str](), set[str](), defaultdict[str, list[int]](list)
    summaries, uploads = defaultdict[str, dict[str, Any]](dict), list[str]()
    for path in sorted(Path("wandb").glob("offline-run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime_ns):
        for entry in wandb_entries(path.read_bytes()):
            id, kind = path.stem.removeprefix("run-"), entry.WhichOneof("record_type")
            if kind == "run":
                groups.add(entry.run.run_group)
                names[id] = entry.run.display_name or names[id]
            elif kind == "history":
                steps[id] += [entry.history.step.num] * any("/" in item.nested_key[0] for item in entry.history.item)
            elif kind == "summary":
                summaries[id] |= {item.key or item.nested_key[0]: item.value_json for item in entry.summary.update}
            elif kind == "artifact":
                uploads += [file.path for file in entry.artifact.manifest.contents]
    assert len(set(names.values())) == len(names)
    assert len(groups) == 1
    assert uploads == ["report.html"]
    ids = {name: id for id, name in names.items()}
    for record in records:
        id = ids[f"trial-{record.trial:05d}"]
        assert steps[id] == sorted(set(steps[id]))
        assert steps[id][-1] == record.budget["done"]
        assert json.loads(summaries[id]["accuracy"]) == pytest.approx(record.accuracy)
        assert json.loads(summaries[id]["status"]) == record.status
    assert steps[ids["mine"]] == list(range(1, 1 + sum(r.status == "ok" for r in records)))


def wandb_entries(data: bytes) -> Iterator[Any]:
    """What a file of an offline run holds: LevelDB's log format after seven bytes, with messages of W&B's."""
    from wandb.proto import wandb_internal_pb2

    at, whole = 7, b""
    while at + 7 <= len(data):
        if (room := 32768 - at % 32768) < 7:
            at += room
            continue
        _, length, part = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if part in (1, 4):  # a whole one, or the last part of one
            yield wandb_internal_pb2.Record.FromString(whole)  # pyright: ignore[reportAttributeAccessIssue]
            whole = b""


@pytest.mark.usefixtures("elsewhere")
def test_weights_and_biases_asks_for_no_login(
    alternas: Any, fake_pool: type[FakePool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a command nobody may be there to answer."""
    wandb = pytest.importorskip("wandb")
    wandb.teardown()  # what it keeps of other tests
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(Path("none").absolute()))
    code, _, err = alternas(*SEARCH.split(), "wandb")
    line = "not logged in: `wandb login`, or WANDB_MODE=offline"
    assert (code, err) == (2, f"alternas: track: wandb cannot be opened: {line}\n")
