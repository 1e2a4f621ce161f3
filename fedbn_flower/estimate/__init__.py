"""How long runs take, before they are run."""
