"""The transcoder alone: ratios measured by the benchmark of `features` in one process."""

import json

from outrigger_testenv.bench.figure import Effort, Measurement
from outrigger_testenv.bench.programs import TRANSCODE, output_of
from outrigger_testenv.bench.setup import Setup


def ratio(name: str, setup: Setup, effort: Effort) -> Measurement:
    """The benchmark's figure of this name; the benchmark repeats it itself."""
    del effort
    turns = json.loads(output_of(setup.programs[TRANSCODE], "--json", name))
    samples = [one / other for one, other in zip(turns["one"], turns["other"], strict=True)]
    return Measurement(samples, {"request_bytes": turns["bytes"]}, [turns])
