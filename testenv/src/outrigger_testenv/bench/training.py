"""`make profile`: records the branch counts of an instrumented binary while it serves.

With this profile the compiler places code that runs together side by side, and other code apart
(profile-guided optimization, https://doc.rust-lang.org/rustc/profile-guided-optimization.html).
Code without counts is optimized for size, so everything that has to be fast must run here. The code
that runs depends on the width of the processor's vectors, so it serves once for each width.
"""

import argparse
import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from outrigger_testenv.bench.figure import Effort
from outrigger_testenv.bench.generator import CLOSED_LOOP, FRAME, ONE_FRAME, Side, run
from outrigger_testenv.bench.setup import TENSORFLOW, THREADS
from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.everything import everything
from outrigger_testenv.reference import reference_model
from outrigger_testenv.stack import Stack

# The widths of vectors in bytes, as OUTRIGGER_VECTORS has them; the first only where the processor
# has it. Without the narrower ones, other processors would run code that was optimized for size.
VECTORS = ("64", "32", "16")
FORMS = ("columnar", "kv", "json")
# Callers send frames of 16 KiB, and some larger ones.
FRAMES = (FRAME, ONE_FRAME)
_EFFORT = Effort(repeats=1, warmup=0.5, measured=6, held=0)
# The tool may be of another LLVM than the compiler's, but not older than the format that the
# compiler writes.
_MERGE = os.environ.get("LLVM_PROFDATA", "llvm-profdata-19")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs OUTRIGGER_BIN and writes the merged profile. Returns 0 or raises an exception."""
    parser = argparse.ArgumentParser(prog="make profile", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="the profile to write")
    parser.add_argument("--add", type=Path, help="another profile, compressed, to merge")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="outrigger-training-") as directory:
        counts = Path(directory) / "counts"
        # Up to eight concurrent processes write a file each; later ones merge into them.
        os.environ.update(TENSORFLOW, LLVM_PROFILE_FILE=str(counts / "%8m.profraw"))
        packages = {
            "reference": reference_model(Path(directory) / "reference"),
            "everything": everything(Path(directory) / "everything"),
        }
        for width in VECTORS:
            print(f"vectors of {width} bytes")
            os.environ["OUTRIGGER_VECTORS"] = width
            serve(packages)
        judge()
        merge = [_MERGE, "merge", "--sparse", "--output", options.output, counts]
        if options.add:
            added = Path(directory) / "added.profdata"
            added.write_bytes(gzip.decompress(options.add.read_bytes()))
            merge.append(added)
        subprocess.run(merge, check=True)
    return 0


def serve(packages: dict[str, ModelPackage]) -> None:
    """Pulls the models and sends requests of all forms for them."""
    with Stack(threads=THREADS) as stack:
        client, http = stack.client(), stack.serve.http.removeprefix("http://")
        for model, package in packages.items():
            digest = stack.push(package, model)
            client.load(model)
            client.wait_until_serving(model, digest)
            for form, frame in rounds():
                address = http if form == "json" else stack.serve.target
                arguments = ["--server", address, "--model", model, "--form", form]
                arguments += ["--frame-size", str(frame)]
                _ask(f"{model}, {form}, frames of {frame >> 10} KiB", arguments, package)
            (version,) = client.model(model).versions
            direct = ["--direct", stack.engine.endpoint, "--servable", version.servable]
            _ask(f"{model}, direct", direct, package)
        # Stopped, because a killed process writes no counts.
        for part in (stack.serve, stack.engine):
            part.process.stop()


def rounds() -> Iterator[tuple[str, int]]:
    """The forms with the sizes of frames in which each is sent; JSON has no frames."""
    for form in FORMS:
        yield from ((form, frame) for frame in (FRAMES[:1] if form == "json" else FRAMES))


def judge() -> None:
    """Runs the judge on simulated canaries."""
    command = [outrigger(), "canary", "simulate", "--rate", "200", "--runs", "20"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def _ask(name: str, arguments: Sequence[str], package: ModelPackage) -> None:
    side = Side(name, [*arguments, "--package", str(package.directory)], {})
    print(f"{name}: {run(side, CLOSED_LOOP, _EFFORT).throughput:.0f}/s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
