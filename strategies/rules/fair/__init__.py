"""Rules that weigh clients by how well the model fits them."""
