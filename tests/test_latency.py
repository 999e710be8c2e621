"""Measured latency: the statistics against known figures, what is measured and kept, the command."""

import io
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy import stats
from torch import nn

from alternas.archs import InputError, build, static_cost, zoo
from alternas.results.latency import nets as measured_nets
from alternas.results.latency import on_this_machine as measuring
from alternas.results.latency.measurement import DeviceError, Latency, latencies_of
from alternas.results.latency.nets import TimedNet, measure_front, measure_nets, nets_of
from alternas.results.latency.on_device import measure_on
from alternas.results.latency.on_this_machine import measure, median_interval, session_of
from alternas.results.latency.setting import SHORT, Effort, LatencySetting, device_commands, latency_settings
from alternas.results.latency.table import describe_setting, latency_rows, latency_table, rank_correlation_macs
from alternas.results.ranking.run_leaderboard import read_latencies
from alternas.results.runs.status import Status
from alternas.results.runs.store import locked, read_events
from runs import made_run, net_row

IMAGE = (3, 8, 8)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "__defaults__", (Effort(warm_s=0.0, least_s=0.01, most_s=0.05),))


@pytest.mark.parametrize("count", [20, 101, 1000])
def test_the_medians_interval_is_the_binomial_one(count: int) -> None:
    draw = random.Random(count)
    times = [draw.lognormvariate(0, 0.3) for _ in range(count)]
    low, high = median_interval(times)
    exact = stats.quantile_test(times, q=1, p=0.5).confidence_interval(0.95)
    ordered = sorted(times)
    for ours, theirs in ((low, exact.low), (high, exact.high)):
        assert abs(ordered.index(ours) - ordered.index(theirs)) <= 1, "the normal approximation of the ranks"


class Sleeper(nn.Module):
    """Says what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.seen: list[tuple[Any, ...]] = []

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        threads = torch.get_num_threads()
        self.seen.append((tuple(x_BCHW.shape), x_BCHW.dtype, threads, torch.is_inference_mode_enabled(), self.training))
        return x_BCHW


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "dtype", "threads"), [(1, "float32", 1), (5, "bfloat16", 2)])
def test_the_setting_is_what_is_run(batch: int, dtype: str, threads: int) -> None:
    net, before = Sleeper(), torch.get_num_threads()
    found = measure(net, IMAGE, LatencySetting("cpu", batch, dtype, "eager", threads))
    assert set(net.seen) == {((batch, *IMAGE), getattr(torch, dtype), threads, True, False)}
    assert torch.get_num_threads() == before
    assert found.repeats > 1
    assert 0 < found.low_ms <= found.latency_ms <= found.high_ms
    assert found.images_per_second == pytest.approx(1000 * batch / found.latency_ms)
    assert found.machine
    assert found.memory_bytes is None


@pytest.mark.parametrize("seconds", [0.003, 3.0])
def test_times_are_seconds_of_one_call(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the timer counts calls: three milliseconds each; of some longer than the time there are few."""
    calls = [0]
    monkeypatch.setattr("torch.utils.benchmark.utils.timer.timer", lambda: seconds * calls[0])
    monkeypatch.setattr("time.perf_counter", lambda: seconds * calls[0])

    class Counted(Sleeper):
        def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
            calls[0] += 1
            return x_BCHW

    original = measuring.Timer
    monkeypatch.setattr(
        measuring, "Timer", lambda *given, **named: original(*given, **named, timer=lambda: seconds * calls[0])
    )
    found = measure(Counted(), IMAGE, LatencySetting())
    assert (found.latency_ms, found.low_ms, found.high_ms) == pytest.approx((1e3 * seconds,) * 3)
    assert found.latency_spread_ms == pytest.approx(0, abs=1e-9)
    assert found.tight == (found.repeats >= measuring.MIN_TIMES) == (seconds < 1)


@pytest.mark.slow
def test_a_busy_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    for load, said_ in ((7.0, 1.75), (1.9, 0.0)):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert measure(Sleeper(), IMAGE, LatencySetting()).busy == said_
        assert measure_on(LatencySetting(), Sleeper(), IMAGE, effort=SHORT).busy == 0, "of the training before"


def test_a_net_that_does_not_run_is_one_line() -> None:
    with pytest.raises(DeviceError, match=r"latency, eager in float32 on cpu: .*shapes") as raised:
        measure_on(LatencySetting(), nn.Linear(3, 4), IMAGE)
    assert raised.value.status == "infeasible", "as where a command ends with an exit code"


