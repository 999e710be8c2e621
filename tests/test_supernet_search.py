"""A search on shared weights: its phases, its compute, and what happens when workers and drivers are lost."""

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.numpy import save_file

from alternas.archs import Genotype, InputError, OperationError, static_cost
from alternas.results.ranking.front import rank_rows
from alternas.results.ranking.metric import Metric
from alternas.results.ranking.objectives import RankingQuery
from alternas.results.ranking.remarks import sharing_lines
from alternas.results.runs.bank_progress import BANK_FORMAT, BANK_NAME, read_progress
from alternas.results.runs.store import Store, read_events, read_records, weights_file
from alternas.search.context import SearchContext
from alternas.search.default import UNLIMITED
from alternas.search.spec import Supernet
from alternas.search.supernet import draws
from alternas.search.supernet.draws import NETS_A_STEP
from alternas.search.training.bank_jobs import EvaluateJob, SupernetJob
from alternas.search.training.job import Job, JobResult, Point, TrainJob
from alternas.search.trials.forecast import BANK, Forecast, Pace
from alternas.search.trials.producer import Idle
from alternas.search.trials.search_trials import SearchTrials
from alternas.search.trials.shared_weights import SEGMENTS
from alternas.spaces import get
from fakes import RECIPE, FakeExecutor, KilledError, SilentView, driver_of, fake_accuracy, run_loop, shared_of, spec_of

STEPS = 154  # of the smoke recipe on digits
DATA: Any = SimpleNamespace(train=range(1437), val=range(360), notes={})
Open = Callable[..., SearchTrials]


@functools.cache
def cost_fn(net: Genotype) -> Any:
    return static_cost(net, 10, 16, 1)


def sampler() -> draws.NetSampler:
    return draws.NetSampler(get("bench", 16), lambda net: float(cost_fn(net).macs), lambda net: 0.0, 0)


@pytest.fixture(scope="module")
def pool() -> list[Genotype]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "POOL_DRAWS", 200)
        return sampler().pool


@pytest.fixture
def open_supernet(tmp_path: Path, pool: list[Genotype]) -> Iterator[Open]:
    """Opens a search of `bench` on tmp_path, again and again as a restarted driver would."""
    stores: list[Store] = []

    def open_it(trials: int = UNLIMITED, trainings: float = 8, **more: Any) -> SearchTrials:
        spec = spec_of("bench", recipe=RECIPE, trials=trials, supernet=Supernet(trainings), **{"polish": 0.35} | more)
        fields = {"recipe": RECIPE.to_dict(), "data": {}, "seed": 0, "versions": {}}
        bank, facts = tmp_path / "bank.safetensors", {"space": "bench"}
        space, nets = get("bench", 16), sampler()
        nets.pool = pool
        context = SearchContext(
            spec, DATA, space, cost_fn, STEPS, tmp_path, fields, bank=bank, nets=nets, bank_facts=facts
        )
        while stores:
            stores.pop().close()
        stores.append(Store(tmp_path))
        return SearchTrials(context, stores[-1])

    yield open_it
    for store in stores:
        store.close()


def answer(job: Job) -> JobResult | None:
    """What a worker would say; None trains as `FakeExecutor` does."""
    if isinstance(job, SupernetJob):
        Path(job.checkpoint).parent.mkdir(exist_ok=True)
        job.state_at(job.stop_step).touch()
        save_file({}, job.weights, {BANK_NAME: json.dumps({"format": BANK_FORMAT, "axes": {}})})
        curve = (Point(job.stop_step, 1.0, 0.5 if job.validated else float("nan")),)
        losses = tuple((1.0,) * len(nets) for nets in job.nets)
        return JobResult(job.id, "ok", job.stop_step, curve=curve, seconds=1.0, losses=losses)
    if isinstance(job, EvaluateJob):
        file = Path(job.weights)
        file.parent.mkdir(exist_ok=True)
        file.touch()
        return JobResult(job.id, "ok", accuracy=fake_accuracy(job.genotype, 0), how={"evaluated": 872})
    return None


class Workers(FakeExecutor):
    """Full trainings are of `STEPS` here; their curve is one point."""

    def poll(self, timeout: float) -> list[Any]:
        if self.jobs and isinstance(self.jobs[0], TrainJob) and self.fate(self.jobs[0]) is None:
            job = self.jobs.pop(0)
            self.ran.append(job)
            accuracy = min(0.99, fake_accuracy(job.genotype, 0) + (0.05 if job.start else 0.2))
            return [JobResult(job.id, "ok", job.stop_step, accuracy, how={"evaluated": 720})]
        return super().poll(timeout)


