"""What the README shows, does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import alternas

ROOT = Path(alternas.__file__).parent
BLOCKS = (
    re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    if (ROOT / "README.md").exists()
    else []
)


@pytest.mark.parametrize("block", [b for b in BLOCKS if "load_run" not in b])
def test_python_blocks_run(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {})


def test_every_command_of_the_readme_exists() -> None:
    from alternas.cli import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    named = set(re.findall(r"^alternas (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert named <= known
    assert {"search", "front", "show", "export", "cost", "spaces", "archs"} <= named


def test_the_tree_names_every_file() -> None:
    text = (ROOT / "README.md").read_text()
    for room in ("archs", "spaces", "results"):
        for path in (ROOT / room).glob("*.py"):
            if path.name not in ("__init__.py", "errors.py", "frame.py"):
                assert path.name in text, path
