"""Write docs/reference.md and the keys in pyproject.toml: ``python -m fedbn_flower.reference``."""

from . import write

if __name__ == "__main__":
    write()
