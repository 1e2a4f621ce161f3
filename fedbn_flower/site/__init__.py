"""What a client does beside training: evaluation, cases, recalibration, one answer to two messages."""
