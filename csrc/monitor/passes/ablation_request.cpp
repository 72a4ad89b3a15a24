#include "csrc/monitor/passes/ablation_request.h"

#include <ATen/ATen.h>

#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "csrc/probe/group_table.h"

namespace headscope {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("headscope ablate: " + what);
}

std::string name_of(HeadId id) { return std::to_string(id.layer) + "." + std::to_string(id.head); }

/// [rows, columns] i64 token ids of the vocabulary.
void check_tokens(const char* what, const at::Tensor& tokens, int64_t vocabulary) {
  if (tokens.dim() != 2 || tokens.scalar_type() != at::kLong || tokens.numel() == 0)
    refuse(c10::str(what, " must be [N, T] i64 with at least one row, got ", tokens.scalar_type(),
                    " ", tokens.sizes()));
  const int64_t low = tokens.min().item<int64_t>(), high = tokens.max().item<int64_t>();
  if (low < 0 || high >= vocabulary)
    refuse(c10::str(what, " has the id ", low < 0 ? low : high, ", and the vocabulary is 0..",
                    vocabulary - 1, " (ProbeOptions::vocab_size)"));
}

/// [N, 1] from one value for each row, each in [0, end).
at::Tensor column(const char* what, const std::vector<int64_t>& values, int64_t rows, int64_t end,
                  const char* range) {
  if (std::ssize(values) != rows)
    refuse(c10::str(what, " has ", values.size(), " values for ", rows,
                    " rows of tokens; give one for each"));
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] < 0 || values[i] >= end)
      refuse(c10::str(what, " has ", values[i], " for row ", i, ", outside 0..", end - 1, " (",
                      range, ")"));
  return int64_tensor(values, {rows, 1});
}

AblationBatch given_batch(const AblationRequest& request, const ProbeOptions& options) {
  check_tokens("tokens", request.tokens, options.vocab_size);
  AblationBatch batch;
  batch.tokens = request.tokens;
  batch.micro_batch = options.micro_batch;
  const int64_t rows = batch.tokens.size(0), context = batch.tokens.size(1);
  if (!request.query_positions.empty())
    batch.positions =
        column("query_positions", request.query_positions, rows, context, "the row's positions");
  if (request.loss) {
    if (!request.targets.empty()) refuse("targets and a loss are given; give one of them");
    batch.loss = request.loss;
    if (request.positions == AblatedPositions::kQuery && !batch.positions.defined())
      refuse("positions is kQuery, and a loss of one's own has no query; give query_positions");
    return batch;
  }
  if (request.targets.empty())
    refuse("tokens are given without targets; give a target for each row, or a loss");
  if (!batch.positions.defined()) batch.positions = at::full({rows, 1}, context - 1, at::kLong);
  batch.targets = column("targets", request.targets, rows, options.vocab_size,
                         "the vocabulary, ProbeOptions::vocab_size");
  return batch;
}

AblationBatch probe_batch(const AblationRequest& request, const ProbeOptions& options) {
  if (!request.targets.empty() || !request.query_positions.empty() || request.loss)
    refuse("targets, query_positions or a loss are given without tokens; give tokens too");
  if (request.batch == BehaviourMetric::kNone)
    refuse("batch is kNone and there are no tokens; say kPlantedLoss or kRepeatedLoss");
  if (request.attempt < 0)
    refuse("attempt must be 0 or more, got " + std::to_string(request.attempt));
  return behaviour_batch(options, request.batch, request.attempt);
}

/// The first of the rows that agree in tokens, positions and targets.
std::vector<int64_t> distinct_rows(const AblationBatch& batch) {
  std::vector<at::Tensor> parts = {batch.tokens.to(at::kCPU)};
  if (batch.positions.defined()) parts.push_back(batch.positions);
  if (batch.targets.defined()) parts.push_back(batch.targets);
  const at::Tensor all = at::cat(parts, 1).contiguous();
  const int64_t* data = all.const_data_ptr<int64_t>();
  std::set<std::vector<int64_t>> seen;
  std::vector<int64_t> rows;
  for (int64_t n = 0; n < all.size(0); ++n)
    if (seen.insert({data + n * all.size(1), data + (n + 1) * all.size(1)}).second)
      rows.push_back(n);
  return rows;
}

