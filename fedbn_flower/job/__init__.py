"""What both ends of the wire make of a configuration: inputs, the initial model, the rule, what fits."""
