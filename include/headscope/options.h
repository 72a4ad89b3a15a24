#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headscope/ablation.h"
#include "headscope/built_in_sinks.h"
#include "headscope/circuits.h"
#include "headscope/sink.h"
#include "headscope/trajectory.h"

namespace headscope {

/// When the monitor measures: a fixed function of step and tokens, stretched where the budget asks
/// for it.
struct Schedule {
  /// The training batch itself is measured every so many optimizer steps; 0: never.
  int64_t train_every = 10;
  /// Probes for each doubling of the tokens, evenly spaced in their logarithm; 0: no probes.
  double probes_per_octave = 4;
  /// Optimizer steps after which a probe is due whatever the tokens say.
  int64_t longest_probe_gap = 1000;
  /// Optimizer steps that must lie between two probes.
  int64_t shortest_probe_gap = 1;
  /// Share of wall time that measuring may take over any ten minutes, 0..1 (docs/overhead.md). What
  /// is due and does not fit runs later. 0: no bound; the schedule above is followed exactly.
  double budget = 0.01;
};

/// How a Monitor is attached. The defaults are fit for a real run.
struct Options {
  // Where results go.
  std::string run_dir = {};   ///< history.sqlite and the endpoint file go here; empty: no history
  std::string run_name = {};  ///< label of the run; default: last part of run_dir, else "run"
  bool serve = true;          ///< /metrics over HTTP
  std::string host = "127.0.0.1";
  std::vector<std::string> host_names = {};  ///< further names of the server (built_in_sinks.h)
  int port = 9464;                           ///< taken: the next free one; 0: any
  AccessOptions access = {};                 ///< password and TLS of the server, off by default
  std::string textfile = {};                 ///< the metrics as a .prom file too; empty: no file
  DeadlineTokens deadline_tokens = {};       ///< for the alert on a circuit that is late
  bool progress = false;                     ///< a terminal progress line on stderr
  int64_t total_steps = 0;                   ///< for the progress line; 0: unknown
  std::vector<std::shared_ptr<Sink>> sinks = {};    ///< further sinks, of the user's own
  std::function<void(const Event&)> on_event = {};  ///< called on the sink thread; throws: counted
  LogFunction log = {};                             ///< default: stderr, "[headscope] ..."
  size_t sink_queue = 64;  ///< snapshots that may wait for the sinks; beyond: dropped and counted

  // What is measured, and when.
  bool measure = true;  ///< false: attached and idle (nothing is measured)
  Schedule schedule = {};
  int64_t sampled_rows = 16;  ///< query positions per training sequence, 1..16
  uint64_t seed = 2026;       ///< of sampled positions and null draws; no host generator is used
  bool self_check = true;     ///< recompute sampled rows of z and compare
  /// Eigenvalues of tensors on a GPU are solved there, on a stream of its own (needs D <= 256),
  /// instead of on the analysis thread, which costs the GPU nothing.
  bool eigenvalues_on_device = false;
  std::function<double()> clock = {};  ///< seconds, for the budget; default: a monotonic clock

  // What the figures mean.
  IntegralDefinition integral = {};
  CircuitRules rules = {};
  ControlOptions controls = {};
  VerdictRule verdict = {};
};

}  // namespace headscope
