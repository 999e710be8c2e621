"""`alternas.search` and `alternas.search_spec`: the options of the command as arguments in Python."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from functools import cache
from inspect import Parameter, Signature
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeGuard

from ..archs.errors import InputError, check_choice, short_repr
from ..results.saved_run import SavedRun
from .command import checked, options_of
from .options import typed_errors
from .search import search as command

if TYPE_CHECKING:
    from ..search.spec import SearchSpec

ABOUT = """Run an architecture search; the same call again resumes it, and so does Ctrl-C and the same call.

Options are those of `alternas search`, by the same names with `_` for `-`: numbers, true or false, and texts as they
are typed, or lists where the command takes commas. `start_with` takes genotypes, a run or a net of one too. In place
of options it takes a `SearchSpec`, which `alternas.search_spec` makes of them.

Returns:
    the run, see `SavedRun`.

Raises:
    InputError: if an option is wrong, or differs from those of the existing run of that name; or if another search
        runs in this process.
    OperationError: if workers do not start or every net fails.

Options:
"""

_searching = Lock()  # Ray, signals and the current folder are the process's


def search(space: Any = None, **options: Any) -> SavedRun:
    """Run an architecture search. `alternas.search.__doc__` lists the options, which are the command's."""
    called = _call(options if space is None else {"space": space, **options})
    with typed_errors():
        spec = search_spec(space, **options)
        from ..results.render.terminal import Console
        from ..search.run import search as run_search
        from ..search.run_facts import recorded_command

        if not _searching.acquire(blocking=False):
            raise InputError("search: another one runs in this process; wait for its end, or search in another process")
        try:
            with recorded_command([called]):
                return SavedRun(run_search(spec, Console(stderr=True)))
        finally:
            _searching.release()


def search_spec(space: Any = None, **options: Any) -> SearchSpec:
    """What `alternas.search` with these options runs; None is an option left out. InputError if an option is wrong."""
    if _is_spec(space) and not options:
        return space
    given = options if space is None else {"space": space, **options}
    for name in given:
        check_choice("search option", name, parameters())
    named = {parameters()[name]: _plain(value) for name, value in given.items() if value is not None}
    defaults = {(of := option.parameter).name: of.default for option in options_of("search").values()}
    return command(**defaults | checked(named, "search"), as_json=False)


@cache
def parameters() -> dict[str, str]:
    """The options' names in Python, such as `max_macs`, and `with_`, as `with` is Python's; and as they are typed."""
    typed = {name.replace("-", "_"): name for name in options_of("search")}
    return {name + "_" * keyword.iskeyword(name): option for name, option in typed.items()}


def search_signature() -> Signature:
    """The signature of `search`, with each option of the command."""
    options, made = options_of("search"), list[Parameter]()
    for name, option in parameters().items():
        kind = Parameter.POSITIONAL_OR_KEYWORD if name == "space" else Parameter.KEYWORD_ONLY
        made.append(options[option].parameter.replace(name=name, kind=kind, annotation=options[option].kind or Any))
    return Signature(made, return_annotation=SavedRun)


def search_doc() -> str:
    """The documentation of `search`, with each option's help."""
    options = options_of("search")
    return ABOUT + "\n".join(f"    {name}: {options[option].help}" for name, option in parameters().items())


def _is_spec(value: Any) -> TypeGuard[SearchSpec]:
    if value is None or isinstance(value, str):
        return False
    from ..search.spec import SearchSpec

    return isinstance(value, SearchSpec)


def _plain(value: Any) -> Any:
    """A number of numpy's as Python's own."""
    return value.item() if hasattr(value, "item") and not getattr(value, "shape", None) else value


def _call(options: Mapping[str, Any]) -> str:
    """The call, as run.json keeps it."""
    return f"alternas.search({', '.join(f'{name}={short_repr(value)}' for name, value in options.items())})"
