"""`alternas.search` and what it returns: the command from Python, its runs and nets as objects."""

import base64
import html
import inspect
import json
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch

import alternas
from alternas.archs import Genotype, build, zoo
from alternas.archs.timm_net import TimmNet
from alternas.archs.weights import save
from alternas.results.runs.store import read_records, read_settings, weights_file
from alternas.search.data.dataset import DataConfig
from alternas.search.data.readers.registry import DEFAULT
from alternas.search.default import UNLIMITED
from alternas.search.known_nets import StartWith
from alternas.search.run_config import Budget, RunConfig
from alternas.search.spec import SearchSpec, Supernet
from alternas.search.training.job import JobResult
from command_line import ALTERNAS
from fakes import FakePool

TIMES = ("seconds", "started_at", "finished_at", "runtime", "curve", "versions")
OPTIONS = dict(data="digits", trials=4, epochs=1, max_macs="300k", seed=3, strategy="random")
WORDS = "--data digits --trials 4 --epochs 1 --max-macs 300k --seed 3 --strategy random"

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def run(fake_pool: type[FakePool]) -> alternas.SavedRun:
    """A search of nets that nobody trained."""
    return alternas.search("resnet", name="mine", **OPTIONS)


def records(name: str) -> list[dict[str, Any]]:
    """All but the times."""
    return [
        {key: value for key, value in record.to_dict().items() if key not in TIMES}
        for record in read_records(Path("runs") / name)
    ]


def test_the_options_are_the_commands() -> None:
    help_text = subprocess.run([*ALTERNAS, "search", "--help-all"], capture_output=True, text=True, check=True).stdout
    listed = set(re.findall(r"^ {2}--([\w-]+)", help_text, re.MULTILINE)) - {"help", "json", "config", "help-all"}
    ours = inspect.signature(alternas.search).parameters
    assert {name.rstrip("_") for name in ours} == {"space"} | {name.replace("-", "_") for name in listed}
    assert (ours["data"].default, ours["repeats"].default, ours["objective"].default) == (DEFAULT, 1, ("macs",))
    assert "with_" in ours, "a word of Python's"
    assert all(f"    {name}: " in (alternas.search.__doc__ or "") for name in ours)


def test_values_are_python_s_own_or_as_they_are_typed() -> None:
    net = zoo.get("resnet18", 32)
    spec = alternas.search_spec(
        "resnet", data="digits", trials=None, max_macs=np.int64(20_000_000), max_latency_ms=["board=3", "phone=4"],
        scheduler="asha", rungs=(0.25, "1/2"), repeats=2, start_with=[net, net], epochs=2, with_="timm:resnet18",
        objective=["macs", "params"], latency_command=["board=./b {model}", "phone=./p {model}"],
    )  # fmt: skip
    assert spec.limits == {"macs": 20_000_000, "latency_ms@board": 3, "latency_ms@phone": 4}
    assert (spec.trials, spec.rungs, spec.costs) == (16, (0.25, 0.5), ("macs", "params"))
    assert (spec.start_with, spec.references) == (StartWith(nets=(net, net)), (TimmNet("resnet18"),))
    assert alternas.search_spec(spec) is spec
    typed = alternas.search_spec("resnet", data="digits", max_macs="20M", objective="macs,params", supernet="8")
    assert (typed.limits, typed.costs, typed.supernet) == ({"macs": 20_000_000}, ("macs", "params"), Supernet(8.0))


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.whole
@pytest.mark.parametrize(("options", "fields", "settled"), [
    ({}, {}, ("evolution", "none", 16, True, 0.4)),
    ({"trials": 40}, {"trials": 40}, ("evolution", "mo-asha", 40, True, 0.4)),
    (
        {"max_train_flops": 10**12},
        {"run": RunConfig(budget=Budget(train_flops=1e12))},
        ("evolution-per-cost", "none", UNLIMITED, True, 0.4),
    ),
    ({"supernet": "8"}, {"supernet": Supernet(8.0)}, ("evolution", "none", UNLIMITED, False, 0.4)),
    ({"strategy": "buildup"}, {"strategy": "buildup"}, ("buildup", "none", 16, False, 0.0)),
    ({"alone": True}, {"inherit": False}, ("evolution", "none", 16, False, 0.0)),
    ({"data": "cue", "space": "bench"}, {"data": DataConfig("cue"), "space": "bench"}, None),
])  # fmt: skip
def test_a_spec_has_the_defaults_of_the_command(options: Any, fields: Any, settled: tuple[Any, ...] | None) -> None:
    spec = SearchSpec(**fields)
    assert spec == alternas.search_spec(**options)
    if settled:
        assert (spec.strategy, spec.scheduler, spec.trials, spec.inherit, spec.polish) == settled


