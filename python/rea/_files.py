# The files that the user's code was loaded from: the server looks whether they change (`rea serve --reload`).
# Not those of Python, of installed packages and of rea itself, which nobody edits while a server runs.
from __future__ import annotations

import os
import sys

# More than anyone edits; a frame has room for them.
_MOST = 5000
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PYTHON = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def of_code() -> list[str]:
    """The files of all modules that are loaded now."""
    named = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return sorted({path for path in map(_own_path, named) if path})[:_MOST]


def of_broken_code(error: BaseException) -> list[str]:
    """The same, with the files that the error came from: their modules are not loaded."""
    found = set(of_code())
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        found.add(_own_path(getattr(cause, "filename", None)))
        step = cause.__traceback__
        while step is not None:
            found.add(_own_path(step.tb_frame.f_code.co_filename))
            step = step.tb_next
        # `raise … from None` hides where it came from, but not for us.
        cause = cause.__cause__ or cause.__context__
    return sorted(path for path in found if path)[:_MOST]


def _own_path(path: object) -> str:
    """The path if it is a file of the user's, else an empty one."""
    if not isinstance(path, str) or not os.path.isfile(path):
        return ""
    path = os.path.abspath(path)
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return ""
    ours = path.startswith((_OWN, _PYTHON)) or any(part in path for part in _INSTALLED)
    return "" if ours else path
