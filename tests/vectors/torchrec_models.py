#!/usr/bin/env python3
"""Writes torchrec.safetensors: logits of TorchRec's models in PyTorch, small ones, and what they are after 30 steps.

The models are written from their published definitions. DCNv2 in low rank (Wang et al. 2020, as MLPerf trains it): bottom
MLP, multi-hot tables with sum pooling, their concatenation, cross layers, top MLP, mean binary cross-entropy of logits.
DLRM: dot products above the diagonal instead of cross layers. They share no code with octorec. Tensors are named as in
TorchRec's state dicts of DLRM_DCN and DLRM, and with --torchrec FILE, torchrec/modules/crossnet.py, the cross layers are
held against TorchRec's own. Every case runs in float32 and in float64, which shows how much of a difference is rounding.
See README.md.

    python torchrec_models.py            write torchrec.safetensors here
    python torchrec_models.py --check    write nothing: fail unless the committed file holds what would be written
"""

import argparse
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from optimizers import distance, state_of, write_or_check

HERE = Path(__file__).parent
STEPS = 30


@dataclass
class Case:
    seed: int
    bottom: list
    top: list
    dim: int
    rows: list
    hots: list  # look-ups of every sample
    layers: int  # cross layers; 0: dot products
    rank: int
    batches: list  # samples of each minibatch, used in turn
    optimizer: type
    options: dict

    def width(self):
        tables = len(self.rows)
        return self.bottom[-1] + (tables * self.dim if self.layers else tables * (tables + 1) // 2)


ADAGRAD = dict(lr=0.002, eps=1e-8)

CASES = {
    "sgd": Case(2, [13, 24, 8], [20, 12, 1], 8, [3, 17, 50], [1, 4, 9], 3, 6, [24, 24, 24, 7], torch.optim.SGD, dict(lr=0.2)),
    # More than a panel of 64 columns everywhere, so that AMX multiplies in three parts.
    "adagrad": Case(4, [13, 30, 22], [40, 1], 22, [12, 40], [2, 5], 2, 65, [40, 40, 31], torch.optim.Adagrad, ADAGRAD),
    "one-layer": Case(7, [5, 6], [1], 4, [9, 30], [3, 1], 1, 3, [16, 16, 5], torch.optim.Adagrad, ADAGRAD),
    "dot": Case(5, [7, 15, 6], [14, 9, 1], 6, [9, 30, 4, 17], [3, 1, 2, 5], 0, 0, [20, 20, 20, 9], torch.optim.SGD, dict(lr=0.2)),
}


class Layer(torch.nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self._linear = torch.nn.Linear(fan_in, fan_out)

    def forward(self, x):
        return torch.relu(self._linear(x))


class Chain(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self._mlp = torch.nn.Sequential(*(Layer(*pair) for pair in zip(sizes, sizes[1:])))

    def forward(self, x):
        return self._mlp(x)


class Cross(torch.nn.Module):
    def __init__(self, width, layers, rank):
        super().__init__()
        self.W_kernels = torch.nn.ParameterList(torch.zeros(width, rank) for _ in range(layers))
        self.V_kernels = torch.nn.ParameterList(torch.zeros(rank, width) for _ in range(layers))
        self.bias = torch.nn.ParameterList(torch.zeros(width) for _ in range(layers))

    def forward(self, first):
        x = first
        for w, v, b in zip(self.W_kernels, self.V_kernels, self.bias):
            x = first * (x @ v.T @ w.T + b) + x
        return x


class Dot(torch.nn.Module):
    def __init__(self, vectors):
        super().__init__()
        self.pairs = torch.triu_indices(vectors, vectors, 1)

    def forward(self, x, pooled):
        vectors = torch.stack([x, *pooled], dim=1)
        products = vectors @ vectors.transpose(1, 2)
        return torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], dim=1)


class Dlrm(torch.nn.Module):
    """Dense features and bags of row numbers -> logits, [N]."""

    def __init__(self, case):
        super().__init__()
        module, tables = torch.nn.Module, torch.nn.ModuleDict()
        for table, rows in enumerate(case.rows):
            tables[f"t_cat_{table}"] = torch.nn.EmbeddingBag(
                rows, case.dim, mode="sum", sparse=True, include_last_offset=True
            )
        self.sparse_arch, self.dense_arch, self.inter_arch, self.over_arch = module(), module(), module(), module()
        self.sparse_arch.embedding_bag_collection = module()
        self.sparse_arch.embedding_bag_collection.embedding_bags = tables
        self.dense_arch.model = Chain(case.bottom)
        if case.layers:
            self.inter_arch.crossnet = Cross(case.width(), case.layers, case.rank)
        else:
            self.dot = Dot(1 + len(case.rows))
        top = [case.width(), *case.top]
        self.over_arch.model = torch.nn.Sequential(Chain(top[:-1]), torch.nn.Linear(*top[-2:]))

    def forward(self, batch):
        tables = self.sparse_arch.embedding_bag_collection.embedding_bags.values()
        pooled = [table(*bag) for table, bag in zip(tables, batch["bags"])]
        x = self.dense_arch.model(batch["dense"])
        if hasattr(self, "dot"):
            return self.over_arch.model(self.dot(x, pooled)).squeeze(1)
        return self.over_arch.model(self.inter_arch.crossnet(torch.cat([x, *pooled], dim=1))).squeeze(1)


def initial_parameters(case, draw):
    """TorchRec's distributions, but biases of cross layers that are not 0: otherwise nothing would tell them apart."""
    parameters = {}
    for name, parameter in Dlrm(case).named_parameters():
        shape = tuple(parameter.shape)
        if "embedding_bags" in name:
            values = draw.uniform(-(shape[0] ** -0.5), shape[0] ** -0.5, shape)
        elif "kernels" in name:
            values = draw.normal(0.0, (2.0 / sum(shape)) ** 0.5, shape)
        elif "crossnet.bias" in name:
            values = draw.normal(0.0, 0.3, shape)
        else:
            inputs = shape[1] if len(shape) == 2 else parameters[name.replace("bias", "weight")].shape[1]
            values = draw.uniform(-(inputs ** -0.5), inputs ** -0.5, shape)
        parameters[name] = values.astype(np.float32)
    return parameters


def random_minibatch(case, samples, draw):
    """Log-like dense features, and bags of one size a table in which rows come twice."""
    dense = np.log1p(draw.exponential(3.0, (samples, case.bottom[0])) * (draw.rand(samples, case.bottom[0]) < 0.8))
    bags = []
    for rows, hots in zip(case.rows, case.hots):
        ids = (rows * draw.rand(samples * hots) ** 2).astype(np.int32)
        bags.append((ids, np.arange(samples + 1, dtype=np.int32) * np.int32(hots)))
    labels = (draw.rand(samples) < 0.4).astype(np.float32)
    return {"dense": dense.astype(np.float32), "bags": bags, "labels": labels}


def train(case, initial, minibatches, dtype):
    model = Dlrm(case)
    model.load_state_dict({name: torch.from_numpy(values) for name, values in initial.items()})
    model.to(dtype)
    named = dict(model.named_parameters())
    # Adagrad's steps of sparse and of dense gradients are two code paths, as are octorec's.
    sparse = [name for name in named if "embedding_bags" in name]
    optimizers = [
        case.optimizer([named[name] for name in names], **case.options)
        for names in (sparse, [name for name in named if name not in sparse])
    ]

    def batch_of(minibatch):
        return {
            "dense": torch.from_numpy(minibatch["dense"]).to(dtype),
            "bags": [tuple(map(torch.from_numpy, bag)) for bag in minibatch["bags"]],
        }

    results = {f"logits{i}": model(batch_of(minibatch)).detach().numpy().copy() for i, minibatch in enumerate(minibatches)}
    losses = []
    for step in range(STEPS):
        minibatch = minibatches[step % len(minibatches)]
        model.zero_grad()
        labels = torch.from_numpy(minibatch["labels"]).to(dtype)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(batch_of(minibatch)), labels)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    results["losses"] = np.array(losses)
    for name, parameter in named.items():
        results[name] = parameter.detach().numpy()
        for kind, value in state_of(optimizers[name not in sparse], parameter).items():
            results[f"state.{name}.{kind}"] = value
    return {name: np.ascontiguousarray(value, np.float64) for name, value in results.items()}


