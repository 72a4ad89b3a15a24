"""Real Prometheus and Alertmanager on the shipped configuration, in a hurry, and a webhook that listens."""

import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from ports import free_port  # noqa: E402

# A minute of the shipped files is a second here.
HURRY = 60
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def hurried(text):
    """The shipped rules or configuration with every duration divided by HURRY, and at least a second. Nothing else
    changes: thresholds, expressions and routes are the shipped ones."""
    def shorter(found):
        return f"{found[1]}{max(1, round(int(found[2]) * SECONDS[found[3]] / HURRY))}s"
    return re.sub(r"((?:for|\w*_interval|group_wait): |\[|offset )(\d+)([smhd])\b", shorter, text)


def have_servers():
    return all(map(shutil.which, ("prometheus", "alertmanager")))


class Webhook:
    """Keeps what Alertmanager posts: (path, alert) pairs."""

    def __init__(self):
        received = self.received = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                received.extend((self.path, alert) for alert in body["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def firing(self, name):
        """The paths at which the alert arrived as firing, and the alerts."""
        return [(path, alert) for path, alert in list(self.received)
                if alert["labels"]["alertname"] == name and alert["status"] == "firing"]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Stack:
    """Scrapes one target (host:port) with the shipped files."""

    def __init__(self, target):
        self.folder = tempfile.TemporaryDirectory()
        self.base = pathlib.Path(self.folder.name)
        self.processes = []
        self.webhook = Webhook()
        self.prometheus, self.alertmanager = free_port(), free_port()
        self.start_alertmanager()
        self.start_prometheus(target)

    def start_alertmanager(self):
        text = hurried((ROOT / "docker/alertmanager/alertmanager.yml").read_text())
        file = self.base / "alertmanager.yml"
        file.write_text(text.replace("webhook:8080", f"127.0.0.1:{self.webhook.port}"))
        self.start("alertmanager", f"--config.file={file}", f"--storage.path={self.base / 'alerts'}",
                   f"--web.listen-address=127.0.0.1:{self.alertmanager}", "--cluster.listen-address=")

    def start_prometheus(self, target):
        shutil.copytree(ROOT / "docker/prometheus", self.base / "prometheus")
        for file in [self.base / "prometheus/prometheus.yml", *(self.base / "prometheus/rules").glob("*.yml")]:
            file.write_text(hurried(file.read_text()).replace("alertmanager:9093", f"127.0.0.1:{self.alertmanager}"))
        targets = self.base / "prometheus/targets/demo.yml"
        targets.write_text(targets.read_text().replace("demo:9464", target))
        self.start("prometheus", f"--config.file={self.base / 'prometheus/prometheus.yml'}",
                   f"--storage.tsdb.path={self.base / 'series'}", f"--web.listen-address=127.0.0.1:{self.prometheus}",
                   "--alertmanager.notification-queue-capacity=1000", "--log.level=warn")

    def start(self, *command):
        # run.sh's copy of Debian's Alertmanager looks for its templates in the folder where it is started.
        folder = pathlib.Path(shutil.which(command[0])).parent
        with open(self.base / f"{command[0]}.log", "w") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder,
                                                   env={**os.environ, "GOMAXPROCS": "1"}))

    def logs(self):
        return "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in self.base.glob("*.log"))

    def api(self, path, **parameters):
        url = f"http://127.0.0.1:{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        return self.api("query", query=expression)["result"]

    def wait_for(self, what, condition, timeout=120):
        """Until the condition is true; what it raises while servers start counts as not yet."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if dead := [process.args[0] for process in self.processes if process.poll() is not None]:
                raise AssertionError(f"{dead} ended\n{self.logs()}")
            with contextlib.suppress(OSError):
                if result := condition():
                    return result
            time.sleep(0.2)
        raise AssertionError(f"{what} was not seen in {timeout} s\n{self.logs()}")

    def close(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(30)
        self.webhook.close()
        self.folder.cleanup()
