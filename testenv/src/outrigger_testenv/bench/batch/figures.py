"""The figures of batch jobs.

They are measured only if a prefix of `make bench` names them: with them, the others would not fit
into an hour.
"""

from collections.abc import Callable
from functools import partial

from outrigger_testenv.bench.batch import (
    balance,
    halved,
    limiter,
    memory,
    online,
    resume,
    rivals,
    soak,
    speed,
    transport,
)
from outrigger_testenv.bench.figure import (
    FULL,
    MEBIBYTES,
    PERCENT,
    RATE,
    RATIO,
    ROWS,
    SECONDS,
    Effort,
    Figure,
    Measurement,
    Target,
    at_least,
    at_most,
)
from outrigger_testenv.bench.programs import DISPATCH

# The time for starting the reference model and a job on it, seconds.
_STARTED, _JOB = 10, 2
# The time for the host, the rows and the check of a job, seconds.
_AROUND = 4


def _either(full: float, quick: float) -> Callable[[Effort], float]:
    """The time of a figure with full effort, and with less; seconds."""
    return lambda effort: full if effort == FULL else quick


def _rival(name: str, about: str) -> Figure:
    return Figure(
        f"batch-rows-{name}",
        "rows that a batch job scores in a CPU second of its own, beyond its start, over those of"
        f" {about}: a model on Triton that returns 64 numbers a row, 256 rows a request",
        RATIO,
        partial(speed.by_cpu, name),
        at_least(3),
        _either(60, 20),
    )


def _limiter(value: str, about: str, unit: str, target: Target) -> tuple[Figure, ...]:
    def real(name: str, host: str, measured: Callable[..., Measurement]) -> Figure:
        return Figure(
            f"batch-limiter-{name}{value}",
            f"{about}, on {host} in the middle third",
            unit,
            partial(measured, value),
            target,
            lambda effort: (limiter.seconds(effort) + _AROUND) / len(limiter.VALUES),
        )

    return (
        Figure(
            f"batch-limiter-simulated-{value}",
            f"{about}, in virtual time: a host whose capacity halves in the middle third",
            unit,
            partial(limiter.simulated, value),
            target,
            lambda _: 2,
            (DISPATCH,),
        ),
        real("", "a host of this project whose capacity halves", limiter.measured),
        real("triton-", "Triton, of whose instances half are removed", halved.measured),
    )


def _liar(value: str, about: str, unit: str, target: Target) -> Figure:
    return Figure(
        f"batch-liar-{value}",
        f"three hosts, one of which answers a third of its requests wrongly at once: {about}",
        unit,
        partial(balance.liar, value),
        target,
        lambda effort: 2 * (balance.seconds(effort) + _AROUND) / 3,
    )


BATCH_FIGURES = (
    _rival(rivals.MLSERVER, "`mlserver infer`"),
    _rival(rivals.RAY, "Ray Data over HTTP"),
    _rival(rivals.CONCURRENT, "a script with Triton's asynchronous client"),
    Figure(
        "batch-rows-rate",
        "rows a second of the same job, beyond its start, over those of outrigger bench, one frame,"
        " with requests made beforehand",
        RATIO,
        speed.rate,
        at_least(0.9),
        _either(60, 20),
    ),
    Figure(
        "batch-memory-buffers",
        f"memory for rows, requests and answers of 1 MiB, with `memory: {memory.MEMORY}MiB`",
        MEBIBYTES,
        memory.buffers,
        at_most(512),
        _either(20, 8),
    ),
    Figure(
        "batch-memory-resident",
        "peak resident memory of the same job",
        MEBIBYTES,
        memory.resident,
        at_most(640),
        _either(20, 8),
    ),
    Figure(
        "batch-memory-blocked",
        "the share of its time in which a job waits for its writers, 64 answers of 1 MiB a second",
        PERCENT,
        partial(memory.blocked, True),
        at_most(1),
        _either(20 + _AROUND, 4 + _AROUND),
    ),
    Figure(
        "batch-memory-blocked-fast",
        "the same share of the job of the first two of these lines, whose host answers faster than"
        " answers can be written",
        PERCENT,
        partial(memory.blocked, False),
        None,
        lambda _: 1,
    ),
    *(
        Figure(
            f"batch-transport-{form}",
            f"rows a second of the same job, {about}",
            RATE,
            partial(transport.rate, form),
            None,
            _either(25, 6),
        )
        for form, about in (
            (transport.JSON, "REST with JSON"),
            (transport.BINARY, "REST with binary tensors"),
            (transport.GRPC, "gRPC"),
        )
    ),
    Figure(
        "batch-transport-ratio",
        "the last of these over the first",
        RATIO,
        transport.ratio,
        at_least(1.3),
        _either(25, 6),
    ),
    *_limiter(limiter.THROUGHPUT, "answers, over the possible ones", RATIO, at_least(0.97)),
    *_limiter(limiter.REFUSED, "the share of requests that are refused", PERCENT, at_most(1)),
    *_limiter(limiter.ROUND_TRIP, "median round trip over the service time", RATIO, at_most(2)),
    Figure(
        "batch-balance",
        "the time of a job on four hosts, one of which is 10 times slower, over the ideal split's",
        RATIO,
        balance.balance,
        at_most(1.1),
        lambda effort: balance.seconds(effort) + _AROUND,
    ),
    _liar(balance.SHARE, "its requests over the mean of the other two hosts'", RATIO, at_most(1.2)),
    _liar(balance.TIME, "time over that of the two good hosts alone", RATIO, at_most(1.1)),
    _liar(balance.WRONG, "wrong and dead rows", ROWS, at_most(0)),
    Figure(
        "batch-deadlock",
        "of 10,000 random jobs in virtual time, those that come to a standstill or settle a row"
        " twice: hosts refuse, fail, hang and end, and rows are at fault",
        "jobs",
        limiter.standstills,
        at_most(0),
        _either(100, 5),
        (DISPATCH,),
    ),
    Figure(
        "batch-resume",
        "from the start of a job of 100 million rows, of whose 10,102 chunks 10,000 are committed,"
        " to its first request",
        SECONDS,
        resume.first_request,
        at_most(5),
        _either(60, 10),
    ),
    Figure(
        "batch-online-p99",
        "99th percentile of online requests at 30 % of the capacity while a job runs through the"
        " same front, over that without",
        RATIO,
        online.p99,
        at_most(1.2),
        lambda effort: _STARTED + effort.repeats * (_JOB + 2 * (effort.warmup + effort.measured)),
    ),
)

SOAK_FIGURES = (
    Figure(
        "soak-batch-memory",
        "memory of a job for half an hour, in its last third over its second: hosts end and start"
        " again, settings change, and the store of the output is away twice",
        RATIO,
        soak.memory,
        at_most(1.05),
        lambda effort: soak.seconds(effort) / 2,
    ),
    Figure(
        "soak-batch-lost",
        "rows of the same job that are wrong, dead or missing",
        ROWS,
        soak.lost,
        at_most(0),
        lambda effort: soak.seconds(effort) / 2,
    ),
)
