"""The request path as real clients use it: their frames, large requests, thousands of callers."""

import resource
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache

from outrigger_testenv.attack.memory import Peak
from outrigger_testenv.bench.clients import (
    BENCH,
    GO,
    ONE,
    Call,
    Client,
    Served,
    run,
    served,
)
from outrigger_testenv.bench.figure import FULL, Effort, Failed, Measurement, Skipped
from outrigger_testenv.bench.generator import CONTROL_PLANE, Report
from outrigger_testenv.bench.setup import COLUMNAR, KEY_VALUE, Setup
from outrigger_testenv.bench.spread import in_turns
from outrigger_testenv.processes import Process

MIB = 1 << 20
# Requests in flight of a crowd of callers, and of a number of callers that is served without a
# queue beyond the places.
CROWD, MANY = 4096, 512
# Deadlines in seconds: one that a crowd's requests can wait for, and one that they cannot.
PATIENT, HURRIED = 10.0, 0.2
# The reasons with which a control plane may refuse a request that it has no time for.
REFUSALS = frozenset({"OVERLOADED", "DEADLINE"})
# The connections of the open loop. A client over HTTP/2 waits by itself when a connection has as
# many streams as the server allows.
_OPEN = 64
# Callers that keep a connection, and the seconds from one request of each to its next.
_IDLERS, _EVERY = 8000, 10
# Requests of about 2 KB, 100 at a time on one connection: many of them come with one read.
BUSY = Call(COLUMNAR, treatments=20, connections=1, in_flight=100, timeout=30)
# The time for which a throttled container may be stopped, and the time between two such, seconds.
_STOPPED, _RUNNING = 0.4, 0.6


@contextmanager
def throttled(process: Process) -> Iterator[None]:
    """Stops the process for a part of each second."""
    over = threading.Event()

    def stop_and_go() -> None:
        while not over.wait(_RUNNING):
            process.pause()
            over.wait(_STOPPED)
            process.resume()

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def lost(client: Client, is_throttled: bool, setup: Setup, effort: Effort) -> Measurement:
    """Failed requests of a busy connection, of hundreds of thousands."""
    target = served(setup, setup.stack)
    process = setup.stack.serve.process
    with throttled(process) if is_throttled else nullcontext():
        report = run(client, target, BUSY, lost_effort(effort), may_fail=True)
    return Measurement([report.failed], {}, [report.raw()])


def lost_effort(effort: Effort) -> Effort:
    """One run of a minute in a full measurement."""
    return replace(effort, repeats=1, measured=15 * effort.measured)


def cpu_over_one_frame(client: Client, form: str, setup: Setup, effort: Effort) -> Measurement:
    """CPU of the control plane for a request of a client, divided by that for one of `outrigger
    bench` in a single frame.
    """
    target, call = served(setup, setup.stack), Call(form, timeout=PATIENT)
    turns = in_turns(
        effort.repeats,
        lambda: run(client, target, call, effort),
        lambda: run(ONE, target, call, effort),
    )
    samples = [real.cpu(CONTROL_PLANE) / one.cpu(CONTROL_PLANE) for real, one in turns]
    return _measurement(samples, turns)


def frames(form: str, setup: Setup, effort: Effort) -> Measurement:
    """Throughput of `outrigger bench` in frames of 16 KiB, divided by that in a single frame."""
    target, call = served(setup, setup.stack), Call(form, timeout=PATIENT)
    turns = in_turns(
        effort.repeats,
        lambda: run(BENCH, target, call, effort),
        lambda: run(ONE, target, call, effort),
    )
    return _measurement([many.throughput / one.throughput for many, one in turns], turns)