def run(controller: SearchTrials, fate: Callable[[Any], Any] = answer, slots: int = 2) -> Workers:
    workers = Workers(slots, fate)
    run_loop(controller, workers, SilentView())
    return workers


def test_baselines_then_the_bank_then_nets_then_the_front(open_supernet: Open, tmp_path: Path) -> None:
    controller = open_supernet()
    jobs = run(controller, slots=1).ran
    kinds = [type(job).__name__ for job in jobs]
    order = [kind for i, kind in enumerate(kinds) if i == 0 or kinds[i - 1] != kind]
    assert order == ["TrainJob", "SupernetJob", "EvaluateJob", "TrainJob"]
    segments = [job for job in jobs if isinstance(job, SupernetJob)]
    assert len(segments) == SEGMENTS
    assert [job.start_step for job in segments[1:]] == [job.stop_step for job in segments[:-1]]
    assert all(len(nets) == NETS_A_STEP for job in segments for nets in job.nets)
    assert sum(bool(job.validated) for job in segments) == shared_of(controller).budget.watches > 0
    records = read_records(tmp_path)
    assert {r.weights for r in records} == {"alone", "shared", "finetuned"}
    assert {r.kind for r in records if r.weights == "alone"} == {"baseline"}
    finetuned = [job for job in jobs if isinstance(job, TrainJob) and job.start]
    shared = {r.key: str(weights_file(tmp_path, r)) for r in records if r.weights == "shared"}
    assert all(job.start.weights == shared[job.genotype.key] for job in finetuned if job.start)


def test_a_plain_resnet_on_the_slices_front_is_trained_on_from_its_own_weights_alone(
    open_supernet: Open, tmp_path: Path
) -> None:
    controller = open_supernet()
    plain = {net.key: tmp_path / "weights" / f"{net.key}.safetensors" for net in controller.baselines}
    for file in plain.values():
        file.parent.mkdir(exist_ok=True)
        file.touch()
    finetuned = [job for job in run(controller, slots=1).ran if isinstance(job, TrainJob) and job.start]
    assert plain.keys() & {record.key for record in shared_of(controller).front()}
    assert plain.keys() < {job.genotype.key for job in finetuned}
    assert len({job.weights for job in finetuned}) == len({(job.trial, job.seed) for job in finetuned}), "one file each"


def test_the_compute_is_that_asked_for(open_supernet: Open, tmp_path: Path) -> None:
    controller = open_supernet()
    run(controller)
    progress = read_progress(tmp_path)
    assert progress is not None
    spent = progress["train_flops"] + progress["eval_flops"]
    for r in read_records(tmp_path):
        if r.weights != "alone" and r.status == "ok":
            steps, evaluated = r.budget["done"], r.runtime["evaluated"]
            spent += 6 * r.cost["macs"] * steps * RECIPE.batch_size + 2 * r.cost["macs"] * evaluated
    assert spent == pytest.approx(8 * shared_of(controller).budget.training, rel=0.05)
    mean = shared_of(controller).sampler.mean_macs
    assert shared_of(controller).budget.training == 6 * mean * STEPS * RECIPE.batch_size


def test_a_number_of_nets_goes_before_the_share_for_evaluations(open_supernet: Open, tmp_path: Path) -> None:
    run(open_supernet(trials=7))
    records = read_records(tmp_path)
    assert sum(r.weights == "shared" and r.status == "ok" for r in records) == 7


def test_only_the_fronts_slices_are_kept(open_supernet: Open, tmp_path: Path) -> None:
    controller = open_supernet()
    run(controller)
    shared = [r for r in read_records(tmp_path) if r.weights == "shared" and r.status == "ok"]
    rows = rank_rows(shared, RankingQuery(("accuracy", "macs"))).front
    kept = {r.trial for r in shared if weights_file(tmp_path, r).exists()}
    assert kept == {row.trial for row in rows}


@pytest.mark.parametrize("after", range(1, 70, 13))
def test_a_driver_killed_anywhere_resumes(open_supernet: Open, tmp_path: Path, after: int) -> None:
    count = 0

    def fate(job: Any) -> Any:
        nonlocal count
        count += 1
        if count == after:
            raise KilledError
        return answer(job)

    try:
        run(open_supernet(trainings=4), fate, slots=1)
    except KilledError:
        run(open_supernet(trainings=4), slots=1)
    records = [r for r in read_records(tmp_path) if r.status == "ok"]
    keys = [(r.key, r.weights) for r in records]
    assert len(keys) == len(set(keys))
    assert read_progress(tmp_path)["step"] == shared_of(open_supernet(trainings=4)).budget.steps  # type: ignore[index]
    assert sum(r.weights == "finetuned" for r in records) >= 1
    assert not run(open_supernet(trainings=4)).ran, "nothing is left"


