#!/usr/bin/env python3
"""Writes small_tables.safetensors: logits of DLRMs whose tables are made smaller, and what they are after 30 steps.

The models are written from their published definitions. Mixed dimensions (Ginart et al. 2019; facebookresearch/dlrm's
options --md-*): the more rows a table has, the fewer columns; the pooled rows of a table narrower than the others are
multiplied by a matrix of its own, which makes them as wide. Quotients and remainders (Shi et al. 2019; --qr-*): the
vector of a value is made of two rows, of its number divided by how many share one, and of what is left. From there on
it is the ordinary DLRM. Optimizers are PyTorch's. Every case runs in float32 and in float64, which shows how much of a
difference is rounding. See README.md.

    python small_tables.py            write small_tables.safetensors here
    python small_tables.py --check    write nothing: fail unless the committed file holds what would be written
"""

import json
import math
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch

from generate import mlp
from optimizers import write_or_check
from training import assert_bags, assert_told, random_minibatch, rounded_run, train

HERE = Path(__file__).parent


@dataclass
class Case:
    seed: int
    bottom: list  # none without dense features
    top: list
    dim: int
    rows: list
    temperature: float  # 0: all tables have all columns
    threshold: int  # tables of at most so many rows are as in an ordinary DLRM
    batches: list  # samples of each minibatch, used in turn
    train: dict  # octorec's keys of [train]
    collisions: int = 0  # values that share a row of quotients, if any do
    operation: str = "mult"
    interaction: str = "dot"
    round_dims: bool = False
    empty: list = field(default_factory=list)  # (minibatch, table) pairs in which every bag is empty

    @property
    def dense(self):
        return self.bottom[0] if self.bottom else 0

    def is_composed(self, table):
        return self.collisions > 0 and self.rows[table] > self.threshold

    def widths(self):
        """Columns of each table."""
        return [self.dim if n <= self.threshold else self.ruled(n) for n in self.rows]

    def ruled(self, rows):
        """The power rule, from the smallest of all tables, which has all columns. Python rounds halves to even."""
        width = max(1, round(self.dim * (min(self.rows) / rows) ** self.temperature))
        return 2 ** round(math.log2(width)) if self.round_dims else width


# Seeds and rates were picked so that float64 stays near and `assert_covers` holds: "dot" with seed 3 is 3.5e-5 apart.
CASES = {
    "dot": Case(
        5, [5, 10, 8], [12, 1], 8, [7, 40, 260, 900], 0.3, 30, [32, 32, 32, 11],
        dict(optimizer="adagrad", optimizer_rows="adagrad", lr=0.01, lr_rows=0.02, eps=1e-8),
    ),
    # Powers of two; the smallest table is not the first one.
    "sgd": Case(
        3, [3, 16], [9, 1], 16, [300, 12, 50, 1000, 80], 0.5, 20, [28, 28, 28, 9],
        dict(optimizer="sgd", optimizer_rows="sgd", lr=0.1, lr_rows=0.4), round_dims=True,
    ),
    # Tables by SparseAdam, which leaves one where it is in a minibatch whose bags of it are empty, and all layers by
    # Adam, which moves that table's matrix nevertheless.
    "cat": Case(
        5, [], [14, 1], 6, [25, 500, 90], 0.4, 10, [24, 24, 7],
        dict(optimizer="adam", optimizer_rows="adam", lr=0.002, lr_rows=0.004), interaction="cat", empty=[(1, 2)],
    ),
    # Rows that are no multiple of the collisions, one table of exactly as many as stay whole.
    "mult": Case(
        45, [5, 10, 8], [12, 1], 8, [30, 103, 12, 260], 0.0, 30, [32, 32, 32, 11],
        dict(optimizer="adagrad", optimizer_rows="adagrad", lr=0.01, lr_rows=0.02, eps=1e-8), collisions=4,
    ),
    "add": Case(
        53, [3, 8], [9, 1], 8, [300, 12, 50], 0.0, 20, [28, 28, 28, 9],
        dict(optimizer="sgd", optimizer_rows="sgd", lr=0.01, lr_rows=0.02), collisions=7, operation="add",
    ),
    "multsgd": Case(
        14, [3, 8], [9, 1], 8, [300, 12, 50], 0.0, 20, [28, 28, 28, 9],
        dict(optimizer="sgd", optimizer_rows="sgd", lr=0.01, lr_rows=0.04), collisions=3,
    ),
    "concat": Case(
        3, [], [14, 1], 6, [25, 500, 90], 0.0, 25, [24, 24, 7],
        dict(optimizer="adam", optimizer_rows="adam", lr=0.002, lr_rows=0.004), interaction="cat", empty=[(1, 2)],
        collisions=9, operation="concat",
    ),
}


