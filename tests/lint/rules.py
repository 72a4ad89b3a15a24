"""The rules of the house as tables (docs/architecture.md has the reasons)."""
import re

TOP_LEVEL = ("csrc", "kernels", "plugin", "include", "tests", "docker", "docs")
SKIPPED_FOLDERS = {"build", ".venv", "runs", ".git", "__pycache__"}

# Which folders a folder's sources may include; its own is always allowed. The longest matching key holds.
ARROWS = {
    "include": (),
    "kernels": (),
    "csrc": ("include",),
    "csrc/base": ("include",),
    "csrc/measure": ("include", "kernels/launch.h"),
    "csrc/measure/simd": (),
    "csrc/probe": ("include",),
    "csrc/circuits": ("include",),
    "csrc/weights": ("include",),
    # The exporter has no arrow of its own: each of its sources lies in one of these folders.
    "csrc/exporter/common": ("include",),
    "csrc/exporter/metrics": ("include", "csrc/exporter/common"),
    "csrc/exporter/http": ("include", "csrc/exporter/common"),
    "csrc/exporter/history": ("include", "csrc/exporter/common"),
    "csrc/exporter/terminal": ("include", "csrc/exporter/common"),
    "csrc/exporter/page": ("include", "csrc/exporter/common", "csrc/exporter/http", "csrc/exporter/history"),
    "csrc/exporter/servers": ("include", "csrc/exporter/common", "csrc/exporter/metrics", "csrc/exporter/http",
                              "csrc/exporter/history", "csrc/exporter/page"),
    "csrc/monitor": ("include", "csrc/measure", "csrc/probe", "csrc/circuits"),
    "csrc/monitor/edge": ("include",),
    "csrc/monitor/steps": ("include", "csrc/monitor/edge", "csrc/monitor/taps"),
    "csrc/monitor/taps": ("include", "csrc/measure", "csrc/probe", "csrc/monitor/edge"),
    "csrc/monitor/analysis": ("include", "csrc/measure", "csrc/probe", "csrc/monitor/edge", "csrc/monitor/taps"),
    "csrc/monitor/passes": ("include", "csrc/probe", "csrc/monitor/edge", "csrc/monitor/taps", "csrc/monitor/steps",
                            "csrc/monitor/analysis"),
    "plugin/torch": ("include", "csrc/monitor"),
    "plugin/cli": ("include",),
    "plugin/python": ("include",),
    "plugin/examples": ("include",),
    "tests": ("include", "csrc", "kernels", "plugin"),
    # The emulation stands in for CUDA below the kernels: neither knows the rest of the project.
    "tests/emulation": ("kernels",),
}

# Doubles and strings only: no torch header may be reached from here. Of the public headers this is asked of those that
# others here include.
TORCH_FREE = (
    "kernels/",
    "csrc/base/",
    "csrc/circuits/",
    "csrc/exporter/",
    "csrc/measure/simd/",
    "plugin/cli/",
    "include/headscope/",
    "tests/emulation/",
)
TORCH_INCLUDE = re.compile(r"^(ATen|c10|torch|caffe2)/")
# 35 s a file to compile: never, narrow headers are enough.
UMBRELLA_HEADERS = ("torch/torch.h", "torch/all.h", "torch/extension.h")

# What docs/architecture.md has a recipe for.
RECIPES = ("pattern", "figure", "operator", "sink", "alert")

CODE = (".cpp", ".h", ".cu", ".cuh")
COUNTED = CODE + (".py", ".sh", ".js", ".css", ".html", ".cmake")
LONGEST_FILE = 500

# clang-format leaves comments alone, and Markdown too.
LONGEST_LINE = dict.fromkeys(CODE, 100) | {".md": 120}
WRITTEN_BY_PROGRAM = re.compile(r"<!-- (\S[^\n]*):begin -->\n.*?<!-- \1:end -->", re.DOTALL)
ADDRESS = re.compile(r"https?://\S{60}")

# Spelt apart, so that this file passes its own rule.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
ONE_MACHINE = re.compile(
    r"(?<![\w.$}/-])/(?:ro" r"ot|ho" r"me|wo" r"rk|Us" r"ers)/\w|py" r"pi\.org|python" r"hosted\.org|deb\.deb" r"ian\.org")


def is_torch_free(path):
    """path: relative to the project, with forward slashes."""
    return path.startswith(TORCH_FREE)


def arrow_of(path):
    """The key of ARROWS that holds for a file, or None. `csrc` itself is not a licence for new folders below it."""
    keys = [key for key in ARROWS if path.startswith(key + "/") and (key != "csrc" or path.count("/") == 1)]
    return max(keys, key=len, default=None)
