"""Trackers of experiments: TensorBoard, MLflow, Weights & Biases. Each is an optional extra."""
