"""alternas: architecture search over ResNets, AlterNets and ResNet+ViT hybrids.

    run = alternas.search("alternet", data="photos", trials=40, max_macs="20M")
    run.front()
    net = run.best().build()

What is heavy is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["InputError", "OperationError", "SavedNet", "SavedRun", "load_run", "search", "search_spec"]

_HOMES = {
    "InputError": ".archs.errors",
    "OperationError": ".archs.errors",
    "SavedNet": ".results.saved_run",
    "SavedRun": ".results.saved_run",
    "load_run": ".results.saved_run",
    "search_spec": ".cli.python",
}


class _CallablePackage(ModuleType):
    """The package `alternas.search`, which is called to start a search: `cli/python.py`."""

    def __call__(self, *space: Any, **options: Any) -> Any:
        return import_module(".cli.python", __name__).search(*space, **options)

    def __reduce__(self) -> tuple[Any, ...]:  # Ray pickles packages that a user's function names
        return import_module, (self.__name__,)

    @property
    def __signature__(self) -> Any:
        return import_module(".cli.python", __name__).search_signature()

    @property
    def __doc__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - computed, where a module has text
        return import_module(".cli.python", __name__).search_doc()


if TYPE_CHECKING:
    from .archs.errors import InputError, OperationError
    from .cli.python import search, search_spec
    from .results.saved_run import SavedNet, SavedRun, load_run
else:
    from . import search

    search.__class__ = _CallablePackage


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
