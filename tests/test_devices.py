"""Devices that nets are measured on by commands: what a command is, how it may fail, what a search makes of it."""

import io
import json
import shlex
import subprocess
import sys
import textwrap
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from alternas.archs import Genotype, InputError, build, static_cost
from alternas.archs.errors import OperationError
from alternas.cli.options import LimitOptions
from alternas.cli.values import costs, latency_limits
from alternas.results.latency import on_device as module
from alternas.results.latency import on_this_machine
from alternas.results.latency.measurement import DeviceError, Latency, measured_on
from alternas.results.latency.nets import measure_front, measure_nets, nets_of
from alternas.results.latency.on_device import measure_on, read_numbers
from alternas.results.latency.setting import SHORT, DeviceCommand, device_commands
from alternas.results.latency.table import latency_rows, latency_table
from alternas.results.ranking.objectives import RankingQuery
from alternas.results.ranking.run_leaderboard import leaderboard_of, read_latencies
from alternas.results.render.board import print_front
from alternas.results.runs.status import Status
from alternas.results.runs.store import read_records
from alternas.search.spec import SearchSpec
from alternas.search.strategies.history import State
from alternas.search.training import failures, latency_job
from alternas.search.training.job import Job, JobResult, LatencyJob
from alternas.search.training.latency_job import measure_job
from alternas.search.trials import devices as trial_devices
from alternas.search.trials.search_trials import SearchTrials
from alternas.search.trials.trial import Trial
from command_line import Run
from fakes import NETS, FakeExecutor, SilentView, milliseconds, on_device, run_loop, spec_of
from pages import ROOT
from runs import add_measured, made_run, net_row

BOARD = "board=ssh board ./bench {model}"
IMAGE = (1, 8, 8)


# What a command is.


def test_a_device_has_a_name_or_none() -> None:
    named, unnamed = device_commands([BOARD, "./bench --key=a {model}"])
    assert (named.name, named.command, str(named)) == ("board", "ssh board ./bench {model}", "board/1/-/onnx/-")
    assert (unnamed.name, unnamed.command) == ("device", "./bench --key=a {model}")


@pytest.mark.parametrize("text", [
    "", "./bench", "{model}", "cpu=./bench {model}", "./bench '{model}", "a=b=c {model",
])  # fmt: skip
def test_a_wrong_command_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match="latency-command"):
        device_commands([text])
    with pytest.raises(InputError, match="two devices are called 'board'"):
        device_commands([BOARD, "Board=./other {model}"])
    with pytest.raises(InputError, match="latency-format: unknown value 'package'"):
        device_commands([BOARD], "package")


def test_no_value_leaves_its_word() -> None:
    """A shell would make three words of this file, and run the last of them."""
    device = DeviceCommand("board", "bench {model} --shape={shape} 'a b' {other} {{key}}")
    words = device.words("/tmp/a b; rm -rf /", IMAGE, "k{model}")
    assert words == ["bench", "/tmp/a b; rm -rf /", "--shape=1x8x8", "a b", "{other}", "{k{model}}"]


@pytest.mark.parametrize(("output", "numbers"), [
    ("3.5\n", {"latency_ms": 3.5}),
    ("warming up\n12\n", {"latency_ms": 12.0}),
    ('{"latency_ms": 1.5, "energy_mj": 7, "name": "x", "ok": true}', {"latency_ms": 1.5, "energy_mj": 7.0}),
    ('{\n "latency_ms": 2\n}\n', {"latency_ms": 2.0}),
    ("1.0\n2.0\ndone\n", {"latency_ms": 2.0}),
    ('{"latency_ms": NaN, "energy_mj": Infinity, "memory_kb": -1, "zero": 0}', {}),
    ("no number", {}), ("", {}), ("1e999", {}), ("9" * 5000, {}), ("[" * 100_000, {}), ("0", {}), ("true", {}),
    ("1e-320", {}), ("1e300", {}), ("1e-9", {"latency_ms": 1e-9}),
    ('{"latency_ms": 2, "energy_mj": 1e19}', {"latency_ms": 2}),
])  # fmt: skip
def test_the_last_number_counts(output: str, numbers: dict[str, float]) -> None:
    assert read_numbers(output) == numbers


