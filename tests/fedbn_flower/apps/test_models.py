"""The final model of legacy apps, however they run their rounds: by hand, the mean of the clients'."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedbn_flower import run_app

from .written import LEGACY_CLIENT, ask, write_app

START = """
from flwr.app import Context
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, Server, ServerAppComponents, ServerConfig, SimpleClientManager
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import ServerApp
import numpy as np

CONFIG = ServerConfig(num_rounds=2)


class Own(Server):
    def fit(self, num_rounds, timeout):
        history, seconds = super().fit(num_rounds, timeout)
        self.parameters = ndarrays_to_parameters([np.array([7.0, 8.0])])
        return history, seconds


def strategy():
    return FedAvg(initial_parameters=ndarrays_to_parameters([np.zeros(2)]))
"""
WORKFLOW = """
app = ServerApp()


@app.main()
def main(grid, context):
    {workflow}(grid, LegacyContext(context=context, config=CONFIG, strategy=strategy()))
"""
MADE = "SERVER = {server}(client_manager=SimpleClientManager(), strategy=strategy())\n"
STEP = 1 + (0 * 1 + 1 * 2 + 2 * 3) / 6
"""Client k adds 1 + k, and weighs 1 + k."""
MEAN = [2 * STEP, 2 * STEP]
APPS = {
    "workflow": (WORKFLOW.format(workflow="DefaultWorkflow()"), MEAN),
    "server of the module": (
        MADE.format(server="Server") + "app = ServerApp(server=SERVER, config=CONFIG)",
        MEAN,
    ),
    "fit of its own": (MADE.format(server="Own") + "app = ServerApp(server=SERVER, config=CONFIG)", [7, 8]),
    "components": (
        MADE.format(server="Server")
        + "app = ServerApp(server_fn=lambda context: ServerAppComponents(server=SERVER, config=CONFIG))",
        MEAN,
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", APPS)
def test_the_final_model_of_a_legacy_app_is_written(tmp_path, how):
    server, expected = APPS[how]
    folder = write_app(tmp_path / "app", START + server, LEGACY_CLIENT)
    run_app(folder, num_supernodes=3, backend="inline", run_dir=tmp_path / "run")
    (array,) = load_file(tmp_path / "run" / "model.safetensors").values()
    np.testing.assert_allclose(array, expected, rtol=1e-12)


def test_an_app_of_rounds_without_a_model_is_told_so(run, tmp_path):
    run(lambda grid, context: ask(grid))
    assert "no model.safetensors: no strategy" in (tmp_path / "run" / "log.txt").read_text()
    assert not (tmp_path / "run" / "model.safetensors").exists()


SECURE_CLIENT = LEGACY_CLIENT.replace(
    "app = ClientApp(client_fn)",
    "from flwr.client.mod import secaggplus_mod\n\napp = ClientApp(client_fn, mods=[secaggplus_mod])",
)


@pytest.mark.slow
def test_the_final_model_of_secure_aggregation_is_written(tmp_path):
    """It is quantised: range 2 * 8 in 2^22 steps, summed over three clients and two rounds."""
    secure = "DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2))"
    folder = write_app(tmp_path / "app", START + WORKFLOW.format(workflow=secure), SECURE_CLIENT)
    run_app(folder, num_supernodes=3, backend="inline", run_dir=tmp_path / "run")
    (array,) = load_file(tmp_path / "run" / "model.safetensors").values()
    np.testing.assert_allclose(array, MEAN, atol=0.01)
