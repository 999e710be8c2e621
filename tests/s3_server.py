"""A server on this machine that speaks as much S3 as pyarrow's client needs; it can refuse, and it can go away."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bucket"
SECRET = "se/cret"  # in a URI se%2Fcret


class S3(ThreadingHTTPServer):
    """One bucket, in memory.

    Attributes:
        objects: content by key.
        refused: methods that are answered with AccessDenied.
        asked: method and key of every request so far.
    """

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.refused: set[str] = set()
        self.asked: list[tuple[str, str]] = []

    def uri(self, folder: str = "runs") -> str:
        port = self.server_address[1]
        return f"s3://key:se%2Fcret@{BUCKET}/{folder}?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_HEAD(self) -> None:
        self._answer(self._head)

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_PUT(self) -> None:
        self._answer(self._put)

    def do_POST(self) -> None:
        self._answer(self._post)

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    def _answer(self, do) -> None:
        parts = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        bucket, _, self.key = unquote(parts.path).lstrip("/").partition("/")
        self.body = self._read()
        self.close_connection = True  # so that a server that is gone answers nobody
        self.server.asked.append((self.command, self.key))
        if bucket != BUCKET:
            self._error(404, "NoSuchBucket")
        elif self.command in self.server.refused:
            self._error(403, "AccessDenied")
        else:
            do()

    def _read(self) -> bytes:
        """The body; of one in chunks, HTTP's or S3's own, what they hold."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            raw = _unchunked(self.rfile)
        else:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return _unchunked(BytesIO(raw)) if "aws-chunked" in self.headers.get("Content-Encoding", "") else raw

    def _head(self) -> None:
        if not self.key:
            self._say(200)
        elif self.key in self.server.objects:
            self._say(200, length=len(self.server.objects[self.key]))
        else:
            self._error(404, "NoSuchKey")

    def _get(self) -> None:
        if not self.key:
            self._list()
            return
        if self.key not in self.server.objects:
            self._error(404, "NoSuchKey")
            return
        whole, wanted = self.server.objects[self.key], self.headers.get("Range")
        if wanted is None:
            self._say(200, whole)
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        part = whole[int(first) : int(last) + 1]
        self._say(206, part, {"Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{len(whole)}"})

    def _list(self) -> None:
        prefix, cut = self.query.get("prefix", ""), self.query.get("delimiter", "")
        found, folders = [], set()
        for key in sorted(self.server.objects):
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if cut and cut in rest:
                folders.add(prefix + rest.split(cut)[0] + cut)
            else:
                found.append(key)
        size, date = {key: len(self.server.objects[key]) for key in found}, "2026-01-01T00:00:00.000Z"
        rows = [f"<Key>{escape(k)}</Key><Size>{size[k]}</Size><LastModified>{date}</LastModified>" for k in found]
        text = "".join(f"<Contents>{row}</Contents>" for row in rows[: int(self.query.get("max-keys", 1000))])
        text += "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in sorted(folders))
        count = f"<IsTruncated>false</IsTruncated><KeyCount>{len(found) + len(folders)}</KeyCount>"
        self._xml(f"<ListBucketResult>{count}{text}</ListBucketResult>")

    def _put(self) -> None:
        if "partNumber" in self.query:
            self.server.uploads[self.query["uploadId"]][int(self.query["partNumber"])] = self.body
        elif source := self.headers.get("x-amz-copy-source"):
            self.server.objects[self.key] = self.server.objects[unquote(source).lstrip("/").partition("/")[2]]
            self._xml('<CopyObjectResult><ETag>"copy"</ETag></CopyObjectResult>')
            return
        else:
            self.server.objects[self.key] = self.body
        self._say(200)

    def _post(self) -> None:
        if "uploads" in self.query:
            name = str(len(self.server.uploads))
            self.server.uploads[name] = {}
            self._xml(f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>")
        elif "uploadId" in self.query:
            parts = self.server.uploads.pop(self.query["uploadId"])
            self.server.objects[self.key] = b"".join(parts[number] for number in sorted(parts))
            self._xml('<CompleteMultipartUploadResult><ETag>"all"</ETag></CompleteMultipartUploadResult>')
        elif "delete" in self.query:
            for part in self.body.decode().split("<Key>")[1:]:
                self.server.objects.pop(part.split("</Key>")[0], None)
            self._xml("<DeleteResult></DeleteResult>")

    def _delete(self) -> None:
        self.server.objects.pop(self.key, None)
        self._say(204)

    def _xml(self, text: str) -> None:
        self._say(200, f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode(), {"Content-Type": "application/xml"})

    def _error(self, code: int, name: str) -> None:
        self._say(code, f"<Error><Code>{name}</Code><Message>{name}</Message></Error>".encode())

    def _say(self, code: int, body: bytes = b"", more: dict[str, str] | None = None, length: int | None = None) -> None:
        tag = hashlib.md5(self.body, usedforsecurity=False).hexdigest()
        headers = {"Connection": "close", "ETag": f'"{tag}"', "Last-Modified": formatdate(0, usegmt=True)} | (
            more or {}
        )
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        if code != 204:
            self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


def _unchunked(file: BinaryIO) -> bytes:
    """The content of chunks; signatures and what follows the last chunk are not looked at."""
    whole = b""
    while size := int(file.readline().split(b";")[0], 16):
        whole += file.read(size)
        file.readline()
    while file.readline().strip():
        pass
    return whole


@contextmanager
def serving(server: S3) -> Iterator[S3]:
    """The server at work; afterwards nothing listens there."""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def listing(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
