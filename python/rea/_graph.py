# A flow while it is written down: its nodes, as the text that will be sent. Knows no server.
from __future__ import annotations

import difflib

from . import _calls, _edges, _jsontext, _options, job
from ._jsontext import Place
from ._node import CALL_WORDS, Node, current_flow, open_flow
from .handle import Names
from .request import JobRequest, Options
from .task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextvars import Token
    from typing import Any, Callable
    from uuid import UUID

    from ._edges import Edge, Parent

__all__ = ["Graph"]

RETRIES = ("failed", "all")
RUNS_MAX = 1_000_000
# An object whose first key is one of these stands for a value that comes later.
MARKERS = ("$result", "$item", "$map")
NAME_ROOM = _options.NAME_MAX - 12  # for the number behind a name that is there already, and for `[99999]`


class _Item(Place):
    """The item that one job of a map gets."""

    __slots__ = ()


ITEM = _Item()


class Graph:
    """What is known of a flow here: its settings, its nodes in the order of the calls, what became of it."""

    def __init__(
        self,
        name: str,
        max_attempts: int | None,
        retry: str | None,
        flow_id: str | UUID | None,
        node: Callable[[Graph, str], Node],
    ) -> None:
        self.name = _options.text("the flow's name", name)
        self.id = _calls.new_task_id() if flow_id is None else _options.task_id("flow_id", flow_id)
        self._head: dict[str, Any] = {"name": self.name, "flow_id": self.id}
        if max_attempts is not None:
            self._head["max_attempts"] = _options.whole("max_attempts", max_attempts, 1, RUNS_MAX)
        if retry is not None:
            self._head["retry"] = _options.one_of(*RETRIES)("retry", retry)
        self._new_node = node
        self._texts: list[bytes] = []
        self._counts: dict[str, int] = {}
        self._token: Token[Graph | None] | None = None
        #: Asyncio tasks that began in the block go on after it: calls in them just call.
        self.closed = False
        #: By name, in the order of the calls.
        self.nodes: dict[str, Node] = {}
        #: Names of the nodes that are run over a list that was given with them: their jobs are many.
        self.lists: dict[str, int] = {}
        #: What the server has answered: the job of each node by its name. None: not stored.
        self.jobs: dict[str, dict[str, Any]] | None = None
        #: Why it will never be stored.
        self.dropped = ""

    # --- the with block ---

    def open(self) -> None:
        """From here on calls of tasks make nodes."""
        if self._token is not None:
            raise RuntimeError(
                f"flow {self.name!r} was written down before; make another one with rea.flow(...)"
            )
        around = current_flow()
        if around is not None:
            raise RuntimeError(
                f"flow {self.name!r} begins in the block of flow {around.name!r}, where a call may belong "
                f"to either; let the first end before, or call what opens the second in a task"
            )
        self._token = open_flow.set(self)

    def close(self, error: BaseException | None) -> bytes | None:
        """The end of the block: the text to send, or None when an error in it lets nothing be stored."""
        assert self._token is not None
        open_flow.reset(self._token)
        self.closed = True
        if error is not None:
            self.dropped = f"its `with` block ended with {type(error).__name__}"
            return None
        if not self.nodes:
            self.dropped = "it has no nodes"
            raise ValueError(f"flow {self.name!r} has no nodes: call tasks in its `with` block")
        root_id = job.current_root_id()
        if root_id is not None:
            self._head["root_id"] = root_id
        self.dropped = "the server has not confirmed it"
        head = _jsontext.to_bytes(self._head, f"flow {self.name!r}")
        return head[:-1] + b',"nodes":[' + b",".join(self._texts) + b"]}"

    def stored(self, answer: dict[str, Any]) -> None:
        self.jobs = {one["node"]: one for one in answer["jobs"]}
        self._texts = []

    def must_be_stored(self, node: str | None = None) -> dict[str, dict[str, Any]]:
        if self.jobs is None:
            why = self.dropped or "its `with` block has not ended"
            of_node = f"node {node!r} has no job: " if node is not None else ""
            raise RuntimeError(f"{of_node}flow {self.name!r} is not stored: {why}")
        return self.jobs

    def job(self, name: str) -> dict[str, Any]:
        """The ids of a node's job in the first run."""
        jobs = self.must_be_stored(name)
        if name in self.lists:
            raise RuntimeError(
                f"node {name!r} is run over a list and has a job for each item: {name}[0] and so on"
            )
        return jobs[name]

    # --- nodes ---

    def add_any(self, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        """A node for what can be enqueued: a task, a task with options, a task's name, a request."""
        if isinstance(what, str):
            words = {word: kwargs.pop(word) for word in CALL_WORDS if word in kwargs}
            return self.add(JobRequest(what, args, kwargs, **words))
        if isinstance(what, (Task, Options)):
            options = what if isinstance(what, Options) else Options(what, {})
            return self.add(options.in_flow(args, kwargs))
        return self.add(_calls.request(what, args, kwargs))

    def map(self, request: JobRequest, items: Any) -> Node:
        """A node whose task runs once for each item; `request` has ITEM where it goes."""
        if isinstance(items, Node):
            return self.add(request, {"result": self._reference(items, "the list of the map")})
        if isinstance(items, Names):
            return self.add(request, {"result": items.task_id})
        if isinstance(items, (str, bytes)) or hasattr(items, "keys") or not hasattr(items, "__iter__"):
            raise TypeError(f"map takes a list, or a node whose result is one, not {items!r}")
        items = list(items)
        if any(isinstance(item, Place) for item in items):
            raise TypeError(
                "map takes values, or one node whose result is a list; for a list of nodes call the "
                "task with each: [task(node) for node in nodes]"
            )
        return self.add(request, items)

    def add(self, request: JobRequest, over: Any = None) -> Node:
        """Adds a node. Turned into text at once: what is wrong is told here, a later change has no effect."""
        if self._token is None or self.closed:
            raise RuntimeError(f"flow {self.name!r} takes nodes in its `with` block only")
        if len(self.nodes) == _calls.BATCH_MAX:
            raise ValueError(
                f"flow {self.name!r} has more than {_calls.BATCH_MAX:,} nodes; run a list with task.map"
            )
        options = dict(request.options)
        edges: list[Edge] = options.pop("edges", [])
        name = self._name(request.task, options.pop("name", None))
        texts = [_jsontext.to_bytes({"name": name, "task": request.task, **options}, f"node {name!r}")[:-1]]
        if edges:
            sent = [edge.wire("node", self._reference(edge.parent, "depends_on")) for edge in edges]
            texts.append(b'"depends_on":' + _jsontext.encode(sent).encode())
        texts += self._arguments(request)
        if over is not None:
            where = f"the list of {request.task}.map"
            texts.append(
                b'"map":'
                + (_jsontext.encode(over).encode() if type(over) is dict else self._text(where, over))
            )
        if type(over) is list:
            self.lists[name] = len(over)
        self._texts.append(b",".join(texts) + b"}")
        self.nodes[name] = node = self._new_node(self, name)
        return node

    def _name(self, task: str, chosen: str | None) -> str:
        if chosen is not None:
            if chosen in self.nodes:
                raise ValueError(
                    f"flow {self.name!r} has a node {chosen!r} already; its name must be another"
                )
            return chosen
        base = task.rsplit(":", 1)[-1][:NAME_ROOM]
        if not _edges.may_be_name(base):
            base = f"{base}_1"
        name = base
        while name in self.nodes:
            self._counts[base] = self._counts.get(base, 1) + 1
            name = f"{base}_{self._counts[base]}"
        return name

    def _arguments(self, request: JobRequest) -> list[bytes]:
        args = [
            self._text(f"argument {index} of {request.task}", value)
            for index, value in enumerate(request.args, 1)
        ]
        kwargs = [
            _jsontext.to_bytes(name, "the name of an argument")
            + b":"
            + self._text(f"argument {name} of {request.task}", value)
            for name, value in request.kwargs.items()
        ]
        return [b'"args":[' + b",".join(args) + b"]", b'"kwargs":{' + b",".join(kwargs) + b"}"]

    def _text(self, where: str, value: Any) -> bytes:
        places = 0
        wrong: list[Exception] = []

        def place(found: Any) -> Any:
            nonlocal places
            if not isinstance(found, Place):
                raise TypeError
            places += 1
            if found is ITEM:
                return {"$item": True}
            try:
                return {"$result": self._reference(found, where)}
            except Exception as error:
                wrong.append(error)
                raise

        try:
            text = _jsontext.to_bytes(value, where, place)
        except _jsontext.NotJson as error:
            if wrong:
                raise wrong[0] from None
            raise TypeError(str(error)) from None
        if sum(text.count(b'{"%s"' % marker.encode()) for marker in MARKERS) != places:
            raise ValueError(
                f"{where}: {_marker_path(value) or 'it'} is a dict whose first key is one of "
                f"{', '.join(MARKERS)}, which in a flow stands for another job's result; rename the key"
            )
        return text

    def _reference(self, parent: Parent | Place, where: str) -> str:
        """How a node or a job that there is is called in the text."""
        if isinstance(parent, str):
            if parent in self.nodes:
                return parent
            if _edges.is_id(parent):
                return _options.task_id(where, parent)
            near = difflib.get_close_matches(parent, self.nodes, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{where}: flow {self.name!r} has no node {parent!r} yet{hint}")
        if isinstance(parent, Node):
            if parent._graph is self:
                return parent.name
            if parent._graph.jobs is None:
                raise ValueError(
                    f"{where}: {parent!r} belongs to another flow, which is not stored; a node can wait for "
                    f"nodes of its own flow, {self.name!r}, and for jobs that there are"
                )
            return parent.task_id
        assert isinstance(parent, Names)
        return parent.task_id


def _marker_path(value: Any, path: str = "") -> str | None:
    """Where in `value` a dict looks like a marker."""
    if isinstance(value, dict):
        if next(iter(value), None) in MARKERS:
            return path
        inside = [(f"[{key!a}]", item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        inside = [(f"[{index}]", item) for index, item in enumerate(value)]
    else:
        return None
    found = (_marker_path(item, path + step) for step, item in inside)
    return next((each for each in found if each is not None), None)
