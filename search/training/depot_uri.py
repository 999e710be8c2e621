"""URIs of depots: what may be one, what of it may be shown, and the file system that it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from ...archs.errors import InputError, shown
from ..secrets import HIDDEN, without

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

FORMS = "s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, abfs://CONTAINER@ACCOUNT/FOLDER or file:///FOLDER"
SECRET = re.compile("key|pass|secret|token|sig", re.IGNORECASE)  # in the name of what a URI says after its "?"
GOOGLE = ("gs", "gcs")
GOOGLE_SECONDS = 10  # of trying a request again; pyarrow would for a quarter of an hour


@cache
def file_system(uri: str) -> tuple[FileSystem, str]:
    """What pyarrow opens, and the path on it. Kept for the process: to find a bucket takes a request."""
    from pyarrow.fs import FileSystem

    parts = urlsplit(uri)
    if parts.scheme in GOOGLE and "retry_limit_seconds=" not in parts.query:
        query = "&".join([*filter(None, [parts.query]), f"retry_limit_seconds={GOOGLE_SECONDS}"])
        uri = urlunsplit(parts._replace(query=query))
    files, folder = FileSystem.from_uri(uri)
    if not folder:
        raise OSError("it names no bucket")
    return files, folder


def check_uri(uri: str) -> None:
    """Raise InputError if this cannot be the URI of a depot. One that may hold a password is not repeated."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise InputError(f"checkpoints: must be a URI such as {FORMS}") from None
    if not parts.scheme or not uri.lower().startswith(f"{parts.scheme}://") or not uri.isprintable():
        got = "" if "@" in uri else f", got {shown(uri)}"
        raise InputError(f"checkpoints: must be a URI such as {FORMS}{got}")
    if "@" in parts.path:
        raise InputError("checkpoints: a '@' in the path of the URI; within a password write %2F for '/', %40 for '@'")


def shown_uri(uri: str) -> str:
    """A URI as it may be shown, kept and compared: without passwords, and without a last slash."""
    parts = urlsplit(uri)
    user, at, host = parts.netloc.rpartition("@")
    place = f"{user.partition(':')[0]}:{HIDDEN}{at}{host}" if ":" in user else parts.netloc
    said = [(name, HIDDEN if SECRET.search(name) else value) for name, value in _said(parts)]
    query = "&".join(f"{name}={value}" for name, value in said)
    return urlunsplit(parts._replace(netloc=place, path=parts.path.rstrip("/") or parts.path, query=query))


def without_secrets(words: Sequence[str], uri: str) -> list[str]:
    """The words of a command, with `uri` among them as it may be kept."""
    return [word.replace(uri, shown_uri(uri)) for word in words] if uri else list(words)


def _said(parts: SplitResult) -> list[tuple[str, str]]:
    """Names and values of what a URI says after its "?"."""
    pairs = (pair.partition("=") for pair in parts.query.split("&") if pair)
    return [(name, value) for name, _, value in pairs]


def reason(error: BaseException, uri: str) -> str:
    """What the file system said, in a line without passwords."""
    parts = urlsplit(uri)
    secrets = [parts.netloc.rpartition("@")[0].partition(":")[2]]
    secrets += [value for name, value in _said(parts) if SECRET.search(name)]
    return without([form for secret in secrets for form in (secret, unquote(secret))], error)
