"""Uplift models of boosters: their settings and files in packages, and XGBoost's own scores for
rows, for their controls, and of the difference.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from outrigger_testenv.features import JOINED, Feature, Input

ARM = "arm"
CONTROL = "control"

_ARMS = "arms"

# An output of a booster for rows, such as `value`.
Predict = Callable[[Any, np.ndarray, str], np.ndarray]
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
                booster.save_model(target / f"{name}.ubj")


def function(
    booster: Any, directory: Path, settings: Mapping[str, Any], predict: Predict
) -> Compare:
    """The outputs of an uplift model: `booster` is the package's, whose directory and `uplift`
    settings these are.
    """
    pair = _s_learner if CONTROL in settings else _t_learner
    both = pair(booster, directory, settings, predict)

    def compare(rows: np.ndarray, arms: np.ndarray | None, output: str) -> np.ndarray:
        base, _, part = output.partition("_")
        scores, controls = both(rows, arms, base)
        return {"": scores, "control": controls, "uplift": scores - controls}[part]

    return compare


# The predictions for rows and for their controls.
_Both = Callable[[np.ndarray, np.ndarray | None, str], tuple[np.ndarray, np.ndarray]]


def _s_learner(
    booster: Any, directory: Path, settings: Mapping[str, Any], predict: Predict
) -> _Both:
    def both(
        rows: np.ndarray, arms: np.ndarray | None, output: str
    ) -> tuple[np.ndarray, np.ndarray]:
        names = booster.feature_names or [f"f{at}" for at in range(rows.shape[1])]
        controls = rows.copy()
        for name, value in settings[CONTROL].items():
            controls[:, names.index(name)] = np.nan if value is None else value
        return predict(booster, rows, output), predict(booster, controls, output)

    return both


def _t_learner(
    booster: Any, directory: Path, settings: Mapping[str, Any], predict: Predict
) -> _Both:
    import xgboost

    boosters = [
        None if name == CONTROL else xgboost.Booster(model_file=directory / _ARMS / f"{name}.ubj")
        for name in settings[_ARMS]
    ]

    def both(
        rows: np.ndarray, arms: np.ndarray | None, output: str
    ) -> tuple[np.ndarray, np.ndarray]:
        controls = predict(booster, rows, output)
        scores = controls.copy()
        for number, each in enumerate(boosters):
            here = np.ravel(arms) == number
            if each is not None and here.any():
                scores[here] = predict(each, rows[here], output)
        return scores, controls

    return both
