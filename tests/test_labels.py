"""Several labels a picture: the reader, splits, metrics against scikit-learn, trainings, a search from end to end."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score
from torch import nn

from alternas.archs import InputError, zoo
from alternas.results.export.formats import FORMATS
from alternas.results.metrics import label_scores
from alternas.results.ranking.metric import floor_name, parse_metric, score_range
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load, one_class_each, summary
from alternas.search.data.splits import iterative_split
from alternas.search.training import recipes
from alternas.search.training.augment import mixed
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.training.loaders import open_loader
from alternas.search.training.loop import train
from alternas.search.training.recipe import check_on
from alternas.search.training.task import LabelsTask, task_of
from command_line import Run, records
from image_files import noise, one_line, write

NET = zoo.alternet("basic", (1, 1), (0, 0), (1, 1), 0, width=4)
COLOURS = ("red", "green", "blue")
COUNT = 100
CPU = torch.device("cpu")


def coloured(folder: Path, columns: bool = False) -> Path:
    """Pictures whose labels are the colours that are bright in them; every eighth has none."""
    random, rows = np.random.default_rng(0), ["file," + (",".join(COLOURS) if columns else "labels")]
    for i in range(COUNT):
        has_K = np.array([i & 1, i >> 1 & 1, i >> 2 & 1])
        pixels = random.integers(0, 100, (8, 8, 3)) + 120 * has_K
        write(folder / "pictures" / f"{i}.png", Image.fromarray(pixels.astype(np.uint8)))
        named = [name for name, has in zip(COLOURS, has_K, strict=True) if has]
        cells = ",".join(map(str, has_K)) if columns else ";".join(named)
        rows.append(f"pictures/{i}.png,{cells}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coloured(tmp_path_factory.mktemp("colours"))


@pytest.fixture(scope="module")
def data(folder: Path) -> DataSet:
    return load(DataConfig(str(folder)))


def table(folder: Path, text: str, pictures: int = 0) -> str:
    for i in range(pictures):
        write(folder / f"{i}.png", noise(i))
    folder.mkdir(exist_ok=True)
    (folder / "labels.csv").write_text(text, encoding="utf-8")
    return str(folder)


def test_both_forms_are_read_alike(data: DataSet, tmp_path: Path) -> None:
    columns = load(DataConfig(str(coloured(tmp_path, columns=True))))
    assert (data.several_labels, data.classes, columns.classes) == (True, ("blue", "green", "red"), COLOURS)
    assert (data.train.y_N.dtype, data.train.y_N.shape) == (np.uint8, (len(data.train), 3))
    for one in (data, columns):
        assert isinstance(one.train.images, np.ndarray)
        bright_NK = one.train.images.mean((2, 3)) > 110
        order = [one.classes.index(name) for name in COLOURS]
        assert (one.train.y_N[:, order] == bright_NK).all(), "labels stay with their pictures"


def test_splits_are_seeded_and_keep_shares(data: DataSet, folder: Path) -> None:
    again = load(DataConfig(str(folder)))
    assert again.split_hash == data.split_hash
    assert data.test is not None
    assert [len(split) for split in (data.train, data.val, data.test)] == pytest.approx([60, 20, 20], abs=2)
    for split in (data.train, data.val, data.test):
        assert split.y_N.mean(0) == pytest.approx(0.5, abs=0.06)
    assert data.facts()["positives"] == pytest.approx(data.val.y_N.mean())
    found = summary(data)
    assert found["without_label"]["train"] == (data.train.y_N.sum(1) == 0).sum() > 0
    by_label = {row["class"]: row["images"] for row in found["by_class"]}
    assert by_label == {name: sum(i >> bit & 1 for i in range(COUNT)) for bit, name in enumerate(COLOURS)}


def test_labels_are_split_by_shares_however_rare() -> None:
    """Of rare labels that come with common ones, within one picture of the shares; every picture once."""
    y_NK = (np.random.default_rng(2).random((500, 6)) < [0.02, 0.04, 0.1, 0.3, 0.6, 0.9]).astype(np.uint8)
    y_NK[:, 0] |= y_NK[:, 1]  # never one without the other
    y_NK[::20] = 0
    parts = iterative_split(y_NK)
    assert sorted(np.concatenate(parts)) == list(range(500))
    for at, share in zip(parts, (0.6, 0.2, 0.2), strict=True):
        assert y_NK[at].sum(0) == pytest.approx(share * y_NK.sum(0), abs=2.5)
        assert len(at) == pytest.approx(share * 500, abs=5)
    five = iterative_split(np.repeat(np.eye(2, dtype=np.uint8), 5, 0))
    assert [np.sort(at // 5).tolist() for at in five] == [[0, 0, 0, 1, 1, 1], [0, 1], [0, 1]]


@pytest.mark.parametrize(("text", "rule"), [
    ("", "must have a column file"),
    ("name,labels\na,b\n", "must have a column file"),
    ("file\na\n", "must have a column file"),
    ("file,labels,red\na,b,1\n", "must have a column file"),
    ("file,red,red\na,1,0\n", "columns must have names that differ"),
    ("file,red,blue\n0.png,1,2\n", "line 2: 'blue' must be 0 or 1, got '2'"),
    ("file,red,blue\n0.png,1\n", "line 2: must have 3 columns, got 2"),
    ("file,labels\n../a.png,red\n", "line 2: file must be a path within the folder, got '../a.png'"),
    ("file,labels\n/a.png,red\n", "line 2: file must be a path within the folder"),
    ("file,labels\n0.png,red\n./0.png,red\n", "line 3: a second row of './0.png'"),
    ("file,labels\n", "names no pictures"),
    ("file,labels\n0.png,red\n1.png,\n2.png,red\n3.png,\n4.png,red\n", "needs at least 2 classes, got 1"),
    ("file,labels\n" + "".join(f"{i}.png,red;blue\n" for i in range(2)), "no image is left for"),
    ("file,labels\n" + "".join(f"{i}.png,red;blue\n" for i in range(9)), "cannot be read"),
])  # fmt: skip
def test_wrong_tables_are_refused_in_one_line(tmp_path: Path, text: str, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        load(DataConfig(table(tmp_path / "wrong", text, pictures=8)))
    assert rule in one_line(caught.value)


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_bytes("file,labels\n0.png,grün\n".encode("latin-1"))
    with pytest.raises(InputError, match="is no CSV file in UTF-8"):
        load(DataConfig(str(tmp_path)))


def test_a_label_that_a_split_lacks_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Ten labels of five pictures, two in each, of which no two pictures have the same two."""
    rows = [f"{i}.png,a{i // 5};b{i % 5}" for i in range(25)]
    load(DataConfig(table(tmp_path / "few", "file,labels\n" + "\n".join(rows) + "\n", pictures=25)))
    assert "of 10 classes: " in caplog.text


