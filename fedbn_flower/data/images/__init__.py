"""Images: decoding, augmentation, feature shift."""
