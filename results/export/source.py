"""One Python file that holds what builds a net: of the sources of `archs` the parts that this net reaches.

A class, function or constant is kept if its name stands in what is kept already, beginning with the net's own
expression and `build`; of a class so are its methods. What checks a genotype is left out: this one was checked.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from importlib import import_module, resources
from pathlib import Path
from typing import get_type_hints

from ...archs import Genotype, Stage
from ...archs.blocks.spec import BLOCKS

MODULES = (
    "errors", "blocks/spec", "parts", "stage", "layout", "genotype",
    "blocks/attention", "blocks/residual", "blocks/encoder", "blocks/layers", "ends", "network",
)  # fmt: skip
SPECIAL = ("__init__", "__call__")  # methods that are kept though nobody names them
Definition = ast.FunctionDef | ast.ClassDef

# In place of what finds a block's class by its module: here all stand in one.
LOAD = """\
def load_class(name: str) -> Any:
    return globals()[name.partition(":")[2]]
"""


def more_modules(net: Genotype) -> list[str]:
    """The modules beyond `MODULES` with blocks of `net`: of `archs`, which need timm, or the user's own by name.

    What they import from `archs` in their first lines stands in front of them.
    """
    names = list[str]()
    for kind in (kind for stage in net.stages for kind in stage.kinds):
        name = BLOCKS[kind].form(net.style.order).module.partition(":")[0]
        own = name.startswith(".")  # ".residual" or "package.module"
        names += [*_needed(f"blocks/{name[1:]}"), f"blocks/{name[1:]}"] if own else [name]
    return [name for name in dict.fromkeys(names) if name not in MODULES]


def net_source(net: Genotype, more: str = "") -> tuple[str, list[tuple[str, str]]]:
    """The sources that build `net`: torch alone, or torch and timm where a part of it is timm's.

    Args:
        more: code that stands behind them, whose names are kept too.

    Returns:
        The text, which ends with `GENOTYPE`, the net; and the sections of it, each with its use.
    """
    names = [*MODULES[:-2], *more_modules(net), *["fusing"] * net.reparametrised, *MODULES[-2:], "pictures"]
    modules = {name: _Module(name, _spec_text(net) if name == "blocks/spec" else _text(name), names) for name in names}
    literal = f"GENOTYPE = {net!r}\n"
    forms = [BLOCKS[kind].form(net.style.order).module.partition(":")[2] for kind in net.kinds]
    used = {"build", "fused", *forms, *_names(ast.parse(literal)), *_names(ast.parse(more))}
    while any([module.reach(used) for module in modules.values()]):
        pass
    kept = {name: module for name, module in modules.items() if module.nodes}
    bodies = [f"# ---- {name}: {module.about}\n\n\n{module.source(used)}" for name, module in kept.items()]
    text = "\n\n\n".join([_imports(modules.values(), used), *bodies, f"# ---- the net\n\n\n{literal}"])
    return re.sub(r"\n{4,}", "\n\n\n", text), [(name, module.about) for name, module in kept.items()]


class _Module:
    """A module of `archs`, or a user's, and what is kept of it."""

    def __init__(self, name: str, text: str, here: list[str]) -> None:
        """`here` are the modules in the file."""
        self.name, self._here, self._lines = name, here, text.splitlines()
        self.tree = ast.parse(text)
        self.about = (ast.get_docstring(self.tree) or "").split("\n")[0]
        self.nodes: list[ast.stmt] = []  # kept ones
        self._left = [n for n in self.tree.body if isinstance(n, Definition | ast.Assign | ast.AnnAssign)]

    def reach(self, used: set[str]) -> bool:
        """Keep what is named in `used`, and add the names in that. Returns whether anything was added."""
        before = len(used)
        for node in [node for node in self._left if _defined(node) & used]:
            self._left.remove(node)
            self.nodes.append(node)
        for node in self.nodes:
            for part in _parts(node, used):
                used |= _names(part)
        return len(used) > before

    def source(self, used: set[str]) -> str:
        """The text of what is kept."""
        gone, instead = set[int](), dict[int, str]()
        for node in self.nodes:
            if isinstance(node, ast.ClassDef):
                parts = list(_parts(node, used))
                gone |= {line for part in node.body if part not in parts for line in self._span(part)}
                instead |= self._annotations(node)
            for inner in ast.walk(node):
                if isinstance(inner, ast.ImportFrom) and _is_ours(inner):
                    gone |= set(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
                    if _imported(self.name, inner) not in self._here:
                        gone.discard(inner.lineno)
                        left_out = f"# archs/{_imported(self.name, inner)}.py is left out: this net has none of it"
                        instead[inner.lineno] = " " * inner.col_offset + left_out
        texts = []
        for node in sorted(self.nodes, key=lambda node: node.lineno):
            lines = [instead.get(n, self._lines[n - 1]) for n in self._span(node) if n not in gone]
            texts.append(("\n\n\n" if isinstance(node, Definition) else "\n") + "\n".join(lines))
        return "".join(texts).strip()

    def _span(self, node: ast.stmt) -> range:
        """The lines of a statement, with its decorators; of a method, with the blank line before it."""
        decorators = node.decorator_list if isinstance(node, Definition) else []
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        if node.col_offset and isinstance(node, Definition) and not self._lines[first - 2].strip():
            first -= 1
        return range(first, (node.end_lineno or node.lineno) + 1)

    def _annotations(self, node: ast.ClassDef) -> dict[int, str]:
        """Lines of fields, of plain types: what values they may have is not checked here."""
        if self.name not in ("parts", "stage", "genotype"):
            return {}
        hints = get_type_hints(getattr(import_module(f"alternas.archs.{self.name}"), node.name))
        lines = {}
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                kind = re.sub(r"[\w.]+\.", "", getattr(hints[field.target.id], "__name__", str(hints[field.target.id])))
                value = f" = {ast.unparse(field.value)}" if field.value else ""
                lines[field.lineno] = f"    {field.target.id}: {kind}{value}"
        return lines


def _parts(node: ast.stmt, used: set[str]) -> Iterator[ast.AST]:
    """What is kept of a statement: all of it, or of a class the fields and those methods that are used."""
    if not isinstance(node, ast.ClassDef):
        yield node
        return
    yield from (*node.bases, *node.decorator_list)
    for part in node.body:
        if not isinstance(part, ast.FunctionDef) or part.name in SPECIAL or part.name in used:
            yield part


def _names(node: ast.AST) -> set[str]:
    """The names in a piece of code; what are texts, such as names of classes, may be ones too."""
    found = set[str]()
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
            case ast.Constant(value=str(text)) if text.isidentifier():
                found.add(text)
            case ast.AnnAssign() if isinstance(part.target, ast.Name):
                found -= _names(part.annotation)
            case ast.arg(annotation=annotation) if annotation:
                found |= _names(annotation)
            case _:
                pass
    return found | {"forward"}


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, Definition):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    names = [name for target in targets for name in ast.walk(target)]
    return {name.id for name in names if isinstance(name, ast.Name)}


