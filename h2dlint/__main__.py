"""`python -m h2dlint` is the command `h2dlint`."""

import sys

from h2dlint.cli import main

if __name__ == "__main__":
    sys.exit(main())
