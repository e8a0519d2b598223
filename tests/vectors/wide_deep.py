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
from pathlib import Path

import numpy as np
import torch

from optimizers import distance, state_of, write_or_check

HERE = Path(__file__).parent
STEPS = 30
HOTS = 3  # look-ups of a sample in each table, at most


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


class Ftrl:
    """Algorithm 1 of McMahan et al. 2013 for each number that has a gradient; those of a row are summed first."""

    def __init__(self, parameters, lr, beta, l1, l2, initial):
        self.parameters, self.alpha, self.beta, self.l1, self.l2 = parameters, lr, beta, l1, l2
        arrays = [p.detach().numpy() for p in parameters]
        assert not any(weights.any() for weights in arrays), "the paper's weights begin at 0"
        self.n = [np.full_like(weights, initial) for weights in arrays]
        self.z = [np.zeros_like(weights) for weights in arrays]

    def step(self):
        for p, n, z in zip(self.parameters, self.n, self.z):
            weights, at, gradient = p.detach().numpy(), ..., p.grad
            if gradient.is_sparse:
                gradient = gradient.coalesce()
                at, gradient = gradient.indices()[0].numpy(), gradient.values()
            g = gradient.numpy()
            sigma = (np.sqrt(n[at] + g * g) - np.sqrt(n[at])) / self.alpha
            z[at] += g - sigma * weights[at]
            n[at] += g * g
            pulled = -(z[at] - np.sign(z[at]) * self.l1) / ((self.beta + np.sqrt(n[at])) / self.alpha + self.l2)
            weights[at] = np.where(np.abs(z[at]) <= self.l1, 0.0, pulled)

    @property
    def state(self):
        """octorec keeps z times the rate."""
        kept = zip(self.parameters, self.n, self.z)
        return {p: {"accumulator": n, "linear": self.alpha * z} for p, n, z in kept}


def optimizer_of(name, parameters, sparse, lr, train):
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=lr)
    if name == "adam":
        return (torch.optim.SparseAdam if sparse else torch.optim.Adam)(parameters, lr=lr)
    initial = train.get("initial_accumulator", 0.0)
    if name == "adagrad":
        return torch.optim.Adagrad(parameters, lr=lr, eps=train["eps"], initial_accumulator_value=initial)
    assert name == "ftrl"
    return Ftrl(parameters, lr, train.get("ftrl_beta", 1.0), train.get("l1", 0.0), train.get("l2", 0.0), initial)


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


def random_minibatch(case, samples, empty_tables, draw):
    """Log-like dense features; bags of 0 to 3 rows, some of them with a row twice."""
    dense = np.log1p(draw.exponential(3.0, (samples, case.dense)) * (draw.rand(samples, case.dense) < 0.8))
    bags = []
    for table, rows in enumerate(case.rows):
        lengths = np.zeros(samples, int) if table in empty_tables else draw.randint(0, HOTS + 1, samples)
        ids = []
        for length in lengths:
            bag = (rows * draw.rand(length) ** 2).astype(int)
            if length >= 2 and draw.rand() < 0.3:
                bag[-1] = bag[0]
            ids.extend(bag)
        bags.append((np.array(ids, np.int32), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)))
    labels = (draw.rand(samples) < 0.4).astype(np.float32)
    return {"dense": dense.astype(np.float32), "bags": bags, "labels": labels}


def train(case, initial, minibatches, dtype):
    model = case.build()
    model.load_state_dict({name: torch.from_numpy(values) for name, values in initial.items()})
    model.to(dtype)
    # Each with the optimizer of its part: of layers or of tables, wide or not.
    named, keys = dict(model.named_parameters()), case.train
    groups = {}
    for name in named:
        groups.setdefault((name.startswith("wide"), name.startswith(("emb_l", "tables", "wide_l"))), []).append(name)
    optimizers = {}
    for (wide, sparse), names in groups.items():
        kind = "_wide" if wide else "_rows" if sparse else ""
        parameters, rate = [named[name] for name in names], keys.get(f"lr{kind}", keys["lr"])
        optimizer = optimizer_of(keys[f"optimizer{kind}"], parameters, sparse, rate, keys)
        optimizers |= {name: optimizer for name in names}

    batches = [
        {
            "dense": torch.from_numpy(minibatch["dense"]).to(dtype),
            "wide_bags": [tuple(map(torch.from_numpy, bag)) for bag in wide_bags(case, minibatch["bags"])],
        }
        for minibatch in minibatches
    ]

    def logits(kind):
        return {f"logits{kind}{i}": model(batch).detach().numpy().copy() for i, batch in enumerate(batches)}

    results, losses = logits(""), []
    for step in range(STEPS):
        at = step % len(minibatches)
        model.zero_grad()
        labels = torch.from_numpy(minibatches[at]["labels"]).to(dtype)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(batches[at]), labels)
        loss.backward()
        for optimizer in {id(optimizer): optimizer for optimizer in optimizers.values()}.values():
            optimizer.step()
        losses.append(loss.item())
    results |= logits("_after") | {"losses": np.array(losses)}
    for name, parameter in named.items():
        results[name] = parameter.detach().numpy()
        for kind, value in state_of(optimizers[name], parameter).items():
            results[f"state.{name}.{kind}"] = value
    return {name: np.ascontiguousarray(value, np.float64) for name, value in results.items()}


def assert_covers(name, case, initial, minibatches, run):
    """A case that does not exercise what it is for fails here, not silently in octorec's tests."""
    still = [parameter for parameter in initial if distance(run[parameter], initial[parameter]) < 1e-3]
    assert not still, f"{name}: {still} hardly moved"
    logits = np.concatenate([run[f"logits{i}"] for i in range(len(minibatches))])
    assert np.abs(logits).max() < 4.0 and np.ptp(logits) > 0.1, f"{name}: logits tell nothing"
    bags = [wide_bags(case, minibatch["bags"]) for minibatch in minibatches]
    for column in range(len(case.wide_rows())):
        split = [bag for of in bags for bag in np.split(of[column][0], of[column][1][1:-1])]
        assert any(len(bag) == 0 for bag in split), f"{name}, column {column}: no empty bag"
        assert any(len(set(bag)) < len(bag) for bag in split), f"{name}, column {column}: no row twice in a bag"
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
        run = train(case, initial, minibatches, torch.float32)
        exact = train(case, initial, minibatches, torch.float64)
        worst = max(run, key=lambda name: distance(run[name], exact[name]))
        print(f"{case_name}: losses {run['losses'][0]:.6f} .. {run['losses'][-1]:.6f}; float64 is "
              f"{distance(run[worst], exact[worst]):.1e} away in {worst}")
        assert distance(run[worst], exact[worst]) < 5e-6, case_name
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
