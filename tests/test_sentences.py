"""Every sentence about a run, held against the rows of its table, in 500 made-up runs."""

import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from alternas.results.ranking.chance import above_chance
from alternas.results.ranking.front import ExtraResults, Leaderboard, rank_rows
from alternas.results.ranking.objectives import RankingQuery
from alternas.results.ranking.ranked_net import RankedNet
from alternas.results.ranking.remarks import rising_lines
from alternas.results.ranking.verdict import recommended, verdict_of
from alternas.results.render.board import summary_lines
from alternas.results.render.tables import short
from alternas.results.runs.record import Record
from runs import DATA, made_run, near_noise

RUNS, STEPS, EPOCHS = 500, 32, 4
QUERY = RankingQuery(("accuracy", "macs"))
RECIPE = {"name": "smoke", "epochs": EPOCHS, "batch_size": 16}
KINDS = ("usual", "one seed", "few repeats", "at chance", "huge noise", "equal", "empty")
TIED = re.compile(
    r"; (nets? [^;]*?) (?:is|are) tied with it"
    r"(?:, (?:the cheapest of them( on the front)? net (\d+) )?at ([\d.]+ ?[kMG]?) MACs)?\.$"
)
GUESS = re.compile(r"No net is above chance \(([\d.]+)\) by more than the noise; the best, net (\d+), has ([\d.]+)"
                   r"(?: \(([\d.]+) to ([\d.]+).*\))?: train longer\.")  # fmt: skip
EXPECTED = re.compile(r"^Best of \d+, so in part the luckiest: expect accuracy (\d\.\d{3}) of new pictures[.;]")
COMMAND = re.compile(r"alternas retrain \S+ --trials ([\d,]+) --epochs ([\d.]+) --seeds 1")


def made_up(draw: random.Random, kind: str, classes: int) -> list[Record]:
    """The records of a run: plain ResNets, nets that inherit, copies that were trained on, better or worse."""
    sd = {"usual": draw.choice([0.002, 0.01, 0.03]), "huge noise": 0.4, "equal": 0.0}.get(kind, 0.02)
    records: list[Record] = []
    for trial in range(0 if kind == "empty" else draw.randint(1, 14)):
        plain = trial < 4 and draw.random() < 0.7
        seeds = draw.choice([2, 2, 3]) if plain else draw.choice([1, 1, 1, 2])
        seeds = 1 if kind == "one seed" or (kind == "few repeats" and trial > 1) else seeds
        middle = draw.uniform(0.4, 0.95) if kind != "equal" else draw.choice([0.5, 0.75])
        middle = 1 / classes + draw.gauss(0, 0.02) if kind == "at chance" else middle
        records.append(trained(trial, f"net{trial}", draw, middle, sd, seeds, "baseline" if plain else "search"))
        if trial and not plain and draw.random() < 0.3:
            source = draw.choice(records[:-1])
            lineage = {"trial": source.trial, "steps": draw.choice([source.steps_in_all, None]), "flops": 1}
            records[-1] = replace(records[-1], weights="inherited", lineage=lineage)
    for source in [r for r in records if draw.random() < 0.4]:
        lineage = {"trial": source.trial, "weights": f"trial {source.trial}", "steps": source.steps_in_all}
        middle, seeds = (source.accuracy or 0.0) + draw.gauss(0.02, 0.05), max(1, len(source.accuracies))
        later = trained(len(records), source.key, draw, middle, sd, seeds, source.kind, draw.choice([40, 400]))
        records.append(replace(later, weights="finetuned", lineage=lineage, cost=source.cost))
    return records


