# Python values to JSON text, strictly: what JSON cannot hold is refused with the place and a way out.
# Used for results (worker) and arguments (client). Never guesses a conversion.
from __future__ import annotations

from functools import partial
from json import JSONEncoder
from math import isfinite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

# ensure_ascii=False keeps text readable in the store and makes lone surrogates fail at .encode("utf-8").
_encoder = partial(JSONEncoder, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
encode = _encoder().encode

DEPTH_MAX = 64


class Place:
    """Stands in arguments for a value that another job will have; only a flow can send it."""

    __slots__ = ()

    #: What to do where it can't be sent.
    json_hint = ""


_HINTS = {
    "datetime": "pass value.isoformat() and read it back with datetime.fromisoformat()",
    "date": "pass value.isoformat() and read it back with date.fromisoformat()",
    "time": "pass value.isoformat() and read it back with time.fromisoformat()",
    "timedelta": "pass value.total_seconds()",
    "Decimal": "pass str(value)",
    "UUID": "pass str(value)",
    "bytes": "decode it, or pass base64 text, or better the path or key of where it is stored",
    "bytearray": "decode it, or pass base64 text, or better the path or key of where it is stored",
    "set": "pass sorted(value) or list(value)",
    "frozenset": "pass sorted(value) or list(value)",
    "generator": "pass list(value)",
    "coroutine": "await it, and pass what it returns",
    "ndarray": "pass value.tolist()",
}


class NotJson(ValueError):
    """The value has no JSON form. The text says where and what to do instead."""


def to_bytes(value: Any, where: str, place: Callable[[Any], Any] | None = None) -> bytes:
    """UTF-8 JSON of `value`; `where` is how messages call the value ("result", "args[0]"). `place` gives
    what is sent for a `Place`.
    """
    write = encode if place is None else _encoder(default=place).encode
    try:
        data = write(value).encode("utf-8")
    except Exception as error:  # a user's dict subclass may raise anything
        why = _why(value, where, () if place is None else Place)
        raise NotJson(why or f"{where} is not JSON: {type(error).__name__}: {error}") from None
    # Counting brackets is nearly free; only values with many of them can be too deep.
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX and too_deep(value):
        raise NotJson(f"{where} is not JSON that rea takes: it is nested deeper than {DEPTH_MAX} levels")
    return data


def too_deep(value: Any) -> bool:
    """Whether lists and dicts are nested deeper than the limit;
    goes level by level, so depth costs no stack.
    """
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX + 1):
        # One of each: a list that holds itself twice would double at every level.
        holders = {id(v): v for v in level if isinstance(v, (list, tuple, dict))}.values()
        if not holders:
            return False
        level = [child for v in holders for child in (v.values() if isinstance(v, dict) else v)]
    return True


def _why(value: Any, where: str, but: Any) -> str | None:
    """The first thing in `value` that JSON cannot hold, as a sentence; None when nothing is found. What is
    of the class `but` is passed over.
    """
    if too_deep(value):
        return f"{where} is not JSON: it is nested deeper than {DEPTH_MAX} levels, or holds itself"
    found = _first_bad(value, "", but)
    return None if found is None else f"{where} is not {found}"


def _first_bad(value: Any, path: str, but: Any) -> str | None:
    """What follows "is not": "JSON: ..." or "valid Unicode: ..."; `path` leads to the value in the whole."""
    it = path or "it"
    if value is None or isinstance(value, (bool, but)):
        return None
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            lone = ascii(value[error.start])
            return f"valid Unicode: {it} has the lone surrogate {lone} at {error.start}"
        return None
    if isinstance(value, int):
        try:
            str(value)
        except ValueError as error:
            return f"JSON: {it} is too big a number: {error}"
        return None
    if isinstance(value, float):
        return None if isfinite(value) else f"JSON: {it} is {value!r}; JSON has no NaN or Infinity"
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            found = _first_bad(item, f"{path}[{index}]", but)
            if found:
                return found
        return None
    if isinstance(value, dict):
        for key, item in value.items():
            if not (key is None or isinstance(key, (str, int, float))):
                return f"JSON: {it} has a key of type {type(key).__name__}; keys must be text"
            found = _first_bad(key, f"a key of {it}", but) or _first_bad(item, f"{path}[{key!a}]", but)
            if found:
                return found
        return None
    hint = _HINTS.get(type(value).__qualname__) or _hint_by_shape(value)
    return f"JSON: {it} is of type {type_name(type(value))}; {hint}"


def _hint_by_shape(value: Any) -> str:
    kind = type(value)
    if issubclass(kind, Place):
        return kind.json_hint
    if hasattr(kind, "model_dump"):
        return 'pass value.model_dump(mode="json")'
    if hasattr(kind, "__dataclass_fields__"):
        return "pass dataclasses.asdict(value)"
    if hasattr(kind, "__members__"):
        return "pass value.value"
    return "use None, bool, int, float, str, list or dict"


def type_name(kind: type) -> str:
    """`module.Qualname`, bare for builtins; never fails, whatever a metaclass does."""
    try:
        module, name = str(kind.__module__), str(kind.__qualname__)
    except Exception:
        return "unknown type"
    return name if module == "builtins" else f"{module}.{name}"


def clean(text: str) -> str:
    """`text` as valid Unicode: each lone surrogate becomes U+FFFD.

    For texts that must get through (errors, notes).
    """
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
