# Enqueues jobs and asks about them, over HTTP. Loaded at first use only: a worker that enqueues nothing never
# pays.
from __future__ import annotations

import math
import threading
import time

from . import _calls, _options, _steps
from ._address import Address
from ._batch import Batch
from ._http import Transport
from .exception import JobFailed, ResultTimeout, ServerUnreachable
from .handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, overload
    from uuid import UUID

    from . import aio
    from ._flow import Flow, FlowHandle
    from ._generic import Enqueueable, P
    from ._steps import Steps
    from .request import JobRequest
else:

    def overload(func):
        return func


__all__ = [
    "Batch",
    "Client",
    "Handle",
    "batch",
    "connect",
    "default_client",
    "enqueue",
    "enqueue_many",
    "wait",
]


class Client:
    """A connection to one rea server; threads may share it.

    `url` falls back to REA_URL, then to http://127.0.0.1:8000; `token` to the file that REA_TOKEN_FILE
    names, then to REA_TOKEN. `timeout` is how many seconds one answer may take.
    """

    def __init__(self, url: str | None = None, token: str | None = None, timeout: float = 10) -> None:
        self.address = Address(url, token)
        self.timeout = timeout
        self._transport = Transport(self.address, timeout)
        self.url = self.address.url

    # --- enqueue ---

    @overload
    def enqueue(self, what: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs) -> Handle: ...

    @overload
    def enqueue(self, what: str, /, *args: Any, **kwargs: Any) -> Handle: ...  # noqa: F811

    def enqueue(self, what: Any, /, *args: Any, **kwargs: Any) -> Handle:  # noqa: F811
        """Stores one job: a task, `task.options(...)`, a task's name, or a request of `task.job(...)`."""
        body = _calls.body(_calls.request(what, args, kwargs))
        try:
            return Handle(self, self.post("/enqueue", _calls.text(body)))
        except ServerUnreachable as error:
            raise _calls.maybe_stored(error, body["task_id"]) from error.__cause__

    def enqueue_many(self, jobs: Iterable[JobRequest | tuple[Any, ...]]) -> list[Handle]:
        """Stores up to 10,000 jobs, all or none: requests, or tuples (task, args, kwargs)."""
        requests = [_calls.request_of_item(item, index) for index, item in enumerate(jobs)]
        if len(requests) > _calls.BATCH_MAX:
            raise _calls.too_many(len(requests))
        with self.batch() as batch:
            return [batch.enqueue(request) for request in requests]

    def batch(self, chunk: int | None = None) -> Batch:
        """`with client.batch() as b: b.enqueue(...)`: up to 10,000 jobs, all stored at its end or none."""
        return Batch(self, chunk)

    def post(self, path: str, body: bytes) -> Any:
        """Sends jobs. Repeatable because their ids are made here: a repeat after a lost answer finds them."""
        return self._transport.exchange("POST", path, body, repeatable=True)

    # --- flows ---

    def flow(
        self,
        name: str,
        *,
        max_attempts: int | None = None,
        retry: str | None = None,
        flow_id: str | UUID | None = None,
    ) -> Flow:
        """A flow to write down and store, as `rea.flow` makes it, on this server."""
        from ._flow import Flow

        return Flow(self, name, max_attempts, retry, flow_id)

    def submit_flow(self, flow: Mapping[str, Any]) -> FlowHandle:
        """Stores a flow that is written as for `POST /flows`, or as it stands in a flow file."""
        flow_id, body = _steps.flow_body(flow)
        self.walk(_steps.submit(body, flow_id))
        return self.flow_handle(flow_id)

    def flow_handle(self, flow_id: str) -> FlowHandle:
        """A flow that is stored, by its id."""
        from ._flow import FlowHandle

        return FlowHandle(self, _options.task_id("flow_id", flow_id))

    def walk(self, steps: Steps) -> Any:
        """Asks what the steps ask, and returns what they found."""
        return _steps.walk(steps, self._transport.exchange)

    # --- ask and steer ---

    def get(self, task_id: str) -> dict[str, Any]:
        """The job as the server knows it."""
        found: dict[str, Any] = self._transport.exchange("GET", _calls.job_path(task_id), repeatable=True)
        return found

    def cancel(self, task_id: str) -> dict[str, Any]:
        """Cancels the job; a running one is stopped. Returns its id and state."""
        return self._act(task_id, "cancel")

    def retry(self, task_id: str) -> dict[str, Any]:
        """Gives an ended job another run. Returns its id and state."""
        return self._act(task_id, "retry")

    def _act(self, task_id: str, verb: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._transport.exchange(
            "POST", f"{_calls.job_path(task_id)}/{verb}", b"{}", repeatable=False
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
            wait_s = int(min(_calls.WAIT_STEP_S, max(0, left_s)))
            try:
                found = self._transport.exchange(
                    "GET", f"{_calls.job_path(task_id)}?wait={wait_s}", repeatable=True, extra_s=wait_s
                )
            except ServerUnreachable:
                if left_s <= 0:
                    raise
                time.sleep(min(0.5, left_s))
                continue
            if _calls.ended(found):
                return found.get("result")
            if left_s <= 0:
                raise _calls.still(task_id, found["state"], timeout)
            if time.monotonic() - asked_s < 0.05:
                # Under a second is left, or the server answers long polls early: do not ask in a tight loop.
                time.sleep(min(0.05, left_s))

    def wait(
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
                results.append(handle.result(left_s))
            except (JobFailed, ResultTimeout) as error:
                if isinstance(error, ResultTimeout):
                    error = _calls.still(handle.task_id, "not ended", timeout)
                if not return_exceptions:
                    raise error from None
                results.append(error)
        return results

    def for_asyncio(self) -> aio.Client:
        """A client for asyncio of the same server."""
        from .aio import Client

        return Client(self.url, self.address.token, self.timeout)

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


@overload
def enqueue(what: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs) -> Handle: ...


@overload
def enqueue(what: str, /, *args: Any, **kwargs: Any) -> Handle: ...  # noqa: F811


def enqueue(what: Any, /, *args: Any, **kwargs: Any) -> Handle:  # noqa: F811
    """Stores one job on the default server; see `Client.enqueue`."""
    return default_client().enqueue(what, *args, **kwargs)


def enqueue_many(jobs: Iterable[JobRequest | tuple[Any, ...]]) -> list[Handle]:
    """Stores many jobs, all or none, on the default server; see `Client.enqueue_many`."""
    return default_client().enqueue_many(jobs)


def batch(chunk: int | None = None) -> Batch:
    """`with rea.batch() as b: b.enqueue(task, ...)`: all stored at its end, or none; see `Client.batch`."""
    return default_client().batch(chunk)


def wait(handles: Iterable[Handle], timeout: float | None = 30, return_exceptions: bool = False) -> list[Any]:
    """Waits for many jobs and returns their results; see `Client.wait`."""
    handles = list(handles)
    # Any client will do; a program that made its own may have no default one.
    client = handles[0]._client if handles else default_client()
    return client.wait(handles, timeout, return_exceptions)
