"""The page of runs: who may see it, what it loads, and that its numbers are the files'."""

import base64
import json
import os
import re
import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from math import inf, nan
from socket import create_connection
from urllib.parse import quote, urlsplit

import pytest
from filelock import FileLock
from scipy.stats import ttest_rel

pytest.importorskip("bokeh", reason="needs the extra watch")

from fedbn_flower.watch.command import index_of
from fedbn_flower.watch.curves import ROUND, line_of, smoothed
from fedbn_flower.watch.figures import data_of, swatches
from fedbn_flower.watch.server import Server
from tests.fedbn_flower.results.written import change_run

from .folders import MARKUP, SITES, add_round, append, write_run, write_summary


@contextmanager
def served(folder, password="", standing=None):
    with Server(index_of(folder, "watch"), "127.0.0.1", 0, password, standing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def get(server, path, method="GET", token=None, body=None, **headers):
    where = urlsplit(server.address)
    connection = HTTPConnection(where.hostname, where.port, timeout=30)
    token = server.token if token is None else token
    connection.request(method, f"/{token}/{path}", body, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, answer.headers


def test_without_the_token_nothing_is_seen(runs):
    with served(runs) as server:
        host, _, port = server.address.split("/")[2].partition(":")
        assert host == "127.0.0.1"
        assert int(port) > 0
        assert get(server, "")[0] == 200
        for token in ("", "x", server.token[:-1], server.token.upper()):
            for path in ("", "table", "bokeh.js"):
                status, text, _ = get(server, path, token=token)
                assert status == 403
                assert "avg-0" not in text
        assert get(server, "note", "POST", "x", json.dumps({"run": "avg-0", "starred": True}))[0] == 403
    with served(runs) as again:
        assert again.token != server.token


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "FOO", "POST"])
@pytest.mark.parametrize("path", ["/", "//", "/%2e%2e/x", "http://[", "*", "/" + "a" * 70_000])
def test_without_the_token_every_method_and_path_is_refused(runs, method, path, capsys):
    with served(runs) as server, create_connection(server.server_address) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: else\r\n\r\n".encode())
        assert connection.recv(100).split()[1] == b"403"
    assert capsys.readouterr().err == ""


def test_a_password_is_asked_for_beside_it(runs):
    with served(runs, "open sesame") as server:
        for given in ("", "Basic x", "Basic " + base64.b64encode(b"me:open").decode()):
            status, _, headers = get(server, "", Authorization=given)
            assert (status, headers["WWW-Authenticate"].split()[0]) == (401, "Basic")
        right = "Basic " + base64.b64encode(b"me:open sesame").decode()
        assert get(server, "", Authorization=right)[0] == 200


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--host", "0.0.0.0"], "host: '0.0.0.0' is not allowed; expected 127.0.0.1, or another with"),
        (["--password-file", "none"], "password-file: cannot read 'none'"),
        (["--port", "1000000"], "port: 1000000 is not allowed; expected 0 to 65535"),
    ],
)
def test_a_mistake_is_one_line(runs, arguments, line, refused):
    assert refused("watch", runs, *arguments).startswith(line)


def test_a_missing_library_is_one_line(runs, monkeypatch, refused):
    monkeypatch.setattr("fedbn_flower.watch.command.find_spec", lambda name: None)
    assert refused("watch", runs) == "watch: needs another package: pip install 'fedbn-flower[watch]'"


def test_no_path_leads_outside_the_folder(runs):
    (runs.parent / "secret").mkdir()
    write_run(runs.parent / "secret" / "run", (0.123,))
    with served(runs) as server:
        for path in ("../../etc/passwd", "%2e%2e/secret/run", "..%2f..%2fetc%2fpasswd", "/etc/passwd"):
            assert get(server, path)[0] == 404
        for name in (
            "../secret/run",
            "..%2Fsecret%2Frun",
            str(runs.parent / "secret" / "run"),
            "avg-0/../avg-1",
        ):
            for page in ("run", "facts", "heat.csv", "curve.json", "difference"):
                status, text, _ = get(server, f"{page}?{'run' if page == 'difference' else 'of'}={name}")
                assert status == 404
                assert "0.123" not in text
        body = json.dumps({"run": "../secret/run", "starred": True})
        assert get(server, "note", "POST", body=body)[0] == 400
    assert not (runs.parent / "secret" / "run" / "watch.json").exists()


