# The decorator `@task` and what it makes: a function that can still be called, and can be enqueued.
# Keeps the registry of tasks, the only thing a worker runs. Loaded at every worker start: no heavy imports.
from __future__ import annotations

import functools

from . import _options, _signature
from ._generic import Enqueueable, P
from ._node import CALL_WORDS, Node, current_flow, open_flow, refuse_outside
from ._options import UNSET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Callable, Generic, TypeVar, overload

    from ._options import Moment, Seconds, Unset
    from .client import Handle
    from .request import JobRequest, Options

    R = TypeVar("R", covariant=True)

    class _Typed(Enqueueable[P], Generic[P, R]):
        pass

else:
    # At run time the type parameters mean nothing, and importing `typing` would cost at each worker start.
    R = None

    class _Typed(Enqueueable):
        pass

    def overload(func):
        return func


__all__ = ["Task", "registry", "task"]

# By name. A worker runs what is here and never imports by a name that came over the wire.
registry: dict[str, Task[Any, Any]] = {}


class Task(_Typed[P, R]):
    """A function made into a task by `@task`. Calling it just calls the function, here and now; in the
    `with` block of `rea.flow(...)` it makes a node of that flow instead.
    """

    name: str
    func: Callable[P, R]
    retry_on: Any  # tuple of exception classes, beside the always retryable ones
    defaults: dict[str, Any]  # as the catalogue takes them: priority, queue, max_attempts, timeout_ms, ...
    trace_slot: int | None

    def __init__(self, func: Callable[P, R], name: str, retry_on: Any, defaults: dict[str, Any]) -> None:
        functools.update_wrapper(self, func)
        self.func = func
        self.name = name
        self.retry_on = retry_on
        self.defaults = defaults
        self.trace_slot = _signature.trace_slot(func)

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def __call__(  # noqa: F811  (an overload, which ruff does not see)
        self, *args: Any, depends_on: Any, on_failure: bool = ..., on_finish: bool = ..., **kwargs: Any
    ) -> Any: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: F811
        if open_flow.get() is not None and current_flow() is not None:
            from .request import Options

            return Options(self, {})(*args, **kwargs)
        if _may_be_for_a_flow(args, kwargs):
            refuse_outside(self.name, lambda word: _signature.takes(self.func, word), args, kwargs)
        return self.func(*args, **kwargs)

    def map(self, items: Any, /, *args: Any, **kwargs: Any) -> Any:
        """In the `with` block of a flow: a node that runs once for each item of a list, or of a node's
        result, with the item as the first argument; its own result is the list of results. Elsewhere that
        list, made here and now.
        """
        from .request import Options

        return Options(self, {}).map(items, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<rea task {self.name}>"

    def __reduce__(self) -> str:
        # As functions do: by name, so that a multiprocessing pool inside a job can use it.
        return self.func.__qualname__

    def job(self, *args: P.args, **kwargs: P.kwargs) -> JobRequest:
        """A request to run this, not yet sent; for `rea.enqueue_many`."""
        from .request import Options

        return Options(self, {}).job(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle:
        """Stores a job that calls the function with these arguments;
        returns once it is on the server's disk.
        """
        from .request import Options

        return Options(self, {}).enqueue(*args, **kwargs)

    def options(
        self,
        *,
        priority: int | None = None,
        delay: Seconds | None = None,
        run_at: Moment | None = None,
        key: str | None = None,
        queue: str | None = None,
        timeout: Seconds | None | Unset = UNSET,
        max_attempts: int | None = None,
        start_before: Moment | None = None,
        tags: Iterable[str] | None = None,
        trace_id: str | None = None,
        unique_for: Seconds | None = None,
        if_exists: str | None = None,
        task_id: str | None = None,
        retry_base: Seconds | None = None,
        retry_cap: Seconds | None = None,
        on_crash: str | None = None,
        concurrency_key: str | None = None,
        callback_url: str | None = None,
        depends_on: Any = None,
        on_failure: bool = False,
        on_finish: bool = False,
        name: str | None = None,
    ) -> Options[P]:
        """Settings for one job: `send.options(priority=1, delay=60).enqueue(...)`, or for one node of a flow:
        `send.options(priority=1, name="first")(...)`. Times are in seconds.
        """
        given = dict(locals())
        del given["self"]

        from .request import Options

        return Options(self, _options.job_options(given))


def _may_be_for_a_flow(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Quick: it stands before every plain call of a task."""
    for value in args:
        if isinstance(value, Node):
            return True
    return bool(kwargs) and (
        not kwargs.keys().isdisjoint(CALL_WORDS) or any(isinstance(value, Node) for value in kwargs.values())
    )


@overload
def task(func: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(  # noqa: F811  (an overload, which ruff does not see)
    *,
    max_attempts: int | None = ...,
    default_priority: int | None = ...,
    priority: int | None = ...,
    queue: str | None = ...,
    timeout: Seconds | None | Unset = ...,
    retry_on: type[Exception] | Iterable[type[Exception]] = ...,
    retry_base: Seconds | None = ...,
    retry_cap: Seconds | None = ...,
    on_crash: str | None = ...,
    max_interruptions: int | None = ...,
    memory: int | str | None = ...,
    concurrency: int | None = ...,
    rate: str | None = ...,
    concurrency_key: str | None = ...,
    name: str | None = ...,
    schedule: str | None = ...,
    timezone: str | None = ...,
    every: Seconds | None = ...,
    catch_up: str | None = ...,
    overlap: str | None = ...,
) -> Callable[[Callable[P, R]], Task[P, R]]: ...


def task(  # noqa: F811
    func: Any = None,
    /,
    *,
    max_attempts: int | None = None,
    default_priority: int | None = None,
    priority: int | None = None,
    queue: str | None = None,
    timeout: Seconds | None | Unset = UNSET,
    retry_on: Any = (),
    retry_base: Seconds | None = None,
    retry_cap: Seconds | None = None,
    on_crash: str | None = None,
    max_interruptions: int | None = None,
    memory: int | str | None = None,
    concurrency: int | None = None,
    rate: str | None = None,
    concurrency_key: str | None = None,
    name: str | None = None,
    schedule: str | None = None,
    timezone: str | None = None,
    every: Seconds | None = None,
    catch_up: str | None = None,
    overlap: str | None = None,
) -> Any:
    """Makes a top-level function a task: `@task` or `@task(max_attempts=5, default_priority=3, ...)`.

    What is not given is the server's default. `timeout=None` means no limit. `retry_on` names exceptions
    that are retried besides RetryableError, ConnectionError and TimeoutError; all others end the job as
    dead. `on_crash="hold"` stops a job that may have half happened (money!) until a person decides.
    `memory="512MiB"` (or bytes) ends a job that uses more, with all that it has started.
    `concurrency=1` runs at most one job of the task at a time, `rate="10/min"` starts at most ten in any
    minute, and `concurrency_key="account:{account}"` runs one job at a time for each value of that argument,
    however it is passed. Limits that people set meanwhile stay until the limit in the code is changed.

    `schedule="0 2 * * *"` (with `timezone="Asia/Shanghai"`), or `every=30`, lets it run by the clock, without
    arguments. `catch_up` ("latest", "all", "none") says what becomes of late ticks; `overlap` ("skip",
    "queue", "allow", "cancel_old") what becomes of a tick while the run before has not ended.
    """
    if priority is not None and default_priority is not None and priority != default_priority:
        raise ValueError(
            f"priority={priority!r} and default_priority={default_priority!r} mean the same; give one"
        )
    defaults: dict[str, Any] = {}
    if queue is not None:
        defaults["queue"] = _options.text("queue", queue)
    if default_priority is not None:
        defaults["priority"] = _options.priority("default_priority", default_priority)
    elif priority is not None:
        defaults["priority"] = _options.priority("priority", priority)
    if max_attempts is not None:
        defaults["max_attempts"] = _options.count("max_attempts", max_attempts)
    if retry_base is not None:
        defaults["retry_base_ms"] = _options.milliseconds(_options.seconds("retry_base", retry_base))
    if retry_cap is not None:
        defaults["retry_cap_ms"] = _options.milliseconds(_options.seconds("retry_cap", retry_cap))
    if on_crash is not None:
        defaults["on_crash"] = _options.on_crash("on_crash", on_crash)
    if max_interruptions is not None:
        defaults["max_interruptions"] = _options.count_from_0("max_interruptions", max_interruptions)
    if memory is not None:
        defaults["memory_bytes"] = _options.memory("memory", memory)
    if concurrency is not None:
        defaults["concurrency"] = _options.concurrency("concurrency", concurrency)
    if rate is not None:
        defaults["rate"] = _options.rate("rate", rate)
    if concurrency_key is not None:
        defaults["concurrency_key"] = _options.key_pattern("concurrency_key", concurrency_key)
    if timeout is not UNSET:
        limit = _options.timeout("timeout", timeout)
        defaults["timeout_ms"] = None if limit is None else max(1, _options.milliseconds(limit))
    by_clock = _options.schedule(schedule, timezone, every, catch_up, overlap)
    if by_clock:
        defaults["schedule"] = by_clock
    retry_classes = _options.exceptions("retry_on", retry_on)
    if name is not None:
        _options.text("name", name)

    def register(function: Any) -> Any:
        return _register(function, name, retry_classes, defaults)

    return register if func is None else register(func)


def _register(func: Any, name: str | None, retry_on: Any, defaults: dict[str, Any]) -> Task[Any, Any]:
    if isinstance(func, Task):
        raise TypeError(f"{func.name} has @task twice")
    _signature.refuse_what_cannot_run(func)
    if name is None:
        name = _options.text("the task's name", _signature.task_name(func))
    if "schedule" in defaults:
        _signature.refuse_what_needs_arguments(func)
    if "concurrency_key" in defaults:
        pattern = defaults["concurrency_key"]
        places = _options.places("concurrency_key", pattern)
        _signature.refuse_places_without_argument(func, pattern, places)
        # A copy: the same decorator may make several tasks.
        either_way = _options.either_way(pattern, _signature.by_place_or_name(func))
        defaults = {**defaults, "concurrency_key": either_way}
    made: Task[Any, Any] = Task(func, name, retry_on, defaults)
    other = registry.get(name)
    # The same function again is a reload of its module; another one would silently take the first one's jobs.
    if other is not None and _signature.task_name(other) != _signature.task_name(func):
        raise ValueError(
            f"two tasks are called {name!r}: {_signature.task_name(other)} and {_signature.task_name(func)}; "
            f"give one of them another name=..."
        )
    registry[name] = made
    return made