def test_skipping_broken_pictures_drops_labels_that_are_left_without(tmp_path: Path) -> None:
    rows = "".join(f"{i}.png,red;blue\n" if i % 2 else f"{i}.png,red\n" for i in range(20)) + "gone.png,ghost\n"
    name = table(tmp_path / "some", "file,labels\n" + rows, pictures=20)
    data = load(DataConfig(name, skip_broken=True))
    assert (data.classes, data.notes["skipped_classes"]) == (("blue", "red"), ["ghost"])
    assert len(data.train) + len(data.val) + len(data.test or ()) == 20


@pytest.mark.parametrize("ties", [False, True])
def test_scores_are_scikit_learns(ties: bool) -> None:
    random = np.random.default_rng(1)
    logits, y = random.normal(size=(60, 5)), (random.random((60, 5)) < 0.3).astype(np.uint8)
    logits = logits.round() if ties else logits + y
    found = label_scores(torch.from_numpy(logits), torch.from_numpy(y))
    assert found.map == pytest.approx(average_precision_score(y, logits, average="macro"))
    assert found.auroc == pytest.approx(roc_auc_score(y, logits, average="macro"))
    p = 1 / (1 + np.exp(-logits))
    assert found.nll == pytest.approx(np.mean([log_loss(y[:, k], p[:, k]) for k in range(5)]))
    assert found.label_accuracy == ((logits > 0) == y).mean()
    assert found.numbers("test_").keys() == {f"test_{name}" for name in ("map", "auroc", "label_accuracy", "nll")}


