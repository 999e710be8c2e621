"""One Python file that holds everything needed to build a net: the sources of `archs`, joined.

Each module's code stands under a banner, its imports between modules are left out, and those
from elsewhere are gathered at the top.
"""

from __future__ import annotations

import ast
from importlib import import_module, resources
from pathlib import Path

from ...archs import Genotype, Stage
from ...archs.blocks.spec import BLOCKS

MODULES = (
    "errors", "blocks/spec", "parts", "stage", "layout", "genotype",
    "blocks/attention", "blocks/residual", "blocks/encoder", "blocks/layers", "ends", "network",
)  # fmt: skip


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


def _needed(module: str) -> list[str]:
    """The modules of `archs` that a module of `archs` imports at its top, each behind those that it needs."""
    names = list[str]()
    for node in ast.parse(_text(module)).body:
        if isinstance(node, ast.ImportFrom) and _is_ours(node) and (name := _imported(module, node)) not in MODULES:
            names += [*_needed(name), name]
    return names


def sections(net: Genotype) -> list[tuple[str, str]]:
    """The modules of `archs` that build `net`, in an order in which each needs only those before it, with their use."""
    names = [*MODULES[:-2], *more_modules(net), *["fusing"] * net.reparametrised, *MODULES[-2:]]
    return [(name, (ast.get_docstring(ast.parse(_text(name))) or "").split("\n")[0]) for name in names]


def net_source(net: Genotype) -> str:
    """The sources that build `net`: torch alone, or torch and timm where a part of it is timm's."""
    imports = dict[str, set[str]]()  # from elsewhere: names by module, "" for plain imports
    modules, bodies, names = sections(net), [], set[str]()
    for module, about in modules:
        text = _text(module)
        tree = ast.parse(text)
        for node in tree.body:
            if isinstance(node, ast.Import):
                imports.setdefault("", set()).update(ast.unparse(alias) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not _is_ours(node) and node.module != "__future__":
                imports.setdefault(node.module or "", set()).update(ast.unparse(alias) for alias in node.names)
        defined = _defined(tree)
        assert not names & defined, f"archs.{module} defines again: {sorted(names & defined)}"
        names |= defined
        body = _spec_body(net) if module == "blocks/spec" else _body(module, text, tree, [name for name, _ in modules])
        bodies.append(f"# ---- {module}: {about}\n\n\n{body}")
    lines = [f"import {name}" for name in sorted(imports.pop("", set()))]
    lines += [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(imports.items())]
    return "\n".join(lines) + "\n\n" + "\n\n\n".join(bodies)


def _text(module: str) -> str:
    file = resources.files("alternas.archs") / f"{module}.py"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    return Path(import_module(module).__file__ or "").read_text(encoding="utf-8")


def _spec_body(net: Genotype) -> str:
    """blocks/spec.py with the entries of this net's blocks, and of the kinds that a `Stage` names by default."""
    text = _text("blocks/spec")
    tree = ast.parse(text)
    kinds = [
        kind for stage in (Stage(), *net.stages, *net.canonical().stages) for kind in (stage.block, stage.attention)
    ]
    entries = "".join(f"    {kind!r}: {BLOCKS[kind]!r},\n" for kind in BLOCKS if kind in kinds)
    load = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "load_class")
    code = ast.get_source_segment(text, load) or ""
    text = text.replace(code + "\n", LOAD)
    text = text.replace("BLOCKS: dict[str, BlockSpec] = {}\n", f"BLOCKS: dict[str, BlockSpec] = {{\n{entries}}}\n")
    return _body("blocks/spec", text, ast.parse(text), [])


def _defined(tree: ast.Module) -> set[str]:
    names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _body(module: str, text: str, tree: ast.Module, here: list[str]) -> str:
    """The text without module docstring, imports at the top, and imports from our own modules anywhere.

    Args:
        module: its path below `archs`, without the suffix.
        text: of the module.
        tree: the same, parsed.
        here: the modules in this file; in place of an import from another stands that it is left out.
    """
    ours = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and _is_ours(n)]
    top = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    gone = {line for node in (*ours, *top, tree.body[0]) for line in _lines(node)}
    lines = dict(enumerate(text.splitlines(), start=1))
    for node in ours:
        if node.col_offset and not lines[node.lineno + 1].strip():
            gone.add(node.lineno + 1)  # the blank line behind an import in a function
        imported = _imported(module, node)
        if node.col_offset and imported not in here:
            lines[node.lineno] = " " * node.col_offset + f"# archs/{imported}.py is left out: this net has none of it"
            gone.discard(node.lineno)
    return "\n".join(line for number, line in lines.items() if number not in gone).strip()


def _is_ours(node: ast.ImportFrom) -> bool:
    return bool(node.level) or (node.module or "").startswith("alternas.")


def _imported(module: str, node: ast.ImportFrom) -> str:
    """The path below `archs` of the module of ours that an import in `module` names."""
    if not node.level:
        return "/".join((node.module or "").split(".")[2:])
    folder = module.split("/")[:-1]
    return "/".join([*folder[: len(folder) - node.level + 1], *(node.module or "").split(".")])


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)
