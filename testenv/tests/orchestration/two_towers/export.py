"""Makes model.onnx, a small model of PyTorch, and scores.json, PyTorch's own scores.

PyTorch is large and no dependency of the test environment, so the two files are kept. To make them
again, in a virtual environment with torch 2.13.0 and onnxscript:

    python testenv/tests/orchestration/two_towers/export.py
"""

import json
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).parent
USER, TREATMENT, HIDDEN = 3, 2, 8
EXAMPLES = (2, 5)


class TwoTowers(nn.Module):
    """The score of a treatment is the product of what two networks make of it and of its user."""

    def __init__(self):
        super().__init__()
        self.user = nn.Sequential(nn.Linear(USER, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))
        self.treatment = nn.Sequential(
            nn.Linear(TREATMENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN)
        )

    def forward(self, user, treatment):
        """`user` is [B, 3], `treatment` [B, T, 2], the scores are [B, T]."""
        product = self.user(user).unsqueeze(1) * self.treatment(treatment)
        return torch.sigmoid(product.sum(-1))


def main():
    """Writes both files."""
    torch.manual_seed(27)
    model = TwoTowers().eval()
    users, treatments = EXAMPLES
    inputs = torch.randn(users, USER), torch.randn(users, treatments, TREATMENT)
    with torch.no_grad():
        scores = model(*inputs)
    batch, count = torch.export.Dim("batch"), torch.export.Dim("count")
    program = torch.onnx.export(
        model,
        inputs,
        input_names=["user", "treatment"],
        output_names=["scores"],
        dynamic_shapes=({0: batch}, {0: batch, 1: count}),
        dynamo=True,
        external_data=False,
        optimize=True,
    )
    exported = program.model_proto
    # Where each operation stands in the sources, which is most of the file.
    graph = exported.graph
    for part in (*graph.node, *graph.value_info, *graph.initializer, *graph.input, *graph.output):
        del part.metadata_props[:]
    del graph.metadata_props[:]
    (HERE / "model.onnx").write_bytes(exported.SerializeToString())
    named = dict(zip(("user", "treatment", "scores"), (*inputs, scores), strict=True))
    content = {name: tensor.tolist() for name, tensor in named.items()}
    (HERE / "scores.json").write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
