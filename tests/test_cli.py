"""The command line without Ray: listings, JSON, and one clear line for bad input."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command

from alternas.archs import zoo
from alternas.cli import app as cli
from alternas.results.export.formats import FORMATS
from alternas.search.strategies.registry import STRATEGIES
from alternas.search.training.recipes import RECIPES
from alternas.spaces import SPACES
from runs import finished_run

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_cost_of_a_zoo_member_and_a_file(alternas: Any) -> None:
    Path("net.json").write_text(zoo.get("alternet18", 32).to_json(), encoding="utf-8")
    code, out, _ = alternas("cost", "net.json", "--image-size", "32", "--classes", "100", "--json")
    assert (code, json.loads(out)["params"]) == (0, 9_499_063)
    code, out, _ = alternas("cost", "alternet50_cifar", "--image-size", "32", "--classes", "100", "--json")
    found = json.loads(out)
    assert (code, found["params"], found["macs"]) == (0, 33_012_840, 1_509_826_560)
    assert list(found["by_place"]) == ["stem", "stage 1", "stage 2", "stage 3", "stage 4", "head"]
    code, out, _ = alternas("cost", "vit_tiny_r_s16_p8")
    assert code == 0
    assert "6,337,704 params" in out


def test_cost_of_timms_models(alternas: Any) -> None:
    code, out, _ = alternas("cost", "timm:resnet50", "--json", "--images", "303M")
    found = json.loads(out)
    assert (code, found["params"], found["macs"]) == (0, 25_557_032, 4_089_184_256)
    assert found["training_flops"] == 6 * 4_089_184_256 * 303_000_000
    code, out, _ = alternas("cost", "timm:resnet18", "--image-size", "64x96", "--channels", "1", "--classes", "10")
    assert code == 0
    assert "64x96 px, 1 channels" in out
    assert "exaFLOPs" not in out


def test_cost_says_memory_and_training_compute(alternas: Any) -> None:
    code, out, _ = alternas("cost", "vit_base_patch16", "--batch", "64", "--images", "2.121G", "--json")
    found = json.loads(out)
    assert (code, found["batch"], found["timm"], found["family"]) == (0, 64, "vit_base_patch16_224", "vit")
    assert found["training_bytes"] > 16 * found["params"] + 60 * found["training_activation_bytes"]
    assert found["training_flops"] / 1e18 == pytest.approx(224, rel=0.03)  # table 6 of the ViT paper
    code, out, _ = alternas("cost", "vit_base_patch16", "--images", "2.121G")
    assert "exaFLOPs" in out
    assert "in timm: vit_base_patch16_224" in out


def test_listings(alternas: Any) -> None:
    code, out, _ = alternas("spaces", "--json", "--image-size", "8")
    rows = json.loads(out)
    assert code == 0
    assert {row["space"] for row in rows} == set(SPACES)
    assert all(row["combinations"] >= 42 and row["genes"] >= 5 for row in rows)
    code, out, _ = alternas("archs", "--json")
    assert [row["name"] for row in json.loads(out)] == zoo.names()
    code, out, _ = alternas("recipes", "--json")
    assert [row["recipe"] for row in json.loads(out)] == list(RECIPES)
    assert all(0 < row["least_macs"] < row["most_macs"] and row["least_params"] < row["most_params"] for row in rows)
    code, out, _ = alternas("spaces", "resnet", "--image-size", "8")
    assert (code, "54.2 k to 3.72 M" in out) == (0, True), "MACs"
    for words in (("archs",), ("recipes",)):
        assert alternas(*words)[0] == 0


def test_what_a_data_set_holds(alternas: Any) -> None:
    code, out, _ = alternas("data", "digits", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["images"] == {"train": 1078, "val": 360, "test": 359}
    assert (facts["image_size"], facts["in_chans"], facts["loader"]) == ([8, 8], 1, "memory")
    assert "1,078" in alternas("data", "digits")[1]


def set_of(**counts: int) -> None:
    """Pictures of so many in each class, below photos/."""
    for name, count in counts.items():
        Path("photos", name).mkdir(parents=True)
        for number in range(count):
            Image.new("L", (8, 8), number).save(Path("photos", name, f"{number:02}.png"))


def test_data_lists_all_broken_pictures(alternas: Any) -> None:
    set_of(cat=20, dog=12)
    for number in range(12):
        Path("photos/cat", f"{number:02}.png").write_text("no picture", encoding="utf-8")
    code, out, error = alternas("data", "photos")
    assert (code, out.count("cat/")) == (2, 10)
    assert "12 pictures cannot be read:" in out
    assert "and 2 more; --json lists all" in out
    assert "data: photos: 12 of 32 pictures cannot be read; --skip-broken leaves them out" in error
    assert "cat/" not in error  # they are listed once
    code, out, error = alternas("data", "photos", "--skip-broken")
    assert (code, (out + error).count("cat/00.png")) == (0, 1)
    assert "notes: skipped 12" in " ".join(out.split())
    code, out, _ = alternas("data", "photos", "--json")
    told = json.loads(out)
    assert (code, told["name"]) == (2, "photos")
    assert [Path(one["picture"]).name for one in told["broken"]] == [f"{number:02}.png" for number in range(12)]
    assert all("not a picture" in one["reason"] and one["part"] == "all" for one in told["broken"])


def test_skipping_is_advised_where_it_helps_alone(alternas: Any) -> None:
    set_of(cat=4, dog=4)
    for path in Path("photos/cat").iterdir():
        path.write_text("no picture", encoding="utf-8")
    for search in (["data", "photos"], ["search", "all", "--data", "photos", "--trials", "1"]):
        code, _, error = alternas(*search)
        assert (code, "skip-broken" in error) == (2, False), "one class is left"
        assert "images of at least 2 classes are needed, and 1 would be left without them" in error
    for path in Path("photos/cat").iterdir():
        path.unlink()
    assert "skip-broken" not in alternas("data", "photos")[2], "a class that is empty, beside one other"
    set_of(emu=4)
    assert "--skip-broken leaves them out" in alternas("data", "photos")[2]


def test_data_says_what_was_skipped_and_how_uneven_classes_are(alternas: Any) -> None:
    set_of(cat=5, dog=50, emu=11)
    assert json.loads(alternas("data", "photos", "--json")[1])["uneven"] == ""  # ten times are not more than ten
    Image.new("L", (8, 8)).save("photos/dog/50.png")
    for number in range(11):
        Path("photos/emu", f"{number:02}.png").write_text("no picture", encoding="utf-8")
    code, out, _ = alternas("data", "photos", "--skip-broken", "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["notes"]["skipped"], told["notes"]["skipped_classes"]) == ({"all": 11}, ["emu"])
    assert len(told["broken"]) == 11
    assert [(row["class"], row["images"]) for row in told["by_class"]] == [("cat", 5), ("dog", 51)]
    assert all(row["train"] + row["val"] + row["test"] == row["images"] for row in told["by_class"])
    assert told["uneven"].startswith("the largest class, dog, has 51 images, 10.2 times as many as the smallest, cat")
    text = " ".join(alternas("data", "photos", "--skip-broken")[1].split())
    assert told["uneven"] in text
    assert "images: by class cat 5, dog 51" in text


def test_a_recipe_is_json_to_change(alternas: Any) -> None:
    recipe = json.loads(alternas("recipes", "fast")[1])
    assert recipe["augment"]["flip"] is True
    Path("mine.json").write_text(json.dumps(recipe | {"lr": 0.01, "name": "mine"}), encoding="utf-8")
    assert json.loads(alternas("recipes", "mine.json")[1])["lr"] == 0.01


def test_a_folder_that_is_gone(alternas: Any) -> None:
    Path("gone").mkdir()
    os.chdir("gone")
    Path("../gone").rmdir()
    said = "alternas: the current folder has been deleted; change to one that is there\n"
    for words in (("data", "digits"), ("front", "mine"), ("search",)):
        assert alternas(*words) == (2, "", said)


def test_front_show_and_cost_of_a_run(alternas: Any) -> None:
    folder = finished_run()
    code, out, _ = alternas("front", "mine", "--json")
    rows = json.loads(out)
    assert code == 0
    assert {"trial", "key", "accuracy", "macs", "params", "rank", "gain"} <= set(rows[0])
    assert [(row["trial"], row["rank"], row["gain"]) for row in rows] == [(1, 1, None)]
    assert alternas("front", str(folder))[0] == 0
    shown = alternas("show", "mine", "0")
    assert (shown[0], "[msa]" in shown[1]) == (0, True)
    assert alternas("show", "mine:0") == shown
    assert json.loads(alternas("show", "mine", "1", "--json")[1])["accuracy"] == 0.91
    assert alternas("show", "mine") == alternas("show", "mine:1"), "the best"
    code, out, _ = alternas("cost", "mine:1", "--json")
    assert (code, json.loads(out)["image_size"]) == (0, [8, 8])


BAD = [
    (("search", "alternets"), "did you mean 'alternet'"),
    (("search", "--trials", "0"), "trials"),
    (("search", "--strategy", "magic"), "strategy"),
    (("search", "--scheduler", "rope"), "scheduler"),
    (("search", "--objective", "beauty"), "objective"),
    (("search", "--max-macs", "lots"), "lots"),
    (("search", "--max-macs", "10"), "no net of space 'all'"),
    (("search", "--epochs", "-1"), "epochs"),
    (("search", "--recipe", "none.json"), "No such file"),
    (("search", "--recipe", "paper_cifar", "--data", "floats.npz"), "RandAugment needs"),
    (("search", "--loader", "disk"), "loader"),
    (("search", "--image-size", "16"), "image-size is for pictures"),
    (("data", "digit"), "did you mean 'digits'"),
    (("data", "cifar10"), "--download"),
    (("data", "./photos"), "photos"),
    (("recipes", "soup"), "known: smoke"),
    (("search", "--seed", "-1"), "seed"),
    (("search", "--cpus-per-trial", "0"), "cpus-per-trial"),
    (("search", "--gpus-per-trial", "1.5"), "gpus-per-trial"),
    (("search", "--gpus-per-trial", "65"), "65 share passes of at least 130 images, those of recipe smoke have 128"),
    (("search", "--colour", "red"), "--colour"),
    (("cost", "timm:resnet5o"), "did you mean 'resnet50'"),
    (("cost", "timm:vgg11", "--image-size", "7"), "takes no such image"),
    (("cost", "timm:resnet18.zzz"), "resnet18.zzz"),
    (("cost", "vit_tiny_patch16", "--image-size", "100"), "patch 16 does not divide a 100x100 map"),
    (("cost", "alternet50", "--batch", "0"), "batch"),
    (("front", "nowhere"), "nowhere"),
    (("front", "mine", "--objective", "latency"), "objective"),
    (("show", "mine", "9"), "no trial 9"),
    (("show", "mine:0", "1"), "only one of them"),
    (("report", "mine", "--out", "."), "cannot be written"),
    (("export", "mine", "--out", "d", "--trial", "0"), "trained weights are not there"),
    (("export", "mine", "--out", "d", "--pick", "luck"), "pick"),
    (("cost", "alternet51"), "did you mean"),
    (("cost", "alternet18", "--image-size", "30x30x30"), "image size"),
    (("cost", "alternet18", "--image-size", "30"), "window 4 does not divide"),
    (("cost", "alternet18", "--classes", "-1"), "classes"),
    (("export", "mine", "--out", "d", "--trial", "1", "--pick", "gain"), "both"),
    (("spaces", "./none.py"), "space ./none.py: cannot be read"),
    (("search", "photos/"), "must be a file that ends in .py"),
    (("search", "./space.py"), "space.py:1: KeyError: 7"),
    (("search", "resnet", "--strategy", "space:Sampler"), "cannot be imported: space.py:1: KeyError: 7"),
    (("search", "resnet", "--strategy", "optuna.samplers:CmaEsSampler"), "multi-objective"),
    (("search", "resnet", "--strategy", "optuna.samplers:GridSampler"), "search_space"),
    (("fly",), "fly"),
    (("show", "mine:0:1"), "RUN:TRIAL names a trial by its number, got '0:1'"),
    (("explain", "mine", "--device", "tpu"), "did you mean 'cpu'"),
    (("retrain", "mine", "--trials", "77"), "no trial 77"),
    (("runs", "mine"), "unexpected extra argument"),
]


@pytest.mark.whole
@pytest.mark.parametrize(("words", "hint"), BAD, ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")
def test_bad_input_is_one_line_and_exit_code_2(
    alternas: Any, words: tuple[str, ...], hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished_run()
    Path("space.py").write_text("{}[7]\n", encoding="utf-8")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    np.savez("floats.npz", x=np.zeros((20, 8, 8)), y=np.repeat([0, 1], 10))
    before = sorted(Path().rglob("*"))
    code, out, err = alternas(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert hint in err
    assert sorted(Path().rglob("*")) == before, "nothing is written"


READING = [
    "front mine", "leaderboard mine", "compare mine other", "show mine 0", "report mine", "export mine --out d",
    "export mine:0 --out d", "cost mine:0", "latency mine", "latency mine:0", "retrain mine", "explain mine",
    "explain mine:0", "explain other --against mine:0", "dashboard mine", "finetune --from mine --data digits",
    "buildup --from mine:0 --data digits", "few-shot --from mine --data digits", "search resnet --name mine",
    "study data-size --data digits --name mine",
]  # fmt: skip


@pytest.mark.parametrize("line", READING)
def test_a_run_of_another_format_is_refused(alternas: Any, line: str) -> None:
    folder = finished_run()
    finished_run("other")
    for file in ("run.json", "records.jsonl"):
        text = (folder / file).read_text(encoding="utf-8")
        for of, other in (('"format": 1, ', 1), ("", 1), ('"format": 2, ', 2)):
            (folder / file).write_text(text.replace('"format": 4, ', of), encoding="utf-8")
            (folder / "lock").touch()
            before = sorted(Path().rglob("*"))
            code, _, err = alternas(*line.split())
            rule = f"has format {other}, this alternas reads 4; train it again or use the alternas that made it"
            assert (code, len(err.splitlines())) == (2, 1)
            assert f"run 'mine': {rule}" in err
            assert sorted(Path().rglob("*")) == before, "nothing is written"
        (folder / file).write_text(text, encoding="utf-8")


def test_runs_that_cannot_be_written(alternas: Any) -> None:
    Path("runs").write_text("in the way", encoding="utf-8")
    code, _, err = alternas("search", "resnet", "--trials", "1")
    assert (code, err.count("\n"), "cannot be written" in err) == (2, 1, True)


def test_help_and_front_load_nothing_heavy() -> None:
    finished_run()
    finished_run("other")
    check = """
