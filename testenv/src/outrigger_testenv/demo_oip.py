"""`make demo-oip`: a model that MLServer runs, scored by Triton's client through Outrigger.

Trains a campaign model of XGBoost, pushes it to a registry with MLServer's settings for it,
has MLServer load it, requests scores over gRPC and by `tritonclient`, replaces the model under
load, and compares every score with the model's own.
"""

import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from outrigger_testenv.demo import MODEL, SHOWN, Beside, Library, Screen, command, expect, run


def main(arguments: list[str] | None = None) -> int:
    """Runs the demo; returns 0 only if every score equals the model's own."""
    return command("make demo-oip", __doc__, partial(run, MLSERVER), arguments)


def train(table, directory: Path, version: str, rounds: int):
    """Trains and writes a version of the model for MLServer."""
    from outrigger_testenv import campaign_mlserver

    return campaign_mlserver.train(table, directory, version, rounds)


@contextmanager
def mlserver(directory: Path):
    """MLServer without models, as the engine to which the control plane publishes models, and a
    listener for the Open Inference Protocol.
    """
    from outrigger_testenv.oip import peers
    from outrigger_testenv.processes import free_ports

    with peers.MLServer(directory, ()) as server:
        (port,) = free_ports(1)
        engine = {"kind": "oip", "endpoint": server.grpc, "repository": str(server.repository)}
        settings = {"server": {"oip": f"127.0.0.1:{port}"}, "engines": {"mlserver": engine}}
        models = ({"name": MODEL, "view": "features", "preload": True},)
        yield Beside(settings, models, f"MLServer, {server.grpc}")


def asked_by_triton(screen: Screen, stack, users: pd.DataFrame, by_grpc: pd.DataFrame) -> None:
    """Scores the first users by Triton's client, and expects the same scores."""
    from outrigger_testenv import campaign
    from outrigger_testenv.oip import tritonclient

    screen.section("The same scores by tritonclient")
    some = users.iloc[:SHOWN]
    rows = {name: np.repeat(each.to_numpy(), len(campaign.OFFERS)) for name, each in some.items()}
    rows |= {name: np.tile(each.to_numpy(), SHOWN) for name, each in campaign.OFFERS.items()}
    rows["customer"] = np.repeat(np.arange(SHOWN), len(campaign.OFFERS))
    address = stack.serve.config["server"]["oip"]
    outputs = tritonclient.infer(address, MODEL, rows, stack.directory, group_by="customer")
    scores = outputs["score"][:, 0]
    screen.line(f"{len(scores)} rows to {address}: {np.round(scores[:6], 4)} ...")
    expect(
        scores.tobytes() == by_grpc["score"].iloc[: len(scores)].to_numpy("f4").tobytes(),
        "outrigger.v1 and the Open Inference Protocol give different scores",
    )


MLSERVER = Library(
    name="XGBoost",
    train=train,
    unit="trees",
    efforts=(60, 120),
    has_engine=False,
    again=asked_by_triton,
    tolerance=(1e-6, 0.0),
    verdict="within 1e-06 relative, scored by MLServer",
    beside=mlserver,
)

if __name__ == "__main__":
    sys.exit(main())
