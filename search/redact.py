"""Redaction of passwords in database and storage URLs."""

import re

REDACTED = "***"
PASSWORD = re.compile("([^:/]+://[^:@/]*):(.*)@")  # behind the user; whatever is in it, up to the last "@"
SECRET = re.compile("key|pass|secret|token|sig", re.IGNORECASE)  # in the name of what a URL says after its "?"
QUERY_SECRET = re.compile(
    rf"([?&][^=&\s]*({SECRET.pattern})[^=&\s]*=)[^&\s\"')>]*", re.IGNORECASE
)  # of any URL in a text
MAX_MESSAGE = 300


def shown_url(url: str) -> str:
    """A URL as it may be shown, kept and compared: without passwords, and without a last slash."""
    base, _, query = PASSWORD.sub(rf"\1:{REDACTED}@", url).partition("?")
    scheme, slashes, rest = base.partition("://")
    pairs = (pair.partition("=") for pair in query.split("&") if pair)
    query = "&".join(f"{name}={REDACTED if SECRET.search(name) else value}" for name, _, value in pairs)
    return f"{scheme}{slashes}{rest.rstrip('/') or rest}" + (f"?{query}" if query else "")


def redact(error: BaseException) -> str:
    """What an error says, in a line: without passwords and tokens of the URLs that it names."""
    text = PASSWORD.sub(rf"\1:{REDACTED}@", " ".join(str(error).split()))
    return QUERY_SECRET.sub(rf"\1{REDACTED}", text)[:MAX_MESSAGE] or type(error).__name__
