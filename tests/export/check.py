"""Holds exported models against `octorec predict`: the same rows, scored by onnxruntime and by PyTorch.

    python tests/export/check.py target/release/octorec --rows 10000

Trains each of a few small models for some steps on data that octorec generates or that is drawn here, lets octorec predict
all rows, exports the model in both formats, gives the same rows to both programs and prints the largest difference of any
probability; one above the limit fails. Needs NumPy, and onnxruntime or PyTorch or both; `--require` names those that must be
there.
"""

import argparse
import importlib.util
import itertools
import json
import random
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import numpy as np

# Sums in another order, and another exp, in 32-bit floats.
LIMIT = 1e-6
# A sum in another order may be rounded to another bfloat16, 2^-8 of it away, and all layers behind it see that.
LIMIT_BF16 = 4e-3

DLRM = ["model.bottom=[13,64,16]", "model.top=[64,32,1]", "model.dim=16"]
DCN = ["model.interaction=dcn", "model.cross_layers=3", "model.cross_rank=16"]
# Crosses of columns by number, and of how many rows their tables are.
CROSSES, BUCKETS = [[2, 1], [5, 8, 13]], 5000
WIDE = ["model.bottom=[13]", "model.interaction=cat", "model.top=[64,32,1]", "model.dim=16", "model.wide=true",
        f"model.wide_crosses={[[f'C{column + 1}' for column in cross] for cross in CROSSES]}".replace("'", '"'),
        f"model.wide_buckets={BUCKETS}", "train.lr_wide=0.3"]
SERIES = ["model.bottom=[14,32,16]", "model.top=[24,20]", "model.dim=16", "model.ts_length=7", "model.tsl_mlp=[9]",
          "model.arch_mlp=[12,1]", 'model.sequences=["C5","C15"]']
LAYERS = """{ name = "gate", type = "linear", of = "dense", outputs = 16 }, { name = "g", type = "sigmoid", of = "gate" },
    { name = "mixed", type = "sum", of = ["g", "C3", "embeddings"] }, { name = "z", type = "dot", of = ["mixed", "g", "C9"] },
    { name = "deep", type = "concat", of = ["dense", "mixed", "C1"] }, { name = "r", type = "relu", of = "crossed" },
    { name = "crossed", type = "cross", of = "deep", layers = 2, rank = 8 }, { name = "wide", type = "wide" },
    { name = "both", type = "concat", of = ["r", "z", "g"] }, { name = "out", type = "linear", of = "both", outputs = [20, 1] },
    { name = "logit", type = "sum", of = ["wide", "out"] }"""
QUOTIENTS = ["model.qr_collisions=7", "model.qr_threshold=50"]
# Everything that the built-in networks do not do: columns by name, functions, sums, and what several layers read.
OWN = ["model.bottom=[13]", "model.dim=16", f"model.layers=[{LAYERS}]", *(key for key in WIDE if "wide_" in key), "train.lr=0.02"]
# What moves the small models, unless they say otherwise.
SGD = ["train.optimizer=sgd", "train.optimizer_rows=sgd", "train.lr=0.2"]
LEARNED = "model.weighted_pooling=learned"
MANY = ["data.lookups=[3,2,1,2,6,1,1,1,1,7,3,8,1,6,9,5,1,1,1,12,40,27,10,3,1,1]"]

