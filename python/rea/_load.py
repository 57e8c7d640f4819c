# Loads the user's code into a worker, as REA_LOAD says, and puts what went wrong into words.
# Files are imported under their own name, never as __main__, so that task names are the same everywhere.
from __future__ import annotations

import importlib
import json
import os
import sys

from .task import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_EXAMPLE = """\
no task found in {what}. Mark the functions that rea shall run:

    from rea.task import task

    @task
    def add(a, b):
        return a + b"""


class LoadError(Exception):
    """The code could not be loaded for a reason that Python itself does not tell."""


class NoTasks(LoadError):
    """The code was loaded and has no @task in it."""


# The server shows this name; the user need not see where the class lives.
NoTasks.__module__ = LoadError.__module__ = "builtins"


def load(text: str) -> None:
    """Imports everything that REA_LOAD, a JSON array, names. Whatever it raises is for the `bad` frame."""
    try:
        entries = json.loads(text)
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError("not an array of objects")
    except ValueError as error:
        raise LoadError(f"REA_LOAD is not a JSON array of {{file}} or {{module}} objects: {error}") from None
    for entry in entries:
        _load_one(entry)
    if not registry:
        what = (
            ", ".join(str(entry.get("file") or entry.get("module")) for entry in entries)
            or "an empty REA_LOAD"
        )
        raise NoTasks(_EXAMPLE.format(what=what))


def _load_one(entry: dict[str, Any]) -> None:
    path, module = entry.get("file"), entry.get("module")
    if isinstance(path, str):
        _load_file(path)
    elif isinstance(module, str):
        here = os.getcwd()
        if here not in sys.path and "" not in sys.path:
            sys.path.insert(0, here)
        importlib.import_module(module)
    else:
        raise LoadError(f"REA_LOAD has an entry that is neither a file nor a module: {json.dumps(entry)}")


def _load_file(path: str) -> None:
    folder, file_name = os.path.split(os.path.abspath(path))
    stem, ending = os.path.splitext(file_name)
    if not os.path.isfile(path):
        raise LoadError(f"there is no file {path}")
    if ending != ".py":
        raise LoadError(f"{path} is not a Python file: its name must end in .py")
    if not stem.isidentifier():
        better = "".join(c if c.isalnum() else "_" for c in stem)
        better = better if better.isidentifier() else f"tasks_{better}"
        raise LoadError(
            f"{file_name} cannot be imported: {stem!r} is no module name; rename it to {better}.py"
        )
    if not sys.path or sys.path[0] != folder:
        sys.path.insert(0, folder)
    module = importlib.import_module(stem)
    found = getattr(module, "__file__", None)
    if not found or not os.path.samefile(found, path):
        raise LoadError(
            f"{file_name} has the name of another module, {found or 'built into Python'}; rename the file"
        )
