#!/usr/bin/env python3
"""Writes own_layers.safetensors: networks composed of layers (`model.layers`), written in PyTorch by hand, and what they are
after 30 steps.

Every type of layer is there in its general form: products and sums of layers' results and columns, cross layers and functions
of what no linear layer gives, results and columns that several layers read. See README.md.

    python own_layers.py            write own_layers.safetensors here
    python own_layers.py --check    write nothing: fail unless the committed file holds what would be written
"""

from dataclasses import dataclass

import torch
from torch import nn

from optimizers import write_or_check
from wide_deep import ADAGRAD_FTRL, HERE, Case, metadata, tables, tensors


def chain(*widths):
    return nn.ModuleList(nn.Linear(inputs, outputs) for inputs, outputs in zip(widths, widths[1:]))


def through(layers, x):
    for index, layer in enumerate(layers):
        x = layer(x.relu() if index else x)
    return x


class Cross(nn.Module):
    """x_{l+1} = x_0 * (W V x_l + b) + x_l."""

    def __init__(self, width, layers, rank):
        super().__init__()

        def matrices(*shape):
            return nn.ParameterList(nn.Parameter(torch.zeros(*shape)) for _ in range(layers))

        self.V_kernels, self.W_kernels, self.bias = matrices(rank, width), matrices(width, rank), matrices(width)

    def forward(self, x0):
        x = x0
        for v, w, b in zip(self.V_kernels, self.W_kernels, self.bias):
            x = x0 * (x @ v.T @ w.T + b) + x
        return x


def products(vectors, itself=False):
    vectors = torch.stack(vectors, 1)
    i, j = torch.tril_indices(vectors.shape[1], vectors.shape[1], offset=0 if itself else -1)
    return (vectors @ vectors.transpose(1, 2))[:, i, j]


class Everything(nn.Module):
    LAYERS = [
        # Before what it reads.
        {"name": "logit", "type": "sum", "of": ["out", "side", "wide"]},
        {"name": "bottom", "type": "linear", "of": "dense", "outputs": [20, 12]},
        {"name": "x", "type": "relu", "of": ["bottom"]},
        {"name": "gate", "type": "linear", "of": ["dense"], "outputs": 12},
        {"name": "g", "type": "sigmoid", "of": ["gate"]},
        {"name": "fm", "type": "dot", "of": ["x", "g", "C1", "C3"], "itself": True},
        {"name": "mixed", "type": "sum", "of": ["x", "C2", "C4"]},
        {"name": "deep", "type": "concat", "of": ["mixed", "g", "embeddings"]},
        {"name": "crossed", "type": "cross", "of": ["deep"], "layers": 2, "rank": 7},
        {"name": "r", "type": "relu", "of": ["crossed"]},
        {"name": "tower", "type": "linear", "of": ["r"], "outputs": [16]},
        {"name": "t", "type": "relu", "of": ["tower"]},
        {"name": "both", "type": "concat", "of": ["t", "fm", "C2"]},
        {"name": "out", "type": "linear", "of": ["both"], "outputs": [10, 1]},
        {"name": "side", "type": "linear", "of": ["embeddings"], "outputs": 1},
        {"name": "wide", "type": "wide"},
    ]

    def __init__(self, case):
        super().__init__()
        dim, columns = case.dim, len(case.rows)
        self.tables = tables(case.rows, dim)
        self.layers = nn.ModuleDict({
            "bottom": chain(case.dense, 20, dim),
            "gate": chain(case.dense, dim),
            "crossed": Cross(2 * dim + columns * dim, 2, 7),
            "tower": chain(2 * dim + columns * dim, 16),
            "out": chain(16 + 10 + dim, 10, 1),
            "side": chain(columns * dim, 1),
        })
        self.wide_l = tables(case.wide_rows(), 1)
        self.wide_dense = nn.Linear(case.dense, 1)

    def forward(self, batch):
        dense, bags = batch["dense"], batch["wide_bags"]
        c = [table(*bag) for table, bag in zip(self.tables, bags)]
        x = through(self.layers["bottom"], dense).relu()
        g = through(self.layers["gate"], dense).sigmoid()
        fm = products([x, g, c[0], c[2]], itself=True)
        deep = torch.cat([x + c[1] + c[3], g, *c], 1)
        t = through(self.layers["tower"], self.layers["crossed"](deep).relu()).relu()
        out = through(self.layers["out"], torch.cat([t, fm, c[1]], 1))
        wide = self.wide_dense(dense) + sum(table(*bag) for table, bag in zip(self.wide_l, bags))
        return (out + through(self.layers["side"], torch.cat(c, 1)) + wide).squeeze(1)


class Factors(nn.Module):
    """A neural factorization machine without dense features: what meets is summed, squared by a product with itself, and bent."""

    LAYERS = [
        {"name": "all", "type": "sum", "of": "embeddings"},
        {"name": "pairs", "type": "dot", "of": ["C3", "C1", "all"]},
        {"name": "bent", "type": "sigmoid", "of": "C2"},
        {"name": "kept", "type": "relu", "of": "embeddings"},
        {"name": "more", "type": "cross", "of": "bent", "layers": 1, "rank": 3},
        {"name": "joined", "type": "concat", "of": ["kept", "pairs", "more", "all"]},
        {"name": "one", "type": "linear", "of": "joined", "outputs": 9},
        {"name": "two", "type": "linear", "of": "one", "outputs": 6},
        {"name": "again", "type": "concat", "of": ["two", "one"]},
        {"name": "logit", "type": "linear", "of": "again", "outputs": [1]},
    ]

    def __init__(self, case):
        super().__init__()
        dim, columns = case.dim, len(case.rows)
        self.tables = tables(case.rows, dim)
        self.layers = nn.ModuleDict({
            "more": Cross(dim, 1, 3),
            "one": chain((columns + 2) * dim + 3, 9),
            "two": chain(9, 6),
            "logit": chain(15, 1),
        })

    def forward(self, batch):
        c = [table(*bag) for table, bag in zip(self.tables, batch["wide_bags"])]
        all_ = sum(c)
        joined = torch.cat([*(v.relu() for v in c), products([c[2], c[0], all_]), self.layers["more"](c[1].sigmoid()), all_], 1)
        one = through(self.layers["one"], joined)
        two = through(self.layers["two"], one)
        return through(self.layers["logit"], torch.cat([two, one], 1)).squeeze(1)


@dataclass
class Own(Case):
    module: type = None

    def build(self):
        return self.module(self)

    def options(self):
        return {"model.layers": self.module.LAYERS}


CASES = {
    "everything": Own(
        3, 5, [], 12, [9, 23, 40, 12], [32, 32, 32, 11],
        ADAGRAD_FTRL | dict(lr=0.01, lr_rows=0.02, lr_wide=0.1, l1=0.001, l2=0.01, eps=0.01, initial_accumulator=0.05),
        crosses=[[0, 2]], buckets=32, module=Everything,
    ),
    "factors": Own(
        11, 0, [], 8, [21, 6, 33], [28, 28, 13], dict(optimizer="sgd", optimizer_rows="sgd", lr=0.2), module=Factors,
    ),
}

if __name__ == "__main__":
    write_or_check(HERE / "own_layers.safetensors", lambda: tensors(CASES), metadata(CASES))
