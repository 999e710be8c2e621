"""What the README and the pages of docs/ show, does what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import alternas

ROOT = Path(alternas.__file__).parent
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.exists()]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{i}")
    for page in PAGES
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
    if "load_run" not in block
]


@pytest.mark.parametrize("block", BLOCKS)
def test_python_blocks_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "block", "exec"), {})


def test_every_command_of_the_readme_exists() -> None:
    from typer.main import get_command

    from alternas.cli import app

    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    named = {name for page in PAGES for name in re.findall(r"^alternas ([\w-]+)", page.read_text(), re.MULTILINE)}
    assert named == known


def test_the_tree_names_every_file() -> None:
    text = (ROOT / "README.md").read_text()
    for room in ("archs", "spaces", "results"):
        for path in (ROOT / room).glob("*.py"):
            if path.name not in ("__init__.py", "errors.py", "frame.py"):
                assert path.name in text, path
