"""`make demo-trees`: an XGBoost model from training data to scores, with the real binaries.

Trains a campaign model, pushes it to a registry, serves it in the process of the control plane,
requests scores over gRPC and HTTP, replaces the model under load, and compares every score with
XGBoost's own, bit by bit.
"""

import json
import sys
import urllib.request
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from outrigger_testenv.demo import MODEL, Library, Screen, command, expect, run


def main(arguments: list[str] | None = None) -> int:
    """Runs the demo; returns 0 only if every score equals XGBoost's."""
    return command("make demo-trees", __doc__, partial(run, XGBOOST), arguments)


def train(table, directory: Path, version: str, rounds: int):
    """Trains and writes a version of XGBoost's model."""
    from outrigger_testenv import campaign_trees

    return campaign_trees.train(table, directory, version, rounds)


def asked_as_json(screen: Screen, stack, users: pd.DataFrame, by_grpc: pd.DataFrame) -> None:
    """Scores the first user over HTTP, and expects the same scores."""
    from outrigger_testenv import campaign
    from outrigger_testenv.jsonform import http_request
    from outrigger_testenv.requests import rows

    screen.section("The same scores as JSON")
    body = {"model": {"name": MODEL}, **http_request(next(rows(users)), campaign.OFFERS)}
    data = json.dumps(body).encode()
    with urllib.request.urlopen(f"{stack.serve.http}/v1/predict", data, timeout=10) as answer:
        scores = json.load(answer)["scores"]
    screen.line(f"{json.dumps(scores)}")
    served = np.array([each["score"] for each in scores], "f4")
    expect(
        served.tobytes() == by_grpc["score"].iloc[: len(served)].to_numpy("f4").tobytes(),
        "gRPC and HTTP give different scores",
    )


XGBOOST = Library(
    name="XGBoost",
    train=train,
    unit="trees",
    efforts=(60, 120),
    has_engine=False,
    again=asked_as_json,
    tolerance=(0.0, 0.0),
    verdict="in every bit",
)

if __name__ == "__main__":
    sys.exit(main())