def test_what_is_asked_wrongly_is_a_line(runs):
    with served(runs) as server:
        for path in (
            *("table?where=acuracy>1", "table?smooth=1.5", "curves.json?axis=x"),
            *("run", "difference?run=avg-0"),
        ):
            status, text, _ = get(server, path)
            assert status == 400
            assert len(text.splitlines()) == 1


def test_the_accuracy_of_a_rare_event_leads_no_picture_and_no_table(tmp_path):
    keys = {"class-names": ["no", "yes"], "events": ["yes"]}
    folder = write_run(tmp_path / "run", (0.5,), **keys)
    (folder / "partitions.csv").write_text("partition,class,examples\n0,no,90\n0,yes,10\n")
    with served(tmp_path) as server:
        assert get(server, "curves.csv")[1].splitlines()[0] == "run,round,loss,standard deviation"
        assert get(server, "heat.csv?of=run")[1].splitlines()[1:] == [f"{site},{1 / 3}" for site in SITES]
        assert '<option value="loss" selected>' in get(server, "run?of=run")[1]
        shown = get(server, "sites?of=run")[1]
        assert ">loss<" in shown
        assert "accuracy" not in shown


def test_sites_have_lines_of_a_metric_that_is_pooled(tmp_path):
    folder = write_run(tmp_path / "run", (0.5,))
    metrics = (folder / "metrics.csv").read_text().replace("accuracy", "pooled-accuracy")
    (folder / "metrics.csv").write_text(metrics)
    with served(tmp_path) as server:
        lines = get(server, "curves.csv?of=run&sites=on&metric=pooled-accuracy")[1].splitlines()
    assert lines == ["run,round,pooled-accuracy,standard deviation", "run,1.0,0.5,"] + [
        f"{site},1.0,{0.5 - i / 100}," for i, site in enumerate(SITES)
    ]


def test_what_has_not_changed_is_not_sent_again(runs, monkeypatch):
    monkeypatch.setattr("fedbn_flower.watch.index.AGAIN", 0)
    with served(runs) as server:
        tag = get(server, "table")[2]["ETag"]
        assert get(server, "table", **{"If-None-Match": tag})[0] == 304
        add_round(runs / MARKUP, 2, 0.625)
        assert get(server, "table", **{"If-None-Match": tag})[0] == 200


def test_names_with_markup_are_escaped(runs):
    append(runs / MARKUP / "failures.csv", [(1, "train", 0, f"{MARKUP}\x1b[2J")])
    with served(runs) as server:
        name = "%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E%26"
        for path in ("", "table", *(f"{page}?of={name}" for page in ("run", "facts", "sites", "rounds"))):
            status, text, _ = get(server, path)
            assert status == 200
            assert "<img" not in text
            assert "\x1b" not in text
        assert "&lt;img src=x" in get(server, f"sites?of={name}")[1]


def test_csv_files_have_the_numbers_of_the_folder(runs, monkeypatch):
    monkeypatch.setattr("fedbn_flower.watch.curves.BLOCK", 100)  # a line or two
    with served(runs) as server:
        assert get(server, "curves.csv?where=seed=0+strategy=fedavg")[1].splitlines() == [
            "run,round,accuracy,standard deviation",
            "avg-0,1.0,0.5,",
            "avg-0,2.0,0.7512345678901234,",
        ]
        assert get(server, "heat.csv?of=avg-0")[1].splitlines() == [
            "site,1,2",
            f"clear,0.5,{0.7512345678901234}",
            f"noisy,0.49,{0.7512345678901234 - 0.01}",
        ]
        assert '"@site"' in get(server, "heat.json?of=avg-0")[1]


