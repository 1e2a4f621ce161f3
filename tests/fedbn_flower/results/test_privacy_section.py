"""What a report says of differential privacy."""

import pytest

import fedbn_flower.cli.report_commands  # noqa: F401  before other tests' stand-in is in its place
from fedbn_flower.cli.command import main
from fedbn_flower.results.report.sections.privacy import SECURE

from .html_page import page
from .written import summary_of, write_run

PRIVACY = {
    "notion": "client, central",
    "adjacency": "add-or-remove-one",
    "sampling": "poisson",
    "claim": "guarantee",
    "epsilon": 2.0,
    "delta": 1e-5,
    "planned-epsilon": 3.0,
    "planned-rounds": 9,
    "published": 3,
    "noise": 1.25,
    "probability": 0.1,
    "clients-a-round": 5.0,
    "accounted-clients-a-round": 1000.0,
    "accounted-clients": 10**6,
    "outside": ["metrics", "<memories>"],
}


@pytest.mark.parametrize(
    ("claim", "sentence"),
    [
        ("guarantee", ""),
        ("simulated", "This epsilon is simulated: the random numbers follow from a public seed"),
        (
            "hypothetical",
            "it would hold with 1000 clients a round of 1000000, and this run had 5. "
            "By it this run itself protects nobody.",
        ),
    ],
)
def test_the_privacy_of_a_run_is_said_in_words(claim, sentence, tmp_path):
    metrics = "round,loss,accuracy,epsilon\n1,2.0,0.2,1.0\n2,1.5,0.3,1.6\n3,1.0,0.7,2.0\n"
    summary = summary_of([0.7, 0.8], privacy=PRIVACY | {"claim": claim})
    found = page(write_run(tmp_path / "run", summary, metrics))
    assert "Privacy" in found.text["h2"]
    text = " ".join(found.text["p"])
    assert "these by a factor of e^2.000 = 7.39 at most, but for a probability of 1e-05." in text
    assert "each client was asked with probability 0.1, drawn in secret" in text
    assert sentence in text
    assert ("simulated" in text, "hypothetical" in text) == (claim == "simulated", claim == "hypothetical")
    assert found.text["li"] == ["metrics", "<memories>"]
    name = "epsilon" if claim == "guarantee" else f"epsilon, {claim}"
    assert found.text["dd"][found.text["dt"].index(name)] == "2.000"
    assert found.text["dt"][1] == f"{name} (delta 1e-05)"  # at the top
    assert "Epsilon by round" in found.text["figcaption"]
    assert "Its noise followed from a secret key: the command draws other noise." in text


def test_groups_that_take_turns_need_no_secret(tmp_path):
    """And noise of a public seed is drawn again."""
    turns = {"sampling": "cyclic", "groups": 10, "bands": 4}
    found = page(write_run(tmp_path / "run", summary_of([0.7, 0.8], privacy=PRIVACY | turns), dp_seed=0))
    text = " ".join(found.text["p"])
    assert "secret key: the command" not in text
    assert "In every round one of 10 fixed groups was asked, in turn; each update" in text
    assert "keeps its key secret." in text
    assert found.text["dd"][found.text["dt"].index("rounds over which noise is correlated")] == "4"


def test_secure_noise_is_named_with_its_grid(tmp_path):
    told = {"mechanism": "discrete Gaussian", "grid-steps": 2**20, "accountant": "Renyi divergences"}
    found = page(write_run(tmp_path / "run", summary_of([0.7], privacy=PRIVACY | told)))
    assert "and discrete Gaussian noise was added once to their sum." in " ".join(found.text["p"])
    said = [found.text["dd"][found.text["dt"].index(name)] for name in SECURE.values()]
    assert said == ["discrete Gaussian", "1048576", "Renyi divergences"]


@pytest.mark.parametrize(
    ("keys", "protected"),
    [
        (
            {"notion": "example, at each client", "adjacency": "example-replaced-by-nothing"},
            "each single example of a client, from everybody but that client, the server too",
        ),
        (
            {"notion": "client, local", "adjacency": "replace-one", "sampling": "none"},
            "each client with all of its data, from everybody, the server too",
        ),
    ],
)
def test_what_protects_from_the_server_is_said_in_words(tmp_path, keys, protected):
    found = page(write_run(tmp_path / "run", summary_of([0.7], privacy=PRIVACY | keys)))
    text = " ".join(found.text["p"])
    assert "From all models that the clients sent nobody can tell" in text
    assert f"Protected is {protected}" in text
    assert "the server is trusted" not in text


def report_of(tmp_path, reference, **changed):
    """The command that reports a private run with a reference, which may differ in some keys."""
    private = {"dp": "client", "dp_noise": 1.0, "weighting": "uniform"}
    write_run(tmp_path / "run", summary_of([0.7, 0.8], privacy=PRIVACY), **private)
    write_run(tmp_path / "plain", reference, **{"weighting": "num-examples", **changed})
    return ["report", str(tmp_path / "run"), "--reference", str(tmp_path / "plain")]


def test_what_the_noise_costs_is_said_in_words(tmp_path):
    assert main(report_of(tmp_path, summary_of([0.9, 0.95]))) == 0
    assert (
        "What the noise costs, by the same run without it. Accuracy, mean over examples: without noise "
        "92.5 %, with it 75.0 %. Accuracy, mean over clients: without noise 92.5 %, with it 75.0 %."
    ) in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"server_lr": 0.1}, "the same run without dp: its server-lr is 0.1, not 0.01"),
        ({"data": "b"}, "the same run without dp: its data (digest) is b, not "),
        ({"dp": "example"}, "a complete run without dp"),
    ],
)
def test_a_reference_is_the_same_run(tmp_path, refused, changed, wanted):
    line = refused(*report_of(tmp_path, summary_of([0.9]), **changed))
    assert line.startswith(f"reference: '{tmp_path / 'plain'}' is not allowed; expected {wanted}")
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_run_without_privacy_has_no_reference(tmp_path, refused):
    plain = write_run(tmp_path / "run", summary_of([0.9]))
    line = refused("report", plain, "--reference", plain)
    assert f"expected none: '{plain}' is no complete run with dp" in line
