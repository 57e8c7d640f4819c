# A job as a client asks for it: task, arguments, options. Not yet sent; made by `Task.job` and
# `Task.options`.
from __future__ import annotations

from . import _edges, _options, _signature
from ._generic import Enqueueable, P
from ._node import CALL_WORDS, current_flow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, overload

    from .client import Handle
    from .task import Task
else:

    def overload(func):
        return func


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
        options = dict(self.options)
        if "name" in options:
            raise TypeError(
                f"name={options['name']!r} is for a node of a flow; a job by itself has none, but tags"
            )
        edges = options.pop("edges", None)
        if edges:
            options["depends_on"] = _edges.of_job(edges)
        return {"task": self.task, "args": self.args, "kwargs": self.kwargs, **options}

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

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    @overload
    def __call__(  # noqa: F811
        self, *args: Any, depends_on: Any, on_failure: bool = ..., on_finish: bool = ..., **kwargs: Any
    ) -> Any: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: F811
        """In the `with` block of a flow: a node with these settings. Elsewhere just the call."""
        graph = current_flow()
        if graph is None:
            return self._task(*args, **kwargs)
        return graph.add(self.in_flow(args, kwargs))

    def map(self, items: Any, /, *args: Any, **kwargs: Any) -> Any:
        """As `Task.map`, with these settings."""
        graph = current_flow()
        if graph is None:
            return [self._task(item, *args, **kwargs) for item in items]
        from ._graph import ITEM

        return graph.map(self.in_flow((ITEM, *args), kwargs), items)

    def in_flow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobRequest:
        """A request for a node; the call may say what it waits for, unless the function has such a name."""
        words = {
            word: kwargs[word]
            for word in CALL_WORDS
            if word in kwargs and not _signature.takes(self._task.func, word)
        }
        said = _options.job_options(dict(words))
        if said.keys() & self._options.keys():
            raise TypeError("depends_on= is in options(...) and in the call: give it once")
        own: dict[str, Any] = {name: value for name, value in kwargs.items() if name not in words}
        request = self.job(*args, **own)
        request.options.update(said)
        return request
