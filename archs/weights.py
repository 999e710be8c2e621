"""Weights files that say what they are of: safetensors with a network's genotype and sizes among them.

Nothing of a run is ever unpickled; files of `torch.save` that a user names are read by pickles.py.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import torch
from msgspec import Meta
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from .errors import InputError, short_repr
from .files import atomic_write, digest
from .genotype import OWN_FIELD, TIMM_FIELD, Genotype
from .json_files import convert, parse_json
from .layout import ImageSize, as_map
from .network import Network, build
from .parts import MAX_CLASSES, Width
from .pickles import ORDER, is_pickle, unpickled
from .state_dicts import fitted
from .timm_network import AnyNetwork

NAME = "alternas"  # of the one entry among a file's metadata: with two, their order would be chance
MAX_DESCRIPTION = 1_000_000  # characters of a description; that of 1024 attention blocks in 64 stages has 16,000


@dataclass(frozen=True)
class Description:
    """A file's own description of its net."""

    genotype: Genotype
    image_size: tuple[int, int]
    in_chans: Width
    num_classes: Annotated[int, Meta(ge=1, le=MAX_CLASSES)]


FIELDS = tuple(field.name for field in fields(Description))


def save(network: AnyNetwork, path: Path) -> str:
    """Write the net's weights and what it is, whole or not at all, and return the file's `digest`."""
    state = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    description = {name: getattr(network, name) for name in FIELDS} | {"genotype": network.genotype.to_dict()}
    content = to_bytes(state, {NAME: json.dumps(description, sort_keys=True)})
    atomic_write(path, lambda file: file.write(content))
    return digest(content)


@dataclass(frozen=True, eq=False)
class WeightsFile:
    """A file's tensors by their names, which lie in the file until they are used, and what it says of its net."""

    path: Path  # of the file
    tensors: dict[str, Tensor]  # by name
    ordered: bool  # whether they stand in the order of the net that was saved; safetensors files sort theirs
    metadata: dict[str, str]  # of a safetensors file

    def fitted(self, needed: Mapping[str, Tensor], optional: Collection[str] = ()) -> dict[str, Tensor]:
        """Its tensors for a net of this state: see `state_dicts.fitted`."""
        try:
            return fitted(needed, self.tensors, self.ordered, optional)
        except InputError as error:
            raise _wrong(self.path, error) from None


def open_weights(path: Path, pickles: bool = False) -> WeightsFile:
    """The tensors of a safetensors file, or with `pickles` of `torch.save`'s, which a process of its own reads."""
    if path.is_dir():
        raise _wrong(path, "is a folder, not a file")
    if not path.is_file():
        raise _wrong(path, "no such file")
    try:
        return _open_safetensors(path)
    except OSError as error:
        raise _wrong(path, f"cannot be read ({error.strerror or error})") from None
    except SafetensorError as error:
        reason = str(error).splitlines()[0]
    if not is_pickle(path):  # asked only now: a safetensors file begins with any byte
        raise _wrong(path, f"is no safetensors file, or not all of one ({reason})")
    if not pickles:
        raise _wrong(path, "is a pickle, which is not loaded here; save it as safetensors")
    try:
        with unpickled(path) as converted:
            found = _open_safetensors(converted)
    except InputError as error:
        raise _wrong(path, f"the pickle {error}") from None
    return WeightsFile(path, {name: found.tensors[name] for name in json.loads(found.metadata[ORDER])}, True, {})


def _open_safetensors(path: Path) -> WeightsFile:
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        return WeightsFile(path, tensors, False, file.metadata() or {})


def describe(file: Path | WeightsFile) -> dict[str, Any] | None:
    """A file's description of its net, as JSON, by `FIELDS`; None without one. InputError if it breaks a rule."""
    facts = _described(_opened(file))
    return facts and facts | {"genotype": facts["genotype"].to_dict(), "image_size": list(facts["image_size"])}