def test_a_star_and_a_note_are_kept_and_the_difference_of_two_runs_is_their_keys(runs):
    with served(runs) as server:
        body = json.dumps({"run": "avg-1", "starred": True, "note": "the better one", "else": 1})
        assert get(server, "note", "POST", body=body)[0] == 200
        text = get(server, "table")[1]
        assert text.index("avg-1") < text.index("avg-0")
        assert "the better one" in text
        rows = get(server, "difference?run=avg-0&run=avg-1")[1].split("<tbody>")[1].split("</tbody>")[0]
    assert rows == '<tr><th scope="row">seed</th><td>0</td><td>1</td></tr>'
    assert json.loads((runs / "avg-1" / "watch.json").read_text()) == {
        "starred": True,
        "note": "the better one",
    }


@pytest.mark.parametrize(
    ("length", "body"),
    [
        (None, "{"),
        (None, "[]"),
        (None, "null"),
        (None, '{"run": ["avg-0"]}'),
        (-1, ""),
        (10**7, ""),
        ("x", ""),
    ],
)
def test_what_is_no_note_is_a_line_and_changes_nothing(runs, length, body):
    given = {} if length is None else {"Content-Length": str(length)}
    with served(runs) as server:
        status, text, _ = get(server, "note", "POST", body=body or None, **given)
        assert (status, text.partition(":")[0]) == (400, "note")
        assert get(server, "note", "POST", body='{"run": "avg-0", "note": null, "accuracy": 1}')[0] == 200
    assert json.loads((runs / "avg-0" / "watch.json").read_text()) == {}


def test_a_note_takes_the_place_of_no_figure(runs):
    (runs / "avg-0" / "watch.json").write_text('{"accuracy": 1, "state": "failed", "note": "mine"}')
    values = index_of(runs, "watch").entries["avg-0"].values
    assert (values["accuracy"], values["state"], values["note"]) == (0.7512345678901234, "ended", "mine")


def test_a_folder_whose_name_is_not_utf8_and_one_without_sites_are_shown(runs):
    odd = write_run(runs / os.fsdecode(b"caf\xe9"), (0.5,))
    (odd / "clients.csv").unlink()
    with served(runs) as server:
        name = quote(next(name for name in server.index.entries if name.startswith("caf")))
        for path in ("", "table", "curves.csv", "real", *(f"{p}?of={name}" for p in ("run", "heat.csv"))):
            assert get(server, path)[0] == 200
        assert "None." in get(server, f"sites?of={name}")[1]


def test_the_memory_of_a_run_is_that_of_the_process_that_runs_it(runs):
    with served(runs) as server, FileLock(runs / "avg-0" / ".lock"):
        used = float(_fact(get(server, "facts?of=avg-0")[1], "memory of its process").removesuffix(" MB"))
    assert 10 < used < 1e5
    assert index_of(runs, "watch").entries["avg-0"].memory == 0


def test_the_runs_of_a_group_are_those_that_are_drawn(runs):
    with served(runs) as server:
        for ticked, count in (("", 2), ("&run=avg-1", 1)):
            text = get(server, f"table?by=strategy{ticked}")[1]
            assert f'strategy=fedavg</td><td class="number"><data value="{count}">' in text


def test_smoothing_is_the_mean_of_the_last_values():
    assert smoothed([1, 2, 3, 6], 3) == [1, 1.5, 2, 11 / 3]


def test_a_group_is_the_mean_of_its_runs_and_their_spread(runs):
    index = index_of(runs, "watch")
    line = line_of("avg", [index.entries["avg-0"], index.entries["avg-1"]], "accuracy", ROUND)
    mean, spread = (0.7512345678901234 + 0.8125) / 2, (0.8125 - 0.7512345678901234) / 2**0.5
    assert line.y == pytest.approx([0.5, mean])
    assert line.spread == pytest.approx([0, spread])