void check_reference(const AblationRequest& request, const AblationBatch& batch,
                     const ProbeOptions& options) {
  const bool own = !request.reference.defined();
  if (!own && request.replacement == Replacement::kZero)
    refuse("a reference is given, and zeros need none; say kMean or kResample");
  if (!own) check_tokens("reference", request.reference, options.vocab_size);
  if (request.replacement != Replacement::kResample) return;
  if (!own && request.reference.size(1) != batch.tokens.size(1))
    refuse(c10::str("reference has ", request.reference.size(1), " tokens a row, the batch ",
                    batch.tokens.size(1), "; to resample they must be as long"));
  if (own && batch.tokens.size(0) < 2)
    refuse(
        "kResample takes another row's output, and there is 1 distinct row; give more, or a "
        "reference");
}

/// "layers 0..11 with heads 0..7": layers of one size in a row together.
std::string layers_in_words(const std::map<int64_t, int64_t>& heads_in) {
  std::string words;
  for (auto first = heads_in.begin(); first != heads_in.end();) {
    auto last = first, next = std::next(first);
    while (next != heads_in.end() && next->second == first->second &&
           next->first == last->first + 1)
      last = next++;
    words += (words.empty() ? "layers " : "; layers ") + std::to_string(first->first) + ".." +
             std::to_string(last->first) + " with heads 0.." + std::to_string(first->second - 1);
    first = next;
  }
  return words;
}

void check_rule(const VerdictRule& rule) {
  if (!(rule.confidence > 0 && rule.confidence < 1))
    refuse(c10::str("rule.confidence must lie between 0 and 1, got ", rule.confidence));
  if (rule.resamples < 1 || rule.labelled_examples < 1 || rule.most_label_sets < 1)
    refuse(c10::str("rule.resamples, labelled_examples and most_label_sets must be 1 or more, got ",
                    rule.resamples, ", ", rule.labelled_examples, " and ", rule.most_label_sets));
}

}  // namespace

RequestedBatch requested_batch(const AblationRequest& request, const ProbeSetup& probe) {
  if (request.heads.empty()) refuse("no heads are given; name one or more in heads");
  std::set<HeadId> seen;
  for (const HeadId id : request.heads)
    if (!seen.insert(id).second) refuse("head " + name_of(id) + " is given twice");
  check_rule(request.rule);
  RequestedBatch requested;
  requested.batch = request.tokens.defined() ? given_batch(request, probe.options)
                                             : probe_batch(request, probe.options);
  AblationBatch& batch = requested.batch;
  requested.rows = distinct_rows(batch);
  const at::Tensor rows =
      int64_tensor(requested.rows, {static_cast<int64_t>(requested.rows.size())});
  if (batch.loss) batch.rows = rows;
  if (std::ssize(requested.rows) < batch.tokens.size(0)) {
    batch.tokens = batch.tokens.index_select(0, rows.to(batch.tokens.device()));
    if (batch.positions.defined()) batch.positions = batch.positions.index_select(0, rows);
    if (batch.targets.defined()) batch.targets = batch.targets.index_select(0, rows);
  }
  check_reference(request, batch, probe.options);
  return requested;
}

void check_heads(const std::vector<HeadId>& heads, const std::map<int64_t, int64_t>& heads_in) {
  const std::string exist = layers_in_words(heads_in);
  if (exist.empty())
    refuse(
        "no layer reported during forward, so that no head can be ablated: does it run layers "
        "that call observe(), or is attach_zero_edit missing?");
  for (const HeadId id : heads) {
    const auto layer = heads_in.find(id.layer);
    if (layer == heads_in.end() || id.head < 0 || id.head >= layer->second)
      refuse("there is no head " + name_of(id) + "; there are " + exist);
  }
}

size_t pattern_number(const std::string& name, const std::vector<Pattern>& patterns) {
  std::string known;
  for (size_t p = 0; p < patterns.size(); ++p) {
    if (patterns[p].name == name) return p;
    known += (p > 0 ? ", " : "") + patterns[p].name;
  }
  refuse("there is no pattern '" + name + "'; there are " + known);
}

const char* metric_of(const AblationRequest& request) {
  if (request.loss) return "own_loss";
  return request.tokens.defined() ? "target_loss" : to_string(request.batch);
}

}  // namespace headscope