@pytest.mark.parametrize(("options", "message"), [
    ({"max_mac": "2M"}, "did you mean 'max_macs'"),
    ({"json": True}, "unknown value 'json'"),
    ({"trials": "four"}, "trials must be a whole number, got 'four'"),
    ({"inherit": "yes"}, "inherit must be true or false, got 'yes'"),
    ({"data": {}}, "data must be a text, got {}"),
    ({"max_macs": 1.5}, "max-macs: must be a positive amount .* got 1.5"),
    ({"rungs": True}, "rungs: must be a text or a list of texts, got True"),
    ({"start_with": "[1]"}, "start-with: JSON: must hold genotypes"),
])  # fmt: skip
def test_wrong_options(options: dict[str, Any], message: str, fake_pool: Any, capsys: Any) -> None:
    with pytest.raises(alternas.InputError, match=message) as caught:
        alternas.search("resnet", **options)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""
    assert not Path("runs").exists()


def test_the_same_records_as_the_command(run: alternas.SavedRun, alternas: Any) -> None:
    code, _, err = alternas("search", "resnet", "--name", "typed", *WORDS.split())
    assert code == 0, err
    assert records("mine") == records("typed")
    assert len(records("mine")) > 4
    assert read_settings(run.folder)["settings"] == read_settings(Path("runs/typed"))["settings"]


def test_the_command_of_a_run_is_the_call_and_stands_in_its_report(run: alternas.SavedRun) -> None:
    facts = read_settings(run.folder)
    options = ", ".join(f"{name}={value!r}" for name, value in OPTIONS.items())
    assert facts["command"] == [f"alternas.search(space='resnet', name='mine', {options})"]
    assert run.report() == run.folder / "report.html"
    assert run.report("page.html") == Path("page.html")
    assert facts["command"][0] in html.unescape(Path("page.html").read_text(encoding="utf-8"))


def test_stopped_with_ctrl_c_the_same_call_resumes(fake_pool: type[FakePool], monkeypatch: pytest.MonkeyPatch) -> None:
    alternas.search("resnet", name="whole", **OPTIONS)
    left = iter(range(3))

    def fate(job: Any) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(FakePool, "fate_of_all", staticmethod(fate))
    with pytest.raises(KeyboardInterrupt):
        alternas.search("resnet", name="mine", **OPTIONS)
    before = records("mine")
    assert before
    monkeypatch.setattr(FakePool, "fate_of_all", staticmethod(lambda job: None))
    with pytest.raises(alternas.InputError, match="seed is 3 there, 4 here"):
        alternas.search("resnet", name="mine", **OPTIONS | {"seed": 4})
    alternas.search("resnet", name="mine", **OPTIONS)
    assert records("mine")[: len(before)] == before
    assert records("mine") == records("whole")


def test_of_two_threads_the_second_is_refused(fake_pool: type[FakePool], monkeypatch: pytest.MonkeyPatch) -> None:
    began, refused = Event(), Event()

    def wait(job: Any) -> None:
        began.set()
        assert refused.wait(60)

    monkeypatch.setattr(fake_pool, "fate_of_all", staticmethod(wait))
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(alternas.search, "resnet", name="first", **OPTIONS)
        assert began.wait(60)
        with pytest.raises(alternas.InputError, match="another one runs in this process"):
            alternas.search("resnet", name="second", **OPTIONS)
        refused.set()
        assert len(first.result().front())
    assert not Path("runs/second").exists()
    assert len(alternas.search("resnet", name="second", **OPTIONS).front()), "the process is sound"


