"""Runs one check of checks.py on the project: lint.py CHECK [--build FOLDER] [--compiler C++] [--torch-include FOLDER].

Exit status: 0 kept, 1 broken (each breach on a line), 77 cannot run here (the reason after "skipped:"; with CI set
that is 1: there nothing may be missing).
"""
import argparse
import os
import pathlib
import sys

import checks

PLAIN = ("include_arrows", "torch_includes", "clang_format", "file_lengths", "line_lengths", "words", "links",
         "recipes", "shell_syntax", "python_imports", "top_level")
BUILT = ("public_headers", "torch_free_sources", "torch_free_programs", "exported_symbols")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", choices=PLAIN + BUILT)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--torch-include")
    arguments = parser.parse_args()
    root = checks.project_root()
    check = getattr(checks, arguments.check)
    try:
        if arguments.check in PLAIN:
            broken = check(root)
        elif arguments.check == "public_headers":
            broken = check(root, arguments.compiler, arguments.torch_include)
        else:
            broken = check(root, arguments.build)
    except checks.Skip as reason:
        print(f"skipped: {reason}")
        return 1 if os.environ.get("CI") else 77
    print("\n".join(broken) or "kept")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
