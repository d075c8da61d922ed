"""`python -m cluster.serving.again HOME` restarts serving after the cluster was lost.

The head process that restarts the cluster starts this process too, which waits for the cluster, and
stops it when the cluster ends. A start that fails, such as on a port that a dying process still
holds, is tried again.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from cluster.runtime.logs import log_to
from cluster.serving.starting import start
from cluster.storage.home import Home
from tacl.errors import TaclError

PAUSE = 1.0  # seconds between two tries
WAIT = 0.1  # seconds between two checks whether the cluster runs
LOG = logging.getLogger("cluster.serving.again")  # `__name__` is __main__ here


def main() -> None:
    home = Home(Path(sys.argv[1]))
    log_to(home.logs, "cluster")
    while (asked := home.serving()) is not None:
        if (running := home.running()) is None or running.lost is not None:
            time.sleep(WAIT)
            continue
        try:
            start(home, asked, LOG.info)
        except (TaclError, RayError, RayServeException, RuntimeError, OSError):
            LOG.exception("serving could not be restarted yet; trying again")
            time.sleep(PAUSE)
        else:
            LOG.info("serving was restarted")
            return


if __name__ == "__main__":
    main()
