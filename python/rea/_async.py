# Runs the coroutine of an `async def` task: one at a time, in an event loop of its own that ends with the
# job, so that no task, timer or callback lives into the next. Loaded only by workers that need it.
from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine

from .exception import Stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable

# How long what a job left running may take to end after it was cancelled.
LEFTOVERS_S = 5.0
_NAMES_MAX = 5

# Code of the event loop itself: an exception out of a signal handler must not be raised in the middle of it.
_MACHINERY = (os.path.dirname(os.path.abspath(asyncio.__file__)) + os.sep, os.path.abspath(__file__))


class _StoppedHere(Stopped, asyncio.CancelledError):
    """A stop as code in an event loop must see it: task groups and locks clear up after CancelledError."""


# Users catch and see `rea.exception.Stopped`.
_StoppedHere.__name__, _StoppedHere.__qualname__ = Stopped.__name__, Stopped.__qualname__
_StoppedHere.__module__ = Stopped.__module__
_TEXT = "the job is being stopped"


class _Body(Coroutine):  # type: ignore[type-arg]
    """The job's coroutine, in which a stop arrives as Stopped. asyncio itself delivers CancelledError."""

    def __init__(self, coroutine: Any) -> None:
        self._coroutine = coroutine
        self.stopping = False

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *given: Any) -> Any:
        error = given[0] if len(given) == 1 or given[1] is None else given[1]
        if self.stopping and isinstance(error, (asyncio.CancelledError, Stopped)):
            self.stopping = False  # once: what comes later is not for the job's clean-up
            error = _StoppedHere(_TEXT)
        return self._coroutine.throw(error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:  # its name and frame, for asyncio's own messages
        return getattr(self._coroutine, name)


class Runner:
    """What runs coroutines in a worker, and stops them."""

    def __init__(self, may_have_started: Callable[[], None] | None = None) -> None:
        """`may_have_started` is called when processes may have been started unseen."""
        self._may_have_started = may_have_started
        self._body: _Body | None = None
        self._main: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False

    def run(self, coroutine: Any) -> Any:
        """The coroutine's result, or its exception. Afterwards nothing of it is left."""
        pid = os.getpid()
        body = _Body(coroutine)
        try:
            loop = asyncio.new_event_loop()
            if self._may_have_started is not None and not type(loop).__module__.startswith("asyncio."):
                self._may_have_started()  # uvloop, for one, starts processes without telling Python
        except BaseException:
            body.close()
            raise
        try:
            main = loop.create_task(body)
            self._loop, self._body, self._main = loop, body, main
            main.add_done_callback(_stop_its_loop)
            ended = False
            try:
                loop.run_forever()
                ended = main.done()
            finally:
                # A fork shares the loop's descriptors with its parent: touching them would hurt it there.
                if os.getpid() == pid:
                    main.remove_done_callback(_stop_its_loop)
                    _clear(loop, main, quiet=self._stopped)
        finally:
            self._loop = self._body = self._main = None
            if os.getpid() == pid:
                loop.close()
        if not ended:
            raise RuntimeError("the job stopped its own event loop; a job ends by returning or by raising")
        if main.cancelled():
            raise asyncio.CancelledError("the job's coroutine was cancelled by code of the job itself")
        error = main.exception()
        if error is None:
            return main.result()
        try:
            # The traceback holds this frame; let it hold no more, so that all of it goes away with the error.
            del main, body, loop, coroutine
            raise error
        finally:
            del error

    def stop(self, frame: FrameType | None) -> bool:
        """From the signal handler. False: no coroutine runs; else it gets Stopped, here or where it waits."""
        loop, body, main = self._loop, self._body, self._main
        self._stopped = True
        if loop is None or body is None or main is None:
            return False
        current = asyncio.current_task(loop)
        # Code of the job that blocks, such as time.sleep in a coroutine, ends only by an exception in it.
        here = current is not None and frame is not None
        here = here and not frame.f_code.co_filename.startswith(_MACHINERY)  # type: ignore[union-attr]
        if not here or current is not main:
            body.stopping = True
            try:
                loop.call_soon_threadsafe(_cancel, main, body)
            except RuntimeError:
                pass  # the loop is closed: the job had just ended
        if here:
            raise _StoppedHere(_TEXT)
        return True


def _cancel(main: asyncio.Task[Any], body: _Body) -> None:
    if body.stopping:
        main.cancel()


def _stop_its_loop(main: asyncio.Task[Any]) -> None:
    main.get_loop().stop()


def _clear(loop: asyncio.AbstractEventLoop, main: asyncio.Task[Any], quiet: bool) -> None:
    """Ends what the job left running. Threads of its executor end with the loop, or are noticed later."""
    left = asyncio.all_tasks(loop)
    # Nearly always there is nothing; the loop need not run once more to find that out.
    if not left and not getattr(loop, "_asyncgens", True):
        return
    strays = left - {main}
    if strays and not quiet:
        _note(f"{_count(strays)} still running when the job ended; cancelled", strays)
    try:
        loop.run_until_complete(_end(left))
    except BaseException as error:  # a broken loop, sys.exit() in a stray task: the job's outcome stands
        if isinstance(error, Stopped):
            raise
        print(f"rea: clearing up after the job: {type(error).__name__}: {error}", file=sys.stderr)


async def _end(left: set[asyncio.Task[Any]]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LEFTOVERS_S
    me = asyncio.current_task()
    # A cancelled task may start others while it clears up.
    while left and loop.time() < deadline:
        for task in left:
            task.cancel()
        ended, _ = await asyncio.wait(left, timeout=deadline - loop.time())
        for task in ended:
            if not task.cancelled() and task.exception() is not None:
                text = "exception in a task that the job left running"
                loop.call_exception_handler({"message": text, "exception": task.exception(), "task": task})
        left = asyncio.all_tasks() - {me}
    if left:
        _note(f"{_count(left)} given up, {LEFTOVERS_S:g} s after being cancelled", left)
    generators = loop.create_task(loop.shutdown_asyncgens())
    await asyncio.wait({generators}, timeout=max(1.0, deadline - loop.time()))


def _count(tasks: set[asyncio.Task[Any]]) -> str:
    return "1 asyncio task was" if len(tasks) == 1 else f"{len(tasks):,} asyncio tasks were"


def _note(what: str, tasks: set[asyncio.Task[Any]]) -> None:
    names = sorted(getattr(task.get_coro(), "__qualname__", task.get_name()) for task in tasks)
    more = ", ..." if len(names) > _NAMES_MAX else ""
    print(f"rea: {what}: {', '.join(names[:_NAMES_MAX])}{more}", file=sys.stderr)
