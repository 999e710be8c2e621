"""Tensors of a file fitted to a net: by their names, behind a common prefix, or in their order.

Names, shapes, number types and values are checked before a net holds them.
"""

from collections.abc import Collection, Iterable, Mapping

import torch
from torch import Tensor

from .errors import InputError, short_repr

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32)
STEPS = "num_batches_tracked"  # of a norm: files of old releases of torch lack it, and nothing is lost with it
ROLES = ("weight", "bias", "running_mean", "running_var")  # of tensors that agree in shape
NAMED = 3  # tensors that an error names


def fitted(
    needed: Mapping[str, Tensor], had: Mapping[str, Tensor], ordered: bool = False, optional: Collection[str] = ()
) -> dict[str, Tensor]:
    """Tensors of a file by the names of the state `needed`, in its number types, with memory of their own.

    Names may differ where the file keeps its tensors `ordered` as the net does; `optional` are names that either may
    have alone, such as those of a last layer. InputError if they are another net's, or hold NaN or infinity.
    """
    names = matched_names(needed, had, ordered, optional)
    _check(needed, had, names)
    state = {}
    for name, theirs in names.items():
        state[name] = had[theirs].to(needed[name].dtype, copy=True)  # a file's own memory goes when it changes
        if not torch.isfinite(state[name]).all():
            raise InputError(f"{theirs} holds NaN or infinity")
    counts = {name: torch.zeros_like(value, device="cpu") for name, value in needed.items() if name.endswith(STEPS)}
    return counts | state


def matched_names(
    needed: Mapping[str, Tensor], had: Mapping[str, Tensor], ordered: bool = False, optional: Collection[str] = ()
) -> dict[str, str]:
    """The file's name of each of the net's tensors, by names, a prefix or the order; arguments as of `fitted`."""
    prefixes = _prefixes(needed, had, optional)
    if len(prefixes) > 1:
        raise InputError(f"holds the net {len(prefixes)} times, behind {_listed(prefixes)}: keep one of them")
    if prefixes:
        names = {name: f"{prefixes[0]}{name}" for name in needed if f"{prefixes[0]}{name}" in had}
    else:
        names = _in_order(needed, had, optional) if ordered else {}
    more = [name for name in _counted(had) if name not in needed and name not in optional]
    if not names or (prefixes == [""] and more):
        raise InputError(_difference(needed, had, more, optional))
    return {a: b for a, b in names.items() if a not in optional or needed[a].shape == had[b].shape}


def _prefixes(needed: Mapping[str, Tensor], had: Mapping[str, Tensor], optional: Collection[str]) -> list[str]:
    """What the names of the net begin with in the file; [""] where it has them as they are."""
    wanted = [name for name in _counted(needed) if name not in optional]
    if all(name in had for name in wanted):
        return [""]
    found = [name.removesuffix(wanted[0]) for name in had if name.endswith(f".{wanted[0]}")]
    return [prefix for prefix in found if all(f"{prefix}{name}" in had for name in wanted)]


def _in_order(needed: Mapping[str, Tensor], had: Mapping[str, Tensor], optional: Collection[str]) -> dict[str, str]:
    """Pairs in the order of both if shapes and roles agree; the file may go on behind them with a last layer."""
    ours, theirs = _counted(needed), _counted(had)
    if len(ours) != len(theirs):
        ours = [name for name in ours if name not in optional]
    if not len(ours) <= len(theirs) <= len(ours) + len(optional):
        return {}
    pairs = dict(zip(ours, theirs, strict=False))
    alike = (needed[a].shape == had[b].shape and _role(a) == _role(b) for a, b in pairs.items() if a not in optional)
    return pairs if all(alike) else {}


def _difference(
    needed: Mapping[str, Tensor], had: Mapping[str, Tensor], more: list[str], optional: Collection[str]
) -> str:
    missing = [name for name in _counted(needed) if name not in had and name not in optional]
    if not missing:
        return f"{len(more)} tensors that the net does not have, first {_listed(more)}"
    instead = f"; it has {_listed(more)} instead" if more else ""
    return f"{len(missing)} of the net's {len(needed)} tensors are missing, first {_listed(missing)}{instead}"


def _listed(names: list[str]) -> str:
    return ", ".join(short_repr(name) for name in names[:NAMED])


def _counted(names: Iterable[str]) -> list[str]:
    """The names of tensors that a net needs: all but counts of steps."""
    return [name for name in names if not name.endswith(STEPS)]


def _role(name: str) -> str:
    role = name.rsplit(".", 1)[-1]
    return role if role in ROLES else ""


def _check(needed: Mapping[str, Tensor], had: Mapping[str, Tensor], names: Mapping[str, str]) -> None:
    """Raise InputError unless shapes and types are the net's: all of them before any values are looked at."""
    other = [(name, theirs) for name, theirs in names.items() if had[theirs].shape != needed[name].shape]
    if other:
        found = [
            f"{b} has shape {tuple(had[b].shape)}, the net needs {tuple(needed[a].shape)}" for a, b in other[:NAMED]
        ]
        raise InputError("; ".join(found) + (f"; {len(other)} of them differ" if len(other) > NAMED else ""))
    for name, theirs in names.items():
        kinds = FLOATS if needed[name].is_floating_point() else INTEGERS
        if had[theirs].dtype not in kinds:
            listed = " or ".join(str(kind).removeprefix("torch.") for kind in kinds)
            found = str(had[theirs].dtype).removeprefix("torch.")
            raise InputError(f"{theirs} holds numbers of type {found}, the net needs {listed}")
