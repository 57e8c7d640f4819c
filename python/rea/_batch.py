# Many jobs enqueued together: `with rea.batch() as b: b.enqueue(...)`. All are stored or none.
from __future__ import annotations

from . import _calls, _options
from .handle import Handle, Names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Generic, TypeVar, overload

    from ._generic import Enqueueable, P
    from .client import Client

    H = TypeVar("H", bound=Names)

    class _Typed(Generic[H]):
        pass

else:
    H = None

    class _Typed:
        def __class_getitem__(cls, _parameters):
            return cls

    def overload(func):
        return func


__all__ = ["Batch"]

# Below what the server takes in one request (32 MiB), so that a chunk of big jobs is cut in time.
CHUNK_BYTES = 16 * 1024 * 1024


class Gathered(_Typed[H]):
    """Jobs that wait to be sent together; how they are sent is not known here."""

    def __init__(self, chunk: int | None) -> None:
        self._chunk = None if chunk is None else _options.whole("chunk", chunk, 1, _calls.BATCH_MAX)
        self._texts: list[bytes] = []
        self._waiting: list[H] = []
        self._bytes = 0
        self._closed = False
        self._failed: BaseException | None = None
        #: Every job of the batch, in the order of the calls.
        self.handles: list[H] = []

    def check(self) -> None:
        """A chunk that failed is gone from here: to go on as if nothing were lost would lose it silently."""
        if self._failed is not None:
            raise RuntimeError(
                "a chunk of this batch was not stored; send the rest in a new batch"
            ) from self._failed

    def gather(self, handle: H, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.check()
        if self._closed:
            raise RuntimeError("the batch is closed: enqueue inside its `with` block")
        if self._chunk is None and len(self._texts) == _calls.BATCH_MAX:
            raise _calls.too_many(_calls.BATCH_MAX + 1)
        # Turned into text at once: a wrong argument is told where it was given, a later change has no effect.
        body = _calls.body(_calls.request(what, args, kwargs))
        text = _calls.text(body)
        handle.asked_id = body["task_id"]
        self._texts.append(text)
        self._waiting.append(handle)
        self._bytes += len(text)
        self.handles.append(handle)

    def is_full(self) -> bool:
        """Whether a chunk must be sent before more comes."""
        return self._chunk is not None and (len(self._texts) >= self._chunk or self._bytes >= CHUNK_BYTES)

    def take(self) -> tuple[bytes, list[H]]:
        """What is to be sent now, and whose ids the answer tells. More may come while it is sent."""
        body, waiting = b"[" + b",".join(self._texts) + b"]", self._waiting
        self._texts, self._waiting, self._bytes = [], [], 0
        return body, waiting


def fill(waiting: list[H], answer: dict[str, Any]) -> None:
    for handle, one in zip(waiting, answer["jobs"]):
        handle.fill(one)


class Batch(Gathered[Handle]):
    """Gathers jobs and stores them when its `with` block ends; an error in the block stores none.

    With `chunk=N` they are stored N at a time while the block runs, each chunk all or none; then there may be
    any number of them, and those of earlier chunks stay when a later one fails.
    """

    def __init__(self, client: Client, chunk: int | None = None) -> None:
        super().__init__(chunk)
        self._client = client

    @overload
    def enqueue(self, what: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs) -> Handle: ...

    @overload
    def enqueue(self, what: str, /, *args: Any, **kwargs: Any) -> Handle: ...  # noqa: F811

    def enqueue(self, what: Any, /, *args: Any, **kwargs: Any) -> Handle:  # noqa: F811
        """Adds one job, as `rea.enqueue` takes it. Its handle has ids once the batch is stored."""
        handle = Handle(self._client)
        self.gather(handle, what, args, kwargs)
        if self.is_full():
            self._send()
        return handle

    def _send(self) -> None:
        body, waiting = self.take()
        if not waiting:
            return
        try:
            fill(waiting, self._client.post("/jobs", body))
        except BaseException as error:
            self._failed = error
            raise

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        self._closed = True
        if kind is None:
            self.check()
            self._send()
