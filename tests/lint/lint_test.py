"""Each check finds the breach it is for, in a small tree made to break it, and nothing in one that does not."""
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import checks  # noqa: E402
import rules  # noqa: E402
import rules  # noqa: E402


class LintTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.write("include/headscope/sink.h", "#pragma once\n#include <string>\nstruct Sink { std::string name; };\n")

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def assert_breaks(self, broken, *parts):
        self.assertEqual(len(broken), 1, broken)
        for part in parts:
            self.assertIn(part, broken[0])

    def test_a_folder_of_the_exporter_may_include_the_public_headers_and_itself(self):
        self.write("csrc/exporter/http/a.cpp", '#include "headscope/sink.h"\n#include "csrc/exporter/http/a.h"\n')
        self.assertEqual(checks.include_arrows(self.root), [])

    def test_exporter_may_not_include_the_monitor(self):
        self.write("csrc/exporter/http/a.cpp", '#include "csrc/monitor/schedule.h"\n')
        self.assert_breaks(checks.include_arrows(self.root), "csrc/exporter/http/a.cpp", "csrc/monitor/schedule.h")

    def test_a_folder_of_the_exporter_may_include_what_its_arrow_names(self):
        self.write("csrc/exporter/page/a.cpp", '#include "csrc/exporter/history/sqlite.h"\n')
        self.assertEqual(checks.include_arrows(self.root), [])

    def test_a_folder_of_the_exporter_may_not_include_another_one(self):
        self.write("csrc/exporter/history/a.cpp", '#include "csrc/exporter/page/timeline.h"\n')
        self.assert_breaks(checks.include_arrows(self.root), "csrc/exporter/history/a.cpp", "csrc/exporter/page/timeline.h")

    def test_a_source_beside_the_folders_of_the_exporter_has_no_arrow(self):
        self.write("csrc/exporter/a.cpp", "")
        self.write("csrc/exporter/kitchen/a.cpp", "")
        self.assertEqual(len(checks.include_arrows(self.root)), 2)

    def test_the_arrows_have_no_cycle(self):
        def reached(folder, on_the_way):
            self.assertNotIn(folder, on_the_way)
            for target in rules.ARROWS.get(folder, ()):
                reached(target, (*on_the_way, folder))
        for folder in rules.ARROWS:
            reached(folder, ())

    def test_a_relative_include_does_not_escape(self):
        self.write("csrc/monitor/schedule.h", "")
        self.write("csrc/exporter/http/a.cpp", '#include "../../monitor/schedule.h"\n')
        self.assertEqual(len(checks.include_arrows(self.root)), 1)

    def test_an_unknown_folder_has_no_arrow(self):
        self.write("csrc/exporters/a.cpp", '#include "csrc/monitor/schedule.h"\n')
        self.assertTrue(checks.include_arrows(self.root))

    def test_torch_free_code_may_not_include_aten(self):
        self.write("csrc/circuits/a.cpp", "#include <ATen/ATen.h>\n")
        self.assert_breaks(checks.torch_includes(self.root), "csrc/circuits/a.cpp", "ATen/ATen.h")

    def test_kernels_include_neither_torch_nor_the_rest_of_the_project(self):
        self.write("kernels/a.cuh", '#include <c10/cuda/CUDAStream.h>\n#include "csrc/measure/checks.h"\n')
        self.assert_breaks(checks.torch_includes(self.root), "kernels/a.cuh", "CUDAStream.h")
        self.assert_breaks(checks.include_arrows(self.root), "kernels/a.cuh", "csrc/measure/checks.h")

    def test_the_emulation_may_include_kernels_and_nothing_else(self):
        self.write("tests/emulation/a.cpp", '#include "kernels/launch.h"\n')
        self.assertEqual(checks.include_arrows(self.root), [])
        self.write("tests/emulation/a.cpp", '#include "csrc/measure/checks.h"\n')
        self.assert_breaks(checks.include_arrows(self.root), "tests/emulation/a.cpp")

    def test_torch_free_code_may_not_reach_aten_through_a_public_header(self):
        self.write("include/headscope/monitor.h", "#include <ATen/core/Tensor.h>\n")
        self.write("plugin/cli/main.cpp", '#include "headscope/monitor.h"\n')
        self.assert_breaks(checks.torch_includes(self.root), "plugin/cli/main.cpp", "monitor.h")

    def test_the_umbrella_header_is_refused(self):
        self.write("plugin/examples/a.cpp", "#include <torch/torch.h>\n")
        self.assert_breaks(checks.torch_includes(self.root), "torch/torch.h")

    def test_the_library_exports_what_the_headers_mark(self):
        self.write("include/headscope/a.h", """
            namespace headscope {
            HEADSCOPE_API std::map<int, int> f(int value);
            class HEADSCOPE_API Base { virtual void g() = 0; };
            class Monitor {
             public:
              HEADSCOPE_API Monitor& operator=(Monitor&&);
              HEADSCOPE_API ~Monitor();  // HEADSCOPE_API h()
              int inline_one() { return 1; }
            };
            }""")
        good = ["headscope::f[abi:cxx11](int)", "headscope::Monitor::operator=(headscope::Monitor&&)",
                "headscope::Monitor::~Monitor()", "vtable for headscope::Base"]
        check = lambda symbols: checks.exported_symbols(self.root, None, symbols)
        self.assertEqual(check(good), [])
        self.assert_breaks(check(good + ["headscope::Monitor::Impl::step()"]), "exports headscope::Monitor::Impl::step")
        self.assert_breaks(check(good + ["std::vector<int>::push_back(int&&)"]), "exports std::vector<int>::push_back")
        self.assert_breaks(check(good[1:]), "does not export headscope::f")

    def test_a_header_must_bring_what_it_uses(self):
        self.write("include/headscope/bad.h", "#pragma once\nstd::vector<int> f();\n")
        self.assert_breaks(checks.public_headers(self.root), "include/headscope/bad.h")

    def test_torch_on_the_path_of_a_torch_free_source_is_found(self):
        self.write("csrc/circuits/a.cpp", "")
        command = {"file": str(self.root / "csrc/circuits/a.cpp"), "command": "c++ -isystem x/torch/include -c a.cpp"}
        self.write("build/compile_commands.json", json.dumps([command]))
        self.assert_breaks(checks.torch_free_sources(self.root, self.root / "build"), "csrc/circuits/a.cpp")

    def test_a_torch_free_source_outside_the_build_is_found(self):
        self.write("csrc/circuits/a.cpp", "")
        self.write("build/compile_commands.json", "[]")
        self.assert_breaks(checks.torch_free_sources(self.root, self.root / "build"), "not part of the build")

    def test_what_a_unity_file_compiles_is_part_of_the_build(self):
        self.write("csrc/circuits/a.cpp", "")
        self.write("build/Unity/unity_0_cxx.cxx", f'#include "{self.root / "csrc/circuits/a.cpp"}"\n')
        command = {"file": str(self.root / "build/Unity/unity_0_cxx.cxx"), "command": "c++ -c unity_0_cxx.cxx"}
        self.write("build/compile_commands.json", json.dumps([command]))
        self.assertEqual(checks.torch_free_sources(self.root, self.root / "build"), [])
        command["command"] += " -isystem x/torch/include"
        self.write("build/compile_commands.json", json.dumps([command]))
        self.assert_breaks(checks.torch_free_sources(self.root, self.root / "build"), "csrc/circuits/a.cpp")

    def test_unformatted_code_is_found(self):
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.write("include/headscope/sink.h", "#pragma once\n")
        self.write("csrc/a.cpp", "int  f( ){return 1;}\n")
        try:
            self.assert_breaks(checks.clang_format(self.root), "csrc/a.cpp")
        except checks.Skip as reason:
            self.assertIsNone(os.environ.get("CI"), reason)
            self.skipTest(str(reason))

    def test_a_long_file_is_found(self):
        self.write("csrc/a.cpp", "\n" * 501)
        self.assert_breaks(checks.file_lengths(self.root), "501 lines")

    def test_a_long_line_is_found(self):
        self.write("csrc/a.cpp", "// " + "a " * 49 + "\n")
        self.write("csrc/b.cpp", "// " + "a " * 48 + "\n// µ" + "µ" * 96 + "\n")
        self.assert_breaks(checks.line_lengths(self.root), "csrc/a.cpp:1: 101 columns, more than 100")

    def test_a_long_row_is_one_that_no_program_writes(self):
        row = "| " + "a " * 60 + "|\n"
        self.write("docs/a.md", f"<!-- table:begin -->\n{row}<!-- table:end -->\n{row}")
        self.write("docs/b.md", "[a](https://example.org/" + "a" * 120 + ")\n")
        self.assert_breaks(checks.line_lengths(self.root), "docs/a.md:4: 123 columns, more than 120")

    def test_unfinished_marks_and_machine_paths_are_found(self):
        self.write("docs/a.md", "TO" "DO later\nsee /ro" "ot/notes\n")
        self.assertEqual(len(checks.words(self.root)), 2)

    def test_a_url_is_not_a_machine_path(self):
        self.write("docs/a.md", "https://example.org/ho" "me/page and ./wo" "rk/x\n")
        self.assertEqual(checks.words(self.root), [])

    def test_dead_links_and_anchors_are_found(self):
        self.write("docs/a.md", "# One thing\n[x](b.md) [y](#one-thing) [z](#other) [w](https://example.org)\n")
        self.assertEqual(len(checks.links(self.root)), 2)

    def test_a_recipe_that_names_a_missing_file_is_found(self):
        kinds = "".join(f"### A new {kind}\n" for kind in rules.RECIPES)
        self.write("docs/architecture.md", f"# A\n\n## Where to add things\n{kinds}`include/headscope/sink.h` "
                                           "`include/headscope/<name>.h`\n\n## Other\n`gone/too.h`\n")
        self.assertEqual(checks.recipes(self.root), [])
        self.write("docs/architecture.md", f"\n## Where to add things\n{kinds}`include/gone.h`\n")
        self.assert_breaks(checks.recipes(self.root), "include/gone.h")
        self.write("docs/architecture.md", f"\n## Where to add things\n{kinds}`include/gone/<name>.h`\n")
        self.assert_breaks(checks.recipes(self.root), "no include/gone")
        self.write("docs/architecture.md", f"\n## Where to add things\n{kinds.replace('sink', 'bin')}")
        self.assert_breaks(checks.recipes(self.root), "no recipe for sink")

    def test_bad_shell_is_found(self):
        self.write("run.sh", "#!/usr/bin/env bash\nif true; then\n")
        self.assert_breaks(checks.shell_syntax(self.root), "run.sh")

    def test_an_import_of_a_name_that_is_gone_is_found(self):
        self.write("tests/support/needs.py", "import os\ntry:\n    A = 1\nexcept OSError:\n    pass\ndef need(): pass\n")
        self.write("tests/e2e/a.py", "from needs import A, need, os\nfrom json import dumps\n")
        self.assertEqual(checks.python_imports(self.root), [])
        self.write("tests/e2e/a.py", "from needs import need\nfrom needs import missing\n")
        self.assert_breaks(checks.python_imports(self.root), "tests/e2e/a.py:2", "needs has no missing")

    def test_an_extra_top_level_folder_is_found(self):
        self.write("misc/a.txt", "")
        self.assert_breaks(checks.top_level(self.root), "misc")


if __name__ == "__main__":
    unittest.main(verbosity=2)
