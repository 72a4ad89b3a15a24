"""The images and the compose file keep the rules of the house; the entry scripts work outside a container too."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import alert_rules

sys.path.insert(0, str(alert_rules.ROOT / "tests" / "support"))
from needs import need  # noqa: E402
from ports import free_port  # noqa: E402

DOCKER = alert_rules.ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
COMPOSE = (DOCKER / "compose.yaml").read_text()
# A tag that names one build: a version of three numbers, or a date.
PINNED = re.compile(r"^[\w./-]+:(?=.*(\d+\.\d+\.\d+|\d{8}))[\w.-]+$")
SECRET = re.compile(r"(?i)(password|passwd|secret|token|api_?key)\w*\s*[:=]\s*[\"']?(?!\$|true|false)\w")


def instructions(file):
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [line.split(None, 1) for line in text.splitlines() if line.strip()]


class Images(unittest.TestCase):
    def test_there_is_one_for_the_cpu_and_one_for_cuda(self):
        self.assertEqual([file.name for file in DOCKERFILES], ["cpu.Dockerfile", "cuda.Dockerfile"])

    def test_bases_are_pinned(self):
        for file in DOCKERFILES:
            bases = [words.split()[0] for name, words in instructions(file) if name == "FROM"]
            self.assertEqual(len(bases), 2, file)
            for base in bases:
                self.assertRegex(base, PINNED)
        self.assertIsNone(PINNED.match("debian:latest"))
        self.assertIsNone(PINNED.match("debian"))

    def test_they_run_as_nobody_special(self):
        for file in DOCKERFILES:
            users = [words for name, words in instructions(file) if name == "USER"]
            self.assertEqual(users, ["10001:10001"], file)
            order = [name for name, _ in instructions(file)]
            self.assertGreater(order.index("ENTRYPOINT"), order.index("USER"), file)

    def test_nothing_secret_and_nothing_fetched_from_elsewhere(self):
        for file in [*DOCKERFILES, DOCKER / "compose.yaml"]:
            self.assertIsNone(SECRET.search(file.read_text()), file)
            for name, words in map(lambda i: (i[0], i[1] if len(i) > 1 else ""), instructions(file)):
                self.assertNotEqual(name, "ADD", file)
                self.assertNotRegex(words if name == "RUN" else "", r"curl .*http|wget ", file)
        self.assertIsNotNone(SECRET.search("PASSWORD=x"))

    def test_they_share_entry_and_health_check_which_exist(self):
        for file in DOCKERFILES:
            said = dict(i for i in instructions(file) if i[0] in ("ENTRYPOINT", "HEALTHCHECK"))
            self.assertEqual(said["ENTRYPOINT"], '["/opt/headscope/bin/demo.sh"]')
            self.assertIn("/opt/headscope/bin/healthy.sh", said["HEALTHCHECK"])
        for script in ("demo.sh", "healthy.sh"):
            self.assertTrue(os.access(DOCKER / script, os.X_OK), script)

    def test_the_last_stage_has_neither_compiler_nor_sources(self):
        for file in DOCKERFILES:
            last = file.read_text().rsplit("\nFROM ", 1)[1]
            self.assertNotRegex(last, r"g\+\+|cmake|ninja|COPY \. ", file)


class Compose(unittest.TestCase):
    def services(self):
        text = COMPOSE.split("\nservices:\n")[1].split("\nvolumes:\n")[0]
        return dict(zip(*[iter(re.split(r"^  (\w+):\n", text, flags=re.MULTILINE)[1:])] * 2))

    def test_images_are_pinned(self):
        for name, body in self.services().items():
            image = re.search(r"image: (\S+)", body)[1]
            if name == "demo":
                self.assertEqual(image, "headscope:cpu")
            else:
                self.assertRegex(image, PINNED)

    def test_ports_are_on_the_loopback(self):
        ports = re.findall(r'ports: \["([^"]+)"\]', COMPOSE)
        self.assertEqual(len(ports), 4)
        self.assertEqual(COMPOSE.count("ports:"), 4)  # none in another notation
        for port in ports:
            self.assertTrue(port.startswith("127.0.0.1:"), port)

    def test_services_are_confined_and_checked(self):
        services = self.services()
        self.assertEqual(set(services), {"demo", "prometheus", "alertmanager", "webhook", "grafana"})
        for name, body in services.items():
            self.assertIn("<<: *confined", body, name)
            if name != "demo":  # its image has both
                self.assertRegex(body, r"\n    healthcheck:", name)
                self.assertRegex(body, r'\n    user: "\d+:\d+"', name)

    def test_mounted_files_exist(self):
        for path in re.findall(r"(?<=[\" ])\./([\w./-]+):/", COMPOSE):
            self.assertTrue((DOCKER / path).exists(), path)

    def test_the_run_answers_to_the_name_that_prometheus_asks_for(self):
        target = re.search(r"[\w.]+:\d+", (DOCKER / "prometheus/targets/demo.yml").read_text())[0]
        self.assertEqual(target, re.search(r"hostname: (\w+)", self.services()["demo"])[1] + ":9464")
        for file in DOCKERFILES:
            self.assertIn(["EXPOSE", "9464"], instructions(file))

    def test_the_client_takes_it(self):
        with contextlib.suppress(OSError):
            if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
                done = subprocess.run(["docker", "compose", "-f", DOCKER / "compose.yaml", "config", "--quiet"],
                                      capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                return
        self.skipTest("no docker compose client here")


class Kubernetes(unittest.TestCase):
    """The example of a Service and its ServiceMonitor, field by field: no operator runs here."""

    def setUp(self):
        parts = (DOCKER / "kubernetes/servicemonitor.yaml").read_text().split("\n---\n")
        self.assertEqual(len(parts), 2)
        self.service, self.monitor = parts

    def test_the_monitor_selects_the_service_and_its_port(self):
        self.assertRegex(self.service, r"\nkind: Service\n")
        self.assertRegex(self.monitor, r"^apiVersion: monitoring\.coreos\.com/v1\nkind: ServiceMonitor\n")
        label = re.search(r"\n  labels:\n    (\w+: \w+)\n", self.service)[1]
        self.assertIn(f"\n    matchLabels:\n      {label}\n", self.monitor)
        port = re.search(r"\n    - name: (\w+)\n      port: 9464\n      targetPort: 9464", self.service)[1]
        self.assertIn(f"\n    - port: {port}\n      path: /metrics\n", self.monitor)

    def test_the_job_has_the_name_that_the_alerts_ask_for(self):
        label = re.search(r"\n  jobLabel: (\w+)", self.monitor)[1]
        job = re.search(rf"\n  labels:\n    {label}: (\w+)\n", self.service)[1]
        for rule in ("HeadscopeScrapeDown", "HeadscopeScrapeAbsent"):
            self.assertIn(f'up{{job="{job}"}}', alert_rules.alerts()[rule].expression())
        self.assertIn(f"job_name: {job} ", (DOCKER / "prometheus/prometheus.yml").read_text())


TRAINER = """#!/usr/bin/env bash
trap 'echo stopped > "$HEADSCOPE_RUNS/signal"; exit 7' TERM
printf '%s\\n' "$@" > "$HEADSCOPE_RUNS/arguments"
[ -z "${STAY:-}" ] || while :; do sleep 0.05; done
exit 3
"""
COMMAND = """#!/usr/bin/env bash
echo "$*" > "$HEADSCOPE_RUNS/command"
echo 'headscope_step 7'
"""


class EntryScripts(unittest.TestCase):
    """demo.sh and healthy.sh as the images run them, with a stand-in for the trainer."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.base = pathlib.Path(folder.name)
        for name, text in (("attention_only_lm", TRAINER), ("headscope", COMMAND)):
            (self.base / name).write_text(text)
            (self.base / name).chmod(0o755)
        self.environment = {"PATH": os.environ["PATH"], "HEADSCOPE_BIN": str(self.base), "HEADSCOPE_RUNS": str(self.base)}

    def start(self, *arguments, **environment):
        process = subprocess.Popen([DOCKER / "demo.sh", *arguments], env={**self.environment, **environment},
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        """Ends what the script has started too, if it is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def test_arguments_and_exit_status_pass_through(self):
        process = self.start("--steps", "5 6", HEADSCOPE_CORPUS="/text")
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 3)
        self.assertEqual((self.base / "arguments").read_text().splitlines(),
                         ["--listen", "0.0.0.0:9464", "--run-dir", f"{self.base}/demo", "--corpus", "/text",
                          "--steps", "5 6"])

    def test_sigterm_reaches_the_trainer_with_and_without_a_gateway(self):
        for gateway in ({}, {"HEADSCOPE_PUSHGATEWAY": "http://127.0.0.1:9"}):
            (self.base / "arguments").unlink(missing_ok=True)
            (self.base / "signal").unlink(missing_ok=True)
            process = self.start(STAY="1", **gateway)
            deadline = time.monotonic() + 30
            while not (self.base / "arguments").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            _, complaint = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 7, complaint)
            self.assertTrue((self.base / "signal").exists())
            self.assertEqual("could not be pushed" in complaint, bool(gateway))
            if gateway:
                self.assertEqual((self.base / "command").read_text(), f"metrics {self.base}/demo\n")

    def test_healthy_asks_the_published_endpoint(self):
        need(shutil.which("curl"), "curl is not installed")
        port = free_port()
        ask = lambda: subprocess.run([DOCKER / "healthy.sh"], env=self.environment, capture_output=True).returncode
        self.assertNotEqual(ask(), 0)  # no endpoint
        (self.base / "demo").mkdir()
        (self.base / "demo" / "endpoint").write_text(f"http://127.0.0.1:{port}\n")
        self.assertNotEqual(ask(), 0)  # nobody there
        server = subprocess.Popen([sys.executable, DOCKER / "webhook.py"], env={**self.environment, "PORT": str(port)},
                                  stdout=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + 30
            while ask() != 0 and time.monotonic() < deadline:
                time.sleep(0.1)
            self.assertEqual(ask(), 0)
            body = (b'{"alerts":[{"status":"firing","labels":{"alertname":"A"},"annotations":{"summary":"two\\nlines"}}]}')
            urllib.request.urlopen(f"http://127.0.0.1:{port}/page", data=body)
            self.assertEqual(server.stdout.readline(), "/page firing A: two\\nlines\n")
            with self.assertRaises(urllib.error.HTTPError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/page", data=b"no json")
        finally:
            server.terminate()
            server.wait()
            server.stdout.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
