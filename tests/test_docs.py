"""What the README and the pages of docs/ show, does what they say."""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from alternas.cli.app import app
from pages import BLOCK, MARK, PAGES, ROOT, bash_of, run_page

# The only blocks and lines that no test runs, by page, with the reason that stands beside them.
UNRUN = {
    "cluster.md": ["GPUs"] + ["a cluster"] * 5,
    "extending.md": ["downloads", "packages that may not be installed"],
    "gpus.md": ["a GPU"] * 5,
    "README.md": ["downloads"] * 3,
    "latency.md": [*["a device"] * 4, "python3 may have no onnxruntime"],
    "pretrained.md": ["downloads"] * 3,
    "strategies.md": ["minutes"],
    "studies.md": ["downloads"],
    "tracking.md": [
        "serves until Ctrl-C",
        "trackers that may not be installed",
        "a tracker that may not be installed",
        "a cluster",
    ],
}
# Pages whose blocks go on from each other, or train: not run block by block.
TOGETHER = ("exporting.md", "getting-started.md", "comparison.md", "python.md", "extending.md")
# Pages run from top to bottom elsewhere: on a net made for it, and to the letter.
ELSEWHERE = {"exporting.md": "test_export_elsewhere.py", "getting-started.md": "test_getting_started.py"}
# Runs that pages go on from: reading-a-front.md says how its own were searched.
MADE = (
    "alternas search --data digits",
    "alternas search alternet --data digits --max-macs 500k --trials 40 --name small",
    "alternas search modern --data digits --max-params 100k --name mixed",
)
BEFORE = {"reading-a-front.md": ("small", "mixed"), "report.md": ("all-digits",), "studies.md": ("all-digits",)}
WHOLE = [page for page in PAGES if page.name not in ELSEWHERE and BLOCK.search(page.read_text(encoding="utf-8"))]
NAMED = [
    (page, file, text) for page in PAGES for _, file, text in BLOCK.findall(page.read_text(encoding="utf-8")) if file
]
UNNAMED = [
    pytest.param(text, id=f"{page.name}-{i}")
    for page in PAGES
    if page.name not in TOGETHER
    for i, (language, file, text) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
    if language == "python" and not file and not MARK.search(text) and "load_run(" not in text
]
COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
SHOWN = [
    (page.name, text)
    for page in PAGES
    for language, _, text in BLOCK.findall(page.read_text(encoding="utf-8"))
    if language in ("bash", "yaml")
]
CLUSTERS = [(path.name, path.read_text(encoding="utf-8")) for path in sorted((ROOT / "examples" / "cluster").iterdir())]
LINES = [
    pytest.param(line.strip(), id=f"{name}-{line.strip()[:50]}")
    for name, text in (*SHOWN, *CLUSTERS)
    for line in re.split(r"\n|&&|-c \"", text)
    if line.strip().startswith("alternas ")
]


@pytest.mark.parametrize("block", UNNAMED)
def test_python_blocks_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by itself."""
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "block", "exec"), {})


@pytest.mark.parametrize(("page", "file", "text"), NAMED, ids=lambda value: getattr(value, "name", str(value)[:40]))
def test_a_file_that_a_page_shows_is_that_file(page: Path, file: str, text: str) -> None:
    assert (ROOT / file).read_text(encoding="utf-8") == text, f"{page.name} shows another {file}"


@pytest.mark.parametrize("line", LINES)
def test_every_command_line_parses(line: str) -> None:
    """Options that exist, with values of their types; nothing is run."""
    name, *words = shlex.split(re.split(r"[>|\"]", line)[0], comments=True)[1:]
    COMMANDS[name].make_context(name, words)


def test_what_is_not_run_is_listed_here() -> None:
    marked = {page.name: [] for page in PAGES}
    for page in PAGES:
        marked[page.name] += [
            why for _, _, text in BLOCK.findall(page.read_text(encoding="utf-8")) for why in MARK.findall(text)
        ]
    assert {name: found for name, found in marked.items() if found} == UNRUN
    for page in PAGES:
        fences = re.findall(r"^```(\S+)", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) == len(BLOCK.findall(page.read_text(encoding="utf-8"))), (
            f"{page.name} has a block of another language"
        )


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", index.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(linked) == [page.name for page in PAGES if page.parent == index.parent and page != index]


WISHES = re.findall(
    r"^\| [^|]+ \| `([^`]+)`[^|]*\| \[([\w-]+\.md)\]",
    (ROOT / "docs" / "README.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def test_the_index_has_the_wishes() -> None:
    """Own training, loss and metric, several labels, imbalance, a pretrained start, timm's nets, trackers, Python."""
    commands = "\n".join(command for command, _ in WISHES)
    for word in ("my_training", "miou", "labels", "balanced_accuracy", "macro_f1", "--from", "--with", "--track"):
        assert word in commands
    assert "alternas.search(" in commands


@pytest.mark.parametrize(("command", "page"), WISHES)
def test_a_command_of_the_index_is_run_on_its_page(command: str, page: str) -> None:
    lines = [
        line
        for _, _, text in BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
        for line in text.splitlines()
    ]
    assert any(line.startswith(command) and not MARK.search(line) for line in lines), f"{page} lacks {command}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert "://" in link or (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.fixture(scope="module")
