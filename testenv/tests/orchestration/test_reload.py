"""The configuration is reloaded at run time, from its file and on SIGHUP."""

import pandas as pd
import pytest

from outrigger_testenv.client import request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.load import Load
from outrigger_testenv.stack import merge

KEPT, ADDED = "reload/kept", "reload/added"
ROUNDS = 10


def message(model):
    asked = request({"age": 30}, pd.DataFrame({"price": [1.0]}))
    asked.model.CopyFrom(selector(model))
    return asked


def reload(stack, outcome, changes, hang_up=False):
    """Changes the configuration, and waits until it is reloaded with this outcome."""
    before = stack.serve.reloads(outcome)
    stack.serve.config = merge(stack.serve.config, changes)
    stack.serve.write_config()
    if hang_up:
        stack.serve.process.hang_up()
    stack.serve.process.wait_until(lambda: stack.serve.reloads(outcome) > before)


def test_no_request_fails_while_models_come_and_go_and_limits_change(own_stack, tiny, tmp_path):
    stack = own_stack(models=[{"name": KEPT, "preload": True}], start=False)
    if stack.registry:
        stack.registry.start()
    kept = stack.push(tiny(1), KEPT)
    stack.push(tiny(2), "elsewhere/two")
    stack.engine.start()
    stack.serve.start()
    client, models = stack.client(), stack.serve.config["models"]
    added = {"name": ADDED, "image": f"{stack.images}/elsewhere/two"}
    with Load(stack.serve.target, [message(KEPT)], tmp_path, expected={kept: 1.0}) as load:
        load.wait_for(kept)
        for turn in range(ROUNDS):
            limits = {"limits": {"per_model": 100 + turn}, "server": {"max_in_flight": 50 + turn}}
            reload(stack, "ok", {"models": [*models, added], **limits}, hang_up=turn % 2 == 0)
            assert list(client.call(message(ADDED)).scores.values) == [2]
            reload(stack, "ok", {"models": models}, hang_up=turn % 2 == 0)
            with pytest.raises(OutriggerError) as refused:
                client.call(message(ADDED))
            assert refused.value.reason == "MODEL_NOT_FOUND"
            load.wait_until(load.answered + 200)
        report = load.stop()
    assert (report.failed, report.wrong) == (0, 0), report.first_errors


def test_a_change_that_cannot_be_used_leaves_the_old_configuration(own_stack, tiny):
    stack = own_stack()
    client = stack.client()
    stack.push(tiny(3), KEPT)
    good = stack.serve.config
    for outcome, wrong in (
        ("refused", {"store": {"max_size": "3GiB"}}),
        ("invalid", {"server": {"max_users": 0}}),
    ):
        reload(stack, outcome, merge(wrong, {"server": {"max_treatments": 1}}), hang_up=True)
        assert stack.serve.metrics()["outrigger_config_last_reload_successful"] == 0
        assert list(client.call(message(KEPT)).scores.values) == [3]
        stack.serve.config = good
    reload(stack, "ok", {"server": {"max_treatments": 1}})
    assert stack.serve.metrics()["outrigger_config_last_reload_successful"] == 1
    assert "store.max_size (has another value)" in stack.serve.process.log.read_text()