def test_a_search_in_which_all_fails(fake_pool: type[FakePool], monkeypatch: pytest.MonkeyPatch) -> None:
    fate = staticmethod(lambda job: JobResult(job.id, "error", error="because"))
    monkeypatch.setattr(FakePool, "fate_of_all", fate)
    with pytest.raises(alternas.OperationError, match="because"):
        alternas.search("resnet", name="mine", **OPTIONS)


def test_frames_are_the_rows_of_the_commands(run: alternas.SavedRun, alternas: Any) -> None:
    rows = json.loads(alternas("front", "mine", "--json")[1])
    ours = json.loads(run.front().reset_index().to_json(orient="records", double_precision=15))
    assert [same(row) for row in ours] == [same(row) for row in rows]
    assert run.front("params,memory").index.tolist() == [
        row["trial"] for row in json.loads(alternas("front", "mine", "--objective", "params,memory", "--json")[1])
    ]
    assert run.frame().index.tolist() == [record["trial"] for record in records("mine")]


def same(row: dict[str, Any]) -> dict[str, Any]:
    """A row to 12 digits: a frame has floats where a number may be missing."""
    return {name: round(float(value), 12) if isinstance(value, int | float) else value for name, value in row.items()}


def test_a_run_without_a_front(run: alternas.SavedRun) -> None:
    (run.folder / "records.jsonl").write_text("", encoding="utf-8")
    assert (len(run.front()), len(run.frame())) == (0, 0)
    assert "no net has been trained" in run._repr_html_()
    with pytest.raises(alternas.InputError, match="no trained net"):
        run.best()
    with pytest.raises(alternas.InputError, match="no run 'photos' in runs/ here"):
        alternas.load_run("photos")


