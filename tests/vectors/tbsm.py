#!/usr/bin/env python3
"""Writes tbsm.safetensors: logits of small time-based sequence models in PyTorch, and what they are after 30 steps.

The model, TBSM, is written from its definition (Ishkhanov et al. 2020) with one attention head of its kind "def": a
DLRM tower turns every step of a history, and the item in question after it, into a vector on the sphere; the item's
products with the history go through an MLP, whose outputs weight the history's vectors; their sum and the item's vector
make the logit. Optimizers are PyTorch's. How look-ups become steps is octorec's own definition, written again here.
Every case runs in float32 and in float64, which shows how much of a difference is rounding. See README.md.

    python tbsm.py            write tbsm.safetensors here
    python tbsm.py --check    write nothing: fail unless the committed file holds what would be written
"""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from generate import mlp
from optimizers import write_or_check
from training import assert_told, rounded_run, train

HERE = Path(__file__).parent


@dataclass
class Case:
    seed: int
    bottom: list  # the first counts a step's position, too; none without bottom MLP
    top: list
    dim: int
    rows: list
    sequences: list  # tables whose look-ups are steps; all others' are pooled
    looks: list  # look-ups of a sample in each table, at least and at most
    history: int  # steps before the item in question
    tsl_mlp: list
    arch_mlp: list
    batches: list  # samples of each minibatch, used in turn
    train: dict  # octorec's keys of [train]
    interaction: str = "dot"
    interaction_itself: bool = False
    lift: float = 0.0  # added to the biases of the tower's last layer, so that its ReLUs pass something
    spread: float = 1.0  # the tables' initial numbers times this, so that steps differ

    @property
    def steps(self):
        return self.history + 1

    @property
    def dense(self):
        return self.bottom[0] - 1 if self.bottom else 0


CASES = {
    # The shape of the paper's Taobao model: a user, and whole histories of items and of their categories.
    "adagrad": Case(
        57, [1, 8], [15, 11], 8, [12, 40, 9], [1, 2], [(1, 1), (7, 7), (7, 7)], 6, [9], [20, 1], [24, 24, 24, 11],
        dict(optimizer="adagrad", optimizer_rows="adagrad", lr=0.02, lr_rows=0.03, eps=1e-8), lift=0.5, spread=2.0,
    ),
    # Histories of any length, of two columns that do not agree, which are not the first ones.
    "sgd": Case(
        7, [3, 10, 7], [13], 7, [6, 25, 14, 9], [1, 3], [(1, 1), (0, 9), (0, 3), (0, 9)], 5, [6, 8], [1],
        [28, 28, 28, 9],
        dict(optimizer="sgd", optimizer_rows="sgd", lr=0.2, lr_rows=0.4), interaction_itself=True, lift=0.5,
    ),
    # More than sixteen steps and more than sixteen numbers of each; no hidden layer in the attention's MLP. Rows are
    # met in steps cut away alone, which SparseAdam leaves where they are.
    "cat": Case(
        36, [2, 5], [12, 17], 6, [120, 50], [0, 1], [(14, 22), (12, 22)], 18, [], [9, 1], [20, 20, 7],
        dict(optimizer="adam", optimizer_rows="adam", lr=0.004, lr_rows=0.01), interaction="cat", lift=0.5, spread=3.0,
    ),
    # Products alone reach the top MLP, which turns some steps, items too, into no vector at all: only zeros.
    "nodense": Case(
        157, [], [10, 6], 5, [20, 7, 13], [0, 2], [(2, 5), (1, 1), (1, 6)], 3, [4], [8, 1], [32, 32, 32, 13],
        dict(optimizer="adagrad", optimizer_rows="sgd", lr=0.02, lr_rows=0.5, eps=1e-8), lift=0.4, spread=6.0,
    ),
}


def steps_of(bag, steps):
    """A sequence's bag as one for each step of each sample, of one row or none: the last look-up is the last step's."""
    rows, offsets = bag
    lengths = np.diff(offsets)
    sample = np.repeat(np.arange(len(lengths)), lengths)
    step = np.arange(len(rows)) - offsets[1:][sample] + steps
    counts = step >= 0
    there = np.zeros((len(lengths), steps), bool)
    there[sample[counts], step[counts]] = True
    return (rows[counts], np.concatenate([[0], np.cumsum(there)]).astype(np.int32)), there


