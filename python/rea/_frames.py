# The child protocol's frames: bytes out, bytes in. See protocol/child-protocol.md; no other file knows the
# format.
from __future__ import annotations

import struct
from json import JSONDecoder

from ._jsontext import clean, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from .task import Task

VERSION = 1
FRAME_MAX = 8 * 1024 * 1024
# A permit is the token of its attempt, as bytes.
PERMIT_SIZE = 8
# The body of the frame that ends a wait.
GO = b'{"t":"go"}'
# What a `done` frame may hold beside its result.
ENVELOPE_MAX = 4096

_HEADER = struct.Struct(">I")
header_size = _HEADER.size
unpack_header = _HEADER.unpack_from
_pack_header = _HEADER.pack
_scan = JSONDecoder().scan_once  # type: ignore[attr-defined]  # not in typeshed


class ProtocolError(Exception):
    """The other side sent what the protocol does not allow; there is no way to go on."""


# What a job leaves behind: (dirty, spawned). Threads, or changes that can't be put back; perhaps processes.
CLEAN = (False, False)


# --- reading ---


def parse(body: bytes) -> dict[str, Any]:
    """One frame's object, from its body without the length."""
    try:
        text = body.decode("utf-8")
        frame, end = _scan(text, 0)
        if end != len(text):
            raise ProtocolError(f"text after the object at {end}")
    except (ValueError, StopIteration, RecursionError) as error:
        raise ProtocolError(f"a frame that is not JSON: {error}") from None
    if type(frame) is not dict or "t" not in frame:
        raise ProtocolError("a frame that is not an object with a field t")
    return frame


def parse_without_big_numbers(body: bytes) -> dict[str, Any] | None:
    """The same with every number that Python refuses to read as 0, so that the attempt can still be
    closed.
    """

    def number(digits: str) -> int:
        try:
            return int(digits)
        except ValueError:
            return 0

    try:
        frame = JSONDecoder(parse_int=number).decode(body.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return frame if isinstance(frame, dict) else None


# --- writing ---


def frame(body: bytes) -> bytes:
    return _pack_header(len(body)) + body


def hello(
    pid: int, lang: str, tasks: Iterable[Task[Any, Any]], ahead: bool, files: Sequence[str]
) -> bytes:
    """`ahead`: each job's output goes to the next of the pipes, so that jobs may be sent ahead."""
    described = []
    for task in tasks:
        entry = {"name": task.name, **task.defaults}
        doc = (task.__doc__ or "").strip()
        if doc:
            entry["doc"] = clean(doc.splitlines()[0].strip()[:500])
        described.append(entry)
    body = {"t": "hello", "v": VERSION, "pid": pid, "lang": lang, "ahead": ahead, "tasks": described}
    return frame(encode({**body, "files": files}).encode("utf-8"))


def bad(kind: str, message: str, traceback: str, files: Sequence[str]) -> bytes:
    body = {"t": "bad", "type": kind, "message": message, "traceback": traceback, "files": files}
    return frame(encode(body).encode("utf-8"))


def progress(token: str, done: float, total: float | None, note: str | None) -> bytes:
    body = {"t": "progress", "token": token, "done": done, "total": total, "note": note and clean(note)}
    return frame(encode(body).encode("utf-8"))


def done_ok(token: str, result: bytes, left: tuple[bool, bool] = CLEAN) -> bytes:
    """`result` is JSON text already: it is measured and checked before it gets here."""
    body = b'{"t":"done","token":"%b","ok":true,"result":%b' % (token.encode("ascii"), result)
    return frame(body + _leftovers(left))


def done_failed(
    token: str,
    cause: str,
    kind: str,
    message: str,
    traceback: str | None,
    after_ms: int | None = None,
    left: tuple[bool, bool] = CLEAN,
) -> bytes:
    """`cause` is "error" (may be retried) or "fatal". Texts must be clean Unicode."""
    body: dict[str, Any] = {"t": "done", "token": token, "ok": False, "cause": cause, "type": kind}
    body["message"] = message
    body["traceback"] = traceback
    if after_ms is not None:
        body["after_ms"] = after_ms
    return frame(encode(body).encode("utf-8")[:-1] + _leftovers(left))


def _leftovers(left: tuple[bool, bool]) -> bytes:
    if left == CLEAN:
        return b"}"
    names = (b"dirty", b"spawned")
    return b"".join(b',"%b":true' % name for name, is_so in zip(names, left) if is_so) + b"}"
