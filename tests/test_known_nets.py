"""--start-with: genes found for nets, nets refused, records of an earlier run taken over, resumed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from alternas.archs import Genotype, InputError, zoo
from alternas.results.ranking.objectives import own_flops
from alternas.results.runs.overview import list_runs
from alternas.results.runs.record import Record
from alternas.results.runs.store import read_records, read_settings
from alternas.search.known_nets import Candidate, GeneFinder, StartWith, find_known_nets
from alternas.search.trials.dashboard import recorded_study
from alternas.spaces import SPACES, FixedChooser, RandomChooser, get, options_of
from fakes import FakePool

SIDE = 32


def finder(space: str, side: int = SIDE, over: Callable[[Genotype], dict[str, float]] = lambda net: {}) -> GeneFinder:
    return GeneFinder(get(space, side), (side, side), over)


@pytest.mark.parametrize("name", SPACES)
def test_genes_are_found_for_nets_of_every_space(name: str) -> None:
    space = get(name, SIDE)
    for seed in range(3):
        net = space.sample(RandomChooser(seed))
        genes = finder(name).genes(Candidate("it", net))
        assert genes.keys() == options_of(space).keys()
        assert space.sample(FixedChooser(genes)).key == net.key


def test_nets_that_do_not_fit_are_refused() -> None:
    net = get("bench", SIDE).sample(RandomChooser(0))
    genes = finder("bench").genes(Candidate("it", net))
    cases: list[tuple[GeneFinder, Candidate, str]] = [
        (finder("bench"), Candidate("it", zoo.get("vit_tiny_patch16")), "not in space 'bench'"),
        (finder("bench"), Candidate("it", None, {"width": 12}), "lacks gene"),
        (finder("bench"), Candidate("it", None, genes | {"colour": 1}), "has gene 'colour'"),
        (finder("bench"), Candidate("it", None, genes | {"width": 13}), "gene width: must be one of"),
        (finder("bench", over=lambda net: {"macs": 0.5}), Candidate("it", net), "over the limit max-macs by 50%"),
        (finder("bench", 7), Candidate("it", zoo.get("vit_tiny_patch16")), "7"),
    ]
    for finding, candidate, about in cases:
        with pytest.raises(InputError, match=about):
            finding.genes(candidate)


@pytest.mark.parametrize(("content", "about"), [
    ("[", "cannot be read"), ("3", "must hold genotypes or genes"), ("[]", "must hold genotypes or genes"),
    ("[3]", "must hold genotypes or genes"), ('{"stem": 3}', "net 1"), ('{"width": 12}', "none of 1 nets"),
    ('[{"width": 12}, {"width": [1]}]', "none of 2 nets"),
])  # fmt: skip
def test_malformed_files_are_one_line(tmp_path: Path, content: str, about: str) -> None:
    (tmp_path / "nets.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as raised:
        find_known_nets(
            StartWith(file=tmp_path / "nets.json"), finder("bench"), (SIDE, SIDE), lambda run, record: False
        )
    assert about in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_holds_genotypes_genes_or_one_net(tmp_path: Path) -> None:
    space, file = get("bench", SIDE), tmp_path / "nets.json"
    nets = [space.sample(RandomChooser(seed)) for seed in (0, 1)]
    genes = finder("bench").genes(Candidate("it", nets[1]))
    for value in ([nets[0].to_dict(), genes], nets[0].to_dict(), [genes, genes]):
        file.write_text(json.dumps(value), encoding="utf-8")
        known = find_known_nets(StartWith(file=file), finder("bench"), (SIDE, SIDE), lambda run, record: False)
        keys = [space.sample(FixedChooser(dict(found))).key for found in known.genes]
        wanted = value if isinstance(value, list) else [value]
        assert keys == list(dict.fromkeys(nets["stem" not in one].key for one in wanted))


@pytest.fixture
def search(alternas: Any, elsewhere: None, fake_pool: type[FakePool]) -> Any:
    """Exit code, stdout and stderr of a search in space bench, in whose pool nothing is trained."""

    def call(words: str) -> tuple[int, str, str]:
        fake_pool.jobs_of_all.clear()
        return alternas("search", "bench", "--data", "digits", "--epochs", "0.5", *words.split())

    return call


FIRST = "--trials 5 --name first --strategy random"


def searched(name: str) -> list[Record]:
    """The records of a search's nets, in the order of their trials."""
    records = [r for r in read_records(Path("runs") / name) if r.kind == "search" and r.status == "ok"]
    return sorted(records, key=lambda record: record.trial)


def trained() -> set[str]:
    return {job.genotype.key for job in FakePool.jobs_of_all}


def genes_of(*seeds: int) -> list[dict[str, Any]]:
    space = get("bench", 8)
    return [finder("bench", 8).genes(Candidate("it", space.sample(RandomChooser(seed)))) for seed in seeds]


@pytest.mark.parametrize("strategy", ["random", "evolution", "tpe", "nsga2"])
def test_known_nets_are_proposed_first(search: Any, strategy: str) -> None:
    genes = genes_of(3, 4, 5)
    Path("nets.json").write_text(json.dumps([*genes, {"width": 12}]), encoding="utf-8")
    code, out, _ = search(f"--trials 6 --name mine --start-with nets.json --strategy {strategy}")
    assert (code, "start-with: left out: net 4 lacks gene" in out) == (0, True)
    assert [record.genes for record in searched("mine")[:3]] == genes
    assert len(searched("mine")) == 6
    assert read_settings(Path("runs/mine"))["start_with"] == genes


