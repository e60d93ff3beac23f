"""All rows, in the order of a run."""

from outrigger_testenv.conformance.row import Row
from outrigger_testenv.conformance.rows import (
    batches,
    labels,
    metadata,
    predict,
    reload,
    starts,
    status,
    versions,
)

ALL: list[Row] = [
    *predict.ROWS,
    *metadata.ROWS,
    *status.ROWS,
    *versions.ROWS,
    *labels.ROWS,
    *batches.ROWS,
    *reload.ROWS,
    *starts.ROWS,
    *reload.LAST,
]
