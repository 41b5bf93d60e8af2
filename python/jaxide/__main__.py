"""``python -m jaxide``."""

import sys

from jaxide._cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
