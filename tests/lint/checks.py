"""One function a rule: takes the project's root, returns what breaks the rule as lines of text."""
import ast
import json
import pathlib
import posixpath
import re
import shutil
import subprocess

import rules

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


class Skip(Exception):
    """The check cannot run here; the text says why."""


def files(root, suffixes=None):
    """Project files, relative and sorted."""
    found = []
    for path in sorted(root.iterdir()):
        if path.is_file():
            found.append(path)
        elif path.name in rules.TOP_LEVEL or path.name == ".ci":
            found += [file for file in sorted(path.rglob("*")) if file.is_file()]
    relative = [path.relative_to(root) for path in found]
    return [path for path in relative if not rules.SKIPPED_FOLDERS.intersection(path.parts)
            and (suffixes is None or path.suffix in suffixes)]


def text_of(root, path):
    try:
        return (root / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def includes(root, path):
    """(quote, included path) of a file, quoted ones relative to the project where they lie in it."""
    for quote, target in INCLUDE.findall(text_of(root, path)):
        if (root / "include" / target).exists():
            yield quote, f"include/{target}"
        elif quote == '"' and (root / path.parent / target).exists() and not (root / target).exists():
            yield quote, posixpath.normpath((path.parent / target).as_posix())
        else:
            yield quote, target


def include_arrows(root):
    broken = []
    for path in files(root, rules.CODE):
        key = rules.arrow_of(path.as_posix())
        if key is None:
            broken.append(f"{path}: no arrow is known for this folder (tests/lint/rules.py)")
            continue
        allowed = [key, *rules.ARROWS[key]]
        for quote, target in includes(root, path):
            inside = quote == '"' or target.startswith("include/headscope/")
            if inside and not any(target == rule or target.startswith(rule + "/") for rule in allowed):
                broken.append(f"{path}: may not include {target} (allowed: {', '.join(allowed)})")
    return broken


def torch_headers(root):
    """The public headers that speak of tensors: those that reach torch's."""
    public = {path.as_posix(): [target for _, target in includes(root, path)]
              for path in files(root, (".h",)) if path.parts[:2] == ("include", "headscope")}
    found = set()
    while True:
        more = {path for path, targets in public.items() if path not in found
                and any(rules.TORCH_INCLUDE.match(target) or target in found for target in targets)}
        if not more:
            return found
        found |= more


def is_torch_free(path, with_torch):
    return rules.is_torch_free(path.as_posix()) and path.as_posix() not in with_torch


def torch_includes(root):
    broken, with_torch = [], torch_headers(root)
    for path in files(root, rules.CODE):
        for _, target in includes(root, path):
            if is_torch_free(path, with_torch) and (rules.TORCH_INCLUDE.match(target) or target in with_torch):
                broken.append(f"{path}: is torch-free and may not include {target}")
            if target in rules.UMBRELLA_HEADERS:
                broken.append(f"{path}: {target} costs half a minute to compile; include narrow headers")
    return broken


def public_headers(root, compiler="c++", torch_include=None):
    """Every public header compiles alone; the torch-free ones with no torch on the path."""
    broken, with_torch = [], torch_headers(root)
    for path in files(root, (".h",)):
        if path.parts[:2] != ("include", "headscope"):
            continue
        command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", f"-I{root / 'include'}"]
        if not is_torch_free(path, with_torch):
            command += [f"-isystem{torch_include}", f"-isystem{torch_include}/torch/csrc/api/include"]
        command += ["-include", str(root / path), "-x", "c++", "/dev/null"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            first = next((line for line in run.stderr.splitlines() if "error" in line), run.stderr)
            broken.append(f"{path}: does not compile alone: {first}")
    return broken


def compiled_by(file):
    """The sources that a file of the compile database stands for: itself, or those that a unity file includes."""
    if not file.name.startswith("unity_") or not file.exists():
        return [str(file)]
    return [target for quote, target in INCLUDE.findall(file.read_text()) if quote == '"']


def torch_free_sources(root, build):
    """The build compiled every torch-free source with no torch on its include path."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        for source in compiled_by(pathlib.Path(entry["file"])):
            commands[source] = entry["command"]
    broken = []
    for path in files(root, (".cpp",)):
        if not rules.is_torch_free(path.as_posix()):
            continue
        command = commands.get(str(root / path))
        if command is None:
            broken.append(f"{path}: is not part of the build")
        elif re.search(r"-(?:I|isystem) *\S*torch/include|headscope_(?:aten|nn|torch_tests)\.dir", command):
            broken.append(f"{path}: is compiled with torch on the include path")
    return broken


def torch_free_programs(root, build):
    """The command line starts without loading torch."""
    program = build / "bin" / "headscope"
    dynamic = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    return [f"{program.name}: links {library}" for library in re.findall(r"NEEDED.*\[(lib(?:torch|c10|headscope).*)\]", dynamic)]

def public_functions(root):
    """Qualified names of the functions that the public headers mark with HEADSCOPE_API, and the classes so marked."""
    functions, classes = set(), set()
    for path in files(root, (".h",)):
        if path.parts[:2] != ("include", "headscope") or path.name == "export.h":
            continue
        text = re.sub(r"//[^\n]*", "", text_of(root, path))
        scope, depth, pending = [], 0, None
        for token in re.finditer(r"\b(?:class|struct)\s+(HEADSCOPE_API\s+)?(\w+)[^;{()]*(?=\{)|HEADSCOPE_API\s+([^;{(]*?)(~?\w+|operator\S+)\s*\(|[{}]", text):
            if token[0] == "{":
                depth += 1
                if pending:
                    scope.append((depth, pending))
                    pending = None
            elif token[0] == "}":
                if scope and scope[-1][0] == depth:
                    scope.pop()
                depth -= 1
            elif token[2]:
                pending = token[2]
                if token[1]:
                    classes.add(f"headscope::{token[2]}")
            else:
                functions.add("::".join(["headscope", *(name for _, name in scope), token[4]]))
    return functions, classes


def exported_names(symbols):
    """Names without parameters of demangled functions; data, typeinfo and vtables as they stand."""
    return {re.sub(r"\[abi:\w+\]", "", symbol).partition("(")[0] for symbol in symbols}


def exported_symbols(root, build, symbols=None):
    """The shared library shows what the public headers mark with HEADSCOPE_API, and nothing else."""
    if symbols is None:
        listing = subprocess.run(["nm", "-D", "--defined-only", "-C", build / "lib" / "libheadscope.so"],
                                 capture_output=True, text=True, check=True).stdout
        symbols = [line.split(" ", 2)[2] for line in listing.splitlines()]
    functions, classes = public_functions(root)
    of_classes = {f"{what} for {name}" for name in classes for what in ("typeinfo", "typeinfo name", "vtable")}
    exported = exported_names(symbols)
    broken = [f"libheadscope.so exports {name}, which no public header marks with HEADSCOPE_API"
              for name in sorted(exported - functions - of_classes)]
    return broken + [f"libheadscope.so does not export {name}, which a public header marks with HEADSCOPE_API"
                     for name in sorted(functions - exported)]


def clang_format(root):
    """.clang-format is pinned to version 14: others differ in details."""
    for name in ("clang-format-14", "clang-format"):
        tool = shutil.which(name)
        version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout if tool else ""
        if "version 14." in version:
            break
    else:
        raise Skip("clang-format 14 is not installed")
    sources = [str(path) for path in files(root, rules.CODE)]
    run = subprocess.run([tool, "--dry-run", "--ferror-limit=1", *sources], cwd=root, capture_output=True, text=True, check=False)
    return sorted({line.split(":")[0] + ": not formatted; run clang-format-14 -i" for line in run.stderr.splitlines()
                   if "[-Wclang-format-violations]" in line})


def defined_names(tree):
    """What a module's source binds at its top level, also inside if and try."""
    names, open_nodes = set(), list(tree.body)
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        else:
            names.update(child.id for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store))
            open_nodes += [child for child in ast.walk(node) if isinstance(child, ast.stmt) and child is not node]
    return names


def python_imports(root):
    """What a script imports from another one of the project is defined there."""
    trees = {path: ast.parse(text_of(root, path)) for path in files(root, (".py",))}
    modules = {}
    for path in trees:
        modules.setdefault(path.stem, []).append(path)
    broken = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or node.level or node.module not in modules:
                continue
            known = set().union(*(defined_names(trees[module]) for module in modules[node.module]))
            broken += [f"{path}:{node.lineno}: {node.module} has no {alias.name}" for alias in node.names
                       if alias.name not in known and alias.name != "*"]
    return broken


def file_lengths(root):
    broken = []
    for path in files(root, rules.COUNTED):
        lines = text_of(root, path).count("\n")
        if lines > rules.LONGEST_FILE:
            broken.append(f"{path}: {lines} lines, more than {rules.LONGEST_FILE}; split it by idea")
    return broken


def line_lengths(root):
    """Lines of C++ and Markdown, but for addresses and what a program writes between its marks."""
    broken = []
    for path in files(root, tuple(rules.LONGEST_LINE)):
        longest = rules.LONGEST_LINE[path.suffix]
        text = rules.WRITTEN_BY_PROGRAM.sub(lambda found: "\n" * found[0].count("\n"), text_of(root, path))
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > longest and not rules.ADDRESS.search(line):
                broken.append(f"{path}:{number}: {len(line)} columns, more than {longest}")
    return broken


def words(root):
    """Neither unfinished marks nor paths and hosts of one machine."""
    broken = []
    for path in files(root):
        if path.parts[:3] == ("plugin", "examples", "data"):
            continue
        for number, line in enumerate(text_of(root, path).splitlines(), 1):
            for rule, what in ((rules.UNFINISHED, "unfinished mark"), (rules.ONE_MACHINE, "path or host of one machine")):
                if match := rule.search(line):
                    broken.append(f"{path}:{number}: {what}: {match[0]}")
    return broken


def anchors(text):
    """The anchors that a Markdown text's headings get."""
    headings = re.findall(r"^#+\s+(.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links(root):
    broken = []
    for path in files(root, (".md",)):
        for pair in LINK.findall(FENCE.sub("", text_of(root, path))):
            target, _, anchor = (pair[0] or pair[1]).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            file = (root / path.parent / target).resolve() if target else root / path
            if not file.exists():
                broken.append(f"{path}: links to {target}, which does not exist")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
                broken.append(f"{path}: links to #{anchor}, which {file.name} does not have")
    return broken


def recipes(root):
    """The recipes of docs/architecture.md name files and folders that are there; <name> stands for what is new."""
    text = text_of(root, pathlib.Path("docs/architecture.md"))
    _, _, section = text.partition("\n## Where to add things\n")
    section = section.partition("\n## ")[0]
    kinds = re.findall(r"^### .+$", section, re.MULTILINE)
    broken = [f"docs/architecture.md: no recipe for {kind} under 'Where to add things'" for kind in rules.RECIPES
              if not any(kind in heading for heading in kinds)]
    for path in re.findall(r"`([\w./<>-]+/[\w./<>-]*)`", section):
        known = path.partition("<")[0].rpartition("/")[0] if "<" in path else path
        if not (root / known).exists():
            broken.append(f"docs/architecture.md: a recipe names {path}, and there is no {known}")
    return broken


def shell_syntax(root):
    broken = []
    for path in files(root):
        if text_of(root, path).startswith("#!/usr/bin/env bash"):
            run = subprocess.run(["bash", "-n", root / path], capture_output=True, text=True, check=False)
            if run.returncode:
                broken.append(f"{path}: {run.stderr.strip()}")
    return broken


def top_level(root):
    """The top-level folders are fixed."""
    known = set(rules.TOP_LEVEL) | rules.SKIPPED_FOLDERS | {".ci"}
    return [f"{path.name}: not one of the project's folders" for path in sorted(root.iterdir())
            if path.is_dir() and path.name not in known and not path.name.startswith(".")]


def project_root():
    return pathlib.Path(__file__).resolve().parents[2]
