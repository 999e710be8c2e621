"""The house keeps its shape: which room may import which, what stays light, what shadows nothing, what CI tests."""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import alternas
from alternas.search.data.readers import registry
from alternas.search.engine import connection
from command_line import run

ROOT = Path(alternas.__file__).parent
ROOMS = ("archs", "spaces", "search", "results")
FILES = sorted(p for room in (*ROOMS, "cli") for p in (ROOT / room).rglob("*.py"))
ALLOWED = {
    "archs": {"archs"},
    "spaces": {"spaces", "archs"},
    "results": {"results", "archs"},
    "search": {"search", "spaces", "archs", "results"},
    "cli": {*ROOMS, "cli"},
}
FLOORS = (
    "data",
    "training",
    "strategies",
    "trials",
    "engine",
    "experiments",
    "tabular",
)  # of search: none imports a later

READERS = [f"alternas.search.data.readers.{reader.function.split(':')[0]}" for reader in registry.READERS]


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


@functools.cache
def imports(path: Path) -> list[tuple[str, ...]]:
    """Absolute parts, below alternas, of what a file imports from alternas."""
    here = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found = []
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[: len(here) - node.level + 1]
            module = tuple(node.module.split(".")) if node.module else ()
            names = [()] if module else [(alias.name,) for alias in node.names]
            found += [base + module + name for name in names]
    return found


def test_imports_follow_the_arrows() -> None:
    for path in FILES:
        parts = path.relative_to(ROOT).with_suffix("").parts
        for target in imports(path):
            assert target[0] in ALLOWED[parts[0]], f"{path} imports {'.'.join(target)}"
            if parts[0] == target[0] == "search" and parts[1] in FLOORS and target[1] in FLOORS:
                assert FLOORS.index(target[1]) <= FLOORS.index(parts[1]), f"{path} imports {'.'.join(target)}"


def test_ray_lives_in_the_engine_and_optuna_in_its_adapter() -> None:
    homes = {
        "ray": {
            f"search/engine/{name}.py"
            for name in ["connection", "pool", "worker_group", "driver_files", "tune", "doctor"]
        },
        "optuna": {"search/strategies/optuna_strategy.py", "search/trials/dashboard.py", "results/report/genes.py"},
    }
    for path in FILES:
        for node in nodes_of(path):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            for module in modules:
                home = homes.get(module.split(".")[0])
                assert home is None or str(path.relative_to(ROOT)) in home, f"{path} imports {module}"


def test_no_import_circles() -> None:
    graph = {p: {q for t in imports(p) if (q := (ROOT / Path(*t)).with_suffix(".py")) in FILES} for p in FILES}
    done: set[Path] = set()

    def visit(path: Path, trail: tuple[Path, ...]) -> None:
        assert path not in trail, f"circle: {[str(p.relative_to(ROOT)) for p in (*trail, path)]}"
        if path not in done:
            for target in graph[path]:
                visit(target, (*trail, path))
            done.add(path)

    for path in FILES:
        visit(path, ())


LIGHT = [  # one after the other in one process: what is imported or called, and what must not be there when it was
    ("import alternas", "torch ray optuna pandas numpy typer rich alternas.archs"),
    ("import alternas.cli.app", "torch ray optuna pandas numpy"),
    ("import alternas.results.report.page", "torch ray optuna pandas numpy matplotlib"),
    ("import alternas.results.render.experiment", "torch numpy scipy pandas matplotlib"),
    ("import alternas.archs.grammar; alternas.archs.grammar.page()", "torch ray optuna pandas"),
    ("import alternas.spaces, alternas.results.render.describe_net", "torch ray optuna pandas"),
    ("from alternas.spaces.pretrained import find_nets; find_nets(); find_nets('resnet18')", "torch timm"),
    ("alternas.load_run, alternas.search.__signature__", "torch ray optuna pandas"),
    ("try: alternas.search(nope=1)\nexcept alternas.InputError: pass", "torch ray optuna pandas"),
    ("import alternas.search.training.recipes", "torch timm ray"),
    ("import alternas.search.data.load", "torch torchvision timm ray optuna sklearn pandas"),
    (f"import {', '.join(READERS)}", "torch torchvision timm datasets h5py tensorflow"),
    ("import alternas.search.training.loop", "ray optuna timm"),
]


def check_absent(steps: list[tuple[str, str]]) -> None:
    """In a process of its own."""
    check = (
        "import sys\nfor code, absent in {!r}:\n    exec(code)\n    found = {{*absent.split()}} & sys.modules.keys()\n"
    )
    check += "    assert not found, (code, found)"
    subprocess.run([sys.executable, "-c", check.format(steps)], check=True)


def test_heavy_packages_wait() -> None:
    check_absent(LIGHT)
    check_absent([("import alternas.search.run", "torch timm sklearn optuna")])


NAMES = ("torch", "timm", "numpy", "statistics", "json", "random", "ray", "optuna", "pickle", "socket")


@pytest.fixture
def shadows(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('of the current folder')\n", encoding="utf-8")
    return tmp_path


def test_workers_import_from_the_driver_s_folders(shadows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.chdir(shadows)
    monkeypatch.setattr(connection.ray, "init", lambda address, **options: given.update(options))
    stdlib = next(folder for folder in sys.path if folder.endswith(f"python3.{sys.version_info.minor}"))
    for path, found in ((["/a", "/b", stdlib, "/c"], ["/b", "/a"]), (["", stdlib], [str(shadows)])):
        monkeypatch.setattr(sys, "path", path)
        connection._init("local")
        assert (given["job_config"]._py_driver_sys_path, given["job_config"]._client_job) == (found, True)


@pytest.mark.slow
@pytest.mark.parametrize("command", [[str(Path(sys.executable).with_name("alternas"))], None])
def test_a_search_and_a_bench_end_well(shadows: Path, command: list[str] | None) -> None:
    words = ["search", "resnet", "--data", "digits", "--trials", "1", "--epochs", "1", "--name", "mine"]
    for asked in (words, ["bench", "--seeds", "1", "--strategy", "random"]):
        if command is None:
            code, _, err = run(shadows, *asked)
        else:
            done = subprocess.run([*command, *asked], cwd=shadows, capture_output=True, text=True)
            code, err = done.returncode, done.stderr
        assert code == 0, err


ONLY_FOR_TESTS = {
    "basedpyright", "build", "ipykernel", "nbclient", "psutil", "pytest", "pytest-timeout", "pytest-xdist", "ruff",
    "selenium",
}  # fmt: skip


NOT_IN_CI = {"openvino", "litert-torch", "ai-edge-litert"}  # runtimes of exports: their floors are what was tried


def test_ci_installs_the_floors() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    }
    floors = {re.sub(r"\[.*\]", "", name): floor for name, floor in (line.split(">=") for line in wanted)}
    pins = dict(
        re.findall(r"^([\w-]+)==([\d.]+?)(?:\.\*)?$", (ROOT / ".ci/lowest.txt").read_text(encoding="utf-8"), re.M)
    )
    assert pins.keys() == floors.keys() - ONLY_FOR_TESTS - NOT_IN_CI
    # "17" and "17.0" are one floor: what one says beyond the other is zeros.
    assert {n: v.removesuffix(".0") for n, v in pins.items()} == {n: floors[n].removesuffix(".0") for n in pins}
