"""Uplift models of boosters: their settings and files in packages, and the scores of their own
libraries for rows, for their controls, and of the difference.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from outrigger_testenv import libraries
from outrigger_testenv.features import JOINED, Feature, Input
from outrigger_testenv.libraries import Model

ARM = "arm"
CONTROL = "control"

_ARMS = "arms"

# An output of an uplift model for rows and, for a T-learner, the numbers of their arms.
Compare = Callable[[np.ndarray, np.ndarray | None, str], np.ndarray]


@dataclass(frozen=True)
class SLearner:
    """One booster. `control` has, by the booster's names of features, the values of an untreated
    row: numbers (the position of a word of a vocabulary), or None for a missing value.
    """

    control: Mapping[str, float | None]

    @property
    def settings(self) -> dict[str, Any]:
        """The key `uplift` of metadata.json."""
        return {CONTROL: dict(self.control)}

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs beside the features."""
        return ()

    def write(self, directory: Path) -> None:
        """Writes nothing: the package's booster is the only one."""


@dataclass(frozen=True)
class TLearner:
    """A booster for each arm, beside the package's booster, which is that of the control.

    `arm` is the feature that picks the arm: a vocabulary. `arms` has the boosters in the order of
    its words, by the names that their files get; the control's is called `control` and None.
    """

    arm: Feature
    arms: Mapping[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """The key `uplift` of metadata.json."""
        return {_ARMS: list(self.arms)}

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs beside the features."""
        return (Input(ARM, JOINED, "int64", (self.arm,)),)

    def write(self, directory: Path) -> None:
        """Writes the boosters of the arms into the directory of the package's booster."""
        target = directory / _ARMS
        target.mkdir(exist_ok=True)
        for name, booster in self.arms.items():
            if booster is not None:
                file = libraries.FILES.get(libraries.framework(booster), "model.ubj")
                libraries.save(booster, target / file.replace("model", name, 1))


def function(
    model: Model, read: Callable[[Path], Model], directory: Path, settings: Mapping[str, Any]
) -> Compare:
    """The outputs of an uplift model: `model` is the package's, whose directory and `uplift`
    settings these are, and `read` reads the file of another one.
    """
    if CONTROL in settings:
        both = _s_learner(model, settings[CONTROL])
    else:
        both = _t_learner(model, read, directory / _ARMS, settings[_ARMS])

    def compare(rows: np.ndarray, arms: np.ndarray | None, output: str) -> np.ndarray:
        base, _, part = output.partition("_")
        scores, controls = both(rows, arms, base)
        return {"": scores, "control": controls, "uplift": scores - controls}[part]

    return compare


# The predictions for rows and for their controls.
_Both = Callable[[np.ndarray, np.ndarray | None, str], tuple[np.ndarray, np.ndarray]]


def _s_learner(model: Model, control: Mapping[str, float | None]) -> _Both:
    def both(
        rows: np.ndarray, arms: np.ndarray | None, output: str
    ) -> tuple[np.ndarray, np.ndarray]:
        names = list(model.names or (f"f{at}" for at in range(rows.shape[1])))
        controls = rows.copy()
        for name, value in control.items():
            # LightGBM writes a blank in a name as `_`.
            written = name if name in names else name.replace(" ", "_")
            controls[:, names.index(written)] = np.nan if value is None else value
        return model.predict(rows, output), model.predict(controls, output)

    return both


def _t_learner(
    model: Model, read: Callable[[Path], Model], directory: Path, names: Sequence[str]
) -> _Both:
    files = {file.stem: file for file in directory.iterdir()}
    models = [None if name == CONTROL else read(files[name]) for name in names]

    def both(
        rows: np.ndarray, arms: np.ndarray | None, output: str
    ) -> tuple[np.ndarray, np.ndarray]:
        controls = model.predict(rows, output)
        scores = controls.copy()
        for number, each in enumerate(models):
            here = np.ravel(arms) == number
            if each is not None and here.any():
                scores[here] = each.predict(rows[here], output)
        return scores, controls

    return both
