#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <utility>
#include <vector>

#include "headscope/built_in_sinks.h"

namespace headscope::exporter {

/// Build and run info, the user's deadlines, and headscope's own cost and errors.
class HealthMetrics : public prometheus::Collectable {
 public:
  HealthMetrics(Health health, RunFacts facts, DeadlineTokens deadlines = {})
      : health_(std::move(health)), facts_(std::move(facts)), deadlines_(std::move(deadlines)) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  Health health_;
  RunFacts facts_;
  DeadlineTokens deadlines_;
};

}  // namespace headscope::exporter
