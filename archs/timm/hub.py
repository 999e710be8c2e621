"""Files of timm's weights from the Hugging Face hub: its cache, then the network, where it answers within seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from ssl import SSLError
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import (
    EntryNotFoundError,
    HTTPError,  # pyright: ignore[reportPrivateImportUsage] - its library changed
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils.logging import disable_propagation

from ..errors import OperationError

CONNECT_SECONDS = 5.0
ASKED_AGAIN_SECONDS = 60.0  # how long a server that does not answer is not asked again
DEFAULT_FILES = ("model.safetensors", "pytorch_model.bin")
SAFE_NAMES = {"open_clip_pytorch_model.bin": "open_clip_model.safetensors"}
KNOWN_FILE = "timm/resnet18.a1_in1k/resolve/main/config.json"
Tell = Callable[[str], object]


def hub_file(config: Any, tell: Tell | None = None) -> Path:
    """The file of a pretrained net's weights in the hub's cache, downloaded if it is not there.

    `tell` is given a line before that: what, how large, under which licence. OperationError if it cannot be had.
    """
    full = full_name(config)
    if not config.hf_hub_id:
        reason = f"is at {config.url}" if config.url else "timm names none"
        raise OperationError(f"timm: the weights of {full} are not on the hub ({reason})")
    disable_propagation()  # of what the library prints
    repository, _, revision = config.hf_hub_id.partition("@")
    names = _file_names(config.hf_hub_filename)
    try:
        with _offline_unless_reachable():
            if cached := _cached(repository, names, revision):
                return cached
            return _download(repository, names, revision, tell and (lambda size: tell(_what(full, size, config))))
    except (OSError, HTTPError, EntryNotFoundError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OperationError(f"timm: the weights of {full} cannot be had ({reason})") from None


def full_name(config: Any) -> str:
    """timm's name of a pretrained net, with the tag of its weights."""
    return f"{config.architecture}.{config.tag}" if config.tag else config.architecture


def why_missing(config: Any) -> str:
    """Why a net's weights cannot be had, without downloading them; "" where the cache or the hub has them."""
    if not config.hf_hub_id:
        return "not on the hub"
    repository, _, revision = config.hf_hub_id.partition("@")
    if _cached(repository, _file_names(config.hf_hub_filename), revision):
        return ""
    if constants.HF_HUB_OFFLINE:
        return "not in the hub's cache, and HF_HUB_OFFLINE is set"
    minute = int(time.monotonic() / ASKED_AGAIN_SECONDS)
    answers = _is_reachable(constants.ENDPOINT, minute) and _is_hub(constants.ENDPOINT, minute)
    return "" if answers else "not in the hub's cache, and the hub does not answer"


def _file_names(name: str | None) -> tuple[str, ...]:
    """Names of the file in its repository, safetensors first, as timm looks for it."""
    if not name:
        return DEFAULT_FILES
    safe = SAFE_NAMES.get(name, f"{name.removesuffix('.bin')}.safetensors")
    return (safe, name) if name.endswith(".bin") else (name,)


def _cached(repository: str, names: tuple[str, ...], revision: str) -> Path | None:
    for name in names:
        found = huggingface_hub.try_to_load_from_cache(repository, name, revision=revision or None)
        if isinstance(found, str):
            return Path(found)
    return None


def _download(
    repository: str, names: tuple[str, ...], revision: str, tell: Callable[[int | None], object] | None
) -> Path:
    version = revision or None
    for name in names:
        try:
            if tell and not constants.HF_HUB_OFFLINE:
                url = huggingface_hub.hf_hub_url(repository, name, revision=version)
                tell(huggingface_hub.get_hf_file_metadata(url).size)
            return Path(huggingface_hub.hf_hub_download(repository, name, revision=version))
        except EntryNotFoundError as error:
            if isinstance(error, LocalEntryNotFoundError) or name == names[-1]:  # not reached, or has none of them
                raise
    raise AssertionError("names is not empty")


def _what(full: str, size: int | None, config: Any) -> str:
    many = f"{size / 1e6:.1f} MB" if size else "size unknown"
    return f"downloading {full} ({many}, licence {config.license or 'unknown'}) from {config.hf_hub_id}"


@contextmanager
def _offline_unless_reachable() -> Iterator[None]:
    """Keep the hub's library to its cache where the hub does not answer; it would retry for a minute."""
    was_offline, minute = constants.HF_HUB_OFFLINE, int(time.monotonic() / ASKED_AGAIN_SECONDS)
    constants.HF_HUB_OFFLINE = was_offline or not _is_reachable(constants.ENDPOINT, minute)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = was_offline


@lru_cache(maxsize=4)
def _is_hub(address: str, minute: int) -> bool:
    """Whether a server answers as a hub does, asked once a minute: a gateway on the way says something, too."""
    try:
        huggingface_hub.get_hf_file_metadata(f"{address}/{KNOWN_FILE}", timeout=CONNECT_SECONDS, endpoint=address)
    except (EntryNotFoundError, RepositoryNotFoundError):  # only a hub says so
        return True
    except (OSError, HTTPError):
        return False
    return True


@lru_cache(maxsize=4)
def _is_reachable(address: str, minute: int) -> bool:
    """Whether a server answers, asked once a minute; one behind a proxy is not asked."""
    url = urlsplit(address)
    if getproxies().get(url.scheme):
        return True
    kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=CONNECT_SECONDS)
    try:
        connection.request("HEAD", "/")
        connection.getresponse()
    except SSLError:  # it answers; whom to trust the hub's library may know better
        return True
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
    return True
