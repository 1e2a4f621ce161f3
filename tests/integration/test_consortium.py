"""A consortium, by the commands of its page: TLS, authentication, secure aggregation, and later changes."""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fedbn_flower.consortium")
pytest.importorskip("fedbn_flower.secagg")

from fedbn_flower import cli
from fedbn_flower.consortium.local import Service, free_port, wait_until_answers
from fedbn_flower.consortium.log import checked
from fedbn_flower.consortium.programs import PROGRAMS

from .hospital import supervised
from .processes import FORKING, KNOWN, ROOT, light_app, wait_for

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "how-to" / "consortium.md").read_text()
SITES = ("lyon", "turin", "porto")
FIRST_USER = 61000
AS_USER = (
    "import os, sys; u = int(sys.argv[1]); os.setgroups([]); os.setgid(u); os.setuid(u); os.umask(0o077); "
)
AS_USER += "os.execvp(sys.argv[2], sys.argv[2:])"
STUDY = re.search(r'```toml title="study.toml"\n(.*?)```', PAGE, re.DOTALL)[1]


def write_table(folder, seed):
    """What a site of the page's study has."""
    rng = np.random.default_rng(seed)
    rows = [(rng.integers(20, 90), rng.random(), rng.choice(["f", "m"])) for _ in range(60)]
    lines = [f"{age},{dose},{sex},{'yes' if age > 50 else 'no'}\n" for age, dose, sex in rows]
    folder.mkdir()
    (folder / "patients.csv").write_text("".join(["age,dose,sex,ill\n", *lines]))