def _imports(modules: Iterable[_Module], used: set[str]) -> str:
    """The imports from elsewhere of names that are used, gathered."""
    plain, named = set[str](), dict[str, set[str]]()
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                kept = {ast.unparse(a) for a in node.names if (a.asname or a.name.split(".")[0]) in used}
                if isinstance(node, ast.Import):
                    plain |= kept
                elif kept and not _is_ours(node):
                    named.setdefault(node.module or "", set()).update(kept)
    lines = [f"import {name}" for name in sorted(plain)]
    return "\n".join([*lines, *(f"from {name} import {', '.join(sorted(of))}" for name, of in sorted(named.items()))])


def _needed(module: str) -> list[str]:
    """The modules of `archs` that a module of `archs` imports at its top, each behind those that it needs."""
    names = list[str]()
    for node in ast.parse(_text(module)).body:
        if isinstance(node, ast.ImportFrom) and _is_ours(node) and (name := _imported(module, node)) not in MODULES:
            names += [*_needed(name), name]
    return names


def _text(module: str) -> str:
    file = resources.files("alternas.archs") / f"{module}.py"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    return Path(import_module(module).__file__ or "").read_text(encoding="utf-8")


def _spec_text(net: Genotype) -> str:
    """blocks/spec.py with the entries of this net's blocks, and of the kinds that a `Stage` names by default."""
    text = _text("blocks/spec")
    kinds = [
        kind for stage in (Stage(), *net.stages, *net.canonical().stages) for kind in (stage.block, stage.attention)
    ]
    entries = "".join(f"    {kind!r}: {BLOCKS[kind]!r},\n" for kind in BLOCKS if kind in kinds)
    load = next(node for node in ast.parse(text).body if getattr(node, "name", "") == "load_class")
    text = text.replace((ast.get_source_segment(text, load) or "") + "\n", LOAD)
    return text.replace("BLOCKS: dict[str, BlockSpec] = {}\n", f"BLOCKS: dict[str, BlockSpec] = {{\n{entries}}}\n")


def _is_ours(node: ast.ImportFrom) -> bool:
    return bool(node.level) or (node.module or "").startswith("alternas.")


def _imported(module: str, node: ast.ImportFrom) -> str:
    """The path below `archs` of the module of ours that an import in `module` names."""
    if not node.level:
        return "/".join((node.module or "").split(".")[2:])
    folder = module.split("/")[:-1]
    return "/".join([*folder[: len(folder) - node.level + 1], *(node.module or "").split(".")])
