"""Requests of XGBoost Serving's interface: wrong and large ones harm no other caller."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from outrigger_testenv.attack import row_models, rows
from outrigger_testenv.attack.case import MIB
from outrigger_testenv.attack.listeners import Listener
from outrigger_testenv.attack.row_models import Ask
from outrigger_testenv.attack.scene import SERVER, Scene
from outrigger_testenv.processes import free_ports
from outrigger_testenv.stack import Stack

_LISTENER = Listener(
    "xgboost_serving",
    f"/v1/models/{rows.MODEL}:predict",
    {"xgboost_features": [{"feature_score": {"id": [1], "score": [score]}} for score in (-2, 2)]},
    lambda answer: answer["outputs"],
    [-1.0, 1.0],
)


def changing(scene: Scene) -> Stack:
    """A stack on whose listener every caller may load models."""
    return scene.other(_start_changing)


def _start_changing(scene: Scene) -> Stack:
    name, (port,) = _LISTENER.name, free_ports(1)
    return scene.further(
        "grpc",
        "health",
        "admin",
        name,
        server={**SERVER["server"], name: f"127.0.0.1:{port}"},
        auth={name: ["change"]},
    )


def _answered(path: str, asks: Sequence[Ask]) -> Callable[[str], None]:
    return partial(row_models.expect, path=path, asks=asks)


_DENIED = [replace(ask, wanted=("UNAUTHENTICATED",)) for ask in row_models.RELOADS]

CASES = [
    _LISTENER.sent(
        "rows-wrong",
        "messages of rows with lengths that lie, infinite scores, ids beyond, or no rows",
        rows.wrong_rows,
    ),
    _LISTENER.sent("rows-wrong-json", "rows as JSON of wrong types", rows.wrong_documents),
    *(
        _LISTENER.sent(
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
    _LISTENER.sent(
        "rows-bomb",
        "four callers, 32 MiB of empty rows in 32 KiB of gzip",
        rows.many_rows,
        count=4,
        kind="rows",
        size=32 * MIB,
        every=2.0,
        compressed=True,
    ),
    _LISTENER.sent(
        "rows-json",
        "two callers, 32 MiB of a row as JSON",
        rows.many_rows_as_json,
        count=2,
        size=32 * MIB,
        every=2.0,
    ),
    _LISTENER.sent(
        "rows-leaves",
        "four callers, the leaves of 20,000 trees in 50 rows: one call fits",
        rows.many_leaves,
        count=4,
        rows_each=50,
        every=0.2,
        further=_answered(rows.PREDICT, [Ask(rows.request_of_leaves(1), ("OK",))]),
    ),
    _LISTENER.sent(
        "rows-leaves-beyond",
        "four callers, the leaves of 20,000 trees in 5,000 rows",
        rows.many_leaves,
        count=4,
        rows_each=5000,
        every=0.5,
        further=_answered(rows.PREDICT, [Ask(rows.request_of_leaves(5000))]),
    ),
    _LISTENER.sent(
        "rows-reload-denied",
        "loads without the right: lists of 64 KiB, paths out of the directory, unknown models",
        row_models.reloads,
        further=_answered(row_models.RELOAD, [*row_models.UNREADABLE, *_DENIED]),
    ),
    _LISTENER.sent(
        "rows-reload",
        "the same loads with the right",
        row_models.reloads,
        stack=changing,
        further=_answered(row_models.RELOAD, [*row_models.UNREADABLE, *row_models.RELOADS]),
    ),
    _LISTENER.sent(
        "rows-status",
        "statuses of unknown models and versions, names of 64 KiB, lengths that lie",
        row_models.statuses,
        further=_answered(row_models.STATUS, row_models.STATUSES),
    ),
    _LISTENER.sent(
        "rows-status-paths",
        "statuses over HTTP by paths that name no version",
        row_models.paths,
    ),
]
