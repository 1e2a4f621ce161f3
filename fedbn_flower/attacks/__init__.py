"""Attacks on a federation, so that what helps against them can be measured. Attackers are simulated."""
