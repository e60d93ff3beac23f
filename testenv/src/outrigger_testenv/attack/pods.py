"""A model in the engine's container of the chart's pod, which looks for secrets."""

from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Case, Turn
from outrigger_testenv.attack.scene import Scene
from outrigger_testenv.chart.cases import CASES as VALUES
from outrigger_testenv.chart.pod import LocalPod
from outrigger_testenv.chart.reach import reached
from outrigger_testenv.chart.root import may_mount


def _attack(_: Scene, turn: Turn) -> str:
    if not may_mount():
        return "not run: needs root's rights"
    with LocalPod(VALUES["minimal"].rendered) as pod:
        if found := reached(pod.start()):
            raise Broken(f"the engine's user reaches {found[0]}")
    turn.wait()
    return "nothing is reached"


CASES = [
    Case(
        "pod-secrets",
        "files, settings and signals of the control plane, from the engine's container",
        _attack,
        turns=1,
    )
]
