"""`alternas explain`: which nets and images, what is written, what the report shows of it; no net is trained."""

import csv
import io
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console

from alternas.archs import InputError, build
from alternas.archs.weights import save
from alternas.results.analysis_tools.index import INDEX, read_index
from alternas.results.analysis_tools.inputs import AnalysisResult
from alternas.results.analysis_tools.output import write_results
from alternas.results.report.page import write_report
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.experiments import explain as module
from alternas.search.experiments import trained_nets as subjects
from alternas.search.experiments.explain import Explain, explain
from alternas.search.experiments.study_nets import net_of
from alternas.search.experiments.trained_nets import objective_of
from alternas.search.training import recipes
from alternas.search.training.recipe import Augment
from alternas.spaces import RandomChooser, get
from runs import made_run, record

QUIET = Console(quiet=True)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run on digits: two plain ResNets and an AlterNet, with weights that nobody trained."""
    monkeypatch.chdir(tmp_path)
    space, draw = get("all", 8), random.Random(0)
    nets = [*space.baselines()[2:4], next(net for net in drawn(space) if net.family == "alternet")]
    rows = [record(i, net, {}, draw, "baseline" if i < 2 else "search", stops=False) for i, net in enumerate(nets)]
    settings = {"objective": "macs", "recipe": recipes.get("smoke").to_dict()}
    rows = [row | {"recipe": settings["recipe"]} for row in rows]
    folder = made_run(tmp_path / "runs" / "mine", rows, data=load(DataConfig("digits")).facts(), settings=settings)
    for i, (net, row) in enumerate(zip(nets, rows, strict=True)):
        torch.manual_seed(i)
        save(build(net, 10, 8, 1), folder / "weights" / f"{row['key']}.safetensors")
    return folder


def drawn(space: Any) -> Any:
    return (space.sample(RandomChooser(seed)) for seed in range(1000))


def test_the_files_of_an_explanation(run: Path) -> None:
    told = explain(Explain("mine:2", "1", ("variance", "fourier"), samples=40), QUIET)
    assert told["images"] == 40
    assert [net["trial"] for net in told["nets"]] == [2, 1]
    folder = run / "explain"
    files = [f"{name}.{suffix}" for name in ("fourier", "variance") for suffix in ("csv", "png")] + ["findings.csv"]
    assert sorted(path.name for path in folder.iterdir()) == sorted([INDEX, *files])
    with open(folder / "variance.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["net"] for row in rows} == {"trial 2 (alternet)", "trial 1 (resnet)"}
    assert json.loads((folder / INDEX).read_text(encoding="utf-8")) == told
    with open(folder / "findings.csv", encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert [(row["analysis"], row["net"], row["name"]) for row in found] == [
        (part["analysis"], finding["net"], finding["name"]) for part in told["analyses"] for finding in part["findings"]
    ]
    assert [part.analysis for part in read_index(folder)["analyses"]] == ["variance", "fourier"]


def test_a_later_call_adds_to_what_is_there(run: Path) -> None:
    """Each analysis with the names of its own nets; one done again replaces its own."""
    explain(Explain("mine:2", analyses=("variance", "fourier"), samples=16), QUIET)
    told = explain(Explain("mine:1", analyses=("variance",), samples=16), QUIET)
    assert [part["analysis"] for part in told["analyses"]] == ["variance"], "what this call did"
    found = {part.analysis: {f.net for f in part.findings} for part in read_index(run / "explain")["analyses"]}
    assert found == {"fourier": {"trial 2 (alternet)"}, "variance": {"trial 1 (resnet)"}}
    (run / "explain" / INDEX).write_text("[]", encoding="utf-8")
    explain(Explain("mine:1", analyses=("fourier",), samples=16), QUIET)
    assert [part.analysis for part in read_index(run / "explain")["analyses"]] == ["fourier"], "of a broken one nothing"


def test_pictures_and_summaries_are_of_the_same_nets_wherever_it_stops(run: Path, monkeypatch: Any) -> None:
    explain(Explain("mine:2", analyses=("variance", "fourier"), samples=16), QUIET)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("alternas.results.analysis_tools.output.write_csv", stop)
    with pytest.raises(KeyboardInterrupt):
        explain(Explain("mine:1", analyses=("fourier",), samples=16), QUIET)
    left = read_index(run / "explain")["analyses"]
    assert [part.analysis for part in left] == ["variance"], "the picture is the other net's already"


def test_without_a_terminal_each_analysis_is_a_line(run: Path) -> None:
    file = io.StringIO()
    explain(Explain("mine:2", analyses=("variance", "fourier"), samples=16), Console(file=file))
    lines = file.getvalue().splitlines()
    assert [line[:5] for line in lines] == ["[0/2]", "[1/2]"]


def test_the_nets_are_those_of_the_weights_and_the_images_those_of_the_data(run: Path, monkeypatch: Any) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(module, "analyse", lambda name, subject, other=None: seen.append(subject) or "nothing")
    explain(Explain("mine:2", "zoo", ("variance",), samples=10_000), QUIET)
    data = load(DataConfig("digits"))
    first, other = seen
    assert len(first.images) == len(data.val)
    assert float(first.images.x_NCHW.max()) == 1
    x, y = next(first.images.batches(len(data.val)))
    assert torch.equal(y, torch.as_tensor(data.val.y_N))
    raw = torch.as_tensor(data.val.images, dtype=torch.float32)
    assert torch.allclose(x, (raw - data.mean[0]) / data.std[0], atol=1e-5)
    assert not first.net.training
    assert first.objective.decay == {n: 0.05 for n, p in first.net.named_parameters() if p.ndim > 1}
    assert len(first.training) == subjects.MINIBATCHES
    assert first.training[0][0].shape == (subjects.MINIBATCH, 1, 8, 8)
    assert first.net.genotype.family == "alternet"
    assert other.net.genotype.family == "resnet"


def test_the_loss_is_the_recipes() -> None:
    """Label smoothing and L2 of what its optimiser decays: not the norms, biases and the like."""
    torch.manual_seed(0)
    net, recipe = build(net_of("alternet", "m", (8, 8)), 10, 8, 1), recipes.get("fast")
    logits, y = torch.randn(6, 10), torch.arange(6)
    assert recipe.label_smoothing
    assert recipe.weight_decay
    assert not recipe.decay_all
    found = objective_of(net, recipe)
    wanted = torch.nn.functional.cross_entropy(logits, y, label_smoothing=recipe.label_smoothing)
    assert found.loss(logits, y) == wanted != torch.nn.functional.cross_entropy(logits, y)
    squares = {n: p.double().square().sum().item() for n, p in net.named_parameters()}
    matrices = sum(squares[n] for n, p in net.named_parameters() if p.ndim > 1)
    weights = dict(net.named_parameters())
    assert found.l2(weights).item() == pytest.approx(recipe.weight_decay / 2 * matrices)
    every = objective_of(net, replace(recipe, decay_all=True))
    assert every.l2(weights).item() == pytest.approx(recipe.weight_decay / 2 * sum(squares.values()))
    assert sum(squares.values()) > 1.2 * matrices
    assert f"label smoothing {recipe.label_smoothing:g}, L2 of weight decay" in found.words
    assert "on matrices and kernels" in found.words
    assert "on all parameters" in every.words
    plain = objective_of(net, replace(recipe, weight_decay=0.0, label_smoothing=0.0, augment=Augment(mixup=0.2)))
    assert plain.words == "cross-entropy, no L2, images not mixed as in training"
    assert plain.l2(weights).item() == 0
    for name in ("cross_entropy", "binary"):
        loss = objective_of(net, replace(recipe, loss=name)).loss(logits.double(), y)
        assert loss.dtype == torch.double, "the Hessian's products are of float64"


def test_zoo_is_the_plain_resnet_next_in_macs(run: Path) -> None:
    rows = told_rows(run)
    macs = [row["cost"]["macs"] for row in rows]
    nearest = min((0, 1), key=lambda i: max(macs[i], macs[2]) / min(macs[i], macs[2]))
    told = explain(Explain("mine:2", "zoo", ("variance",), samples=8), QUIET)
    assert told["nets"][1]["trial"] == nearest
    assert explain(Explain("mine:0", "zoo", ("variance",), samples=8), QUIET)["nets"][1]["trial"] == 1


def told_rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "records.jsonl").read_text(encoding="utf-8").splitlines()]


def printed(told: dict[str, Any]) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=80).print(module.drawing(told))
    return [line.strip() for line in file.getvalue().splitlines()]


def test_analyses_of_two_nets_get_them_in_order(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = explain(Explain("mine:0", "1", ("cka_between",), samples=8), QUIET)
    (part,) = told["analyses"]
    assert {finding["net"] for finding in part["findings"]} == {"trial 0 (resnet) and trial 1 (resnet)"}
    monkeypatch.setattr(module, "analyse", lambda name, subject, other=None: f"{subject.name} it is")
    told = explain(Explain("mine:2", "1", ("variance",), samples=8), QUIET)
    assert [line for line in printed(told) if line.endswith("it is")] == [
        f"{name} it is" for name in ("trial 2 (alternet)", "trial 1 (resnet)")
    ]


@pytest.mark.parametrize(("limit", "threads"), [(1e8, 1), (0.0, 2)])
def test_small_nets_are_looked_at_on_one_thread(run: Path, monkeypatch: Any, limit: float, threads: int) -> None:
    seen: list[int] = []
    monkeypatch.setattr("alternas.search.experiments.trained_nets.THREADED_MACS", limit)
    monkeypatch.setattr(module, "analyse", lambda name, subject, other=None: seen.append(torch.get_num_threads()) or "")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        explain(Explain("mine:2", analyses=("variance",), samples=8), QUIET)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [threads]


def test_a_retrained_net_keeps_the_number_of_its_trial(run: Path) -> None:
    row = told_rows(run)[2] | {"trial": 0, "kind": "retrain", "factors": {"trial": 2}, "seed": 1}
    row["training_id"] = "0" * 12
    made_run(run / "retrain", [row])
    weights = (run / "weights" / f"{row['key']}.safetensors").read_bytes()
    (run / "retrain" / "weights").mkdir()
    (run / "retrain" / "weights" / "000000000000.safetensors").write_bytes(weights)
    told = explain(Explain("mine:2", "mine:0", ("variance",), samples=8), QUIET)
    assert [net["name"] for net in told["nets"]] == ["trial 2 (alternet)", "trial 0 (resnet)"]


@pytest.mark.parametrize(("change", "net", "against", "hint"), [
    ({"classes": ["a", "b"]}, "mine", "theirs:2", "see other images or classes"),
    ({"split": "0" * 12}, "mine", "theirs:2", "see other images or classes"),
    ({"split": "0" * 12}, "theirs:2", "", "digits is not what run theirs was trained on any more"),
])  # fmt: skip
def test_nets_of_other_data(run: Path, change: dict[str, Any], net: str, against: str, hint: str) -> None:
    shutil.copytree(run, "runs/theirs")
    path = Path("runs/theirs/run.json")
    facts = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(facts | {"data": facts["data"] | change}), encoding="utf-8")
    with pytest.raises(InputError, match=hint):
        explain(Explain(net, against, ("variance",), samples=8), QUIET)


def test_a_net_of_another_run_has_another_name(run: Path) -> None:
    shutil.copytree(run, "runs/theirs")
    told = explain(Explain("mine:2", "theirs:2", ("variance",), samples=8), QUIET)
    assert [net["name"] for net in told["nets"]] == ["trial 2 (alternet)", "theirs trial 2 (alternet)"]
    assert (
        explain(Explain("mine:2", "mine:1", ("variance",), samples=8), QUIET)["nets"][1]["name"] == "trial 1 (resnet)"
    )


def test_panels_side_by_side_have_one_scale(tmp_path: Path) -> None:
    drawn: dict[str, list[Axes]] = {}

    def finding(name: str, most: float) -> AnalysisResult:
        def draw(figure: Figure) -> None:
            drawn[name] = axes = list(figure.subplots(1, 3))
            axes[0].plot([0, most], [-most, 1])
            axes[0].set(xlabel="depth", ylabel="height")
            axes[1].plot([0, most])
            axes[1].set_ylabel(f"of {name}")
            figure.colorbar(axes[2].imshow([[0, most]]), ax=axes[2], label="colour")

        return AnalysisResult(name, [{"most": most}], [], draw)

    write_results(tmp_path, "variance", [(name, finding(name, most)) for name, most in (("a", 2.0), ("b", 8.0))])
    (first, own, coloured), (second, other, too) = drawn["a"], drawn["b"]
    assert first.get_ylim() == second.get_ylim() == pytest.approx((-8.45, 1.45))
    assert first.get_xlim() == second.get_xlim() == pytest.approx((-0.4, 8.4))
    assert own.get_ylim()[1] == pytest.approx(2.1), "another label is another scale"
    assert other.get_ylim()[1] == pytest.approx(8.4)
    assert coloured.images[0].get_clim() == too.images[0].get_clim() == (0, 8)


BAD = [  # words, and what is said of them
    ((), "Missing argument"),
    (("nobody",), "no run 'nobody'"),
    (("mine:7",), "no trial 7"),
    (("mine:two",), "'mine:two': RUN:TRIAL names a trial by its number, got 'two'"),
    (("mine:",), "got ''"),
    (("mine:-1",), "got '-1'"),
    (("theirs:two",), "no run 'theirs:two'"),
    (("mine", "--against", "7"), "no trial 7"),
    (("mine", "--against", "theirs:1"), "no run 'theirs'"),
    (("mine:2", "--against", "mine:2"), "mine:2 is trial 2 (alternet), the net itself"),
    (("mine:2", "--against", "2"), "the net itself"),
    (("mine", "--analyses", "forier"), "did you mean 'fourier'"),
    (("mine", "--samples", "3"), "samples: must be 8 or more"),
    (("mine", "--device", "gpu"), "device: unknown value"),
    (("mine", "--data", "digits"), "mine is shown its run's, not --data"),
    (("timm:resnet18",), "give --data"),
]


def test_bad_words(alternas: Callable[..., Any], run: Path) -> None:
    for words, hint in BAD:
        code, out, err = alternas("explain", *words)
        assert (code, out, len(err.splitlines())) == (2, "", 1), words
        assert hint in err
        assert not (run / "explain").exists()


def test_weights_that_are_gone(run: Path) -> None:
    for path in (run / "weights").iterdir():
        path.unlink()
    with pytest.raises(InputError, match="trained weights are not there"):
        explain(Explain("mine:2"), QUIET)


def test_an_analysis_that_fits_no_net_says_why(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unfit(name: str, subject: Any, other: Any = None) -> str:
        return f"{subject.name}: has no attention"

    monkeypatch.setattr(module, "analyse", unfit)
    told = explain(Explain("mine:2", analyses=("variance",)), QUIET)
    (part,) = told["analyses"]
    (found,) = part["findings"]
    assert (part["png"], found["value"], found["verdict"]) == ("", None, "trial 2 (alternet): has no attention")
    assert "trial 2 (alternet): has no attention" in printed(told)


def test_the_command(alternas: Callable[..., Any], run: Path) -> None:
    code, out, _ = alternas("explain", "mine", "--analyses", "variance", "--samples", "16", "--out", "there", "--json")
    assert code == 0
    assert json.loads(out)["folder"] == "there"
    assert Path("there/variance.png").read_bytes()[:4] == b"\x89PNG"
    code, out, _ = alternas("explain", "mine", "--analyses", "variance", "--quick", "--out", "there")
    assert "there/variance.png" in out
    assert "\n64 validation images of digits" in out, "a quick one looks at few"
    assert "log factor of the variance, conv" in out


def test_the_report_shows_it(run: Path, tmp_path: Path) -> None:
    write_report(run, tmp_path / "before.html")
    explain(Explain("mine:2", analyses=("variance",), samples=16), QUIET)
    facts = write_report(run, tmp_path / "after.html", tmp_path / "assets")
    assert "Why it wins" not in (tmp_path / "before.html").read_text(encoding="utf-8")
    page = (tmp_path / "after.html").read_text(encoding="utf-8")
    assert "Why it wins" in page
    assert 'src="data:image/png;base64,' in page
    assert "log factor of the variance, conv" in page
    names = {"explain_variance.png", "explain_variance.csv", "findings_variance.csv"}
    assert names <= {Path(p).name for p in facts["assets"]}


def change_index(run: Path, change: dict[str, Any]) -> None:
    explain(Explain("mine:2", analyses=("variance",), samples=16), QUIET)
    path = run / "explain" / INDEX
    told = json.loads(path.read_text(encoding="utf-8"))
    told["analyses"][0] |= change
    path.write_text(json.dumps(told), encoding="utf-8")


@pytest.mark.parametrize("change", [
    {"png": "../../secret.png"}, {"png": 3}, {"title": None}, {"findings": [{"name": 3}]},
    {"findings": [{"name": "it", "value": "3"}]}, {"npz": "../maps.npz"}, {"more": 1},
])  # fmt: skip
def test_an_index_that_was_changed_is_refused(run: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    change_index(run, change)
    with pytest.raises(InputError, match=r"explain\.json: analyses\[0\]|explain\.json: \[0\]|field: unknown"):
        write_report(run, tmp_path / "page.html")


def test_names_are_escaped(run: Path, tmp_path: Path) -> None:
    change_index(run, {"title": "<script>1</script>", "findings": [{"name": "<img src=x>"}]})
    write_report(run, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>1" not in page
    assert "<img src=x>" not in page
