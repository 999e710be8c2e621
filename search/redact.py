"""Passwords, which are in the URL of a database or a depot and must be nowhere else: not shown, not kept."""

from __future__ import annotations

from collections.abc import Iterable

REDACTED = "***"
MOST = 300  # characters of a message


def redact(secrets: Iterable[str | None], error: BaseException) -> str:
    """What an error says, in a line that holds none of the secrets."""
    text = " ".join(str(error).split())
    for secret in filter(None, secrets):
        text = text.replace(secret, REDACTED)
    return text[:MOST] or type(error).__name__
