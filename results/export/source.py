"""One Python file that holds what builds a net: of the sources of `archs` the parts that this net reaches.

The net is written down as the numbers that its modules read when they are made, so that no rules of genotypes and no
geometry stand in the file. Of the modules a class, function or constant is kept if its name stands in what is kept
already, beginning with `build`; of a class so are its methods.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from importlib import import_module, resources
from pathlib import Path
from typing import get_type_hints

from ...archs import Genotype, Network
from ...archs.blocks.spec import BLOCKS
from ...archs.timm_network import AnyNetwork, TimmNetwork
from .net_values import as_source, noted_net, whole_net

MODULES = (
    "errors", "parts", "layout", "blocks/attention", "blocks/layers", "blocks/residual", "blocks/encoder", "ends",
    "network",
)  # fmt: skip
SPECIAL = ("__init__", "__call__")  # methods that are kept though nobody names them
Definition = ast.FunctionDef | ast.ClassDef
_PARTS = re.compile(r"(?<=: )(Stem|Style|Head|Encoder|Block|\w+Sizes|Layout|Genotype)\b(?=[,)=\n| ])")  # in annotations
_SIZES = re.compile(r"(?<=: )(Map|ImageSize)\b(?=[,)=\n| ])")
VALUES = '''\
class Values(SimpleNamespace):
    """What the modules of a net are made from: numbers and names of one of its parts."""

    def option(self, name: str) -> Any:
        """An option of a block."""
        return self.options[name]

    def plan(self, *sizes: Any) -> Values:
        """The net laid out: its blocks with their channels and maps."""
        return self.laid_out


def load_class(name: str) -> Any:
    """The class of a block."""
    return globals()[name.partition(":")[2]]


GENOTYPE = NOTED
'''
OF_OURS = '''\


def build() -> Network:
    """The net with fresh weights."""
    return WHOLE
'''
OF_TIMM = '''\
def build() -> Any:
    """The net with fresh weights."""
    import timm

    return timm.create_model(ARGUMENTS)
'''


def more_modules(net: Genotype) -> list[str]:
    """The modules beyond `MODULES` with blocks of `net`: of `archs`, which need timm, or the user's own by name.

    What they import from `archs` in their first lines stands in front of them.
    """
    names = list[str]()
    for kind in (kind for stage in net.stages for kind in stage.kinds):
        name = _form(net, kind).partition(":")[0]
        own = name.startswith(".")  # ".residual" or "package.module"
        names += [*_needed(f"blocks/{name[1:]}"), f"blocks/{name[1:]}"] if own else [name]
    return [name for name in dict.fromkeys(names) if name not in MODULES]


def source_of(network: AnyNetwork, more: str, pictures: bool) -> tuple[str, list[tuple[str, str]]]:
    """The sources that build a net, by `build()`, and their sections, each with its use; torch, and where needed timm.

    `more` is code that stands after them, whose names are kept too; `pictures` whether it opens files of pictures.
    """
    names, without = ["pictures"] * pictures, set[str]()
    used, net = _names(ast.parse(more)), ""
    ours = network if isinstance(network, Network) else getattr(getattr(network, "trunk", None), "model", None)
    if isinstance(ours, Network):
        genotype = ours.genotype
        names += [*MODULES[:-2], *more_modules(genotype), *MODULES[-2:]]
        used |= {"Network", *(_form(genotype, kind).partition(":")[2] for kind in genotype.kinds)}
        without = {"load_class"} | ({"TransformerEncoder"} if genotype.encoder is None else set())
        without |= {"conv_stem"} if genotype.stem.kind != "conv" else set()
        net = VALUES.replace("NOTED", as_source(noted_net(ours)))
    if isinstance(network, TimmNetwork):
        from ...archs.timm import create_args

        made = network.genotype.name, network.num_classes, network.in_chans, network.image_size
        arguments = [repr(made[0]), *(f"{name}={value!r}" for name, value in create_args(*made).items())]
        net = OF_TIMM.replace("ARGUMENTS", ", ".join(arguments))
    elif not isinstance(network, Network):
        from .cut import cut_build  # timm takes seconds to import

        names += ["timm/cuts", "cut_classifier"]
        net += f"\n\n{cut_build(network)}" if net else cut_build(network)
    else:
        net += OF_OURS.replace("WHOLE", whole_net(network))
    used |= _names(ast.parse(net))
    modules = {name: _Module(name, names) for name in names}
    while any([module.reach(used, without) for module in modules.values()]):
        pass
    kept = {name: module for name, module in modules.items() if module.nodes}
    bodies = [f"# ---- {name}: {module.about}\n\n\n{module.source(used)}" for name, module in kept.items()]
    text = "\n\n\n".join([*bodies, f"# ---- net: what this one is\n\n\n{net}"])
    text = f"{_imports(modules.values(), text)}\n\n\n{text}"
    sections = [*((name, module.about) for name, module in kept.items()), ("net", "what this one is, and `build`")]
    return re.sub(r"\n{4,}", "\n\n\n", text).strip(), sections


def _form(net: Genotype, kind: str) -> str:
    """The module of a kind of block in a net, as "package.module:Class"."""
    return BLOCKS[kind].form(net.style.order).module


class _Module:
    """A module of `archs` or of a user, and the statements kept of it."""

    def __init__(self, name: str, here: list[str]) -> None:
        """`here` are the modules in the file."""
        text = _text(name)
        self.name, self._here, self._lines = name, here, text.splitlines()
        self.tree = ast.parse(text)
        self.about = (ast.get_docstring(self.tree) or "").split("\n")[0]
        self.nodes: list[ast.stmt] = []  # kept ones
        self._left = [n for n in self.tree.body if isinstance(n, Definition | ast.Assign | ast.AnnAssign)]

    def reach(self, used: set[str], without: set[str]) -> bool:
        """Keep what is named in `used`, and add the names in that but `without`. Returns whether any was added."""
        before = len(used)
        for node in [node for node in self._left if _defined(node) & used]:
            self._left.remove(node)
            self.nodes.append(node)
        for node in self.nodes:
            for part in _parts(node, used):
                used |= _names(part) - without
        return len(used) > before

    def source(self, used: set[str]) -> str:
        """Source of the statements kept."""
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
        return _PARTS.sub("Values", _SIZES.sub("tuple", "".join(texts))).strip()

    def _span(self, node: ast.stmt) -> range:
        """The lines of a statement, with its decorators; of a method, with the blank line before it."""
        decorators = node.decorator_list if isinstance(node, Definition) else []
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        if node.col_offset and isinstance(node, Definition) and not self._lines[first - 2].strip():
            first -= 1
        return range(first, (node.end_lineno or node.lineno) + 1)

    def _annotations(self, node: ast.ClassDef) -> dict[int, str]:
        """Lines of fields, of plain types: what values they may have is not checked here."""
        if self.name != "parts":
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
    """The parts of a statement that are kept: all of it; of a class its fields and the methods used."""
    if not isinstance(node, ast.ClassDef):
        yield node
        return
    yield from (*node.bases, *node.decorator_list)
    for part in node.body:
        if not isinstance(part, ast.FunctionDef) or part.name in SPECIAL or part.name in used:
            yield part


def _names(node: ast.AST) -> set[str]:
    """The names in a piece of code, apart from annotations; texts, such as names of classes, may be ones too."""
    found, stack = {"forward"}, [node]
    while stack:
        part = stack.pop()
        match part:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
            case ast.Constant(value=str(text)) if text.isidentifier():
                found.add(text)
            case _:
                pass
        hints = (getattr(part, "annotation", None), getattr(part, "returns", None))
        stack += [child for child in ast.iter_child_nodes(part) if child not in hints]
    return found


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, Definition):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    names = [name for target in targets for name in ast.walk(target)]
    return {name.id for name in names if isinstance(name, ast.Name)}


def _imports(modules: Iterable[_Module], text: str) -> str:
    """Import lines for the names of a text that come from other packages."""
    plain, named, used = set[str](), dict[str, set[str]](), set(re.findall(r"\w+", text))
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
    """The modules of `archs` that a module of `archs` imports at its top, each after those that it needs."""
    names = list[str]()
    for node in ast.parse(_text(module)).body:
        if isinstance(node, ast.ImportFrom) and _is_ours(node) and (name := _imported(module, node)) not in MODULES:
            names += [*_needed(name), name] if not name.endswith(("_entries", "/formulas")) else []  # read beforehand
    return names


def _text(module: str) -> str:
    file = resources.files("alternas.archs") / f"{module}.py"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    return Path(import_module(module).__file__ or "").read_text(encoding="utf-8")


def _is_ours(node: ast.ImportFrom) -> bool:
    return bool(node.level) or (node.module or "").startswith("alternas.")


def _imported(module: str, node: ast.ImportFrom) -> str:
    """The path below `archs` of the module of ours that an import in `module` names."""
    if not node.level:
        return "/".join((node.module or "").split(".")[2:])
    folder = module.split("/")[:-1]
    return "/".join([*folder[: len(folder) - node.level + 1], *(node.module or "").split(".")])
