# A job that was enqueued, as the one who enqueued it holds it.
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .client import Client


class Handle:
    """One job on the server. Holds only names; what it answers is asked for each time."""

    __slots__ = ("_client", "created", "task_id", "trace_id")

    def __init__(self, client: Client, task_id: str, trace_id: str, created: bool) -> None:
        self._client = client
        self.task_id = task_id
        self.trace_id = trace_id
        #: False when an earlier job with the same key was found instead.
        self.created = created

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

    def __repr__(self) -> str:
        return f"<rea handle {self.task_id}>"
