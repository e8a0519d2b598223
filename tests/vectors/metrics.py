#!/usr/bin/env python3
"""Writes metrics.json: scores of small sets of samples by scikit-learn, and where it has none, from their definition.

    python metrics.py            write metrics.json here
    python metrics.py --check    write nothing: fail unless the committed file holds what would be written
"""

import argparse
import json
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

HERE = Path(__file__).parent
BUCKETS = 7


def buckets(scores, labels, count):
    """Parts of equal size by score; equal scores lie in one, that of the first of them."""
    below = np.array([(scores < score).sum() for score in scores])
    numbers = below * count // len(scores)
    found = []
    for number in np.unique(numbers):
        of = numbers == number
        found.append([float(scores[of].min()), float(scores[of].max()), int(of.sum()),
                      float(scores[of].astype(np.float64).mean()), float(labels[of].mean())])
    return found


def gauc(scores, labels, groups):
    """The mean AUC of groups of both classes, weighted by samples; then groups and samples that count and that do not."""
    counts, left = [], []
    for group in np.unique(groups):
        of = groups == group
        both = len(set(labels[of])) == 2
        (counts if both else left).append((int(of.sum()), roc_auc_score(labels[of], scores[of]) if both else None))
    samples = sum(n for n, _ in counts)
    mean = float(sum(n * auc for n, auc in counts) / samples) if samples else None
    return [mean, len(counts), samples, len(left), sum(n for n, _ in left)]


def cases():
    draw = np.random.RandomState(20)

    def case(name, samples, rate, levels, groups):
        labels = (draw.uniform(size=samples) < rate).astype(np.int64)
        scores = np.clip(draw.normal(labels * 1.5 - 2.0, 1.0), -8, 8)
        scores = 1.0 / (1.0 + np.exp(-scores))
        if levels:
            scores = np.round(scores * levels) / levels
        scores = scores.astype(np.float32)
        groups = draw.randint(0, groups, size=samples)
        both = len(set(labels)) == 2
        loss = float(log_loss(labels, scores, labels=[0, 1]))
        mean = labels.mean()
        entropy = -(mean * np.log(mean) + (1 - mean) * np.log(1 - mean)) if both else None
        shortest = [float(np.format_float_positional(score, unique=True)) for score in scores]
        assert np.array_equal(np.asarray(shortest, np.float32), scores), name
        return {
            "name": name,
            "auc": float(roc_auc_score(labels, scores)) if both else None,
            "pr_auc": float(average_precision_score(labels, scores)) if labels.any() else None,
            "logloss": loss,
            "normalised_entropy": loss / float(entropy) if both else None,
            "buckets": buckets(scores, labels, BUCKETS),
            "gauc": gauc(scores, labels, groups),
            "labels": labels.tolist(),
            "groups": groups.tolist(),
            "scores": shortest,
        }

    return [
        case("few clicks", 400, 0.05, 0, 40),
        case("many ties", 300, 0.3, 12, 9),
        case("saturated", 200, 0.5, 2, 3),
        case("groups of few", 150, 0.4, 0, 120),
        case("one class", 20, 0.0, 0, 4),
        case("all clicks", 20, 1.0, 0, 4),
    ]


def text():
    lines = ",\n  ".join(json.dumps(case, separators=(",", ":")) for case in cases())
    return f"[\n  {lines}\n]\n"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--check", action="store_true", help="write nothing, compare with the file in place")
    path = HERE / "metrics.json"
    if arguments.parse_args().check:
        assert path.read_text() == text()
    else:
        path.write_text(text())


if __name__ == "__main__":
    main()
