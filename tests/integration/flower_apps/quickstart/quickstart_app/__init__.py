"""A plain app: linear regression, the strategy chosen by the run configuration."""
