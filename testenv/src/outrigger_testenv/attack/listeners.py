"""Listeners that are off by default: while one of them is attacked, its own callers get scores."""

import json
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Case
from outrigger_testenv.attack.requests import sent, serves
from outrigger_testenv.attack.scene import Scene
from outrigger_testenv.stack import Stack

_ANSWER = 10.0


@dataclass(frozen=True)
class Listener:
    """A listener, and a prediction over HTTP with its scores."""

    name: str
    path: str
    body: Any
    # Takes the scores out of an answer.
    scores: Callable[[Any], Sequence[float]]
    wanted: Sequence[float]

    def sent(
        self,
        name: str,
        about: str,
        function: Callable[..., Any],
        /,
        *,
        stack: Callable[[Scene], Stack] = lambda scene: scene.stack,
        further: Callable[[str], None] = lambda _: None,
        **arguments: Any,
    ) -> Case:
        """A case as that of `requests.sent`, which also checks that a new caller of this listener
        gets its scores. `further` checks more, by the listener's address.
        """

        def check(scene: Scene) -> str:
            further(scene.address(self.name, stack(scene)))
            return self._check(scene, stack(scene))

        return sent(
            name, about, function, listener=self.name, check=check, stack=stack, **arguments
        )

    def _check(self, scene: Scene, stack: Stack) -> str:
        url = f"http://{scene.address(self.name, stack)}{self.path}"
        try:
            with urllib.request.urlopen(url, json.dumps(self.body).encode(), _ANSWER) as answer:
                found = self.scores(json.load(answer))
        except (OSError, ValueError, LookupError) as error:
            raise Broken(f"a new caller of {self.name}: {error}") from None
        if found != self.wanted:
            raise Broken(f"a new caller of {self.name} gets {found}")
        return serves(scene, stack)
