#!/usr/bin/env python3
"""A training step of octorec's presets in PyTorch: the column "PyTorch, f32" of the README's table.

Random samples as `octorec bench step` draws them: as many minibatches as leave the caches, Zipf rows if asked. Embedding
bags give sparse gradients, plain SGD moves everything, as in facebookresearch/dlrm on processors. Needs torch and numpy;
Python 3.11 or newer.

    target/release/octorec config --preset kaggle > kaggle.toml
    benches/pytorch_step.py kaggle.toml --batch 2048 --zipf 1.05 [--rows-cap 1000000] [--bf16]
"""

import argparse
import statistics
import time
import tomllib

import numpy
import torch


def mlp(widths, last_relu):
    layers = []
    for index, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        layer = torch.nn.Linear(inputs, outputs)
        torch.nn.init.normal_(layer.weight, 0.0, (2.0 / (inputs + outputs)) ** 0.5)
        torch.nn.init.normal_(layer.bias, 0.0, (1.0 / outputs) ** 0.5)
        layers.append(layer)
        if last_relu or index + 2 < len(widths):
            layers.append(torch.nn.ReLU())
    return torch.nn.Sequential(*layers)


class Dlrm(torch.nn.Module):
    def __init__(self, model, rows):
        super().__init__()
        self.bottom = mlp(model["bottom"], True)
        self.tables = torch.nn.ModuleList()
        for count in rows:
            table = torch.nn.EmbeddingBag(count, model["dim"], mode=model["pooling"], sparse=True)
            torch.nn.init.uniform_(table.weight, -(count**-0.5), count**-0.5)
            self.tables.append(table)
        vectors = len(rows) + 1
        self.dot = model["interaction"] == "dot"
        pairs = torch.tril_indices(vectors, vectors, -1 if not model["interaction_itself"] else 0)
        self.register_buffer("pairs", pairs[0] * vectors + pairs[1])
        width = model["bottom"][-1] + (len(self.pairs) if self.dot else len(rows) * model["dim"])
        self.top = mlp([width, *model["top"]], False)

    def forward(self, dense, bags):
        x = self.bottom(dense)
        pooled = [table(ids, offsets) for table, (ids, offsets) in zip(self.tables, bags)]
        if not self.dot:
            return self.top(torch.cat([x, *pooled], 1))
        vectors = torch.stack([x, *(rows.to(x.dtype) for rows in pooled)], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)[:, self.pairs]
        return self.top(torch.cat([x, products], 1))


def rows_of(random, count, samples, exponent):
    """Rows of a table of `count`: uniform, or by Zipf's law with this exponent, popular rows anywhere."""
    if exponent == 0:
        return random.integers(0, count, samples)
    # The inverse of the continuous law's distribution function; at 1 it is an exponential.
    uniform, power = random.random(samples), 1.0 - exponent
    if power == 0:
        ranks = (count + 1.0) ** uniform - 1.0
    else:
        ranks = (uniform * ((count + 1.0) ** power - 1.0) + 1.0) ** (1.0 / power) - 1.0
    return (ranks.astype(numpy.int64).clip(0, count - 1) * 2654435761 + 12345) % count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="a configuration, from octorec config --preset NAME")
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--zipf", type=float)
    parser.add_argument("--rows-cap", type=int, default=1 << 62)
    parser.add_argument("--minibatches", type=int, default=32)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--bf16", action="store_true", help="autocast of the layers to bfloat16")
    args = parser.parse_args()
    with open(args.config, "rb") as file:
        config = tomllib.load(file)
    model, data = config["model"], config["data"]
    exponent = data["zipf"] if args.zipf is None else args.zipf
    rows = [min(count, args.rows_cap) for count in model["rows"]]
    torch.manual_seed(1)
    random = numpy.random.default_rng(1)
    net = Dlrm(model, rows)
    sgd = torch.optim.SGD(net.parameters(), lr=config["train"]["lr"])
    loss_of = torch.nn.BCEWithLogitsLoss()

    def minibatch():
        offsets = torch.arange(0, args.batch * data["lookups"], data["lookups"])
        ids = lambda count: torch.from_numpy(rows_of(random, count, args.batch * data["lookups"], exponent))
        dense = torch.rand(args.batch, model["bottom"][0])
        return dense, [(ids(count), offsets) for count in rows], torch.rand(args.batch, 1).round()

    batches = [minibatch() for _ in range(args.minibatches)]
    took = []
    for step in range(args.steps):
        dense, bags, labels = batches[step % len(batches)]
        began = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            logits = net(dense, bags)
        loss = loss_of(logits.float(), labels)
        sgd.zero_grad(set_to_none=True)
        loss.backward()
        sgd.step()
        took.append(1e3 * (time.perf_counter() - began))
    # The first steps allocate.
    took = took[len(took) // 3 :]
    print(f"{statistics.median(took):.2f} ms ({min(took):.2f} to {max(took):.2f}), {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
