"""Mutation test, run by hand: `python tests/breakages.py --seed 0 --count 20` breaks code, counts what is noticed.

Each breakage changes one operator, comparison, number or condition in a copy of the checkout. The test files that
import the broken module run first, then the whole default suite, until a test fails.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = ("archs", "spaces", "search/trials", "search/samplers", "search/training", "results/ranking")
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def places(tree: ast.Module) -> Iterator[ast.AST]:
    """The expressions within functions that `break_at` can change; assertions and raised messages left out."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                if not isinstance(statement, ast.Raise | ast.Assert):
                    yield from (node for node in ast.walk(statement) if breakable(node))


def breakable(node: ast.AST) -> bool:
    """Whether a node is a number, or an operation with a counterpart."""
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float, bool)
    operation = node.ops[0] if isinstance(node, ast.Compare) else getattr(node, "op", None)
    return type(operation) in SWAPS


def break_at(node: ast.AST) -> str:
    """Change a node in place; what was changed, in words."""
    before = ast.unparse(node)
    if isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, ast.Compare):
        node.ops[0] = SWAPS[type(node.ops[0])]()  # type: ignore[assignment]
    else:
        node.op = SWAPS[type(node.op)]()  # type: ignore[attr-defined]
    return f"line {node.lineno}: {before}  ->  {ast.unparse(node)}"  # type: ignore[attr-defined]


def tests_of(checkout: Path, module: str) -> list[str]:
    """The test files that name a module."""
    name = re.compile(rf"\b{re.escape(module.removesuffix('.py').replace('/', '.'))}\b")
    return [
        str(path)
        for path in sorted((checkout / "tests").glob("test_*.py"))
        if name.search(path.read_text(encoding="utf-8"))
    ]


def failing_test(checkout: Path, files: list[str], seconds: float) -> str:
    """The first default test that fails; "" if none does."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *files]
    environ = os.environ | {"PYTHONPATH": str(checkout / "typings")}  # whose link `alternas` is the copy
    try:
        done = subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"no end within {seconds:.0f} s"
    failed = re.search(r"^(?:FAILED|ERROR) (.*)$", done.stdout, re.M)
    if failed or not done.returncode:
        return failed[1] if failed else ""
    return f"pytest ended with {done.returncode}: {(done.stderr + done.stdout).strip()[-300:]}"


def noticed(checkout: Path, module: str, draw: random.Random) -> tuple[str, str]:
    """Break one place of a module: what was changed, and the test that fails."""
    path = checkout / module
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    change = break_at(draw.choice(list(places(tree))))
    path.write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")
    near = tests_of(checkout, module)
    try:
        return change, (failing_test(checkout, near, 900) if near else "") or failing_test(checkout, [], 1800)
    finally:
        path.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    options = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # in the background a shell has it ignored, which fails a test
    draw, seen = random.Random(options.seed), 0
    modules = [str(p.relative_to(ROOT)) for room in CORE for p in sorted((ROOT / room).rglob("*.py"))]
    modules = [module for module in modules if any(places(ast.parse((ROOT / module).read_text(encoding="utf-8"))))]
    with tempfile.TemporaryDirectory() as scratch:
        checkout = Path(scratch) / "alternas"
        shutil.copytree(ROOT, checkout, symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv*", "__pycache__"))
        if broken := failing_test(checkout, [], 1800):
            sys.exit(f"the tests fail before anything is broken: {broken}")
        for number in range(options.count):
            module = draw.choice(modules)
            change, test = noticed(checkout, module, draw)
            seen += bool(test)
            print(f"{number:2} {module} {change}\n     {test or 'NOT NOTICED'}", flush=True)
    print(f"{seen} of {options.count} breakages noticed")


if __name__ == "__main__":
    main()
