"""Users' projects against an installed headscope: consumer_test.py STEP --build FOLDER --torch FOLDER.

`install` fills FOLDER/tests/installed/prefix, which the other steps build against; so do no two `install`s at once.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Of programs that run beside other tests.
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
# What libheadscope.so is made with and its users need nothing of.
PRIVATE = re.compile(r"prometheus-cpp|civetweb|sqlite|nlohmann|headscope_options|headscope_circuits", re.IGNORECASE)


def run(command, check=True, **more):
    command = [str(part) for part in command]
    print("+", " ".join(command), flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    print(done.stdout + done.stderr, end="", flush=True)
    if check and done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}")
    return done


def require(good, what):
    if not good:
        sys.exit(f"failed: {what}")


class Consumer:
    def __init__(self, build, torch, cxx):
        self.build, self.torch, self.cxx = build, torch, cxx
        self.work = build / "tests" / "installed"
        self.prefix = self.work / "prefix"

    def install(self):
        """Into a staging folder, then moved: nothing of it may name where it was made."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        stage = self.work / "stage"
        run(["cmake", "--install", self.build, "--prefix", "/opt/headscope"], env={**os.environ, "DESTDIR": str(stage)})
        shutil.move(stage / "opt" / "headscope", self.prefix)
        files = [path for path in self.prefix.rglob("*") if path.is_file()]
        for path in files:
            data = path.read_bytes()
            for folder in (ROOT, self.build, self.torch, stage):
                require(str(folder).encode() not in data, f"{path} names {folder}")
            if path.suffix in (".cmake", ".pc"):
                require(not (found := PRIVATE.search(data.decode())), f"{path} names {found and found[0]}")
        headers = {path.name for path in (ROOT / "include" / "headscope").iterdir()}
        require({path.name for path in files if path.suffix == ".h"} == headers, "all public headers are installed")
        library = self.prefix / "lib" / "libheadscope.so"
        version = re.search(r'HEADSCOPE_VERSION "(.+)"', (ROOT / "include/headscope/version.h").read_text())[1]
        dynamic = run(["readelf", "-d", library]).stdout
        require(f"[libheadscope.so.{'.'.join(version.split('.')[:2])}]" in dynamic, "the soname is of the version")
        run([self.prefix / "bin" / "headscope", "--help"], env={"PATH": "/usr/bin:/bin"})

    def configure(self, name, source, *settings, check=True):
        # Not the generator nor the flags of whoever calls; -O0, for what is compiled here runs for a second.
        settings = [f"-DCMAKE_CXX_COMPILER={self.cxx}", "-DCMAKE_CXX_FLAGS=-O0", *settings]
        if launcher := shutil.which("ccache"):
            settings.append(f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}")
        return run(["cmake", "-G", "Ninja", "-S", source, "-B", self.work / name, *settings], check=check)

    def cmake(self):
        """find_package(Torch) from CMAKE_PREFIX_PATH; where the toolkit of a CUDA torch is missing, HEADSCOPE_TORCH_DIR."""
        paths = f"-DCMAKE_PREFIX_PATH={self.prefix};{self.torch}"
        found = self.configure("cmake", ROOT / "tests/consumer/cmake", paths, check=False)
        if found.returncode and (self.torch / "lib" / "libtorch_cuda.so").exists():
            print("find_package(Torch) needs a CUDA toolkit here: HEADSCOPE_TORCH_DIR instead")
            self.configure("cmake", ROOT / "tests/consumer/cmake", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                           f"-DHEADSCOPE_TORCH_DIR={self.torch}")
        else:
            require(found.returncode == 0, "the project can be configured")
            cache = (self.work / "cmake" / "CMakeCache.txt").read_text()
            require(f"Torch_DIR:PATH={self.torch}/share/cmake/Torch" in cache, "torch comes from CMAKE_PREFIX_PATH")
        run(["cmake", "--build", self.work / "cmake"])
        self.expect_trained(self.work / "cmake" / "trainer")

    def pkgconfig(self):
        folder = self.work / "pkgconfig"
        folder.mkdir(exist_ok=True)
        compiler = f"ccache {self.cxx}" if shutil.which("ccache") else self.cxx
        run([ROOT / "tests/consumer/pkgconfig/build.sh", ROOT / "tests/consumer/trainer.cpp", folder / "trainer", self.torch],
            env={**os.environ, "PKG_CONFIG_PATH": str(self.prefix / "lib/pkgconfig"), "CXX": compiler})
        self.expect_trained(folder / "trainer")

    def expect_trained(self, program):
        require("trained, measured and resumed" in run([program], env=ONE_THREAD).stdout, f"{program} trains")

    def refusals(self):
        """A torch of another release, and none at all, are refused in words."""
        other = self.work / "other_torch"
        header = other / "include/torch/headeronly/version.h"
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text("#define TORCH_VERSION_MAJOR 9\n#define TORCH_VERSION_MINOR 8\n#define TORCH_VERSION_PATCH 7\n")
        (other / "lib").mkdir(exist_ok=True)
        (other / "lib/libtorch_cpu.so").touch()
        for torch, words in ((other, "is torch 9.8.7"), (self.work / "nowhere", "no torch found")):
            refused = self.configure("refused", ROOT / "tests/consumer/cmake", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                                     f"-DHEADSCOPE_TORCH_DIR={torch}", check=False)
            require(refused.returncode != 0, f"{torch} is refused")
            require(words in " ".join(refused.stderr.split()), f"the refusal says '{words}'")

    def howto(self):
        """The blocks of docs/howto/attach_cpp.md, as files in the order of the text, built and run."""
        folder = self.work / "howto"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        text = (ROOT / "docs/howto/attach_cpp.md").read_text()
        for language, name in (("cmake", "CMakeLists.txt"), ("cpp", "trainer.cpp")):
            blocks = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
            require(blocks, f"the text has {language} blocks")
            (folder / name).write_text("\n".join(blocks))
        self.configure("howto/build", folder, f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DHEADSCOPE_TORCH_DIR={self.torch}")
        run(["cmake", "--build", folder / "build"])
        program = subprocess.Popen([folder / "build" / "trainer"], cwd=folder, env=ONE_THREAD)
        scraped = ""
        while program.poll() is None:
            try:
                url = (folder / "runs/first/endpoint").read_text().strip()
                with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
                    scraped = answer.read().decode()
            except OSError:
                pass
            time.sleep(0.05)
        require(program.wait() == 0, "the trainer of the how-to ends well")
        require("headscope_head_participation_ratio" in scraped, "its metrics can be scraped while it trains")
        history = subprocess.run([self.prefix / "bin/headscope", "history", folder / "runs/first"],
                                 capture_output=True, text=True, check=True).stdout
        require("induction" in history, "its history can be read")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("install", "cmake", "pkgconfig", "refusals", "howto"))
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--torch", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", default="c++")
    arguments = parser.parse_args()
    getattr(Consumer(arguments.build, arguments.torch, arguments.compiler), arguments.step)()


if __name__ == "__main__":
    main()
