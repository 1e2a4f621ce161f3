"""What strategies and clients have in common: settings, the names in messages, and what a class overrides.

They import this and nothing else of `fedbn_flower`; it imports nothing of ours, and no PyTorch.
"""
