"""Weights files that say what they are of: safetensors with a network's genotype and sizes among them.

Nothing is ever unpickled, and names, shapes, number types and values are checked before a net holds them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import torch
from msgspec import Meta
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import nn

from .errors import InputError, short_repr
from .files import atomic_write
from .genotype import Genotype
from .json_files import convert, parse_json
from .layout import ImageSize, as_map
from .network import Network, build
from .parts import MAX_CLASSES, Width
from .timm_network import AnyNetwork

NAME = "alternas"  # of the one entry among a file's metadata: with two, their order would be chance
FLOATS = ("F64", "F32", "F16", "BF16")
INTEGERS = ("I64", "I32")
MAX_DESCRIPTION = 1_000_000  # characters of a description; that of 1024 attention blocks in 64 stages has 16,000


@dataclass(frozen=True)
class Description:
    """A file's own description of its net."""

    genotype: Genotype
    image_size: tuple[int, int]
    in_chans: Width
    num_classes: Annotated[int, Meta(ge=1, le=MAX_CLASSES)]


FIELDS = tuple(field.name for field in fields(Description))
PICKLES = (b"PK", b"\x80")  # how files of torch.save begin


def save(network: AnyNetwork, path: Path) -> str:
    """Write the net's weights and what it is, whole or not at all; the same net gives the same bytes.

    Returns:
        the file's `digest`.
    """
    state = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    description = {name: getattr(network, name) for name in FIELDS} | {"genotype": network.genotype.to_dict()}
    content = to_bytes(state, {NAME: json.dumps(description, sort_keys=True)})
    atomic_write(path, lambda file: file.write(content))
    return digest(content)


def digest(content: bytes) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of a weights file: what records know it by."""
    return hashlib.sha256(content).hexdigest()[:12]


def describe(path: Path) -> dict[str, Any] | None:
    """A file's description of its net, as JSON: genotype, num_classes, image_size, in_chans. None if nothing.

    Raises:
        InputError: if the file is no safetensors file, or what it says breaks a rule.
    """
    with _opened(path) as file:
        facts = _described(path, file)
    return facts and facts | {"genotype": facts["genotype"].to_dict(), "image_size": list(facts["image_size"])}


def read(path: Path, genotype: Genotype | None = None, image_size: ImageSize | None = None) -> Network:
    """The network of a file, in float32 and in training mode, as `build` leaves it.

    Args:
        path: the file.
        genotype: what a file without a description is of; one with a description is checked against it.
        image_size: of a file without a description; one with a description knows its own.

    Raises:
        InputError: if the file does not hold exactly the weights of that net.
    """
    with _opened(path) as file:
        facts = _described(path, file)
        if facts is None:
            facts = _given(path, file, genotype, image_size)
        elif genotype is not None and genotype.key != facts["genotype"].key:
            raise _wrong(path, f"is of the net {facts['genotype'].key}, not of {genotype.key}")
        network = _bare(path, file, **facts)
        classes = _side(file, _head(network), 0, network.num_classes)
        if classes != network.num_classes:
            raise _wrong(path, f"head for {classes} classes, described as one for {network.num_classes}")
        _fill(network, path, file)
    return network


def fill(module: nn.Module, path: Path) -> None:
    """Give any module on the CPU the weights of a file, which must hold those and no others.

    Raises:
        InputError: if it does not.
    """
    with _opened(path) as file:
        _fill(module, path, file)


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of a file's tensors by name; InputError if it is no safetensors file."""
    with _opened(path) as file:
        return {name: _shape(file, name) for name in file.keys()}  # noqa: SIM118 - not a dict


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A safetensors file; what is wrong with it as InputError."""
    if path.is_dir():
        raise _wrong(path, "is a folder, not a file")
    if not path.is_file():
        raise _wrong(path, "no such file")
    try:
        with safe_open(path, "pt") as file:
            yield file
    except OSError as error:
        raise _wrong(path, f"cannot be read ({error.strerror or error})") from None
    except SafetensorError as error:
        with open(path, "rb") as raw:
            if raw.read(2).startswith(PICKLES):  # only now: a safetensors file begins with any byte
                raise _wrong(path, "is a pickle, which is never loaded; save it as safetensors") from None
        raise _wrong(path, f"is no safetensors file, or not all of one ({str(error).splitlines()[0]})") from None


def _described(path: Path, file: Any) -> dict[str, Any] | None:
    """A file's description as arguments of `build`."""
    text = (file.metadata() or {}).get(NAME)
    if text is None:
        return None
    if len(text) > MAX_DESCRIPTION:
        raise _wrong(path, f"its description has {len(text):,} characters, at most {MAX_DESCRIPTION:,} are read")
    try:
        facts = convert(parse_json(text), Description, "its description")
    except InputError as error:
        raise _wrong(path, error) from None
    except ValueError:
        raise _wrong(path, f"its description is not JSON, got {short_repr(text)}") from None
    return {name: getattr(facts, name) for name in FIELDS} | {"image_size": as_map(facts.image_size)}


