"""A search among cuts of pretrained nets: what is probed next, what is recorded, and that its state is its records."""

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alternas.archs import OperationError
from alternas.archs.timm_net import CountedCost, CutNet, net_from_dict
from alternas.results.ranking.front import leaderboard
from alternas.results.ranking.metric import Metric
from alternas.results.ranking.noise import noise_of
from alternas.results.ranking.quantities import Limits
from alternas.results.ranking.remarks import budget_lines, budget_order_lines, rising_lines
from alternas.results.runs.record import versions
from alternas.results.runs.status import Status
from alternas.results.runs.store import Store, read_records, weights_file
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.driver import Driver
from alternas.search.engine import progress
from alternas.search.engine.progress import ProgressCounts
from alternas.search.prepare import devices_of
from alternas.search.probe import probing as probing_module
from alternas.search.probe.finetuning import CutFinetuning
from alternas.search.probe.job import WITHOUT_WEIGHTS, CutResult, FinetuneCutJob, ProbeJob
from alternas.search.probe.prepare import ProbeContext
from alternas.search.probe.probing import CutMeasuring, Probing
from alternas.search.probe.shown import FINETUNING, PROBE, ShownProbing
from alternas.search.spec import ProbeSpec
from alternas.search.strategies.probe_order import ProbePair
from alternas.search.training.job import JobResult, LatencyJob
from alternas.search.trials.producer import Idle
from alternas.search.trials.trial import Work
from fakes import price, row, spec_of

CUTS = 3
PAIRS = tuple(
    ProbePair(f"net_{letter}", side, 1e6 * times * (side / 64) ** 2, top1, f"family{letter}", 64)
    for letter, times, top1 in (("a", 1, 0.6), ("b", 4, 0.7), ("c", 16, 0.75))
    for side in (48, 64)
)


@pytest.fixture
def probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProbeContext:
    monkeypatch.setattr(probing_module, "count_cuts", lambda name: CUTS)
    spec = spec_of("pretrained", strategy="evolution", probe=ProbeSpec())
    (tmp_path / "weights").mkdir()
    fields = {"data": {"name": "digits"}, "versions": versions()}
    return ProbeContext(spec, load(DataConfig("digits")), PAIRS, tmp_path, fields, {})


def success(context: ProbeContext, job: ProbeJob | FinetuneCutJob | LatencyJob) -> JobResult:
    """Deeper cuts and more expensive nets are more accurate; the front's weights are left as the worker leaves them."""
    if isinstance(job, LatencyJob):
        return JobResult(job.id, Status.OK, latency=row(milliseconds(job.genotype)))
    if isinstance(job, FinetuneCutJob):
        assert Path(job.frozen).exists()
        Path(job.weights).write_bytes(b"weights")
        steps = round(job.epochs * context.images / 32)
        how = {"evaluated": 3 * 32 * steps * 4, "weights_sha256": "1" * 12}  # in each of the folds four fifths
        return JobResult(job.id, Status.OK, steps, 0.99 if job.trial % 2 else 0.01, seconds=2.0, device="cpu", how=how)
    pair = next(p for p in context.pairs if (p.name, p.side) == (job.net, job.side))
    cuts = []
    for block in range(CUTS):
        macs = round(pair.macs * (block + 1) / CUTS)
        net = CutNet(job.net, block, job.side)
        accuracy = 1 - 400 / macs**0.5 - 0.2 * (block == CUTS - 1)  # the whole net is worse than its cuts, as it is
        (Path(job.weights) / f"{net.key}.safetensors").write_bytes(b"weights")
        cuts.append(CutResult(block, "mean", CountedCost(1000, macs), accuracy, {}, "0" * 12))
    return JobResult(job.id, Status.OK, seconds=1.0, device="cpu", cuts=tuple(cuts))


def milliseconds(cut: Any) -> float:
    """Of a device on which net_b is as fast as net_a, and net_c slower than its MACs say; deeper cuts take longer."""
    return {"net_a": 1.0, "net_b": 1.0, "net_c": 50.0}[cut.name] * (cut.side / 64) ** 2 * (cut.block + 1)


def run(context: ProbeContext, records: int | None = None, fate: Any = None) -> Probing:
    """Probe and train on until all has ended, or so many records are written: there the driver is killed."""
    return finetuned(context, records, fate)[0]


