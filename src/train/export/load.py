"""A model that `octorec export --format torch` wrote, with PyTorch alone.

    python load.py model.safetensors clicks.tsv --vocabulary runs/first/vocabulary.safetensors

prints a click probability for each row of Criteo's text (label, 13 integers, 26 hexadecimal categories, separated by tabs;
the label may be missing; "-": standard input), of a model that was trained on such text. Every other model takes what is
prepared already:

    model = load("model.safetensors")
    probabilities = model(dense, bags)

`dense` is [samples, features], 32-bit floats, transformed as the model's training data was; None for a model without dense
features. `bags` has for each table (ids, offsets), or (ids, offsets, weights) where look-ups have weights: row numbers one
behind the other, and samples + 1 offsets, where each sample's begin and the last one's end. Of a time
series the last look-up is that in question, and those before it are its steps. A model with a wide part takes bags of its
crosses behind those of the columns: `crossed(bags, columns, buckets)` makes one. `model.state_dict()` has the names
of the project that defines the model (facebookresearch/dlrm, facebookresearch/tbsm, or TorchRec).
"""

import argparse
import json
import struct
import sys

import torch
import torch.nn.functional as F
from torch import nn

TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "U32": torch.int32, "U8": torch.uint8}


def read(path):
    """The tensors of a safetensors file, mapped, by name, and its metadata."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        head = json.loads(file.read(size))
        length = file.seek(0, 2)
    every = torch.from_file(str(path), shared=False, size=length, dtype=torch.uint8)
    metadata = head.pop("__metadata__", {})

    def tensor(dtype, shape, data_offsets):
        start, end = (8 + size + offset for offset in data_offsets)
        return every[start:end].view(TYPES[dtype]).reshape(shape)

    return {name: tensor(**entry) for name, entry in head.items()}, metadata


def mixed(hashes, rows):
    """Takes one more row into 64-bit hashes."""
    z = hashes + rows + 1 - 0x61C8864680B583EB
    z = (z ^ ((z >> 30) & (1 << 34) - 1)) * -0x40A7B892E31B1A47
    z = (z ^ ((z >> 27) & (1 << 37) - 1)) * -0x6B2FB644ECCEEE15
    return z ^ ((z >> 31) & (1 << 33) - 1)


def crossed(bags, columns, buckets):
    """The bag of a cross of these columns: each combination of one look-up of each, the last column's varying fastest."""
    sample = torch.arange(len(bags[columns[0]][1]) - 1)
    samples, hashes, weights = len(sample), torch.zeros(len(sample), dtype=torch.int64), None
    for column in columns:
        ids, offsets, *own = bags[column]
        counts = offsets.diff()[sample]
        before = torch.arange(len(sample)).repeat_interleave(counts)
        at = torch.arange(len(before)) - (counts.cumsum(0) - counts)[before] + offsets[:-1][sample][before]
        hashes, sample = mixed(hashes[before], ids[at]), sample[before]
        if own or weights is not None:
            so_far = torch.ones(len(at)) if weights is None else weights[before]
            weights = so_far * own[0][at] if own else so_far
    # The remainder of an unsigned division.
    half = (hashes >> 1) & (1 << 63) - 1
    rows = (half % buckets * 2 + (hashes & 1)) % buckets
    ends = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(sample, minlength=samples).cumsum(0)])
    return (rows, ends) if weights is None else (rows, ends, weights)


