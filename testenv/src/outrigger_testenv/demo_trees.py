"""`make demo-trees`: an XGBoost model from training data to scores, with the real binaries.

Trains a campaign model, pushes it to a registry, serves it in the process of the control plane,
requests scores over gRPC and HTTP, replaces the model under load, and compares every score with
XGBoost's own, bit by bit.
"""

import json
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd

from outrigger_testenv.demo import (
    MODEL,
    USERS,
    Screen,
    asked_by_tag,
    command,
    compared,
    expect,
    read,
    replaced,
    short,
    started,
)

EXACT = (0.0, 0.0)


def main(arguments: list[str] | None = None) -> int:
    """Runs the demo; returns 0 only if every score equals XGBoost's."""
    return command("make demo-trees", __doc__, run, arguments)


def run(data: Path | None, directory: Path) -> int:
    """The demo itself."""
    from outrigger_testenv import campaign
    from outrigger_testenv.stack import Stack

    screen = Screen()
    screen.section("Data and model")
    try:
        table = read(screen, data)
    except (OSError, ValueError) as error:
        print(f"demo failed: {error}", file=sys.stderr)
        return 64
    first = trained(screen, table, directory / "v1", "1", rounds=60)
    second = trained(screen, table, directory / "v2", "2", rounds=120)

    with Stack(start=False, engine=False) as stack:
        if stack.registry:
            stack.registry.start()
        digest = stack.push(first, MODEL)
        screen.section("Push and start")
        screen.line(f"pushed         {MODEL}:latest  {short(digest)}")
        started(screen, stack)
        with stack.client() as client:
            users = table.customers.iloc[:USERS]
            scores = asked_by_tag(screen, client, users, digest)
            asked_as_json(screen, stack, users.iloc[:1], scores)
            replacement = replaced(screen, stack, client, second, users)
            latest = client.predict(MODEL, users, campaign.OFFERS, users_per_call=50)
        screen.section("XGBoost's own answer")
        count = compared(screen, first, users, scores, digest, tolerance=EXACT)
        count += compared(screen, second, users, latest, replacement, tolerance=EXACT)
    print(f"\ndemo ok: {count} scores equal XGBoost's in every bit")
    return 0


def trained(screen: Screen, table, directory: Path, version: str, rounds: int):
    """Trains and writes one version."""
    from outrigger_testenv import campaign_trees

    start = time.monotonic()
    package = campaign_trees.train(table, directory, version, rounds)
    screen.line(f"version {version}: {rounds} trees in {time.monotonic() - start:.1f} s, written")
    return package


def asked_as_json(screen: Screen, stack, user: pd.DataFrame, by_grpc: pd.DataFrame) -> None:
    """Scores one user over HTTP, and expects the same scores."""
    from outrigger_testenv import campaign
    from outrigger_testenv.jsonform import http_request
    from outrigger_testenv.requests import rows

    screen.section("The same scores as JSON")
    body = {"model": {"name": MODEL}, **http_request(next(rows(user)), campaign.OFFERS)}
    data = json.dumps(body).encode()
    with urllib.request.urlopen(f"{stack.serve.http}/v1/predict", data, timeout=10) as answer:
        scores = json.load(answer)["scores"]
    screen.line(f"{json.dumps(scores)}")
    served = np.array([each["score"] for each in scores], "f4")
    expect(
        served.tobytes() == by_grpc["score"].iloc[: len(served)].to_numpy("f4").tobytes(),
        "gRPC and HTTP give different scores",
    )


if __name__ == "__main__":
    sys.exit(main())
