"""Requests of XGBoost Serving's interface: wrong and large ones harm no other caller."""

from outrigger_testenv.attack import rows
from outrigger_testenv.attack.case import MIB
from outrigger_testenv.attack.listeners import Listener

_LISTENER = Listener(
    "xgboost_serving",
    f"/v1/models/{rows.MODEL}:predict",
    {"xgboost_features": [{"feature_score": {"id": [1], "score": [score]}} for score in (-2, 2)]},
    lambda answer: answer["outputs"],
    [-1.0, 1.0],
)

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
]
