"""An agent whose workers are those of fake_worker.py."""

import sys
from pathlib import Path

from fastllmload.engine.hosts import agent
from fastllmload.engine.workers import fleet

fleet.WORKER = (sys.executable, str(Path(__file__).parent / "fake_worker.py"))

if __name__ == "__main__":
    sys.exit(agent.main())
