# The client for asyncio: the same names as in `rea`, to be awaited: `from rea import aio`, then
# `await aio.enqueue(...)`.
from __future__ import annotations

import asyncio
import math
import time

from . import _aio_flow, _calls, _options, _steps, client
from ._address import Address
from ._aio_flow import Flow, FlowHandle, Node
from ._aio_http import Transport
from ._batch import Gathered, fill
from .exception import JobFailed, ResultTimeout, ServerUnreachable
from .handle import Names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, overload
    from uuid import UUID

    from ._generic import Enqueueable, P
    from ._steps import Steps
    from .request import JobRequest
else:

    def overload(func):
        return func


__all__ = [
    "Batch",
    "Client",
    "Flow",
    "FlowHandle",
    "Handle",
    "Node",
    "batch",
    "default_client",
    "enqueue",
    "enqueue_many",
    "flow",
    "wait",
]


class Handle(Names):
    """One job on the server. Holds only names; what it answers is asked for each time."""

    __slots__ = ("_client",)

    def __init__(self, client: Client, answer: dict[str, Any] | None = None) -> None:
        self._client = client
        if answer is not None:
            self.fill(answer)

    async def refresh(self) -> dict[str, Any]:
        """The whole job as the server knows it now."""
        return await self._client.get(self.task_id)

    async def state(self) -> str:
        return str((await self.refresh())["state"])

    async def result(self, timeout: float | None = 30) -> Any:
        """Waits up to `timeout` seconds (None: for ever) for the end and returns the result.

        JobFailed when the job ended without one, ResultTimeout when it has not ended.
        """
        return await self._client.result(self.task_id, timeout)

    async def cancel(self) -> dict[str, Any]:
        """Cancels the job; a running one is stopped. Returns its id and state."""
        return await self._client.cancel(self.task_id)

    async def retry(self) -> dict[str, Any]:
        """Gives an ended job another run. Returns its id and state."""
        return await self._client.retry(self.task_id)


class Client:
    """A connection to one rea server, for any number of asyncio tasks and event loops.

    Arguments as in `rea.Client`. What is cancelled while it waits for an answer leaves nothing behind here;
    an enqueue may have reached the server all the same: give it a `key` or a `task_id` where that matters.
    """

    def __init__(self, url: str | None = None, token: str | None = None, timeout: float = 10) -> None:
        self.address = Address(url, token)
        self._transport = Transport(self.address, timeout)
        self.url = self.address.url

    # --- enqueue ---

    @overload
    async def enqueue(self, what: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs) -> Handle: ...

    @overload
    async def enqueue(self, what: str, /, *args: Any, **kwargs: Any) -> Handle: ...  # noqa: F811

    async def enqueue(self, what: Any, /, *args: Any, **kwargs: Any) -> Handle:  # noqa: F811
        """Stores one job: a task, `task.options(...)`, a task's name, or a request of `task.job(...)`."""
        body = _calls.body(_calls.request(what, args, kwargs))
        try:
            return Handle(self, await self.post("/enqueue", _calls.text(body)))
        except ServerUnreachable as error:
            raise _calls.maybe_stored(error, body["task_id"]) from error.__cause__

    async def enqueue_many(self, jobs: Iterable[JobRequest | tuple[Any, ...]]) -> list[Handle]:
        """Stores up to 10,000 jobs, all or none: requests, or tuples (task, args, kwargs)."""
        requests = [_calls.request_of_item(item, index) for index, item in enumerate(jobs)]
        if len(requests) > _calls.BATCH_MAX:
            raise _calls.too_many(len(requests))
        async with self.batch() as batch:
            return [await batch.enqueue(request) for request in requests]

    def batch(self, chunk: int | None = None) -> Batch:
        """`async with client.batch() as b: await b.enqueue(...)`: all stored at its end, or none."""
        return Batch(self, chunk)

    async def post(self, path: str, body: bytes) -> Any:
        """Sends jobs. Repeatable because their ids are made here: a repeat after a lost answer finds them."""
        return await self._transport.exchange("POST", path, body, repeatable=True)

    # --- flows ---

    def flow(
        self,
        name: str,
        *,
        max_attempts: int | None = None,
        retry: str | None = None,
        flow_id: str | UUID | None = None,
    ) -> Flow:
        """A flow to write down and store, as `aio.flow` makes it, on this server."""
        return Flow(self, name, max_attempts, retry, flow_id)

    async def submit_flow(self, flow: Mapping[str, Any]) -> FlowHandle:
        """Stores a flow that is written as for `POST /flows`, or as it stands in a flow file."""
        flow_id, body = _steps.flow_body(flow)
        await self.walk(_steps.submit(body, flow_id))
        return self.flow_handle(flow_id)

    def flow_handle(self, flow_id: str) -> FlowHandle:
        """A flow that is stored, by its id."""
        return FlowHandle(self, _options.task_id("flow_id", flow_id))

    async def walk(self, steps: Steps) -> Any:
        """Asks what the steps ask, and returns what they found."""
        return await _aio_flow.walk(steps, self._transport.exchange)

    # --- ask and steer ---

    async def get(self, task_id: str) -> dict[str, Any]:
        """The job as the server knows it."""
        path = _calls.job_path(task_id)
        found: dict[str, Any] = await self._transport.exchange("GET", path, repeatable=True)
        return found

    async def cancel(self, task_id: str) -> dict[str, Any]:
        """Cancels the job; a running one is stopped. Returns its id and state."""
        return await self._act(task_id, "cancel")

    async def retry(self, task_id: str) -> dict[str, Any]:
        """Gives an ended job another run. Returns its id and state."""
        return await self._act(task_id, "retry")

    async def _act(self, task_id: str, verb: str) -> dict[str, Any]:
        path = f"{_calls.job_path(task_id)}/{verb}"
        answer: dict[str, Any] = await self._transport.exchange("POST", path, b"{}", repeatable=False)
        return answer

    async def result(self, task_id: str, timeout: float | None = 30) -> Any:
        """Waits for the job's end and returns its result; `timeout=None` waits for ever.

        JobFailed when it ended without one, ResultTimeout when it goes on. A server that restarts meanwhile
        is waited for.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            asked_s = time.monotonic()
            left_s = deadline - asked_s
            wait_s = int(min(_calls.WAIT_STEP_S, max(0, left_s)))
            path = f"{_calls.job_path(task_id)}?wait={wait_s}"
            try:
                found = await self._transport.exchange("GET", path, repeatable=True, extra_s=wait_s)
            except ServerUnreachable:
                if left_s <= 0:
                    raise
                await asyncio.sleep(min(0.5, left_s))
                continue
            if _calls.ended(found):
                return found.get("result")
            if left_s <= 0:
                raise _calls.still(task_id, found["state"], timeout)
            if time.monotonic() - asked_s < 0.05:
                # Under a second is left, or the server answers long polls early: do not ask in a tight loop.
                await asyncio.sleep(min(0.05, left_s))

    async def wait(
        self, handles: Iterable[Handle], timeout: float | None = 30, return_exceptions: bool = False
    ) -> list[Any]:
        """Waits up to `timeout` seconds for all of them, and returns their results in that order.

        Each is asked for where it was stored. The first that has no result raises: JobFailed, or
        ResultTimeout when the time is over. With `return_exceptions=True` these stand in the list instead.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        results: list[Any] = []
        for handle in list(handles):
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                results.append(await handle.result(left_s))
            except (JobFailed, ResultTimeout) as error:
                if isinstance(error, ResultTimeout):
                    error = _calls.still(handle.task_id, "not ended", timeout)
                if not return_exceptions:
                    raise error from None
                results.append(error)
        return results

    async def close(self) -> None:
        """Closes the idle connections of this event loop; the client can still be used."""
        self._transport.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<rea asyncio client of {self.url}>"


