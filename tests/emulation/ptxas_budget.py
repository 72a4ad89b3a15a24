"""What each kernel takes of the device, as ptxas reports it, held against ptxas_budget.json.

  ptxas_budget.py record COMMAND...   runs a compiler, keeps what ptxas said in <object>.ptxas
  ptxas_budget.py check [FOLDER [ARCHITECTURE]...]
                                      compares the records below FOLDER with the budget, of the architectures that
                                      were compiled and at least of those named; 77 without a folder
  ptxas_budget.py write FOLDER        writes the budget from the records; what was not compiled stays as it is

The budget gives registers and static shared bytes for every kernel and architecture; spills and stack must be 0.
"""
import json
import os
import pathlib
import re
import subprocess
import sys

BUDGET = pathlib.Path(__file__).with_name("ptxas_budget.json")
ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\w+)' for '(?P<arch>sm_\d+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?:[^\n]*?(?P<shared>\d+) bytes smem)?", re.DOTALL)
CHATTER = re.compile(r"^(ptxas info|\s+\d+ bytes stack frame)")
# ptxas of another release allocates a little differently.
SLACK_REGISTERS = 8


def record(command):
    run = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    said = run.stderr.splitlines(keepends=True)
    sys.stderr.writelines(line for line in said if not CHATTER.match(line))
    if run.returncode == 0 and "-o" in command:
        pathlib.Path(command[command.index("-o") + 1] + ".ptxas").write_text(run.stderr)
    return run.returncode


def entries(text):
    for match in ENTRY.finditer(text):
        values = {key: int(match[key] or 0) for key in ("registers", "shared", "stack", "stores", "loads")}
        yield match["name"], match["arch"], values


def records(folder):
    found = [entry for path in sorted(folder.rglob("*.ptxas")) for entry in entries(path.read_text())]
    names = sorted({name for name, _, _ in found})
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()
    readable = {name: re.sub(r"^void |headscope::kernels::|\(.*$", "", text) for name, text in zip(names, plain)}
    return [(readable[name], arch, values) for name, arch, values in found]


def breaches(found, budget, wanted=()):
    """What breaks the budget, a line each. wanted: architectures that must have been compiled."""
    broken, seen = [], set()
    for name, arch, values in found:
        seen.add((name, arch))
        where = f"{name} on {arch}"
        for what in ("stack", "stores", "loads"):
            if values[what]:
                broken.append(f"{where}: {values[what]} bytes of {'stack' if what == 'stack' else 'spill ' + what}")
        allowed = budget.get(name, {}).get(arch)
        if allowed is None:
            broken.append(f"{where}: is not in the budget")
            continue
        if values["registers"] > allowed["registers"] + SLACK_REGISTERS:
            broken.append(f"{where}: {values['registers']} registers, budget {allowed['registers']}")
        if values["shared"] > allowed["shared"]:
            broken.append(f"{where}: {values['shared']} bytes of shared memory, budget {allowed['shared']}")
    built = {arch for _, arch, _ in found} | set(wanted)
    broken += [f"{name} on {arch}: was not compiled" for name, architectures in budget.items() for arch in architectures
               if arch in built and (name, arch) not in seen]
    return broken


def main():
    mode, rest = sys.argv[1], [argument for argument in sys.argv[2:] if argument]
    if mode == "record":
        return record(rest)
    if not rest:
        print("skipped: built without nvcc")
        return 1 if os.environ.get("CI") else 77  # where CI is set nothing may be missing
    found = records(pathlib.Path(rest[0]))
    if mode == "write":
        compiled = {arch for _, arch, _ in found}
        others = {name: {arch: values for arch, values in architectures.items() if arch not in compiled}
                  for name, architectures in json.loads(BUDGET.read_text()).items()}
        budget = {name: architectures for name, architectures in others.items() if architectures}
        for name, arch, values in found:
            budget.setdefault(name, {})[arch] = {key: values[key] for key in ("registers", "shared")}
        lines = [f"  {json.dumps(name)}: {json.dumps(budget[name], sort_keys=True)}" for name in sorted(budget)]
        BUDGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return 0
    if not found:
        print(f"{rest[0]} holds no record of a compiled kernel")
        return 1
    broken = breaches(found, json.loads(BUDGET.read_text()), rest[1:])
    print("\n".join(broken) or f"kept: {len(found)} kernels of {', '.join(sorted({arch for _, arch, _ in found}))}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
