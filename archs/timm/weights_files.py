"""Weights of timm's nets: found in a folder or on the hub, and given to a net by whatever names its tensors have."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import timm
from timm.models import adapt_input_conv
from torch import Tensor, nn

from ..errors import InputError
from ..weights import WeightsFile, open_weights
from .hub import Tell, full_name, hub_file, why_missing
from .models import config_of, create

ENDINGS = (".safetensors", ".pth", ".pt", ".bin")


@dataclass(frozen=True)
class NetWeights:
    """Where the weights of a net of timm are."""

    name: str  # timm's, with the tag
    path: str  # of the file: safetensors, or one of torch.save


def find_weights(name: str, weights_dir: str = "", tell: Tell | None = None) -> NetWeights:
    """The file of a net's weights: in the folder, if there is one, else in the hub's cache, else downloaded.

    Files of the folder are called as timm calls the net, with the tag or without. InputError if timm does not know the
    name, or there is no such folder; OperationError if the file cannot be had.
    """
    config = config_of(name)
    full, path = full_name(config), _in_folder(config, weights_dir)
    return NetWeights(full, str(path or hub_file(config, tell)))


def why_no_weights(name: str, weights_dir: str = "") -> str:
    """Why a net's weights cannot be had; "" where they can, in the folder, its cache or on the hub."""
    config = config_of(name)
    return "" if _in_folder(config, weights_dir) else why_missing(config)


def nets_of_folder(weights_dir: str) -> list[str]:
    """Names of timm's nets, with a tag, that a folder has weights of; InputError if there is no such folder."""
    _check_folder(weights_dir)
    tagged, known = set(timm.list_pretrained()), set(timm.list_models())
    stems = [path.stem for path in sorted(Path(weights_dir).iterdir()) if path.suffix in ENDINGS]
    return [stem for stem in dict.fromkeys(stems) if stem in tagged or stem in known]


def _check_folder(weights_dir: str) -> None:
    if not Path(weights_dir).is_dir():
        raise InputError(f"weights-dir: must be a folder, got {weights_dir!r}")


def _in_folder(config: Any, weights_dir: str) -> Path | None:
    """The file of a net's weights in a folder; None if it has none, or there is no folder."""
    if weights_dir:
        _check_folder(weights_dir)
    stems = dict.fromkeys((full_name(config), config.architecture)) if weights_dir else ()
    paths = (Path(weights_dir) / f"{stem}{ending}" for stem in stems for ending in ENDINGS)
    return next((path for path in paths if path.is_file()), None)


def load_into(model: nn.Module, source: NetWeights) -> tuple[str, ...]:
    """Give a net of timm, on the CPU, its weights; the first conv is adapted to the net's channels as timm does.

    Returns names of the last layer's tensors that stay as they are: the file has them for other classes or not at all.
    InputError if the file is broken, of another net, or holds NaN.
    """
    return load_tensors(model, open_weights(Path(source.path), pickles=True))


def load_tensors(model: Any, file: WeightsFile, resize: bool = True) -> tuple[str, ...]:
    """`load_into` of an opened file; without `resize` its positions must be those of the net's image size."""
    needed, config = model.state_dict(), getattr(model, "pretrained_cfg", None) or {}
    heads = _names(config.get("classifier"))
    optional = {f"{head}.{name}" for head in heads for name in ("weight", "bias")}
    files = [replace(file, ordered=False), *_renamed(model, file, resize), file]
    found = _fitted(files, needed, optional)
    if isinstance(found, InputError):
        stems = {f"{stem}.weight": needed.get(f"{stem}.weight") for stem in _names(config.get("first_conv"))}
        channels = config["input_size"][0]
        wide = {
            name: t.new_empty((len(t), channels, *t.shape[2:]), device="meta")
            for name, t in stems.items()
            if t is not None
        }
        other = _fitted(files, needed | wide, optional)
        if isinstance(other, InputError):
            raise found
        found = other | {name: adapt_input_conv(needed[name].shape[1], other[name]) for name in wide}
    model.load_state_dict(found, strict=False, assign=True)
    return tuple(name for name in needed if name not in found)


def timm_pretrained(name: str, weights_dir: str = "", **sizes: Any) -> nn.Module:
    """timm's net with its weights; `sizes` as of `create`, errors as of `find_weights` and `load_into`."""
    source = find_weights(name, weights_dir)
    model = create(name, False, **sizes)
    load_into(model, source)
    return model


def _fitted(files: list[WeightsFile], needed: dict[str, Tensor], optional: set[str]) -> dict[str, Tensor] | InputError:
    """The net's state from the first reading of a file that fits, or what is wrong with the first of them."""
    errors = []
    for file in files:
        try:
            return file.fitted(needed, optional)
        except InputError as error:
            errors.append(error)
    return errors[0]


def _renamed(model: nn.Module, file: WeightsFile, resize: bool) -> Iterator[WeightsFile]:
    """The file as timm's own code for the net's family reads it: older names, positions for other image sizes."""
    rename = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    if rename is None:
        return
    try:
        tensors = dict(rename(dict(file.tensors), model))
    except (KeyError, IndexError, AttributeError, TypeError, ValueError, RuntimeError, AssertionError):
        return  # it is made for the tensors of its own family, and checks nothing
    kept = (name for name in tensors if name in file.tensors)
    if resize or all(tensors[name].numel() == file.tensors[name].numel() for name in kept):
        yield replace(file, tensors=tensors, ordered=False)


def _names(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())