class Batch(Gathered[Handle]):
    """Gathers jobs and stores them when its `async with` block ends; an error in the block stores none.

    With `chunk=N` they are stored N at a time while the block runs, as `rea.Batch` does it.
    """

    def __init__(self, client: Client, chunk: int | None = None) -> None:
        super().__init__(chunk)
        self._client = client

    @overload
    async def enqueue(self, what: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs) -> Handle: ...

    @overload
    async def enqueue(self, what: str, /, *args: Any, **kwargs: Any) -> Handle: ...  # noqa: F811

    async def enqueue(self, what: Any, /, *args: Any, **kwargs: Any) -> Handle:  # noqa: F811
        """Adds one job, as `aio.enqueue` takes it. Its handle has ids once the batch is stored."""
        handle = Handle(self._client)
        self.gather(handle, what, args, kwargs)
        if self.is_full():
            await self._send()
        return handle

    async def _send(self) -> None:
        body, waiting = self.take()
        if not waiting:
            return
        try:
            fill(waiting, await self._client.post("/jobs", body))
        except BaseException as error:
            self._failed = error
            raise

    async def __aenter__(self) -> Batch:
        return self

    async def __aexit__(self, kind: object, *_error: object) -> None:
        self._closed = True
        if kind is None:
            self.check()
            await self._send()


# --- the default client ---

_default: tuple[client.Client, Client] | None = None


def default_client() -> Client:
    """A client of the server that `rea.connect` names, else of REA_URL."""
    global _default
    chosen = client.default_client()
    if _default is None or _default[0] is not chosen:
        _default = chosen, chosen.for_asyncio()
    return _default[1]


@overload
async def enqueue(what: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs) -> Handle: ...


@overload
async def enqueue(what: str, /, *args: Any, **kwargs: Any) -> Handle: ...  # noqa: F811


async def enqueue(what: Any, /, *args: Any, **kwargs: Any) -> Handle:  # noqa: F811
    """Stores one job on the default server; see `Client.enqueue`."""
    return await default_client().enqueue(what, *args, **kwargs)


async def enqueue_many(jobs: Iterable[JobRequest | tuple[Any, ...]]) -> list[Handle]:
    """Stores many jobs, all or none, on the default server; see `Client.enqueue_many`."""
    return await default_client().enqueue_many(jobs)


def batch(chunk: int | None = None) -> Batch:
    """`async with aio.batch() as b: await b.enqueue(task, ...)`: all stored at its end, or none."""
    return default_client().batch(chunk)


def flow(
    name: str,
    *,
    max_attempts: int | None = None,
    retry: str | None = None,
    flow_id: str | UUID | None = None,
) -> Flow:
    """`async with aio.flow("nightly") as flow:` calls of tasks in the block make nodes; see `rea.flow`."""
    return default_client().flow(name, max_attempts=max_attempts, retry=retry, flow_id=flow_id)


async def wait(
    handles: Iterable[Handle], timeout: float | None = 30, return_exceptions: bool = False
) -> list[Any]:
    """Waits for many jobs and returns their results; see `Client.wait`."""
    handles = list(handles)
    chosen = handles[0]._client if handles else default_client()
    return await chosen.wait(handles, timeout, return_exceptions)
