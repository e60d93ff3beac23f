"""pack() gives the same bytes as the control plane sends, read through Explain."""

import numpy as np
import pytest

from outrigger_testenv import requests
from outrigger_testenv.campaign import OFFERS, builder, generate
from outrigger_testenv.client import request, selector
from outrigger_testenv.features import TREATMENT, USER
from outrigger_testenv.packing import pack
from outrigger_testenv.reference import reference_frames
from outrigger_testenv.samples import sample

FORMS = [requests.TABLE, requests.KEY_VALUE]


def explained(client, model, users, offers, form):
    message = request(next(requests.rows(users)), offers, form)
    message.model.CopyFrom(selector(model))
    return client.explain(message)[0]


def assert_same(tensors, own):
    assert tensors.keys() == own.keys()
    for name, tensor in tensors.items():
        assert tensor.shape == own[name].shape, name
        if tensor.dtype == object:
            assert tensor.tolist() == own[name].tolist(), name
        else:
            assert tensor.dtype == own[name].dtype, name
            assert tensor.tobytes() == own[name].tobytes(), name


@pytest.fixture(scope="module", autouse=True)
def models(serving, kitchen, reference, tmp_path_factory):
    serving(kitchen, "packing/kitchen")
    serving(reference, "packing/reference")

    def zeros(customer_numbers, offer_numbers, **_):
        return 0 * (offer_numbers[:, :, 0] + customer_numbers[:, :1])

    serving(builder("0").build(zeros, tmp_path_factory.mktemp("zeros")), "packing/campaign")


@pytest.mark.parametrize("seed", range(20))
def test_every_kind_of_feature(client, kitchen, seed):
    users = sample(kitchen.metadata, USER, 1, seed)
    offers = sample(kitchen.metadata, TREATMENT, seed, seed)
    tensors = explained(client, "packing/kitchen", users, offers, requests.KEY_VALUE)
    assert_same(tensors, pack(kitchen.metadata, users, offers))


@pytest.mark.parametrize("seed", range(5))
def test_the_columnar_form(client, kitchen, seed):
    users = sample(kitchen.metadata, USER, 1, seed)
    offers = sample(kitchen.metadata, TREATMENT, 9, seed).drop(columns="is_new")
    tensors = explained(client, "packing/kitchen", users, offers, requests.TABLE)
    assert_same(tensors, pack(kitchen.metadata, users, offers))


@pytest.mark.parametrize("form", FORMS)
def test_a_thousand_treatments_of_the_reference_model(client, reference, form):
    users, offers = reference_frames(1, 1000)
    tensors = explained(client, "packing/reference", users, offers, form)
    assert_same(tensors, pack(reference.metadata, users, offers))


@pytest.mark.parametrize("form", FORMS)
def test_customers_of_the_campaign(client, form):
    metadata = builder("0").metadata
    customers = generate(50).customers
    for at in range(len(customers)):
        users = customers.iloc[at : at + 1]
        tensors = explained(client, "packing/campaign", users, OFFERS, form)
        assert_same(tensors, pack(metadata, users, OFFERS))


def test_hashes_of_long_and_foreign_texts(client, kitchen):
    for words in ("", "a", "ü" * 40, "x" * 1000, "語 語"):
        users = sample(kitchen.metadata, USER, 1).assign(city=words)
        offers = sample(kitchen.metadata, TREATMENT, 1).assign(brand=words)
        tensors = explained(client, "packing/kitchen", users, offers, requests.KEY_VALUE)
        assert_same(tensors, pack(kitchen.metadata, users, offers))


def test_extreme_numbers(client, reference):
    users, offers = reference_frames(1, 6)
    extremes = [0.0, -0.0, 1e-45, 3.4028235e38, 0.1, 16777217.0]
    offers = offers.astype("f8").assign(treatment_feature_00=np.array(extremes))
    tensors = explained(client, "packing/reference", users, offers, requests.KEY_VALUE)
    assert_same(tensors, pack(reference.metadata, users, offers))