class Tbsm(torch.nn.Module):
    """Dense features and bags of row numbers -> logits, [N]."""

    def __init__(self, case):
        super().__init__()
        self.case, relu = case, torch.nn.ReLU()
        vectors = len(case.rows) + bool(case.bottom)
        self.pairs = torch.tril_indices(vectors, vectors, 0 if case.interaction_itself else -1)
        width = case.bottom[-1] if case.bottom else 0
        width += self.pairs.shape[1] if case.interaction == "dot" else len(case.rows) * case.dim
        self.dlrm = torch.nn.Module()
        self.dlrm.emb_l = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(n, case.dim, mode="sum", sparse=True, include_last_offset=True) for n in case.rows
        )
        if case.bottom:
            self.dlrm.bot_l = mlp(case.bottom, relu)
        self.dlrm.top_l = mlp([width, *case.top], relu)
        attention, m = torch.nn.Module(), case.top[-1]
        attention.A = torch.nn.Parameter(torch.empty(m, m))
        attention.mlp = mlp([case.history, *case.tsl_mlp, case.history], torch.nn.Sigmoid())
        self.ams = torch.nn.ModuleList([attention])
        self.mlps = torch.nn.ModuleList([mlp([2 * m, *case.arch_mlp], torch.nn.Identity())])

    def tower(self, batch):
        """z of every step, [N, L, m]."""
        case, dense = self.case, batch["dense"]
        samples, steps, vectors = len(dense), case.steps, []
        if case.bottom:
            position = torch.from_numpy((np.arange(steps) / steps).astype(np.float32)).to(dense.dtype)
            inputs = [position.expand(samples, steps)[:, :, None], dense[:, None].expand(samples, steps, case.dense)]
            vectors.append(self.dlrm.bot_l(torch.cat(inputs, dim=2)))
        for t, (table, bag) in enumerate(zip(self.dlrm.emb_l, batch["bags"])):
            found = table(*bag)
            of_step = found.view(samples, steps, case.dim) if t in case.sequences else found[:, None]
            vectors.append(of_step.expand(samples, steps, case.dim))
        if case.interaction == "cat":
            return self.dlrm.top_l(torch.cat(vectors, dim=2))
        stacked = torch.stack(vectors, dim=2)
        products = (stacked @ stacked.transpose(2, 3))[:, :, self.pairs[0], self.pairs[1]]
        return self.dlrm.top_l(torch.cat([*vectors[:bool(case.bottom)], products], dim=2))

    def forward(self, batch):
        z = self.tower(batch)
        v = torch.nn.functional.normalize(z, p=2, dim=2, eps=1e-12) * batch["there"][:, :, None]
        history, item, attention = v[:, :-1], v[:, -1], self.ams[0]
        x = (item @ attention.A.T) @ attention.A
        y = attention.mlp((history @ x[:, :, None]).squeeze(2))
        context = (y[:, None] @ history).squeeze(1)
        return self.mlps[0](torch.cat([context, item], dim=1)).squeeze(1)


def initial_parameters(case, draw):
    """Those of facebookresearch/dlrm and of facebookresearch/tbsm, but for `lift` and `spread`."""
    parameters = {}
    for name, parameter in Tbsm(case).named_parameters():
        shape = tuple(parameter.shape)
        if name.startswith("dlrm.emb_l"):
            values = case.spread * draw.uniform(-(shape[0] ** -0.5), shape[0] ** -0.5, shape)
        elif len(shape) == 2:
            values = draw.normal(0.0, (2.0 / sum(shape)) ** 0.5, shape)
        else:
            values = draw.normal(0.0, shape[0] ** -0.5, shape)
        if name == f"dlrm.top_l.{2 * len(case.top) - 2}.bias":
            values += case.lift
        parameters[name] = values.astype(np.float32)
    return parameters


def random_minibatch(case, samples, draw):
    """Log-like dense features; bags of as many rows as the case has, low numbers more often."""
    dense = np.log1p(draw.exponential(3.0, (samples, case.dense)) * (draw.rand(samples, case.dense) < 0.8))
    bags = []
    for rows, (least, most) in zip(case.rows, case.looks):
        lengths = draw.randint(least, most + 1, samples)
        ids = (rows * draw.rand(lengths.sum()) ** 2).astype(np.int32)
        bags.append((ids, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)))
    labels = (draw.rand(samples) < 0.4).astype(np.float32)
    return {"dense": dense.astype(np.float32), "bags": bags, "labels": labels}