# Of arrays: what is set for the data, and for the model that is trained on it.
ARRAYS = {
    "dlrm": ([], DLRM),
    "dlrm, itself, clamped": ([], [*DLRM, "model.interaction_itself=true", "model.loss_threshold=0.1", "train.lr=0.5"]),
    "dlrm, upper triangle": ([], [*DLRM, "model.triangle=upper"]),
    "dlrm, multi-hot": (MANY, DLRM),
    "dlrm, cat": (MANY, [*DLRM, "model.interaction=cat"]),
    "dcnv2, multi-hot": (MANY, [*DLRM, *DCN]),
    "wide & deep": ([], WIDE),
    "wide & deep, multi-hot": (MANY, WIDE),
    "dlrm with a wide part": ([], [*DLRM, "model.wide=true", "train.optimizer_wide=adagrad"]),
    "mixed dimensions": (MANY, [*DLRM, "model.md_temperature=0.2"]),
    "mixed dimensions, bf16": ([], [*DLRM, "model.md_temperature=0.2", "train.precision=bf16"]),
    "quotients": ([], [*DLRM, *QUOTIENTS, "train.lr=0.1"]),
    "quotients, means": (MANY, [*DLRM, *QUOTIENTS, "train.lr=0.1", "model.pooling=mean"]),
    "quotients, added": (MANY, [*DLRM, *QUOTIENTS, "train.lr=0.01", "model.qr_operation=add"]),
    "quotients, side by side": ([], [*DLRM, *QUOTIENTS, "model.qr_operation=concat", "model.interaction=cat"]),
    "quotients, bf16": ([], [*DLRM, *QUOTIENTS, "train.lr=0.1", "train.precision=bf16"]),
    "learned weights": ([], [*DLRM, LEARNED]),
    "learned weights, means": (MANY, [*DLRM, LEARNED, "model.pooling=mean", "train.optimizer_rows=adagrad"]),
    "learned weights, wide & deep": (MANY, [*WIDE, LEARNED]),
    "learned weights, composed": (MANY, [*OWN, LEARNED]),
    "learned weights, series": (MANY, [*SERIES, LEARNED]),
    "learned weights, bf16": (MANY, [*DLRM, *DCN, LEARNED, "train.precision=bf16"]),
    "series": (MANY, SERIES),
    "series, cat": (MANY, [*SERIES, "model.interaction=cat", "model.tsl_mlp=[]"]),
    "series, bf16": (MANY, [*SERIES, "train.precision=bf16"]),
    "wide layers composed": ([], OWN),
    "wide layers composed, multi-hot": (MANY, OWN),
    "wide layers composed, bf16": (MANY, [*OWN, "train.precision=bf16"]),
    "wide & deep, bf16": ([], [*WIDE, "train.precision=bf16"]),
    "dlrm, bf16": ([], [*DLRM, "train.precision=bf16"]),
    "dcnv2, bf16": ([], [*DLRM, *DCN, "train.precision=bf16"]),
}
PRESETS = {
    "kaggle": ("kaggle", ["data.rows_cap=20000"], []),
    "dcnv2-small": ("dcnv2-small", [], []),
}