def read(file: Path | WeightsFile, genotype: Genotype | None = None, image_size: ImageSize | None = None) -> Network:
    """The network of a file, in float32 and in training mode, as `build` leaves it.

    `genotype` and `image_size` are of a file without a description; one with a description is checked against the
    genotype. InputError if the file does not hold exactly the weights of that net.
    """
    file = _opened(file)
    facts = _described(file)
    if facts is None:
        facts = _given(file, genotype, image_size)
    elif genotype is not None and genotype.key != facts["genotype"].key:
        raise _wrong(file.path, f"is of the net {facts['genotype'].key}, not of {genotype.key}")
    network = _bare(file, **facts)
    classes = _side(file, _head(network), 0, network.num_classes)
    if classes != network.num_classes:
        raise _wrong(file.path, f"head for {classes} classes, described as one for {network.num_classes}")
    fill(network, file)
    return network


def fill(module: nn.Module, file: Path | WeightsFile) -> None:
    """Give any module on the CPU the weights of a file; InputError unless it holds those and no others."""
    module.load_state_dict(_opened(file).fitted(module.state_dict()), assign=True)


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of a file's tensors by name; InputError if it is no safetensors file."""
    return {name: tuple(tensor.shape) for name, tensor in open_weights(path).tensors.items()}


def _opened(file: Path | WeightsFile) -> WeightsFile:
    return file if isinstance(file, WeightsFile) else open_weights(file)


def _described(file: WeightsFile) -> dict[str, Any] | None:
    path, text = file.path, file.metadata.get(NAME)
    if text is None:
        return None
    if len(text) > MAX_DESCRIPTION:
        raise _wrong(path, f"its description has {len(text):,} characters, at most {MAX_DESCRIPTION:,} are read")
    try:
        said = parse_json(text)
        net = said.get("genotype") if isinstance(said, dict) else None
        if isinstance(net, dict) and {TIMM_FIELD, OWN_FIELD} & net.keys():
            Genotype.from_dict(net)  # which says that it has none
        facts = convert(said, Description, "its description")
    except InputError as error:
        raise _wrong(path, error) from None
    except ValueError:
        raise _wrong(path, f"its description is not JSON, got {short_repr(text)}") from None
    return {name: getattr(facts, name) for name in FIELDS} | {"image_size": as_map(facts.image_size)}


def _given(file: WeightsFile, genotype: Genotype | None, image_size: ImageSize | None) -> dict[str, Any]:
    """Arguments of `build` for a file without a description: classes and channels are read off its shapes."""
    if genotype is None:
        raise _wrong(file.path, "no alternas description in it; name its architecture with --arch")
    if image_size is None:
        raise _wrong(file.path, "no alternas description in it; say the size of its images with --from-size")
    net = _bare(file, genotype, 1, image_size, 1)
    stem = next(name for name, tensor in net.state_dict().items() if tensor.dim() == 4)  # the conv on the image
    sizes = {"num_classes": _side(file, _head(net), 0), "in_chans": _side(file, stem, 1)}
    return {"genotype": genotype, "image_size": image_size, **sizes}


def _bare(file: WeightsFile, genotype: Genotype, num_classes: int, image_size: ImageSize, in_chans: int) -> Network:
    """The net without weights, if the file can hold it: nothing is drawn, and no wrong size can ask for memory."""
    if (count := len(file.tensors)) < genotype.depth:
        raise _wrong(file.path, f"its {count} tensors are no net of {genotype.depth} blocks")
    try:
        with torch.device("meta"):
            return build(genotype, num_classes, image_size, in_chans)
    except InputError as error:
        raise _wrong(file.path, error) from None


def _head(network: Network) -> str:
    return [name for name in network.state_dict() if name.startswith("head.") and name.endswith("weight")][-1]


def _side(file: WeightsFile, name: str, axis: int, default: int = 1) -> int:
    """One side of a tensor, behind whatever prefix; a default for `fitted` to complain about if it is not there."""
    found = [tensor for other, tensor in file.tensors.items() if other == name or other.endswith(f".{name}")]
    shape = found[0].shape if found else ()
    return (shape[axis] if axis < len(shape) else 0) or default


def _wrong(path: Path, what: object) -> InputError:
    return InputError(f"weights: {path}: {what}")
