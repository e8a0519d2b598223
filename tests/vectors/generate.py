#!/usr/bin/env python3
"""Writes the reference vectors of this folder with a small DLRM in PyTorch, and checks that model on golden.json.

The model is written from the published definition of DLRM and shares no code with octorec. Every case is trained
three times: in float32 with dense and with sparse embedding gradients, which must agree, and in float64, which shows
how much of a difference is rounding. Written is the float32 run with dense gradients. See README.md.

    python generate.py            write *.safetensors and auc.json here, then check golden.json
    python generate.py --check    write nothing: fail unless the committed files hold what would be written
"""

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save
from sklearn.metrics import log_loss, roc_auc_score

HERE = Path(__file__).parent


@dataclass
class Case:
    """One training run. `top` leaves out its input width, which follows from the interaction."""

    seed: int
    bottom: list
    top: list
    dim: int
    rows: list
    batches: list  # samples of each minibatch
    lr: float
    interaction: str = "dot"
    interaction_itself: bool = False
    loss: str = "bce"
    loss_weights: tuple = (1.0, 1.0)
    loss_threshold: float = 0.0
    warmup_steps: int = 0
    decay_start: int = 0
    decay_steps: int = 0
    last_layer_scale: float = 1.0  # spreads the initial probabilities
    empty: list = field(default_factory=list)  # (minibatch, table) pairs in which every bag is empty

    def metadata(self):
        def dashed(sizes):
            return "-".join(str(size) for size in sizes)

        return {
            "bottom": dashed(self.bottom),
            "top": dashed(self.top),
            "dim": str(self.dim),
            "interaction": self.interaction,
            "interaction_itself": str(self.interaction_itself).lower(),
            "loss": self.loss,
            "loss_weights": ",".join(str(weight) for weight in self.loss_weights),
            "loss_threshold": str(self.loss_threshold),
            "lr": str(self.lr),
            "warmup_steps": str(self.warmup_steps),
            "decay_start": str(self.decay_start),
            "decay_steps": str(self.decay_steps),
        }


# Seeds were picked so that most units are alive and probabilities differ; `assert_covers` holds the rest.
CRITEO_LIKE = dict(bottom=[13, 32, 16, 8], top=[24, 12, 1], dim=8, rows=[3, 17, 50, 100, 31])

CASES = {
    "dot_bce": Case(1, **CRITEO_LIKE, batches=[20, 20, 20, 7], lr=0.1, empty=[(3, 2)]),
    "dot_itself_mse": Case(
        11, [6, 12, 4], [10, 1], 4, [5, 40, 23], [16, 16, 16], 0.5, interaction_itself=True, loss="mse"
    ),
    "cat_wbce": Case(
        8, [7, 12, 10], [16, 8, 1], 6, [9, 3, 28, 60], [18, 18, 18, 5], 0.2,
        interaction="cat", loss="wbce", loss_weights=(0.7, 1.9),
    ),
    "dot_bce_threshold": Case(
        15, **CRITEO_LIKE, batches=[20, 20, 20, 20], lr=0.1, loss_threshold=0.3, last_layer_scale=2.0
    ),
    "dot_bce_wide": Case(
        5, [13, 70, 66], [68, 66, 1], dim=66, rows=[12, 5, 20], batches=[40, 40, 33, 9], lr=0.1, empty=[(3, 1)]
    ),
    "dot_bce_schedule": Case(
        3, [4, 10, 4], [8, 1], 4, [6, 30, 12], [12] * 8, 0.4, warmup_steps=2, decay_start=3, decay_steps=3
    ),
}


def learning_rate(case, step):
    """The rate of step 1, 2, ...: linear warm-up, the base rate, quadratic decay, then the last decayed rate."""
    if step <= case.warmup_steps:
        return case.lr * step / case.warmup_steps
    if case.decay_steps == 0 or step < case.decay_start:
        return case.lr
    done = min(step - case.decay_start, case.decay_steps - 1)
    return max(1e-7, case.lr * ((case.decay_steps - done) / case.decay_steps) ** 2)


def mlp(sizes, last):
    layers = []
    for fan_in, fan_out in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(fan_in, fan_out), torch.nn.ReLU()]
    layers[-1] = last
    return torch.nn.Sequential(*layers)