import sys
from alternas.cli.app import app
for words in sys.argv[1:]:
    app(words.split(), standalone_mode=False)
    found = [m for m in ("torch", "ray", "optuna", "timm", "sklearn", "pandas") if m in sys.modules]
    assert not found, f"{words}: {found}"
"""
    words = ("--help", "front mine", "compare mine other", "show mine 0", "spaces resnet", "cost alternet50")
    done = subprocess.run([sys.executable, "-c", check, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("words", "code"), [("cost resnet18", 0), ("cost nonsense", 2)])
def test_closed_streams_take_all_and_say_nothing(words: str, code: int) -> None:
    command = f"{shlex.quote(sys.executable)} -m alternas {words}"
    done = subprocess.run(["sh", "-c", f"{command} >&-"], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (code, int(code > 0))
    assert subprocess.run(["sh", "-c", f"{command} >&- 2>&-"]).returncode == code


@pytest.mark.parametrize(("command", "more"), [("search", "; the same command resumes"), ("bench", "")])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_command_says_how_it_goes_on(
    number: int, code: int, command: str, more: str, alternas: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {stop: signal.getsignal(stop) for stop in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(cli, "app", lambda **_: os.kill(os.getpid(), number))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores
    try:
        assert alternas(command) == (code, "", f"alternas: stopped{more}\n")
    finally:
        for stop, handler in before.items():
            signal.signal(stop, handler)


@pytest.mark.parametrize(
    ("command", "option", "names"), [("search", "strategy", STRATEGIES), ("export", "formats", FORMATS)]
)
def test_help_lists_what_the_registry_holds(command: str, option: str, names: Iterable[str]) -> None:
    found = next(o for o in get_command(cli.app).commands[command].params if o.name == option)  # type: ignore[attr-defined]
    listed = re.findall(r"[\w-]+", found.help.partition(": ")[2].partition(", or your own")[0])  # type: ignore[attr-defined]
    assert listed == list(names)


def test_a_config_that_names_an_option_twice_is_refused(alternas: Any, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text('{"data": "digits", "trials": 2, "trials": 3}', encoding="utf-8")
    code, _, err = alternas("search", "--config", str(file))
    assert (code, err) == (2, f"alternas: config: {file} is no JSON (field 'trials' is there twice)\n")
