#!/usr/bin/env python3
"""Writes wide_deep.safetensors: logits of small Wide & Deep models in PyTorch, and what they are after 30 steps.

The model is written from its published definition (Cheng et al. 2016): beside a deep part, an MLP over the dense
features and the pooled rows of all tables, stands a wide part, a linear model of dense features, of categories and of
crosses of categories; their logits are added. FTRL-Proximal is Algorithm 1 of McMahan et al. 2013, in NumPy; all other
optimizers are PyTorch's. What the combinations of a cross hash to is octorec's own definition, written again here.
Every case runs in float32 and in float64, which shows how much of a difference is rounding. See README.md.

    python wide_deep.py            write wide_deep.safetensors here
    python wide_deep.py --check    write nothing: fail unless the committed file holds what would be written
"""

import itertools
import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch

from optimizers import write_or_check
from training import assert_bags, assert_told, random_minibatch, rounded_run, train

HERE = Path(__file__).parent


@dataclass
class Case:
    seed: int
    dense: int
    top: list
    dim: int
    rows: list
    batches: list  # samples of each minibatch, used in turn
    train: dict  # octorec's keys of [train]
    crosses: list = field(default_factory=list)  # columns of each, the first is 0
    buckets: int = 0
    empty: list = field(default_factory=list)  # (minibatch, table) pairs in which every bag is empty

    def wide_rows(self):
        return self.rows + [self.buckets] * len(self.crosses)

    def build(self):
        return WideDeep(self)

    def options(self):
        """What makes it this model, as octorec's keys."""
        return {"model.interaction": "cat", "model.wide": True}


ALL_ADAGRAD = dict(optimizer="adagrad", optimizer_rows="adagrad", optimizer_wide="adagrad")
ALL_ADAM = dict(optimizer="adam", optimizer_rows="adam", optimizer_wide="adam")
ADAGRAD_FTRL = dict(optimizer="adagrad", optimizer_rows="adagrad", optimizer_wide="ftrl")
SGD_FTRL = dict(optimizer="sgd", optimizer_rows="sgd", optimizer_wide="ftrl")

CASES = {
    # Crosses whose columns are not in their order; a minibatch in which one cross has no combination at all.
    "ftrl": Case(
        2, 5, [14, 9, 1], 6, [7, 23, 40, 12], [32, 32, 32, 11],
        ADAGRAD_FTRL | dict(lr=0.01, lr_rows=0.02, lr_wide=0.1, l1=0.001, l2=0.01, eps=1e-8),
        crosses=[[0, 2], [3, 1, 0]], buckets=48, empty=[(2, 1)],
    ),
    "adagrad": Case(
        4, 7, [16, 1], 5, [9, 30, 5], [24, 24, 24, 24, 9],
        ALL_ADAGRAD | dict(lr=0.01, lr_wide=0.03, eps=1e-8, initial_accumulator=0.01), crosses=[[1, 2]], buckets=16,
    ),
    # An l1 that holds weights at 0 whose gradients point either way.
    "nodense": Case(
        6, 0, [12, 6, 1], 4, [8, 35, 16, 6], [28, 28, 13],
        SGD_FTRL | dict(lr=0.2, lr_wide=0.2, ftrl_beta=0.5, l1=0.05, initial_accumulator=0.1), empty=[(1, 3)],
    ),
    "sgd": Case(
        3, 4, [10, 1], 7, [6, 21, 33], [20, 20, 20, 7],
        dict(optimizer="sgd", optimizer_rows="sgd", optimizer_wide="sgd", lr=0.1, lr_wide=0.04),
        crosses=[[2, 0], [0, 1, 2]], buckets=64,
    ),
    # Tables by SparseAdam, all layers by Adam, which moves the wide part's layer, too.
    "adam": Case(
        5, 6, [12, 1], 4, [11, 25, 7], [24, 24, 24, 8],
        ALL_ADAM | dict(lr=0.002, lr_wide=0.004), crosses=[[0, 2]], buckets=24,
    ),
}


def mix(x):
    """The output function of splitmix64 (Steele, Lea, Flood 2014) after its counter has moved on from x."""
    word = (1 << 64) - 1
    z = (x + 0x9E3779B97F4A7C15) & word
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & word
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & word
    return z ^ (z >> 31)


# The generator's published first outputs.
assert mix(0) == 0xE220A8397B1DCDAF and mix(1234567) == 6457827717110365317


def bucket(combination, buckets):
    hashed = 0
    for row in combination:
        hashed = mix(hashed + int(row) + 1)
    return hashed % buckets


def cross(bags, columns, buckets):
    """Every combination of one look-up of each column, sample by sample, the last column's changing fastest."""
    rows, offsets = [], [0]
    split = [np.split(bags[column][0], bags[column][1][1:-1]) for column in columns]
    for sample in zip(*split):
        rows.extend(bucket(combination, buckets) for combination in itertools.product(*sample))
        offsets.append(len(rows))
    return np.array(rows, np.int32), np.array(offsets, np.int32)


def wide_bags(case, bags):
    return bags + [cross(bags, columns, case.buckets) for columns in case.crosses]


def tables(rows, dim):
    bags = (torch.nn.EmbeddingBag(n, dim, mode="sum", sparse=True, include_last_offset=True) for n in rows)
    return torch.nn.ModuleList(bags)


