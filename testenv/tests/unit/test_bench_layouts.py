"""The forms of a model: their requests, figures, and page."""

import numpy as np
import pytest

from outrigger_testenv.bench import layout_figures, layout_page
from outrigger_testenv.bench.figure import FULL
from outrigger_testenv.bench.layout_figures import LAYOUT_FIGURES, NAMES, TREATMENTS


def run(layout, treatments, cost):
    return {
        "layout": layout,
        "treatments": treatments,
        "seconds": 1.5,
        "p50_us": 2 * cost,
        "p99_us": 3 * cost,
        "cpu_us": cost,
        "bytes": 10_000 * cost,
    }


def turn(**costs):
    return tuple(
        run(name, treatments, costs[name.replace("-", "_")] * treatments)
        for name in NAMES
        for treatments in TREATMENTS
    )


@pytest.fixture
def turns(monkeypatch):
    """Two turns of runs instead of measured ones."""
    made = [turn(per_feature=2, example=8, packed=1), turn(per_feature=4, example=3, packed=1)]
    monkeypatch.setattr(layout_figures, "_turns", lambda effort: made)
    return made


def results(turns):
    return [
        {
            "machine": {"cores": 2, "cpu": "a processor"},
            "commit": {"id": "0123456789abcdef"},
            "repeats": len(turns),
            "runs": [run for turn in turns for run in turn if run["layout"] == name],
        }
        for name in NAMES
    ]


def test_a_form_costs_what_a_request_of_the_usual_size_costs(turns):
    measured = layout_figures.cost("example", None, FULL)
    assert list(measured.samples) == [8000, 3000]
    assert measured.conditions == {"p50_us": 11_000, "p99_us": 16_500, "bytes": 55_000_000}
    assert len(measured.runs) == len(turns) * len(TREATMENTS)


def test_the_packed_form_is_compared_with_the_cheaper_other_one(turns):
    for key in ("cpu_us", "bytes"):
        measured = layout_figures.packed_over_others(key, None, FULL)
        assert list(measured.samples) == [1 / 2, 1 / 3]


def test_all_layouts_have_a_figure():
    names = [figure.name for figure in LAYOUT_FIGURES]
    assert names[: len(NAMES)] == [f"layout-{name}" for name in NAMES]


def test_the_page_has_a_row_for_each_size_and_form(turns):
    text = layout_page.text(results(turns))
    assert "commit `0123456789ab` on 2 cores (a processor); medians of 2 turns of 1.5 s" in text
    assert "| 10 | tf.Example | 55 | 110 | 165 | 550,000 |" in text
    assert "| 1,000 | packed | 1,000 | 2,000 | 3,000 | 10,000,000 |" in text
    assert text.count("\n| 1") == len(NAMES) * len(TREATMENTS)
    plot = layout_page.plot(results(turns))
    assert plot.count("<polyline") == 4 * len(NAMES)


def test_the_page_has_marks(tmp_path, monkeypatch, turns):
    import json

    (tmp_path / "docs").mkdir()
    page = tmp_path / layout_page.PAGE
    page.write_text((layout_page.repository() / layout_page.PAGE).read_text())
    monkeypatch.setattr(layout_page, "repository", lambda: tmp_path)
    for name, result in zip(NAMES, results(turns), strict=True):
        (tmp_path / f"layout-{name}.json").write_text(json.dumps(result))
    layout_page.write(tmp_path)
    assert "| 100 | a tensor for each feature |" in page.read_text()
    assert (tmp_path / layout_page.PLOT).read_text().startswith("<svg")


def test_requests_of_all_forms_have_the_same_features():
    from tensorflow.train import Example
    from tensorflow_serving.apis.predict_pb2 import PredictRequest

    from outrigger_testenv.bench.layouts import LAYOUTS
    from outrigger_testenv.reference import TREATMENT_NAMES, USER_NAMES

    user, treatments = np.ones((1, 4), "f4"), np.arange(60, dtype="f4").reshape(3, 20)
    per_feature, examples, packed = (each.tensors(user, treatments) for each in LAYOUTS)
    assert [each.name for each in LAYOUTS] == list(NAMES)
    assert list(per_feature) == [*USER_NAMES, *TREATMENT_NAMES]
    assert per_feature[TREATMENT_NAMES[7]].tolist() == [[[7], [27], [47]]]
    last = Example.FromString(examples["examples"][2]).features.feature
    assert last[TREATMENT_NAMES[7]].float_list.value[0] == 47
    assert packed["treatment"][0, 2, 7] == 47
    sizes = [len(each.request(10)) for each in LAYOUTS]
    assert sizes[2] < min(sizes[:2])
    assert PredictRequest.FromString(LAYOUTS[2].request(10)).model_spec.name == "packed"