def growth(few: int, many: int, setup: Setup, effort: Effort) -> Measurement:
    """CPU of the control plane for a key-value request of many treatments over that of few."""
    target = served(setup, setup.stack)

    def cpu(treatments: int) -> Report:
        call = Call(KEY_VALUE, treatments, timeout=PATIENT)
        return run(BENCH, target, call, effort)

    turns = in_turns(effort.repeats, lambda: cpu(many), lambda: cpu(few))
    samples = [large.cpu(CONTROL_PLANE) / small.cpu(CONTROL_PLANE) for large, small in turns]
    return _measurement(samples, turns)


def throughput_over_before(client: Client, form: str, setup: Setup, effort: Effort) -> Measurement:
    """Throughput of a client, divided by that through the commit before."""
    turns = _both(client, Call(form, timeout=PATIENT), setup, effort)
    return _measurement([now.throughput / before.throughput for now, before in turns], turns)


def cpu_over_before(client: Client, form: str, setup: Setup, effort: Effort) -> Measurement:
    """CPU of the control plane for a request, divided by that of the commit before."""
    turns = _both(client, Call(form, timeout=PATIENT), setup, effort)
    samples = [now.cpu(CONTROL_PLANE) / before.cpu(CONTROL_PLANE) for now, before in turns]
    return _measurement(samples, turns)


def _both(client: Client, call: Call, setup: Setup, effort: Effort) -> list[tuple[Report, Report]]:
    now, before = (served(setup, stack) for stack in setup.both)
    return in_turns(
        effort.repeats,
        lambda: run(client, now, call, effort),
        lambda: run(client, before, call, effort),
    )


@dataclass(frozen=True)
class Crowd:
    """Runs by turns: the usual number of callers, and a crowd with a deadline."""

    turns: list[tuple[Report, Report]]
    # The control plane's peak memory while the crowd sent, MiB, by turn.
    resident: list[float]

    def goodput(self) -> list[float]:
        """The crowd's answers a second, divided by those of the usual callers. Raises Failed if
        these got none.
        """
        self._check()
        return [crowd.throughput / usual.throughput for usual, crowd in self.turns]

    def failed(self) -> list[float]:
        """Failed requests of the crowd and of the usual callers."""
        return [usual.failed + crowd.failed for usual, crowd in self.turns]

    def unexplained(self) -> list[float]:
        """Failed requests of the crowd that the control plane did not refuse with a reason."""
        return [unexplained(crowd.json["errors"]) for _, crowd in self.turns]

    def refusal_cpu(self) -> list[float]:
        """CPU of the control plane for a refusal, over that for an answer to the usual callers.
        Raises Failed if these got none.
        """
        self._check()
        return [refusal_cpu(usual, crowd) for usual, crowd in self.turns]

    def _check(self) -> None:
        if not all(usual.throughput for usual, _ in self.turns):
            raise Failed(f"no answers with {MANY} in flight, to compare the crowd with")


def unexplained(errors: Mapping[str, int]) -> int:
    """Failed requests without a reason of the control plane for refusing them."""
    return sum(count for reason, count in errors.items() if reason not in REFUSALS)


def refusal_cpu(usual: Report, crowd: Report) -> float:
    """CPU of a refusal over that of an answer; 0 if nothing was refused.

    An answer to the crowd is taken to cost what one to the usual callers costs.
    """
    if not crowd.failed:
        return 0
    answer, ok = usual.cpu(CONTROL_PLANE), crowd.json["ok"]
    spent = crowd.cpu(CONTROL_PLANE) * (ok + crowd.failed)
    return (spent - ok * answer) / crowd.failed / answer


@dataclass(frozen=True)
class Scene:
    """A crowd: the form of its requests, its connections, and the deadline in seconds."""

    form: str
    connections: int
    deadline: float


def crowd(part: str, scene: Scene, setup: Setup, effort: Effort) -> Measurement:
    """A figure of a crowd: the name of a method of `Crowd`, or `resident`."""
    seen = _crowd(scene, setup, effort)
    samples = seen.resident if part == "resident" else getattr(seen, part)()
    return _measurement(samples, seen.turns)