class WideDeep(torch.nn.Module):
    """Dense features and bags of row numbers -> logits, [N]."""

    def __init__(self, case):
        super().__init__()
        self.emb_l = tables(case.rows, case.dim)
        sizes, layers = [case.dense + len(case.rows) * case.dim, *case.top], []
        for fan_in, fan_out in zip(sizes, sizes[1:]):
            layers += [torch.nn.Linear(fan_in, fan_out), torch.nn.ReLU()]
        self.top_l = torch.nn.Sequential(*layers[:-1])
        self.wide_l = tables(case.wide_rows(), 1)
        if case.dense:
            self.wide_dense = torch.nn.Linear(case.dense, 1)

    def forward(self, batch):
        dense, bags = batch["dense"], batch["wide_bags"]
        pooled = [table(*bag) for table, bag in zip(self.emb_l, bags)]
        logits = self.top_l(torch.cat([dense, *pooled], dim=1))
        for table, bag in zip(self.wide_l, bags):
            logits = logits + table(*bag)
        if hasattr(self, "wide_dense"):
            logits = logits + self.wide_dense(dense)
        return logits.squeeze(1)


def initial_parameters(case, draw):
    """Those of facebookresearch/dlrm; a wide part begins at 0."""
    parameters = {}
    for name, parameter in case.build().named_parameters():
        shape = tuple(parameter.shape)
        if name.startswith("wide"):
            values = np.zeros(shape)
        elif name.startswith(("emb", "tables")):
            values = draw.uniform(-(shape[0] ** -0.5), shape[0] ** -0.5, shape)
        elif len(shape) == 2:
            values = draw.normal(0.0, (2.0 / sum(shape)) ** 0.5, shape)
        else:
            values = draw.normal(0.0, shape[0] ** -0.5, shape)
        parameters[name] = values.astype(np.float32)
    return parameters


def kind_of(name):
    """Layers, tables, and the wide part of either."""
    sparse = name.startswith(("emb_l", "tables", "wide_l"))
    return "_wide" if name.startswith("wide") else "_rows" if sparse else "", sparse


def run_of(case, initial, minibatches, dtype):
    batches = [
        {
            "dense": torch.from_numpy(minibatch["dense"]).to(dtype),
            "wide_bags": [tuple(map(torch.from_numpy, bag)) for bag in wide_bags(case, minibatch["bags"])],
        }
        for minibatch in minibatches
    ]
    return train(case.build(), initial, case.train, kind_of, batches, minibatches, dtype)


def assert_covers(name, case, initial, minibatches, run):
    """A case that does not exercise what it is for fails here, not silently in octorec's tests."""
    assert_told(name, initial, minibatches, run, [""])
    bags = [wide_bags(case, minibatch["bags"]) for minibatch in minibatches]
    for column in range(len(case.wide_rows())):
        assert_bags(f"{name}, column {column}", [of[column] for of in bags])
    if case.crosses:
        # Buckets are shared by combinations, as they are where there are more of these.
        met = {}
        for minibatch in minibatches:
            for sample in range(len(minibatch["labels"])):
                parts = [minibatch["bags"][column] for column in case.crosses[0]]
                parts = [rows[offsets[sample]:offsets[sample + 1]].tolist() for rows, offsets in parts]
                for combination in itertools.product(*parts):
                    met.setdefault(bucket(combination, case.buckets), set()).add(combination)
        assert any(len(combinations) > 1 for combinations in met.values()), f"{name}: no two in one bucket"
    if case.train.get("optimizer_wide") == "ftrl":
        wide = [parameter for parameter in initial if parameter.startswith("wide_l")]
        begun = case.train.get("initial_accumulator", 0.0)
        told = np.concatenate([run[f"state.{table}.accumulator"] > begun * (1.0 + 1e-6) for table in wide])
        held = told & (np.concatenate([run[table] for table in wide]) == 0.0)
        print(f"  {told.sum()} of {told.size} wide rows had gradients; l1 holds {held.sum()} of them at 0")
        assert not told.all() and (held.sum() >= 3 or case.train["l1"] < 0.01), f"{name}: l1 holds nothing"


def tensors(cases=CASES):
    found = {}
    for case_name, case in cases.items():
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
            for table, (rows, offsets) in enumerate(minibatch["bags"]):
                found[f"{case_name}.batch{i}.rows{table}"] = rows
                found[f"{case_name}.batch{i}.offsets{table}"] = offsets
            for column, (rows, offsets) in enumerate(wide_bags(case, minibatch["bags"])):
                found[f"{case_name}.batch{i}.derived{column}.rows"] = rows
                found[f"{case_name}.batch{i}.derived{column}.offsets"] = offsets
        found |= {f"{case_name}.{name}": np.asarray(value, np.float32) for name, value in run.items()}
    return found


def toml(value):
    """A value as TOML has it: lists of tables aside, as JSON does."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(of)}" for key, of in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def metadata(cases=CASES):
    """The keys of each case, as octorec has them."""
    keys = {}
    for name, case in cases.items():
        options = {
            "model.bottom": [case.dense] if case.dense else [], "model.top": case.top, "model.dim": case.dim,
            "model.rows": case.rows,
        } | case.options()
        if not case.top:
            del options["model.top"]
        if case.crosses:
            options["model.wide_crosses"] = [[f"C{column + 1}" for column in columns] for columns in case.crosses]
            options["model.wide_buckets"] = case.buckets
        options |= {f"train.{key}": value for key, value in case.train.items()}
        keys[name] = "\n".join(f"{key} = {toml(value)}" for key, value in options.items())
    return keys


if __name__ == "__main__":
    write_or_check(HERE / "wide_deep.safetensors", tensors, metadata())
