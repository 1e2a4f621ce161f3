"""Chromium without a window, spoken to by its DevTools protocol."""

import asyncio
import json
import re
import shutil
import subprocess

import pytest
from tornado.websocket import websocket_connect

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
IN_A_BROWSER = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")]
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run")
NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"


class Browser:
    """A page of a browser that reaches only this machine; ``asked`` are the addresses that it asked for."""

    def __init__(self, folder):
        command = [BROWSER, *FLAGS, NO_NETWORK, f"--user-data-dir={folder}", "about:blank"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        said = next(line for line in self.process.stderr if "DevTools listening" in line)
        port = re.search(r":(\d+)/", said)[1]
        self.loop, self.number, self.asked, self.console = asyncio.new_event_loop(), 0, [], []
        self.socket = self.loop.run_until_complete(self._connect(port))
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    async def _connect(self, port):
        from tornado.httpclient import AsyncHTTPClient

        listed = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{port}/json/list")
        page = next(one for one in json.loads(listed.body) if one["type"] == "page")
        return await websocket_connect(page["webSocketDebuggerUrl"], max_message_size=2**27)

    def call(self, method, **parameters):
        return self.loop.run_until_complete(self._call(method, parameters))

    async def _call(self, method, parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        await self.socket.write_message(json.dumps(message))
        while True:
            answer = json.loads(await asyncio.wait_for(self.socket.read_message(), 60))
            if answer.get("method") == "Network.requestWillBeSent":
                self.asked.append(answer["params"]["request"]["url"])
            if answer.get("method") == "Runtime.exceptionThrown":
                self.console.append(answer["params"]["exceptionDetails"])
            if answer.get("id") == self.number:
                return answer["result"]

    def open(self, address):
        self.call("Page.navigate", url=address)

    def run(self, script):
        """The value of an expression, awaited."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, condition):
        """Wait in the page until an expression is true, and return its value; fail after a minute."""
        return self.run(
            "(async () => { for (let i = 0; i < 1200; i++) { let found; try { found = ("
            + condition
            + "); } catch (error) { found = null; } if (found) return found; "
            "await new Promise(done => setTimeout(done, 50)); } "
            "throw new Error('never: ' + document.body.innerText.slice(0, 2000)); })()"
        )

    def close(self):
        self.call("Browser.close")
        self.process.wait(timeout=30)
        self.process.stderr.close()
        self.loop.close()
