# The type parameters that tasks, requests and clients share, for type checkers. At run time they mean
# nothing: importing `typing` would cost at each start of a worker.
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Generic

    from typing_extensions import ParamSpec

    P = ParamSpec("P")

    class Enqueueable(Generic[P]):
        """What can be enqueued with the arguments P: a task, a task with options, a request (with none)."""

        __slots__ = ()

else:
    P = None

    class Enqueueable:
        __slots__ = ()

        def __class_getitem__(cls, _parameters):
            return cls