def test_what_is_not_finite_is_a_gap_of_curves_and_no_part_of_a_mean(tmp_path):
    for seed, accuracies in enumerate(((0.5, nan, inf, 0.75), (0.25, 0.5, 0.5, 0.5))):
        write_run(tmp_path / f"run-{seed}", accuracies, seed=seed, rounds=9)
    index = index_of(tmp_path, "watch")
    line = line_of("both", [*index.entries.values()], "accuracy", ROUND)
    assert (line.x, line.y) == ([1, 4], [0.375, 0.625])
    single = line_of("one", [index.entries["run-0"]], "accuracy", ROUND)
    assert str(single.y) == "[0.5, nan, inf, 0.75]"
    assert smoothed([1, nan, 3], 2)[1:] == [1, 3]
    drawn = data_of([single], 2)["lines"]["ys"]
    assert [str(ys) for ys in drawn] == ["[0.5, nan, nan, 0.75]", "[0.5, 0.5, nan, 0.75]"]


def test_of_sums_nothing_is_said_of_single_sites(tmp_path):
    """Their answers are in no file: none of them is missing."""
    folder = write_run(tmp_path / "run", (0.5, 0.75))
    (folder / "clients.csv").write_text((folder / "clients.csv").read_text().partition("\n")[0] + "\n")
    with served(tmp_path) as server:
        assert "no answer" not in get(server, "sites?of=run")[1]
        said = json.loads(get(server, "heat.json?of=run")[1])["caption"]
    assert said == "accuracy by site and round: nothing is known of single sites"


def test_a_single_round_is_a_dot(tmp_path):
    write_run(tmp_path / "run", (0.5,))
    with served(tmp_path) as server:
        dots = json.loads(get(server, "curves.json?of=run")[1])["data"]["dots"]
        assert "<dt>rounds</dt>" not in get(server, "facts?of=run")[1]
    assert (dots["x"], dots["y"]) == ([1], [0.5])
    change_run(tmp_path / "run", {"rounds": 0})  # a Flower app's: how many there will be is not known
    with served(tmp_path) as server:
        assert _fact(get(server, "facts?of=run")[1], "rounds") == "1"


def test_a_run_that_cannot_be_read_is_not_said_to_have_gone(runs):
    (runs / "avg-0" / "summary.json").write_text("{")
    with served(runs) as server:
        status, text, _ = get(server, "facts?of=avg-0")
    assert status == 404
    assert "summary.json' cannot be read" in text


def test_each_of_twenty_lines_has_a_sign_of_its_own():
    assert len({*swatches(list(map(str, range(20)))).values()}) == 20


def test_what_most_runs_have_is_drawn_and_of_those_that_are_asked_for(runs):
    """A run of an app, the first by its name, has a metric of its own."""
    app = write_run(runs / "app", (0.5,), rounds=1, strategy="own")
    (app / "metrics.csv").write_text("round,first\n1,0.5\n")
    (app / "summary.json").write_text('{"rounds": 1, "mean": {"first": 0.5}, "compared-by": "first"}')
    with served(runs) as server:
        for where, metric in (("", "accuracy"), ("?where=strategy=own", "first")):
            assert f'<option value="{metric}" selected>' in get(server, where)[1]
            assert get(server, f"curves.csv{where}")[1].startswith(f"run,round,{metric},")


def test_an_axis_without_values_is_said(runs):
    with served(runs) as server:
        for axis, said in (("seconds", "accuracy: no values by seconds"), ("round", "accuracy")):
            assert json.loads(get(server, f"curves.json?axis={axis}")[1])["caption"] == said


def test_which_differences_are_real_is_told_by_tests_over_seeds(tmp_path):
    pytest.importorskip("fedbn_flower.study")
    avg, yogi = (0.5, 0.51, 0.52, 0.5, 0.53), (0.8, 0.82, 0.81, 0.79, 0.83)
    for seed in range(5):
        write_run(tmp_path / f"avg-{seed}", (0.25, avg[seed]), seed=seed)
        write_run(tmp_path / f"yogi-{seed}", (0.25, yogi[seed]), seed=seed, strategy="fedyogi")
    write_run(tmp_path / "runs-on", (0.25,), strategy="fedadam")
    for seed in range(5):  # what one that stopped had found by then is no result, as in grid.md
        write_summary(write_run(tmp_path / f"died-{seed}", (0.25,), seed=seed, strategy="fedadam"), 1, 0.25)
    interval = ttest_rel(avg, yogi).confidence_interval()
    with served(tmp_path) as server:
        status, text, _ = get(server, "real")
        assert get(server, "real?where=strategy=fedavg")[1] == ""
    assert status == 200
    assert f">-29.8 ({100 * interval.low:.1f} to {100 * interval.high:.1f})</td>" in text
    assert "Marked *: fedyogi, which is best; fedavg" in text
    assert "is worse (paired t-tests over 5 seeds" in text
    assert "fedadam" not in text


