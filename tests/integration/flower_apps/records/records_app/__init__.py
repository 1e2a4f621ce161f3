"""Clients that say more than numbers, and metric functions that read it."""