def test_limits_are_for_one_device_or_for_plain_latency() -> None:
    given = LimitOptions(max_params=2000, max_latency_ms=latency_limits("max-latency-ms", 12.5))
    assert given.limits() == {"params": 2000, "latency_ms": 12.5}
    assert latency_limits("max-latency-ms", ["board=3,phone=.5", "4"]) == {
        "latency_ms@board": 3, "latency_ms@phone": 0.5, "latency_ms": 4,
    }  # fmt: skip
    for text in ("0", "0.0000000001", "-1", "nan", "inf", "1e9", "board=", "=3", "bo ard=3", "1k"):
        with pytest.raises(InputError, match="max-latency-ms"):
            latency_limits("max-latency-ms", text)


def settings(objective: str, limits: dict[str, float] | None = None, *commands: str) -> SearchSpec:
    return spec_of("all", costs=costs("objective", objective), limits=limits or {}, devices=device_commands(commands))


def test_what_is_measured_follows_from_costs_and_limits() -> None:
    both = settings("accuracy,macs,energy_mj@board,latency_ms", {"latency_ms@board": 3, "params": 9}, BOARD)
    assert both.costs == ("macs", "energy_mj@board", "latency_ms")
    assert (both.measured, both.measured_at_end) == (("latency_ms@board",), ("energy_mj@board", "latency_ms"))
    assert both.to_dict()["latency"] == "cpu/1/float32/eager/1"
    assert settings("latency_ms", None, "./bench {model}").to_dict()["latency"] == "device/1/-/onnx/-"


