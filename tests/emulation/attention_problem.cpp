#include "tests/emulation/attention_problem.h"

namespace headscope::emulation {
namespace {

template <typename T>
std::unique_ptr<Buffer<T>> upload(const std::vector<T>& values) {
  auto buffer = std::make_unique<Buffer<T>>(values.size());
  std::copy(values.begin(), values.end(), buffer->begin());
  return buffer;
}

ElementType element_type(BiasKind kind) {
  return kind == BiasKind::kBFloat16  ? ElementType::kBFloat16
         : kind == BiasKind::kFloat16 ? ElementType::kFloat16
                                      : ElementType::kFloat32;
}

/// The dense bias on the device; of a broadcast one only its first [Tq, Tk].
class DeviceBias {
 public:
  DeviceBias(const std::vector<double>& values, const AttentionCase& c) {
    if (c.bias == BiasKind::kNone) return;
    const int64_t map = static_cast<int64_t>(c.queries) * c.keys;
    const int64_t count = c.bias_is_broadcast ? map : c.batch * c.query_heads * map;
    const ElementType type = element_type(c.bias);
    is_mask_ = c.bias == BiasKind::kMask;
    const auto bytes = static_cast<std::size_t>(is_mask_ ? 1 : bytes_of(type));
    buffer_ = std::make_unique<Buffer<unsigned char>>(static_cast<std::size_t>(count) * bytes);
    for (int64_t i = 0; i < count; ++i) {
      const double value = values[static_cast<std::size_t>(i)];
      if (is_mask_) {
        buffer_->data()[i] = value == 0 ? 1 : 0;
      } else {
        store(buffer_->data(), i, value, type);
      }
    }
    strides_[0] = c.bias_is_broadcast ? 0 : c.query_heads * map;
    strides_[1] = c.bias_is_broadcast ? 0 : map;
    strides_[2] = c.keys;
    strides_[3] = 1;
  }

  void enter(kernels::AttentionMassProblem& problem, BiasKind kind) const {
    if (buffer_ == nullptr) return;
    if (is_mask_) {
      problem.mask = reinterpret_cast<const bool*>(buffer_->data());
    } else {
      problem.bias = buffer_->data();
    }
    problem.bias_type = element_type(kind);
    std::copy(strides_, strides_ + 4, problem.bias_strides);
  }

 private:
  bool is_mask_ = false;
  std::unique_ptr<Buffer<unsigned char>> buffer_;
  int64_t strides_[4] = {};
};

/// How far a row's figures may be from the reference's; all in units of scores, which are logs.
struct RowBound {
  double score;  // of one score
  double sum;    // relative, of a sum of exp

  /// A dot product of D terms, in whatever order and rounded toward zero, is off by at most D 2^-23
  /// of the sum of magnitudes; scale, softcap and bias add four roundings of the score. A sum of n
  /// exponentials is off by the roundings of a lane's share of them and of the merges, and by those
  /// of exp, log and of the difference that enters exp.
  RowBound(double magnitude, const std::vector<double>& scores, const AttentionCase& c) {
    double largest = 0;
    for (const double s : scores)
      if (std::isfinite(s)) largest = std::max(largest, std::abs(s));
    constexpr double kEpsilon = 0x1p-23;
    score = kEpsilon * (c.width * magnitude + 4 * largest);
    sum = kEpsilon * (c.keys / 8.0 + 24 + 2 * largest);
  }
};

void expect_near(double got, double want, double bound, const std::string& what) {
  if (std::isnan(want) ? std::isnan(got) : got == want) return;
  EXPECT_TRUE(std::abs(got - want) <= bound)
      << what << ": got " << got << ", want " << want << ", bound " << bound;
}

}  // namespace

AttentionProblem::AttentionProblem(const AttentionCase& c, unsigned seed) : case_(c) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  plain.batch = c.batch;
  plain.query_heads = c.query_heads;
  plain.key_heads = c.key_heads;
  plain.queries = c.queries;
  plain.keys = c.keys;
  plain.width = c.width;
  plain.is_causal = c.is_causal;
  plain.scale = static_cast<double>(
      static_cast<float>(c.scale != 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.width))));
  plain.softcap = c.softcap;
  plain.window = c.window;
  const auto draw = [&](double spread) {
    if (c.has_integers) return std::nearbyint(normal(random) * 2);
    return rounded(normal(random) * spread, c.type);
  };
  plain.q.resize(static_cast<std::size_t>(c.batch) * static_cast<std::size_t>(c.query_heads) *
                 static_cast<std::size_t>(c.queries) * static_cast<std::size_t>(c.width));
  plain.k.resize(static_cast<std::size_t>(c.batch) * static_cast<std::size_t>(c.key_heads) *
                 static_cast<std::size_t>(c.keys) * static_cast<std::size_t>(c.width));
  for (double& value : plain.q) value = draw(2);
  for (double& value : plain.k) value = draw(1);
  if (c.batch_is_broadcast) {
    const auto sequence = static_cast<int64_t>(plain.k.size()) / c.batch;
    for (int b = 1; b < c.batch; ++b)
      std::copy_n(plain.k.begin(), sequence, plain.k.begin() + b * sequence);
  }
  if (c.has_documents) {
    for (int b = 0; b < c.batch; ++b)
      for (int t = 0; t < c.keys; ++t) plain.documents.push_back(t < 11 + b ? 70 : t < 12 ? 3 : -9);
  }
  if (c.has_sinks) {
    for (int h = 0; h < c.query_heads; ++h)
      plain.sinks.push_back(static_cast<double>(static_cast<float>(normal(random) + h)));
  }
  if (c.bias != BiasKind::kNone) make_bias(random);
  for (int b = 0; b < c.batch; ++b) {
    for (int r = 0; r < c.sampled; ++r) {
      // The last, then any; an unused one in between, the first, and one out of range.
      const int64_t any = static_cast<int64_t>(random() % static_cast<unsigned>(c.queries));
      rows.push_back(r == 0 ? c.queries - 1 : r == 1 ? -1 : r == 4 ? 0 : r == 5 ? c.queries : any);
    }
  }
  make_groups();
}

