"""`make kube-apiserver`: builds the API server that the tests on Kubernetes need."""

import sys

from outrigger_testenv.kubernetes import program


def main() -> int:
    """Returns 0 if it is there, 1 if it cannot be built."""
    try:
        print(f"kubernetes: {program.built()}")
    except program.Missing as missing:
        print(f"kubernetes: {missing}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
