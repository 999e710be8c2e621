"""The house keeps its shape: which room may import which, and what stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import alternas
from alternas.search.data.readers import registry

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


def imports(path: Path) -> list[tuple[str, ...]]:
    """Absolute parts, below alternas, of what a file imports from alternas."""
    here = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
