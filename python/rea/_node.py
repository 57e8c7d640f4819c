# A node of a flow, as the code that writes the flow down holds it: it stands where its result will be. And
# which flow is being written down here. Loaded at every worker start: it stays small.
from __future__ import annotations

from contextvars import ContextVar

from ._jsontext import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from ._graph import Graph

__all__ = ["CALL_WORDS", "Node", "current_flow", "open_flow", "refuse_outside"]

# The flow whose `with` block this code runs in: there a call of a task makes a node.
open_flow: ContextVar[Graph | None] = ContextVar("rea_flow", default=None)


def current_flow() -> Graph | None:
    """The flow that a call of a task here goes into; None: the call just calls."""
    graph = open_flow.get()
    return None if graph is None or graph.closed else graph


# What a call of a task in a flow may say about the node, beside the function's own arguments.
CALL_WORDS = ("depends_on", "on_failure", "on_finish")


class Node(Place):
    """One node of a flow. Passed to another task of the flow it stands for its result."""

    __slots__ = ("_graph", "name")

    json_hint = (
        "only a task of its flow can take it: call the task in the flow's `with` block, without enqueue"
    )

    def __init__(self, graph: Graph, name: str) -> None:
        self._graph = graph
        self.name = name

    @property
    def task_id(self) -> str:
        """The id of its job in the first run. RuntimeError while the flow is not stored."""
        return str(self._graph.job(self.name)["task_id"])

    def __repr__(self) -> str:
        return f"<rea node {self.name} of flow {self._graph.name}>"

    # What code does to a value that it takes for the result: each would go wrong quietly, or far from here.
    # More of it stands below the class.

    def __format__(self, spec: str) -> str:
        raise self._no_value("put into a text")

    def __str__(self) -> str:
        raise self._no_value("put into a text")

    def __eq__(self, other: object) -> bool:
        # Nodes are kept in lists and looked for there: among themselves they are the same or another.
        if isinstance(other, Node):
            return self is other
        raise self._no_value("compared")

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise self._no_value("asked whether it is true")

    def __iter__(self) -> NoReturn:
        raise self._no_value("gone through", "; over the items of its result: task.map(node)")

    def __getitem__(self, _key: object) -> NoReturn:
        raise self._no_value("looked into")

    def __await__(self) -> NoReturn:
        raise self._no_value("awaited", ", without await")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"{self!r} has no {name!r}: it stands for a result that is there when its job has run"
            )

    def _no_value(self, what: str, hint: str = "") -> TypeError:
        return TypeError(
            f"{self!r} can't be {what}: its result is there when its job has run; pass it to a task{hint}"
        )


def _refusing(what: str, hint: str = "") -> Any:
    def refuse(self: Node, *_others: object) -> NoReturn:
        raise self._no_value(what, hint)

    return refuse


_REFUSED = {
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod divmod rdivmod pow rpow matmul rmatmul "
    "and rand or ror xor rxor lshift rlshift rshift rrshift neg pos abs invert": _refusing("calculated with"),
    "lt le gt ge": _refusing("compared"),
    "int float complex index": _refusing("made a number"),
    "len": _refusing("asked for its length"),
    "contains setitem delitem": _refusing("looked into"),
    "call": _refusing("called"),
}
for _names, _refuse in _REFUSED.items():
    for _name in _names.split():
        setattr(Node, f"__{_name}__", _refuse)


def refuse_outside(name: str, takes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """TypeError for a call outside a block that was meant to be inside. `takes(word)`: the function does."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Node):
            raise TypeError(
                f"{name} was called with {value!r} outside the flow's `with` block, where it just runs; "
                f"move the call into the block"
            )
    for word in CALL_WORDS:
        if word in kwargs and not takes(word):
            raise TypeError(
                f"{name} was called with {word}= outside a flow, where it just runs; call it inside "
                f'`with rea.flow("name"):`, or use .options({word}=...).enqueue(...)'
            )
