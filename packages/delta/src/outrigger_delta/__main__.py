"""`python -m outrigger_delta`, the same as `outrigger-delta`."""

import sys

from outrigger_delta.command import main

if __name__ == "__main__":
    sys.exit(main())
