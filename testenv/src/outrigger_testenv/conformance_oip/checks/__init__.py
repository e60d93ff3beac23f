"""All checks, in the order of their numbers."""

from dataclasses import replace

from outrigger_testenv.conformance_oip.check import Check
from outrigger_testenv.conformance_oip.checks import (
    binary,
    bodies,
    data,
    errors,
    health,
    load,
    outputs,
    repository,
    request,
    rpc,
    through_clients,
)

ALL: list[Check] = sorted(
    [
        replace(check, cases=[*check.cases, *through_clients.cases_of(check.number)])
        for part in (health, request, data, bodies, outputs, errors, load, binary, rpc, repository)
        for check in part.CHECKS
    ],
    key=lambda check: check.number,
)