@pytest.mark.parametrize(("given", "about"), [
    (("gpu", "1", "float32", False, False, False, 1), "device"),
    (("cpu", "0", "float32", False, False, False, 1), "batch"),
    (("cpu", "1,x", "float32", False, False, False, 1), "batch"),
    (("cpu", "", "float32", False, False, False, 1), "batch"),
    (("cpu", "1", "float23", False, False, False, 1), "did you mean 'float32'"),
    (("cpu", "1", "float32", True, False, True, 1), "compile and onnx: one of them"),
    (("cpu", "1", "float32", False, True, False, 1), "runtime graph: measured on cuda alone, got cpu"),
    (("cpu", "1", "float32", False, False, False, 0), "threads"),
    (("cpu", "1", "bfloat16", False, False, True, 1), "onnx: measured in float32, float16, int8 on the CPU alone"),
    (("cuda", "1", "int8", False, False, True, 1), "on the CPU alone, got int8 on cuda"),
    (("cpu", "1", "int8", False, False, False, 1), "dtype int8: measured by runtime onnx alone, got eager"),
])  # fmt: skip
def test_wrong_settings(given: Any, about: str) -> None:
    with pytest.raises(InputError, match=about):
        latency_settings(*given)


def test_every_batch_with_every_dtype() -> None:
    found = latency_settings("cpu", "1, 32", "float32,bfloat16", False, False, False, 2)
    assert [(s.batch, s.dtype) for s in found] == [(1, "float32"), (32, "float32"), (1, "bfloat16"), (32, "bfloat16")]
    assert describe_setting(found[0], "Chip") == "Chip (cpu, 2 threads): batch 1, float32, eager"
    assert latency_settings("cpu", "1", "float32", True, False, False, 1)[0].runtime == "compile"
    assert latency_settings("cpu", "1", "float32", False, False, True, 1)[0].runtime == "onnx"


@pytest.mark.slow
def test_onnxruntime_runs_the_same_net() -> None:
    pytest.importorskip("onnxruntime")
    net = build(zoo.alternet("basic", (1, 2), (0, 1), (1, 1), 0, width=4), 10, 8, 3).eval()
    x_BCHW = torch.rand(3, *IMAGE)
    (logits,) = session_of(net, x_BCHW, 1)()  # type: ignore[misc]
    with torch.no_grad():
        assert np.abs(logits - net(x_BCHW).numpy()).max() < 1e-5
    for dtype, off in (("float16", 0.01), ("int8", 0.2)):
        (lower,) = session_of(net, x_BCHW, 1, dtype)()  # type: ignore[misc]
        assert 0 < np.abs(lower - logits).max() < off * np.abs(logits).max()
    found = measure(net, IMAGE, LatencySetting("cpu", 3, "int8", "onnx", 1))
    assert str(found.setting) == "cpu/3/int8/onnx/1"
    with pytest.raises(InputError, match="timm"):
        session_of(nn.Identity(), x_BCHW, 1)


def pair(trial: int, accuracy: float | None, macs: int, ms: float) -> tuple[TimedNet, Latency]:
    facts: dict[str, object] = {"format": 4, "trial": trial, "accuracy": accuracy, "macs": macs, "params": 1}
    subject = TimedNet(f"trial {trial}", str(trial), nn.Identity, IMAGE, facts, IMAGE[1:])
    return subject, Latency(LatencySetting(), ms, ms, ms, 0.0, 20, True)


def test_rows_are_ranked_by_either_cost() -> None:
    rows = latency_rows([pair(0, 0.9, 100, 5.0), pair(1, 0.8, 200, 1.0), pair(2, 0.7, 50, 6.0), pair(3, 0.85, 70, 9.0)])
    by_trial = {row["trial"]: (row["rank"], row["rank_macs"]) for row in rows}
    assert by_trial == {0: (1, 1), 1: (1, 2), 2: (2, 1), 3: (2, 1)}
    assert [row["trial"] for row in rows] == [1, 0, 2, 3]
    costs = [(row["macs"], row["latency_ms"]) for row in rows]
    assert rank_correlation_macs(rows) == pytest.approx(stats.spearmanr(*zip(*costs, strict=True))[0])
    assert rank_correlation_macs(rows[:2]) is None
    assert rank_correlation_macs(latency_rows([pair(i, 0.5, 7, float(i + 1)) for i in range(4)])) is None
    assert latency_rows([pair(0, None, 100, 5.0)])[0]["rank"] is None