def trained(trial: int, key: str, draw: random.Random, middle: float, sd: float, seeds: int, kind: str,
            steps: int = STEPS) -> Record:  # fmt: skip
    each = [round(min(1.0, max(0.0, draw.gauss(middle, sd))), 4) for _ in range(seeds)]
    macs = draw.choice([10_000, 20_000, 20_000, 50_000, 100_000, 400_000]) + draw.choice([0, 0, trial])
    start = draw.choice([0.1, 0.9])
    curve = [{"step": steps // 2, "accuracy": start}, {"step": steps, "accuracy": each[0]}]
    return Record(
        trial, kind, "resnet", key, {}, {}, {"macs": macs, "params": macs // 10}, "ok", accuracy=sum(each) / seeds,
        accuracies={str(seed): one for seed, one in enumerate(each)} if seeds > 1 else {}, curve=curve,
        budget={"done": steps, "full": steps}, recipe=RECIPE, seconds=1.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Leaderboard]]:
    """The boards of all runs, each with its kind."""
    draw, folders = random.Random(53), {}
    for classes in (2, 10):
        facts = DATA | {"classes": [*map(str, range(classes))]}
        told = {"objective": "macs", "recipe": RECIPE}
        folders[classes] = made_run(tmp_path_factory.mktemp("runs") / f"of{classes}", [], data=facts, settings=told)
    found = []
    for number in range(RUNS):
        kind, classes = KINDS[number % len(KINDS)], draw.choice([2, 10])
        images = draw.choice([0, 36, 200, 5_000])
        board = rank_rows(made_up(draw, kind, classes), QUERY, ExtraResults(images=images))
        found.append((kind, replace(board, folder=folders[classes])))
    return found


def test_no_net_is_counted_twice(boards: list[tuple[str, Leaderboard]]) -> None:
    copies = 0
    for _, board in boards:
        nets = {r.key for r in board.records}
        assert sorted(row.key for row in board.rows) == sorted(nets)
        copies += len(board.records) - len(nets)
        for said in verdict_of(board):
            if lucky := re.match(r"Best of (\d+),", said):
                assert int(lucky[1]) == len(nets)
        behind = [line for line in summary_lines(board, board.rows) if "nets behind the front" in line]
        tied = [row.key for row in board.rows if row.rank > 1 and row.tied_with]
        assert not behind or int(behind[0].rpartition(": ")[2]) == len({*tied}) == len(tied)
    assert copies > 500


def test_who_is_called_tied_is_within_the_intervals_that_are_shown(boards: list[tuple[str, Leaderboard]]) -> None:
    ties, unknown = 0, 0
    for kind, board in boards:
        groups = [[*r.accuracies.values()] for r in board.records if len(r.accuracies) > 1]
        by_trial = {row.trial: row for row in board.rows}
        for row in board.rows:
            if row.tied_with is None:
                known = board.noise and groups and near_noise(groups, row.accuracy)[1] >= 4
                assert not known or math.sqrt(2) * seeds_half(board, row) > 0.1
                unknown += 1
                continue
            assert near_noise(groups, row.accuracy)[1] >= 4
            for other in (by_trial[trial] for trial in row.tied_with):
                width = math.hypot(row.interval, other.interval)
                assert abs(row.accuracy - other.accuracy) <= width + 1e-12
                assert math.hypot(seeds_half(board, row), seeds_half(board, other)) <= 0.1 + 1e-12
                assert 1 in (row.rank, other.rank)
                assert row.trial in (other.tied_with or ())
                ties += 1
        assert kind != "one seed" or all(row.tied_with is None for row in board.rows)
    assert min(ties, unknown) > 300


def seeds_half(board: Leaderboard, row: RankedNet) -> float:
    assert board.noise
    return board.noise.seeds_half_width(row.accuracy, row.seeds)


def test_what_is_expected_of_new_pictures_is_the_rows_and_lower(boards: list[tuple[str, Leaderboard]]) -> None:
    said, unsaid = 0, 0
    for _, board in boards:
        found = [EXPECTED.search(line) for line in verdict_of(board)]
        told = [match[1] for match in found if match]
        for row in board.rows:
            assert (row.expected is None) == (not board.extra.images)
            assert row.expected is None or 0 <= row.expected <= 1
        if not above_chance(board):
            assert not told
            continue
        row = recommended(board)
        expected, own = (f"{score:.3f}" for score in (row.expected or 1.0, row.accuracy))
        assert told == [expected] * (expected < own and row.kind == "search" and len(board.rows) > 1)
        said, unsaid = said + len(told), unsaid + (not told)
    assert min(said, unsaid) > 50


def test_the_net_to_take_and_what_is_beside_it(boards: list[tuple[str, Leaderboard]]) -> None:
    named = 0
    for _, board in boards:
        if not above_chance(board):
            continue
        first, *rest = verdict_of(board)
        row = recommended(board)
        taken = re.match(
            r"Take net (\d+)(?: \(a plain ResNet\))?(, the cheapest within one standard error of the best)?: "
            r"([\d.]+ ?[kMG]?) MACs, (\d\.\d+)(?: ± (\d\.\d+))?",
            first,
        )
        assert taken, first
        check_within_error(board, row, bool(taken[2]))
        assert (int(taken[1]), taken[3], taken[4]) == (row.trial, short(row.costs["macs"]), f"{row.accuracy:.3f}")
        assert taken[5] is None or taken[5] == f"{row.interval:.3f}"
        assert (row.interval is None) == (board.noise is None)
        tied, ties = TIED.search(first), row.tied_with or []
        assert bool(tied) == bool(ties), first
        if tied:
            named += 1
            numbers = [int(number) for number in re.findall(r"\b(\d+)\b(?! others?)", tied[1])]
            more = re.search(r"(\d+) others?$", tied[1])
            assert numbers == ties[: len(numbers)]
            assert len(numbers) + (int(more[1]) if more else 0) == len(ties)
            check_cheaper(board, row, tied)
        knees = [re.match(r"The knee of the front, .* is net (\d+): ([\d.]+ ?[kMG]?) MACs", said) for said in rest]
        for found in filter(None, knees):
            at_knee = next(of for of in board.front if of.knee)
            assert (int(found[1]), found[2]) == (at_knee.trial, short(at_knee.costs["macs"]))
            assert at_knee.trial != row.trial
        unknown = [said for said in rest if "tied" in said]
        assert bool(unknown) == (row.tied_with is None)
        if best := [said for said in rest if said.startswith("The most accurate is net ")]:
            trial = int(re.findall(r"net (\d+):", best[0])[0])
            most = next(of for of in board.rows if of.trial == trial)
            assert most.accuracy == max(of.accuracy for of in board.rows)
            times, points = most.costs["macs"] / row.costs["macs"], 100 * (most.accuracy - row.accuracy)
            assert f", {times:.2g} times the MACs for {points:.1f} points" in best[0]
            assert ("does not tell from it" in best[0]) == (trial in ties)
    assert named > 50


def check_within_error(board: Leaderboard, row: RankedNet, is_said: bool) -> None:
    """Said where a more accurate net is on the front, and true of no cheaper net there."""
    front = [of for of in above_chance(board) if of.rank == 1] or above_chance(board)
    best = max(front, key=lambda of: (of.accuracy, -of.costs["macs"]))
    assert is_said == (row.accuracy < best.accuracy)
    if is_said:
        assert board.noise
        error = board.noise.standard_error(best.accuracy, best.seeds)
        within = [of for of in front if of.accuracy >= best.accuracy - error]
        assert row.costs["macs"] == min(of.costs["macs"] for of in within)


def check_cheaper(board: Leaderboard, row: RankedNet, tied: re.Match[str]) -> None:
    """What is offered as cheaper is on the front, tied and cheaper; where nothing is, no such net is."""
    among = [of for of in board.rows if of.trial in row.tied_with and of.costs["macs"] < row.costs["macs"]]
    on_front = [of for of in among if of.rank == 1]
    assert bool(tied[4]) == bool(on_front)
    if on_front:
        cheapest = min(on_front, key=lambda of: of.costs["macs"])
        assert tied[4] == short(cheapest.costs["macs"])
        assert tied[3] is None or int(tied[3]) == cheapest.trial
        assert bool(tied[2]) == (tied[3] is not None and min(of.costs["macs"] for of in among) < cheapest.costs["macs"])


def test_that_all_guess_is_said_where_the_printed_interval_says_so(boards: list[tuple[str, Leaderboard]]) -> None:
    guessing = 0
    for _, board in boards:
        said = verdict_of(board)
        if not board.rows:
            assert said == ["No net has been trained to the end."]
            assert not above_chance(board), "nothing to export"
            continue
        found = GUESS.fullmatch(said[0])
        assert bool(found) == (not above_chance(board)), "then no export is offered"
        if found:
            guessing += 1
            chance, trial, score, low, high = (float(of or found[3]) for of in found.groups())
            assert low <= chance <= high or high < chance, said
            row = next(row for row in board.rows if row.trial == trial)
            assert f"{row.accuracy:.3f}" == f"{score:.3f}"
            assert row.accuracy == max(of.accuracy for of in board.rows)
            half = seeds_half(board, row) if board.noise else 0.0
            assert row.accuracy - half >= low - 6e-4 or low == 0
            assert len(said) == 1
    assert guessing > 30


def test_longer_training_is_longer_than_what_nets_have_had(boards: list[tuple[str, Leaderboard]]) -> None:
    commands, after = 0, 0
    for _, board in boards:
        lines = rising_lines(board)
        rising = [row for row in board.front if row.rising]
        if rising:
            assert lines[0].startswith(f"{len(rising)} of {len(board.front)} net"), lines
            steps = [row.steps_in_all for row in rising]
            assert steps_of(lines[0]) == (None if None in steps else (min(steps), max(steps)))
        if len(lines) < 2:
            assert not [row for row in rising if row.steps_in_all] or not any(
                r.weights == "alone" for r in board.records
            )
            continue
        command = COMMAND.fullmatch(lines[1])
        assert command, lines[1]
        trials = [int(trial) for trial in command[1].split(",")]
        assert trials == [row.trial for row in rising if row.steps_in_all]
        alone = max(r.budget["full"] for r in board.records if r.weights == "alone")
        given = float(command[2]) * alone / EPOCHS
        had = max(row.steps_in_all for row in rising if row.steps_in_all)
        assert given >= 4 * had
        assert all(total_steps(board.records, trial) <= had for trial in trials)
        commands, after = commands + 1, after + (had > STEPS)
    assert min(commands, after) > 50


def steps_of(line: str) -> tuple[int, int] | None:
    found = re.search(r"at the end of ([\d,]+)(?: to ([\d,]+))? steps", line)
    if not found:
        return None
    first, last = (int(number.replace(",", "")) for number in (found[1], found[2] or found[1]))
    return first, last


def total_steps(records: Sequence[Record], trial: int) -> int:
    """Steps of a net by its ancestors one by one."""
    by_trial = {record.trial: record for record in records}
    record, steps = by_trial[trial], 0
    while True:
        steps += record.budget["done"]
        if not record.lineage:
            return steps
        record = by_trial[record.lineage["trial"]]


def test_how_a_net_came_by_its_weights(boards: list[tuple[str, Leaderboard]]) -> None:
    said_so = 0
    for _, board in boards:
        row = recommended(board) if above_chance(board) else None
        ways = (" began with weights", " was trained on once the others")
        said = [line for line in verdict_of(board) if any(way in line for way in ways)]
        assert all(f"et {row.trial} " in line for line in said if row)
        assert len(said) == (row is not None and row.weights != "alone")
        if row and said and row.steps_in_all:
            said_so += 1
            assert f"{row.steps_in_all:,} steps in all" in said[0]
            behind = sorted(of.steps_in_all for of in board.rows if of.rank > 1 and of.steps_in_all)
            assert ("nets behind the front have" in said[0]) == bool(behind)
            if behind:
                assert said[0].endswith(f"have {behind[0]:,}{f' to {behind[-1]:,}' * (behind[0] < behind[-1])}.")
    assert said_so > 30