class Model(nn.Module):
    """Vectors of the columns, and from there and the dense features the layers of the network, one by one, to the logit."""

    def __init__(self, tensors, about):
        super().__init__()
        self.about = about
        self.embeddings = [self.place(name, tensors[name]) for name in about["tables"]]
        self.row_weights = [self.place(name, tensors[name]) for name in about["row_weights"]]
        self.chains = {
            node["name"]: [[name and self.place(name, tensors[name]) for name in layer] for layer in node["layers"]]
            for node in about["network"]
        }
        self.projections = [name and self.place(name, tensors[name]) for name in about["projections"]]
        self.wide = None
        if about["wide"]:
            names = about["wide"]["dense"]
            self.wide = names and [name and self.place(name, tensors[name]) for name in names]
        # Columns of the data: a wide part has a second table for each, and tables of crosses; a column that is looked up by
        # quotients and remainders has a second table behind those of all columns.
        crosses = len(about["wide"]["crosses"]) if about["wide"] else 0
        self.composed = about["composed"]["columns"] if about["composed"] else []
        self.columns = len(self.embeddings) - len(self.composed)
        if about["wide"]:
            self.columns = (self.columns - crosses) // 2
        self.bags = self.columns + crosses

    def place(self, name, tensor):
        """Makes a tensor a parameter by this name."""
        at, (*path, leaf) = self, name.split(".")
        for part in path:
            if part not in at._modules:
                # Layers may be called as methods of modules are.
                at._modules[part] = nn.Module()
            at = at._modules[part]
        parameter = nn.Parameter(tensor, requires_grad=False)
        at.register_parameter(leaf, parameter)
        return parameter

    def round(self, x):
        """What a layer takes: of a model in bfloat16, rounded to it. All sums are in 32 bits."""
        return x.bfloat16().float() if self.about["bf16"] else x

    def linear(self, x, layer):
        weight, bias = layer
        return F.linear(self.round(x), weight.float(), bias)

    def rows(self, table, ids):
        """Rows of a table, each times its learned weight if it has one."""
        rows = self.embeddings[table][ids].float()
        return rows * self.row_weights[table][ids, None] if table < len(self.row_weights) else rows

    def pooled(self, table, ids, offsets, weights=None):
        """The sum or the mean of each bag's rows; an empty bag gives 0."""
        counts = offsets.diff()
        rows = self.rows(table, ids)
        if weights is not None:
            rows = rows * weights[:, None]
        sums = torch.zeros(len(counts), rows.shape[1])
        sums.index_add_(0, torch.arange(len(counts)).repeat_interleave(counts), rows)
        return sums / counts.clamp(min=1)[:, None] if self.about["pooling"] == "mean" else sums

    def vector(self, column, ids, *rest):
        """What of a column meets the others."""
        if column not in self.composed:
            pooled, matrix = self.pooled(column, ids, *rest), self.projections[column]
            return pooled if matrix is None else F.linear(pooled, matrix)
        about = self.about["composed"]
        q = self.pooled(column, ids // about["collisions"], *rest)
        r = self.pooled(self.columns + self.composed.index(column), ids % about["collisions"], *rest)
        if about["operation"] == "concat":
            return torch.cat([q, r], 1)
        return q * r if about["operation"] == "mult" else q + r

    def dot(self, vectors, itself):
        all_, n, offset = torch.stack(vectors, 1), len(vectors), 0 if itself else 1
        if self.about["triangle"] == "lower":
            i, j = torch.tril_indices(n, n, offset=-offset)
        else:
            i, j = torch.triu_indices(n, n, offset=offset)
        return (all_ @ all_.transpose(1, 2))[:, i, j]

    def cross(self, x0, layers):
        x0 = self.round(x0)
        x = x0
        for v, w in zip(layers[::2], layers[1::2]):
            x = self.round(x)
            x = x0 * self.round(self.linear(self.linear(x, v), w)) + x
        return x

    def chain(self, x, layers):
        """Layers with ReLU between them."""
        for index, layer in enumerate(layers):
            x = self.linear(x.relu() if index else x, layer)
        return x

    def attention(self, z, there, layers):
        """Attention of a sample's last step over those before it, and that step."""
        v = F.normalize(z.view(*there.shape, -1), dim=2) * there[:, :, None]
        seen, asked = v[:, :-1], v[:, -1]
        (matrix, _), *layers = layers
        x = asked @ matrix.T @ matrix
        y = self.chain((seen @ x[:, :, None])[:, :, 0], layers).sigmoid()
        return torch.cat([(y[:, None] @ seen)[:, 0], asked], 1)

    def logit(self, dense, vectors, wide, there=None):
        """From the features of each sample, or of each step, to one number a sample."""
        found = {"dense": [dense], "embeddings": vectors, **{name: [x] for name, x in zip(self.about["columns"], vectors)}}
        for node in self.about["network"]:
            operands, layers = [x for name in node["of"] for x in found[name]], self.chains[node["name"]]
            kind, x = node["type"], torch.cat(operands, 1) if len(operands) > 1 and node["type"] != "sum" else None
            x = operands[0] if x is None and operands else x
            if kind == "linear":
                x = self.chain(x, layers)
            elif kind == "relu":
                x = x.relu()
            elif kind == "sigmoid":
                x = x.sigmoid()
            elif kind == "dot":
                x = self.dot(operands, node["itself"])
            elif kind == "cross":
                x = self.cross(x, layers)
            elif kind == "attention":
                x = self.attention(x, there, layers)
            elif kind == "sum":
                x = sum(operands)
            elif kind == "wide":
                x = wide
            found[node["name"]] = [x]
        return found[self.about["logit"]][0]

    def sequence(self, table, ids, offsets, weights=None):
        """The row of each step, the last look-up's last, [samples, steps, dim], and which steps are there."""
        steps, counts = self.about["steps"], offsets.diff()
        sample = torch.arange(len(counts)).repeat_interleave(counts)
        step = steps - (offsets[1:].repeat_interleave(counts) - torch.arange(len(ids)))
        kept = step >= 0
        rows = self.rows(table, ids[kept])
        if weights is not None:
            rows = rows * weights[kept, None]
        vectors = torch.zeros(len(counts), steps, rows.shape[1])
        there = torch.zeros(len(counts), steps, dtype=torch.bool)
        vectors[sample[kept], step[kept]] = rows
        there[sample[kept], step[kept]] = True
        return vectors, there

    def series(self, dense, bags):
        """What there is of each step of each sample, and which steps are there."""
        steps, samples, there, vectors = self.about["steps"], len(bags[0][1]) - 1, False, []
        for table, bag in enumerate(bags):
            if self.about["sequences"][table]:
                found, here = self.sequence(table, *bag)
                there = there | here
            else:
                found = self.pooled(table, *bag)[:, None].expand(-1, steps, -1)
            vectors.append(found.reshape(samples * steps, -1))
        inputs = (torch.arange(steps, dtype=torch.float64) / steps).float().expand(samples, -1)[:, :, None]
        if self.about["dense"]:
            inputs = torch.cat([inputs, dense[:, None].expand(-1, steps, -1)], 2)
        return inputs.reshape(samples * steps, -1), vectors, None, there

    @torch.no_grad()
    def forward(self, dense, bags):
        if len(bags) != self.bags:
            raise ValueError(f"{len(bags)} bags for {self.columns} columns and {self.bags - self.columns} crosses")
        for bag in range(len(bags)):
            table = bag if bag < self.columns else bag + self.columns
            if self.about["weighted"][table] != (len(bags[bag]) == 3):
                raise ValueError(f"bag {bag}: look-ups with weights where the model has none, or without")
        if self.about["steps"] > 1:
            return self.probabilities(self.logit(*self.series(dense, bags)))
        vectors = [self.vector(column, *bag) for column, bag in enumerate(bags[: self.columns])]
        wide = None
        if self.about["wide"]:
            wide = sum(self.pooled(column + self.columns, *bag) for column, bag in enumerate(bags))
            wide = wide + self.linear(dense, self.wide) if self.wide else wide
        return self.probabilities(self.logit(dense, vectors, wide))

    def probabilities(self, logits):
        probabilities = logits[:, 0].sigmoid()
        threshold = self.about["threshold"]
        return probabilities.clamp(threshold, 1 - threshold) if threshold > 0 else probabilities


def load(path):
    """The model in a file that octorec exported."""
    tensors, metadata = read(path)
    if "octorec.model" not in metadata:
        raise SystemExit(f"{path} does not say what model it is: write it with octorec export --format torch")
    return Model(tensors, json.loads(metadata["octorec.model"])).eval()


class Categories:
    """From a category of Criteo's text to its row, as octorec maps it."""

    def __init__(self, model, vocabulary):
        self.cap = model.about["criteo_cap"]
        composed = model.about["composed"]
        self.rows = composed["rows"] if composed else [len(table) for table in model.embeddings[: model.columns]]
        wide = model.about["wide"] or {"crosses": [], "buckets": 1}
        self.crosses = [[int(name[1:]) - 1 for name in cross] for cross in wide["crosses"]]
        self.buckets = wide["buckets"]
        self.known = None
        if vocabulary:
            tensors, metadata = read(vocabulary)
            columns = [tensors[f"C{n + 1}"].tolist() for n in range(len(self.rows))]
            self.known = [{value % 2**32: row for row, value in enumerate(column)} for column in columns]
            self.unseen_row = metadata["unseen_row"] == "true"
            if [len(column) + self.unseen_row for column in columns] != self.rows:
                raise SystemExit(f"{vocabulary} is another model's: it has other numbers of values")
        elif model.about.get("numbered"):
            raise SystemExit("a vocabulary numbers this model's values: name it with --vocabulary RUN/vocabulary.safetensors")

    def row(self, column, field):
        """The row of a value; None where it has none."""
        value = int(field, 16) if field else 0
        if self.known is None:
            return value % self.rows[column]
        value = value % self.cap if self.cap else value
        unseen = len(self.known[column]) if self.unseen_row else None
        return self.known[column].get(value, unseen)


def minibatches(lines, size, categories):
    """Dense features and bags of so many rows at a time."""
    minibatch = []
    for number, line in enumerate(lines, 1):
        fields = line.rstrip("\r\n").split("\t")
        if len(fields) not in (39, 40):
            raise SystemExit(f"line {number}: {len(fields)} fields; Criteo's text has 40, or 39 without a label")
        minibatch.append(fields[-39:])
        if len(minibatch) == size:
            yield prepared(minibatch, categories)
            minibatch = []
    if minibatch:
        yield prepared(minibatch, categories)


def prepared(minibatch, categories):
    counts = [[max(int(field or 0), 0) for field in fields[:13]] for fields in minibatch]
    # ln(x + 1) of 32-bit floats, rounded once.
    dense = torch.log((torch.tensor(counts, dtype=torch.float32) + 1).double()).float()
    bags = []
    for column in range(26):
        rows = [categories.row(column, fields[13 + column]) for fields in minibatch]
        ends = torch.tensor([0] + [row is not None for row in rows]).cumsum(0)
        bags.append((torch.tensor([row for row in rows if row is not None], dtype=torch.int64), ends))
    return dense, bags + [crossed(bags, columns, categories.buckets) for columns in categories.crosses]


def main():
    parser = argparse.ArgumentParser(description="Scores rows of Criteo's text with an exported model.")
    parser.add_argument("model", help="the state dict that octorec export --format torch wrote")
    parser.add_argument("rows", help="Criteo's text; -: standard input")
    parser.add_argument("--vocabulary", help="the run's vocabulary.safetensors; where values are not hashed to rows")
    parser.add_argument("--batch", type=int, default=2048, help="rows at a time")
    options = parser.parse_args()
    model = load(options.model)
    if model.about["criteo_cap"] is None:
        raise SystemExit(
            "this model was not trained on Criteo's text, which alone is read here: call load() and give the model prepared "
            "samples (`octorec guide serving` says which row a value has; load(...).about[\"schema\"] describes the columns)"
        )
    lines = sys.stdin if options.rows == "-" else open(options.rows, encoding="ascii")
    for dense, bags in minibatches(lines, options.batch, Categories(model, options.vocabulary)):
        for probability in model(dense, bags).tolist():
            print(f"{probability:.8e}")


if __name__ == "__main__":
    main()