void AttentionProblem::make_bias(std::mt19937& random) {
  std::normal_distribution<double> normal;
  const auto map = static_cast<std::size_t>(case_.queries) * static_cast<std::size_t>(case_.keys);
  plain.bias.resize(static_cast<std::size_t>(case_.batch * case_.query_heads) * map);
  for (std::size_t i = 0; i < plain.bias.size(); ++i) {
    const bool is_masked = random() % 3 == 0;
    const double added = rounded(normal(random), element_type(case_.bias));
    plain.bias[i] = is_masked ? -kInfinity : case_.bias == BiasKind::kMask ? 0 : added;
    if (case_.bias_is_broadcast) plain.bias[i] = plain.bias[i % map];
  }
}

void AttentionProblem::make_groups() {
  offsets.push_back(0);
  for (const int64_t row : rows) {
    std::vector<int64_t> even;
    for (int64_t j = 0; j < case_.keys; j += 2) even.push_back(j);
    const int64_t own = std::min<int64_t>(std::max<int64_t>(row, 0), case_.keys - 1);
    const std::vector<int64_t> groups[kGroups] = {{own}, {0}, even, {}, {case_.keys - 1}};
    for (const auto& group : groups) {
      if (case_.keys > 0) targets.insert(targets.end(), group.begin(), group.end());
      offsets.push_back(static_cast<int64_t>(targets.size()));
    }
  }
}

void AttentionProblem::run() {
  const AttentionCase& c = case_;
  const DeviceTensor q(plain.q, c.batch, c.query_heads, c.queries, c.width, c.type, c.layout,
                       false);
  const DeviceTensor k(plain.k, c.batch, c.key_heads, c.keys, c.width, c.type, c.layout,
                       c.batch_is_broadcast);
  const auto row_buffer = upload(rows), target_buffer = upload(targets),
             offset_buffer = upload(offsets), document_buffer = upload(plain.documents);
  const auto sink_buffer = upload(std::vector<float>(plain.sinks.begin(), plain.sinks.end()));
  const DeviceBias bias(plain.bias, c);

  kernels::AttentionMassProblem problem;
  problem.q = q.data();
  problem.k = k.data();
  std::copy(q.strides, q.strides + 4, problem.q_strides);
  std::copy(k.strides, k.strides + 4, problem.k_strides);
  problem.type = c.type;
  problem.batch = c.batch;
  problem.query_heads = c.query_heads;
  problem.key_heads = c.key_heads;
  problem.queries = c.queries;
  problem.keys = c.keys;
  problem.width = c.width;
  problem.rows = row_buffer->data();
  problem.targets = target_buffer->data();
  problem.offsets = offset_buffer->data();
  problem.target_count = static_cast<int64_t>(targets.size());
  problem.sampled = c.sampled;
  problem.groups = kGroups;
  problem.is_causal = c.is_causal;
  problem.scale = static_cast<float>(plain.scale);
  problem.softcap = static_cast<float>(c.softcap);
  problem.window = c.window;
  if (c.has_documents) problem.documents = document_buffer->data();
  problem.document_strides[0] = c.keys;
  problem.document_strides[1] = 1;
  if (c.has_sinks) problem.sinks = sink_buffer->data();
  bias.enter(problem, c.bias);
  problem.keys_per_split = c.keys_per_split;

  std::vector<float> saved;
  if (c.has_saved_sums) {
    for (int b = 0; b < c.batch; ++b) {
      for (int h = 0; h < c.query_heads; ++h) {
        for (int t = 0; t < c.queries; ++t) {
          const double sum = reference::PlainRow(plain.scores(b, h, t), plain.sink(h)).log_sum_exp;
          // As flash-attention marks rows that see no key.
          saved.push_back(static_cast<float>(sum == -kInfinity ? kInfinity : sum));
        }
      }
    }
    problem.saved_strides[0] = static_cast<int64_t>(c.query_heads) * c.queries;
    problem.saved_strides[1] = c.queries;
    problem.saved_strides[2] = 1;
  }
  const auto saved_buffer = upload(saved);
  if (c.has_saved_sums) problem.saved_log_sum_exp = saved_buffer->data();

  const auto row_count = static_cast<std::size_t>(c.batch * c.query_heads * c.sampled);
  results_ = std::make_unique<AttentionResults>(row_count, kGroups);
  AttentionResults& out = *results_;
  const std::size_t bytes = kernels::attention_mass_workspace_bytes(problem);
  ASSERT_EQ(bytes == 0, c.has_saved_sums);
  Buffer<unsigned char> workspace(bytes);
  ASSERT_EQ(kernels::launch_attention_mass(
                problem,
                {out.mass.data(), out.score.data(), out.entropy.data(), out.max_logit.data(),
                 out.log_sum_exp.data(), out.first_mass.data()},
                workspace.data(), bytes, nullptr),
            0);
  for (const GuardedFloats* result :
       {&out.mass, &out.score, &out.entropy, &out.max_logit, &out.log_sum_exp, &out.first_mass})
    EXPECT_TRUE(result->guard_is_intact());
}

