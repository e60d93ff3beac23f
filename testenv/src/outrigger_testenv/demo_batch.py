"""`make demo-batch`: a table of rows in, a table of scores out, with the real binaries.

Trains a campaign model, serves it with an engine and the control plane, writes a Parquet file with
a row for each customer and offer, has `outrigger batch` score it through the control plane's own
front, kills that job in the middle and runs it again, has it score the file with the package alone,
without a server, and compares every score with TensorFlow's.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from outrigger_testenv.demo import (
    ATOL,
    MODEL,
    RTOL,
    TENSORFLOW,
    USERS,
    Beside,
    Screen,
    command,
    expect,
    read,
    short,
    started,
    trained,
)

# Small chunks, so that the job can be ended in the middle of it.
CHUNK_ROWS = 500
# Seconds until the job has committed a chunk.
PATIENCE = 60.0


def main(arguments: list[str] | None = None) -> int:
    """Runs the demo; returns 0 only if every score equals TensorFlow's."""
    return command("make demo-batch", __doc__, run, arguments)


def run(data: Path | None, directory: Path) -> int:
    """The demo itself."""
    from outrigger_testenv.processes import free_ports
    from outrigger_testenv.stack import Stack

    screen = Screen()
    table = read(screen, data)
    package = trained(screen, TENSORFLOW, table, directory, 1)
    (port,) = free_ports(1)
    settings = {"server": {"oip": f"127.0.0.1:{port}"}}
    models = ({"name": MODEL, "view": "features", "preload": True},)
    with Stack(settings, models, start=False) as stack:
        if stack.registry:
            stack.registry.start()
        digest = stack.push(package, MODEL)
        screen.section("Push and start")
        screen.line(f"pushed         {MODEL}:latest  {short(digest)}")
        started(screen, stack, Beside({}, (), ""))
        users = table.customers.iloc[:USERS]
        rows = written(screen, users, directory / "rows.parquet")
        job = described(directory / "job.yaml", rows, port)
        killed(screen, job, directory / "scored")
        screen.section("The same job again")
        found = scored(screen, job, directory / "scored")
        verified(screen, directory / "scored", stack.serve.target, digest)
    screen.section("The same rows without a server")
    alone = directory / "alone"
    beside = scored(screen, packaged(package.directory, rows, alone), alone)
    screen.section("TensorFlow's own answer")
    count = compared(screen, package, users, found) + compared(screen, package, users, beside)
    print(f"\ndemo ok: {count} scores equal TensorFlow's {TENSORFLOW.verdict}")
    return 0


def written(screen: Screen, users: pd.DataFrame, path: Path) -> Path:
    """Writes a row for each customer and offer."""
    from outrigger_testenv import campaign

    screen.section("A table of rows")
    offers = campaign.OFFERS.rename_axis("offer").reset_index()
    rows = users.rename_axis("customer").reset_index().merge(offers, how="cross")
    rows.to_parquet(path, row_group_size=2_000)
    screen.table(rows.head(3))
    screen.line(f"{len(rows):,} rows, {path.stat().st_size / 1e3:.0f} KB")
    return path


def described(path: Path, rows: Path, port: int) -> list[str | Path]:
    """Writes the job; returns the command that runs it."""
    from outrigger_testenv.binary import outrigger

    job = {
        "input": str(rows),
        "output": str(path.with_name("scored")),
        "model": MODEL,
        "hosts": f"127.0.0.1:{port}",
        "keys": ["customer", "offer"],
        "chunk_rows": CHUNK_ROWS,
    }
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    return [outrigger(), "batch", "run", path, "-o", "json"]


def packaged(package: Path, rows: Path, output: Path) -> list[str | Path]:
    """The command that scores the rows with the package itself."""
    from outrigger_testenv.binary import outrigger

    flags = ("--package", package, "--input", rows, "--to", output, "-o", "json")
    return [outrigger(), "batch", "run", *flags, "--key", "customer", "--key", "offer"]


def killed(screen: Screen, command: list[str | Path], job: Path) -> None:
    """Runs the job and kills it after its first chunks."""
    screen.section("A job that is killed")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE
    while not any((job / "commit").glob("*.json")):
        expect(process.poll() is None, "the job ended before its first chunk")
        expect(time.monotonic() < deadline, "the job has committed nothing")
        time.sleep(0.01)
    process.kill()
    process.wait()
    chunks = len(list((job / "commit").glob("*.json")))
    screen.line(f"{chunks} chunks of {CHUNK_ROWS} rows were committed")


def scored(screen: Screen, command: list[str | Path], job: Path) -> pd.DataFrame:
    """Runs the job to its end; returns its output."""
    from outrigger_testenv.stack import library

    start = time.monotonic()
    environment = {**os.environ, **library()}
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    expect(ended.returncode == 0, f"the job failed: {ended.stderr}")
    summary = json.loads(ended.stdout)
    screen.line(
        f"{summary['scored']:,} rows scored, {summary['dead']} dead, "
        f"in {time.monotonic() - start:.1f} s"
    )
    manifest = json.loads((job / "manifest.json").read_text())
    files = [job / chunk["data"]["name"] for chunk in manifest["chunks"]]
    found = pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)
    screen.table(found.head(3))
    return found


def verified(screen: Screen, job: Path, server: str, digest: str) -> None:
    """Has predictions score a sample of the job again."""
    from outrigger_testenv.binary import outrigger

    screen.section("A sample by predictions")
    command = [outrigger(), "batch", "verify", job, "--server", server, "-o", "json"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    expect(ended.returncode == 0, f"the sample is not scored as the job was: {ended.stderr}")
    report = json.loads(ended.stdout)
    same = (report["version_match"], report["answered"]) == ("same", [digest])
    expect(same, "the predictions are of another version")
    agreement = report["scores"]["agreement"]
    screen.line(
        f"{agreement['compared']:,} scores, largest difference {agreement['largest']:.2g}, "
        f"of the same {short(digest)}"
    )


def compared(screen: Screen, package, users: pd.DataFrame, found: pd.DataFrame) -> int:
    """Compares the output with TensorFlow's scores; returns their number."""
    from outrigger_testenv import campaign

    own = np.concatenate(package.score(users, campaign.OFFERS))
    keys = pd.MultiIndex.from_product([users.index, campaign.OFFERS.index])
    expect(len(found) == len(own), f"{len(found)} rows instead of {len(own)}")
    same = list(zip(found["customer"], found["offer"], strict=True)) == list(keys)
    expect(same, "the output has other rows, or another order")
    largest = float(np.abs(own - found["score"]).max())
    screen.line(f"{len(own):,} scores, largest difference {largest:.2g}")
    expect(np.allclose(found["score"], own, RTOL, ATOL), "scores differ from TensorFlow's")
    return len(own)


if __name__ == "__main__":
    sys.exit(main())