def made(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs that pages go on from."""
    folder = tmp_path_factory.mktemp("made")
    subprocess.run(
        ["bash", "-euc", bash_of("\n".join(MADE))], cwd=folder, env=os.environ | {"COMMAND_SERVER": server}, check=True
    )
    return folder


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", WHOLE, ids=lambda page: page.name)
def test_a_page_runs_from_top_to_bottom(
    page: Path, server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for run in BEFORE.get(page.name, ()):
        shutil.copytree(request.getfixturevalue("made") / "runs" / run, tmp_path / "runs" / run)
    for place in (tmp_path, tmp_path / "examples"):
        shutil.copytree(ROOT / "examples", place, dirs_exist_ok=True)
    draw = "from pathlib import Path; from own_images import draw_pictures; draw_pictures(Path('photos'), 20)"
    subprocess.run([sys.executable, "-c", draw], cwd=tmp_path, check=True)
    run_page(page, tmp_path, server)


@pytest.mark.parametrize(
    ("block", "found"),
    [("bash\nfalse | cat\n", "+ false"), ("python\na = 1\n```\n```python\nassert a == 2\n", "assert a == 2")],
)
def test_a_page_that_breaks_is_found(block: str, found: str, tmp_path: Path) -> None:
    """A command that fails in the middle of a pipe, and Python that goes on from the block before."""
    page = tmp_path / "page.md"
    page.write_text(f"```{block}```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=re.escape(found)):
        run_page(page, tmp_path)


def test_the_pages_name_every_command_and_no_other() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    named = {name for text in texts for name in re.findall(r"^alternas ([\w-]+)", text, re.MULTILINE)}
    assert named <= set(COMMANDS)
    assert set(COMMANDS) <= {name for text in texts for name in re.findall(r"alternas ([\w-]+)", text)}


def test_the_tree_names_every_file() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for room in ("archs", "spaces", "results"):
        for path in (ROOT / room).glob("*.py"):
            if path.name not in ("__init__.py", "errors.py", "frame.py"):
                assert path.name in text, path


FILE = re.compile(r"(?<![\w.*<])((?:[\w.-]+/)*[A-Za-z][\w-]*\.(?:py|md|sh|yaml))\b")  # a file as prose names it
# Files of other projects, of users, and those that a command writes.
OTHERS = {
    *(
        "attention2d.py",
        "convnext.py",
        "_efficientnet_blocks.py",
        "efficientvit_mit.py",
        "mambaout.py",
        "maxxvit.py",
        "vision_transformer.py",
        "vision_transformer_hybrid.py",
        "fewshot_lsr.py",
    ),
    *(
        "make_cifar_c.py",
        "models/preresnet.py",
        "models/alternet.py",
        "module.py",
        "hub.py",
        "timm_model.py",
        "model.py",
    ),
    *(
        "ray_bootstrap_config.yaml",
        "results/analysis/FILE.py",
        "resnetv2.py",
        "best/model.py",
        "mine-best/model.py",
        "probed-best/model.py",
        "all-digits-best/model.py",
    ),
}


def test_the_first_file_of_a_question_names_the_others() -> None:
    """Who asks one of these opens the files of its row and no others."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = [line for line in text.partition("| question |")[2].splitlines()[2:] if line][:7]
    for row, most in zip(rows, (4, 5, 6, 6, 6, 5, 5), strict=True):
        first, *others = re.findall(r"`([\w/]+\.py)`", row)
        named = ast.get_docstring(ast.parse((ROOT / first).read_text(encoding="utf-8"))) or ""
        assert not [other for other in others if Path(other).name not in named]
        assert 1 + len(others) <= most


def test_files_that_docstrings_and_pages_name_are_there() -> None:
    rooms = ("cli", "archs", "spaces", "search", "results", "benchmarks", "docs", "examples")
    files = [*ROOT.glob("*.*"), *(path for room in rooms for path in (ROOT / room).rglob("*.*"))]
    paths = [str(path.relative_to(ROOT)) for path in files]
    sources = [path for path in paths if path.endswith((".py", ".md")) and path != "CHANGELOG.md"]
    ends = {"/".join(path.split("/")[i:]) for path in paths for i in range(path.count("/") + 1)} | OTHERS
    ends |= {path.name for path in (ROOT / "tests").glob("test_*.py")} | {
        f"tests/{path.name}" for path in (ROOT / "tests").glob("*.py")
    }
    missing = []
    for source in sources:
        prose = (ROOT / source).read_text(encoding="utf-8")
        if source.endswith(".py"):
            nodes = ast.walk(ast.parse(prose))
            held = [node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
            prose = "\n".join(ast.get_docstring(node) or "" for node in held)
        missing += [
            f"{source}: {name}"
            for name in FILE.findall(prose)
            if name.removeprefix("../").removeprefix("./") not in ends
        ]
    assert not missing


def test_every_table_of_a_page_has_a_header() -> None:
    for page in PAGES:
        for table in re.findall(r"(?:^\|.*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert re.match(r"\|.*\n\|(?: ?:?-+:? ?\|)+\n", table), f"{page.name}: {table[:80]}"