class Dlrm(torch.nn.Module):
    """Dense features and bags of row numbers -> click probabilities, [N]."""

    def __init__(self, case, sparse_grads=False):
        super().__init__()
        self.case = case
        vectors = 1 + len(case.rows)
        self.pairs = torch.tril_indices(vectors, vectors, 0 if case.interaction_itself else -1)
        if case.interaction == "dot":
            width = case.dim + self.pairs.shape[1]
        else:
            width = case.bottom[-1] + len(case.rows) * case.dim
        self.emb_l = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(rows, case.dim, mode="sum", sparse=sparse_grads, include_last_offset=True)
            for rows in case.rows
        )
        self.bot_l = mlp(case.bottom, torch.nn.ReLU())
        self.top_l = mlp([width, *case.top], torch.nn.Sigmoid())

    def interact(self, dense, pooled):
        if self.case.interaction == "cat":
            return torch.cat([dense, *pooled], dim=1)
        vectors = torch.stack([dense, *pooled], dim=1)
        products = vectors @ vectors.transpose(1, 2)
        return torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], dim=1)

    def forward(self, batch):
        pooled = [table(*bag) for table, bag in zip(self.emb_l, batch["bags"])]
        raw = self.top_l(self.interact(self.bot_l(batch["dense"]), pooled)).squeeze(1)
        threshold = self.case.loss_threshold
        return raw.clamp(threshold, 1.0 - threshold) if threshold > 0.0 else raw

    def loss(self, probabilities, labels):
        if self.case.loss == "mse":
            return torch.nn.functional.mse_loss(probabilities, labels)
        weights = None
        if self.case.loss == "wbce":
            by_label = torch.tensor(self.case.loss_weights, dtype=labels.dtype)
            weights = by_label[labels.long()]
        return torch.nn.functional.binary_cross_entropy(probabilities, labels, weight=weights)


def initial_parameters(case, draw):
    """W[out, in] ~ N(0, sqrt(2 / (in + out))), b ~ N(0, sqrt(1 / out)), tables ~ U(+-sqrt(1 / rows)); float32."""
    parameters = {}
    for name, parameter in Dlrm(case).named_parameters():
        shape = tuple(parameter.shape)
        if name.startswith("emb_l"):
            values = draw.uniform(-(shape[0] ** -0.5), shape[0] ** -0.5, shape)
        elif len(shape) == 2:
            values = draw.normal(0.0, (2.0 / sum(shape)) ** 0.5, shape)
        else:
            values = draw.normal(0.0, shape[0] ** -0.5, shape)
        parameters[name] = values.astype(np.float32)
    last = f"top_l.{2 * (len(case.top) - 1)}"
    for part in ("weight", "bias"):
        parameters[f"{last}.{part}"] *= np.float32(case.last_layer_scale)
    return parameters


def random_minibatch(case, samples, empty_tables, draw):
    """Log-like dense features; bags of 0 to 5 rows, some of them with a row twice; labels 0 or 1 (fractions for mse)."""
    dense = np.log1p(draw.exponential(3.0, (samples, case.bottom[0])) * (draw.rand(samples, case.bottom[0]) < 0.8))
    bags = []
    for table, rows in enumerate(case.rows):
        lengths = np.zeros(samples, int) if table in empty_tables else draw.randint(0, 6, samples)
        ids = []
        for length in lengths:
            bag = (rows * draw.rand(length) ** 2).astype(int)
            if length >= 3 and draw.rand() < 0.5:
                bag[-1] = bag[0]
            ids.extend(bag)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        bags.append((np.array(ids, np.int32), offsets.astype(np.int32)))
    labels = draw.rand(samples) if case.loss == "mse" else (draw.rand(samples) < 0.4)
    return {"dense": dense.astype(np.float32), "bags": bags, "labels": labels.astype(np.float32)}


def train(case, initial, minibatches, dtype=torch.float32, sparse_grads=False):
    """Plain SGD, one step a minibatch. Returns final parameters, losses, probabilities before each update, rates."""
    model = Dlrm(case, sparse_grads)
    model.load_state_dict({name: torch.from_numpy(values) for name, values in initial.items()})
    model.to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=case.lr)
    losses, probabilities, rates = [], [], []
    for step, minibatch in enumerate(minibatches, start=1):
        batch = {
            "dense": torch.from_numpy(minibatch["dense"]).to(dtype),
            "bags": [tuple(map(torch.from_numpy, bag)) for bag in minibatch["bags"]],
        }
        optimizer.param_groups[0]["lr"] = learning_rate(case, step)
        optimizer.zero_grad()
        predicted = model(batch)
        loss = model.loss(predicted, torch.from_numpy(minibatch["labels"]).to(dtype))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        probabilities.append(predicted.detach().numpy().copy())
        rates.append(optimizer.param_groups[0]["lr"])
    final = {name: parameter.detach().numpy().copy() for name, parameter in model.named_parameters()}
    return final, losses, probabilities, rates


