# An exception of a job, described for the server: retry or not, type, message, traceback.
# Must never fail and never send too much, whatever the exception does: else the attempt could not be closed.
from __future__ import annotations

import os
import sys

from . import exception
from ._jsontext import clean, type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

MESSAGE_MAX = 10_000  # characters
TRACEBACK_MAX = 64 * 1024  # bytes of UTF-8
CHAIN_MAX = 16  # exceptions linked by `raise ... from`
FRAMES_MAX = 60  # of one exception, half of them from each end

# Frames that tell a user nothing: rea's own, and those of an import.
_TRIMMED = (os.path.dirname(os.path.abspath(__file__)) + os.sep, "<frozen importlib")
_IMPORT_MODULE = os.path.join("importlib", "__init__.py")


def is_retryable(error: BaseException, retry_on: tuple[Any, ...]) -> bool:
    """The failure rule of the product, in one place."""
    if isinstance(error, exception.Fatal) or not isinstance(error, Exception):
        return False
    if isinstance(error, (exception.RetryableError, ConnectionError, TimeoutError) + retry_on):
        return True
    # Older Pythons have three more classes for "timed out" that are not TimeoutError.
    return sys.version_info < (3, 11) and isinstance(error, _old_timeouts())


def _old_timeouts() -> tuple[Any, ...]:
    names = (
        ("socket", "timeout"),
        ("asyncio.exceptions", "TimeoutError"),
        ("concurrent.futures._base", "TimeoutError"),
    )
    found = (getattr(sys.modules.get(module), name, None) for module, name in names)
    return tuple(kind for kind in found if kind is not None)


def after_ms(error: BaseException) -> int | None:
    if not isinstance(error, exception.RetryableError) or error.after is None:
        return None
    try:
        return min(max(0, round(error.after * 1000)), 2**53)
    except Exception:  # a subclass may have put anything there
        return None


def describe(error: BaseException) -> tuple[str, str, str | None]:
    """(type, message, traceback), clean and within the limits."""
    kind = clean(type_name(type(error)))[:500]
    try:
        return kind, message(error), traceback_text(error)
    except BaseException as second:  # out of memory, for example: anything is better than no answer
        return kind, f"(could not be described: {clean(type_name(type(second)))})", None


def message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        called = f"the job called sys.exit({_text_of(error.code)})"
        return f"{called}; a job ends by returning or by raising an exception"
    if isinstance(error, KeyboardInterrupt):
        return f"KeyboardInterrupt was raised in the job {_text_of(error)}".rstrip()
    return _text_of(error)


def _text_of(value: object) -> str:
    try:
        text = str.__str__(str(value))
    except BaseException as error:
        return f"(no message: its __str__ raised {clean(type_name(type(error)))})"
    return clean(_cut_message(text))


def _cut_message(text: str) -> str:
    if len(text) <= MESSAGE_MAX:
        return text
    mark = f"... (cut, {len(text):,} characters)"
    return text[: MESSAGE_MAX - len(mark)] + mark


# --- the traceback: like Python's own, but bounded at every step ---


def traceback_text(error: BaseException) -> str:
    chain: list[BaseException] = []
    links: list[str] = []
    seen = set()
    step: BaseException | None = error
    while step is not None and id(step) not in seen and len(chain) < CHAIN_MAX:
        seen.add(id(step))
        chain.append(step)
        if step.__cause__ is not None:
            links.append("\nThe above exception was the direct cause of the following exception:\n\n")
            step = step.__cause__
        else:
            links.append("\nDuring handling of the above exception, another exception occurred:\n\n")
            step = None if step.__suppress_context__ else step.__context__
    parts: list[str] = []
    for index in range(len(chain) - 1, -1, -1):
        parts.append(_one(chain[index]))
        if index > 0:
            parts.append(links[index - 1])
    return _cut_middle(clean("".join(parts)))


def _one(error: BaseException) -> str:
    import traceback

    first, last, left_out = _frames_of(error.__traceback__)
    parts = ["Traceback (most recent call last):\n"] if first else []
    for frames in (first, last):
        parts += traceback.StackSummary.extract(iter(frames)).format()
        if left_out and frames is first:
            parts.append(f"  ... {left_out:,} more frames ...\n")
    if isinstance(error, SyntaxError):
        # Only here does Python know the line and the place in it.
        parts.append(_cut_message("".join(traceback.format_exception_only(type(error), error))))
        return "".join(parts)
    text = _text_of(error)
    parts.append(clean(type_name(type(error))) + (f": {text}" if text else "") + "\n")
    for note in _items(error, "__notes__"):
        parts.append(_text_of(note) + "\n")
    for index, inner in enumerate(_items(error, "exceptions"), 1):
        parts.append(f"  {index}. {clean(type_name(type(inner)))}: {_text_of(inner)}\n")
    return "".join(parts)


def _items(error: BaseException, name: str) -> list[Any]:
    found = getattr(error, name, None)
    return list(found[:10]) if isinstance(found, (list, tuple)) else []


def _frames_of(step: TracebackType | None) -> tuple[list[Any], list[Any], int]:
    """The frames of the user's code: the first ones, the last ones, and how many between are left out."""
    frames = []
    while step is not None:
        name = step.tb_frame.f_code.co_filename
        if not name.startswith(_TRIMMED) and not name.endswith(_IMPORT_MODULE):
            frames.append((step.tb_frame, step.tb_lineno))
        step = step.tb_next
    half = FRAMES_MAX // 2
    if len(frames) <= FRAMES_MAX:
        return frames, [], 0
    return frames[:half], frames[-half:], len(frames) - FRAMES_MAX


def _cut_middle(text: str) -> str:
    data = text.encode("utf-8")
    if len(data) <= TRACEBACK_MAX:
        return text
    mark = f"\n... (cut, {len(data):,} bytes) ...\n"
    half = (TRACEBACK_MAX - len(mark)) // 2
    return data[:half].decode("utf-8", "ignore") + mark + data[-half:].decode("utf-8", "ignore")