def test_labels_that_no_image_has_do_not_count() -> None:
    logits, y = torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 1.0]]), torch.tensor([[1, 0], [0, 0], [0, 0]])
    assert label_scores(logits, y).map == pytest.approx(average_precision_score(y[:, 0], logits[:, 0]))
    assert math.isnan(label_scores(logits, torch.zeros_like(y)).map)


def test_the_floor_is_what_guessing_gives(data: DataSet) -> None:
    facts, y = data.facts(), torch.from_numpy(data.val.y_N)
    guess = label_scores(torch.zeros(y.shape), y)
    for name in ("map", "auroc", "nll"):
        metric = parse_metric(name, False, False, several_labels=True)
        assert score_range(metric, facts, [0.3])[0] == pytest.approx(metric.score(getattr(guess, name))), name
        assert floor_name(metric, facts) == "chance"
    assert score_range(parse_metric("label_accuracy", False, False, True), facts, []) == (0.5, 1.0)
    own = parse_metric("map", False, has_trainer=True)
    assert (score_range(own, {"classes": ["a", "b"]}, [0.3, 0.5]), floor_name(own, {"classes": ["a", "b"]})) == (
        (0.3, 0.5),
        "the worst",
    )


def test_names_of_metrics_go_by_the_data() -> None:
    assert parse_metric("", False, False, several_labels=True).name == "map"
    assert parse_metric("", False, False).name == "accuracy"
    for name in ("accuracy", "recall:red", "miou"):
        with pytest.raises(InputError, match="metric: of pictures with several labels it must be one of map"):
            parse_metric(name, False, False, several_labels=True)
    with pytest.raises(InputError, match="unknown value 'map'"):
        parse_metric("map", False, False)
    with pytest.raises(InputError, match="minimize: of map more is better"):
        parse_metric("map", True, False, several_labels=True)


def test_the_loss_is_binary_cross_entropy(data: DataSet) -> None:
    recipe = replace(recipes.get("smoke"), label_smoothing=0.0)
    task = task_of("classes", recipe, data)
    assert isinstance(task, LabelsTask)
    torch.manual_seed(0)
    x, y = torch.randn(9, 4), torch.randint(2, (9, 3), dtype=torch.uint8)
    net = nn.Linear(4, 3)
    p = net(x).sigmoid()
    by_hand = -torch.where(y.bool(), p.log(), (1 - p).log()).mean()
    assert task.loss(net, x, y).item() == pytest.approx(by_hand.item(), rel=1e-5)
    smooth = task_of("classes", replace(recipe, label_smoothing=0.2), data).loss(net, x, y).item()
    assert smooth == pytest.approx(F.binary_cross_entropy(p, y * 0.8 + 0.1).item(), rel=1e-5)