def difference_max(run, other):
    """The largest difference in any parameter, loss or probability of two runs."""
    pairs = [(run[0][name], other[0][name]) for name in run[0]] + [(run[1], other[1])] + list(zip(run[2], other[2]))
    return max(float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max()) for a, b in pairs)


def assert_covers(name, case, initial, minibatches, run):
    """A case that does not exercise what it is for fails here, not silently in octorec's tests."""
    final, losses, probabilities, _ = run
    for parameter, values in initial.items():
        assert not np.array_equal(values, final[parameter]), f"{name}: {parameter} was never updated"
    assert np.isfinite(losses).all(), name
    bags = [(rows, offsets) for minibatch in minibatches for rows, offsets in minibatch["bags"]]
    split = [np.split(rows, offsets[1:-1]) for rows, offsets in bags]
    assert any(len(bag) == 0 for table in split for bag in table), f"{name}: no empty bag"
    assert any(len(set(bag)) < len(bag) for table in split for bag in table), f"{name}: no row twice in a bag"
    if case.loss_threshold > 0.0:
        values = np.concatenate(probabilities)
        low = (values <= np.float32(case.loss_threshold)).sum()
        high = (values >= np.float32(1.0 - case.loss_threshold)).sum()
        print(f"  clamped: {low} low, {high} high, of {values.size}")
        assert low >= 5 and high >= 5 and low + high <= 0.8 * values.size, f"{name}: {low} low, {high} high"


def case_tensors(name, case):
    draw = np.random.RandomState(case.seed)
    initial = initial_parameters(case, draw)
    minibatches = [
        random_minibatch(case, samples, {table for at, table in case.empty if at == i}, draw)
        for i, samples in enumerate(case.batches)
    ]
    run = train(case, initial, minibatches)
    sparse = difference_max(run, train(case, initial, minibatches, sparse_grads=True))
    exact = difference_max(run, train(case, initial, minibatches, dtype=torch.float64))
    print(f"{name}: losses {run[1][0]:.6f} .. {run[1][-1]:.6f}; sparse {sparse:.1e}, float64 {exact:.1e}")
    assert sparse < 1e-6 and exact < 5e-6, name
    assert_covers(name, case, initial, minibatches, run)

    final, losses, probabilities, rates = run
    tensors = {f"init.{key}": values for key, values in initial.items()}
    tensors |= {f"final.{key}": values for key, values in final.items()}
    for i, minibatch in enumerate(minibatches):
        tensors[f"batch{i}.dense"] = minibatch["dense"]
        tensors[f"batch{i}.labels"] = minibatch["labels"]
        for table, (rows, offsets) in enumerate(minibatch["bags"]):
            tensors[f"batch{i}.rows{table}"] = rows
            tensors[f"batch{i}.offsets{table}"] = offsets
        tensors[f"probabilities{i}"] = probabilities[i]
    tensors["losses"] = np.array(losses, np.float32)
    tensors["lrs"] = np.array(rates, np.float32)
    return tensors


def container(tensors, metadata):
    """A safetensors file as bytes, with its header in a fixed order: the library orders the metadata at random."""
    written = save(tensors, metadata=metadata)
    end = 8 + int.from_bytes(written[:8], "little")
    header = json.loads(written[8:end])
    header["__metadata__"] = metadata
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    return len(text).to_bytes(8, "little") + text + written[end:]