def finetuned(context: ProbeContext, records: int | None = None, fate: Any = None) -> tuple[Probing, CutFinetuning]:
    with closing(Store(context.folder)) as store:
        probing = Probing(context, store)
        finetuning = CutFinetuning(probing, store)
        driver = Driver(store, context.folder, [CutMeasuring(probing), probing, finetuning])
        while records is None or len(store.records) < records:
            job = driver.next()
            if job is Idle.OVER:
                break
            assert isinstance(job, ProbeJob | FinetuneCutJob | LatencyJob)
            driver.take((fate and fate(job)) or success(context, job))
        return probing, finetuning


def state(probing: Probing) -> Any:
    cuts = {key: (r.accuracy, r.cost, r.genes) for key, r in probing.records.items()}
    return cuts, probing.judged, probing.front


def test_every_pair_is_probed_once_and_each_cut_recorded(probed: ProbeContext) -> None:
    probing = run(probed)
    assert probing.judged.keys() == set(PAIRS)
    assert len(probing.records) == CUTS * len(PAIRS)
    deepest = [r for r in probing.records.values() if r.runtime["evaluated"]]
    assert len(deepest) == len(PAIRS)
    assert probing.flops == sum(2 * round(pair.macs) * probed.images for pair in PAIRS)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_no_probe_is_begun_that_the_budget_does_not_allow(probed: ProbeContext, share: float) -> None:
    """But for the first, without which there would be nothing."""
    flops = [2 * round(pair.macs) * probed.images for pair in PAIRS]
    budget = replace(probed.spec.run.budget, train_flops=share * sum(flops))
    limited = replace(probed, spec=replace(probed.spec, run=replace(probed.spec.run, budget=budget)))
    probing = run(limited)
    assert len(probing.judged) == 1 or probing.flops <= budget.train_flops
    left = [one for pair, one in zip(PAIRS, flops, strict=True) if pair not in probing.judged]
    assert min(left) > budget.train_flops - probing.flops


def test_a_net_without_weights_is_tried_once(probed: ProbeContext) -> None:
    """Not at each of its image sides: of a hub that has gone there would be hundreds."""
    asked = list[tuple[str, int]]()

    def fate(job: Any) -> JobResult | None:
        if not isinstance(job, ProbeJob):
            return None
        asked.append((str(job.net), job.side))
        how = {WITHOUT_WEIGHTS: True}
        return JobResult(job.id, Status.ERROR, error="no weights", how=how) if job.net == "net_b" else None

    probing = run(probed, fate=fate)
    assert [name for name, _ in asked].count("net_b") == 1
    assert {pair for pair, curve in probing.judged.items() if curve} == {p for p in PAIRS if p.name != "net_b"}
    run(probed, fate=fate)
    assert [name for name, _ in asked].count("net_b") == 1, "nor when it is resumed"


def test_a_log_that_is_cut_at_any_line_leads_to_the_same_state(probed: ProbeContext, tmp_path: Path) -> None:
    whole = state(run(probed))
    lines = (tmp_path / "records.jsonl").read_bytes().splitlines(keepends=True)
    for count in range(len(lines) + 1):
        (tmp_path / "records.jsonl").write_bytes(b"".join(lines[:count]))
        with closing(Store(tmp_path)) as store:
            assert state(Probing(probed, store))[0].keys() == {r.key for r in store.records}
        assert state(run(probed)) == whole


def test_only_cuts_of_the_front_keep_their_weights(probed: ProbeContext, tmp_path: Path) -> None:
    probing = run(probed)
    front = {weights_file(tmp_path, record) for record in probing.front_records()}
    assert front == {*(tmp_path / "weights").glob("*.safetensors")}
    assert 0 < len(front) < len(probing.records)


def test_a_lost_worker_is_tried_again_and_given_up_the_third_time(probed: ProbeContext) -> None:
    lost: list[str] = []

    def fate(job: ProbeJob) -> JobResult | None:
        if (job.net, job.side) == ("net_b", 48):
            lost.append(job.net)
            return JobResult(job.id, Status.LOST, error="the worker died")
        return None

    probing = run(probed, fate=fate)
    failed = [r for r in probing.records.values() if r.status == Status.LOST]
    assert [(r.genes["net"], r.genes["side"]) for r in failed] == [("net_b", 48)]
    assert len(lost) == 3
    assert set(probing.judged) == set(PAIRS)


def test_a_pair_without_cuts_within_the_limits_is_infeasible(probed: ProbeContext) -> None:
    probing = run(probed, fate=lambda job: JobResult(job.id, Status.OK) if job.net == "net_c" else None)
    assert {r.genes["net"] for r in probing.records.values() if r.status == Status.INFEASIBLE} == {"net_c"}