class Check:
    def __init__(self, octorec, folder, rows, with_onnx, with_torch):
        self.octorec, self.folder, self.rows = octorec, folder, rows
        self.with_onnx, self.with_torch = with_onnx, with_torch
        self.failed = []

    def run(self, *words):
        done = subprocess.run([self.octorec, *map(str, words)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, done.args))}\n{done.stderr}")
        return done.stdout

    def settings(self, keys):
        return [word for key in keys for word in ("--set", key)]

    def train(self, run, data, *more):
        self.run("train", "--data", data, "--out", run, "--steps", 60, "--batch", 256, "--eval-every", 0, *more)

    def predicted(self, run, data):
        return np.array(self.run("predict", "--checkpoint", run, "--data", data).split(), dtype=np.float32)

    def told(self, name, found, expected, limit):
        assert found.shape == expected.shape, f"{name}: {found.shape} probabilities for {expected.shape}"
        clamped = (expected == expected.min()).mean()
        # Samples without a step have one probability, which may be the least.
        alike = (0.02 < clamped < 0.9) == ("clamped" in name) or "lists with weights, series" in name
        assert alike, f"{name}: {clamped:.0%} of the probabilities are the least"
        assert np.ptp(expected) > 0.01, f"{name}: all probabilities are alike"
        worst = float(np.abs(found.astype(np.float64) - expected).max())
        print(f"{name:45} {len(expected):7,} rows: largest difference {worst:.2e}, limit {limit:.0e}", flush=True)
        if not worst <= limit:
            self.failed.append(name)

    def hold(self, name, run, expected, dense, bags, rows_of):
        """`bags` has (ids, offsets[, weights]) of each table, `rows_of` the rows of each table."""
        limit = LIMIT_BF16 if "bf16" in name else LIMIT
        if self.with_onnx:
            for how in ("padded", "offsets"):
                for above in ("512MiB", "0"):
                    path = run / f"{how}-{above}.onnx"
                    self.run("export", "--checkpoint", run, "--format", "onnx", "--out", path, "--bags", how,
                             "--external-above", above)
                    found = of_onnx(path, how, dense, bags, rows_of)
                    self.told(f"{name}: onnx, {how}, {'beside' if above == '0' else 'inside'}", found, expected, limit)
        if self.with_torch:
            path = run / "torch" / "model.safetensors"
            path.parent.mkdir(exist_ok=True)
            self.run("export", "--checkpoint", run, "--format", "torch", "--out", path)
            self.told(f"{name}: torch", of_torch(path, dense, bags), expected, limit)

    def arrays(self, name, data_keys, model_keys, preset="demo"):
        """A model of generated arrays, which are read here as TorchRec has them."""
        folder = self.folder / name.replace(" ", "-").replace(",", "")
        learned, data, run = folder / "learned", folder / "data", folder / "run"
        # Always of the same samples, so that the model does not depend on how many rows are held.
        for to, rows in ((learned, 1000), (data, self.rows)):
            sizes = [f"data.train_samples={rows - rows // 4}", f"data.test_samples={rows // 4}"]
            self.run("data", "generate", to, "--format", "torchrec", "--preset", preset,
                     *self.settings([*sizes, *data_keys]))
        rule = SGD if preset == "demo" else []
        # What the data says of itself is not set again.
        self.train(run, learned, "--preset", preset, *self.settings([*rule, *model_keys]))
        dense, bags = arrays_of(data)
        rows_of = table_rows(run)
        if any(key in model_keys for key in WIDE if "wide_crosses" in key):
            bags += [crossed([bags[column] for column in cross]) for cross in CROSSES]
            rows_of += [BUCKETS] * len(CROSSES)
        self.hold(name, run, self.predicted(run, data), dense, bags, rows_of)

    def text(self, name):
        """A model of Criteo's text, of which a part has values that the model does not know: their bags are empty."""
        folder = self.folder / name.replace(" ", "-").replace(",", "")
        raw, run = folder / "raw", folder / "run"
        self.run("data", "generate", raw, "--text", "--preset", "demo",
                 *self.settings([f"data.train_samples={self.rows}", f"data.test_samples={self.rows}"]))
        self.train(run, raw / "day_0", *self.settings(WIDE if "wide" in name else DLRM))
        data = raw / "day_1"
        expected, rows_of = self.predicted(run, data), table_rows(run)
        path = run / "model.safetensors"
        self.run("export", "--model", run, "--format", "torch", "--out", path)
        vocabulary = run / "vocabulary.safetensors"
        if self.with_torch:
            words = [sys.executable, run / "load.py", path, data, "--vocabulary", vocabulary]
            done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(done.stderr)
            self.told(f"{name}: load.py", np.array(done.stdout.split(), dtype=np.float32), expected, LIMIT)
            loader = module(run / "load.py")
            model = loader.load(path)
            with open(data, encoding="ascii") as lines:
                categories = loader.Categories(model, vocabulary)
                (dense, bags), *_ = loader.minibatches(lines, self.rows, categories)
            assert any(len(ids) < self.rows for ids, _ in bags), "some values are not known"
            bags = [tuple(part.numpy() for part in bag) for bag in bags]
            rows_of += [BUCKETS] * (len(bags) - len(rows_of))
            self.hold(name, run, expected, dense.numpy(), bags, rows_of)

    def lists(self, name, *model_keys):
        """A model of lists with weights, any number of look-ups a row."""
        folder = self.folder / name.replace(" ", "-").replace(",", "")
        folder.mkdir()
        draw = random.Random(7)
        genres = [f"g{n}" for n in range(40)]
        lines, dense, lists = ["click,price,genres,user"], [], []
        for _ in range(self.rows):
            some = [(draw.choice(genres), round(draw.uniform(-2, 2), 3)) for _ in range(draw.randrange(5))]
            user = f"u{draw.randrange(300)}"
            dense.append([draw.randrange(100) / 16])
            lists.append((some, user))
            text = "|".join(f"{value}:{weight}" for value, weight in some)
            lines.append(f"{draw.randrange(2)},{dense[-1][0]},{text},{user}")
        (folder / "clicks.csv").write_text("\n".join(lines) + "\n")
        (folder / "clicks.toml").write_text(
            'label = "click"\n[[dense]]\ncolumn = "price"\nfloat = true\n'
            '[[categorical]]\ncolumn = "genres"\nseparator = "|"\nweight_separator = ":"\n'
            '[[categorical]]\ncolumn = "user"\n'
        )
        run, data = folder / "run", folder / "clicks.csv"
        keys = ["model.bottom=[1,16,8]", "model.top=[16,1]", "model.dim=8", *model_keys]
        self.train(run, data, "--schema", folder / "clicks.toml", *self.settings(keys))
        vocabulary = texts_of(run / "vocabulary.safetensors")
        ids = [vocabulary[0][value] for some, _ in lists for value, _ in some]
        weights = [weight for some, _ in lists for _, weight in some]
        offsets = np.cumsum([0] + [len(some) for some, _ in lists])
        users = np.array([vocabulary[1][user] for _, user in lists])
        bags = [
            (np.array(ids), offsets, np.array(weights, dtype=np.float32)),
            (users, np.arange(self.rows + 1)),
        ]
        expected = self.predicted(run, data)
        self.hold(name, run, expected, np.array(dense, dtype=np.float32), bags, table_rows(run))


