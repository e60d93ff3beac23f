"""`make language-server`: installs the server of language models that tests need."""

import sys

from outrigger_testenv import pinned
from outrigger_testenv.language.server import LLAMA


def main() -> int:
    """Returns 0 if it is there, 1 if it cannot be installed."""
    return pinned.fill([LLAMA])


if __name__ == "__main__":
    sys.exit(main())
