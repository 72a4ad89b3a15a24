// Which heads does a behaviour need? docs/howto/ablate.md has this program in pieces.

#include <cstdio>
#include <exception>
#include <vector>

#include "headscope/ablation_runner.h"
#include "plugin/examples/ablate_heads/model.h"

namespace {

void print(const char* name, const headscope::AblationPass& pass) {
  std::printf("%-14s", name);
  for (const headscope::AblationMeasure measure : headscope::kAblationMeasures) {
    const headscope::MeasuredChange& change = pass.measures[measure];
    std::printf("  %s %.3f (%+.3f)", to_string(measure), change.mean, change.change);
  }
  std::printf("\n");
}

void ablate(headscope::Monitor& monitor, std::vector<headscope::HeadId> heads) {
  headscope::AblationRequest request;
  request.heads = std::move(heads);
  request.always_controls = true;
  request.reference_seeds = {1, 7, 42, 99, 256, 314, 700, 999};
  const headscope::AblationResult result = monitor.ablate(request);
  print("baseline", result.baseline);
  print("ablated", result.ablated);
  for (const headscope::AblationPass& control : result.controls) print("control", control);
  for (const headscope::AblationPass& draw : result.reference_draws) print("reference draw", draw);
  const headscope::MeasureSpread& spread =
      result.reference_spread[headscope::AblationMeasure::kLoss];
  std::printf("reference draws: loss %.3f (%+.3f), sd %.3f\n", spread.mean, spread.change,
              spread.sd);
  const headscope::Specificity& specificity = result.specificity[headscope::AblationMeasure::kLoss];
  std::printf("specificity %s %.1f\n%s\n\n", to_string(specificity.state), specificity.ratio,
              result.report.reason.c_str());
}

/// The same question on prompts of one's own: 3 7 .. 3, what follows?
void ablate_on_prompts(headscope::Monitor& monitor) {
  headscope::AblationRequest request;
  request.heads = {{0, induction::Model::kInduction}};
  const int64_t rows = 16, context = 12;
  request.tokens = at::zeros({rows, context}, at::kLong);
  for (int64_t n = 0; n < rows; ++n) {
    request.tokens[n][2] = request.tokens[n][context - 1] = 1 + n;
    request.tokens[n][3] = induction::Model::kVocab - 1 - n;
    request.targets.push_back(induction::Model::kVocab - 1 - n);
  }
  request.replacement = headscope::Replacement::kMean;
  request.positions = headscope::AblatedPositions::kQuery;
  const headscope::AblationResult result = monitor.ablate(request);
  print("baseline", result.baseline);
  print("mean at query", result.ablated);
  std::printf("%s\n", result.report.reason.c_str());
}

/// And by a loss of one's own, which knows what it wants of each row.
void ablate_by_own_loss(headscope::Monitor& monitor) {
  const int64_t rows = 16, context = 12;
  const at::Tensor labels = at::arange(rows, at::kLong) + 1;
  headscope::AblationRequest request;
  request.heads = {{0, induction::Model::kInduction}};
  request.tokens = at::zeros({rows, context}, at::kLong);
  request.tokens.select(1, 3).copy_(labels);  // 31 label .. 31
  request.tokens.select(1, 2).fill_(induction::Model::kVocab - 1);
  request.tokens.select(1, context - 1).fill_(induction::Model::kVocab - 1);
  request.loss = [&](const headscope::ForwardFunction& forward, const at::Tensor& tokens,
                     const at::Tensor& numbers) {
    const at::Tensor wanted = labels.index_select(0, numbers).unsqueeze(1);
    return -forward(tokens).select(1, -1).log_softmax(-1).gather(1, wanted).squeeze(1);
  };
  const headscope::AblationResult result = monitor.ablate(request);
  std::printf("own loss        %.3f, ablated %.3f\n%s\n", result.report.baseline_loss,
              result.report.ablated_loss, result.report.reason.c_str());
}

void run() {
  induction::Model model;
  headscope::Options options;
  options.measure = false;  // this monitor is there for ablations alone
  options.serve = false;
  model.monitor = headscope::Monitor::attach(std::move(options));
  model.monitor->set_probe(
      headscope::ProbeHost{[&](const at::Tensor& tokens) { return model.forward(tokens); }, {}},
      {.vocab_size = induction::Model::kVocab, .context = 32, .examples = 64});
  ablate(*model.monitor, {{0, induction::Model::kInduction}});
  ablate(*model.monitor, {{0, 2}});
  ablate_on_prompts(*model.monitor);
  ablate_by_own_loss(*model.monitor);
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ablate_heads: %s\n", error.what());
    return 1;
  }
}
