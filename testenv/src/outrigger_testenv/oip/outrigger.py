"""Outrigger with the models of the checks, which TensorFlow computes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from outrigger_testenv.conformance_oip.server import Place, Server
from outrigger_testenv.oip.models import ALL, UNREADY, Served
from outrigger_testenv.oip.packages import package
from outrigger_testenv.processes import free_ports
from outrigger_testenv.stack import Stack

# The limit of a message over gRPC: 64 MiB of a tensor, and what is around it.
_LARGEST = 65 << 20
# Predictions of the slow model at a time, of which the engine runs one.
_SLOW = 3


@contextmanager
def checked() -> Iterator[Server]:
    """Outrigger as the checks want it, with a second one that has no engine and is not ready."""
    with _stack(ALL) as (stack, place), _stack([UNREADY]) as (other, unready):
        stack.start()
        other.serve.start(wait=False)
        yield Server(place, unready, stack.serve.admin, _LARGEST)


@contextmanager
def _stack(served: Sequence[Served]) -> Iterator[tuple[Stack, Place]]:
    """Outrigger with models, before its start, and the address of its listener."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    configuration = {
        "server": {"oip": address, "max_message": f"{_LARGEST}B", "compression": "both"},
        "auth": {"anonymous": ["predict", "read", "change"]},
        "engine": {"max_in_flight": 1},
        "limits": {"models": {"slow": _SLOW}},
    }
    models = [{"name": each.name, "preload": True} for each in served]
    with Stack(configuration, models, with_registry=False, start=False) as stack:
        for each in served:
            stack.push(package(each, stack.directory / "packages" / each.name), each.name)
        yield stack, Place(address, address)