@pytest.mark.parametrize("status", ["nan", "oom"])
def test_a_loss_that_diverges_goes_on_at_half_the_rate(open_supernet: Open, status: str) -> None:
    tried: list[SupernetJob] = []

    def fate(job: Any) -> Any:
        if isinstance(job, SupernetJob) and job.start_step > 0:
            tried.append(job)
            if len(tried) == 1:
                return JobResult(job.id, status, job.start_step, error="training loss nan")
        return answer(job)

    run(open_supernet(), fate, slots=1)
    assert tried[1].start_step == tried[0].start_step
    assert tried[1].recipe.lr == tried[0].recipe.lr / 2
    assert tried[1].seed != tried[0].seed


def test_a_restarted_driver_draws_the_nets_of_an_unbroken_run(open_supernet: Open) -> None:
    segments: dict[int, SupernetJob] = {}

    def fate(job: Any) -> Any:
        result = answer(job)
        if not isinstance(job, SupernetJob) or result is None:
            return result
        segments.setdefault(job.start_step, job)
        losses = tuple(tuple(1.0 + (net.family == "hybrid") for net in nets) for nets in job.nets)
        return replace(result, losses=losses)

    def killed(job: Any) -> Any:
        if isinstance(job, SupernetJob) and len(segments) == 3:
            raise KilledError
        return fate(job)

    with pytest.raises(KilledError):
        run(open_supernet(), killed, slots=1)
    run(open_supernet(), fate, slots=1)
    broken = {start: job.nets for start, job in segments.items()}
    hybrids = [sum(net.family == "hybrid" for nets in job for net in nets) / (2 * len(job)) for job in broken.values()]
    assert hybrids[0] == pytest.approx(1 / 3, abs=0.12)
    assert all(share < hybrids[0] - 0.1 for share in hybrids[1:]), "they learn worse, it seems"
    (open_supernet().folder / "records.jsonl").unlink()
    segments.clear()
    run(open_supernet(), fate, slots=1)
    assert broken == {start: job.nets for start, job in segments.items()}


def test_two_checkpoints_are_kept_until_the_bank_is_trained(open_supernet: Open, tmp_path: Path) -> None:
    kept: list[int] = []

    def fate(job: Any) -> Any:
        kept.append(len([*(tmp_path / "checkpoints").glob("bank-*.pt")]))
        return answer(job)

    run(open_supernet(), fate, slots=1)
    assert max(kept) == 2
    assert kept[-1] == 0


@pytest.mark.parametrize("gone", [1, 2])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_bank_goes_on_from_the_last_good_checkpoint(
    open_supernet: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture, gone: int, restarted: bool
) -> None:
    """The last, or both, are broken as the fourth segment begins: the third is trained again, or all."""

    starts: list[int] = []
    broken: set[int] = set()

    def fate(job: Any) -> Any:
        if not isinstance(job, SupernetJob):
            return answer(job)
        starts.append(job.start_step)
        if len(starts) == 4:
            broken.update(starts[4 - gone : 4])
            if restarted:
                raise KilledError
        if job.start_step in broken:
            return JobResult(job.id, "rewind", error="bank-7.pt is broken or gone")
        broken.discard(job.stop_step)
        return answer(job)

    if restarted:
        with pytest.raises(KilledError):
            run(open_supernet(), fate, slots=1)
    run(open_supernet(), fate, slots=1)
    assert (
        starts[3:][restarted : restarted + 4]
        == {1: [starts[3], starts[2], starts[3], starts[4 + restarted + 2]], 2: [starts[3], starts[2], 0, starts[1]]}[
            gone
        ]
    )
    assert "bank-7.pt is broken or gone; its training goes on from step" in caplog.text
    progress = read_progress(tmp_path)
    assert progress is not None
    assert progress["step"] == progress["total_steps"]


