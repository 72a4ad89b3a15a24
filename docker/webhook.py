"""Prints the alerts that Alertmanager posts, one line each: a stand-in for a pager. Listens on $PORT (8080)."""
import http.server
import json
import os


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        try:
            alerts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"]
            lines = [f"{self.path} {alert['status']} {alert['labels']['alertname']}: {alert['annotations']['summary']}"
                     for alert in alerts]
        except (KeyError, TypeError, ValueError):
            self.send_error(400)
            return
        for line in lines:
            print(line.encode("unicode_escape").decode(), flush=True)
        self.send_response(200)
        self.end_headers()

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("", int(os.environ.get("PORT", "8080"))), Handler).serve_forever()