def inputs(case, minibatch, dtype):
    split = {t: steps_of(minibatch["bags"][t], case.steps) for t in case.sequences}
    bags = [split[t][0] if t in split else bag for t, bag in enumerate(minibatch["bags"])]
    return {
        "dense": torch.from_numpy(minibatch["dense"]).to(dtype),
        "bags": [tuple(map(torch.from_numpy, bag)) for bag in bags],
        "there": torch.from_numpy(np.any([there for _, there in split.values()], axis=0)),
    }


def model_of(case, initial, dtype):
    model = Tbsm(case)
    model.load_state_dict({name: torch.from_numpy(values) for name, values in initial.items()})
    return model.to(dtype)


def kind_of(name):
    rows = name.startswith("dlrm.emb_l")
    return "_rows" if rows else "", rows


def run_of(case, initial, minibatches, dtype):
    batches = [inputs(case, minibatch, dtype) for minibatch in minibatches]
    return train(Tbsm(case), initial, case.train, kind_of, batches, minibatches, dtype)


def assert_covers(name, case, initial, minibatches, run):
    """A case that does not exercise what it is for fails here, not silently in octorec's tests."""
    assert_told(name, initial, minibatches, run)
    there = {t: [steps_of(minibatch["bags"][t], case.steps)[1] for minibatch in minibatches] for t in case.sequences}
    there = np.array([np.concatenate(of) for of in there.values()])
    for at in (initial, {parameter: run[parameter].astype(np.float32) for parameter in initial}):
        model = model_of(case, at, torch.float32)
        z = [model.tower(inputs(case, minibatch, torch.float32)).detach().numpy() for minibatch in minibatches]
        z = np.concatenate(z)[there.any(axis=0)]
        print(f"  {(z > 0.0).any(axis=1).mean():.0%} of {len(z)} steps have a vector, {(z > 0.0).mean():.0%} of its "
              f"numbers are not 0; the least used has {(z > 0.0).mean(axis=0).min():.0%}")
        assert (z > 0.0).any(axis=1).mean() > 0.9 and (z > 0.0).mean(axis=0).min() > 0.04, f"{name}: no vectors"
        assert name != "nodense" or not (z > 0.0).any(axis=1).all(), f"{name}: no step without a vector"
    if name == "cat":
        bags = [minibatch["bags"][t] for minibatch in minibatches for t in case.sequences]
        cut = sum(len(set(bag[0]) - set(steps_of(bag, case.steps)[0][0])) for bag in bags)
        print(f"  {cut} rows of a minibatch are met in steps cut away alone")
        assert cut, f"{name}: no rows cut away"
    if name == "sgd":
        longest = [np.diff(minibatch["bags"][t][1]).max() for minibatch in minibatches for t in case.sequences]
        apart = there.any(axis=0) & ~there.all(axis=0)
        print(f"  {(~there.any(axis=2)).sum()} sequences are empty, up to {max(longest)} look-ups for {case.steps} "
              f"steps; {apart.sum()} steps in one column only, {(~there.any(axis=(0, 2))).sum()} samples of none")
        assert (~there.any(axis=2)).any() and max(longest) > case.steps and apart.any(), f"{name}: all sequences alike"
        assert (~there.any(axis=(0, 2))).any(), f"{name}: no sample without a step"


def tensors():
    found = {}
    for case_name, case in CASES.items():
        draw = np.random.RandomState(case.seed)
        initial = initial_parameters(case, draw)
        minibatches = [random_minibatch(case, samples, draw) for samples in case.batches]
        run = rounded_run(case_name, partial(run_of, case, initial, minibatches))
        assert_covers(case_name, case, initial, minibatches, run)
        found |= {f"{case_name}.init.{name}": values for name, values in initial.items()}
        for i, minibatch in enumerate(minibatches):
            found[f"{case_name}.batch{i}.dense"] = minibatch["dense"]
            found[f"{case_name}.batch{i}.labels"] = minibatch["labels"]
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
            "model.interaction": case.interaction, "model.ts_length": case.history,
            "model.sequences": [f"C{table + 1}" for table in case.sequences],
            "model.tsl_mlp": case.tsl_mlp, "model.arch_mlp": case.arch_mlp,
        }
        if case.interaction_itself:
            options["model.interaction_itself"] = True
        options |= {f"train.{key}": value for key, value in case.train.items()}
        keys[name] = "\n".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
    return keys


if __name__ == "__main__":
    write_or_check(HERE / "tbsm.safetensors", tensors, metadata())