def test_a_full_disk_ends_the_search_and_loses_nothing(probed: ProbeContext) -> None:
    with pytest.raises(OperationError, match="no space"):
        run(probed, fate=lambda job: JobResult(job.id, Status.FULL, error="no space") if job.side == 64 else None)
    assert state(run(probed)) == state(run(probed))
    assert set(run(probed).judged) == set(PAIRS)


@pytest.fixture
def trained_on(probed: ProbeContext) -> ProbeContext:
    """The same search, with nine tenths of its compute for finetuning."""
    return replace(probed, spec=replace(probed.spec, polish=0.9))


def test_the_first_probe_says_nothing_of_the_time_left(probed: ProbeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of its seconds are the start of its worker."""
    clock, context = [0.0], replace(probed, spec=replace(probed.spec, polish=0.0))
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with closing(Store(context.folder)) as store:
        probing = Probing(context, store)
        view = ProgressCounts(ShownProbing(probing, CutFinetuning(probing, store)))
        said = list[float | None]()
        for seconds in (300.0, 2.0):
            job = probing.next()
            assert isinstance(job, ProbeJob)
            view.started(job)
            clock[0] += seconds
            view.ended(job.id)
            said.append(view.seconds_left())
    assert said[0] is None
    assert said[1] == pytest.approx(2.0 * len(PAIRS), rel=1.0), "none is recorded yet"


def test_probes_within_the_limits_and_finetuning_are_foretold(trained_on: ProbeContext) -> None:
    context = replace(trained_on, spec=replace(trained_on.spec, limits=Limits({"macs": 2e6})))
    all_shown = [ShownProbing(*finetuned(context, records)) for records in (0, 1, CUTS, None)]
    left = [shown.left() for shown in (all_shown[0], *all_shown[2:])]
    assert all_shown[1].counts == "1 cut, 0 of at most 6 probes"
    flops = sum(2 * min(pair.macs, 2e6) * context.images for pair in PAIRS)
    assert left[0][PROBE] == Work(pytest.approx(flops), 0, len(PAIRS)), "nothing above the limit is passed through"
    assert left[0][FINETUNING].flops == pytest.approx(9 * flops)
    assert left[1][PROBE].trainings == len(PAIRS) - 1
    assert left[1][FINETUNING].flops == pytest.approx(9 * flops, rel=0.1)
    assert left[2] == {PROBE: Work(), FINETUNING: Work()}


def trained(finetuning: CutFinetuning) -> Any:
    return {of: (r.key, r.accuracy, r.status, r.budget, r.lineage) for of, r in finetuning.records.items()}


def test_cuts_that_span_the_front_are_trained_on_within_the_share(trained_on: ProbeContext, tmp_path: Path) -> None:
    probing, finetuning = finetuned(trained_on)
    front = {record.trial: record for record in probing.front_records()}
    assert 0 < len(finetuning.records) <= 4
    assert finetuning.records.keys() <= front.keys()
    assert finetuning.flops <= 1.01 * 9 * probing.flops  # steps are whole
    for of, record in finetuning.records.items():
        assert (record.weights, record.lineage["trial"], record.key) == ("finetuned", of, front[of].key)
        assert weights_file(tmp_path, record).read_bytes() == b"weights"
        assert weights_file(tmp_path, record) != weights_file(tmp_path, front[of])
        assert record.trial not in {r.trial for r in probing.records.values()}
    assert finetuning.complete
    assert not finetuned(replace(trained_on, spec=replace(trained_on.spec, polish=0.0)))[1].waiting()


def test_finetuning_resumes_from_a_log_cut_at_any_line(trained_on: ProbeContext, tmp_path: Path) -> None:
    whole = trained(finetuned(trained_on)[1])
    lines = (tmp_path / "records.jsonl").read_bytes().splitlines(keepends=True)
    begun = min(number for number, line in enumerate(lines) if b'"finetuned"' in line)
    for count in range(begun - 1, len(lines) + 1):
        (tmp_path / "records.jsonl").write_bytes(b"".join(lines[:count]))
        assert trained(finetuned(trained_on)[1]) == whole
    assert len(lines) - begun == len(whole)


def test_the_better_of_frozen_and_finetuned_is_the_net(trained_on: ProbeContext) -> None:
    """A front row for each net: the finetuning of a cut that loses leaves it as it was."""
    probing, finetuning = finetuned(trained_on)
    records = [*probing.records.values(), *finetuning.records.values()]
    board = leaderboard(records)
    rows = {row.key: row for row in board.rows}
    noise = noise_of(records, images=100)
    assert noise
    assert noise.is_seedless
    assert not [*budget_lines(board.rows), *rising_lines(board)]  # which are of trainings from nothing
    assert not budget_order_lines(records, Metric())  # which advises longer ones
    assert len(rows) == len(probing.records)
    for of, after in finetuning.records.items():
        before = next(r for r in probing.records.values() if r.trial == of)
        best = max((before, after), key=lambda record: record.accuracy or 0.0)
        assert (rows[before.key].weights, rows[before.key].accuracy) == (best.weights, best.accuracy)
    assert {rows[r.key].weights for r in finetuning.records.values()} == {"frozen", "finetuned"}


def test_a_cut_whose_finetuning_fails_stays_frozen(trained_on: ProbeContext) -> None:
    tried = list[int]()

    def fate(job: Any) -> JobResult | None:
        if not isinstance(job, FinetuneCutJob):
            return None
        tried.append(job.trial)
        return JobResult(job.id, Status.LOST if len(tried) < 4 else Status.OOM, error="gone")

    _, finetuning = finetuned(trained_on, fate=fate)
    statuses = [r.status for r in finetuning.records.values()]
    assert statuses[0] == Status.LOST  # the third time
    assert {*statuses[1:]} <= {Status.OOM}
    assert len(tried) == len(statuses) + 2


@pytest.fixture(params=[{"costs": ("latency_ms",)}, {"limits": Limits(latency_ms=40.0)}], ids=["objective", "limit"])
def measured(probed: ProbeContext, request: pytest.FixtureRequest) -> Callable[[], ProbeContext]:
    """The same search, whose cuts are measured; made anew for each session, as a search does that."""
    spec = replace(probed.spec, polish=0.9, **request.param)
    return lambda: replace(probed, spec=spec, devices=devices_of(spec, price, (1, 8, 8), 10))


def test_the_front_is_that_of_all_cuts_measured(measured: Callable[[], ProbeContext], tmp_path: Path) -> None:
    """Beside brute force over all latencies, though few are measured."""
    context = measured()
    probing = run(context)
    everything = [(r, milliseconds(net_from_dict(r.genotype))) for r in probing.records.values()]
    cost = {r.key: ms if context.spec.limits == {} else r.macs for r, ms in everything}
    limit = context.spec.limits.get("latency_ms", math.inf)
    within = [r for r, ms in everything if ms <= limit]
    best = {
        r.key
        for r in within
        if not any(
            cost[o.key] <= cost[r.key]
            and o.accuracy >= r.accuracy
            and (cost[o.key], o.accuracy) != (cost[r.key], r.accuracy)
            for o in within
        )
    }
    front = probing.front_records()
    assert {r.key for r in front} == best
    known = context.devices.of("latency_ms").known
    assert len(known) < len(everything)
    over = {(r.genes["net"], r.genes["side"], r.genes["block"]) for r, ms in everything if ms > limit}
    cuts = {
        tuple(r.genes[gene] for gene in ("net", "side", "block")) for r in probing.records.values() if r.key in known
    }
    assert not [cut for cut in cuts if (*cut[:2], cut[2] - 1) in over], "it contains a cut that is over the limit"
    files = {weights_file(tmp_path, r) for r in front}
    assert files <= {*(tmp_path / "weights").glob("*.safetensors")}
    finetuned_files = {*(tmp_path / "weights").glob("*.safetensors")} - files
    assert len(finetuned_files) == sum(r.weights == "finetuned" for r in read_records(tmp_path))


def test_measuring_resumes_from_a_log_cut_at_any_line(measured: Callable[[], ProbeContext], tmp_path: Path) -> None:
    whole = state(run(measured()))
    lines = (tmp_path / "records.jsonl").read_bytes().splitlines(keepends=True)
    for count in range(len(lines) + 1):
        (tmp_path / "records.jsonl").write_bytes(b"".join(lines[:count]))
        assert state(run(measured())) == whole


def test_a_cut_that_does_not_run_on_the_device_is_left_out(measured: Callable[[], ProbeContext]) -> None:
    def fate(job: Any) -> JobResult | None:
        is_c = isinstance(job, LatencyJob) and getattr(job.genotype, "name", "") == "net_c"
        return JobResult(job.id, Status.INFEASIBLE, error="no such operator") if is_c else None

    probing = run(measured(), fate=fate)
    assert probing.complete
    assert {r.genes["net"] for r in probing.front_records()} <= {"net_a", "net_b"}
