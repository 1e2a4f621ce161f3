"""Federated learning on Flower: any server rule with any BatchNorm policy and any local objective."""

__version__ = "0.2.0"