def test_every_number_has_its_column() -> None:
    net, latency = pair(0, 0.9, 100, 5.0)
    latency = replace(latency, memory_bytes=12_000_000, numbers={"energy_mj": 7.25})
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(latency_table(latency_rows([(net, latency)]), LatencySetting()))
    head, cells, *_ = [line for line in console.export_text().splitlines() if "net" in line or "trial 0" in line]
    for name, value in (("memory", "12.0 MB"), ("energy_mj", "7.25"), ("accuracy", "0.9000")):
        assert head.index(name) + len(name) == cells.index(value) + len(value), name


def test_columns_without_values_are_left_out() -> None:
    """A net that was not trained has no accuracy and no ranks; without Linux's meters no memory."""
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(latency_table(latency_rows([pair(0, None, 100, 5.0)]), LatencySetting()))
    _, head, cells, *_ = console.export_text().splitlines()
    assert head.split() == ["net", "latency", "±", "quartiles", "images/s", "MACs"]
    assert cells.split() == ["trial", "0", "5", "ms", "0", "200", "100"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of three nets, one of them not trained to the end."""
    monkeypatch.chdir(tmp_path)
    rows = []
    for trial, (width, status) in enumerate(((4, "ok"), (8, "ok"), (4, "pruned"))):
        net = zoo.alternet("basic", (1, 2), (0, 1), (1, 1), 0, width=width)
        cost = static_cost(net, 10, 8, 1).totals()
        rows.append(net_row(trial, net, cost=cost, status=status, accuracy=0.8 + trial / 10))
    return made_run(tmp_path / "runs" / "mine", rows, settings={"objective": "macs"})


@pytest.mark.slow
def test_nets_of_a_run_are_measured_and_kept(run: Path) -> None:
    settings = latency_settings("cpu", "1,2", "float32", False, False, False, 1)
    heard: list[str] = []
    found = list(measure_nets(nets_of("mine")[0], dict.fromkeys(settings, ()), run, heard.append))
    assert heard == ["trial 0", "trial 1"] * 2, "only those trained whole"
    events = read_events(run, "measured")
    kept = [{"key": event.net} | event.result for event in events]
    assert [event.trial for event in events] == [0, 1] * 2
    assert [(row["key"], row["batch"], row["latency_ms"]) for row in kept] == [
        (subject.key, latency.setting.batch, latency.latency_ms) for subject, latency in found
    ]
    wanted = {"key", "image_size", "device", "batch", "dtype", "runtime", "threads", "latency_ms", "latency_spread_ms"}
    assert wanted <= set(kept[0])
    assert kept[0]["image_size"] == [8, 8]
    read = latencies_of(read_latencies(run), "cpu/2")
    assert {key: measurement.ms for key, measurement in read.items()} == {
        subject.key: latency.latency_ms for subject, latency in found if latency.setting.batch == 2
    }
    assert [s.facts["trial"] for s in nets_of("mine", top=1)[0]] == [0]
    assert nets_of("mine", "16")[0][0].shape == (1, 16, 16)


def test_the_front_is_measured_once(run: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    asked: list[str] = []
    trials = {net.key: net.name for net in nets_of("mine")[0]}

    def measured(setting: Any, network: Any, *_: Any) -> Latency:
        asked.append(f"{trials[network.genotype.key]} {setting.device}")
        if setting.device == "away":
            raise DeviceError(Status.UNREACHABLE, "device away: exit code 255")
        return Latency(setting, 2.0, 2.0, 2.0, 0.1, 20, True, machine=measuring.cpu_name())

    monkeypatch.setattr(measured_nets, "measure_on", measured)
    here, away = {LatencySetting(): ["latency_ms"]}, {device_commands(["away=b {model}"])[0]: ["energy_mj"]}
    measure_front(run, "macs", here | away)
    assert asked == ["trial 0 cpu", "trial 1 cpu", "trial 0 away"], "what is not there is asked for no other net"
    assert "the front was not measured to its end: device away: exit code 255" in caplog.text
    assert [m.ms for m in read_latencies(run)] == [2.0, 2.0]
    measure_front(run, "macs", here)
    assert len(asked) == 3
    log = run / "records.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line for line in lines if not line.startswith(b'{"event"')))
    monkeypatch.setattr("alternas.results.latency.nets.MAX_SECONDS", 0.0)
    measure_front(run, "macs", here)
    assert asked[3:] == ["trial 0 cpu"], "the cheapest, then the time is over"


def test_a_net_that_does_not_run_here_is_left_out(run: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    first, second = nets_of("mine")[0]
    nets = [replace(first, make=lambda: nn.Linear(3, 4)), replace(second, make=Sleeper)]
    found = measure_nets(nets, {LatencySetting(): ()}, run, effort=Effort(warm_s=0.0, least_s=0.01, most_s=0.05))
    assert [net.name for net, _ in found] == ["trial 1"], "as on any other device"
    assert "trial 0: latency, eager in float32 on cpu: " in caplog.text
    assert [(m.key, m.seconds > 0) for m in read_latencies(run)] == [(second.key, True)]


def test_a_run_at_work_is_not_measured(run: Path) -> None:
    with locked(run), pytest.raises(InputError, match="worked on by another process"):
        next(measure_nets(nets_of("mine")[0], {LatencySetting(): ()}, run))
    assert not read_events(run, "measured")


def test_single_nets(run: Path) -> None:
    one, folder = nets_of("mine:1")
    assert (folder, [net.name for net in one], one[0].shape) == (None, ["mine:1"], (1, 8, 8))
    named = nets_of("resnet18", "32")[0][0]
    assert (named.shape, named.facts["macs"]) == ((3, 32, 32), zoo_cost("resnet18"))
    timms = nets_of("timm:resnet18", "64")[0][0]
    assert (timms.key, timms.shape, timms.facts["params"]) == ("timm:resnet18", (3, 64, 64), 11_689_512)
    for target, size, top in (("nothing", "", 0), ("mine", "", -1), ("mine:9", "", 0), ("resnet18", "x", 0)):
        with pytest.raises(InputError):
            nets_of(target, size, top)


def zoo_cost(name: str) -> int:
    return static_cost(zoo.get(name, (32, 32)), 1000, (32, 32), 3).macs


@pytest.mark.slow
@pytest.mark.usefixtures("run")
def test_the_command(alternas: Any) -> None:
    code, out, _ = alternas("latency", "mine", "--batch", "1,4", "--json")
    found = json.loads(out)
    assert (code, [group["rows"][0]["batch"] for group in found]) == (0, [1, 4])
    assert {row["trial"] for row in found[0]["rows"]} == {0, 1}
    code, out, _ = alternas("latency", "mine", "--threads", "2")
    assert code == 0
    assert "cpu, 2 threads): batch 1, float32, eager" in " ".join(out.split())
    assert "trial 1" in out
    code, out, error = alternas("latency", "mine", "--batch", "none")
    assert (code, out, error.count("\n")) == (2, "", 1)
    code, _, error = alternas("latency", "mine", "--device", "cuda")
    assert torch.cuda.is_available() or (code == 2 and "has none" in error)


def test_a_net_larger_than_memory_is_refused_before_it_is_made(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a hundred bytes can be of a net of petabytes."""
    huge = {"stem": {"kind": "none"}, "encoder": {"embed_dim": 65536, "depth": 1000, "heads": 1024, "patch": 16}}
    Path("huge.json").write_text(json.dumps(huge), encoding="utf-8")
    monkeypatch.setattr("alternas.results.latency.nets.measure_on", lambda *_: pytest.fail("is measured"))
    with pytest.raises(
        InputError, match=r"huge.json: its weights and maps take [\d,.]+ GiB at batch 1, this machine has"
    ):
        next(measure_nets(nets_of("huge.json", "32")[0], {LatencySetting(): ()}))
    with pytest.raises(InputError, match="at batch 1048576"):
        next(measure_nets(nets_of("resnet50", "224")[0], {LatencySetting(batch=2**20): ()}))


@pytest.mark.slow
def test_a_cuda_compiler_without_a_card_is_not_told() -> None:
    code = "import sys, alternas.results.latency.on_this_machine; print('torch.utils.cpp_extension' in sys.modules)"
    environment = os.environ | {"CUDA_HOME": "/opt/cuda", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("True\n", "")
