"""System heterogeneity: who takes part in a round, and how long that takes."""

from .clock import Clock, rates_of
from .seeded import SeededParticipation, availability, held_out_clients, share_of_work

__all__ = [
    "Clock",
    "SeededParticipation",
    "availability",
    "held_out_clients",
    "rates_of",
    "share_of_work",
]
