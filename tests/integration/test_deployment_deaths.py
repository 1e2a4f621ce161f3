"""A site and the SuperLink of docs/deployment.md die, and come back."""

import math
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from deploy.local_federation import wait_until_answers

from .hospital import model, results, rounds_done, rounds_trained, simulated, start_run, wait_for

pytestmark = pytest.mark.slow


def kill_a_site(guide, folder):
    """Kill it (-9) after round 1, and start it again once a round is done without it; its log from then on.

    Started sooner, it may be back before the SuperLink holds it for lost, and misses nothing.
    """
    site, wait = guide.services["site-b"], guide.folder / "wait"
    site.restart_after = math.inf
    wait_for(lambda: rounds_done(folder) >= 1)
    os.kill(site.process.pid, signal.SIGKILL)
    wait_for(lambda: rounds_done(folder) > len(rounds_trained(folder, 1)))
    wait.touch()  # the other site trains on when this one is back, however long that takes
    earlier = site.log.read_text()
    site.restart_after = 0
    wait_for(lambda: "SuperNode ID" in site.log.read_text().removeprefix(earlier))
    wait.unlink()
    return lambda: site.log.read_text().removeprefix(earlier)


def test_a_site_and_the_superlink_are_killed_and_the_run_ends_in_the_bits_of_a_simulation(
    hospital, cache_dir
):  # fmt: skip
    """Some rounds are done without the site, and it goes on from its own last one. The SuperLink is killed
    when it has; the run is resumed."""
    shutil.copy(Path(__file__).with_name("patient.py"), hospital.folder)
    folder, superlink, rounds = results(hospital, "killed"), hospital.services["superlink"], 5
    keys = {"rounds": rounds, "client": f'"{hospital.folder}/patient.py:Patient"'}
    run = start_run(hospital, "killed", **keys)
    log = kill_a_site(hospital, folder)
    wait_for(lambda: len(rounds_trained(folder, 1)) >= 2)
    superlink.restart_after = 1
    os.kill(superlink.process.pid, signal.SIGKILL)
    output, _ = run.communicate(timeout=300)
    done = rounds_done(folder)
    assert done < rounds
    missed = sorted(set(range(1, done + 1)) - set(rounds_trained(folder, 1)))
    assert missed, output
    assert missed == list(range(missed[0], missed[-1] + 1))
    assert 1 < missed[0] <= missed[-1] < done
    assert f"round {missed[0]}, train: partition 1 dropped: Error: Node Unavailable" in output
    wait_for(lambda: superlink.starts == 2)
    assert wait_until_answers(hospital.port)
    run = start_run(hospital, "killed", **keys, resume=f'"{folder}"')
    output, _ = run.communicate(timeout=300)
    resumed = re.search(f"resuming {folder} after round ([0-9])", output)
    assert resumed, output
    assert f"round {int(resumed[1]) + 1}: " in output
    assert rounds_done(folder) == rounds
    came_back, *_, last = map(int, re.findall("client memory: round ([0-9]+)", log()))
    assert last == rounds - 1
    # It may have died when its memory of the round was written, and its answer not yet sent.
    assert came_back in {missed[0] - 1, missed[0]}
    lost = {(came_back, 1)} - {(missed[0] - 1, 1)}
    assert model(folder) == simulated(cache_dir, rounds, {(r, 1) for r in missed} - lost, lost)
