"""Search on your own pictures: a folder with a folder of them for each class.

    python own_images.py my_photos     # or without a folder: on small drawings that are made first

Prints the front and exports the best net, which then names the class of a picture without alternas.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIDE = 16  # pixels; larger pictures want a larger side, a longer training and a GPU
TRIALS = 3
EPOCHS = 25


def draw_pictures(folder, count=60):
    """Circles, squares and crosses of any colour at any place, as PNG files: FOLDER/CLASS/NUMBER.png."""
    chance = np.random.default_rng(0)
    for name in ("circle", "square", "cross"):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            ground, colour = chance.integers(0, 90, 3), tuple(int(c) for c in chance.integers(140, 256, 3))
            picture = Image.new("RGB", (SIDE, SIDE), tuple(int(c) for c in ground))
            x, y, r = (int(v) for v in chance.integers([5, 5, 3], [11, 11, 5]))
            pen = ImageDraw.Draw(picture)
            if name == "circle":
                pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
            elif name == "square":
                pen.rectangle((x - r, y - r, x + r, y + r), fill=colour)
            else:
                pen.line((x - r, y, x + r, y), fill=colour, width=2)
                pen.line((x, y - r, x, y + r), fill=colour, width=2)
            picture.save(folder / name / f"{number}.png")


def alternas(*words):
    """Run a command and return what it says in JSON. Its own progress goes to the terminal."""
    command = [sys.executable, "-m", "alternas", *words, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "drawings")
    if not folder.exists():
        draw_pictures(folder)

    # What is there: classes, pictures of each split, what cannot be read.
    facts = alternas("data", str(folder), "--image-size", str(SIDE))
    print(f"{len(facts['classes'])} classes, {facts['images']['train']} pictures to train on")

    # The search. The same command again resumes it, or has nothing left to do.
    words = ["--data", str(folder), "--image-size", str(SIDE), "--trials", str(TRIALS), "--epochs", str(EPOCHS)]
    front = alternas("search", "alternet", *words, "--name", "own-images")
    for net in front:
        print(f"trial {net['trial']}: accuracy {net['accuracy']:.3f} for {net['macs']:,} MACs, {net['family']}")

    # The best, as a folder with its code and weights; model.py runs without alternas.
    out = Path("own-images-best")
    if not out.exists():
        alternas("export", "own-images", "--out", str(out))
    picture = next(path for path in sorted(folder.rglob("*")) if path.suffix in (".png", ".jpg", ".jpeg"))
    code = (
        "import sys, model; x = model.preprocess(model.open_image(sys.argv[1])); print(int(model.load()(x).argmax()))"
    )
    words = [sys.executable, "-c", code, str(picture.resolve())]
    done = subprocess.run(words, cwd=out, check=True, stdout=subprocess.PIPE, text=True)
    classes = json.loads((out / "config.json").read_text(encoding="utf-8"))["classes"]
    print(f"{picture} is a {classes[int(done.stdout)]}")


if __name__ == "__main__":
    main()
