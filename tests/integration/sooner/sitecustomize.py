"""Loaded by Flower's processes: a SuperNode that has died is missed after 30 seconds, not after 60."""

from flwr.common import constant

constant.HEARTBEAT_DEFAULT_INTERVAL = 15
