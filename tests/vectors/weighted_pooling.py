#!/usr/bin/env python3
"""Writes weighted_pooling.safetensors: logits of DLRMs whose rows have learned weights, and what they are after 30 steps.

The model is facebookresearch/dlrm with `--weighted-pooling=learned`: beside each table E there is a parameter v_W_l.{k},
one number a row, and a bag's vector is the sum of v_W[r] * E[r] over its look-ups r. Where the data have weights of their
own, a look-up counts by both; with means, the sum is divided by the number of look-ups. Optimizers are PyTorch's. Every case
runs in float32 and in float64, which shows how much of a difference is rounding. See README.md.

    python weighted_pooling.py            write weighted_pooling.safetensors here
    python weighted_pooling.py --check    write nothing: fail unless the committed file holds what would be written
"""

import json
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
    batches: list  # samples of each minibatch, used in turn
    train: dict  # octorec's keys of [train]
    pooling: str = "sum"
    interaction: str = "dot"
    weighted: list = field(default_factory=list)  # tables whose look-ups have weights
    empty: list = field(default_factory=list)  # (minibatch, table) pairs in which every bag is empty

    @property
    def dense(self):
        return self.bottom[0] if self.bottom else 0


CASES = {
    "sgd": Case(
        3, [3, 16], [9, 1], 16, [300, 12, 50, 80], [28, 28, 28, 9],
        dict(optimizer="sgd", optimizer_rows="sgd", lr=0.1, lr_rows=0.3), weighted=[1],
    ),
    "adagrad": Case(
        5, [5, 10, 8], [12, 1], 8, [7, 40, 260], [32, 32, 32, 11],
        dict(optimizer="adagrad", optimizer_rows="adagrad", lr=0.01, lr_rows=0.02, eps=1e-8, initial_accumulator=0.01),
        pooling="mean", weighted=[0, 2],
    ),
    # By SparseAdam, which leaves a table and its weights where they are in a minibatch whose bags of it are empty.
    "adam": Case(
        5, [], [14, 1], 6, [25, 500, 90], [24, 24, 7],
        dict(optimizer="adam", optimizer_rows="adam", lr=0.002, lr_rows=0.004), interaction="cat", empty=[(1, 2)],
    ),
}


