"""The README and the pages of docs/ as tests read them: their code blocks, and a page as one program.

A page runs from top to bottom in one folder: what its bash blocks say is run by bash, its Python is one session.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import alternas
from command_line import SERVER

ROOT = Path(alternas.__file__).parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```(python|bash|yaml)(?: (\S+))?\n(.*?)```", re.DOTALL)  # language, the file that it shows, text
MARK = re.compile(r"\[not run: ([^]]+)\]")  # on a line of bash, or anywhere in a block of Python, with the reason

# Put behind what a page says, where it is not run to the letter; of an option given twice the last one counts.
# The first pattern that a command line fits.
SHORT = {
    "search*latency_ms": "--trials 1 --epochs 1",  # ten seconds a net on a busy machine
    "search": "--trials 4 --epochs 1",
    "retrain": "--top 1 --seeds 1 --epochs 1",
    "train": "--seeds 1 --epochs 0.05",
    "finetune": "--seeds 1 --epochs 0.05",
    "buildup": "--seeds 1 --epochs 0.05",
    "study": "--data digits --quick --seeds 2 --epochs 0.3",
    "bench": "--seeds 2 --scheduler none",
    "explain": "--samples 16 --quick",
    "latency": "--batch 1 --top 2",
}


def bash_of(block: str, to_the_letter: bool = False) -> str:
    """A script that runs a block's lines but the marked ones. What it installs is there, and tests are running.

    Commands go to the server that the environment names, unless they are run to the letter.
    """
    python = shlex.quote(sys.executable)
    command = f"{python} -m alternas" if to_the_letter else f'{python} -S {SERVER} "$COMMAND_SERVER"'
    lines = [line for line in block.splitlines() if not MARK.search(line)]
    cases = "" if to_the_letter else "".join(f'{like}*) set -- "$@" {more};; ' for like, more in SHORT.items())
    functions = (
        f'alternas() {{ case "$*" in {cases}*) ;; esac; {command} "$@"; }}',
        f'python() {{ {python} "$@"; }}',
        "pip() { :; }",
        "pytest() { :; }",
    )
    return "\n".join([*functions, "set -x", *lines])


def program(text: str, to_the_letter: bool = False) -> str:
    """A page as one Python program, without the files that it shows and what is marked."""
    parts = ["import subprocess"]
    for language, file, block in BLOCK.findall(text):
        if language == "bash" and not file:
            words = ["bash", "-euo", "pipefail", "-c", bash_of(block, to_the_letter)]
            parts.append(f"if subprocess.run({words!r}).returncode: raise SystemExit('the last command above failed')")
        elif not file and not MARK.search(block):
            parts.append(block)
    return "\n".join(parts)


def shown_files(text: str, folder: Path) -> None:
    """The files that a page shows, laid into the folder in which it runs."""
    for _, file, _ in BLOCK.findall(text):
        if file:
            shutil.copy(ROOT / file, folder)


def run_page(page: Path, folder: Path, server: str = "") -> str:
    """Run a page in a folder, its commands by a server or to the letter, and return what it prints.

    The last lines of an error say where it stopped.
    """
    text = page.read_text(encoding="utf-8")
    shown_files(text, folder)
    (folder / "page.py").write_text(program(text, not server), encoding="utf-8")
    environment = os.environ | {"COMMAND_SERVER": server}
    done = subprocess.run([sys.executable, "page.py"], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{page.name}: {done.stderr[-4000:]}"
    return done.stdout
