# A job that was enqueued, as the one who enqueued it holds it.
from __future__ import annotations

from ._jsontext import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .client import Client


class Names(Place):
    """What a handle knows by itself: the job's names. Those of a batch are known once the batch is stored."""

    __slots__ = ("asked_id", "created", "task_id", "trace_id")

    json_hint = (
        "pass handle.result(), or handle.task_id; a task that is called in a flow takes the handle itself"
    )

    task_id: str
    trace_id: str
    #: The id that was sent: another one than `task_id` where a key had its job already.
    asked_id: str
    #: False when an earlier job with the same key was found instead.
    created: bool

    def fill(self, answer: dict[str, Any]) -> None:
        self.task_id = answer["task_id"]
        self.trace_id = answer["trace_id"]
        self.created = bool(answer.get("created", True))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Only asked for what is not set.
            if name in Names.__slots__:
                raise RuntimeError(
                    "this job is not stored: the jobs of a batch are, and have their ids, "
                    "when its `with` block has ended without an error"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        try:
            return f"<rea handle {self.task_id}>"
        except RuntimeError:
            return "<rea handle of a job that is not stored>"


class Handle(Names):
    """One job on the server. Holds only names; what it answers is asked for each time."""

    __slots__ = ("_client",)

    def __init__(self, client: Client, answer: dict[str, Any] | None = None) -> None:
        self._client = client
        if answer is not None:
            self.fill(answer)

    def refresh(self) -> dict[str, Any]:
        """The whole job as the server knows it now."""
        return self._client.get(self.task_id)

    def state(self) -> str:
        return str(self.refresh()["state"])

    def result(self, timeout: float | None = 30) -> Any:
        """Waits up to `timeout` seconds (None: for ever) for the end and returns the result.

        JobFailed when the job ended without one, ResultTimeout when it has not ended.
        """
        return self._client.result(self.task_id, timeout)

    def cancel(self) -> dict[str, Any]:
        """Cancels the job; a running one is stopped. Returns its id and state."""
        return self._client.cancel(self.task_id)

    def retry(self) -> dict[str, Any]:
        """Gives an ended job another run. Returns its id and state."""
        return self._client.retry(self.task_id)
