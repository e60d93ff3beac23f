"""Outrigger with the models of the checks, which TensorFlow computes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from outrigger_testenv.conformance_oip.server import Place, Server
from outrigger_testenv.oip.models import ALL, UNREADY, Served
from outrigger_testenv.oip.packages import package
from outrigger_testenv.processes import free_ports
from outrigger_testenv.stack import Stack

# The limit of a message over gRPC: 64 MiB of a tensor, and what is around it.
_LARGEST = 65 << 20
# Predictions of the slow model at a time.
_SLOW = 1


@contextmanager
def checked() -> Iterator[Server]:
    """Outrigger as the checks want it, with a second one that has no engine and is not ready."""
    with TemporaryDirectory(prefix="outrigger-") as directory:
        # Packages take seconds, in which another process could take a port of a server.
        packages = {each: package(each, Path(directory) / each.name) for each in (*ALL, UNREADY)}
        ready, unready = ({each: packages[each] for each in some} for some in (ALL, [UNREADY]))
        with _stack(ready) as (stack, place):
            stack.start()
            with _stack(unready) as (other, its_place):
                other.serve.start(wait=False)
                yield Server(place, its_place, stack.serve.admin, _LARGEST)


@contextmanager
def _stack(packages: Mapping[Served, Path]) -> Iterator[tuple[Stack, Place]]:
    """Outrigger with these models, before its start, and the address of its listener."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    configuration = {
        "server": {"oip": address, "max_message": f"{_LARGEST}B", "compression": "both"},
        "auth": {"anonymous": ["predict", "read", "change"]},
        "engine": {"max_in_flight": 4},
        "limits": {"models": {"slow": _SLOW}},
    }
    models = [{"name": each.name, "preload": True} for each in packages]
    with Stack(configuration, models, with_registry=False, start=False) as stack:
        for each, directory in packages.items():
            stack.push(directory, each.name)
        yield stack, Place(address, address)
