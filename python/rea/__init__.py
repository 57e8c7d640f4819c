# The public names of rea's Python package. Importing it must stay light (it is in every worker's start time),
# so what only a client needs is loaded at first use.
from __future__ import annotations

from .exception import Fatal, FlowFailed, JobFailed, RetryableError
from .job import current_job
from .task import Task, task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import aio
    from ._flow import Flow, FlowHandle, Node, flow
    from .client import Batch, Client, Handle, batch, connect, enqueue, enqueue_many, wait
    from .request import JobRequest

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Client",
    "Fatal",
    "Flow",
    "FlowFailed",
    "FlowHandle",
    "Handle",
    "JobFailed",
    "JobRequest",
    "Node",
    "RetryableError",
    "Task",
    "__version__",
    "aio",
    "batch",
    "connect",
    "current_job",
    "enqueue",
    "enqueue_many",
    "flow",
    "task",
    "wait",
]

_FROM = {
    "_flow": ("Flow", "FlowHandle", "Node", "flow"),
    "client": ("Batch", "Client", "Handle", "batch", "connect", "enqueue", "enqueue_many", "wait"),
    "request": ("JobRequest",),
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in ("aio", "testing"):
        return import_module(f".{name}", __name__)
    for module, names in _FROM.items():
        if name in names:
            loaded = import_module(f".{module}", __name__)
            for each in names:
                globals()[each] = getattr(loaded, each)
            return globals()[name]
    raise AttributeError(f"module 'rea' has no attribute {name!r}")
