# For the tests of your tasks: run one here and now as an attempt of a made-up job (`rea.testing.run`), run
# jobs and whole flows in this process (`rea.testing.InProcess`), or start a real server on a store of its
# own (`rea.testing.Server`; with pytest: the fixture `rea_server`).
from __future__ import annotations

import asyncio
import contextvars
import json
import uuid
from dataclasses import dataclass, field

from . import _calls, _node, _options, _signature, job, worker
from ._local import InProcess
from ._testserver import Server, find_program
from .task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._generic import P

__all__ = ["FakeJob", "InProcess", "Outcome", "Progress", "Server", "find_program", "run"]

# What the server takes when neither the task nor the job says anything.
MAX_ATTEMPTS = 3
RESULT_MAX = 1024 * 1024


@dataclass(frozen=True)
class Progress:
    """One call of `current_job().progress(...)`."""

    done: float
    total: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class Outcome:
    """How the attempt ended, and what the server would make of it."""

    #: "success"; "failed": it is tried again; "dead": it is not.
    state: str
    #: "ok"; "error": a failure that may be retried; "fatal": one that may not.
    cause: str
    #: What the task returned, as the server stores and hands it back: tuples have become lists.
    result: Any = None
    #: The exception itself, or None.
    error: BaseException | None = None
    #: What the server would show of it.
    message: str | None = None
    traceback: str | None = field(default=None, repr=False)
    #: Seconds that `RetryableError(after=...)` asked for; None leaves the wait to the task's backoff.
    after: float | None = None
    #: All calls of progress(), also those that a worker would leave out because they come too fast.
    progress: list[Progress] = field(default_factory=list)


class FakeJob:
    """What `current_job()` says to the task: `FakeJob(attempt=3, key="order-7").run(send, 7)`.

    `failures` is one less than `attempt` and `max_attempts` the task's own unless they are given.
    """

    def __init__(
        self,
        *,
        attempt: int = 1,
        failures: int | None = None,
        max_attempts: int | None = None,
        key: str | None = None,
        token: str = "0000000000000001",
        task_id: str | None = None,
        trace_id: str | None = None,
        root_id: str | None = None,
        queue: str | None = None,
    ) -> None:
        self._attempt = _options.count("attempt", attempt)
        self._failures = attempt - 1 if failures is None else _options.count_from_0("failures", failures)
        self._max_attempts = None if max_attempts is None else _options.count("max_attempts", max_attempts)
        self._queue = queue
        self._token = token
        self._task_id = task_id or str(uuid.uuid4())
        self._trace_id = trace_id or self._task_id.replace("-", "")
        self._root_id = root_id or self._task_id
        self._key = key or self._trace_id

    def run(self, task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Outcome:
        """Runs the task as a worker would, in this thread, and tells how it ended; raises nothing of it.

        Arguments and result go through JSON as they would on their way. The timeout is not watched.
        """
        if not isinstance(task, Task):
            raise TypeError(f"rea.testing.run takes a task, not {task!r}; put @task on it")
        frame = self._frame(task, args, kwargs)
        made = _RecordingJob(frame)
        before = job._frame, job._job
        job._frame, job._job = frame, made
        try:
            value = _call(task, frame)
            data = worker._result(value, RESULT_MAX)
        except (Exception, SystemExit, GeneratorExit, asyncio.CancelledError) as error:
            return self._failed(task, frame, error, made.told)
        finally:
            job._frame, job._job = before
        return Outcome("success", "ok", json.loads(data), progress=made.told)

    def _frame(self, task: Task[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        sent = json.loads(_calls.text(task.job(*args, **kwargs).body()))
        most = self._max_attempts or task.defaults.get("max_attempts") or MAX_ATTEMPTS
        return {
            "task": task.name,
            "args": sent["args"],
            "kwargs": sent["kwargs"],
            "task_id": self._task_id,
            "trace_id": self._trace_id,
            "root_id": self._root_id,
            "queue": self._queue or task.defaults.get("queue") or "default",
            "attempt": self._attempt,
            "failures": self._failures,
            "max_attempts": most,
            "key": self._key,
            "token": self._token,
        }

    def _failed(
        self, task: Task[Any, Any], frame: dict[str, Any], error: BaseException, told: list[Progress]
    ) -> Outcome:
        cause, _kind, message, traceback, after_ms = worker._describe(error, task)
        again = cause == "error" and self._failures + 1 < frame["max_attempts"]
        after = None if after_ms is None else after_ms / 1000
        return Outcome("failed" if again else "dead", cause, None, error, message, traceback, after, told)


class _RecordingJob(job.Job):
    __slots__ = ("told",)

    def __init__(self, frame: dict[str, Any]) -> None:
        super().__init__(frame)
        self.told: list[Progress] = []

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        job.check_progress(done, total)
        self.told.append(Progress(done, total, None if note is None else str(note)[: job.NOTE_MAX]))


def _call(task: Task[Any, Any], frame: dict[str, Any]) -> Any:
    args, kwargs = frame["args"], dict(frame["kwargs"])
    if _signature.wants_trace_id(task.trace_slot, args, kwargs):
        kwargs["trace_id"] = frame["trace_id"]
    call = contextvars.copy_context().run
    # As in a worker: also where the test writes down a flow at this moment.
    call(_node.open_flow.set, None)
    value = call(task.func, *args, **kwargs)
    if not asyncio.iscoroutine(value):
        return value
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        from ._async import Runner

        return call(Runner().run, value)
    value.close()
    raise _LoopRuns


class _LoopRuns(BaseException):
    """Not an Exception: it is about the test, not about the task."""

    def __str__(self) -> str:
        return (
            "an event loop runs here already, and an async task gets one of its own; "
            "in an async test write `outcome = await asyncio.to_thread(rea.testing.run, task, ...)`"
        )


def run(task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Outcome:
    """Runs the task as the first attempt of a job; `FakeJob(...).run` for later ones and other keys."""
    return FakeJob().run(task, *args, **kwargs)
