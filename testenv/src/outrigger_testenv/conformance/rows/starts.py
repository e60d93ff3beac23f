"""Behaviours that need another start of the engine, or an exact time."""

from outrigger_testenv.conformance.row import untried

_EMPTY = "--model_config_file with an empty file"

ROWS = [
    untried(
        "start-first-reload",
        "the first configuration is sent by a call, and one of its models fails",
        "UNKNOWN: 1 servable(s) did not become available: *",
        _EMPTY,
    ),
    untried(
        "start-label",
        "a label before the first configuration",
        "UNAVAILABLE: Model labels does not init yet.*",
        _EMPTY,
    ),
    untried(
        "start-failed",
        "a model of the first configuration fails, and the engine ends",
        "exit",
        "a start with such a model",
    ),
    untried(
        "start-no-path",
        "the port does not open while a base path of the first configuration does not exist",
        "UNAVAILABLE: *",
        "a start with such a model",
    ),
    untried(
        "start-without-models",
        "neither a configuration nor a base path: the engine ends",
        "exit",
        "a start without --model_config_file and --model_base_path",
    ),
    untried(
        "start-not-polled",
        "a new model is waited for without end",
        "pending",
        "--file_system_poll_wait_seconds=0",
    ),
    untried(
        "start-file",
        "the configuration of the file replaces the one that was sent",
        "NOT_FOUND: *",
        "--model_config_file_poll_wait_seconds=1",
    ),
    untried(
        "reload-at-once",
        "a model that is removed and added again before the engine has seen the removal",
        "pending",
        "a call within 100 ms after another one",
    ),
]