def check_cross(path, case, initial):
    """Holds the cross layers against TorchRec's own, which have their names."""
    specification = importlib.util.spec_from_file_location("crossnet", path)
    crossnet = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(crossnet)
    prefix = "inter_arch.crossnet."
    state = {name.removeprefix(prefix): torch.from_numpy(values) for name, values in initial.items() if prefix in name}
    theirs, ours = crossnet.LowRankCrossNet(case.width(), case.layers, case.rank), Cross(case.width(), case.layers, case.rank)
    theirs.load_state_dict(state)
    ours.load_state_dict(state)
    features = torch.randn(50, case.width())
    apart = distance(ours(features).detach().numpy(), theirs(features).detach().numpy())
    print(f"cross layers are {apart:.1e} from TorchRec's")
    assert apart < 1e-6


def tensors(torchrec):
    found = {}
    for case_name, case in CASES.items():
        draw = np.random.RandomState(case.seed)
        initial = initial_parameters(case, draw)
        minibatches = [random_minibatch(case, samples, draw) for samples in case.batches]
        if torchrec and case.layers:
            check_cross(torchrec, case, initial)
        run = train(case, initial, minibatches, torch.float32)
        exact = train(case, initial, minibatches, torch.float64)
        worst = max(run, key=lambda name: distance(run[name], exact[name]))
        logits = np.concatenate([run[f"logits{i}"] for i in range(len(minibatches))])
        print(f"{case_name}: logits {logits.min():.3f} .. {logits.max():.3f}, losses {run['losses'][0]:.6f} .. "
              f"{run['losses'][-1]:.6f}; float64 is {distance(run[worst], exact[worst]):.1e} away in {worst}")
        assert distance(run[worst], exact[worst]) < 5e-6, case_name
        still = [name for name in initial if distance(run[name], initial[name]) < 1e-3]
        assert not still, f"{case_name}: {still} hardly moved"
        assert np.abs(logits).max() < 4.0 and np.ptp(logits) > 0.1, f"{case_name}: logits tell nothing"
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
        interaction = {"model.interaction": '"dot"', "model.triangle": '"upper"'}
        if case.layers:
            sizes = {"model.cross_layers": case.layers, "model.cross_rank": case.rank}
            interaction = {"model.interaction": '"dcn"'} | sizes
        options = {
            "model.bottom": case.bottom, "model.top": case.top, "model.dim": case.dim, "model.rows": case.rows,
            "train.optimizer": f'"{case.optimizer.__name__.lower()}"',
            "train.optimizer_rows": f'"{case.optimizer.__name__.lower()}"',
        } | interaction | {f"train.{option}": value for option, value in case.options.items()}
        keys[name] = "\n".join(f"{key} = {value}" for key, value in options.items())
    return keys


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--check", action="store_true", help="write nothing, compare with the file in place")
    arguments.add_argument("--torchrec", type=Path, metavar="FILE", help="TorchRec's modules/crossnet.py")
    arguments = arguments.parse_args()
    write_or_check(HERE / "torchrec.safetensors", lambda: tensors(arguments.torchrec), metadata(), arguments.check)


if __name__ == "__main__":
    main()
