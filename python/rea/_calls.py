# What a client asks of the server and what the answers mean, apart from how they travel. Shared by the client
# for threads and the one for asyncio, so that both say the same.
from __future__ import annotations

import os
import time
from urllib.parse import quote

from . import _jsontext, job
from .exception import JobFailed, ResultTimeout, ServerUnreachable
from .request import JobRequest, Options
from .task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# One long poll; the server allows 60 s.
WAIT_STEP_S = 30
BATCH_MAX = 10_000
_NO_RESULT = ("dead", "cancelled", "skipped", "held")


def maybe_stored(error: ServerUnreachable, task_id: str) -> ServerUnreachable:
    """The same error, with what to do when nobody knows whether the job was stored."""
    if isinstance(error.__cause__, ConnectionRefusedError):
        return error
    return ServerUnreachable(
        f"{error}. The job may have been stored; to try again without making a second one, "
        f"use options(task_id={task_id!r})"
    )


def too_many(count: int) -> ValueError:
    return ValueError(
        f"{count:,} jobs are more than one batch may hold ({BATCH_MAX:,}, all or none); send several, "
        f"as rea.batch(chunk=1000) does"
    )


def ended(found: dict[str, Any]) -> bool:
    """Whether the job has a result (True) or goes on (False). JobFailed when it ended without one."""
    state = found["state"]
    if state in _NO_RESULT:
        raise JobFailed(found["task_id"], state, found.get("last_error"))
    return bool(state == "success")


def still(task_id: str, state: str, timeout: float | None) -> ResultTimeout:
    return ResultTimeout(f"job {task_id} is still {state} after {timeout} s; it goes on, ask again")


def request(what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobRequest:
    if isinstance(what, (Task, Options)):
        return what.job(*args, **kwargs)
    if isinstance(what, str):
        return JobRequest(what, args, kwargs)
    if isinstance(what, JobRequest):
        if args or kwargs:
            raise TypeError("a job request holds its arguments already")
        return what
    hint = "; put @task on it" if callable(what) and not isinstance(what, _jsontext.Place) else ""
    raise TypeError(
        f"enqueue takes a task, a task with options, a task's name or a job request, not {what!r}{hint}"
    )


_ITEM_KINDS: tuple[Any, Any] = ((list, tuple), dict)


def request_of_item(item: Any, index: int) -> JobRequest:
    if isinstance(item, JobRequest):
        return item
    good = isinstance(item, tuple) and 1 <= len(item) <= 3
    if not good or not all(isinstance(part, kind) for part, kind in zip(item[1:], _ITEM_KINDS)):
        raise TypeError(f"item {index} must be task.job(...) or a tuple (task, args, kwargs), not {item!r}")
    args = tuple(item[1]) if len(item) > 1 else ()
    kwargs = dict(item[2]) if len(item) > 2 else {}
    return request(item[0], args, kwargs)


def body(request: JobRequest) -> dict[str, Any]:
    """What is sent. The id is made here, so that a request can be repeated after a lost answer."""
    sent = request.body()
    sent.setdefault("task_id", new_task_id())
    root_id = job.current_root_id()
    if root_id is not None:
        sent.setdefault("root_id", root_id)
    return sent


def text(body: dict[str, Any]) -> bytes:
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


def job_path(task_id: str) -> str:
    return f"/jobs/{quote(task_id, safe='')}"
