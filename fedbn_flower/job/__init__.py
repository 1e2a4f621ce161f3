"""What server and sites derive from a configuration: inputs, the initial model, the rule, checks."""
