"""Variations of a JSON document: one place changed in each."""

import copy
import random
from collections.abc import Iterator
from typing import Any

# Values that stand in the place of others, with their names.
ODD: dict[str, Any] = {
    "null": None,
    "true": True,
    "zero": 0,
    "minus": -1,
    "half": 0.5,
    "large": 2**53 + 1,
    "beyond": 2**64,
    "huge": 1e39,
    "empty": "",
    "word": "x",
    "digits": "17",
    "nan": "NaN",
    "letters": "ä\u0000語",
    "long": "a" * 300,
    "list": [],
    "numbers": [1, 2.5],
    "mixed": [1, "a", None],
    "object": {},
    "nested": {"x": {"y": 1}},
}


def variations(document: Any, seed: str, count: int) -> list[tuple[str, Any]]:
    """At most `count` variations, each with a label that names the place and the change."""
    every = list(_every(document))
    chosen = sorted(random.Random(seed).sample(range(len(every)), min(count, len(every))))
    return [
        (label, _changed(document, path, change))
        for label, path, change in map(every.__getitem__, chosen)
    ]


def _every(document: Any) -> Iterator[tuple[str, tuple, tuple]]:
    """The label, the path and the change of each variation."""
    for path in _paths(document):
        place = ".".join(map(str, path))
        value = _at(document, path)
        if path:
            yield f"{place}-removed", path, ("remove",)
        for name, odd in ODD.items():
            if odd != value or type(odd) is not type(value):
                yield f"{place}={name}", path, ("set", odd)
        if isinstance(value, dict):
            yield f"{place}+unknown", path, ("set", {**value, "unknown": 1})
        elif isinstance(value, list) and value:
            yield f"{place}+last", path, ("set", [*value, value[-1]])
            yield f"{place}-last", path, ("set", value[:-1])
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{place}+1", path, ("set", value + 1)
            yield f"{place}+2", path, ("set", value + 2)
            yield f"{place}-text", path, ("set", str(value))
        elif isinstance(value, str):
            yield f"{place}+space", path, ("set", f"{value} ")
            yield f"{place}-upper", path, ("set", value.upper() + "?")


def _paths(value: Any, path: tuple = ()) -> Iterator[tuple]:
    yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _paths(each, (*path, key))
    elif isinstance(value, list):
        # Those further on are as the first two.
        for at, each in enumerate(value[:2]):
            yield from _paths(each, (*path, at))


def _at(value: Any, path: tuple) -> Any:
    for key in path:
        value = value[key]
    return value


def _changed(document: Any, path: tuple, change: tuple) -> Any:
    if not path:
        return change[1]
    changed = copy.deepcopy(document)
    target = _at(changed, path[:-1])
    if change[0] == "remove":
        del target[path[-1]]
    else:
        target[path[-1]] = change[1]
    return changed
