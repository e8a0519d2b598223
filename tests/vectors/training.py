"""What the scripts share that train a model for some steps: optimizers by octorec's keys, minibatches, the steps, and whether a
case exercises what it is for.
"""

import numpy as np
import torch

from optimizers import distance, state_of

STEPS = 30
HOTS = 3  # look-ups of a sample in each table, at most


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


def train(model, initial, keys, kind_of, batches, minibatches, dtype):
    """Logits before and after 30 steps, losses, and what parameters and what is kept of them are then, in float64.

    `kind_of` gives by a parameter's name what its optimizer's keys end in ("", "_rows" or "_wide") and whether its gradients are
    sparse; `batches` are what the model takes of the minibatches, which are used in turn.
    """
    model.load_state_dict({name: torch.from_numpy(values) for name, values in initial.items()})
    model.to(dtype)
    named, groups, optimizers = dict(model.named_parameters()), {}, {}
    for name in initial:
        groups.setdefault(kind_of(name), []).append(name)
    for (kind, sparse), names in groups.items():
        parameters, rate = [named[name] for name in names], keys.get(f"lr{kind}", keys["lr"])
        optimizers |= dict.fromkeys(names, optimizer_of(keys[f"optimizer{kind}"], parameters, sparse, rate, keys))

    def logits(kind):
        with torch.no_grad():
            return {f"logits{kind}{i}": model(batch).numpy().copy() for i, batch in enumerate(batches)}

    results, losses = logits(""), []
    for step in range(STEPS):
        at = step % len(batches)
        model.zero_grad()
        labels = torch.from_numpy(minibatches[at]["labels"]).to(dtype)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(batches[at]), labels)
        loss.backward()
        for optimizer in {id(optimizer): optimizer for optimizer in optimizers.values()}.values():
            optimizer.step()
        losses.append(loss.item())
    results |= logits("_after") | {"losses": np.array(losses)}
    for name in initial:
        parameter = named[name]
        results[name] = parameter.detach().numpy()
        for kind, value in state_of(optimizers[name], parameter).items():
            results[f"state.{name}.{kind}"] = value
    return {name: np.ascontiguousarray(value, np.float64) for name, value in results.items()}


def assert_told(name, initial, minibatches, run, kinds=("", "_after")):
    """Parameters move, and logits differ without being extreme."""
    still = [parameter for parameter in initial if distance(run[parameter], initial[parameter]) < 1e-3]
    assert not still, f"{name}: {still} hardly moved"
    for kind in kinds:
        logits = np.concatenate([run[f"logits{kind}{i}"] for i in range(len(minibatches))])
        assert np.abs(logits).max() < 4.0 and np.ptp(logits) > 0.1, f"{name}: logits tell nothing"


def assert_bags(what, bags):
    """Of one column: some bags are empty, and some have a row twice."""
    split = [bag for rows, offsets, *_ in bags for bag in np.split(rows, offsets[1:-1])]
    assert any(len(bag) == 0 for bag in split), f"{what}: no empty bag"
    assert any(len(set(bag)) < len(bag) for bag in split), f"{what}: no row twice in a bag"


def rounded_run(name, run_of):
    """What `run_of(dtype)` gives in float32, which float64 hardly tells otherwise."""
    run, exact = run_of(torch.float32), run_of(torch.float64)
    worst = max(run, key=lambda name: distance(run[name], exact[name]))
    print(f"{name}: losses {run['losses'][0]:.6f} .. {run['losses'][-1]:.6f}; float64 is "
          f"{distance(run[worst], exact[worst]):.1e} away in {worst}")
    assert distance(run[worst], exact[worst]) < 5e-6, name
    return run