# One run gives all figures of a crowd.
@cache
def _crowd(scene: Scene, setup: Setup, effort: Effort) -> Crowd:
    target, peaks = served(setup, setup.bounded), []
    usual = Call(scene.form, connections=scene.connections, in_flight=MANY, timeout=PATIENT)

    def sends() -> Report:
        call = replace(usual, in_flight=CROWD, timeout=scene.deadline)
        with _peak(target, peaks):
            return run(BENCH, target, call, effort, may_fail=True)

    # Requests of the usual callers may fail too: `Crowd.failed` counts them.
    effort = crowd_effort(effort)
    turns = in_turns(
        effort.repeats, lambda: run(BENCH, target, usual, effort, may_fail=True), sends
    )
    return Crowd(turns, peaks)


def crowd_effort(effort: Effort) -> Effort:
    """A crowd takes longer until its first requests are answered, and varies less by turn."""
    return replace(effort, repeats=min(3, effort.repeats), warmup=3 * effort.warmup)


def open_loop(form: str, setup: Setup, effort: Effort) -> Measurement:
    """Answers a second of an open loop at twice the capacity, with deadlines of a second, over that
    capacity: what the same client gets in a closed loop on as many connections.
    """
    target = served(setup, setup.bounded)
    closed = Call(form, connections=_OPEN, in_flight=_OPEN, timeout=PATIENT)

    def twice() -> tuple[Report, Report]:
        capacity = run(GO, target, closed, effort)
        # All that may be due before the first one fails.
        limit = int(4 * capacity.throughput) + _OPEN
        over = replace(closed, rate=2 * capacity.throughput, in_flight=limit, timeout=1.0)
        return capacity, run(GO, target, over, effort, may_fail=True)

    turns = [twice() for _ in range(effort.repeats)]
    samples = [over.throughput / capacity.throughput for capacity, over in turns]
    return _measurement(samples, turns)


@dataclass(frozen=True)
class Idlers:
    """A run of many callers that are seldom active."""

    report: Report
    # MiB.
    resident: float


def idlers(part: str, setup: Setup, effort: Effort) -> Measurement:
    """A figure of many seldom active callers: `failed` requests, or `resident` MiB."""
    seen = _idlers(setup, effort)
    sample = seen.resident if part == "resident" else seen.report.failed
    return Measurement([sample], runs=[seen.report.raw()])


def idlers_seconds(effort: Effort) -> float:
    """The duration of such a run."""
    rounds = _idlers_effort(effort)
    return rounds.warmup + rounds.measured + 5


def _idlers_effort(effort: Effort) -> Effort:
    """Each caller sends in the warm-up, and once or twice in the measured time."""
    return replace(effort, warmup=_EVERY, measured=_EVERY * (2 if effort == FULL else 1))


@cache
def _idlers(setup: Setup, effort: Effort) -> Idlers:
    _raise_descriptors(_IDLERS + 200)
    target, peaks = served(setup, setup.bounded), []
    call = Call(connections=_IDLERS, in_flight=CROWD, rate=_IDLERS / _EVERY, timeout=PATIENT)
    with _peak(target, peaks):
        report = run(BENCH, target, call, _idlers_effort(effort), may_fail=True)
    return Idlers(report, peaks[0])


def _raise_descriptors(wanted: int) -> None:
    """Lets this process and the load generator have that many connections. Raises Skipped."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise Skipped(f"a process may have {hard} descriptors only, and {wanted} are needed")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _peak(target: Served, peaks: list[float]) -> ExitStack:
    """A context that appends the control plane's peak memory in MiB."""
    context, process = ExitStack(), target.stack.serve.process
    if not process.running:
        raise Failed("the control plane has ended")
    peak = Peak(process)
    context.callback(lambda: peaks.append(peak.bytes / MIB))
    context.enter_context(peak)
    return context


def _measurement(samples: list[float], turns: list[tuple[Report, ...]]) -> Measurement:
    return Measurement(samples, runs=[report.raw() for turn in turns for report in turn])
