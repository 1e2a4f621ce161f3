"""The first lines of a worker, run as a script: its path is that of the door which started it."""

import json
import sys

if __name__ == "__main__":
    start = json.load(sys.stdin)
    sys.path[:] = start.pop("path")

    from fedbn_flower.warm.worker import Worker

    Worker(**start).run()
