# The exceptions of rea: those a job raises to say how it failed, and those a client raises.
# Nothing here may import anything heavy: every worker loads it at start.
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta
    from typing import Any

__all__ = [
    "Fatal",
    "FlowFailed",
    "JobFailed",
    "ReaError",
    "Refused",
    "ResultTimeout",
    "RetryableError",
    "ServerUnreachable",
    "Stopped",
]


# --- raised inside a job ---


class RetryableError(Exception):
    """The job failed for a reason that may pass: try it again while attempts are left.

    `after` is the wait before the next attempt, in seconds (or a timedelta); without it the task's backoff
    decides.
    """

    # On the class too, so that a subclass that never calls our __init__ still works.
    after: float | None = None

    def __init__(self, *args: object, after: float | timedelta | None = None) -> None:
        super().__init__(*args)
        if after is not None:
            total_seconds = getattr(after, "total_seconds", None)
            seconds = float(total_seconds() if total_seconds is not None else after)  # type: ignore[arg-type]
            if not 0 <= seconds < float("inf"):
                raise ValueError(
                    f"RetryableError(after=...) must be a number of seconds from 0 on, not {after!r}"
                )
            self.after = seconds


class Fatal(Exception):
    """The job failed for good: do not try again, whatever the task's retry_on says."""


class Stopped(BaseException):
    """The job is being stopped (timeout, cancel, shutdown); raised so that `finally` blocks run.

    Not an Exception, so that `except Exception` does not swallow it. After it a short grace time is left.
    """


# --- raised by a client ---


class ReaError(Exception):
    """Anything that goes wrong between this program and the rea server."""


class ServerUnreachable(ReaError, ConnectionError):
    """No answer from the server: it is not running, the address is wrong, or it took too long.

    A ConnectionError, so that a job that enqueues others is tried again.
    """


class Refused(ReaError):
    """The server answered and said no."""

    def __init__(self, code: str, detail: str, status: int, hint: str | None = None) -> None:
        super().__init__(code, detail, status, hint)
        self.code = code
        self.detail = detail
        self.status = status
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.detail} [{self.code}, HTTP {self.status}]"
        return f"{text}\nhint: {self.hint}" if self.hint else text


def _error_text(error: Mapping[str, Any], otherwise: str) -> str:
    """`TYPE: message`; a message that begins with the type ("upstream a is dead") stands alone."""
    kind = error.get("type") or error.get("cause") or otherwise
    message = error.get("message") or ""
    return message if message.startswith((f"{kind} ", f"{kind}:")) else f"{kind}: {message}"


class JobFailed(ReaError):
    """The job whose result was asked for has none: it is dead, cancelled, skipped or held."""

    def __init__(self, task_id: str, state: str, last_error: Mapping[str, Any] | None = None) -> None:
        super().__init__(task_id, state, last_error)
        self.task_id = task_id
        self.state = state
        self.last_error = last_error

    def __str__(self) -> str:
        text = f"job {self.task_id} is {self.state}"
        if not self.last_error:
            return text
        return f"{text}: {_error_text(self.last_error, 'error')}"


class FlowFailed(ReaError):
    """The flow whose results were asked for has ended as "dead" or "cancelled", after all its runs."""

    def __init__(
        self, flow_id: str, name: str, state: str, runs: int, errors: Mapping[str, Mapping[str, Any] | None]
    ) -> None:
        super().__init__(flow_id, name, state, runs, errors)
        self.flow_id = flow_id
        self.name = name
        self.state = state
        self.runs = runs
        #: The nodes that ended so, each with its last error.
        self.errors = errors

    def __str__(self) -> str:
        runs = f" after {self.runs} runs" if self.runs > 1 else ""
        lines = [f"flow {self.name} ({self.flow_id}) is {self.state}{runs}"]
        for node, error in list(self.errors.items())[:3]:
            lines.append(f"{node}: {_error_text(error or {}, self.state)}")
        if len(self.errors) > 3:
            lines.append(f"and {len(self.errors) - 3} more")
        return "; ".join(lines)


class ResultTimeout(ReaError, TimeoutError):
    """The job or flow had not ended when the wait for its result was over. It goes on; ask again."""