@pytest.mark.parametrize(("objective", "commands", "said"), [
    ("latency_ms@board", [], "no --latency-command board"),
    ("Energy@board", [BOARD], "NUMBER@DEVICE"),
    ("macs", [BOARD], "device board is for no objective"),
    ("macs,macs", [], "each cost once"),
    ("accuracy", [], "one cost or more"),
    ("energy", [], "unknown value 'energy'"),
])  # fmt: skip
def test_costs_that_nobody_measures_are_refused(objective: str, commands: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        settings(objective, None, *commands)


def test_latencies_of_the_device_that_ranks_are_one_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = {"objective": "latency_ms@board", "devices": [{"name": "board", "command": "b {model}", "form": "onnx"}]}
    run = made_run(tmp_path / "mine", [net_row(0, accuracy=0.8)], settings={**told, "latency": "board/1/-/onnx/-"})
    latency = Latency(DeviceCommand("board", "b {model}"), 4.25, 4.0, 5.0, 0.1, 3, True, machine="b {model}")
    add_measured(run, [{"key": net_row(0)["key"], **latency.to_dict()}])
    print_front(run, RankingQuery(), as_json=False)
    assert capsys.readouterr().out.count("4.25") == 2, "in the verdict and in one column"


# How one is run. The export is left out: a file of so many bytes stands for the model.


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> None:
    form = SimpleNamespace(
        file="model.onnx", write=lambda net, folder: (folder / "model.onnx").write_bytes(b"x" * 4000)
    )
    monkeypatch.setattr(on_this_machine, "check_formats", lambda name: (name,))
    monkeypatch.setattr(on_this_machine, "FORMATS", defaultdict(lambda: form))
    monkeypatch.setattr(on_this_machine, "export_net_of", lambda network: network)


@pytest.fixture
def script(tmp_path: Path, exported: None) -> Callable[[str], DeviceCommand]:
    """A device whose command runs this Python; `count` says how often it was run before, `model` is the file."""

    def make(body: str) -> DeviceCommand:
        file, counter = tmp_path / "bench.py", tmp_path / "count"
        head = f"import os, sys, time, subprocess\nmodel, counter = sys.argv[1], {str(counter)!r}\n"
        head += "count = os.path.getsize(counter) if os.path.exists(counter) else 0\nopen(counter, 'a').write('x')\n"
        file.write_text(head + textwrap.dedent(body), encoding="utf-8")
        return DeviceCommand("board", f"{shlex.quote(sys.executable)} {file} {{model}}")

    return make


def measured(device: DeviceCommand, **more: Any) -> Any:
    return measure_on(device, build(NETS[0], 10, 8, 1), IMAGE, **more)


def test_the_median_of_repeats_counts(script: Callable[[str], DeviceCommand]) -> None:
    found = measured(script('print(\'{"latency_ms": %f, "energy_mj": %d}\' % ((3.0, 3.1, 3.05)[count], 5 + count))'))
    assert (found.latency_ms, found.low_ms, found.high_ms, found.repeats) == (3.05, 3.0, 3.1, 3)
    assert (found.numbers, found.busy, found.tight) == ({"energy_mj": 6}, 0.0, True)
    assert found.to_dict()["device"] == "board"


def test_a_device_of_energy_alone_measures_a_front(script: Callable[[str], DeviceCommand], tmp_path: Path) -> None:
    device, cost = script("print('{\"energy_mj\": %d}' % (50 + count))"), static_cost(NETS[0], 10, 8, 1).totals()
    run = made_run(tmp_path / "mine", [net_row(0, NETS[0], cost=cost, accuracy=0.8)], settings={"objective": "macs"})
    measure_front(run, "macs", {device: ["energy_mj"]})
    (found,) = read_latencies(run)
    assert (found.value("energy_mj"), found.value("latency_ms")) == (50.5, None)
    pairs = list(measure_nets(nets_of(str(run))[0], {device: ()}, run))
    assert [latency.numbers for _, latency in pairs] == [{"energy_mj": 53}], "any number will do"
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(latency_table(latency_rows(pairs), device))
    head, cells, *_ = [line for line in console.export_text().splitlines() if "net" in line or "trial 0" in line]
    assert head.split() == ["net", "MACs", "accuracy", "by", "MACs", "energy_mj"], "times there are none"
    assert cells.split()[:2] == ["trial", "0"]
    assert not list(measure_nets(nets_of(str(run))[0], {device: ["latency_ms"]})), "which this search would rank by"


def test_repeats_that_differ_call_for_more_and_a_busy_device_is_said(script: Callable[[str], DeviceCommand]) -> None:
    once = measured(script("print(os.path.getsize(model) / 1e3 * (2 if count == 0 else 1))"))
    assert (once.latency_ms, once.repeats, once.busy) == (4.0, 5, 0.0), "8 4 4 and 8 4 4 4 have quartiles apart"
    busy = measured(script("print(1 + count % 2)"))
    assert busy.repeats == module.MAX_REPEATS
    assert busy.busy > module.SPREAD
    assert not busy.tight


@pytest.mark.parametrize(("printed", "repeats", "ms"), [
    ([3.0, 3.05], 2, 3.025), ([3.0, 3.07, 3.06], 3, 3.06), ([2.0, 3.0, 2.9, 2.9, 2.9], 4, 2.9),
])  # fmt: skip
def test_runs_that_agree_need_no_further_one(
    printed: list[float], repeats: int, ms: float, script: Callable[[str], DeviceCommand]
) -> None:
    found = measured(script(f"print({printed}[count])"), effort=SHORT)
    assert (found.repeats, found.latency_ms) == (repeats, pytest.approx(ms))


@pytest.mark.parametrize(("body", "status", "said"), [
    ("print('no such operator', file=sys.stderr); sys.exit(3)", "infeasible", "exit code 3: no such operator"),
    ("sys.exit(255)", "unreachable", "exit code 255"),
    ("print('hello')", "error", r"device board: no latency_ms from 1e-09 to 1e\+18 in what it printed: hello"),
    ("print('1e-320')", "error", r"from 1e-09 to 1e\+18 in what it printed: 1e-320"),
    ("print('{\"energy_mj\": 3}')", "error", "no latency_ms"),
    ("print('x' * 10_000_000)", "error", "no latency_ms"),
    ("os.kill(os.getpid(), 9)", "infeasible", "exit code -9"),
])  # fmt: skip
def test_failures_have_a_status(body: str, status: str, said: str, script: Callable[[str], DeviceCommand]) -> None:
    with pytest.raises(DeviceError, match=said) as raised:
        measured(script(body), needed=["latency_ms"])
    assert raised.value.status == status


def test_a_program_that_is_not_there_fails(exported: None) -> None:
    with pytest.raises(DeviceError, match="no-such-program does not start"):
        measured(DeviceCommand("board", "no-such-program {model}"))


def test_a_command_that_hangs_is_ended_with_all_it_started(
    script: Callable[[str], DeviceCommand], tmp_path: Path
) -> None:
    body = f"""
        child = subprocess.Popen(["sleep", "60"])
        open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
        time.sleep(60)
    """
    with pytest.raises(DeviceError, match="took longer than 2 s") as raised:
        measured(script(body), timeout_s=2)
    assert raised.value.status == "timeout"
    child, until = Path(f"/proc/{(tmp_path / 'child').read_text(encoding='utf-8')}/status"), time.monotonic() + 5
    while child.exists() and "zombie" not in child.read_text(encoding="utf-8") and time.monotonic() < until:
        time.sleep(0.05)
    assert not child.exists() or "zombie" in child.read_text(encoding="utf-8")


@pytest.mark.parametrize("failure", [Status.INFEASIBLE, Status.TIMEOUT, Status.ERROR, Status.UNREACHABLE])
@pytest.mark.parametrize("probe", ["none", "answers", "fails"])
def test_a_net_measured_before_tells_whose_fault_it_is(
    failure: Status, probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(device: DeviceCommand, network: Any, *_: Any) -> Any:
        if network.genotype == NETS[1] and probe == "answers":
            return None
        raise DeviceError(failure, "because")

    monkeypatch.setattr(latency_job, "measure_on", measure)
    device = device_commands([BOARD])[0]
    job = LatencyJob(7, NETS[0], device, IMAGE, 10, probe=None if probe == "none" else NETS[1])
    with pytest.raises(DeviceError) as raised:
        measure_job(job)
    assert raised.value.status == ("unreachable" if probe == "fails" else failure)
    assert failures.failure(job, raised.value).status == raised.value.status


# What a search makes of it.


@pytest.fixture
def controller(open_controller: Callable[..., SearchTrials]) -> Callable[..., SearchTrials]:
    def open_it(commands: tuple[str, ...] = (BOARD,), objective: str = "latency_ms@board", **more: Any) -> SearchTrials:
        devices = device_commands(commands)
        return open_controller(costs=costs("objective", objective), devices=devices, **{"strategy": "random"} | more)

    return open_it


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_devices, "WAITS", (0.01, 0.01))


def measured_by(job: Job) -> Any:
    return on_device(job, milliseconds(job.genotype), energy_mj=3.0) if isinstance(job, LatencyJob) else None


@pytest.mark.parametrize("strategy", ["random", "nsga2", "tpe", "evolution"])
def test_nets_over_the_limit_are_never_trained(
    strategy: str, controller: Callable[..., SearchTrials], tmp_path: Path
) -> None:
    most = 0.29
    work = controller(strategy=strategy, objective="macs", limits={"latency_ms@board": most}, trials=10)
    executor = FakeExecutor(2, measured_by)
    run_loop(work, executor, SilentView())
    by_key = {m.key: m.ms for m in read_latencies(tmp_path)}
    trained = {job.genotype.key for job in executor.ran if not isinstance(job, LatencyJob)}
    assert not trained & {key for key, ms in by_key.items() if ms > most}
    assert all(milliseconds(job.genotype) <= most * 1.001 for job in executor.ran if job.genotype.key in trained)
    assert trained <= by_key.keys(), "each is measured before it is trained"
    over = [r for r in work.store.records if r.status == "infeasible"]
    assert over, "the space has such nets"
    for record in over:
        violation = pytest.approx(by_key[record.key] / most - 1)
        assert record.constraint_violation == {"latency_ms@board": violation}
        if record.kind == "search":
            assert work.history.trials[record.trial].state == State.PRUNED
            assert work.history.trials[record.trial].violated
    assert sum(r.status == "ok" and r.kind == "search" for r in work.store.records) == 10


def test_strategies_pass_over_nets_that_are_predicted_to_be_over(controller: Callable[..., SearchTrials]) -> None:
    work = controller(limits={"latency_ms@board": 0.25}, trials=6)
    run_loop(work, FakeExecutor(1, measured_by), SilentView())
    context = work.context.strategy_context()
    told = [context.features_of(r.genes) for r in work.store.records if r.kind == "search"]
    for features in told:
        if milliseconds(features.net) > 0.25 and features.net.key in work.context.devices.of("latency_ms@board").known:
            assert not features.is_feasible, "as measured"
    slow = max((net for net in work.context.space.baselines()), key=milliseconds)
    assert milliseconds(slow) > 0.1
    assert context.expected_excess(slow) > 0
    assert context.excess(slow) == 0, "limits on what is measured do not move the baselines"


def test_a_device_measures_one_net_at_a_time_while_others_train(controller: Callable[..., SearchTrials]) -> None:
    work, executor = controller(trials=8), FakeExecutor(3, measured_by)
    at_once = []

    class Counting(SilentView):
        def started(self, job: Any) -> None:
            at_once.append(sum(isinstance(other, LatencyJob) for other in executor.jobs))

    run_loop(work, executor, Counting())
    assert max(at_once) == 1
    assert sum(r.status == "ok" and r.kind == "search" for r in work.store.records) == 8


def test_every_device_is_asked_and_every_cost_kept(controller: Callable[..., SearchTrials], tmp_path: Path) -> None:
    commands, limits = (BOARD, "phone=./on_phone {model}"), {"latency_ms@phone": 1e6}
    work = controller(
        commands, "accuracy,latency_ms@board,energy_mj@board,latency_ms@phone,macs", limits=limits, trials=4
    )

    def fate(job: Job) -> Any:
        if not isinstance(job, LatencyJob):
            return None
        assert job.needed == (("latency_ms", "energy_mj") if job.setting.device == "board" else ("latency_ms",))
        return on_device(job, milliseconds(job.genotype) * (3 if job.setting.device == "phone" else 1), energy_mj=3.0)

    executor = FakeExecutor(2, fate)
    run_loop(work, executor, SilentView())
    asked = [(job.genotype.key, job.setting.device) for job in executor.ran if isinstance(job, LatencyJob)]
    assert len(asked) == len({*asked}) == 2 * len({key for key, _ in asked})
    known = {(m.key, m.setting.split("/")[0]): m for m in read_latencies(tmp_path)}
    for record in work.store.records:
        if record.status == "ok":
            cost = work.context.cost_named("latency_ms@phone", record.key, record.cost)
            assert cost == known[record.key, "phone"].ms == pytest.approx(3 * known[record.key, "board"].ms)
            assert known[record.key, "board"].numbers == {"energy_mj": 3.0}, "another cost of a device that is asked"


def test_a_net_that_does_not_run_there_is_infeasible(controller: Callable[..., SearchTrials]) -> None:
    def fate(job: Job) -> Any:
        if isinstance(job, LatencyJob) and job.trial == 5:
            assert job.probe is not None, "a net that it has measured"
            return JobResult(job.id, "infeasible", error="device board: exit code 3")
        return measured_by(job)

    work, executor = controller(trials=4), FakeExecutor(1, fate)
    run_loop(work, executor, SilentView())
    record = {r.trial: r for r in work.store.records}[5]
    assert (record.status, record.error) == ("infeasible", "device board: exit code 3")
    assert record.constraint_violation == {"failed@board": 1.0}
    assert work.history.trials[5].violated == {"failed@board": 1.0}
    net = Genotype.from_dict(record.genotype)
    assert work.context.limits.broken_measured(net) == {"failed@board": 1.0}, "proposed again, it is not measured again"
    proposed = Trial(9, "search", net, {}, work.context.cost_fn(net), (4,), work.context.record_fields)
    refused = work.admission.refused(proposed)
    assert refused is not None
    assert refused.error == record.error
    again = controller(trials=4)
    assert again.context.limits.broken_measured(net) == {"failed@board": 1.0}, "by the next session neither"


def test_a_device_that_comes_back_has_cost_nothing(
    controller: Callable[..., SearchTrials], impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    away = 2  # measurements in a row, of whichever net: after a wait a search may go on with another

    def fate(job: Job) -> Any:
        nonlocal away
        if isinstance(job, LatencyJob) and job.trial >= 1 and away:
            away -= 1
            return JobResult(job.id, "unreachable", error="device board: exit code 255")
        return measured_by(job)

    work = controller(trials=4)
    run_loop(work, FakeExecutor(2, fate), SilentView())
    assert not away
    assert {r.status for r in work.store.records} <= {"ok", "duplicate"}
    assert "device board: exit code 255; tried again in 0 s (2 of 2)" in caplog.text


def test_a_device_that_stays_away_ends_the_search_and_loses_nothing(
    controller: Callable[..., SearchTrials], impatient: None, tmp_path: Path
) -> None:
    def gone(job: Job) -> Any:
        if isinstance(job, LatencyJob) and job.trial >= 5:
            return JobResult(job.id, "unreachable", error="device board: exit code 255")
        return measured_by(job)

    with pytest.raises(OperationError, match="exit code 255; tried 3 times; the same command resumes"):
        run_loop(controller(trials=6), FakeExecutor(2, gone), SilentView())
    before = len(read_latencies(tmp_path))
    assert all(r.status in ("ok", "duplicate") for r in read_records(tmp_path))
    executor = FakeExecutor(2, measured_by)
    work = controller(trials=6)
    run_loop(work, executor, SilentView())
    assert sum(r.status == "ok" and r.kind == "search" for r in work.store.records) == 6
    keys = [m.key for m in read_latencies(tmp_path)]
    assert len(keys) == len({*keys}) > before


def test_a_command_that_never_worked_ends_the_search(controller: Callable[..., SearchTrials]) -> None:
    def fate(job: Job) -> Any:
        return JobResult(job.id, "infeasible", error="device board: exit code 127")

    work = controller(trials=4)
    with pytest.raises(OperationError, match="exit code 127; it has measured no net yet, so the setting or command"):
        run_loop(work, FakeExecutor(1, fate), SilentView())
    assert not work.store.records


def test_a_busy_device_is_said(controller: Callable[..., SearchTrials], caplog: pytest.LogCaptureFixture) -> None:
    def fate(job: Job) -> Any:
        return on_device(job, 1.0 + job.trial, busy=0.34) if isinstance(job, LatencyJob) else None

    run_loop(controller(trials=2), FakeExecutor(1, fate), SilentView())
    assert "device board is busy: its repeats differ by 34 %" in caplog.text


def test_a_limit_that_no_net_keeps_ends_the_search(
    controller: Callable[..., SearchTrials], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alternas.search.trials.measuring.MAX_OVER", 12)
    work = controller(limits={"latency_ms@board": 1e-6}, trials=4)
    run_loop(work, FakeExecutor(1, measured_by), SilentView())
    assert work.exhausted
    assert {r.status for r in work.store.records} == {"infeasible"}
    assert len(work.store.records) <= 12 + 1


def test_another_command_is_another_device(controller: Callable[..., SearchTrials], tmp_path: Path) -> None:
    run_loop(controller(trials=2), FakeExecutor(1, measured_by), SilentView())
    with pytest.raises(InputError, match=r"have no latency in board/1/-/onnx/-/8/ssh board .-other"):
        controller(("board=ssh board ./other {model}",), trials=2)
    row = {"key": "abc", "device": "board", "latency_ms": 1.0, "machine": "./other", "batch": 1, "image_size": [8, 8]}
    add_measured(tmp_path, [row | {"runtime": "onnx"}])
    everything = read_latencies(tmp_path)
    with pytest.raises(InputError, match="numbers of 2 settings on 'board'"):
        measured_on(everything, "board", where="test")
    own = measured_on(everything, "Board", device_commands([BOARD])[0])
    assert "abc" not in {m.key for m in own}


# From the command line.

BENCH = """\
import os, sys
away, asked = "away", "asked"
open(asked, "a").write(".")
if os.path.exists(away):
    sys.exit(255)
if os.path.exists("count_down"):
    left = int(open("count_down").read())
    open("count_down", "w").write(str(left - 1))
    if left <= 0:
        sys.exit(255)
print('{"latency_ms": %f, "energy_mj": %f}' % (os.path.getsize(sys.argv[1]) / 1e4, 1e6 / os.path.getsize(sys.argv[1])))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_search_on_a_device_from_end_to_end(served: Run, tmp_path: Path) -> None:
    (tmp_path / "bench.py").write_text(BENCH, encoding="utf-8")
    command = f"board={shlex.quote(sys.executable)} {tmp_path}/bench.py {{model}}"
    words = ["search", "resnet", "--data", "digits", "--epochs", "1", "--trials", "2", "--name", "dev"]
    words += ["--latency-command", command]
    words += ["--objectives", "accuracy,latency_ms@board,energy_mj@board", "--max-latency-ms", "board=11"]
    words += ["--strategy", "random"]
    code, out, error = served(tmp_path, *words)
    assert code == 0, error
    assert "of the work of this run" in out
    rows = json.loads(served(tmp_path, "front", "dev", "--json")[1])
    assert rows
    assert all(row["latency_ms@board"] <= 11 and row["energy_mj@board"] > 0 for row in rows)
    again = json.loads(served(tmp_path, "latency", "dev", "--latency-command", command, "--json")[1])
    assert all(row["latency_ms"] <= 11 for row in again[0]["rows"]), "they keep the limit when measured again"
    board = leaderboard_of(tmp_path / "runs/dev", RankingQuery(("accuracy", "latency_ms@board", "energy_mj@board")))
    assert [row.trial for row in board.front] == [row["trial"] for row in rows]
    (tmp_path / "away").touch()
    code, _, error = served(tmp_path, "latency", "dev", "--latency-command", command)
    assert (code, error.count("\n")) == (1, 1)
    assert "exit code 255; is it there?" in error
    page = tmp_path / "runs/dev/report.html"
    assert served(tmp_path, "report", "dev")[0] == 0
    assert "board energy mj" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_examples_measure_here_and_over_http(tmp_path: Path) -> None:
    examples, python = ROOT / "examples" / "devices", shlex.quote(sys.executable)
    here = DeviceCommand("here", f"{python} {examples}/bench.py {{model}}")
    found = measured(here, effort=SHORT)
    assert 0 < found.latency_ms < 1000
    server = subprocess.Popen(
        [sys.executable, str(examples / "http_server.py"), "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        remote = DeviceCommand("remote", f"{python} {examples}/http_client.py {url} {{model}}")
        assert 0 < measured(remote, effort=SHORT).latency_ms < 1000
        (tmp_path / "broken.onnx").write_text("no model", encoding="utf-8")
        words = [sys.executable, str(examples / "http_client.py"), url, str(tmp_path / "broken.onnx")]
        refused = subprocess.run(words, capture_output=True, text=True)
        assert (refused.returncode, refused.stderr[:4]) == (1, "422 ")
    finally:
        server.terminate()
        server.wait()
    with pytest.raises(DeviceError) as raised:
        measured(remote, effort=SHORT)
    assert raised.value.status == "unreachable"


def test_a_limit_on_a_device_without_a_command_is_refused_before_anything_is_trained(alternas: Any) -> None:
    code, _, err = alternas("search", "resnet", "--max-latency-ms", "board=12")
    assert (code, err.count("\n")) == (2, 1)
    assert "no --latency-command board=... measures it" in err
    code, _, err = alternas("search", "resnet", "--latency-format", "pt2")
    assert (code, "are of a --latency-command" in err) == (2, True)
