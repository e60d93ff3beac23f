"""Servers with models as teams have them whose descriptions are wrong, or are not those of rows."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from outrigger_testenv.oip.peers import MLServer, Peer, Triton

_SERVED = Path(__file__).parent / "served"
_MODULE = "mlserver_described"


class DescribedMLServer(MLServer):
    """MLServer with `spam`, whose settings describe its output wrongly, and `banner`, which answers
    outputs that were not asked for.
    """

    def command(self) -> list[str | Path]:
        command = super().command()
        spam, banner = self.directory / "spam", self.directory / "banner"
        for module in (spam / "package" / "models.py", banner / f"{_MODULE}.py"):
            module.parent.mkdir(parents=True)
            shutil.copy(_SERVED / f"{_MODULE}.py", module)
        settings = json.loads((self.directory / "settings.json").read_text())
        settings["load_models_at_startup"] = True
        for place in (self.directory, spam):
            (place / "settings.json").write_text(json.dumps(settings))
        described = {
            "name": "spam",
            "implementation": "package.models.Spam",
            "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
            "outputs": [{"name": "predict", "datatype": "FP64", "shape": [2, 1]}],
        }
        (spam / "model-settings.json").write_text(json.dumps(described))
        bare = {"name": "banner", "implementation": f"{_MODULE}.Banner"}
        (banner / "model-settings.json").write_text(json.dumps(bare))
        return command

    def is_up(self) -> bool:
        return super().is_up() and all(
            self.get(f"/v2/models/{name}/ready") == 200 for name in ("spam", "banner")
        )


class DescribedTriton(Triton):
    """Triton with the ensemble `search`, which takes one query in a request."""

    def command(self) -> list[str | Path]:
        command = super().command()
        for name, more in (("query", _STEP), ("search", _ENSEMBLE)):
            model = self.repository / name
            (model / "1").mkdir(parents=True)
            (model / "config.pbtxt").write_text(f'name: "{name}"\n{_TENSORS}\n{more}')
        shutil.copy(_SERVED / "triton_query.py", self.repository / "query" / "1" / "model.py")
        return [*command, "--load-model=search"]

    def is_up(self) -> bool:
        return super().is_up() and self.get("/v2/models/search/ready") == 200


DESCRIBED: Mapping[str, Callable[..., Peer]] = {
    "MLServer": DescribedMLServer,
    "Triton": DescribedTriton,
}
"""The servers by name. They take a new directory and no models of the checks."""

_TENSORS = """max_batch_size: 0
input [
  { name: "query" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "id" data_type: TYPE_INT64 dims: [ 1 ] },
  { name: "version" data_type: TYPE_INT64 dims: [ 1 ] }
]
output [ { name: "embedding" data_type: TYPE_FP32 dims: [ -1 ] } ]"""

_STEP = 'backend: "python"\ninstance_group [ { kind: KIND_CPU count: 1 } ]\n'

_ENSEMBLE = """platform: "ensemble"
ensemble_scheduling {
  step [
    {
      model_name: "query" model_version: -1
      input_map { key: "query" value: "query" }
      input_map { key: "id" value: "id" }
      input_map { key: "version" value: "version" }
      output_map { key: "embedding" value: "embedding" }
    }
  ]
}
"""
