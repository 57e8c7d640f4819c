# The public names of rea's Python package. Importing it must stay light (it is in every worker's start time),
# so what only a client needs is loaded at first use.
from __future__ import annotations

from .exception import Fatal, JobFailed, RetryableError
from .job import current_job
from .task import Task, task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import aio
    from .client import Batch, Client, Handle, batch, connect, enqueue, enqueue_many, wait
    from .request import JobRequest

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Client",
    "Fatal",
    "Handle",
    "JobFailed",
    "JobRequest",
    "RetryableError",
    "Task",
    "__version__",
    "aio",
    "batch",
    "connect",
    "current_job",
    "enqueue",
    "enqueue_many",
    "task",
    "wait",
]

_FROM_CLIENT = ("Batch", "Client", "Handle", "batch", "connect", "enqueue", "enqueue_many", "wait")


def __getattr__(name: str) -> object:
    if name in _FROM_CLIENT:
        from . import client

        for each in _FROM_CLIENT:
            globals()[each] = getattr(client, each)
    elif name == "JobRequest":
        from .request import JobRequest

        globals()[name] = JobRequest
    elif name in ("aio", "testing"):
        from importlib import import_module

        return import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module 'rea' has no attribute {name!r}")
    return globals()[name]
