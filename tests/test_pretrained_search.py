"""A search whose nets start from trained weights (--from): what they inherit, the budget, identity, resuming."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from alternas.archs import Genotype, build, zoo
from alternas.archs.weights import read, save
from alternas.results.ranking.run_leaderboard import leaderboard_of
from alternas.results.runs.record import Record
from alternas.results.runs.status import Weights
from alternas.results.runs.store import read_records, read_settings
from alternas.results.runs.weights_spec import WeightsSpec
from alternas.search.pretrained import Pretrained, load_pretrained
from alternas.search.training.job import InitWeights, TrainJob
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import get
from fakes import STEPS, KilledError, finish

DIGITS = [str(i) for i in range(10)]
PARENT = get("resnet", 8).baselines()[-2]
Open = Callable[..., SearchTrials]
SEARCH = ("search", "resnet", "--data", "digits", "--trials", "2", "--epochs", "2", "--name", "x", "--json")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with weights of a net for digits in w.safetensors."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(7)
    save(build(PARENT, 10, 8, 1), tmp_path / "w.safetensors")
    return tmp_path


def pretrained(folder: Path) -> Pretrained:
    torch.manual_seed(7)
    network = build(PARENT, 10, 8, 1)
    return Pretrained(InitWeights(str(folder / "starts" / "d.safetensors"), "file w", None), network, "d")


def begun(controller: SearchTrials, folder: Path) -> SearchTrials:
    """The controller of the same search with weights to start from."""
    context = replace(controller.context, pretrained=pretrained(folder))
    return SearchTrials(context, controller.store)


@pytest.mark.parametrize("scheduler", ["none", "mo-asha"])
def test_every_net_starts_from_them_for_half_of_the_budget(
    open_controller: Open, tmp_path: Path, scheduler: str
) -> None:
    controller = begun(open_controller(trials=8, scheduler=scheduler), tmp_path)
    executor = finish(controller)
    start = pretrained(tmp_path).start
    assert all(job.start == start and job.total_steps == STEPS // 2 for job in executor.ran)
    records = controller.store.records
    assert {r.kind for r in records} == {"baseline", "search"}
    assert {r.weights for r in records if r.status != "duplicate"} == {"inherited"}
    assert all(r.budget["full"] == STEPS // 2 for r in records if r.status != "duplicate")
    assert not any("trial" in r.lineage or "flops" in r.lineage for r in records), "no trial of the run is the parent"


def test_a_resumed_search_goes_on_from_them(open_controller: Open, tmp_path: Path) -> None:
    left = 9

    def fate(job: TrainJob) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KilledError

    whole = begun(open_controller(trials=8, scheduler="mo-asha"), tmp_path)
    finish(whole, slots=1)
    before = [(r.trial, r.key, r.accuracy, r.weights) for r in whole.store.records]
    (tmp_path / "records.jsonl").unlink()
    with pytest.raises(KilledError):
        finish(begun(open_controller(trials=8, scheduler="mo-asha"), tmp_path), slots=1, fate=fate)
    again = begun(open_controller(trials=8, scheduler="mo-asha"), tmp_path)
    executor = finish(again, slots=1)
    assert all(job.start for job in executor.ran)
    assert sorted((r.trial, r.key, r.accuracy, r.weights) for r in again.store.records) == sorted(before)


# Which weights.


def test_the_head_is_kept_where_it_knows_the_same_classes(here: Path) -> None:
    spec = WeightsSpec("w.safetensors")
    assert load_pretrained(spec, here, DIGITS).start.zero_head, "the file does not say what its classes are"
    export = here / "export"
    export.mkdir()
    (here / "w.safetensors").rename(export / "weights.safetensors")
    (export / "genotype.json").write_text(PARENT.to_json(), encoding="utf-8")
    facts = {"classes": DIGITS, "mean": [4.9], "std": [6.0], "image_size": [8, 8]}
    (export / "config.json").write_text(json.dumps(facts), encoding="utf-8")
    assert not load_pretrained(WeightsSpec("export"), here, DIGITS).start.zero_head
    assert load_pretrained(WeightsSpec("export"), here, DIGITS[::-1]).start.zero_head


def test_a_file_of_timms_weights(here: Path) -> None:
    torch.manual_seed(0)
    model = timm.create_model("resnet18", num_classes=5)
    save_file(model.state_dict(), here / "timm.safetensors")
    found = load_pretrained(WeightsSpec("timm.safetensors", "timm:resnet18"), here, DIGITS)
    assert found.network.genotype.key == zoo.get("resnet18").key
    found.save()
    again = read(Path(found.start.weights))
    x_BCHW = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        theirs, ours = model.eval()(x_BCHW), again.eval()(x_BCHW)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("here", "fake_pool")
def test_they_are_part_of_what_the_search_is(alternas: Any) -> None:
    code, _, err = alternas(*SEARCH, "--from", "w.safetensors")
    assert code == 0, err
    digest = read_settings(Path("runs/x"))["settings"]["from"]
    assert (Path("runs/x/starts") / f"{digest}.safetensors").exists()
    rows = leaderboard_of(Path("runs/x")).rows
    assert rows
    assert {row.weights for row in rows} == {"inherited"}, "marked in every front"
    assert alternas(*SEARCH, "--from", "w.safetensors")[0] == 0, "resumes"
    code, _, err = alternas(*SEARCH)
    assert code == 2
    assert "from is" in err
    torch.manual_seed(8)
    save(build(PARENT, 10, 8, 1), Path("w.safetensors"))
    code, _, err = alternas(*SEARCH, "--from", "w.safetensors")
    assert code == 2
    assert "exists with other settings: from is" in err


@pytest.mark.usefixtures("here", "fake_pool")
def test_nets_of_another_run_do_not_count_as_trained_so(alternas: Any) -> None:
    assert alternas(*SEARCH)[0] == 0
    words = [*SEARCH[:-2], "y", "--json", "--from", "w.safetensors", "--start-with", "x"]
    code, _, err = alternas(*words)
    assert code == 0, err
    assert not any(r.taken_from for r in read_records(Path("runs/y")))


@pytest.mark.parametrize(("words", "about"), [
    (("--from", "w.safetensors", "--supernet", "20"), "a supernet's nets start from its bank"),
    (("--from", "none"), "'none' is none of"),
    (("--from", "none.safetensors"), "no such file"),
    (("--from", "timm:resnet81"), "timm has no model 'resnet81' (did you mean"),
    (("--arch", "resnet18"), "give --from"),
    (("--from", "timm:vgg11.tv_in1k"), "no genotype says that"),
])  # fmt: skip
@pytest.mark.usefixtures("here", "fake_pool")
def test_what_nothing_can_start_from_is_refused(alternas: Any, words: tuple[str, ...], about: str) -> None:
    code, _, err = alternas(*SEARCH, *words)
    assert code == 2
    assert about in err
    assert len(err.strip().splitlines()) == 1
    assert not Path("runs").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_nets_begin_with_what_fits(alternas: Any) -> None:
    code, _, err = alternas(*SEARCH, "--from", "w.safetensors", "--workers", "1")
    assert code == 0, err
    trained: list[Record] = [r for r in read_records(Path("runs/x")) if r.status == "ok"]
    records = [r for r in trained if r.weights != Weights.FINETUNED]  # those go on from their own
    assert all(r.lineage["weights"] == "file w.safetensors" for r in records)
    assert all(0 < r.lineage["share"] <= 1 for r in records)
    same = [r for r in records if Genotype.from_dict(r.genotype).key == PARENT.key]
    assert all(part["how"] in ("copied", "zero") for r in same for part in r.lineage["parts"])
    code, out, _ = alternas("show", "x", str(records[0].trial))
    assert "started from file w.safetensors: " in out
