"""Requests of XGBoost Serving's interface: wrong and large ones harm no other caller."""

import json
import urllib.request
from collections.abc import Callable
from typing import Any

from outrigger_testenv.attack import rows
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import MIB, Case
from outrigger_testenv.attack.requests import sent
from outrigger_testenv.attack.scene import Scene

_LISTENER = "xgboost_serving"
_ANSWER = 10.0


def _scores(scene: Scene) -> str:
    """A new caller of the listener gets scores, and so do those of the others. Raises Broken."""
    url = f"http://{scene.address(_LISTENER)}/v1/models/{rows.MODEL}:predict"
    values = [{"feature_score": {"id": [1], "score": [score]}} for score in (-2, 2)]
    body = json.dumps({"xgboost_features": values}).encode()
    try:
        with urllib.request.urlopen(url, body, timeout=_ANSWER) as answer:
            found = json.load(answer)["outputs"]
    except (OSError, ValueError, KeyError) as error:
        raise Broken(f"a new caller of {_LISTENER}: {error}") from None
    if found != [-1.0, 1.0]:
        raise Broken(f"a new caller of {_LISTENER} gets {found}")
    scene.check_answers()
    return "others are served"


def _sent(name: str, about: str, function: Callable[..., Any], **arguments: Any) -> Case:
    return sent(name, about, function, listener=_LISTENER, check=_scores, **arguments)


CASES = [
    _sent(
        "rows-wrong",
        "messages of rows with wrong lengths, infinite scores, ids beyond, or no rows",
        rows.wrong_rows,
    ),
    _sent("rows-wrong-json", "rows as JSON of wrong types", rows.wrong_documents),
    *(
        _sent(
            f"rows-{kind}",
            f"four callers, 32 MiB of {about}",
            rows.many_rows,
            count=4,
            kind=kind,
            size=32 * MIB,
            every=2.0,
        )
        for kind, about in [
            ("rows", "empty rows"),
            ("ids", "ids without scores in a row"),
            ("values", "ids with scores in a row"),
        ]
    ),
    _sent(
        "rows-json",
        "two callers, 32 MiB of a row as JSON",
        rows.many_rows_as_json,
        count=2,
        size=32 * MIB,
        every=2.0,
    ),
]
