"""Warm sites: a worker beside a SuperNode that stays from one message to the next."""