def module(path):
    spec = importlib.util.spec_from_file_location("load", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def head_of(path):
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(size)), 8 + size


def table_rows(run):
    """Values of each column of a checkpoint's model."""
    with open(run / "config.toml", "rb") as file:
        model = tomllib.load(file)["model"]
    if model.get("qr_collisions"):
        return model["rows"]
    head, _ = head_of(run / "checkpoint.safetensors")
    tables = {}
    for name, entry in head.items():
        parts = name.replace("t_cat_", "").split(".")
        if parts[0] == "dlrm":
            parts = parts[1:]
        if parts[0] in ("emb_l", "tables"):
            tables[int(parts[1])] = entry["shape"][0]
        elif parts[0] == "sparse_arch":
            tables[int(parts[3])] = entry["shape"][0]
    return [tables[table] for table in range(len(tables))]


def texts_of(path):
    """Of each column of text, the row of each value."""
    head, start = head_of(path)
    body = Path(path).read_bytes()[start:]
    columns = []
    while f"T{len(columns) + 1}" in head:
        name = f"T{len(columns) + 1}"
        first, last = head[name]["data_offsets"]
        ends = np.frombuffer(body[slice(*head[f"{name}.ends"]["data_offsets"])], dtype=np.uint32).tolist()
        text = body[first:last]
        columns.append({text[a:b].decode(): row for row, (a, b) in enumerate(zip([0, *ends], ends))})
    return columns


def crossed(bags):
    """The bag of a cross, sample by sample, by the definition of its rows."""
    rows, offsets = [], [0]
    for sample in range(len(bags[0][1]) - 1):
        own = [ids[first[sample] : first[sample + 1]].tolist() for ids, first in bags]
        for combination in itertools.product(*own):
            hashed = 0
            for row in combination:
                z = (hashed + row + 1 + 0x9E3779B97F4A7C15) % 2**64
                z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
                z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
                hashed = z ^ (z >> 31)
            rows.append(hashed % BUCKETS)
        offsets.append(len(rows))
    return np.array(rows), np.array(offsets)


def arrays_of(data):
    """Dense features and bags of all rows, in the order in which octorec predicts them."""
    order = {"train": 0, "day": 0, "val": 1, "validation": 1, "test": 2}
    stems = {path.name.removesuffix("_dense.npy") for path in data.glob("*_dense.npy")}
    stems = sorted(stems, key=lambda stem: (order[stem.split("_")[0]], stem))
    dense = np.concatenate([np.load(data / f"{stem}_dense.npy") for stem in stems])
    columns = []
    for stem in stems:
        multi = data / f"{stem}_sparse_multi_hot.npz"
        if multi.exists():
            arrays = np.load(multi)
            columns.append([arrays[str(n)] for n in range(len(arrays.files))])
        else:
            sparse = np.load(data / f"{stem}_sparse.npy")
            columns.append([sparse[:, n : n + 1] for n in range(sparse.shape[1])])
    bags = []
    for parts in zip(*columns):
        ids = np.concatenate(parts)
        bags.append((ids.reshape(-1).astype(np.int64), np.arange(len(ids) + 1) * ids.shape[1]))
    return dense.astype(np.float32), bags