def test_what_no_search_can_start_with_is_one_line(search: Any) -> None:
    for words, about in (
        ("resnet18,vit_tiny_patch16", "net resnet18"),
        ("resnet18,nonsense", "got 'nonsense'"),
        ("none.json", "No such file"),
        ("nowhere:3", "no run"),
        (",", "must be a .json file"),
        ("resnet18 --strategy enumerate", "plan of its own"),
        ("resnet18 --strategy buildup", "plan of its own"),
        ("resnet18 --supernet 5", "plan of its own"),
    ):
        code, out, errors = search(f"--trials 2 --start-with {words}")
        assert (code, out, about in errors, errors.count("\n")) == (2, "", True, 1)
    assert not Path("runs").exists()


def test_nets_of_an_equal_run_count_as_trained(search: Any) -> None:
    search(FIRST)
    first = searched("first")
    weights = Path("runs/first/weights") / f"{first[2].key}.safetensors"
    weights.parent.mkdir(exist_ok=True)
    weights.write_bytes(b"weights")
    code, out, _ = search("--trials 3 --name second --start-with first --strategy evolution")
    assert (code, "nets of runs/first count as trained" in out) == (0, True)
    taken = [record for record in read_records(Path("runs/second")) if record.taken_from]
    old = {record.key: record for record in read_records(Path("runs/first")) if record.status == "ok"}
    assert {record.key for record in taken} == set(old)
    for record in taken:
        was = old[record.key]
        assert (record.accuracy, record.accuracies, record.curve) == (was.accuracy, was.accuracies, was.curve)
        assert (record.taken_from, record.spent_seconds) == (f"first:{was.trial}", 0.0)
        assert (record.kind, record.seconds, record.budget) == (was.kind, was.seconds, was.budget)
    assert not trained() & set(old), "nothing is trained again"
    new = [record for record in searched("second") if not record.taken_from]
    assert len(new) == 3
    flops = {row["name"]: row["train_flops"] for row in list_runs(Path("runs"))}
    assert flops["second"] == sum(own_flops(record) for record in new), "nor is their compute counted"
    assert trained() == {record.key for record in new}
    assert (Path("runs/second/weights") / weights.name).read_bytes() == b"weights"
    storage = recorded_study(Path("runs/second"))
    told = {t.user_attrs.get("key"): t.values for t in storage.get_all_trials(0, states=(TrialState.COMPLETE,))}
    assert all(told[record.key] == [record.accuracy, record.cost["macs"]] for record in first)


@pytest.mark.parametrize("words", ["--seed 1", "--repeats 2", "--epochs 0.75", "--image-size 16"])
def test_nets_of_another_run_are_trained_again(search: Any, words: str) -> None:
    front = json.loads(search(f"{FIRST} --json")[1])
    search(f"--trials 4 --name second --start-with first {words}")
    assert not any(record.taken_from for record in read_records(Path("runs/second")))
    keys = [row["key"] for row in front if row["kind"] == "search"]
    assert words == "--image-size 16" or (keys and set(keys[:4]) <= trained())


def test_one_trial_of_a_run(search: Any) -> None:
    search(FIRST)
    one = searched("first")[3]
    search(f"--trials 2 --name second --start-with first:{one.trial} --seed 1")
    assert searched("second")[0].key == one.key
    search(f"--trials 2 --name third --start-with first:{one.trial}")
    assert [record.taken_from for record in searched("third")] == [f"first:{one.trial}", "", ""]
    code, _, errors = search("--trials 2 --name fourth --start-with first:999")
    assert (code, "no trial 999" in errors) == (2, True)


def test_nets_over_a_limit_are_left_out(search: Any) -> None:
    search("--trials 6 --name first --strategy random")
    macs = sorted(record.cost["macs"] for record in searched("first"))
    search(f"--trials 2 --name second --start-with first --max-macs {macs[2]}")
    taken = [record for record in searched("second") if record.taken_from]
    assert taken
    assert all(record.cost["macs"] <= macs[2] for record in taken)


def test_a_search_is_resumed_without_its_source(search: Any) -> None:
    genes = genes_of(3, 4, 5, 6)
    Path("nets.json").write_text(json.dumps(genes), encoding="utf-8")
    words = "--name mine --start-with nets.json"
    search(f"--trials 2 {words}")
    assert [record.genes for record in searched("mine")] == genes[:2]
    Path("nets.json").unlink()
    assert search(f"--trials 6 {words}")[0] == 0
    assert [record.genes for record in searched("mine")[:4]] == genes
    assert len(searched("mine")) == 6
    code, _, errors = search("--trials 6 --name mine")
    assert (code, "start_with" in errors) == (2, True)


def test_a_search_with_records_taken_over_is_resumed(search: Any) -> None:
    search("--trials 4 --name first --strategy random")
    search("--trials 1 --name second --start-with first")
    before = read_records(Path("runs/second"))
    shutil.rmtree("runs/first")
    assert search("--trials 3 --name second --start-with first")[0] == 0
    records = read_records(Path("runs/second"))
    assert records[: len(before)] == before
    assert sum(record.kind == "search" and not record.taken_from for record in records) == 3
