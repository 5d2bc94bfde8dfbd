"""`python -m vllm_spectool`: the command `vllm-spectool`."""

import sys

from vllm_spectool.cli import main

if __name__ == "__main__":
    sys.exit(main())