class Table(torch.nn.EmbeddingBag):
    """Sums of rows of `width` columns, as vectors of `dim` numbers."""

    def __init__(self, rows, width, dim):
        super().__init__(rows, width, mode="sum", sparse=True, include_last_offset=True)
        self.proj = torch.nn.Linear(width, dim, bias=False) if width < dim else torch.nn.Identity()

    def forward(self, rows, offsets):
        return self.proj(super().forward(rows, offsets))


class Composed(torch.nn.Module):
    """Two tables, of quotients and of remainders."""

    def __init__(self, rows, dim, collisions, operation):
        super().__init__()
        width = dim // 2 if operation == "concat" else dim
        self.weight_q = torch.nn.Parameter(torch.empty(math.ceil(rows / collisions), width))
        self.weight_r = torch.nn.Parameter(torch.empty(collisions, width))
        self.collisions, self.operation = collisions, operation

    def forward(self, rows, offsets):
        q, r = (
            torch.nn.functional.embedding_bag(of, weight, offsets, mode="sum", sparse=True, include_last_offset=True)
            for of, weight in ((rows // self.collisions, self.weight_q), (rows % self.collisions, self.weight_r))
        )
        return {"mult": torch.mul, "add": torch.add, "concat": lambda q, r: torch.cat([q, r], 1)}[self.operation](q, r)


class SmallDlrm(torch.nn.Module):
    """Dense features and bags of row numbers -> logits, [N]."""

    def __init__(self, case):
        super().__init__()
        self.case = case
        vectors = len(case.rows) + bool(case.bottom)
        self.pairs = torch.tril_indices(vectors, vectors, -1)
        width = case.bottom[-1] if case.bottom else 0
        width += self.pairs.shape[1] if case.interaction == "dot" else len(case.rows) * case.dim
        self.emb_l = torch.nn.ModuleList(
            Composed(n, case.dim, case.collisions, case.operation) if case.is_composed(table) else Table(n, width, case.dim)
            for table, (n, width) in enumerate(zip(case.rows, case.widths()))
        )
        if case.bottom:
            self.bot_l = mlp(case.bottom, torch.nn.ReLU())
        self.top_l = mlp([width, *case.top], torch.nn.Identity())

    def forward(self, batch):
        x = [self.bot_l(batch["dense"])] if self.case.bottom else []
        vectors = x + [table(*bag) for table, bag in zip(self.emb_l, batch["bags"])]
        if self.case.interaction == "cat":
            return self.top_l(torch.cat(vectors, dim=1)).squeeze(1)
        stacked = torch.stack(vectors, dim=1)
        products = (stacked @ stacked.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top_l(torch.cat([*x, products], dim=1)).squeeze(1)


def is_projection(name):
    return name.endswith(".proj.weight")


def parameters_of(model):
    """Tables, bottom MLP, top MLP, and then the tables' matrices."""
    return dict(sorted(model.named_parameters(), key=lambda named: is_projection(named[0])))


def initial_parameters(case, draw):
    """Those of facebookresearch/dlrm."""
    parameters = {}
    for name, parameter in parameters_of(SmallDlrm(case)).items():
        shape = tuple(parameter.shape)
        if is_projection(name):
            values = draw.uniform(-((6.0 / sum(shape)) ** 0.5), (6.0 / sum(shape)) ** 0.5, shape)
        elif name.endswith(("_q", "_r")):
            values = draw.uniform(case.rows[int(name.split(".")[1])] ** -0.5, 1.0, shape)
        elif name.startswith("emb_l"):
            values = draw.uniform(-(shape[0] ** -0.5), shape[0] ** -0.5, shape)
        elif len(shape) == 2:
            values = draw.normal(0.0, (2.0 / sum(shape)) ** 0.5, shape)
        else:
            values = draw.normal(0.0, shape[0] ** -0.5, shape)
        parameters[name] = values.astype(np.float32)
    return parameters


def kind_of(name):
    """Tables; of their matrices the layers' optimizer."""
    rows = name.startswith("emb_l") and not is_projection(name)
    return "_rows" if rows else "", rows


def run_of(case, initial, minibatches, dtype):
    batches = [
        {
            "dense": torch.from_numpy(minibatch["dense"]).to(dtype),
            "bags": [tuple(map(torch.from_numpy, bag)) for bag in minibatch["bags"]],
        }
        for minibatch in minibatches
    ]
    return train(SmallDlrm(case), initial, case.train, kind_of, batches, minibatches, dtype)


def assert_covers(name, case, initial, minibatches, run):
    """A case that does not exercise what it is for fails here, not silently in octorec's tests."""
    widths = case.widths()
    print(f"  {case.rows} rows of {widths} columns")
    if case.temperature > 0:
        assert len(set(widths)) >= 3 and max(widths) == case.dim, f"{name}: {widths} columns"
    else:
        composed = [case.is_composed(table) for table in range(len(case.rows))]
        assert any(composed) and not all(composed), f"{name}: {composed}"
        assert any(n % case.collisions for n in case.rows), f"{name}: every row of quotients has all its values"
    assert sum(map(is_projection, initial)) == sum(width < case.dim for width in widths), f"{name}: {list(initial)}"
    assert_told(name, initial, minibatches, run)
    for table in range(len(case.rows)):
        assert_bags(f"{name}, table {table}", [minibatch["bags"][table] for minibatch in minibatches])
    # Each table reaches the logits, through its matrix if it has one.
    for table in (parameter for parameter in initial if parameter.startswith("emb_l")):
        without = run_of(case, initial | {table: np.zeros_like(initial[table])}, minibatches, torch.float32)
        apart = max(np.abs(without[f"logits{i}"] - run[f"logits{i}"]).max() for i in range(len(minibatches)))
        assert apart > 1e-3, f"{name}: logits are as without {table}"


def tensors():
    found = {}
    for case_name, case in CASES.items():
        draw = np.random.RandomState(case.seed)
        initial = initial_parameters(case, draw)
        minibatches = [
            random_minibatch(case, samples, {table for at, table in case.empty if at == i}, draw)
            for i, samples in enumerate(case.batches)
        ]
        run = rounded_run(case_name, partial(run_of, case, initial, minibatches))
        assert_covers(case_name, case, initial, minibatches, run)
        found |= {f"{case_name}.init.{name}": values for name, values in initial.items()}
        for i, minibatch in enumerate(minibatches):
            found[f"{case_name}.batch{i}.dense"] = minibatch["dense"]
            found[f"{case_name}.batch{i}.labels"] = minibatch["labels"]
            composed = [table for table in range(len(case.rows)) if case.is_composed(table)]
            for derived, (rows, offsets) in enumerate(minibatch["bags"][table] for table in composed):
                found[f"{case_name}.batch{i}.derived{derived}.rows"] = rows % case.collisions
                found[f"{case_name}.batch{i}.derived{derived}.offsets"] = offsets
            for table, (rows, offsets) in enumerate(minibatch["bags"]):
                found[f"{case_name}.batch{i}.rows{table}"] = rows
                found[f"{case_name}.batch{i}.offsets{table}"] = offsets
        found |= {f"{case_name}.{name}": np.asarray(value, np.float32) for name, value in run.items()}
    return found


def metadata():
    """The keys of each case, as octorec has them."""
    keys = {}
    for name, case in CASES.items():
        options = {
            "model.bottom": case.bottom, "model.top": case.top, "model.dim": case.dim, "model.rows": case.rows,
            "model.interaction": case.interaction,
        }
        if case.collisions > 0:
            options |= {
                "model.qr_collisions": case.collisions, "model.qr_operation": case.operation,
                "model.qr_threshold": case.threshold,
            }
        else:
            options |= {"model.md_temperature": case.temperature, "model.md_threshold": case.threshold}
        if case.round_dims:
            options["model.md_round_dims"] = True
        options |= {f"train.{key}": value for key, value in case.train.items()}
        keys[name] = "\n".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
    return keys


if __name__ == "__main__":
    write_or_check(HERE / "small_tables.safetensors", tensors, metadata())
