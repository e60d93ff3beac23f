"""The models of the checks behind KServe's SDK, which is bound to loopback.

Arguments: the port of REST, the port of gRPC, the names of the models, and flags of the SDK, which
it reads by itself. The name of a model says what it does.
"""

import sys
import time

import grpc.aio._server
import numpy as np
import uvicorn
from kserve import InferOutput, InferResponse, Model, ModelServer

# Time that a run of the slow model takes, in seconds.
SLOW = 0.7

# The SDK binds all interfaces and has no setting for it.
_configure = uvicorn.Config.__init__
_bind = grpc.aio._server.Server.add_insecure_port


def _on_loopback(self, app, *args, **kwargs):
    _configure(self, app, *args, **{**kwargs, "host": "127.0.0.1"})


uvicorn.Config.__init__ = _on_loopback
grpc.aio._server.Server.add_insecure_port = lambda self, address: _bind(
    self, address.replace("[::]", "127.0.0.1")
)


class Served(Model):
    """One model."""

    def load(self):
        """Succeeds at once, but for one model."""
        self.ready = self.name != "never"
        return self.ready

    def predict(self, payload, headers=None):
        """Answers a request."""
        if self.name == "slow":
            time.sleep(SLOW)
        if self.name == "failing":
            raise RuntimeError("this model always fails")
        return InferResponse(
            response_id=payload.id or "none",
            model_name=self.name,
            infer_outputs=[_output(*each) for each in self._answer(payload)],
            use_binary_outputs=payload.use_binary_outputs,
            requested_outputs=payload.request_outputs,
        )

    def _answer(self, payload):
        if self.name == "pair":
            a, b = (each.as_numpy() for each in payload.inputs[:2])
            return [("sum", "FP32", a + b), ("difference", "FP32", a - b)]
        if self.name == "nonfinite":
            return [("OUT_x", "FP32", np.array([[np.nan, np.inf, -np.inf]], np.float32))]
        return [(f"OUT_{each.name}", each.datatype, each.as_numpy()) for each in payload.inputs]


def _output(name, datatype, values):
    output = InferOutput(name=name, shape=list(values.shape), datatype=datatype)
    output.set_data_from_numpy(values, binary_data=datatype == "FP16")
    return output


def main(rest, grpc_port, *names):
    """Serves until SIGTERM."""
    # The SDK does not start without a model that is ready.
    named = [name for name in names if not name.startswith("--")]
    models = [Served(name) for name in (*named, "another")]
    for model in models:
        model.load()
    server = ModelServer(http_port=int(rest), grpc_port=int(grpc_port), workers=1, enable_grpc=True)
    server.start(models)


if __name__ == "__main__":
    main(*sys.argv[1:])
