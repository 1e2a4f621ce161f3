"""Objectives whose gradient is taken a small step uphill: they look for flat minima."""
