"""Figures: statistics, targets, output lines and files."""

import json

import pytest

from outrigger_testenv.bench.figure import FULL, QUICK, Figure, Measurement, at_least, at_most
from outrigger_testenv.bench.figures import COMPARISONS, FIGURES, chosen
from outrigger_testenv.bench.result import Result, shown
from outrigger_testenv.bench.spread import Spread, in_turns


def figure(target=None, name="path-some-ratio", unit="x"):
    return Figure(name, "this over that", unit, lambda *_: None, target, lambda _: 1.0)


def result(samples, target=None, **conditions):
    return Result(figure(target), Measurement(samples, conditions, [{"side": "engine"}]), 2.0)


def test_a_spread_is_of_order_statistics():
    assert Spread.of([5, 1, 4, 2, 3]) == Spread(1, 2, 3, 4, 5)
    assert Spread.of([1, 2]) == Spread(1, 1.25, 1.5, 1.75, 2)
    assert Spread.of([7]) == Spread(7, 7, 7, 7, 7)


def test_nothing_has_no_spread():
    with pytest.raises(ValueError, match="no samples"):
        Spread.of([])


def test_sides_run_by_turns_and_every_other_time_in_reverse():
    order = []

    def side(name):
        def run():
            order.append(name)
            return f"{name}{len(order)}"

        return run

    assert in_turns(3, side("a"), side("b")) == [("a1", "b2"), ("a4", "b3"), ("a5", "b6")]
    assert order == ["a", "b", "b", "a", "a", "b"]


def test_a_target_is_met_at_its_bound():
    assert at_least(0.5).met_by(0.5)
    assert not at_least(0.5).met_by(0.499)
    assert at_most(6).met_by(6)
    assert not at_most(6).met_by(6.01)


def test_targets_are_held_against_the_value_before_it_is_rounded():
    assert not result([0.64999], at_least(0.65)).met
    assert result([0.64999], at_least(0.65)).line() == "bench path-some-ratio 0.650 x"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4123.4, "4123"),
        (61.57, "61.6"),
        (3.094, "3.09"),
        (0.28999, "0.290"),
        (0.00123, "0.00123"),
        (-0.5, "-0.500"),
        (0, "0"),
        (999.6, "1000"),
    ],
)
def test_three_digits_count(value, text):
    assert shown(value) == text


def test_the_median_is_quoted_and_the_spread_beside_it():
    measured = result([0.9, 0.1, 0.3, 0.2, 0.4], at_least(0.33))
    assert measured.line() == "bench path-some-ratio 0.300 x"
    assert measured.comment() == (
        "# path-some-ratio: this over that; half of 5 turns within 0.200 to 0.400"
    )
    assert measured.verdict == "target >= 0.33: missed"


def test_a_single_run_has_no_spread():
    assert result([4000.0]).comment() == "# path-some-ratio: this over that"


def test_a_figure_without_a_target_misses_none():
    assert result([1.0]).met
    assert result([1.0]).verdict == "no target"


def test_a_file_holds_the_details_that_the_line_omits(tmp_path):
    measured = result([3.0, 1.0, 2.0], at_most(1.5), measured_at=3000)
    file = measured.figure.file(tmp_path / "bench")
    measured.write(file, {"machine": {"cores": 2}})
    assert file.name == "path-some-ratio.json"
    content = json.loads(file.read_text())
    assert content == {
        "name": "path-some-ratio",
        "about": "this over that",
        "value": 2.0,
        "unit": "x",
        "target": "<= 1.5",
        "met": False,
        "spread": {
            "min": 1.0,
            "lower_quartile": 1.5,
            "median": 2.0,
            "upper_quartile": 2.5,
            "max": 3.0,
        },
        "repeats": 3,
        "samples": [3.0, 1.0, 2.0],
        "conditions": {"measured_at": 3000},
        "seconds": 2.0,
        "machine": {"cores": 2},
        "runs": [{"side": "engine"}],
    }


def test_figures_are_chosen_by_how_they_begin():
    assert [each.name for each in chosen("path-kv")] == ["path-kv-ratio", "path-kv-frames"]
    assert chosen("") == list(FIGURES)
    assert chosen("no-such") == []


def test_no_two_figures_have_one_name():
    names = [each.name for each in (*FIGURES, *COMPARISONS)]
    assert len(set(names)) == len(names)


def test_all_of_them_take_less_than_an_hour():
    assert all(each.seconds(QUICK) > 0 for each in FIGURES)
    assert sum(each.seconds(FULL) for each in FIGURES) < 60 * 60
