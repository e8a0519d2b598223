#!/usr/bin/env python3
"""Writes optimizers.safetensors: what a small DLRM is after 30 steps of each optimizer, with the optimizers' state; and
handover_CASE.safetensors, what some are after 15, as a user of PyTorch hands a model over to octorec.

The model and its data are those of generate.py. Optimizers are PyTorch's own; where it has none they are written here in
NumPy from their published definition. Embedding gradients are sparse, as they must be for SparseAdam. Every case runs in
float32 and in float64, which shows how much of a difference is rounding. See README.md.

    python optimizers.py            write optimizers.safetensors here
    python optimizers.py --check    write nothing: fail unless the committed file holds what would be written
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import load_file
from safetensors.torch import save_file

from generate import Case, Dlrm, container, initial_parameters, random_minibatch

HERE = Path(__file__).parent
STEPS = 30
MINIBATCHES = 10  # used in turn
HANDED_OVER, AFTER = ("momentum", "adagrad", "adam"), 15

MODEL = Case(7, [13, 16, 8], [12, 1], 8, [3, 17, 40], [24] * MINIBATCHES, 0.0, empty=[(4, 1)])


class RowwiseAdagrad:
    """fbgemm's EXACT_ROWWISE_ADAGRAD without decay: one sum a row, of the mean squares of its gradients."""

    def __init__(self, parameters, lr, eps=1e-8, initial=0.0):
        self.parameters, self.lr, self.eps = list(parameters), lr, eps
        self.state = {p: {"momentum": np.full(len(p), initial, p.detach().numpy().dtype)} for p in self.parameters}
        self.steps = 0

    def step(self):
        self.steps += 1
        for p in self.parameters:
            gradient = p.grad.coalesce()
            rows, values = gradient.indices()[0].numpy(), gradient.values().numpy()
            momentum, weights = self.state[p]["momentum"], p.detach().numpy()
            momentum[rows] += np.mean(values * values, axis=1)
            weights[rows] -= self.lr / (np.sqrt(momentum[rows]) + self.eps)[:, None] * values
            self.state[p]["step"] = float(self.steps)




class Lamb:
    """LAMB of Intel's MLPerf DLRM submissions: no correction of bias unless asked for, weights' norms of at most 10."""

    def __init__(self, parameters, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, bias_correction=False):
        self.parameters, self.lr, self.betas, self.eps = list(parameters), lr, betas, eps
        self.decay, self.corrects, self.steps = weight_decay, bias_correction, 0
        self.state = {p: {kind: np.zeros_like(p.detach().numpy()) for kind in ("exp_avg", "exp_avg_sq")}
                      for p in self.parameters}

    def step(self):
        self.steps += 1
        shares = [1.0 - beta**self.steps if self.corrects else 1.0 for beta in self.betas]
        for p in self.parameters:
            gradient, weights, state = p.grad.numpy(), p.detach().numpy(), self.state[p]
            for kind, beta, value in zip(("exp_avg", "exp_avg_sq"), self.betas, (gradient, gradient * gradient)):
                state[kind] *= beta
                state[kind] += (1.0 - beta) * value
            means = [state[kind] / share for kind, share in zip(("exp_avg", "exp_avg_sq"), shares)]
            direction = means[0] / (np.sqrt(means[1]) + self.eps) + self.decay * weights
            weight_norm = min(10.0, np.sqrt(np.sum(weights * weights)))
            norm = np.sqrt(np.sum(direction * direction))
            trust = weight_norm / norm if weight_norm > 0.0 and norm > 0.0 else 1.0
            weights -= (self.lr * trust * direction).astype(weights.dtype)
            state["step"] = float(self.steps)


# Layers' optimizer and rows', each with its options; and the norm to which layers' gradients are clipped, if they are.
CASES = {
    "momentum": (
        (torch.optim.SGD, dict(lr=0.02, momentum=0.8, weight_decay=0.01)),
        (torch.optim.SGD, dict(lr=0.05)),
    ),
    "adagrad": (
        (torch.optim.Adagrad, dict(lr=0.02, weight_decay=0.01, initial_accumulator_value=0.05)),
        (torch.optim.Adagrad, dict(lr=0.05, initial_accumulator_value=0.05)),
    ),
    "rowwise": (
        (torch.optim.Adagrad, dict(lr=0.02)),
        (RowwiseAdagrad, dict(lr=0.05)),
    ),
    "lamb": (
        (Lamb, dict(lr=0.01, weight_decay=0.01)),
        (torch.optim.Adagrad, dict(lr=0.02)),
    ),
    "lamb-corrected": (
        (Lamb, dict(lr=0.004, betas=(0.9, 0.99), eps=1e-5, bias_correction=True)),
        (torch.optim.SGD, dict(lr=0.05)),
    ),
    "adam": (
        (torch.optim.Adam, dict(lr=0.002, weight_decay=0.01)),
        (torch.optim.SparseAdam, dict(lr=0.004)),
    ),
    "clipped": (
        (torch.optim.SGD, dict(lr=0.05, momentum=0.8, weight_decay=0.01)),
        (torch.optim.SGD, dict(lr=0.05)),
        0.3,
    ),
}


def state_of(optimizer, parameter):
    """Arrays by PyTorch's names."""
    state = {name: value for name, value in optimizer.state[parameter].items() if value is not None}
    return {name: np.asarray(value.detach() if torch.is_tensor(value) else value) for name, value in state.items()}


