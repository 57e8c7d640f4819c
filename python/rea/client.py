# Enqueues jobs and asks about them, over HTTP. Loaded at first use only: a worker that enqueues nothing never
# pays.
from __future__ import annotations

import math
import os
import threading
import time
from urllib.parse import quote

from . import _jsontext, job
from ._http import DEFAULT_URL, Transport
from .exception import JobFailed, ResultTimeout, ServerUnreachable
from .handle import Handle
from .request import JobRequest
from .task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Union

    What = Union[Task[Any, Any], JobRequest, str]

__all__ = ["Client", "Handle", "connect", "default_client", "enqueue", "enqueue_many"]

# One long poll; the server's own limit.
WAIT_STEP_S = 30
BATCH_MAX = 10_000
_NO_RESULT = ("dead", "cancelled", "skipped", "held")


class Client:
    """A connection to one rea server; threads may share it.

    `url` falls back to REA_URL, then to http://127.0.0.1:8000; `token` to REA_TOKEN, then to the file that
    REA_TOKEN_FILE names. `timeout` is how many seconds one answer may take.
    """

    def __init__(self, url: str | None = None, token: str | None = None, timeout: float = 10) -> None:
        if url is None:
            url = os.environ.get("REA_URL") or DEFAULT_URL
        self._transport = Transport(url, token or _token_from_environment(), timeout)
        self.url = self._transport.url

    # --- enqueue ---

    def enqueue(self, what: What, /, *args: Any, **kwargs: Any) -> Handle:
        """Stores one job: a task, a task's name, or a request made by `task.job(...)` or
        `options(...).job(...)`.
        """
        body = _body(_request(what, args, kwargs))
        try:
            answer = self._post("/enqueue", _text(body))
        except ServerUnreachable as error:
            if isinstance(error.__cause__, ConnectionRefusedError):
                raise
            raise ServerUnreachable(
                f"{error}. The job may have been stored; to try again without making a second one, "
                f"use options(task_id={body['task_id']!r})"
            ) from error
        return Handle(self, answer["task_id"], answer["trace_id"], bool(answer.get("created", True)))

    def enqueue_many(self, jobs: Iterable[JobRequest | tuple[Any, ...]]) -> list[Handle]:
        """Stores up to 10,000 jobs, all or none: requests, or tuples (task, args, kwargs)."""
        requests = [_request_of_item(item, index) for index, item in enumerate(jobs)]
        if not requests:
            return []
        if len(requests) > BATCH_MAX:
            raise ValueError(
                f"{len(requests):,} jobs are more than one batch may hold ({BATCH_MAX:,}); send several"
            )
        answer = self._post("/jobs", b"[" + b",".join(_text(_body(request)) for request in requests) + b"]")
        return [
            Handle(self, one["task_id"], one["trace_id"], bool(one.get("created", True)))
            for one in answer["jobs"]
        ]

    def _post(self, path: str, body: bytes) -> Any:
        # Repeatable because the job's id is made here: a repeat after a lost reply finds the job that is
        # there.
        return self._transport.exchange("POST", path, body, repeatable=True)

    # --- ask and steer ---

    def get(self, task_id: str) -> dict[str, Any]:
        """The job as the server knows it."""
        found: dict[str, Any] = self._transport.exchange("GET", _path(task_id), repeatable=True)
        return found

    def cancel(self, task_id: str) -> dict[str, Any]:
        """Cancels the job; a running one is stopped. Returns its id and state."""
        return self._act(task_id, "cancel")

    def retry(self, task_id: str) -> dict[str, Any]:
        """Gives an ended job another run. Returns its id and state."""
        return self._act(task_id, "retry")

    def _act(self, task_id: str, verb: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._transport.exchange(
            "POST", f"{_path(task_id)}/{verb}", b"{}", repeatable=False
        )
        return answer

    def result(self, task_id: str, timeout: float | None = 30) -> Any:
        """Waits for the job's end and returns its result; `timeout=None` waits for ever.

        JobFailed when it ended without one, ResultTimeout when it goes on. A server that restarts meanwhile
        is waited for.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            asked_s = time.monotonic()
            left_s = deadline - asked_s
            wait_s = int(min(WAIT_STEP_S, max(0, left_s)))
            try:
                found = self._transport.exchange(
                    "GET", f"{_path(task_id)}?wait={wait_s}", repeatable=True, extra_s=wait_s
                )
            except ServerUnreachable:
                if left_s <= 0:
                    raise
                time.sleep(min(0.5, left_s))
                continue
            state = found["state"]
            if state == "success":
                return found.get("result")
            if state in _NO_RESULT:
                raise JobFailed(task_id, state, found.get("last_error"))
            if left_s <= 0:
                raise ResultTimeout(
                    f"job {task_id} is still {state} after {timeout} s; it goes on, ask again"
                )
            if time.monotonic() - asked_s < 0.05:
                # Under a second is left, or the server answers long polls early: do not ask in a tight loop.
                time.sleep(min(0.05, left_s))

    def close(self) -> None:
        """Closes idle connections; the client can still be used."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<rea client of {self.url}>"


# --- the default client ---

_default: Client | None = None
_default_lock = threading.Lock()


def connect(url: str | None = None, token: str | None = None, timeout: float = 10) -> Client:
    """Sets which server `task.enqueue()` and `rea.enqueue()` talk to, and returns its client.

    Connects when needed.
    """
    global _default
    _default = Client(url, token, timeout)
    return _default


def default_client() -> Client:
    global _default
    with _default_lock:
        if _default is None:
            _default = Client()
        return _default


def enqueue(what: What, /, *args: Any, **kwargs: Any) -> Handle:
    """Stores one job on the default server; see `Client.enqueue`."""
    return default_client().enqueue(what, *args, **kwargs)


def enqueue_many(jobs: Iterable[JobRequest | tuple[Any, ...]]) -> list[Handle]:
    """Stores many jobs, all or none, on the default server; see `Client.enqueue_many`."""
    return default_client().enqueue_many(jobs)


# --- requests ---


def _request(what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobRequest:
    if isinstance(what, Task):
        return what.job(*args, **kwargs)
    if isinstance(what, str):
        return JobRequest(what, args, kwargs)
    if isinstance(what, JobRequest):
        if args or kwargs:
            raise TypeError("a job request holds its arguments already")
        return what
    hint = "; put @task on it" if callable(what) else ""
    raise TypeError(f"enqueue takes a task, a task's name or a job request, not {what!r}{hint}")


_ITEM_KINDS: tuple[Any, Any] = ((list, tuple), dict)


def _request_of_item(item: Any, index: int) -> JobRequest:
    if isinstance(item, JobRequest):
        return item
    good = isinstance(item, tuple) and 1 <= len(item) <= 3
    if not good or not all(isinstance(part, kind) for part, kind in zip(item[1:], _ITEM_KINDS)):
        raise TypeError(f"item {index} must be task.job(...) or a tuple (task, args, kwargs), not {item!r}")
    args = tuple(item[1]) if len(item) > 1 else ()
    kwargs = dict(item[2]) if len(item) > 2 else {}
    return _request(item[0], args, kwargs)


def _body(request: JobRequest) -> dict[str, Any]:
    body = request.body()
    body.setdefault("task_id", new_task_id())
    root_id = job.current_root_id()
    if root_id is not None:
        body.setdefault("root_id", root_id)
    return body


def _text(body: dict[str, Any]) -> bytes:
    try:
        return _jsontext.to_bytes(body, "the job")
    except _jsontext.NotJson as whole:
        # Say it again by argument: that is how the caller sees it.
        for index, value in enumerate(body["args"], 1):
            _check_argument(f"argument {index} of {body['task']}", value)
        for name, value in body["kwargs"].items():
            _check_argument(f"argument {name} of {body['task']}", value)
        raise TypeError(str(whole)) from None


def _check_argument(where: str, value: Any) -> None:
    try:
        _jsontext.to_bytes(value, where)
    except _jsontext.NotJson as error:
        raise TypeError(str(error)) from None


def new_task_id() -> str:
    """A UUIDv7: sorts by time, so that the server's index stays small."""
    import uuid

    millis = time.time_ns() // 1_000_000
    tail = int.from_bytes(os.urandom(10), "big")
    number = (millis & (2**48 - 1)) << 80 | tail
    number = number & ~(0xF << 76) | 7 << 76
    number = number & ~(0x3 << 62) | 2 << 62
    return str(uuid.UUID(int=number))


def _path(task_id: str) -> str:
    return f"/jobs/{quote(task_id, safe='')}"


def _token_from_environment() -> str | None:
    token = os.environ.get("REA_TOKEN")
    path = os.environ.get("REA_TOKEN_FILE")
    if token or not path:
        return token or None
    with open(path, encoding="utf-8") as file:
        return file.read().strip() or None