class Weighted(torch.nn.Module):
    """Dense features and bags of row numbers -> logits, [N]."""

    def __init__(self, case):
        super().__init__()
        self.case = case
        vectors = len(case.rows) + bool(case.bottom)
        self.pairs = torch.tril_indices(vectors, vectors, -1)
        width = case.bottom[-1] if case.bottom else 0
        width += self.pairs.shape[1] if case.interaction == "dot" else len(case.rows) * case.dim
        self.emb_l = torch.nn.ModuleList(torch.nn.Embedding(n, case.dim, sparse=True) for n in case.rows)
        # Tables of one column have sparse gradients; octorec and dlrm have one number a row.
        self.v_W_l = torch.nn.ModuleList(torch.nn.Embedding(n, 1, sparse=True) for n in case.rows)
        if case.bottom:
            self.bot_l = mlp(case.bottom, torch.nn.ReLU())
        self.top_l = mlp([width, *case.top], torch.nn.Identity())

    def pooled(self, table, rows, offsets, weights):
        counts = offsets.diff()
        vectors = self.emb_l[table](rows) * self.v_W_l[table](rows)
        if weights is not None:
            vectors = vectors * weights[:, None]
        sample = torch.arange(len(counts)).repeat_interleave(counts)
        sums = torch.zeros(len(counts), self.case.dim, dtype=vectors.dtype).index_add(0, sample, vectors)
        return sums / counts.clamp(min=1)[:, None] if self.case.pooling == "mean" else sums

    def forward(self, batch):
        x = [self.bot_l(batch["dense"])] if self.case.bottom else []
        vectors = x + [self.pooled(table, *bag) for table, bag in enumerate(batch["bags"])]
        if self.case.interaction == "cat":
            return self.top_l(torch.cat(vectors, dim=1)).squeeze(1)
        stacked = torch.stack(vectors, dim=1)
        products = (stacked @ stacked.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top_l(torch.cat([*x, products], dim=1)).squeeze(1)


def is_of_rows(name):
    return name.startswith(("emb_l", "v_W_l"))


def initial_parameters(case, draw):
    """Those of facebookresearch/dlrm, but weights that are not all 1, and larger rows, whose products with gradients move them."""
    parameters = {}
    for name, parameter in Weighted(case).named_parameters():
        shape = tuple(parameter.shape)
        if name.startswith("v_W_l"):
            values = draw.uniform(-0.5, 1.5, shape)
        elif name.startswith("emb_l"):
            values = draw.uniform(-0.5, 0.5, shape)
        elif len(shape) == 2:
            values = draw.normal(0.0, (2.0 / sum(shape)) ** 0.5, shape)
        else:
            values = draw.normal(0.0, shape[0] ** -0.5, shape)
        parameters[name] = values.astype(np.float32)
    return parameters


def kind_of(name):
    return "_rows" if is_of_rows(name) else "", is_of_rows(name)


def run_of(case, initial, minibatches, dtype):
    batches = [
        {
            "dense": torch.from_numpy(minibatch["dense"]).to(dtype),
            "bags": [
                (torch.from_numpy(rows).long(), torch.from_numpy(offsets).long(),
                 None if weights is None else torch.from_numpy(weights).to(dtype))
                for rows, offsets, weights in minibatch["bags"]
            ],
        }
        for minibatch in minibatches
    ]
    return train(Weighted(case), initial, case.train, kind_of, batches, minibatches, dtype)


def as_kept(name, values):
    """By its name in a state dict of facebookresearch/dlrm, where the weights of rows have one axis."""
    if "v_W_l" not in name:
        return name, values
    kept = values[:, 0] if values.ndim == 2 else values
    return name.replace(".weight", ""), np.ascontiguousarray(kept)


def assert_covers(name, case, initial, minibatches, run):
    """A case that does not exercise what it is for fails here, not silently in octorec's tests."""
    assert_told(name, initial, minibatches, run)
    for table in range(len(case.rows)):
        assert_bags(f"{name}, table {table}", [minibatch["bags"][table] for minibatch in minibatches])
        # Weights that stay where they began give other logits in the end.
        weights = f"v_W_l.{table}.weight"
        without = run_of(case, initial | {weights: np.ones_like(initial[weights])}, minibatches, torch.float32)
        apart = max(np.abs(without[f"logits{i}"] - run[f"logits{i}"]).max() for i in range(len(minibatches)))
        assert apart > 1e-3, f"{name}: logits are as without {weights}"


def tensors():
    found = {}
    for case_name, case in CASES.items():
        draw = np.random.RandomState(case.seed)
        initial = initial_parameters(case, draw)
        minibatches = []
        for i, samples in enumerate(case.batches):
            minibatch = random_minibatch(case, samples, {table for at, table in case.empty if at == i}, draw)
            minibatch["bags"] = [
                (*bag, draw.uniform(-0.5, 1.5, len(bag[0])).astype(np.float32) if table in case.weighted else None)
                for table, bag in enumerate(minibatch["bags"])
            ]
            minibatches.append(minibatch)
        run = rounded_run(case_name, partial(run_of, case, initial, minibatches))
        assert_covers(case_name, case, initial, minibatches, run)
        kept = dict(as_kept(name, values) for name, values in initial.items())
        found |= {f"{case_name}.init.{name}": values for name, values in kept.items()}
        for i, minibatch in enumerate(minibatches):
            found[f"{case_name}.batch{i}.dense"] = minibatch["dense"]
            found[f"{case_name}.batch{i}.labels"] = minibatch["labels"]
            for table, (rows, offsets, weights) in enumerate(minibatch["bags"]):
                found[f"{case_name}.batch{i}.rows{table}"] = rows
                found[f"{case_name}.batch{i}.offsets{table}"] = offsets
                if weights is not None:
                    found[f"{case_name}.batch{i}.weights{table}"] = weights
        run = dict(as_kept(name, values) for name, values in run.items())
        found |= {f"{case_name}.{name}": np.asarray(value, np.float32) for name, value in run.items()}
    return found


def metadata():
    """The keys of each case, as octorec has them."""
    keys = {}
    for name, case in CASES.items():
        options = {
            "model.bottom": case.bottom, "model.top": case.top, "model.dim": case.dim, "model.rows": case.rows,
            "model.interaction": case.interaction, "model.pooling": case.pooling, "model.weighted_pooling": "learned",
        }
        options |= {f"train.{key}": value for key, value in case.train.items()}
        keys[name] = "\n".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
    return keys


if __name__ == "__main__":
    write_or_check(HERE / "weighted_pooling.safetensors", tensors, metadata())
