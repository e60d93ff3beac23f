"""Uplift models of XGBoost: the scores are the differences of XGBoost's own, in every bit."""

import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from outrigger_testenv import boosters, campaign_trees, requests
from outrigger_testenv.binary import outrigger
from outrigger_testenv.campaign import OFFERS, generate
from outrigger_testenv.campaign_trees import NAMED_OFFERS
from outrigger_testenv.client import request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.uplift import SLearner

CONTROL = SLearner({"mens_goods": 0, "womens_goods": 0})


@pytest.fixture(scope="module")
def campaign():
    """The customers that models are trained with."""
    return generate(4000)


@pytest.fixture
def s_learner(campaign, tmp_path):
    """An S-learner whose control has got no e-mail."""
    return campaign_trees.train(
        campaign, tmp_path, "1", rounds=20, output="value_uplift", uplift=CONTROL
    )


@pytest.fixture
def t_learner(campaign, tmp_path):
    """A T-learner with an arm for each e-mail."""
    return campaign_trees.train_arms(campaign, tmp_path, rounds=20)


def expect_equal(client, package, name, users, offers):
    """Expects served scores of both forms of requests to be those of the package."""
    own = np.concatenate(package.score(users, offers))
    for form in [requests.TABLE, requests.KEY_VALUE]:
        scores = client.predict(name, users, offers, form=form)["score"].to_numpy("f4")
        assert scores.tobytes() == own.tobytes(), form
    return own.reshape(len(users), -1)


def validated(package):
    """The output of `validate`, which must succeed."""
    command = [outrigger(), "validate", package.directory]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_s_learners_scores_are_the_difference_to_the_control(
    client, serving, campaign, s_learner
):
    serving(s_learner, "uplift/s")
    own = expect_equal(client, s_learner, "uplift/s", campaign.customers.iloc[:50], OFFERS)
    assert not own[:, 0].any(), "no e-mail has no effect"
    assert own[:, 1:].any(axis=0).all()
    assert "4 golden cases score as expected" in validated(s_learner)


def test_a_t_learners_scores_are_the_difference_of_the_arms(client, serving, campaign, t_learner):
    serving(t_learner, "uplift/t")
    users = campaign.customers.iloc[:50]
    offers = pd.concat([NAMED_OFFERS, pd.DataFrame({"offer": ["Postcard"]}, index=["other"])])
    own = expect_equal(client, t_learner, "uplift/t", users, offers)
    assert not own[:, [0, 3]].any(), "neither the control nor an unknown offer has an effect"
    assert own[:, 1:3].any(axis=0).all()
    assert "4 golden cases score as expected" in validated(t_learner)


def test_a_t_learners_contributions_are_the_differences_of_xgboosts(
    client, serving, campaign, t_learner
):
    serving(t_learner, "uplift/explained")
    own = boosters.function(t_learner.directory, ["contributions_uplift", "margin_uplift"])
    for user in requests.rows(campaign.customers.iloc[:5]):
        message = request(user, NAMED_OFFERS)
        message.model.CopyFrom(selector("uplift/explained"))
        tensors, _ = client.explain(message)
        expected = own(tensors)
        contributions = client.contributions(message)[:, 0]
        # The arm is the last column before the base value.
        of_xgboost = np.insert(expected["contributions_uplift"], -1, 0, axis=1)
        np.testing.assert_allclose(contributions, of_xgboost, atol=1e-4)
        np.testing.assert_allclose(contributions.sum(axis=1), expected["margin_uplift"], atol=1e-4)
        assert not contributions[0].any(), "no e-mail is the control"
        assert contributions[1:].any(axis=1).all()


def test_inspect_and_diff_show_the_control(s_learner, tmp_path):
    def shown(*arguments):
        command = [outrigger(), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    inspected = shown("inspect", s_learner.directory).stdout
    assert "uplift     control mens_goods=0, womens_goods=0\n" in inspected
    other = tmp_path.with_name(f"{tmp_path.name}-other")
    shutil.copytree(s_learner.directory, other)
    text = (other / "metadata.json").read_text()
    (other / "metadata.json").write_text(text.replace('"mens_goods": 0', '"mens_goods": 1', 1))
    compared = shown("diff", s_learner.directory, other)
    assert compared.returncode == 1, compared.stderr
    assert "control mens_goods=1, womens_goods=0" in compared.stdout


def test_an_arm_without_a_model_refuses_the_version(stack, client, t_learner):
    (t_learner.directory / "xgboost" / "arms" / "womens.ubj").unlink()
    stack.push(t_learner, "uplift/incomplete")
    with pytest.raises(OutriggerError) as caught:
        client.load("uplift/incomplete")
    assert caught.value.reason == "IMAGE_INVALID"
    why = stack.serve.run("models", "why", "uplift/incomplete").stdout
    assert 'the arm "womens" needs womens.ubj' in why
