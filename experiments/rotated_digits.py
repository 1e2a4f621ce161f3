"""Digits of scikit-learn at 20 clients, each of which sees them in one of four rotations."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, train_test_split

CLIENTS, ROTATIONS = 20, 4


def rotation_of(client: int) -> int:
    """Return how many quarter turns a client's digits have."""
    return client % ROTATIONS


def digits(split: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the clients' (images, labels), 90 digits each, of which 18 are to test on."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    folds = StratifiedKFold(CLIENTS, shuffle=True, random_state=0).split(images, labels)
    found = []
    for client, (_, rows) in enumerate(folds):
        seen = np.rot90(images[rows], rotation_of(client), axes=(2, 3)).copy()
        x, x_test, y, y_test = train_test_split(
            seen, labels[rows], test_size=0.2, random_state=0, stratify=labels[rows]
        )
        found.append((x, y) if split == "train" else (x_test, y_test))
    return found
