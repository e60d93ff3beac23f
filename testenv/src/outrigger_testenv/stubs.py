"""Generates the Python classes of `outrigger.v1` from the repository's protos.

The output, the package `outrigger` beside this one, is not committed; it is generated when the
virtual environment is set up.
"""

import argparse
import sys
from pathlib import Path


def generate(protos: Path, out: Path) -> list[Path]:
    """Compiles every file of `protos/outrigger/v1` into `out`; returns the files written."""
    from grpc_tools import protoc

    includes = Path(protoc.__file__).parent / "_proto"
    sources = sorted(path.relative_to(protos) for path in protos.glob("outrigger/v1/*.proto"))
    if not sources:
        raise FileNotFoundError(f"no protos under {protos}/outrigger/v1")
    command = ["protoc", f"-I{protos}", f"-I{includes}"]
    command += [f"--{kind}={out}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    if protoc.main(command + [str(source) for source in sources]) != 0:
        raise RuntimeError("protoc failed, see above")
    return sorted((out / "outrigger" / "v1").glob("*.py*"))


def main(arguments: list[str] | None = None) -> int:
    """`python -m outrigger_testenv.stubs [--protos DIR] [--out DIR]`."""
    source = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--protos", type=Path, default=source.parents[1] / "proto")
    parser.add_argument("--out", type=Path, default=source)
    options = parser.parse_args(arguments)
    generate(options.protos.resolve(), options.out.resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
