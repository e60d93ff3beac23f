"""The engine on its own: what its way from the wire to TensorFlow leaves of TensorFlow."""

import json

from outrigger_testenv.bench.figure import Effort, Measurement
from outrigger_testenv.bench.generator import CLOSED_LOOP, run
from outrigger_testenv.bench.programs import SESSION, output_of
from outrigger_testenv.bench.setup import THREADS, Setup
from outrigger_testenv.bench.spread import in_turns

# As many as two cores have use for.
_CALLERS = 2


def direct(setup: Setup, effort: Effort) -> Measurement:
    """Throughput of the engine over gRPC, over TensorFlow's in the process of its callers."""
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
