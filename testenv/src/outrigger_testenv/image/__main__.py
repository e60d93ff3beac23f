"""`make image`: builds the image as a layout directory, with its SBOM as a file beside it."""

import argparse
import sys
from pathlib import Path

from outrigger_testenv.image.build import TooLarge, build


def main() -> int:
    """Returns 0, or 1 if the image exceeds the size limit."""
    parser = argparse.ArgumentParser(prog="make image", description=__doc__)
    parser.add_argument(
        "--output", type=Path, required=True, help="the output directory, which is replaced"
    )
    output = parser.parse_args().output
    try:
        built = build(output)
    except TooLarge as error:
        print(f"the image is too large: {error}", file=sys.stderr)
        return 1
    document = output.with_suffix(".cdx.json")
    document.write_bytes(built.sbom)
    print(
        f"oci:{output}:{built.tag} {built.image.digest}, {built.image.size / 1e6:.1f} MB compressed"
    )
    print(f"{document}: what it is made of")
    return 0


if __name__ == "__main__":
    sys.exit(main())
