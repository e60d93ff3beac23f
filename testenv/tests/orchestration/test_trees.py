"""XGBoost models in the process of the control plane: pushed, checked, served and replaced."""

import json
import os
import subprocess
import urllib.request

import numpy as np
import pandas as pd
import pytest

from outrigger_testenv import boosters, campaign_trees, canaries, requests
from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import tree_package
from outrigger_testenv.campaign import OFFERS, generate
from outrigger_testenv.client import request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.features import TREATMENT, USER, numeric
from outrigger_testenv.jsonform import http_request
from outrigger_testenv.load import Load
from outrigger_testenv.variants import good

FORMS = [requests.TABLE, requests.KEY_VALUE]
PRICES = pd.DataFrame({"price": np.float32([-2, 0.5, 3])}, index=["a", "b", "c"])
TINY = (
    numeric("age", entity=USER, default=30),
    numeric("price", entity=TREATMENT, required=True),
)


@pytest.fixture(scope="module")
def campaign():
    """The customers that models are trained with."""
    return generate(4000)


@pytest.fixture(scope="module")
def customers(campaign):
    """Customers, of whom the first ones lack values and have unknown words."""
    table = campaign.customers.copy()
    table["recency"] = table["recency"].astype("float64")
    table.loc[table.index[:3], "recency"] = np.nan
    table.loc[table.index[:3], "zip_code"] = "Mars"
    return table


@pytest.fixture(scope="module")
def trained(campaign, tmp_path_factory):
    """Trains a model, whose file has the given name and whose score is the given output."""

    def train(rounds=20, **package):
        directory = tmp_path_factory.mktemp("trees")
        return campaign_trees.train(campaign, directory, str(rounds), rounds, **package)

    return train


@pytest.fixture(scope="module")
def alone(trained, tmp_path_factory):
    """A control plane without another engine, and without TensorFlow."""
    from outrigger_testenv.stack import Stack

    with Stack(engine=False) as running:
        yield running
        running.check()


@pytest.fixture
def booster():
    """Trains trees on a function of age and price."""

    def train(score, rounds=40):
        import xgboost

        draw = np.random.default_rng(1)
        ages, prices = draw.integers(18, 80, 20_000), draw.normal(0, 3, 20_000)
        table = np.column_stack([ages, prices]).astype("float32")
        data = xgboost.DMatrix(table, score(ages, prices), feature_names=["age", "price"])
        parameters = {"objective": "reg:logistic", "max_depth": 6, "eta": 0.3}
        return xgboost.train(parameters, data, rounds)

    return train


def as_good(ages, prices):
    """The formula of `variants.good`."""
    return 1 / (1 + np.exp(-(0.05 * (ages - 40.0) + 0.1 * prices)))


