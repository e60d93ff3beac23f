"""The engine on its own: the share of TensorFlow's throughput that remains over gRPC."""

import json

from outrigger_testenv.bench.figure import Effort, Measurement
from outrigger_testenv.bench.generator import CLOSED_LOOP, run
from outrigger_testenv.bench.programs import SESSION, output_of
from outrigger_testenv.bench.setup import THREADS, Setup
from outrigger_testenv.bench.spread import in_turns

# Enough callers to keep two cores busy.
_CALLERS = 2


def direct(setup: Setup, effort: Effort) -> Measurement:
    """The engine's throughput over gRPC, divided by TensorFlow's within the callers' process."""
    side, program = setup.direct(), setup.programs[SESSION]
    arguments = ["--model", str(setup.package.saved_model), "--callers", str(_CALLERS)]
    arguments += ["--seconds", f"{effort.measured:g}"]
    arguments += ["--tensorflow_intra_op_parallelism", str(THREADS)]
    arguments += ["--tensorflow_inter_op_parallelism", str(THREADS)]
    turns = in_turns(
        effort.repeats,
        lambda: run(side, CLOSED_LOOP, effort).raw(),
        lambda: {"side": "in process", **json.loads(output_of(program, *arguments))},
    )
    samples = [engine["throughput"] / session["throughput"] for engine, session in turns]
    return Measurement(samples, runs=[each for turn in turns for each in turn])
