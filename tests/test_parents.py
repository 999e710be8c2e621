"""Searches whose nets inherit weights, train several times over, stop at rungs, run out of memory; samplers by path."""

import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from alternas.archs import Genotype, InputError, Stage, Stem
from alternas.archs.cost import BACKWARD_FACTOR
from alternas.archs.files import digest
from alternas.results.ranking.front import leaderboard
from alternas.results.ranking.noise import noise_of
from alternas.results.runs.record import Record
from alternas.results.runs.store import weights_file
from alternas.search.strategies.history import State
from alternas.search.strategies.optuna_strategy import OptunaStrategy, validate_sampler
from alternas.search.strategies.registry import check_strategy
from alternas.search.strategies.strategy_context import features
from alternas.search.training.job import JobResult, Point, TrainJob
from alternas.search.trials.proposer import REPEATS_BEFORE_RANDOM_DRAW
from alternas.search.trials.search_trials import SearchTrials
from alternas.search.trials.trial import BASELINE_SEEDS
from alternas.search.trials.weight_sources import MIN_SHARED, Relatives, shared_blocks
from alternas.spaces import get
from alternas.spaces.base import members
from fakes import STEPS, FakeExecutor, KilledError, SilentView, fake_accuracy, run_loop, spec_of

Open = Callable[..., SearchTrials]
Fate = Callable[[TrainJob], Any]


@pytest.fixture
def opened(open_controller: Open) -> Open:
    """Opens a controller on space `bench`."""
    return partial(open_controller, get("bench", 8))


