# Flows for threads: `with rea.flow("nightly") as flow:` writes one down and stores it; later it can be asked.
from __future__ import annotations

from . import _node, _steps, client
from ._graph import Graph
from .handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any
    from uuid import UUID

    from ._steps import Steps
    from .client import Client

__all__ = ["Flow", "FlowHandle", "Node", "flow"]


class FlowHandle:
    """One flow on the server, all its runs. Holds only names; what it answers is asked for each time."""

    def __init__(self, client: Client, flow_id: str) -> None:
        self._client = client
        self.id = flow_id
        # Nodes over a list given with the flow: what the server shows of an empty one is nothing.
        self._lists: Iterable[str] = ()

    def _ask(self, steps: Steps) -> Any:
        return self._client.walk(steps)

    def refresh(self) -> dict[str, Any]:
        """The newest run as the server knows it now, with its nodes."""
        found: dict[str, Any] = self._ask(_steps.newest(self.id))
        return found

    def state(self) -> str:
        """ "running", "success", "dead" or "cancelled": of the newest run."""
        return str(self.refresh()["state"])

    def wait(self, timeout: float | None = 30) -> str:
        """Waits up to `timeout` seconds (None: for ever) for the end of all the runs that it has by itself,
        and returns the state then. ResultTimeout when it goes on.
        """
        return str(self._ask(_steps.wait(self.id, timeout))["state"])

    def result(self, timeout: float | None = 30) -> dict[str, Any]:
        """Waits as `wait` does and returns {name of the node: its result}; a map's is a list. Nodes that were
        skipped are not in it. FlowFailed when the flow ended as dead or cancelled.
        """
        found: dict[str, Any] = self._ask(_steps.flow_results(self.id, self._lists, timeout))
        return found

    def retry(self, from_start: bool = False) -> FlowHandle:
        """Runs an ended flow again: what failed and all below it, or everything. Returns the new run."""
        return FlowHandle(self._client, self._ask(_steps.retry(self.id, from_start))["flow_id"])

    def cancel(self) -> dict[str, Any]:
        """Cancels what has not ended; running jobs are stopped. Returns how many: `cancelled`, `stopping`."""
        found: dict[str, Any] = self._ask(_steps.cancel(self.id))
        return found

    def node_state(self, name: str) -> str:
        """The state of a node in the newest run that has it; of a map: of its jobs together."""
        return str(self._ask(_steps.node_state(self.id, name, self._lists)))

    def node_result(self, name: str, timeout: float | None = 30) -> Any:
        """Waits for one node's result. JobFailed when it has none and the flow does not try again."""
        return self._ask(_steps.node_result(self.id, name, self._lists, timeout))

    def __repr__(self) -> str:
        return f"<rea flow {self.id}>"


class Node(_node.Node):
    """One node of a flow. In the block it stands for its result; when the flow is stored it can be asked."""

    __slots__ = ("_flow",)

    _flow: FlowHandle

    def handle(self) -> Handle:
        """Its job in the first run."""
        return Handle(self._flow._client, self._graph.job(self.name))

    def state(self) -> str:
        """Its state in the newest run that has it; of a map: that of its jobs together."""
        self._graph.must_be_stored(self.name)
        return self._flow.node_state(self.name)

    def result(self, timeout: float | None = 30) -> Any:
        """Waits up to `timeout` seconds (None: for ever) for the result; a map's is a list.

        JobFailed when it has none and the flow does not try again, ResultTimeout when it goes on.
        """
        self._graph.must_be_stored(self.name)
        return self._flow.node_result(self.name, timeout)


class Flow(FlowHandle):
    """A flow that is written down in its `with` block and stored, whole or not at all, at the block's end."""

    def __init__(
        self,
        client: Client,
        name: str,
        max_attempts: int | None = None,
        retry: str | None = None,
        flow_id: str | UUID | None = None,
    ) -> None:
        self._graph = Graph(name, max_attempts, retry, flow_id, self._new_node)
        super().__init__(client, self._graph.id)
        self.name = self._graph.name
        self._lists = self._graph.lists
        #: False when the flow was there before, by its `flow_id`.
        self.created = False

    def _new_node(self, graph: Graph, name: str) -> Node:
        node = Node(graph, name)
        node._flow = self
        return node

    def _ask(self, steps: Steps) -> Any:
        self._graph.must_be_stored()
        return super()._ask(steps)

    def add(self, what: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A node for what `rea.enqueue` takes: for a task that this program does not have, its name or a
        request: `flow.add(rea.JobRequest("module:function", (node,), depends_on=other))`.
        """
        return self._graph.add_any(what, args, kwargs)

    @property
    def nodes(self) -> dict[str, Node]:
        """The nodes by their names, in the order of the calls."""
        return dict(self._graph.nodes)  # type: ignore[arg-type]

    def __enter__(self) -> Flow:
        self._graph.open()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        text = self._graph.close(error)
        if text is not None:
            answer = self._client.walk(_steps.submit(text, self.id))
            self.created = bool(answer["created"])
            self._graph.stored(answer)

    def __repr__(self) -> str:
        return f"<rea flow {self.name} {self.id}>"


def flow(
    name: str,
    *,
    max_attempts: int | None = None,
    retry: str | None = None,
    flow_id: str | UUID | None = None,
) -> Flow:
    """`with rea.flow("nightly", max_attempts=3) as flow:` calls of tasks in the block make nodes.

    `max_attempts` runs at most, when the flow dies; each makes anew what `retry` says: "failed" (what
    failed, and all below it) or "all". With a `flow_id` of your own, a UUID, storing it again finds the one
    that is there.
    """
    return client.default_client().flow(name, max_attempts=max_attempts, retry=retry, flow_id=flow_id)
