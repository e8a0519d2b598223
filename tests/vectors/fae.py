#!/usr/bin/env python3
"""Writes fae/: a small click log as FAE's published code leaves it on disk (Lab-Gattaca-UBC/Accelerating-RecSys-Training).

    python fae.py            write fae/ here
    python fae.py --check    write nothing: fail unless the committed files hold what would be written
"""

import argparse
import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent / "fae"
ROWS = [3, 40, 7, 120, 12]
DENSE = 4
DAYS = [50, 48, 52, 50, 50, 49, 41]
HOT_ROWS = 60


def log():
    """Samples of all days: counts, rows, labels that depend on both. Few rows take most of the look-ups."""
    draw = np.random.RandomState(2022)
    samples = sum(DAYS)
    dense = np.floor(np.exp(draw.normal(1.0, 1.5, (samples, DENSE)))).astype(np.int32) - 1
    dense = np.maximum(dense, 0)
    ranks = [np.minimum((draw.uniform(size=samples) ** 4 * rows).astype(np.int64), rows - 1) for rows in ROWS]
    rows = np.stack([draw.permutation(size)[rank] for size, rank in zip(ROWS, ranks)], axis=1)
    score = 1.5 * (rows[:, 0] == rows[0, 0]) + 0.2 * dense[:, 0] - 1.2
    labels = (draw.uniform(size=samples) < 1 / (1 + np.exp(-score))).astype(np.int32)
    order = draw.permutation(samples - DAYS[-1])
    return dense, rows, labels, order


def hot_rows(rows, order):
    """The rows that come most often among a fifth of the training samples, drawn with replacement: (table, row) by position."""
    draw = np.random.RandomState(5)
    drawn = order[draw.randint(0, len(order), size=len(order) // 5)]
    found = [(np.count_nonzero(rows[drawn, table] == row), table, row)
             for table, size in enumerate(ROWS) for row in range(size)]
    found.sort(reverse=True)
    return [(table, row) for _, table, row in found[:HOT_ROWS]]


def told_apart(samples, positions, position_type):
    """Cold samples as they are, and hot ones with positions instead of rows."""
    cold, hot = [], []
    for features, rows, label in samples:
        keys = [(table, int(row)) for table, row in enumerate(rows)]
        if all(key in positions for key in keys):
            hot.append((features, np.array([positions[key] for key in keys]).astype(position_type), label))
        else:
            cold.append((features, rows, label))
    return cold, hot


def as_lists(samples):
    array = np.empty(len(samples), dtype=object)
    for at, sample in enumerate(samples):
        array[at] = list(sample)
    return array


def array_file(array, protocol):
    """What numpy.savez_compressed compresses of an array; of objects as older releases pickle them, if a protocol is given."""
    text = io.BytesIO()
    if protocol is None or array.dtype != object:
        np.savez(text, array)
        with zipfile.ZipFile(text) as members:
            return members.read("arr_0.npy")
    np.lib.format.write_array_header_1_0(text, np.lib.format.header_data_from_array_1_0(array))
    text.write(pickle.dumps(array, protocol=protocol))
    return text.getvalue()


def files():
    """Each file: a dictionary of arrays' bytes, or a text."""
    dense, rows, labels, order = log()
    hot = hot_rows(rows, order)
    found = {}

    def write(name, protocol=None, **arrays):
        found[name] = {key: array_file(value, protocol) for key, value in arrays.items()}

    def write_samples(folder, protocol, cold, hot_samples, dictionary, make):
        for name, array in (("train_normal", make(cold)), ("train_hot", make(hot_samples)),
                            ("hot_emb_dict", np.array(dictionary, dtype=object))):
            write(f"{folder}/{name}.npz", protocol, arr_0=array)

    def dictionary(key_type, position_type):
        tables = [{} for _ in ROWS]
        for position, (table, row) in enumerate(hot):
            tables[table][(key_type(table), key_type(row))] = position_type(position)
        return tables

    def objects(samples):
        return np.array(samples, dtype=object)

    # The log in one piece: look-ups are float64, column by column.
    looked_up = np.asfortranarray(rows.astype(np.float64))
    positions = {key: np.float32(position) for position, key in enumerate(hot)}
    cold, hot_samples = told_apart([(dense[at], looked_up[at], labels[at]) for at in order], positions, np.float32)
    write_samples("kaggle/kaggle_hot_cold", None, cold, hot_samples, dictionary(np.int64, np.float32), objects)
    counts = np.array(ROWS, dtype=np.int32)
    write("kaggle/train_fea_count.npz", counts=counts)
    write("kaggle/train_day_count.npz", total_per_file=np.array(DAYS))
    write("kaggle/kaggleAdDisplayChallenge_processed.npz", X_cat=looked_up, X_int=dense, y=labels, counts=counts)

    # By several processes: lists, and 32-bit fractions, of which hot samples keep those that they had.
    single = rows.astype(np.float32)
    lists = [(dense[at], single[at], labels[at]) for at in order]
    is_hot = [all((table, int(row)) in positions for table, row in enumerate(sample[1])) for sample in lists]
    write_samples("processes", 3, [sample for sample, hot in zip(lists, is_hot) if not hot],
                  [sample for sample, hot in zip(lists, is_hot) if hot], dictionary(np.int64, np.float32), as_lists)

    # Of the tutorial: whole numbers, Python's in the dictionary.
    whole = rows.astype(np.int32)
    positions = {key: position for position, key in enumerate(hot)}
    cold, hot_samples = told_apart([(dense[at], whole[at], labels[at]) for at in order], positions, np.int32)
    write_samples("tutorial", 2, cold, hot_samples, dictionary(int, int), objects)

    train = [at for at, hot in zip(order, is_hot) if not hot] + [at for at, hot in zip(order, is_hot) if hot]
    last = sum(DAYS[:-1])
    test = list(range(last, last + (DAYS[-1] + 1) // 2))

    def samples_of(numbers):
        return [[int(labels[at]), dense[at].tolist(), rows[at].tolist()] for at in numbers]

    expected = {
        "rows": ROWS,
        "cold": is_hot.count(False),
        "hot_rows": [sorted(row for of, row in hot if of == table) for table in range(len(ROWS))],
        "train": samples_of(train),
        "test": samples_of(test),
    }
    found["expected.json"] = json.dumps(expected, separators=(",", ":")) + "\n"
    return found


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--check", action="store_true", help="write nothing, compare with the files in place")
    check = arguments.parse_args().check
    found = files()
    if check:
        committed = {path.relative_to(HERE).as_posix() for path in HERE.rglob("*") if path.is_file()}
        assert committed == set(found), committed ^ set(found)
    for name, content in found.items():
        path = HERE / name
        if check and isinstance(content, str):
            assert path.read_text() == content, name
        elif check:
            with zipfile.ZipFile(path) as members:
                assert {key + ".npy" for key in content} == set(members.namelist()), name
                for key, expected in content.items():
                    assert members.read(key + ".npy") == expected, f"{name}: {key}"
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                path.write_text(content)
                continue
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as members:
                for key, array in content.items():
                    # Of one moment, so that the same arrays are the same file.
                    members.writestr(zipfile.ZipInfo(key + ".npy"), array, zipfile.ZIP_DEFLATED)
    array = np.load(HERE / "kaggle/kaggle_hot_cold/train_hot.npz", allow_pickle=True)["arr_0"]
    assert array.shape == (len(array), 3) and array[0][1].dtype == np.float32


if __name__ == "__main__":
    main()