def trained(job: TrainJob) -> JobResult:
    """A leg that went well. Weights are written at the end, and what they came from is said, as the trainer does."""
    if job.stop_step == job.total_steps:
        Path(job.weights).parent.mkdir(exist_ok=True)
        Path(job.weights).touch()
    accuracy = fake_accuracy(job.genotype, job.stop_step * STEPS // job.total_steps) - 0.001 * (job.seed % 10)
    lineage = {"weights": job.start.weights, "label": job.start.label, "steps": job.start.steps} if job.start else {}
    curve = (Point(job.stop_step, 1.0, accuracy),)
    return JobResult(job.id, "ok", job.stop_step, accuracy, {"nll": 0.5}, curve, 1.0, "fake", lineage=lineage)


class Hearer(SilentView):
    """Tells of each job that is started."""

    def __init__(self, hear: Callable[[TrainJob], Any]) -> None:
        self.started = hear  # type: ignore[method-assign]


def finish(
    controller: SearchTrials, fate: Fate = trained, slots: int = 1, hear: Callable[[TrainJob], Any] = lambda job: None
) -> FakeExecutor:
    """Drive to the end; an outcome for each job."""
    executor = FakeExecutor(slots, fate)
    run_loop(controller, executor, Hearer(hear))
    return executor


def searched(controller: SearchTrials) -> list[Record]:
    return [r for r in controller.store.records if r.kind == "search" and r.status not in ("duplicate", "infeasible")]


def alike(a: Genotype, b: Genotype) -> float:
    """Share of the numbers and names of two nets that are equal."""
    return len(features(a) & features(b)) / max(len(features(a)), len(features(b)))


def net_of(record: Record) -> Genotype:
    return Genotype.from_dict(record.genotype)


def test_a_net_inherits_from_the_most_alike_that_is_trained(opened: Open) -> None:
    controller = opened(25, inherit=True)
    executor = finish(controller)
    by_trial = {r.trial: r for r in controller.store.records}
    children, others = list[TrainJob](), list[TrainJob]()
    for number, job in enumerate(executor.ran):
        before = [by_trial[other.trial] for other in executor.ran[:number]]
        near = [r for r in before if shared_blocks(job.genotype, net_of(r)) >= MIN_SHARED]
        best = max(((alike(net_of(r), job.genotype), -r.trial, r.key) for r in near), default=None)
        if by_trial[job.trial].kind == "search" and best:
            assert job.start is not None
            assert Path(job.start.weights) == controller.context.folder / "weights" / f"{best[2]}.safetensors"
            assert Path(job.start.weights).exists()
            assert (job.total_steps, job.stop_step) == (STEPS // 2, STEPS // 2)
            children.append(job)
        else:
            assert job.start is None
            assert job.total_steps == STEPS
            others.append(job)
    assert len(children) > 5
    assert len(others) > len(controller.baselines), "some are too different from all"


def test_the_share_of_blocks_that_two_nets_have_in_common() -> None:
    """By channels squared, stage by stage: 2 x 8^2 + 2 x 16^2 = 640 in all, of which 2 x 16^2 = 512 are alike."""
    stem, last = Stem("cifar", 8), Stage("mbconv", 2, 16, 2)
    one, other = (Genotype(stem, (Stage(kind, 2, 8), last)) for kind in ("mbconv", "convnext"))
    assert shared_blocks(one, other) == shared_blocks(other, one) == 512 / 640
    assert shared_blocks(one, Genotype(stem, (Stage("mbconv", 2, 8),))) == 128 / 640
    assert shared_blocks(one, one) == 1


def test_baselines_never_inherit(opened: Open) -> None:
    controller = opened(24, inherit=True)
    executor = finish(controller)
    first = [job for job in executor.ran if job.trial < len(controller.baselines)]
    assert len(first) == len(controller.baselines) * BASELINE_SEEDS
    shares = [shared_blocks(a.genotype, b.genotype) for a in first for b in first if a.trial != b.trial]
    assert max(shares) >= MIN_SHARED, "though alike"
    assert all(job.start is None and job.total_steps == STEPS for job in first)
    assert all(not r.lineage for r in controller.store.records if r.kind == "baseline")


def test_lineage_sums_what_the_ancestors_cost(opened: Open) -> None:
    controller = opened(25, inherit=True)
    finish(controller)
    by_trial, batch = {r.trial: r for r in controller.store.records}, controller.context.settings.recipe.batch_size
    assert BACKWARD_FACTOR == 6
    depths = Counter[int]()
    for record in searched(controller):
        assert record.budget["full"] == record.budget["done"] == (STEPS // 2 if record.lineage else STEPS)
        flops, steps, at, depth = 0, 0, record, 0
        while at.lineage:
            at, depth = by_trial[at.lineage["trial"]], depth + 1
            assert at.status == "ok"
            flops += 6 * at.cost["macs"] * batch * at.budget["done"]
            steps += at.budget["done"]
        assert record.lineage.get("flops", 0) == flops
        assert record.lineage.get("steps", 0) == steps
        depths[depth] += 1
    assert depths[0]
    assert depths[1]
    assert depths[2], "children of children"


def test_only_weights_that_are_there_are_inherited(opened: Open) -> None:
    def thrown_away(job: TrainJob) -> JobResult:
        outcome = trained(job)
        if job.trial % 2:
            Path(job.weights).unlink()
        return outcome

    controller = opened(30, inherit=True)
    executor = finish(controller, thrown_away)
    parents = {r.lineage["trial"] for r in searched(controller) if r.lineage}
    assert parents
    assert not any(trial % 2 for trial in parents)
    assert all(Path(job.start.weights).exists() for job in executor.ran if job.start)


@pytest.mark.parametrize("scheduler", ["none", "mo-asha"])
def test_damaged_weights_are_inherited_by_nobody(
    opened: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture, scheduler: str
) -> None:
    """Cut short, changed or gone between two sessions: others are parents then, of nets under way too."""

    def written(job: TrainJob) -> JobResult:
        outcome = trained(job)
        Path(job.checkpoint).parent.mkdir(exist_ok=True)
        Path(job.checkpoint).touch()
        if job.stop_step < job.total_steps:
            return outcome
        Path(job.weights).write_bytes(job.genotype.key.encode())
        return replace(outcome, how={"weights_sha256": digest(job.genotype.key.encode())})

    def killed(job: TrainJob) -> JobResult:
        if job.start and sum(1 for r in controller.store.records if r.lineage) > 4:
            raise KilledError
        return written(job)

    controller = opened(20, inherit=True, scheduler=scheduler)
    with pytest.raises(KilledError):
        finish(controller, killed)
    whole = {r.trial for r in controller.store.records if r.status == "ok"}
    damaged = set(sorted(whole)[::2])
    for number, record in enumerate(r for r in controller.store.records if r.trial in damaged):
        file = weights_file(tmp_path, record)
        file.write_bytes(file.read_bytes()[:-1] if number % 3 else b"NaN") if number % 4 else file.unlink()
    again = opened(20, inherit=True, scheduler=scheduler)
    begun = {job.trial: job.start for job in finish(again, written).ran if job.start}
    labels = {start.label for start in begun.values()}
    assert labels, "others are still inherited from"
    assert not labels & {f"trial {trial}" for trial in damaged}
    assert {r.status for r in searched(again)} <= {"ok", "pruned", "duplicate", "infeasible"}
    assert "its weights have changed since it was trained, no net begins with them" in caplog.text


def test_children_stop_at_rungs_of_their_own_budget(opened: Open) -> None:
    controller = opened(40, scheduler="mo-asha", rungs=(0.25, 0.5), inherit=True)
    executor = finish(controller)
    stops = defaultdict(set)
    for job in executor.ran:
        if job.trial >= len(controller.baselines):
            stops[job.start is not None].add((job.stop_step, job.total_steps))
    assert stops[False] == {(STEPS // 4, STEPS), (STEPS // 2, STEPS), (STEPS, STEPS)}
    assert stops[True] == {(STEPS // 8, STEPS // 2), (STEPS // 4, STEPS // 2), (STEPS // 2, STEPS // 2)}
    parents = {r.lineage["trial"] for r in searched(controller) if r.status == "ok" and r.lineage}
    assert {r.status for r in controller.store.records if r.trial in parents} == {"ok"}, "pruned nets leave nothing"


def killed_after(jobs: int, fate: Fate = trained) -> Fate:
    """A fate that kills the driver when so many jobs have ended."""
    left = jobs

    def die(job: TrainJob) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise KilledError
        return fate(job)

    return die


@pytest.mark.parametrize("scheduler", ["none", "mo-asha"])
def test_an_orphan_keeps_its_parent(opened: Open, scheduler: str) -> None:
    seen: dict[int, set[Any]] = defaultdict(set)

    draw, tempted, kills = random.Random(0), 0, 0
    while True:
        controller = opened(30, scheduler=scheduler, inherit=True)
        parents = controller.weights
        assert isinstance(parents, Relatives)
        for trial, candidate in controller.live.items():
            nearest = parents.most_similar(candidate.net)
            tempted += bool(seen[trial]) and nearest is not None and (nearest.start, STEPS // 2) not in seen[trial]
        try:
            finish(
                controller,
                killed_after(draw.randint(3, 12)),
                6,
                lambda job: seen[job.trial].add((job.start, job.total_steps)),
            )
            break
        except KilledError:
            kills += 1
    assert kills > 3
    assert tempted, "meanwhile another has been trained that is more alike"
    assert all(len(starts) == 1 for starts in seen.values())
    for record in searched(controller):
        ((start, steps),) = seen[record.trial]
        assert record.budget["full"] == steps
        assert (start is not None) == bool(record.lineage)
        assert start is None or start.label == f"trial {record.lineage['trial']}"


def test_a_net_is_trained_with_each_seed(opened: Open, tmp_path: Path) -> None:
    def saved(job: TrainJob) -> JobResult:
        Path(job.checkpoint).touch()
        return trained(job)

    (tmp_path / "checkpoints").mkdir()
    controller = opened(6, repeats=3, seed=7)
    executor = finish(controller, saved, slots=2)
    assert not list((tmp_path / "checkpoints").iterdir())
    assert len(list((tmp_path / "weights").iterdir())) == 3 * (6 + len(controller.baselines))
    jobs = defaultdict(list)
    for job in executor.ran:
        jobs[job.trial].append(job)
    for record in controller.store.records:
        own = jobs[record.trial]
        assert [job.seed for job in own] == [7, 8, 9]
        assert all((job.stop_step, job.total_steps) == (STEPS, STEPS) for job in own)
        assert len({job.checkpoint for job in own}) == len({job.weights for job in own}) == 3
        assert Path(own[0].weights).name == f"{record.key}.safetensors"
        expected = {str(job.seed): trained(job).accuracy for job in own}
        assert record.accuracies == expected
        assert record.accuracy == pytest.approx(statistics.mean(a for a in expected.values() if a is not None))
        assert record.seconds == 3.0
    files = [job.weights for job in executor.ran] + [job.checkpoint for job in executor.ran]
    assert len(files) == len(set(files))
    assert all(row.seeds == 3 for row in leaderboard(controller.store.records).rows)


def test_baselines_are_trained_with_several_seeds(opened: Open) -> None:
    controller = opened(24, seed=7)
    executor = finish(controller)
    seeds = [str(7 + i) for i in range(BASELINE_SEEDS)]
    for record in controller.store.records:
        if record.kind == "baseline":
            assert list(record.accuracies) == seeds
            assert record.accuracy == pytest.approx(statistics.mean(record.accuracies.values()))
            assert [str(job.seed) for job in executor.ran if job.trial == record.trial] == seeds
    assert noise_of(controller.store.records) is not None, "what the seed noise of a run is estimated from"


def test_further_seeds_stop_at_no_rung(opened: Open) -> None:
    controller = opened(30, scheduler="mo-asha", repeats=3)
    executor = finish(controller, slots=3)
    whole = {r.trial for r in controller.store.records if r.status == "ok"}
    for job in executor.ran:
        assert job.seed == 0 or (job.stop_step == STEPS and job.trial in whole)
    by_seed = Counter(job.seed for job in executor.ran)
    assert by_seed[1] == by_seed[2] == len(whole)
    for record in controller.store.records:
        assert set(record.accuracies) == ({"0", "1", "2"} if record.status == "ok" else set())
        assert record.rung == len(record.rungs) <= 4, "a rung for each stop of the first seed"
    assert {r.status for r in searched(controller)} == {"ok", "pruned"}


def test_a_seed_that_diverges_ends_the_net(opened: Open) -> None:
    def fate(job: TrainJob) -> JobResult:
        diverged = job.trial % 3 == 0 and job.seed == 1
        return JobResult(job.id, "nan", 3, error="loss is not finite") if diverged else trained(job)

    controller = opened(9, repeats=3)
    executor = finish(controller, fate)
    ran = Counter(job.trial for job in executor.ran)
    for record in controller.store.records:
        ill = record.trial % 3 == 0
        assert record.status == ("nan" if ill else "ok")
        assert ran[record.trial] == (2 if ill else 3)
        assert (record.accuracy is None) == ill
        assert controller.history.trials[record.trial].state == (State.FAIL if ill else State.COMPLETE)
    assert any(r.status == "nan" for r in controller.store.records)


def test_records_tell_how_far_a_net_came(opened: Open) -> None:
    controller = opened(40, scheduler="mo-asha")
    executor = finish(controller, slots=3)
    reached = defaultdict(list)
    for job in executor.ran:
        reached[job.trial].append((job.stop_step, trained(job).accuracy))
    assert {r.status for r in searched(controller)} == {"ok", "pruned"}
    for record in searched(controller):
        assert [(rung["step"], rung["accuracy"]) for rung in record.rungs] == reached[record.trial]
        assert [rung["step"] for rung in record.rungs] == [2, 4, 8, 16][: len(record.rungs)]
        promoted = [rung["promoted"] for rung in record.rungs]
        assert promoted == [True] * (len(promoted) - 1) + [False]
        assert record.rung == len(record.rungs)
        assert (record.status == "ok") == (len(record.rungs) == 4)
        assert record.accuracy == record.rungs[-1]["accuracy"]
    assert len({len(r.rungs) for r in searched(controller)}) > 2
    for record in (r for r in controller.store.records if r.kind == "baseline"):  # which pass no rung before their end
        assert record.budget["done"] == STEPS
        assert [rung["step"] for rung in record.rungs][-1:] in ([], [STEPS])


def test_memory_is_a_constraint(opened: Open, tmp_path: Path) -> None:
    def fate(job: TrainJob) -> JobResult:
        large = job.trial % 3 == 0
        return JobResult(job.id, "oom", 2, error="out of memory") if large else trained(job)

    limits = {"macs": 1_000_000, "params": 45_000}
    controller = opened(20, limits=limits)
    finish(controller, fate)
    before = controller.history.trials
    records = {r.trial: r for r in controller.store.records}
    assert {"oom", "infeasible", "ok"} <= {r.status for r in records.values() if r.kind == "search"}
    for trial in before:
        record = records.get(trial.number)
        if record and record.status == "oom" and record.kind == "search":
            assert (trial.state, trial.violated) == (State.PRUNED, {"memory": 1.0})
        elif record and record.status == "infeasible":
            over = {name: record.cost[name] / most - 1 for name, most in limits.items() if record.cost[name] > most}
            assert (trial.state, trial.violated) == (State.PRUNED, pytest.approx(over))
            assert record.constraint_violation == over
        elif record and record.status == "ok":
            assert not any(value > 0 for value in trial.violated.values())
    assert opened(20, limits=limits).history.trials == before


SAMPLERS = '''
from optuna.samplers import BaseSampler, RandomSampler

class Stubborn(BaseSampler):
    """Always the same net."""
    def infer_relative_search_space(self, study, trial):
        return {}
    def sample_relative(self, study, trial, search_space):
        return {}
    def sample_independent(self, study, trial, param_name, param_distribution):
        return param_distribution.choices[-1]

class Seeded(Stubborn):
    """Goes by a seed."""
    def __init__(self, seed):
        self.seed = seed
    def sample_independent(self, study, trial, param_name, param_distribution):
        choices = param_distribution.choices
        return choices[hash((self.seed, trial.number, len(param_name), len(choices))) % len(choices)]

class Short(Seeded):
    """Has had enough after some nets that it is told of, baselines too."""
    told = 0
    def after_trial(self, study, trial, state, values):
        self.told += 1
        if self.told == 8:
            study.stop()

NUMBER = 3
def function():
    return RandomSampler()
class NoSampler:
    pass
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of samplers in the current folder."""
    name = f"samplers_{tmp_path.name}_{random.getrandbits(64):x}"
    (tmp_path / f"{name}.py").write_text(SAMPLERS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return name


def asked(controller: SearchTrials) -> OptunaStrategy:
    strategy = controller.proposer.strategy
    assert isinstance(strategy, OptunaStrategy)
    return strategy


@pytest.mark.parametrize("name", ["tpe", "MODULE:Seeded"])
def test_what_a_sampler_sees_is_what_the_log_says(opened: Open, module: str, name: str) -> None:
    """Of an unbroken run as of a resumed one, in Optuna's terms; nets that wait at a rung run."""
    how: dict[str, Any] = {"strategy": name.replace("MODULE", module), "scheduler": "mo-asha"}
    how |= {"repeats": 2, "limits": {"macs": 900_000}}
    live = opened(12, **how)
    run_loop(live, FakeExecutor(3, lambda job: None), SilentView(), seconds=0.5)
    for controller in (live, opened(12, **how)):
        strategy, records = asked(controller), {r.trial: r for r in controller.store.records}
        strategy.follow(controller.history)
        trials = strategy.study.get_trials()
        assert len(trials) == controller.history.next_number
        for trial in trials:
            record, running = records.get(trial.number), controller.live.get(trial.number)
            if running:
                assert (trial.state, trial.params) == (TrialState.RUNNING, running.genes)
                passed = running.rung_accuracies[: len(running.rung_steps) - 1]  # a first seed may have ended
                rungs = [trial.user_attrs[f"rung{i}"] for i in range(len(passed))]
                assert (rungs, trial.user_attrs["aim"]) == (passed, running.promoted)
            elif record and record.status == "ok":
                assert trial.values == [record.accuracy, record.cost["macs"]]
                assert trial.user_attrs.get("accuracies", {}) == (record.accuracies if record.accuracies else {})
            elif record and record.status == "infeasible":
                assert (trial.state, trial.constraints) == (TrialState.PRUNED, record.constraint_violation)


@pytest.mark.parametrize("name", ["Seeded", "Stubborn"])
def test_a_sampler_of_a_module_follows_the_seed(opened: Open, module: str, name: str) -> None:
    """Random draws do, where the sampler says the same again and again."""
    nets = []
    for seed in (1, 1, 2):
        controller = opened(10, f"{module}:{name}", seed=seed)
        sampler = asked(controller).sampler
        assert type(sampler).__name__ == name
        assert getattr(sampler, "seed", seed) == seed
        finish(controller)
        assert len(searched(controller)) == 10
        nets.append([r.key for r in searched(controller)])
        (controller.context.folder / "records.jsonl").unlink()
    assert nets[0] == nets[1] != nets[2]


def test_a_sampler_may_end_the_search(opened: Open, module: str) -> None:
    controller = opened(10, f"{module}:Short", seed=1)
    finish(controller)
    assert controller.complete
    assert 0 < len(searched(controller)) < 10


def test_a_sampler_that_starts_anew_gets_another_seed(opened: Open, module: str) -> None:
    finish(opened(5, f"{module}:Seeded"))
    controller = opened(10, f"{module}:Seeded")
    assert getattr(asked(controller).sampler, "seed", 0) == controller.history.next_number > 5


@pytest.mark.parametrize(("name", "about"), [
    ("nowhere_at_all:Sampler", "nowhere_at_all"), ("MODULE:Missing", "Missing"), ("MODULE:NoSampler", "NoSampler"),
    ("MODULE:NUMBER", "NUMBER"), ("MODULE:function", "function"), ("MODULE:", "sampler"), (":Seeded", "Seeded"),
    ("json:dumps", "dumps"), ("randm", "did you mean 'random'"), (".samplers:Sampler", "samplers"),
])  # fmt: skip
def test_samplers_that_are_none(module: str, name: str, about: str) -> None:
    with pytest.raises(InputError, match=about) as error:
        check_strategy(name.replace("MODULE", module))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "method", ["before_trial", "infer_relative_search_space", "sample_relative", "sample_independent", "after_trial"]
)
def test_whatever_a_sampler_raises_is_one_line(opened: Open, module: str, tmp_path: Path, method: str) -> None:
    """In the rehearsal, and later: where it is asked for a net, for a gene, and where it is told of one."""
    name = f"broken_{module}"
    lines = [f"from {module} import Seeded", r"def broken(*words): raise MemoryError('so\nso')"]
    lines.append(f"class Broken(Seeded): {method} = broken")
    (tmp_path / f"{name}.py").write_text("\n".join(lines), encoding="utf-8")
    message = rf"^strategy '{name}:Broken': {name}.py:2: MemoryError: so so$"
    ground = opened(5).context.strategy_context()
    with pytest.raises(InputError, match=message):
        validate_sampler(f"{name}:Broken", ground)
    with pytest.raises(InputError, match=message):
        finish(opened(5, f"{name}:Broken"))


def test_the_rehearsal_of_a_sampler(opened: Open, module: str) -> None:
    ground = opened(5).context.strategy_context()
    with pytest.raises(InputError, match="CmaEsSampler cannot be used"):
        validate_sampler("optuna.samplers:CmaEsSampler", ground)
    with pytest.raises(InputError, match="BruteForceSampler': ValueError: param_name mismatch"):
        validate_sampler("optuna.samplers:BruteForceSampler", ground)
    for name in (f"{module}:Seeded", "optuna.samplers:NSGAIIISampler"):
        validate_sampler(name, ground)
    with pytest.raises(InputError):
        opened(4, "optuna.samplers:GridSampler")


def test_a_sampler_that_repeats_itself_gets_random_draws(opened: Open, module: str) -> None:
    controller = opened(8, f"{module}:Stubborn")
    finish(controller)
    nets = searched(controller)
    assert len(nets) == 8
    assert not controller.exhausted
    known, runs = 0, list[int]()
    for record in controller.store.records:
        known = known + 1 if record.status == "duplicate" else 0
        runs.append(known)
    assert max(runs) == REPEATS_BEFORE_RANDOM_DRAW, "so many known proposals come first, then a net that is new"
    families = {r.family for r in nets}
    assert len(families) > 1, "drawn from all of the space"


def test_the_last_nets_of_a_space_are_found(open_controller: Open, module: str) -> None:
    """Few of many draws are new at the end; those that are not leave no records."""
    space = get("placements", 16)
    nets = {net.key for _, net in members(space)}
    controller = open_controller(space, len(nets) + 1, f"{module}:Stubborn")
    finish(controller)
    assert controller.exhausted
    assert nets <= {r.key for r in controller.store.records}
    assert len(controller.store.records) <= (REPEATS_BEFORE_RANDOM_DRAW + 1) * (len(nets) + 1) + len(space.baselines())


def test_settings_of_repeats_are_checked() -> None:
    for wrong in (0, -1, 1001):
        with pytest.raises(InputError, match="repeats"):
            spec_of("bench", repeats=wrong)


@pytest.mark.parametrize(("before", "after", "parent"), [(0.7, 0.8, 9), (0.8, 0.7, 1)])
def test_nets_inherit_the_better_weights_of_one_that_was_trained_on(
    tmp_path: Path, before: float, after: float, parent: int
) -> None:
    net, pool = get("bench", 8).baselines()[0], Relatives(tmp_path, (STEPS,))
    (tmp_path / "weights").mkdir()
    for trial, accuracy, weights, lineage in ((1, before, "alone", {}), (9, after, "finetuned", {"trial": 1})):
        fields: dict[str, Any] = {"accuracy": accuracy, "weights": weights, "lineage": lineage, "budget": {"done": 9}}
        record = Record(trial, "search", "resnet", net.key, net.to_dict(), {}, {"macs": 9, "params": 9}, "ok", **fields)
        weights_file(tmp_path, record).touch()
        pool.apply(record)
    assert [pool.get(trial) is not None for trial in (1, 9)] == [parent == 1, parent == 9]
