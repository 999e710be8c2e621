"""`UserModules`: a space file and the modules beside it that it imports, run from their texts as they were read.

Which they are is read off the import statements before anything is run, so that one hash is of all that the space is.
They are not put on the import path: only the file and its neighbours see them, and no compiled copy is read or written.
"""

import ast
import builtins
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.util import decode_source, resolve_name
from pathlib import Path
from sysconfig import get_path
from types import ModuleType
from typing import Any, NamedTuple

from ..archs.errors import InputError


class UserModule(NamedTuple):
    """A file of the user's, as it was read."""

    path: Path  # of the file
    content: bytes  # its bytes
    package: str = ""  # where its relative imports begin; "" for none


class UserModules:
    """A space file's text, and those of the modules beside it that it or these import, by path from its folder.

    InputError if one has the name of an installed module; SyntaxError if one does not parse.
    """

    def __init__(self, path: Path, content: bytes) -> None:
        file = UserModule(path, content)
        self.source = decode_source(content)
        self._file, self._found = file, find_neighbours(file)
        texts = {
            near.path.relative_to(path.parent).as_posix(): decode_source(near.content) for near in self._found.values()
        }
        self.neighbours = dict(sorted(texts.items()))
        self._name, self._loaded = f"space_file_{path.stem}", dict[str, ModuleType]()

    def run(self) -> ModuleType:
        """Run the file."""
        module = ModuleType(self._name)
        self._execute(module, self._file)
        return module

    def _execute(self, module: ModuleType, file: UserModule) -> None:
        """Run just these bytes: an import could take an older compiled copy, and leaves one beside the file."""
        module.__file__, module.__package__ = str(file.path), file.package
        module.__dict__["__builtins__"] = vars(builtins) | {"__import__": self._import}
        sys.modules[module.__name__] = module  # where dataclasses look their types up
        exec(compile(file.content, str(file.path), "exec", dont_inherit=True), module.__dict__)

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import for the file and its neighbours: these first, else what is installed."""
        if level:
            name = resolve_name("." * level + name, (globals or {}).get("__package__") or "")
        if name.partition(".")[0] not in self._found:
            return __import__(name, globals, locals, fromlist or ())
        module = self._load(name)
        for child in fromlist or ():
            if f"{name}.{child}" in self._found and not hasattr(module, child):
                self._load(f"{name}.{child}")
        return module if fromlist else self._load(name.partition(".")[0])

    def _load(self, name: str) -> ModuleType:
        """A neighbour by its dotted name, run when it is first asked for, after the packages that it is in."""
        package, _, last = name.rpartition(".")
        around = self._load(package) if package else None
        if name in self._loaded:
            return self._loaded[name]
        if name not in self._found:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        module = self._loaded[name] = ModuleType(f"{self._name}.{name}")
        try:
            self._execute(module, self._found[name])
        except BaseException:  # as Python does: another import of it runs it again
            del self._loaded[name]
            raise
        if around is not None:
            setattr(around, last, module)
        return module


def find_neighbours(file: UserModule) -> dict[str, UserModule]:
    """By dotted name, the modules in the file's folder that it imports anywhere, and that these import in turn."""
    found, unread = dict[str, UserModule](), [file]
    while unread:
        importer = unread.pop()
        for name, line in _imported(importer):
            package = name.rpartition(".")[0]
            if name in found or (package and (package not in found or found[package].package != package)):
                continue
            if (near := _beside(file.path.parent, name)) is None:
                continue
            if not package and _installed(name, near):
                rule = f"{name} is an installed module, and {near} beside it has its name; rename that file"
                raise InputError(f"{importer.path}:{line}: {rule}")
            found[name] = UserModule(near, near.read_bytes(), name if near.name == "__init__.py" else package)
            unread.append(found[name])
    return found


def _imported(file: UserModule) -> Iterator[tuple[str, int]]:
    """Modules that a file's imports may name, as `b` in `from a import b`, packages first, with the line."""
    for node in ast.walk(ast.parse(file.content, str(file.path))):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            try:
                start = resolve_name("." * node.level + (node.module or ""), file.package)
            except ImportError:  # beyond the package: Python says so where it is run
                continue
            named = [f"{start}.{alias.name}" for alias in node.names]
        else:
            continue
        for parts in (name.split(".") for name in named):
            yield from ((".".join(parts[:count]), node.lineno) for count in range(1, len(parts) + 1))


def _beside(folder: Path, name: str) -> Path | None:
    """The file of a module in this folder; alternas itself is never one."""
    if name.partition(".")[0] == __name__.partition(".")[0]:
        return None
    base = folder.joinpath(*name.split("."))
    return next((path for path in (base / "__init__.py", base.with_name(f"{base.name}.py")) if path.is_file()), None)


def _installed(name: str, near: Path) -> bool:
    """Whether a top-level module is Python's own or installed, elsewhere than in the neighbour's file."""
    folder = (near.parent.parent if near.name == "__init__.py" else near.parent).resolve()
    elsewhere = [entry for entry in sys.path if Path(entry).resolve() != folder]
    specs = [PathFinder.find_spec(name, elsewhere)]
    specs += [finder.find_spec(name, None) for finder in sys.meta_path if finder is not PathFinder]
    rooms = [Path(get_path(kind), name) for kind in ("purelib", "platlib")]
    origins = {Path(spec.origin).resolve() for spec in specs if spec is not None and spec.origin}
    return name in sys.stdlib_module_names or bool(origins - {near.resolve()}) or any(room.is_dir() for room in rooms)