@pytest.mark.slow
def test_the_best_net(run: alternas.SavedRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    best = run.best()
    assert best.trial == run.front()["accuracy"].idxmax()
    assert run.best("cheapest").trial == run.front()["macs"].idxmin()
    assert best.genotype == Genotype.from_dict(best.record.genotype)
    assert (best.cost.params, best.cost.macs) == (best.record.cost["params"], best.record.cost["macs"])
    best.show()
    assert f"trial {best.trial} of mine: resnet" in capsys.readouterr().out
    with pytest.raises(alternas.InputError, match="trained weights are not there"):
        best.build()
    made = build(best.genotype, 10, 8, 1)
    (path := weights_file(run.folder, best.record)).parent.mkdir()
    save(made, path)
    monkeypatch.chdir(tmp_path.parent)  # a run knows where it is
    x_BCHW = torch.randn(2, 1, 8, 8)
    assert torch.equal(best.build()(x_BCHW), made.eval()(x_BCHW))
    assert best.export(tmp_path / "out", "package,onnx")["formats"].keys() == {"package", "onnx"}
    with pytest.raises(alternas.InputError, match="no trial 99"):
        run.net(99)


def test_a_search_that_starts_with_nets_of_python(run: alternas.SavedRun) -> None:
    first = [run.net(trial) for trial in run.frame().query("kind == 'search' and status == 'ok'").index[:2]]
    options = OPTIONS | {"seed": 4, "trials": 2}
    alternas.search("resnet", name="nets", start_with=[net.genotype for net in first], **options)
    proposed = [record["key"] for record in records("nets") if record["kind"] == "search"]
    assert proposed == [net.record.key for net in first]
    alternas.search("resnet", name="nets", start_with=[net.genotype for net in first], **options)  # is the same search
    alternas.search("resnet", name="net", start_with=first[1], **options)
    assert first[1].record.key in [record["key"] for record in records("net")]
    alternas.search("resnet", name="run", start_with=run, **options | {"trials": 4})
    assert set(run.front().query("kind == 'search'")["key"]) <= {record["key"] for record in records("run")}


def test_what_notebooks_draw(run: alternas.SavedRun) -> None:
    table, picture = run._repr_html_().split("<img")
    assert all(f"{accuracy:.4f}" in table for accuracy in run.front()["accuracy"])
    svg = pictured(picture)
    assert "validation accuracy" in svg
    assert run._repr_html_() == alternas.load_run("mine")._repr_html_(), "the same bytes for the same run"
    net = run.best()
    assert net.record.key in pictured(net._repr_html_().split("<img")[1])
    assert repr(run) == "<SavedRun mine>"
    accuracy = f", ok, accuracy {net.record.accuracy:.4f}>"
    assert repr(net).startswith(f"<SavedNet mine:{net.trial}: ")
    assert repr(net).endswith(accuracy)


def pictured(image: str) -> str:
    found = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', image)
    assert found
    return base64.b64decode(found[1]).decode()


def test_the_package_is_still_a_package() -> None:
    assert pickle.loads(pickle.dumps(alternas.search)) is alternas.search, "Ray pickles what a user's function names"
    assert inspect.ismodule(alternas.search)
    assert find_spec("alternas.search.run")
    assert {"search", "load_run", "InputError"} <= {*dir(alternas)}
    with pytest.raises(AttributeError, match="no attribute 'serch'"):
        alternas.serch  # noqa: B018


SCRIPT = """
import os, signal, threading, time
import alternas, ray

def interrupt():
    path = "runs/mine/records.jsonl"
    while not (os.path.exists(path) and os.path.getsize(path)):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

options = dict(data="digits", trials=3, epochs=8, max_macs="100k", seed=3, workers=1)
threading.Thread(target=interrupt, daemon=True).start()
try:
    alternas.search("resnet", name="mine", **options)
    raise SystemExit("was not interrupted")
except KeyboardInterrupt:
    assert not ray.is_initialized()
run = alternas.search("resnet", name="mine", **options)
assert not ray.is_initialized()
ray.init("local", include_dashboard=False, log_to_driver=False)
try:
    alternas.search("resnet", name="third", **options)
    raise SystemExit("took the user's Ray")
except alternas.InputError as error:
    assert "ray.shutdown()" in str(error)
assert ray.is_initialized()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_workers_for_one_search_after_the_other(tmp_path: Path) -> None:
    """Interrupted and resumed in the same process, and typed: the same nets, the same accuracies."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "progress goes to stderr"
    words = "search resnet --data digits --trials 3 --epochs 8 --max-macs 100k --seed 3 --workers 1 --name typed"
    subprocess.run([*ALTERNAS, *words.split()], capture_output=True, check=True)
    assert records("mine") == records("typed")


def test_values_of_the_wrong_kind_are_one_line(run: alternas.SavedRun) -> None:
    best = run.best()
    listed, typed = run.front(["accuracy", "params"]), run.front("accuracy,params")
    assert listed.equals(typed)
    assert run.frame(("accuracy", "params")).equals(run.frame("accuracy,params"))
    for call, said in (
        (lambda: run.front(5), "objectives: must be a text or a list of texts, got 5"),
        (lambda: run.frame([5]), r"objectives: must be a text or a list of texts, got \[5\]"),
        (lambda: best.export("out", formats=5), "formats: must be a text or a list of texts, got 5"),
        (lambda: best.export("out", formats=[None]), r"formats: must be a text or a list of texts, got \[None\]"),
        (lambda: best.export(5), "out: must be a path, got 5"),
        (lambda: run.report(5), "out: must be a path, got 5"),
        (lambda: run.best(5), "pick: unknown value 5"),
        (lambda: run.net([1]), r"no trial \[1\]"),
        (lambda: alternas.load_run(5), "run: must be a path, got 5"),
    ):
        with pytest.raises(alternas.InputError, match=said):
            call()