@pytest.mark.parametrize(("more", "compared"), [({}, False), ({"columns": "age"}, True)])
def test_runs_on_data_that_have_changed_since_are_not_compared(tmp_path, more, compared):
    """With other columns they are read in another way."""
    pytest.importorskip("fedbn_flower.study")
    for seed in range(5):
        for number, strategy in enumerate(("fedavg", "fedyogi")):
            keys = (more if number else {}) | {"dataset": "patients.csv", "data": f"state {number}"}
            accuracy = 0.5 + 0.1 * number + 0.01 * seed * (1 + number)
            write_run(tmp_path / f"{strategy}-{seed}", (0.25, accuracy), strategy=strategy, seed=seed, **keys)
    with served(tmp_path) as server:
        text = get(server, "real")[1]
    assert ("paired t-tests over 5 seeds" in text) is compared
    assert ("Runs on different data are not compared with each other." in text) is not compared


def test_many_groups_are_not_tested(runs, monkeypatch):
    pytest.importorskip("fedbn_flower.study")
    monkeypatch.setattr("fedbn_flower.watch.page.MOST_LINES", 1)
    write_run(runs / "yogi", strategy="fedyogi")
    with served(runs) as server:
        assert "These are 2 groups of runs that differ only in their seed" in get(server, "real")[1]
    monkeypatch.setattr("fedbn_flower.annexes.is_present", lambda name: name != "study")
    with served(runs) as server:
        assert get(server, "real")[:2] == (200, "")


@pytest.mark.parametrize(("mode", "shown"), [("off", None), ("plain", "2 to 3, unmasked")])
def test_of_how_many_clients_sums_are(tmp_path, mode, shown):
    """Of a run that goes on, as its rounds say; of one that has ended, as its summary does."""
    keys = {"secagg": mode, "secagg-min": 2}
    folder = write_run(tmp_path / "run", (0.5,), rounds=3, names=(*SITES, "third"), **keys)
    add_round(folder, 2, 0.5, names=SITES)
    add_round(folder, 3, 0.5, names=())  # no sum
    with served(tmp_path) as server:
        assert _fact(get(server, "facts?of=run")[1], "clients in a sum, 2 at least") == shown
    summary = {"rounds": 3, "extensions": {"secagg": {"mode": mode, "sums-of": [2, 3]}}}
    (folder / "summary.json").write_text(json.dumps(summary))
    with served(tmp_path) as server:
        assert _fact(get(server, "facts?of=run")[1], "clients in a sum, 2 at least") == shown


def _fact(text, name):
    found = re.search(rf"<dt>{name}</dt><dd><data[^>]*>([^<]*)<", text)
    return found and found[1]


def test_a_site_that_is_behind_and_what_was_refused_are_named(runs):
    add_round(runs / "avg-0", 3, 0.875, names=SITES[:1])
    append(runs / "avg-0" / "failures.csv", [(2, "train", 1, "no answer within 5 s")])
    with served(runs) as server:
        text = get(server, "sites?of=avg-0")[1]
    assert "no answer for 1 round" in text
    assert "no answer within 5 s" in text


def test_the_page_of_a_run_has_its_latest_rounds(tmp_path):
    write_run(tmp_path / "long", [0.5] * 53, rounds=60)
    with served(tmp_path) as server:
        text = get(server, "rounds?of=long")[1]
    assert "The last 50 rounds" in text
    rows = text.split("<tr>")[2:]
    assert [re.search(r'value="(\d+)', row)[1] for row in (rows[0], rows[-1])] == ["53", "4"]