def slices(samples, size=2048):
    return ((first, min(first + size, samples)) for first in range(0, samples, size))


def part_of(bag, first, last):
    ids, offsets, *weights = bag
    begin, end = offsets[first], offsets[last]
    return (ids[begin:end], offsets[first : last + 1] - begin, *(weight[begin:end] for weight in weights))


def of_onnx(path, how, dense, bags, rows_of):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found = []
    # Of a sequence the number of steps is known.
    shapes = {given.name: given.shape for given in session.get_inputs()}
    for first, last in slices(len(dense)):
        feed = {"dense": dense[first:last]}
        for table, bag in enumerate(bags):
            ids, offsets, *weights = part_of(bag, first, last)
            steps = shapes[f"ids_{table}"][-1]
            if how == "offsets" and not isinstance(steps, int):
                feed[f"ids_{table}"], feed[f"offsets_{table}"] = ids.astype(np.int64), offsets.astype(np.int64)
                feed |= {f"weights_{table}": weight for weight in weights}
                continue
            counts = np.diff(offsets)
            inside = np.arange(max(counts.max(), 1))[None, :] < counts[:, None]
            if isinstance(steps, int):
                # The last look-ups at the end.
                behind = offsets[1:].repeat(counts) - np.arange(len(ids))
                ids, weights = ids[behind <= steps], [weight[behind <= steps] for weight in weights]
                inside = np.arange(steps)[None, :] >= steps - counts[:, None]
            padded = np.full(inside.shape, rows_of[table], dtype=np.int64)
            padded[inside] = ids
            feed[f"ids_{table}"] = padded
            for weight in weights:
                # What pads a bag counts nothing, whatever it weighs.
                weighed = np.full(inside.shape, 3, dtype=np.float32)
                weighed[inside] = weight
                feed[f"weights_{table}"] = weighed
        found.append(session.run(["probabilities"], feed)[0])
    return np.concatenate(found)


def of_torch(path, dense, bags):
    import torch

    model = module(path.with_name("load.py")).load(path)
    found = []
    for first, last in slices(len(dense)):
        parts = [tuple(torch.from_numpy(np.array(part)) for part in part_of(bag, first, last)) for bag in bags]
        found.append(model(torch.from_numpy(dense[first:last]), parts).numpy())
    return np.concatenate(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("octorec", help="the binary")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--cases", default="", help="only cases with this in their names")
    parser.add_argument("--require", nargs="*", default=[], choices=["onnxruntime", "torch"])
    options = parser.parse_args()
    there = {name: importlib.util.find_spec(name) is not None for name in ("onnxruntime", "torch")}
    missing = [name for name in options.require if not there[name]]
    if missing or not any(there.values()):
        sys.exit(f"missing: {', '.join(missing) or 'onnxruntime and torch'}")
    with tempfile.TemporaryDirectory() as folder:
        check = Check(options.octorec, Path(folder), options.rows, there["onnxruntime"], there["torch"])
        cases = {name: (check.arrays, name, *keys) for name, keys in ARRAYS.items()}
        cases |= {name: (check.arrays, name, data, model, preset) for name, (preset, data, model) in PRESETS.items()}
        cases["text, unknown values"] = (check.text, "text, unknown values")
        cases["text, unknown values, wide"] = (check.text, "text, unknown values, wide")
        cases["lists with weights"] = (check.lists, "lists with weights")
        series = ["model.ts_length=3", 'model.sequences=["genres"]', "model.bottom=[2,16,8]", "model.arch_mlp=[9,1]"]
        cases["lists with weights, series"] = (check.lists, "lists with weights, series", *series)
        cases["lists with weights, learned ones, too"] = (check.lists, "lists with weights, learned ones, too", LEARNED)
        cases["lists with weights, mean"] = (check.lists, "lists with weights, mean", "model.pooling=mean")
        for name, (case, *arguments) in cases.items():
            if options.cases in name:
                case(*arguments)
        if check.failed:
            sys.exit(f"failed: {', '.join(check.failed)}")
    print("all within their limits")


if __name__ == "__main__":
    main()
