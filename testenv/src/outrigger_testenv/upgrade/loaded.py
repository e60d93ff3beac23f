"""The versions that an engine has loaded, by its own account."""

import os

import grpc
from tensorflow_serving.apis import get_model_status_pb2, model_service_pb2_grpc

from outrigger_testenv.client import channel_options
from outrigger_testenv.stack import ENGINE_ENV, Stack

_State = get_model_status_pb2.ModelVersionStatus.State
# The local engine's log line for each change of a version's state.
_CHANGE = "servable changed"

Versions = dict[str, dict[int, str]]


def versions(stack: Stack) -> Versions:
    """Servable by servable, every version that the engine knows, with its state.

    An engine never forgets a version of a name that it still serves: one that was unloaded, or
    loaded again as another version, shows here.
    """
    servables = sorted(path.name for path in (stack.directory / "store" / "serving").iterdir())
    endpoint = stack.engine.endpoint
    with grpc.insecure_channel(endpoint, channel_options(endpoint)) as channel:
        service = model_service_pb2_grpc.ModelServiceStub(channel)
        return {name: _versions(service, name) for name in servables}


def _versions(service: model_service_pb2_grpc.ModelServiceStub, name: str) -> dict[int, str]:
    asked = get_model_status_pb2.GetModelStatusRequest()
    asked.model_spec.name = name
    answer = service.GetModelStatus(asked, timeout=10)
    return {each.version: _State.Name(each.state) for each in answer.model_version_status}


def changes(stack: Stack) -> int:
    """How often a version changed its state, where the engine is the local one, which logs it."""
    if os.environ.get(ENGINE_ENV):
        return 0
    return stack.engine.process.log.read_text().count(_CHANGE)
