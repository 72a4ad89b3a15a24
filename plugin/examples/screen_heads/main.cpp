// What does each head attend to, and what is it good for? docs/howto/screen_cpp.md has this program
// in pieces. screen_heads [BATCH]: one of planted, duplicate_token, hard_negative, ..

#include <cstdio>
#include <exception>

#include "headscope/screen_runner.h"
#include "plugin/examples/screen_heads/model.h"

namespace {

/// Two patterns that bring their rows: prompts of indirect objects.
std::vector<headscope::ScreenPattern> indirect_object_rows() {
  const auto prompts = headscope::indirect_object_batch(prompts::indirect_object());
  std::vector<headscope::ScreenPattern> own;
  for (auto& pattern : headscope::indirect_object_patterns(prompts::kNames)) {
    // Prompts are short: few keys share what a head leaves over.
    pattern.formed_at_256 = pattern.name == "name-mover" ? 100 : 60;
    own.push_back({.pattern = pattern,
                   .tokens = prompts.tokens,
                   .query = prompts.query,
                   .answers = prompts.indirect_object});
  }
  return own;
}

void run(const std::string& batch) {
  prompts::Model model(prompts::all_patterns());
  headscope::Options options;
  options.measure = false;  // this monitor is there for screens alone
  options.serve = false;
  const auto monitor = headscope::Monitor::attach(std::move(options));
  model.monitor = monitor.get();
  monitor->set_probe(
      headscope::ProbeHost{[&](const at::Tensor& tokens) { return model.forward(tokens); }, {}},
      {.vocab_size = prompts::kVocab, .context = prompts::kContext, .examples = 64});

  headscope::ScreenRequest request;
  request.batch = headscope::screen_batch_from_string(batch);
  request.compared = {headscope::ScreenBatch::kPlanted, headscope::ScreenBatch::kDuplicateToken};
  request.prompts = prompts::indirect_object();
  if (request.batch != headscope::ScreenBatch::kIndirectObject)
    request.own_rows = indirect_object_rows();
  request.ablate = true;
  std::printf("%s", headscope::to_text(monitor->screen(request)).c_str());
}

}  // namespace

int main(int count, char** arguments) {
  try {
    run(count > 1 ? arguments[1] : "planted");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "screen_heads: %s\n", error.what());
    return 1;
  }
}
