#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "headscope/circuits.h"

namespace headscope::simulation {

using Heads = std::vector<HeadId>;

/// A circuit of formed heads among the heads of its layers: the first ones of each.
struct Layout {
  struct Layer {
    int32_t circuit, heads;
  };
  std::vector<Layer> layers;

  Heads circuit() const;
  /// "3 of 16", "2 of 8 + 1 of 8".
  std::string name() const;
};

/// How the loss of an example changes, about the true effect of the ablated set.
enum class Noise { kNormal, kSkewed, kHeavyTailed };
/// One draw with mean 0; standard deviation 1, of the heavy tails (Student's t3) sqrt(3).
double draw(Noise noise, std::mt19937_64& engine);

/// True effect in nats of ablating a set of heads; attempt numbers the verifications of a run.
using SetEffect = std::function<double(const Heads& set, int64_t attempt, std::mt19937_64& engine)>;
/// Draws what is fixed for a run.
using World = std::function<SetEffect(const Layout& layout, std::mt19937_64& engine)>;

/// Sum of the heads' effects: each circuit head has its part of `circuit`, others are normal with
/// this standard deviation.
World sum_of_heads(double circuit, double others_sd);
/// The effects of all heads, the circuit's too, are normal and independent.
World exchangeable_heads(double mean, double sd);
/// Every set has an effect of its own, normal and independent. fresh: at each attempt anew.
World exchangeable_sets(double mean, double sd, bool fresh);
/// The effect of the circuit, and of sets without any head of it; a set with some of its heads has
/// that part of the circuit's.
World given(double circuit, std::function<double(const Heads& set)> other);

struct VerdictCase {
  std::string name;
  Layout layout;
  World world;
  int64_t rows = 64;
  double spread = .5;  ///< standard deviation of an example's loss about its mean, nats
  Noise noise = Noise::kNormal;
  int64_t attempts = 1;
};

struct Judged {
  bool ever_verified = false;
  std::vector<AblationReport> reports;
  CircuitState last = CircuitState::kFormed;  ///< the circuit's state at the end
};

/// Lets a circuit form in a CircuitTracker and ablates it whenever it is due, as the monitor does,
/// until so many attempts are made or none is due for 4000 probes.
Judged judge_run(const VerdictCase& of, uint64_t seed);

}  // namespace headscope::simulation
