"""The sides of ``benchmarks/simulation.py``: each module but the helpers is a process of its own."""