std::vector<uint32_t> AttentionProblem::result_bits() const {
  std::vector<uint32_t> all;
  for (const GuardedFloats* result :
       {&results_->mass, &results_->score, &results_->entropy, &results_->max_logit,
        &results_->log_sum_exp, &results_->first_mass})
    result->append_bits(all);
  return all;
}

void AttentionProblem::expect_matches_reference() const {
  for (int b = 0; b < case_.batch; ++b)
    for (int h = 0; h < case_.query_heads; ++h)
      for (int r = 0; r < case_.sampled; ++r) expect_row(b, h, r);
}

void AttentionProblem::expect_row(int b, int h, int r) const {
  const auto index = static_cast<std::size_t>((b * case_.query_heads + h) * case_.sampled + r);
  const int64_t t = rows[static_cast<std::size_t>(b * case_.sampled + r)];
  const bool is_used = t >= 0 && t < case_.queries;
  double magnitude = 0;
  const std::vector<double> scores =
      is_used ? plain.scores(b, h, t, &magnitude) : std::vector<double>{NAN};
  const reference::PlainRow want(scores, plain.sink(h));
  const RowBound bound(magnitude, scores, case_);
  const std::string at = " of row " + std::to_string(t) + ", head " + std::to_string(h) +
                         ", sequence " + std::to_string(b);
  const AttentionResults& got = *results_;
  const double sum_bound = bound.score + bound.sum;
  expect_near(got.log_sum_exp[index], want.log_sum_exp, sum_bound, "log sum exp" + at);
  expect_near(got.max_logit[index], case_.has_saved_sums ? NAN : want.max_logit, bound.score,
              "max logit" + at);
  // dH = sum of p (H + ln p) ds, and the same for the relative errors of the weights.
  const double entropy_bound = 2 * sum_bound * (1 + std::log(1.0 + case_.keys)) + 2 * bound.sum;
  expect_near(got.entropy[index], case_.has_saved_sums ? NAN : want.entropy, entropy_bound,
              "entropy" + at);
  // A mass is exp(score - log sum exp): the bounds become relative.
  const double relative = 1.01 * (bound.score + sum_bound + bound.sum);
  expect_near(got.first_mass[index], want.first_mass, relative * want.first_mass + 1e-37,
              "first mass" + at);
  for (int g = 0; g < kGroups; ++g) {
    const auto i = static_cast<std::size_t>((b * case_.sampled + r) * kGroups + g);
    std::vector<int64_t> group;
    const bool ascends = offsets[i] >= 0 && offsets[i] <= offsets[i + 1] &&
                         offsets[i + 1] <= static_cast<int64_t>(targets.size());
    if (ascends) group.assign(targets.begin() + offsets[i], targets.begin() + offsets[i + 1]);
    const reference::PlainGroup figures(scores, group, ascends ? want.log_sum_exp : NAN);
    const std::string which = " of group " + std::to_string(g) + at;
    const std::size_t out = index * kGroups + static_cast<std::size_t>(g);
    expect_near(got.mass[out], figures.mass, relative * figures.mass + 1e-37, "mass" + which);
    expect_near(got.score[out], figures.score, bound.score + bound.sum, "score" + which);
  }
}

}  // namespace headscope::emulation
