"""A check of the table: a rule for servers, and the cases that show that a server obeys it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrigger_testenv.conformance.pattern import matches
from outrigger_testenv.conformance_oip.rpc import outcome
from outrigger_testenv.conformance_oip.server import Server

OK, DIFFERS, NOT_OFFERED, NOT_TRIED = "ok", "DIFFERS", "not offered", "not tried"
MARKS = {OK: "✓", DIFFERS: "✗", NOT_OFFERED: "-", NOT_TRIED: "?"}

REST, GRPC = "REST", "gRPC"


@dataclass(frozen=True)
class Case:
    """A case: its form, a few words, the patterns of expected answers with * for any text, and the
    act that returns the answer seen. `needs` names what it needs, see `Server.lacks`.
    """

    form: str
    about: str
    expected: tuple[str, ...]
    act: Callable[[Server], str]
    needs: Sequence[str] = ()


@dataclass(frozen=True)
class Check:
    """A rule by its number, with its cases. `last` is True if it may leave the server unusable."""

    number: int
    about: str
    cases: Sequence[Case]
    last: bool = False

    @property
    def name(self) -> str:
        """The name in the table."""
        return f"S{self.number}"


@dataclass(frozen=True)
class Seen:
    """A case with the answer seen, or with the reason why there is none."""

    case: Case
    text: str
    verdict: str


@dataclass(frozen=True)
class Outcome:
    """A check with what was seen."""

    check: Check
    seen: Sequence[Seen]

    @property
    def verdict(self) -> str:
        """`DIFFERS` if a case differs; `OK` if none does and one is as expected."""
        verdicts = {each.verdict for each in self.seen}
        order = (DIFFERS, OK, NOT_OFFERED, NOT_TRIED)
        return next(each for each in order if each in verdicts)

    @property
    def is_whole(self) -> bool:
        """True if no case differs, and the server offers what all cases need."""
        return not {DIFFERS, NOT_OFFERED} & {each.verdict for each in self.seen}


def rest(
    about: str, expected: str | Sequence[str], act: Callable[[Server], str], *, needs: str = ""
) -> Case:
    """A case over REST."""
    return Case(REST, about, _patterns(expected), act, _all_of(needs))


def rpc(
    about: str, expected: str | Sequence[str], act: Callable[[Server], str], *, needs: str = ""
) -> Case:
    """A case over gRPC."""
    return Case(GRPC, about, _patterns(expected), act, _all_of(needs))


def run(check: Check, server: Server) -> Outcome:
    """Tries the cases of a check. An exception is an answer that differs, and so is the status of a
    call over gRPC that the act does not expect.
    """
    return Outcome(check, [_run(case, server) for case in check.cases])


def _run(case: Case, server: Server) -> Seen:
    lack = next(filter(None, map(server.lacks, case.needs)), None)
    if lack is not None:
        return Seen(case, lack.reason, NOT_OFFERED if lack.is_offered_by_others else NOT_TRIED)
    try:
        text = outcome(lambda: case.act(server))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    fits = any(matches(pattern, text) for pattern in case.expected)
    return Seen(case, text, OK if fits else DIFFERS)


def _patterns(expected: str | Sequence[str]) -> tuple[str, ...]:
    return (expected,) if isinstance(expected, str) else tuple(expected)


def _all_of(need: str) -> tuple[str, ...]:
    return (need,) if need else ()
