# What a job waits for: `depends_on=` and its companions become edges, and edges become what is sent.
from __future__ import annotations

import re
import uuid
from collections.abc import Mapping

from . import _options
from ._node import CALL_WORDS, Node
from .handle import Names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union

    # A node, a handle, a job's id, the name of a node of the same flow.
    Parent = Union[Node, Names, str]

CONDITIONS = ("success", "failure", "finished")

_WHAT = "a node of the flow, the handle or the id of a job, or a list of these"


class Edge:
    """The job waits for `parent`, until it has ended as `on` says."""

    __slots__ = ("on", "parent")

    def __init__(self, parent: Parent, on: str) -> None:
        self.parent = parent
        self.on = on

    def wire(self, field: str, named: str) -> Any:
        return named if self.on == "success" else {field: named, "on": self.on}


def of(depends_on: Any, on_failure: Any, on_finish: Any) -> list[Edge]:
    """The edges that a job's options say; each parent once."""
    for word, value in zip(CALL_WORDS[1:], (on_failure, on_finish)):
        if value not in (None, True, False):
            raise ValueError(f"{word} must be True or False, not {value!r}; name the parent with depends_on=")
        if value and depends_on is None:
            raise ValueError(f"{word}=True needs depends_on=: whose end is waited for?")
    if on_failure and on_finish:
        raise ValueError("give on_failure or on_finish, not both: on_finish is after any end, a failure too")
    if depends_on is None:
        return []
    on = "failure" if on_failure else "finished" if on_finish else "success"
    if isinstance(depends_on, Mapping):
        if on != "success":
            raise ValueError(
                "depends_on={...} says how each parent must end; on_failure and on_finish do not go with it"
            )
        pairs = [
            (_parent(parent), _options.one_of(*CONDITIONS)("depends_on[...]", condition))
            for parent, condition in depends_on.items()
        ]
    elif isinstance(depends_on, (list, tuple, set, frozenset)):
        pairs = [(_parent(parent), on) for parent in depends_on]
    else:
        pairs = [(_parent(depends_on), on)]
    return [Edge(parent, condition) for parent, condition in dict.fromkeys(pairs)]


def _parent(value: Any) -> Parent:
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (Node, Names)) or (isinstance(value, str) and value):
        parent: Parent = value
        return parent
    raise TypeError(f"depends_on must be {_WHAT}, not {value!r}")


def of_job(edges: list[Edge]) -> list[Any]:
    """What is sent with a job by itself, which can wait only for jobs that there are."""
    sent = []
    for edge in edges:
        sent.append(edge.wire("task_id", _options.task_id("depends_on", _id_of(edge.parent))))
    return sent


def _id_of(parent: Parent) -> str:
    if isinstance(parent, str):
        return parent
    if isinstance(parent, Node):
        return parent.task_id
    try:
        return parent.task_id
    except RuntimeError:
        # A job of the same batch: what waits for it is sent along.
        return parent.asked_id


def node_name(value: Any) -> str:
    name = _options.text("name", value)
    if not may_be_name(name):
        raise ValueError(
            f"name={name!r} can't name a node: a job's id would be taken for the job, [number] at the end "
            f"is for the jobs of a map"
        )
    return name


def may_be_name(text: str) -> bool:
    return not is_id(text) and re.search(r"\[\d+\]$", text) is None


def is_id(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