def _given(path: Path, file: Any, genotype: Genotype | None, image_size: ImageSize | None) -> dict[str, Any]:
    """Arguments of `build` for a file without a description: classes and channels are read off its shapes."""
    if genotype is None:
        raise _wrong(path, "no alternas description in it; name its architecture with --arch")
    if image_size is None:
        raise _wrong(path, "no alternas description in it; say the size of its images with --from-size")
    net = _bare(path, file, genotype, 1, image_size, 1)
    stem = next(name for name, tensor in net.state_dict().items() if tensor.dim() == 4)  # the conv on the image
    sizes = {"num_classes": _side(file, _head(net), 0), "in_chans": _side(file, stem, 1)}
    return {"genotype": genotype, "image_size": image_size, **sizes}


def _bare(path: Path, file: Any, genotype: Genotype, num_classes: int, image_size: ImageSize, in_chans: int) -> Network:
    """The net without weights, if the file can hold it: nothing is drawn, and no wrong size can ask for memory."""
    if (tensors := len(file.keys())) < genotype.depth:
        raise _wrong(path, f"its {tensors} tensors are no net of {genotype.depth} blocks")
    try:
        with torch.device("meta"):
            return build(genotype, num_classes, image_size, in_chans)
    except InputError as error:
        raise _wrong(path, error) from None


def _head(network: Network) -> str:
    """Name of the weight that makes the logits."""
    return [name for name in network.state_dict() if name.startswith("head.") and name.endswith("weight")][-1]


def _side(file: Any, name: str, axis: int, default: int = 1) -> int:
    """One side of a tensor; a default for `_fill` to complain about if it is not there."""
    shape = _shape(file, name) if name in file.keys() else ()  # noqa: SIM118 - not a dict
    return (shape[axis] if axis < len(shape) else 0) or default


def _shape(file: Any, name: str) -> tuple[int, ...]:
    return tuple(file.get_slice(name).get_shape())


def _fill(module: nn.Module, path: Path, file: Any) -> None:
    needed = module.state_dict()
    missing, more = sorted(needed.keys() - set(file.keys())), sorted(set(file.keys()) - needed.keys())
    if missing:
        raise _wrong(path, f"{len(missing)} of the net's {len(needed)} tensors are missing, first {missing[0]!r}")
    if more:
        raise _wrong(path, f"{len(more)} tensors that the net does not have, first {short_repr(more[0])}")
    for name, tensor in needed.items():  # all shapes before any values
        shape, kind = _shape(file, name), file.get_slice(name).get_dtype()
        if shape != tuple(tensor.shape):
            raise _wrong(path, f"{name} has shape {shape}, the net needs {tuple(tensor.shape)}")
        kinds = FLOATS if tensor.is_floating_point() else INTEGERS
        if kind not in kinds:
            raise _wrong(path, f"{name} holds numbers of type {kind}, the net needs {' or '.join(kinds)}")
    state = {}
    for name, tensor in needed.items():
        state[name] = file.get_tensor(name).to(tensor.dtype, copy=True)  # the file's own memory goes when it changes
        if not torch.isfinite(state[name]).all():
            raise _wrong(path, f"{name} holds NaN or infinity")
    module.load_state_dict(state, assign=True)


def _wrong(path: Path, what: object) -> InputError:
    return InputError(f"weights: {path}: {what}")
