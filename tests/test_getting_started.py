"""docs/getting-started.md carried out to the letter: from a folder of pictures to a model that names one."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from alternas.results import load_run
from pages import BLOCK, ROOT, run_page

PAGE = ROOT / "docs" / "getting-started.md"
CLASSES = ("circle", "cross", "stripes")
COMMANDS = ["pip install", "alternas search", "alternas front", "alternas export"]


def take_photos(folder: Path, count: int = 100) -> None:
    """Blurred shapes of any colour at any place, in files of two kinds and many sizes."""
    chance = np.random.default_rng(0)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            picture = drawing(name, chance).filter(ImageFilter.GaussianBlur(2))
            picture.save(folder / name / f"{number}.{('jpg', 'png')[number % 2]}")


def drawing(name: str, chance: np.random.Generator) -> Image.Image:
    width, height, r = (int(v) for v in chance.integers([40, 40, 6], [90, 90, 13]))
    x, y = int(chance.integers(r, width - r)), int(chance.integers(r, height - r))
    picture = Image.fromarray(chance.integers(0, 160, (height, width, 3), np.uint8))
    colour, pen = tuple(int(v) for v in chance.integers(120, 256, 3)), ImageDraw.Draw(picture)
    if name == "circle":
        pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    elif name == "cross":
        pen.line((x - r, y, x + r, y), fill=colour, width=7)
        pen.line((x, y - r, x, y + r), fill=colour, width=7)
    else:
        for at in (y - r, y, y + r):
            pen.line((x - r, at, x + r, at), fill=colour, width=5)
    return picture


def four(page: Path) -> list[str]:
    """The block of a page that has the four commands."""
    blocks = [text for language, _, text in BLOCK.findall(page.read_text(encoding="utf-8")) if language == "bash"]
    (found,) = [text for text in blocks if "--data photos --image-size 16 --epochs" in text and "pip" in text]
    return found.splitlines()


def test_the_readme_leads_there_in_four_commands() -> None:
    readme = ROOT / "README.md"
    lines = four(readme)
    assert [" ".join(line.split()[:2]) for line in lines] == COMMANDS
    assert lines == four(PAGE)
    assert "(docs/getting-started.md)" in readme.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_newcomer_comes_to_a_model_file(tmp_path: Path) -> None:
    """All that the page says, but the installation, which .ci/run does."""
    take_photos(tmp_path / "photos")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    told = run_page(PAGE, tmp_path)
    for part in ("Pareto front of mine", "seed noise: ", "baseline", "mine-best"):
        assert part in told
    config = json.loads((tmp_path / "mine-best" / "config.json").read_text(encoding="utf-8"))
    assert config["classes"] == list(CLASSES)
    assert (tmp_path / "mine-best" / "weights.safetensors").stat().st_size > 10_000
    found = re.search(r"^(circle|cross|stripes) [01]\.\d", told, re.MULTILINE)
    assert found, "what the page's Python says of a picture"
    frame = load_run(tmp_path / "runs" / "mine").frame()
    searched = frame[(frame.kind == "search") & (frame.weights != "finetuned")]
    assert (searched.status == "ok").sum() == 8, "duplicates cost nothing and do not count"
    assert frame.accuracy.max() > 2 / 3, "a search that learnt: a third is chance"
    assert {"package", "onnx", "timm"} <= set(
        json.loads((tmp_path / "mine-final" / "config.json").read_text(encoding="utf-8"))["formats"]
    )
    assert (tmp_path / "runs" / "mine" / "report.html").exists()
