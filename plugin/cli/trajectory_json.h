#pragma once

#include <istream>
#include <string>

namespace headscope::cli {

/// The comma-separated table of trajectories that were published as JSON, one array a head:
///
///   {"step": [...], "tokens_B": [...], "phase": [...],         one value a checkpoint
///    "pr": {"L4_H4": [...]}, "induction": {"L4_H4": [...]},    one object a quantity
///    "heads": {"L4_H4": {"pr": [...]}}}                        or one object a head
///
/// The lists of checkpoints may also be called steps, ckpt_step, trajectory_steps; tokens, a count,
/// or ckpt_tokens_B, trajectory_tokens_B, in billions. Anything else is ignored. Throws InputError
/// naming file, head and quantity when there is no list of steps or lists differ in length.
std::string table_of_json(std::istream& stream, const std::string& name);

}  // namespace headscope::cli