@pytest.mark.parametrize("harm", ["empty", "halved", "gone"])
def test_nets_are_not_blamed_for_a_broken_bank(open_supernet: Open, tmp_path: Path, harm: str) -> None:
    def fate(job: Any) -> Any:
        if isinstance(job, EvaluateJob):
            raise KilledError
        return answer(job)

    with pytest.raises(KilledError):
        run(open_supernet(), fate)
    before, file = len(read_records(tmp_path)), tmp_path / "bank.safetensors"
    whole = file.read_bytes()
    file.unlink() if harm == "gone" else file.write_bytes(whole[: len(whole) // 2 if harm == "halved" else 0])
    with pytest.raises(InputError, match=r"supernet: .*bank\.safetensors cannot be read"):
        open_supernet()
    assert len(read_records(tmp_path)) == before


@pytest.mark.parametrize("status", ["nan", "lost", "error"])
def test_a_bank_that_cannot_be_trained_is_one_line(open_supernet: Open, status: str) -> None:
    def fate(job: Any) -> Any:
        if isinstance(job, SupernetJob):
            return JobResult(job.id, status, error="so it was")
        return answer(job)

    with pytest.raises(OperationError, match=f"supernet: training ended as {status}: so it was"):
        run(open_supernet(), fate)


def test_a_lost_worker_is_tried_again(open_supernet: Open, tmp_path: Path) -> None:
    lost: list[int] = []

    def fate(job: Any) -> Any:
        if isinstance(job, SupernetJob) and len(lost) < 2:
            lost.append(job.start_step)
            return JobResult(job.id, "lost", error="its worker died")
        return answer(job)

    run(open_supernet(), fate)
    assert lost == [0, 0]
    assert any(r.weights == "finetuned" for r in read_records(tmp_path))


def test_a_front_says_how_far_shared_weights_can_be_trusted(open_supernet: Open, tmp_path: Path) -> None:
    run(open_supernet(trainings=48))
    records = read_records(tmp_path)
    alone = {r.key: r.accuracy for r in records if r.weights == "alone"}
    pairs = [r for r in records if r.weights == "shared" and r.key in alone and r.status == "ok"]
    assert len(pairs) == len(alone) >= 3  # the bank's slices of the baselines are evaluated before all else
    line, other = sharing_lines(records, Metric())
    assert line.startswith(f"shared weights: {len(pairs)} nets on slices -")
    assert line.endswith("rank correlation 1.00")
    slices = [r.accuracy for r in records if r.weights == "shared" and r.status == "ok"]
    worse = sum(accuracy < min(alone.values()) for accuracy in slices)
    assert other.startswith(f"{worse} of {len(slices)} nets on slices are worse than all nets trained alone: ")
    good = [replace(r, accuracy=1 + (r.accuracy or 0)) if r.weights == "shared" else r for r in records]
    assert len(sharing_lines(good, Metric())) == 1


# The command.

APART = '''
from alternas.archs import Genotype, Stage, Stem


class Apart:
    """Two nets without a block in common."""

    def __init__(self, image_size):
        pass

    def sample(self, chooser):
        if chooser.choose("kind", ("basic", "mbconv")) == "basic":
            return Genotype(Stem("cifar", 4), (Stage("basic", 1, 4),))
        return Genotype(Stem("patchify", 4, 2), (Stage("mbconv", 1, 4),))
'''


@pytest.mark.parametrize(("words", "message"), [
    (("--supernet", "0.5"), "supernet: must be from 1 to"),
    (("--supernet", "nan"), "supernet: must be from 1 to"),
    (("--supernet", "8", "--alone"), "alone: the nets of a supernet share weights"),
    (("--supernet", "8", "--repeats", "2"), "repeats: the nets of a supernet are not trained one by one"),
    (("--supernet", "8", "--scheduler", "asha"), "scheduler: the nets of a supernet do not stop early"),
    (("--supernet", "8", "--polish", "1"), "polish: must be a share of the compute"),
    (("--supernet", "8", "--compile"), "compile: the nets of a supernet change with every step"),
    (("./apart.py", "--supernet", "8"), "supernet: the nets of space 'apart.py' share no weights: no two nets"),
    (("--supernet", "nobody"), "no run 'nobody' in runs/ here"),
])  # fmt: skip
def test_wrong_input_is_one_line(
    words: tuple[str, ...], message: str, alternas: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "apart.py").write_text(APART, encoding="utf-8")
    space = () if words[0].endswith(".py") else ("bench",)
    code, out, err = alternas("search", *space, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_bank_is_searched_again_with_another_limit(
    alternas: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ("--epochs", "1", "--workers", "1")
    code, out, err = alternas(
        "search", "bench", "--data", "digits", "--supernet", "4", "--name", "first", *small, "--json"
    )
    assert code == 0, err
    assert {row["weights"] for row in json.loads(out)} <= {"alone", "shared", "finetuned"}
    bank = (tmp_path / "runs" / "first" / "bank.safetensors").read_bytes()
    limit = ("--max-macs", "500k", "--name", "second")
    code, out, err = alternas("search", "bench", "--data", "digits", "--supernet", "first", *limit, *small, "--json")
    assert code == 0, err
    assert all(row["macs"] <= 500_000 for row in json.loads(out) if row["weights"] != "alone")
    assert (tmp_path / "runs" / "first" / "bank.safetensors").read_bytes() == bank
    assert not (tmp_path / "runs" / "second" / "bank.safetensors").exists()
    for words in (("show", "first", "5"), ("report", "first"), ("compare", "first", "second")):
        assert alternas(*words)[0] == 0, words
    assert alternas("export", "first", "--out", "best")[0] == 0
    code, _, err = alternas("search", "all", "--data", "digits", "--supernet", "first", "--name", "third", *small)
    assert code == 2
    assert "the bank of run 'first' is for something else: space is 'bench' there, 'all' here" in err


def known(controller: SearchTrials) -> dict[str, Any]:
    """What a search on a bank knows, and the job that comes next."""
    shared = shared_of(controller)
    bank, context = shared.bank_training, controller.context
    return {
        "bank": (bank.progress, bank._previous, bank.flops_left, context.nets and context.nets.nets(9, NETS_A_STEP)),
        "nets": (list(shared._records), shared._spent, shared.ready, shared.affordable, list(controller.live)),
        "finetuning": {key: (n.record and n.record.trial, n.steps) for key, n in controller.finetuning._nets.items()},
        "forecast": {kind: work.flops for kind, work in Forecast(controller).left().items()},
    }


@pytest.mark.slow
def test_a_log_cut_at_any_line_says_how_far_the_bank_is(open_supernet: Open, tmp_path: Path) -> None:
    """One segment diverges, and the state after another is broken: the bank goes back to the one before."""
    controller, log, told, count = open_supernet(), tmp_path / "records.jsonl", dict[int, Any](), 0
    driver = driver_of(controller)
    while not isinstance(job := driver.next(), Idle):
        count += isinstance(job, SupernetJob)
        lines = len(log.read_bytes().splitlines())
        told.setdefault(lines, (known(controller), type(job), getattr(job, "start_step", 0)))
        odd = {3: "nan", 6: "rewind", 9: "rewind"}.get(count) if isinstance(job, SupernetJob) else None
        alone = JobResult(job.id, "ok", getattr(job, "stop_step", 0), 0.6, how={"evaluated": 720})
        driver.take(JobResult(job.id, odd, error="so") if odd else answer(job) or alone)
    steps = [event.step for event in read_events(tmp_path, "bank")]
    assert sorted(steps) != steps
    lines = log.read_bytes().splitlines(keepends=True)
    assert len(told) > len(lines) / 2
    for cut, (state, kind, start) in told.items():
        log.write_bytes(b"".join(lines[:cut]))
        again = open_supernet()
        assert known(again) == state, f"cut after {cut} lines"
        following = driver_of(again).next()
        assert (type(following), getattr(following, "start_step", 0)) == (kind, start), f"cut after {cut} lines"


def test_the_time_left_is_learned_in_seconds_of_each_kind_of_work(open_supernet: Open) -> None:
    """The bank takes a minute a step, whatever its FLOPs; of what is known of no kind a FLOP takes as long."""
    controller, began = open_supernet(), 0.0
    driver, shared = driver_of(controller), shared_of(controller)
    while not isinstance(job := driver.next(), SupernetJob):
        assert not isinstance(job, Idle)
        driver.take(JobResult(job.id, "error", error="not of interest"))
    for number in range(3):
        job = driver.next() if number else job
        assert isinstance(job, SupernetJob)
        began += 60.0 * len(job.nets)
        result = answer(job)
        assert result is not None
        driver.take(replace(result, seconds=began))
    forecast, step, pace = Forecast(controller), shared.bank_training.progress["step"], Pace()
    for known in forecast.known():
        pace.add(*known)
    left = forecast.left()
    seconds = pace.seconds(BANK, left[BANK])
    assert seconds == pytest.approx(60.0 * (shared.budget.steps - step))
    assert pace.seconds("alone", left["alone"]) == pytest.approx(seconds * left["alone"].flops / left[BANK].flops)
