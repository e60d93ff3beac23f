"""Generates the Python classes of `outrigger.v1` and `inference` from the repository's protos.

The output, the packages `outrigger` and `inference` beside this one, is not committed; it is
generated when the virtual environment is set up.
"""

import argparse
import sys
from pathlib import Path

PACKAGES = ("inference", "outrigger/v1")


def generate(protos: Path, out: Path) -> list[Path]:
    """Compiles every file of the packages into `out`; returns the files written."""
    from grpc_tools import protoc

    includes = Path(protoc.__file__).parent / "_proto"
    sources = []
    for package in PACKAGES:
        found = sorted(path.relative_to(protos) for path in protos.glob(f"{package}/*.proto"))
        if not found:
            raise FileNotFoundError(f"no protos under {protos}/{package}")
        sources += found
    command = ["protoc", f"-I{protos}", f"-I{includes}"]
    command += [f"--{kind}={out}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    if protoc.main(command + [str(source) for source in sources]) != 0:
        raise RuntimeError("protoc failed, see above")
    return sorted(path for package in PACKAGES for path in (out / package).glob("*.py*"))


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