def commands(section):
    """Those of a section of the page, a line each."""
    return re.search(rf"^## {section}\n.*?```bash\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)[1].splitlines()


def others_may_run_it(project):
    """Whether this user can be another one, who can then run this Python with this project."""
    command = as_user(FIRST_USER, sys.executable, project / "run_sim.py", "--version")
    return not os.geteuid() and not subprocess.run(command, capture_output=True).returncode


def as_user(user, *words):
    """A command as it is run by another user, without groups or any other right."""
    python = shutil.which("python3", path="/usr/bin") or sys.executable  # of everybody
    return [*([python, "-c", AS_USER, str(user)] if user else []), *map(str, words)]


class Consortium:
    """The operator's folder, and one of each site, of a user of its own where this user is root."""

    def __init__(self, folder, project, environment, services):
        self.folder, self.port, self.services = folder, free_port(), services
        self.project = shutil.copytree(project, folder / "project")
        self.app = str(light_app(folder / "app", self.project))
        self.operators = folder / "operator"
        self.operators.mkdir(mode=0o700)
        python_path = f"{FORKING['PYTHONPATH']}:{self.project}"
        paths = {"PYTHONPATH": python_path, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
        self.environment = environment | FORKING | paths
        self.users, self.has_users = {}, others_may_run_it(self.project)

    def do(self, words, user=None, **options):
        ended = subprocess.run(
            as_user(user, *words), capture_output=True, text=True, timeout=900,
            **{"cwd": self.operators, "env": self.environment} | options,
        )  # fmt: skip
        assert not ended.returncode, ended.stdout + ended.stderr
        return ended.stdout

    def operator(self, beginning, *changes):
        """A command of the page that begins so, with other values. One of ours is in this process, which need
        not import it again, but for that which looks at the code of the project."""
        (line,) = [
            line for line in commands("At the operator") + commands("Later") if line.startswith(beginning)
        ]
        for old, new in changes:
            assert re.search(old, line)
            line = re.sub(old, lambda _, new=new: new, line)
        program, *words = shlex.split(line)
        if program != "fedbn-sim" or "study" in words:
            return self.do(["bash", "-c", line], cwd=self.operators)
        with contextlib.chdir(self.operators), contextlib.redirect_stdout(io.StringIO()) as told:
            assert cli.main(words) == 0
        return told.getvalue()

    def start(self, name, command, user=None):
        """What systemd would start, with the PATH that it gives. The SuperLink misses what is slow as late as
        by default: on a busy machine a server takes long to start."""
        environment = self.environment | {"PATH": "/usr/bin:/bin", "HOME": str(self.folder / name)}
        environment |= {"FEDBN_TEST_PATIENT": "yes"} if name == "superlink" else {}
        log = self.folder / f"{name}.log"
        self.services[name] = Service(name, as_user(user, *command), environment, log, 1.0)
        self.services[name].start()

    def start_superlink(self):
        unit = (self.operators / "hospitals/superlink/fedbn-superlink.service").read_text()
        self.start("superlink", re.search("^ExecStart=(.*)$", unit, re.MULTILINE)[1].split())
        assert wait_until_answers(self.port)

    def give(self, site, path):
        """Send a file to a site; it is there in its user's folder."""
        self.own(site, shutil.copy(path, self.folder / site))

    def own(self, site, *paths):
        if user := self.users[site]:
            for path in paths:
                os.chown(path, user, user)

    def at_site(self, site, number, *changes):
        """A command of the page at a site, with other values."""
        line = commands("At a site")[number]
        for old, new in changes:
            assert old in line
            line = line.replace(old, str(new))
        environment = self.environment | {"HOME": str(self.folder / site)}
        return self.do(
            ["bash", "-c", line], self.users[site], cwd=self.folder / site / "kit", env=environment
        )

    def set_up(self, site):
        """A site's folder with its data, of its user alone, and its kit; the line that it sends back."""
        self.users[site] = FIRST_USER + len(self.users) if self.has_users else None
        home = self.folder / site
        home.mkdir(mode=0o700)
        write_table(home / "data", len(self.users))
        self.give(site, self.operators / "hospitals/kits" / f"{site}.zip")
        kit = home / "kit"
        shutil.unpack_archive(home / f"{site}.zip", kit)
        for program in ("join", "run", "leave"):
            (kit / program).chmod(0o755)
        self.own(site, home, *home.rglob("*"))
        changes = ("/srv/fedbn", f"{home / 'data'} --port {free_port()}")
        return self.at_site(site, 0, changes).splitlines()[-1]

    def tell(self, study, *sites):
        """Send the list to sites, which take it, and a study, which they admit."""
        for site in sites:
            self.give(site, self.operators / "hospitals/hospitals.admitted")
            self.give(site, self.operators / study)
            assert "to read aloud to each other" in self.at_site(site, 1, ("study.toml", study))

    def start_sites(self, *sites):
        for site in sites:
            self.start(site, [self.folder / site / "kit" / "run"], self.users[site])

    def run(self, study, sites):
        """``flwr run`` of a study, which waits for its sites, and what became of it."""
        results = self.operators / "run"
        (self.operators / "run.toml").write_text(
            (self.operators / study).read_text() + f'run-dir = "{results}"\n'
        )
        told = self.operator("FLWR_HOME", ("/opt/fedbn-flower", self.app), ("study.toml", "run.toml"))
        logs = [(self.folder / f"{name}.log").read_text()[-2000:] for name in self.services]
        assert (results / "summary.json").exists(), "\n".join([told, *logs])
        summary = json.loads((results / "summary.json").read_text())
        assert (summary["rounds"], summary["failures"]) == (1, 0), told
        assert summary["extensions"]["secagg"]["signed"] == len(sites)


@pytest.fixture
def folder():
    """One through which others pass, to what is theirs."""
    with tempfile.TemporaryDirectory(prefix="consortium-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture
def consortium(folder, undrawn_project, marked_environment, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", FORKING["PYTHONPATH"])  # of `flwr`, which the operator's commands start
    with supervised() as services:
        made = Consortium(folder, undrawn_project, marked_environment[1], services)
        try:
            yield made
        finally:
            while services:
                services.popitem()[1].end_group()


def test_from_nothing_through_changes_to_a_study(consortium):
    """Five commands at the operator and two at a site, until the SuperLink knows one that has started; then a
    site less and another key, all of which a round of a study of the page's tables needs, as it does another
    certificate that the SuperLink has since the sites got their kits. The site admits that study while its
    SuperNode runs. That a site more is one of the first is `test_fit`'s."""
    assert len(commands("At the operator")) <= 5
    assert len(commands("At a site")) <= 2
    study = STUDY.replace("rounds = 3", "rounds = 1")
    assert study != STUDY
    (consortium.operators / "study.toml").write_text(study)
    of_two = study.replace("num-clients = 3", "num-clients = 2\nsecagg-min = 2")
    (consortium.operators / "later.toml").write_text(f"{of_two}fraction-evaluate = 0.0\n")
    server = f"localhost:{consortium.port} --control 127.0.0.1:{consortium.port}"
    consortium.operator(
        "fedbn-sim consortium new", ("superlink.example.org", server), ("secagg-min=3", "secagg-min=2")
    )
    lines = [consortium.set_up(site) for site in SITES]
    consortium.operator("fedbn-sim consortium renew")
    consortium.start_superlink()  # in the place of sudo hospitals/superlink/install
    consortium.operator("fedbn-sim consortium study")
    admitted = "' '".join(lines)
    told = consortium.operator("fedbn-sim consortium admit", ("'.*'", f"'{admitted}'"))
    assert told.count("registered with the SuperLink") == 3
    consortium.tell("study.toml", "lyon")
    consortium.start_sites("lyon")
    wait_for(lambda: KNOWN in consortium.services["lyon"].log.read_text())

    consortium.operator("fedbn-sim consortium remove")
    consortium.operator("fedbn-sim consortium study", ("first study", "later later"))
    line = consortium.at_site("turin", 0, ("--data /srv/fedbn", "--new-key")).splitlines()[-1]
    consortium.operator("fedbn-sim consortium replace", ("'.*'", f"'{line}'"))
    rest = ("lyon", "turin")
    consortium.tell("later.toml", *rest)
    consortium.start_sites("turin")
    consortium.run("later.toml", rest)
    assert consortium.operator("fedbn-sim consortium status").count(" online ") == len(rest)

    for site in rest:
        log = checked(consortium.folder / site / "kit/site/audit")
        assert {line["outcome"] for line in log} == {"answered"}
        assert len({line["run"] for line in log}) == 1
    secrets = [path for path in consortium.folder.rglob("*.key") if path.is_file()]
    assert len(secrets) == 2 + len(SITES)
    private = [path.read_bytes().splitlines()[-2] for path in secrets]
    ends = (".log", ".json", ".jsonl", ".zip", ".html", ".admitted")
    told = [path for path in consortium.folder.rglob("*") if path.suffix in ends]
    assert not [path for path in told for key in private if key in path.read_bytes()]
