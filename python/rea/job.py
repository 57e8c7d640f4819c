# What a running task may ask and say about its own job: `rea.current_job()`.
# One job at a time runs in a process, so the current one is a plain module variable, seen by all its threads.
from __future__ import annotations

from time import monotonic

from . import _frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

__all__ = ["Job", "current_job"]

PROGRESS_INTERVAL_S = 0.2
NOTE_MAX = 1000

_frame: dict[str, Any] | None = None
_job: Job | None = None
_send: Callable[[bytes], None] | None = None


class Job:
    """The job whose function is running."""

    __slots__ = (
        "_next_progress_s",
        "attempt",
        "failures",
        "key",
        "max_attempts",
        "queue",
        "root_id",
        "task",
        "task_id",
        "token",
        "trace_id",
    )

    def __init__(self, frame: dict[str, Any]) -> None:
        self.task_id: str = frame["task_id"]
        self.trace_id: str = frame["trace_id"]
        self.root_id: str = frame["root_id"]
        self.task: str = frame["task"]
        self.queue: str = frame["queue"]
        self.attempt: int = frame["attempt"]
        self.failures: int = frame["failures"]
        self.max_attempts: int = frame["max_attempts"]
        #: Stable over the attempts of a job: use it as idempotency key towards others.
        self.key: str = frame["key"]
        #: New for each attempt: a fencing token, so that a late attempt can be told from the newest one.
        self.token: str = frame["token"]
        self._next_progress_s = 0.0

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Says how far the job is. Cheap to call often: at most five a second are sent, and always the last
        one (`done == total`)."""
        check_progress(done, total)
        now = monotonic()
        if _send is None or _job is not self or (now < self._next_progress_s and done != total):
            return
        self._next_progress_s = now + PROGRESS_INTERVAL_S
        _send(_frames.progress(self.token, done, total, None if note is None else str(note)[:NOTE_MAX]))

    def __repr__(self) -> str:
        return f"<rea job {self.task_id} {self.task} attempt {self.attempt}>"


def check_progress(done: Any, total: Any) -> None:
    for name, value in (("done", done), ("total", total)):
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**63
        if not good and not (name == "total" and value is None):
            raise ValueError(f"progress: {name} must be a number, not {value!r}")


def current_job() -> Job:
    """The job that this code runs in.

    RuntimeError outside one, for example when a test calls the function.
    """
    global _job
    if _frame is None:
        raise RuntimeError(
            "current_job() works only while rea runs the function as a job; here it was called directly. "
            "Give the function a default for what it needs, or test it with rea.testing.run(task, ...)."
        )
    if _job is None:
        _job = Job(_frame)
    return _job


def current_root_id() -> str | None:
    """The root_id that jobs enqueued from here inherit; None outside a job."""
    return None if _frame is None else _frame["root_id"]


# --- for the worker only ---


def begin(frame: dict[str, Any]) -> None:
    global _frame
    _frame = frame


def end() -> None:
    global _frame, _job
    _frame = _job = None


def bind(send: Callable[[bytes], None] | None) -> None:
    """Where progress goes."""
    global _send
    _send = send
