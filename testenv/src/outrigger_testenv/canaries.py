"""Canaries of tests: settings with which one is decided within seconds, and its decision."""

import json
import time
from typing import Any

from outrigger_testenv.stack import ControlPlane

# Settings of a canary between models that score alike and take different times.
QUICK = {
    "minimum_time": "1s",
    "minimum_requests": 200,
    "warm_up": {"requests": 100},
    "ramp": {"share": 0.5},
    "signals": {
        "error_rate": {"margin": 0.05},
        "non_finite": {"limits": {"margin": 0.05}},
        "score_drift": {"margin": 0.2},
        "latency": {"limits": {"off": True}},
    },
}


def wait_for_decisions(serve: ControlPlane, model: str) -> list[dict[str, Any]]:
    """Waits for decisions about the canaries of a model. Raises TimeoutError after 5 minutes."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        done = serve.run("canary", "status", model, "-o", "json")
        if decisions := json.loads(done.stdout).get("decisions"):
            return decisions
        time.sleep(0.2)
    raise TimeoutError(f"nothing was decided: {done.stdout}")
