"""The transcoder alone: ratios that the benchmark of `features` measures in one process."""

import json

from outrigger_testenv.bench.figure import Effort, Measurement
from outrigger_testenv.bench.programs import TRANSCODE, output_of
from outrigger_testenv.bench.setup import Setup


def ratio(name: str, setup: Setup, effort: Effort) -> Measurement:
    """The figure that the benchmark knows by that name; it has repeats of its own."""
    del effort
    turns = json.loads(output_of(setup.programs[TRANSCODE], "--json", name))
    samples = [one / other for one, other in zip(turns["one"], turns["other"], strict=True)]
    return Measurement(samples, {"request_bytes": turns["bytes"]}, [turns])