def command(*arguments):
    """Runs a command of the binary where TensorFlow cannot be found."""
    environment = {**os.environ, "OUTRIGGER_TENSORFLOW": "/nowhere"}
    return subprocess.run(
        [outrigger(), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )


@pytest.mark.parametrize(
    "made",
    [
        {"file": "model.ubj", "output": "value"},
        {"file": "model.json", "output": "margin"},
    ],
    ids=lambda made: made["output"],
)
def test_scores_equal_xgboosts_in_every_bit(client, serving, customers, trained, made):
    package = trained(**made)
    name = f"trees/{made['output']}"
    digest = serving(package, name)
    users = customers.iloc[:50]
    own = np.concatenate(package.score(users, OFFERS))
    for form in FORMS:
        scores = client.predict(name, users, OFFERS, form=form)
        assert set(scores["digest"]) == {digest}
        assert scores["score"].to_numpy("f4").tobytes() == own.tobytes(), form


def test_classes_and_leaves_are_outputs_of_several_columns(client, serving, tmp_path):
    import xgboost

    draw = np.random.default_rng(1)
    table = draw.uniform(-30, 50, (2000, 2)).astype("f4")
    labels = table.argmax(axis=1) + (table.min(axis=1) > 10)
    data = xgboost.DMatrix(table, labels, feature_names=["age", "price"])
    booster = xgboost.train({"objective": "multi:softprob", "num_class": 3}, data, 5)
    made = {
        "classes": {"output": "value", "width": 3, "score_column": 2},
        "leaves": {"output": "leaf", "width": 15, "score_column": 14},
    }
    users = pd.DataFrame({"age": [20.0, 47.5]})
    for name, settings in made.items():
        golden = (users, PRICES)
        package = tree_package(booster, TINY, tmp_path / name, golden=golden, **settings)
        serving(package, f"trees/{name}")
        scores = client.predict(f"trees/{name}", users, PRICES)
        own = np.concatenate(package.values(users, PRICES))
        column = package.metadata.outputs[0].score_column
        assert scores["score"].to_numpy("f4").tobytes() == own[:, column].astype("f4").tobytes()
        assert np.stack(scores["values"]).tolist() == own.tolist()


def test_http_gives_the_same_scores(stack, serving, customers, trained):
    package = trained()
    serving(package, "trees/http")
    users = customers.iloc[5:6]
    row = next(requests.rows(users))
    body = {"model": {"name": "trees/http"}, **http_request(row, OFFERS)}
    data = json.dumps(body).encode()
    with urllib.request.urlopen(f"{stack.serve.http}/v1/predict", data, timeout=10) as answer:
        scores = json.load(answer)["scores"]
    served = np.array([each["score"] for each in scores], "f4")
    assert served.tobytes() == package.score(users, OFFERS)[0].tobytes()


def test_contributions_equal_xgboosts(client, serving, customers, trained):
    package = trained()
    serving(package, "trees/contributions")
    own = boosters.function(package.directory, ["contributions", "margin"])
    for user in requests.rows(customers.iloc[:5]):
        message = request(user, OFFERS)
        message.model.CopyFrom(selector("trees/contributions"))
        tensors, _ = client.explain(message)
        expected = own(tensors)
        contributions = client.contributions(message)[:, 0]
        np.testing.assert_allclose(contributions, expected["contributions"], atol=1e-4)
        np.testing.assert_allclose(contributions.sum(axis=1), expected["margin"], atol=1e-4)


def test_contributions_name_the_features_and_need_a_model_that_has_them(
    client, serving, customers, trained, package
):
    serving(trained(), "trees/named")
    message = request(next(requests.rows(customers.iloc[:1])), OFFERS)
    message.model.CopyFrom(selector("trees/named"))
    message.options.contributions = True
    _, answer = client.explain(message)
    named = [(each.entity, each.feature) for each in answer.contributions.features]
    assert named == [(column.entity, column.name) for column in campaign_trees.COLUMNS]
    serving(package(good), "plain")
    message = request({"age": 30}, PRICES)
    message.model.CopyFrom(selector("plain"))
    message.options.contributions = True
    with pytest.raises(OutriggerError) as caught:
        client.explain(message)
    assert caught.value.reason == "CONTRIBUTIONS_UNSUPPORTED"


def test_options_limit_the_iterations_and_name_the_missing_value(
    client, serving, customers, trained
):
    package = trained(iterations=[0, 7], missing=1.0)
    serving(package, "trees/options")
    users = customers.iloc[:20]
    own = np.concatenate(package.score(users, OFFERS))
    scores = client.predict("trees/options", users, OFFERS)["score"].to_numpy("f4")
    assert scores.tobytes() == own.tobytes()
    everything = np.concatenate(trained().score(users, OFFERS))
    assert scores.tobytes() != everything.tobytes()


def test_many_treatments_and_many_users_are_scored(client, serving, customers, trained):
    package = trained()
    serving(package, "trees/many")
    users = customers.iloc[:64]
    draw = np.random.default_rng(2)
    frames = [
        pd.DataFrame(draw.integers(0, 2, (rows, 2)).astype("f4"), columns=OFFERS.columns)
        for rows in [0, 1, 5000, *draw.integers(1, 40, 61)]
    ]
    scores = client.predict("trees/many", users, frames)["score"].to_numpy("f4")
    assert scores.tobytes() == np.concatenate(package.score(users, frames)).tobytes()


def test_a_control_plane_needs_no_other_engine(alone, customers, trained):
    package = trained()
    digest = alone.push(package, "trees/alone")
    client = alone.client()
    users = customers.iloc[:10]
    scores = client.predict("trees/alone", users, OFFERS)
    assert set(scores["digest"]) == {digest}
    own = np.concatenate(package.score(users, OFFERS))
    assert scores["score"].to_numpy("f4").tobytes() == own.tobytes()
    assert alone.serve.get("/readyz") == (200, "ready\n")
    metrics = alone.serve.metrics()
    used = metrics['outrigger_memory_used_bytes{account="plans"}']
    assert used > 1000, "the model is charged to the account of plans"


def test_no_request_fails_while_the_tag_moves(alone, customers, trained, tmp_path):
    first, second = trained(10), trained(30)
    before = alone.push(first, "trees/moving")
    messages = []
    for label, row in zip(customers.index[:20], requests.rows(customers.iloc[:20]), strict=False):
        messages.append(request(row, OFFERS, key=str(label)))
        messages[-1].model.CopyFrom(selector("trees/moving"))
    client = alone.client()
    client.load("trees/moving")
    with Load(alone.serve.target, messages, tmp_path) as load:
        load.wait_for(before)
        after = alone.push(second, "trees/moving")
        load.wait_for(after)
        report = load.stop()
    assert report.failed == 0, report.first_errors
    users = customers.iloc[:5]
    scores = client.predict("trees/moving", users, OFFERS)["score"].to_numpy("f4")
    assert scores.tobytes() == np.concatenate(second.score(users, OFFERS)).tobytes()


def test_a_package_is_validated_inspected_and_compared_without_tensorflow(
    alone, customers, trained
):
    package = trained()
    alone.push(package, "trees/checked")
    reference = alone.reference("trees/checked")
    plain = ["--plain-http", alone.registry.host] if alone.registry else []
    for source in [package.directory, reference]:
        done = command("validate", source, *plain)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "4 golden cases score as expected" in done.stdout
    done = command("inspect", reference, *plain, "-o", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [each["name"] for each in report["features"]] == [
        column.name for column in campaign_trees.COLUMNS
    ]
    types = {each["name"]: each["dtype"] for each in report["inputs"] + report["outputs"]}
    scores = {"value": "float32", "margin": "float32", "leaf": "int32"}
    assert types == {"features": "float32", **scores}
    done = command("diff", package.directory, trained(30).directory)
    assert done.returncode == 1, done.stderr


def test_other_scores_than_expected_are_refused(alone, trained):
    package = trained()
    cases = (package.directory / "golden.jsonl").read_text().splitlines()
    case = json.loads(cases[0])
    case["expected"]["scores"][0] += 0.1
    (package.directory / "golden.jsonl").write_text(json.dumps(case) + "\n")
    done = command("validate", package.directory)
    assert done.returncode == 1
    assert "GOLDEN_MISMATCH" in done.stdout
    alone.push(package, "trees/wrong")
    with pytest.raises(OutriggerError) as caught:
        alone.client().load("trees/wrong")
    assert caught.value.reason == "GOLDEN_MISMATCH"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("names", "the model says it is"),
        ("file", "model.ubj: "),
        ("two", "several models in /data/xgboost: model.ubj, model.json"),
        ("none", "looked for model.ubj or model.json"),
        ("options", "options.json: iterations [0, 99] are not in"),
    ],
)
def test_an_invalid_package_is_refused_with_the_cause(alone, trained, spoil, message):
    package = trained()
    model = package.directory / "xgboost"
    if spoil == "names":
        text = (package.directory / "metadata.json").read_text()
        (package.directory / "metadata.json").write_text(text.replace("recency", "regency"))
        (package.directory / "golden.jsonl").unlink()
    elif spoil == "file":
        whole = (model / "model.ubj").read_bytes()
        (model / "model.ubj").write_bytes(whole[: len(whole) // 2])
    elif spoil == "two":
        (model / "model.json").write_text("{}")
    elif spoil == "none":
        (model / "model.ubj").rename(model / "other.ubj")
    else:
        (model / "options.json").write_text('{"iterations": [0, 99]}')
    name = f"trees/invalid-{spoil}"
    alone.push(package, name)
    with pytest.raises(OutriggerError) as caught:
        alone.client().load(name)
    assert caught.value.reason == "IMAGE_INVALID"
    why = alone.serve.run("models", "why", name)
    assert message in why.stdout, why.stdout + why.stderr


def test_a_model_that_memory_does_not_suffice_for_is_refused_with_the_key(
    own_stack, trained, campaign
):
    stack = own_stack(engine=False, overrides={"server": {"memory": "256MiB"}})
    package = trained()
    # Twice the file is more than the account of packages, an eighth. What follows a model's end is
    # not read.
    with (package.directory / "xgboost" / "model.ubj").open("ab") as file:
        file.truncate(20 << 20)
    stack.push(package, "trees/large")
    with pytest.raises(OutriggerError) as caught:
        stack.client().load("trees/large")
    assert caught.value.reason == "IMAGE_INVALID"
    why = stack.serve.run("models", "why", "trees/large").stdout
    assert "32.0 MiB for packages" in why, why
    assert "server.memory" in why, why


@pytest.mark.usefixtures("needs_registry")
@pytest.mark.parametrize("live", ["tensorflow", "trees"])
def test_a_canary_of_the_other_framework_is_promoted(own_stack, booster, package, tmp_path, live):
    stack = own_stack(overrides={"canary": {"defaults": canaries.QUICK}})
    trees = tree_package(booster(as_good), TINY, tmp_path / "trees")
    versions = {"tensorflow": package(good), "trees": trees}
    first = stack.push(versions.pop(live), "trees/canary")
    (other,) = versions.values()
    draw = np.random.default_rng(1)
    messages = []
    for age in draw.integers(18, 80, 200):
        prices = pd.DataFrame({"price": draw.normal(0, 3, 3).astype("float32")})
        messages.append(request({"age": int(age)}, prices))
        messages[-1].model.CopyFrom(selector("trees/canary"))
    stack.client().load("trees/canary")
    with Load(stack.serve.target, messages, tmp_path) as load:
        load.wait_for(first)
        canary = stack.push(other, "trees/canary", "latest_canary")
        decisions = canaries.wait_for_decisions(stack.serve, "trees/canary")
        report = load.stop()
    assert report.failed == 0, report.first_errors
    assert decisions[0]["outcome"] == "OUTCOME_PROMOTED", decisions[0]
    assert decisions[0]["canary_digest"] == canary
