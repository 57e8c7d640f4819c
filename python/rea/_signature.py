# What rea needs to know about a task's function, read from its code object: `inspect` alone would cost a
# worker some milliseconds at each start.
from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Sized
    from typing import Any, Callable

_HAS_ARGS = 0x04  # inspect.CO_VARARGS
_HAS_KWARGS = 0x08  # inspect.CO_VARKEYWORDS
_GENERATOR = 0x20
_COROUTINE = 0x80
_ASYNC_GENERATOR = 0x200


def refuse_what_cannot_run(func: Any) -> None:
    """TypeError for anything that is not a plain function at the top level of a module."""
    name = getattr(func, "__qualname__", None)
    if (
        isinstance(func, type)
        or not callable(func)
        or not isinstance(name, str)
        or not hasattr(func, "__module__")
    ):
        raise TypeError(f"@task goes on a function, not on {func!r}")
    flags = getattr(getattr(func, "__code__", None), "co_flags", 0)
    if flags & (_GENERATOR | _ASYNC_GENERATOR):
        raise TypeError(
            f"{name} is a generator: calling it would run nothing. Return a list instead of yielding."
        )
    if "<" in name:
        raise TypeError(
            f"{name} is a nested function or lambda: workers could not find it by name. "
            f"Move it to the top level of its module with `def`."
        )
    if "." in name:
        raise TypeError(f"{name} is a method: a task is a function at the top level of a module.")


def refuse_what_needs_arguments(func: Any) -> None:
    """TypeError for a function that can't be called without arguments: a schedule in code has none to give."""
    code = getattr(func, "__code__", None)
    if code is None or hasattr(func, "__wrapped__"):
        return
    wanted = list(code.co_varnames[: code.co_argcount])
    defaults = len(func.__defaults__ or ())
    wanted = wanted[: len(wanted) - defaults]
    only_by_name = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    wanted += [name for name in only_by_name if name not in (func.__kwdefaults__ or {})]
    missing = [name for name in wanted if name != "trace_id"]
    if missing:
        raise TypeError(
            f"{func.__qualname__} runs by the clock, without arguments, but needs {', '.join(missing)}: give them defaults, "
            f"or schedule it with arguments in rea.toml or with `rea schedule add`"
        )


def refuse_places_without_argument(func: Any, pattern: str, places: list[list[int | str]]) -> None:
    """ValueError for a concurrency key with a place that no call of the function fills: each enqueue would be refused."""
    innermost = func
    for _ in range(50):
        if hasattr(innermost, "__signature__"):
            return
        if not hasattr(innermost, "__wrapped__"):
            break
        innermost = innermost.__wrapped__
    code = getattr(innermost, "__code__", None)
    if code is None:
        return
    by_place = code.co_varnames[: code.co_argcount]
    by_name = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    for sources in places:
        for place in sources:
            if isinstance(place, int):
                fits = place < len(by_place) or bool(code.co_flags & _HAS_ARGS)
                takes = f"{len(by_place)} by place, counted from 0" if by_place else "none by place"
            else:
                fits = place in by_name or bool(code.co_flags & _HAS_KWARGS)
                takes = ", ".join(by_name) or "none by name"
            if not fits:
                raise ValueError(
                    f"concurrency_key={pattern!r}: {func.__qualname__} has no argument {{{place}}}; it takes {takes}"
                )


def by_place_or_name(func: Any) -> dict[str, int]:
    """The parameters that a call may give either way, with their places. None of a wrapper: it may pass on other arguments
    than it takes."""
    code = getattr(func, "__code__", None)
    if code is None or hasattr(func, "__wrapped__") or hasattr(func, "__signature__"):
        return {}
    return {
        name: place
        for place, name in enumerate(code.co_varnames[: code.co_argcount])
        if place >= code.co_posonlyargcount
    }


def is_async(func: Any) -> bool:
    """Whether it was written with `async def`; a wrapper that hides it is found out when it is called."""
    return bool(getattr(getattr(func, "__code__", None), "co_flags", 0) & _COROUTINE)


def task_name(func: Any) -> str:
    """`module:function`, the same in the program that enqueues and in the worker that runs it."""
    module = func.__module__
    if module == "__main__":
        # `python jobs.py` and `python -m app.jobs` call the module __main__; the worker imports it by its
        # real name.
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        path = getattr(main, "__file__", None)
        if spec is not None:
            module = spec.name
        elif path:
            module = path.replace("\\", "/").rsplit("/", 1)[-1]
            module = module.removesuffix(".py")
    return f"{module}:{func.__qualname__}"


def trace_slot(func: Any) -> int | None:
    """Where `func` takes `trace_id`: its place among the positional parameters, -1 if keyword only, None if
    nowhere.

    Follows `__wrapped__` like `inspect.signature`, as long as each wrapper passes unknown keywords on.
    """
    for _ in range(50):  # a cyclic __wrapped__ must not hang the import
        code = getattr(func, "__code__", None)
        if code is not None:
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if "trace_id" in names:
                place = names.index("trace_id")
                if place < code.co_posonlyargcount:
                    return None
                return place if place < code.co_argcount else -1
            if not code.co_flags & _HAS_KWARGS:
                return None
        func = getattr(func, "__wrapped__", None)
        if func is None:
            return None
    return None


def wants_trace_id(slot: int | None, args: Sized, kwargs: Container[str]) -> bool:
    """Whether the function takes `trace_id` and this call lacks it."""
    return slot is not None and "trace_id" not in kwargs and (slot < 0 or len(args) <= slot)


def takes(func: Callable[..., Any], name: str) -> bool:
    """Whether the function has a parameter of this name that can be given by it."""
    import inspect

    try:
        found = inspect.signature(func).parameters.get(name)
    except (TypeError, ValueError):  # some C functions have none
        return False
    return found is not None and found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)


def check_call(
    name: str, func: Callable[..., Any], slot: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """TypeError when `func` cannot be called so. Better at the enqueue than as a dead job an hour later."""
    import inspect

    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):  # some C functions have none
        return
    if wants_trace_id(slot, args, kwargs):
        kwargs = {**kwargs, "trace_id": ""}
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}{signature}: {error}") from None
