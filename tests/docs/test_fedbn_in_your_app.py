"""The app of docs/how-to/fedbn-in-your-app.md, as it stands there."""

import numpy as np
import pytest
from flwr.serverapp import ServerApp
from safetensors.numpy import load_file

pytest.importorskip("fedbn_flower.apps")

from fedbn_flower import run_app
from fedbn_flower.cli import main
from tests.fedbn_flower.apps.written import PROJECT, ask

from .pages import DOCS, blocks

(BLOCK,) = (block for block in blocks("python") if block.page == DOCS / "how-to" / "fedbn-in-your-app.md")
MEANS = np.linspace(-1, 1, 80).reshape(20, 4).mean(axis=0)


def test_each_site_keeps_its_own_statistics(tmp_path):
    """PyTorch's running mean: after three steps 1 - 0.9^3 of the mean of the site's own examples."""
    app = {}
    exec(compile(BLOCK.body, BLOCK.name, "exec"), app)
    app["client"].query()(lambda message, context: app["Message"](context.state, reply_to=message))
    kept, server = {}, ServerApp()

    @server.main()
    def rounds_and_question(grid, context):
        app["main"](grid, context)
        for site, reply in enumerate(ask(grid, "query")):
            kept[site] = reply.content["kept"].to_torch_state_dict()

    result = run_app(server, app["client"], num_supernodes=3, backend="inline", run_dir=tmp_path / "run")
    assert set(result.arrays) == {"1.weight", "1.bias"}
    for site, entries in kept.items():
        assert {name.partition(".")[0] for name in entries} == {"0"}
        expected = (1 - 0.9**3) * (MEANS + 10 * site)
        np.testing.assert_allclose(entries["0.running_mean"], expected, rtol=1e-5, atol=1e-6)
        assert entries["0.num_batches_tracked"] == 3
        assert (entries["0.weight"] != 1).all()  # trained, at home


def test_it_runs_as_an_app(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "own.py").write_text(BLOCK.body)
    (tmp_path / "app" / "pyproject.toml").write_text(PROJECT.format(server="own:server", client="own:client"))
    assert (
        main(["app", str(tmp_path / "app"), "--backend", "inline", "--run-dir", str(tmp_path / "run")]) == 0
    )
    assert set(load_file(tmp_path / "run" / "model.safetensors")) == {"1.weight", "1.bias"}
