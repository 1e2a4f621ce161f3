"""Simulated scanners: images as the sites that have them would see them."""
