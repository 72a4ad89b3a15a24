#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headscope/monitor.h"
#include "headscope/screen_batches.h"

namespace prompts {

/// Token ids of a small vocabulary in which "When Mary and John went to the store, John gave a
/// drink to" is a prompt.
inline constexpr int64_t kVocab = 96, kContext = 48;
inline const std::vector<int64_t> kNames = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19};

inline headscope::IndirectObjectOptions indirect_object(int64_t examples = 64) {
  enum : int64_t { kWhen = 1, kAnd, kWent, kTo, kThe, kComma, kGave, kA };
  headscope::IndirectObjectOptions options;
  options.names = kNames;
  options.places = {20, 21, 22, 23};
  options.objects = {30, 31, 32, 33};
  options.prompt = {kWhen,
                    headscope::kFirstName,
                    kAnd,
                    headscope::kSecondName,
                    kWent,
                    kTo,
                    kThe,
                    headscope::kPlace,
                    kComma,
                    headscope::kSubject,
                    kGave,
                    kA,
                    headscope::kObject,
                    kTo};
  options.examples = examples;
  return options;
}

/// One layer whose heads follow patterns by construction: a head's scores are `sharpness` on the
/// targets of its pattern and 0 elsewhere. The heads without a pattern are uniform. Every head's
/// output is the tokens that it attends to; those of the first (induction) and of name-mover are
/// added to the logits.
struct Model {
  explicit Model(std::vector<headscope::Pattern> patterns_in, int64_t heads_in = 24)
      : patterns(std::move(patterns_in)), heads(heads_in) {}

  /// tokens [N, T] -> logits [N, T, V].
  at::Tensor forward(const at::Tensor& tokens_in) const {
    const at::Tensor tokens = tokens_in.contiguous();
    const int64_t rows = tokens.size(0), context = tokens.size(1);
    at::Tensor scores = at::zeros({rows, heads, context, context});
    auto score = scores.accessor<float, 4>();
    for (int64_t n = 0; n < rows; ++n) {
      const std::span row(tokens.const_data_ptr<int64_t>() + n * context,
                          static_cast<size_t>(context));
      for (int64_t query = 0; query < context; ++query)
        for (size_t p = 0; p < patterns.size(); ++p)
          for (const int64_t key :
               patterns[p].targets(row.first(static_cast<size_t>(query) + 1), query))
            score[n][static_cast<int64_t>(p)][query][key] = static_cast<float>(sharpness);
    }
    const at::Tensor none = at::zeros({rows, heads, context, 1});
    const at::Tensor value = at::one_hot(tokens, kVocab)
                                 .to(at::kFloat)
                                 .unsqueeze(1)
                                 .expand({rows, heads, context, kVocab});
    const at::Tensor hidden =
        at::ones({context, context}, at::kBool).triu(1).to(at::kFloat).mul(-1e9);
    at::Tensor z = at::matmul(at::softmax(scores + hidden, -1), value);
    if (monitor) z = monitor->observe(0, none, none, value, z, {.bias = scores});
    at::Tensor logits = z.select(1, 0).mul(8);
    for (size_t p = 0; p < patterns.size(); ++p)
      if (patterns[p].name == "name-mover")
        logits = logits + z.select(1, static_cast<int64_t>(p)).mul(16);
    return logits;
  }

  headscope::Monitor* monitor = nullptr;
  std::vector<headscope::Pattern> patterns;
  int64_t heads;
  double sharpness = 8;
};

/// The standard patterns, name-mover and s-inhibition, a head for each.
inline std::vector<headscope::Pattern> all_patterns() {
  std::vector<headscope::Pattern> patterns = headscope::standard_patterns();
  patterns.resize(6);
  for (auto& pattern : headscope::indirect_object_patterns(kNames))
    patterns.push_back(std::move(pattern));
  return patterns;
}

}  // namespace prompts