def hand_over(model, optimizers, path):
    """A model and what its optimizers keep, in one file (the guide "precision" has this, too)."""
    tensors, names = dict(model.state_dict()), {p: name for name, p in model.named_parameters()}
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            for kind, value in state.items():
                if value is not None:
                    tensors[f"state.{names[parameter]}.{kind}"] = torch.as_tensor(value, dtype=torch.float32)
    save_file(tensors, path)


def train(initial, minibatches, layers, rows, clip, dtype, handed_over=None):
    model = Dlrm(MODEL, sparse_grads=True)
    model.load_state_dict({name: torch.from_numpy(values) for name, values in initial.items()})
    model.to(dtype)
    named = dict(model.named_parameters())
    tables = {name for name in named if name.startswith("emb_l")}
    optimizers = [
        (layers[0](list(p for name, p in named.items() if name not in tables), **layers[1])),
        (rows[0](list(p for name, p in named.items() if name in tables), **rows[1])),
    ]
    losses, norms = [], []
    for step in range(STEPS):
        minibatch = minibatches[step % MINIBATCHES]
        batch = {
            "dense": torch.from_numpy(minibatch["dense"]).to(dtype),
            "bags": [tuple(map(torch.from_numpy, bag)) for bag in minibatch["bags"]],
        }
        model.zero_grad()
        loss = model.loss(model(batch), torch.from_numpy(minibatch["labels"]).to(dtype))
        loss.backward()
        if clip is not None:
            of_layers = [p for name, p in named.items() if name not in tables]
            norms.append(float(torch.nn.utils.clip_grad_norm_(of_layers, clip)))
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
        if handed_over and step + 1 == AFTER:
            hand_over(model, optimizers, handed_over)
    assert clip is None or min(norms) < clip < max(norms), f"norms from {min(norms)} to {max(norms)}"
    results = {"losses": np.array(losses)}
    for name, parameter in named.items():
        results[name] = parameter.detach().numpy()
        for kind, value in state_of(optimizers[name in tables], parameter).items():
            results[f"state.{name}.{kind}"] = value
    return {name: np.ascontiguousarray(value, np.float64) for name, value in results.items()}


def distance(found, expected):
    """The largest difference over the largest number."""
    if expected.size == 0:
        return 0.0
    return float(np.abs(found - expected).max() / max(1e-30, np.abs(expected).max()))


def tensors(folder):
    draw = np.random.RandomState(MODEL.seed)
    initial = initial_parameters(MODEL, draw)
    minibatches = [
        random_minibatch(MODEL, samples, {table for at, table in MODEL.empty if at == i}, draw)
        for i, samples in enumerate(MODEL.batches)
    ]
    found = {f"init.{name}": values for name, values in initial.items()}
    for i, minibatch in enumerate(minibatches):
        found[f"batch{i}.dense"] = minibatch["dense"]
        found[f"batch{i}.labels"] = minibatch["labels"]
        for table, (rows, offsets) in enumerate(minibatch["bags"]):
            found[f"batch{i}.rows{table}"] = rows
            found[f"batch{i}.offsets{table}"] = offsets
    for case, (layers, rows, *clip) in CASES.items():
        clip = clip[0] if clip else None
        path = folder / f"handover_{case}.safetensors" if case in HANDED_OVER else None
        run = train(initial, minibatches, layers, rows, clip, torch.float32, path)
        exact = train(initial, minibatches, layers, rows, clip, torch.float64)
        worst = max(run, key=lambda name: distance(run[name], exact[name]))
        print(f"{case}: losses {run['losses'][0]:.6f} .. {run['losses'][-1]:.6f}; float64 is "
              f"{distance(run[worst], exact[worst]):.1e} away in {worst}")
        assert distance(run[worst], exact[worst]) < 5e-6, case
        moved = [name for name in initial if distance(run[name], initial[name]) > 1e-3]
        assert len(moved) == len(initial), f"{case}: {set(initial) - set(moved)} hardly moved"
        found |= {f"{case}.{name}": np.asarray(value, np.float32) for name, value in run.items()}
    return found


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--check", action="store_true", help="write nothing, compare with the file in place")
    check = arguments.parse_args().check
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    with tempfile.TemporaryDirectory() as folder:
        made = tensors(Path(folder) if check else HERE)
        for case in HANDED_OVER if check else ():
            compare(HERE / f"handover_{case}.safetensors", load_file(Path(folder) / f"handover_{case}.safetensors"))
    path = HERE / "optimizers.safetensors"
    if not check:
        path.write_bytes(container(made, {"steps": str(STEPS), "minibatches": str(MINIBATCHES)}))
        return
    compare(path, made)


def write_or_check(path, tensors, metadata, check=None):
    """All that is left to do of a script of one file: `tensors` makes what it holds; `check` as --check, which is read here."""
    if check is None:
        arguments = argparse.ArgumentParser()
        arguments.add_argument("--check", action="store_true", help="write nothing, compare with the file in place")
        check = arguments.parse_args().check
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.sparse.check_sparse_tensor_invariants.enable()
    made = tensors()
    if not check:
        path.write_bytes(container(made, metadata))
        return
    with safe_open(path, "np") as committed:
        assert committed.metadata() == metadata
        assert set(committed.keys()) == set(made)
        for name, value in made.items():
            held, given = committed.get_tensor(name), ".init." in name or ".batch" in name
            assert held.dtype == value.dtype and held.shape == value.shape, name
            assert distance(held, value) <= (0.0 if given else 2e-6), name


def compare(path, made):
    with safe_open(path, "np") as committed:
        assert set(committed.keys()) == set(made)
        for name, value in made.items():
            assert distance(committed.get_tensor(name), value) < 2e-6, name


if __name__ == "__main__":
    main()
