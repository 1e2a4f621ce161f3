"""A consortium of sites: one file of what was agreed, kits, checks before a run, and a log at each site."""
