"""Images: decoding, augmentation, shifts of what clients see."""
