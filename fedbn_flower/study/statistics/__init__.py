"""Intervals of metrics and tests between methods: functions of arrays and of tables of held-out cases."""