def test_mixed_pictures_have_shares_of_all_their_labels() -> None:
    x, y = torch.randn(4, 3, 8, 8), torch.tensor([[1, 1], [0, 0], [1, 0], [0, 1]], dtype=torch.uint8)
    how = replace(recipes.get("smoke").augment, mixup=1.0, mix=1.0)
    found, target = mixed(x, y, 2, how, (0, 0, 3))
    weight = ((found - x.flip(0)) / (x - x.flip(0))).median()
    torch.testing.assert_close(target, weight * y + (1 - weight) * y.flip(0), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("loader", ["memory", "stream"])
def test_a_training_learns_labels(folder: Path, tmp_path: Path, loader: str) -> None:
    data = load(DataConfig(str(folder), loader=loader))
    recipe = replace(recipes.get("smoke"), batch_size=20)
    metric = parse_metric("", False, False, several_labels=True)
    files = {"checkpoint": str(tmp_path / "state.pt"), "weights": str(tmp_path / "net.safetensors")}
    job = TrainJob(0, NET, recipe, 0, 24, 24, **files, test=True, metric=metric)
    result = list(train(job, open_loader(data, CPU, 0)))[-1]
    assert isinstance(result, JobResult)
    assert (result.status, result.accuracy) == ("ok", result.metrics["map"])
    names = {"map", "auroc", "label_accuracy", "nll"}
    assert result.metrics.keys() == {f"{split}{name}" for split in ("", "train_", "test_") for name in names}
    assert result.accuracy > 0.9, "colours are easy"
    assert not Path(job.confusion).exists()


def test_what_needs_one_class_a_picture_is_refused(data: DataSet, folder: Path, alternas: Any, elsewhere: Path) -> None:
    with pytest.raises(InputError, match="pictures have several labels, and this needs one class a picture"):
        one_class_each(data)
    for change in ({"class_weights": "balanced"}, {"balanced_sampler": True}):
        with pytest.raises(InputError, match=f"{next(iter(change))} needs one class a picture"):
            check_on(replace(recipes.get("smoke"), **change), 255, 3, (8, 8), several_labels=True)
    for words, rule in (
        (
            ["search", "resnet", "--metric", "accuracy"],
            "of pictures with several labels it must be one of map, label_accuracy",
        ),
        (["search", "resnet", "--supernet", "2"], "this needs one class a picture"),
        (["study", "data-size", "--quick"], "this needs one class a picture"),
    ):
        code, _, err = alternas(*words, "--data", str(folder))
        assert (code, rule in err, err.count("\n")) == (2, True, 1), err
    assert not Path("runs").exists()


def test_data_shows_labels(folder: Path, data: DataSet, alternas: Any) -> None:
    code, out, err = alternas("data", str(folder))
    assert code == 0, err
    assert "images: by label" in out
    assert "red 50" in out
    found = json.loads(alternas("data", str(folder), "--json")[1])
    assert (found["split"], found["positives"]) == (data.split_hash, data.facts()["positives"])


def test_the_lines_of_a_card_name_all_labels_above_one_half() -> None:
    logits, found = np.array([[2.0, -1.0, 0.5], [-1.0, -3.0, -0.1]]), []
    facts = {"several_labels": True, "formats": {"onnx": {"opset": 18}}}
    for name, given in (
        ("package", {"logits": torch.from_numpy(logits), "model": SimpleNamespace(classes=lambda: COLOURS)}),
        ("onnx", {"logits": logits, "known": {"classes": COLOURS}}),
        ("openvino", {"logits": logits, "known": {"classes": COLOURS}}),
    ):
        (line,) = re.findall(r"^labels = .*", FORMATS[name].usage(facts), re.MULTILINE)
        exec(line, given)
        found.append(given["labels"])
    assert found == [[["red", "blue"], []]] * 3


@pytest.mark.slow
def test_a_search_of_labels_resumes_retrains_and_exports(served: Run, tmp_path: Path) -> None:
    coloured(tmp_path / "colours")
    words = ["resnet", "--data", "colours", "--recipe", "smoke", "--epochs", "4", "--name", "mine", "--workers", "1"]
    code, out, err = served(tmp_path, "search", *words, "--trials", "2")
    assert code == 0, err
    before = records(tmp_path, "mine")
    assert all(r["accuracy"] == r["metrics"]["map"] for r in before if r["status"] == "ok" and r["kind"] == "search")
    assert served(tmp_path, "search", *words, "--trials", "3")[0] == 0
    assert records(tmp_path, "mine")[: len(before)] == before
    front = json.loads(served(tmp_path, "front", "mine", "--json")[1])
    assert all(row["metric"] == "map" for row in front)
    assert "map above chance" in " ".join(served(tmp_path, "front", "mine")[1].split())
    shown = " ".join(served(tmp_path, "show", "mine", str(front[0]["trial"]))[1].split())
    assert "validation map" in shown
    assert "mistakes" not in shown
    assert served(tmp_path, "report", "mine")[0] == 0
    code, out, err = served(tmp_path, "retrain", "mine", "--top", "1", "--seeds", "2", "--json")
    assert code == 0, err
    (found,) = json.loads(out)
    assert (found["metric"], found["test_value"]["n"]) == ("map", 2)
    code, out, err = served(tmp_path, "export", "mine", "--out", "best", "--formats", "package,onnx,timm,pt2")
    assert code == 0, err
    facts = json.loads((tmp_path / "best" / "config.json").read_text(encoding="utf-8"))
    assert (facts["metric"], facts["several_labels"], facts["classes"]) == ("map", True, ["blue", "green", "red"])
    card = (tmp_path / "best" / "README.md").read_text(encoding="utf-8")
    assert "sigmoid" in card
    assert "argmax" not in card
    assert "Nothing is known" not in card
