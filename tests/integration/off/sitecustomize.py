"""Loaded by the processes of a site whose clock is three hours ahead, for as long as a file says so."""

import os
import time

if os.path.exists(os.environ.get("CLOCK_IS_OFF", "")):
    true_time = time.time
    time.time = lambda: true_time() + 3 * 3600