def auc_cases():
    """Scores are float32 numbers; AUC is null where only one class is present. Log loss clamps ln at -100."""
    draw = np.random.RandomState(6)
    clicks = (draw.rand(1000) < 0.3).astype(int)
    rounded = np.clip(np.round(0.3 * clicks + draw.rand(1000) * 0.7, 2), 0.01, 0.99)
    rare = np.zeros(500, int)
    rare[317] = 1
    inputs = {
        "textbook": ([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]),
        "perfect": ([0.9, 0.2, 0.7, 0.1], [1, 0, 1, 0]),
        "inverted": ([0.1, 0.8, 0.3, 0.9], [1, 0, 1, 0]),
        "ties": ([0.5, 0.5, 0.5, 0.2, 0.2, 0.8, 0.8, 0.5], [1, 0, 1, 0, 1, 1, 0, 0]),
        "all_equal": ([0.25] * 9, [0, 1, 0, 0, 1, 0, 0, 0, 1]),
        "neighbouring_floats": ([0.5, np.nextafter(np.float32(0.5), np.float32(1)), 0.5, 0.5], [0, 1, 1, 0]),
        "saturated": ([0.0, 1.0, 1.0, 0.0, 0.5, 1e-30], [0, 1, 0, 1, 1, 0]),
        "random_1000_two_decimals": (rounded, clicks),
        "one_click_in_500": (np.clip(draw.rand(500), 0.001, 0.999), rare),
        "one_class": ([0.3, 0.6, 0.1], [0, 0, 0]),
    }
    cases = []
    for name, (scores, labels) in inputs.items():
        scores, labels = np.asarray(scores, np.float32), np.asarray(labels)
        loss = float(log_loss(labels, scores, labels=[0, 1]))
        auc = float(roc_auc_score(labels, scores)) if len(set(labels)) == 2 else None
        shortest = [float(np.format_float_positional(score, unique=True)) for score in scores]
        assert np.array_equal(np.asarray(shortest, np.float32), scores), name
        cases.append({"name": name, "auc": auc, "log_loss": loss, "labels": labels.tolist(), "scores": shortest})
    return cases


def check_golden(golden):
    """Trains on the golden example; fails where it is further from what was printed than the printing explains."""
    rows = [len(golden["initial"][f"emb_l.{table}.weight"]) for table in range(3)]
    model = golden["model"]
    case = Case(
        0, model["bottom"], model["top"], model["dim"], rows, [2, 2, 2], golden["lr"],
        interaction=model["interaction"], interaction_itself=model["interaction_itself"], loss=model["loss"],
    )
    initial = {name: np.array(values, np.float32) for name, values in golden["initial"].items()}
    minibatches = [
        {
            "dense": np.array(batch["dense"], np.float32),
            "labels": np.array(batch["labels"], np.float32),
            "bags": [(np.array(bag["rows"], np.int32), np.array(bag["offsets"], np.int32)) for bag in batch["bags"]],
        }
        for batch in golden["batches"]
    ]
    final, losses, _, _ = train(case, initial, minibatches)
    assert set(final) == set(golden["updated"])
    loss_off = max(abs(a - b) for a, b in zip(losses, golden["losses"]))
    final_off = max(float(np.abs(final[name] - np.array(golden["updated"][name])).max()) for name in final)
    print("golden: losses " + " ".join(f"{loss:.6f}" for loss in losses))
    print(f"golden: off by at most {loss_off:.2e} in a loss, {final_off:.2e} in an updated parameter")
    assert loss_off <= golden["loss_tolerance"] and final_off <= golden["parameter_tolerance"]


def auc_text():
    lines = ",\n  ".join(json.dumps(case, separators=(",", ":")) for case in auc_cases())
    return f"[\n  {lines}\n]\n"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--check", action="store_true", help="write nothing, compare with the files in place")
    check = arguments.parse_args().check
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name, case in CASES.items():
        path = HERE / f"{name}.safetensors"
        tensors = case_tensors(name, case)
        if not check:
            path.write_bytes(container(tensors, case.metadata()))
            continue
        with safe_open(path, "numpy") as stored:
            assert stored.metadata() == case.metadata(), f"{path.name}: metadata"
            assert set(stored.keys()) == set(tensors), f"{path.name}: names"
            for key, values in tensors.items():
                held = stored.get_tensor(key)
                assert held.dtype == values.dtype and held.shape == values.shape, f"{path.name}: {key}"
                given = key.startswith(("init.", "batch", "lrs"))
                limit = 0.0 if given else 2e-6
                assert np.abs(held - values).max(initial=0.0) <= limit, f"{path.name}: {key}"
    if check:
        assert (HERE / "auc.json").read_text() == auc_text(), "auc.json"
    else:
        (HERE / "auc.json").write_text(auc_text())
    check_golden(json.loads((HERE / "golden.json").read_text()))


if __name__ == "__main__":
    main()
