# A job as a client asks for it: task, arguments, options. Not yet sent; made by `Task.job` and
# `Task.options`.
from __future__ import annotations

from . import _options, _signature
from ._generic import Enqueueable, P

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from .client import Handle
    from .task import Task


class JobRequest(Enqueueable[[]]):
    """One job to enqueue. For a task that this program does not have:
    `JobRequest("module:function", (1, 2))`.
    """

    __slots__ = ("args", "kwargs", "options", "task")

    def __init__(
        self, task: str, args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        self.task = _options.text("the task's name", task)
        self.args = tuple(args)
        self.kwargs = dict(kwargs or {})
        self.options = _options.job_options(options)

    def body(self) -> dict[str, Any]:
        """What is sent; values are checked to be JSON only when they are turned into text."""
        return {"task": self.task, "args": self.args, "kwargs": self.kwargs, **self.options}

    def __repr__(self) -> str:
        return f"<rea job request {self.task}>"


class Options(Enqueueable[P]):
    """A task with settings for its next jobs."""

    def __init__(self, task: Task[P, Any], options: dict[str, Any]) -> None:
        self._task = task
        self._options = options

    def job(self, *args: P.args, **kwargs: P.kwargs) -> JobRequest:
        """A request to run the task so, not yet sent; for `rea.enqueue_many`."""
        task = self._task
        _signature.check_call(task.name, task.func, task.trace_slot, args, kwargs)
        request = JobRequest(task.name, args, kwargs)
        request.options = dict(self._options)
        return request

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle:
        """Stores the job; returns once it is on the server's disk."""
        from .client import default_client

        return default_client().enqueue(self.job(*args, **kwargs))
