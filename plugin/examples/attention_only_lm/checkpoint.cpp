#include "plugin/examples/attention_only_lm/checkpoint.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>

#include <bit>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "headscope/state_io.h"
#include "plugin/examples/text/loss_hash.h"

namespace headscope::demo {
namespace {

constexpr int64_t kFormat = 1;

std::string exact(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string hash_of(const std::string& text) {
  uint64_t value = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hexadecimal(value);
}

c10::IValue read_value(torch::serialize::InputArchive& archive, const char* key) {
  c10::IValue value;
  if (!archive.try_read(key, value))
    throw std::runtime_error(std::string("it has no entry '") + key + "'");
  return value;
}

std::string differences(const RunDefinition& then, const RunDefinition& now) {
  std::string text;
  for (const auto& [name, value] : now) {
    const auto before = then.find(name);
    const std::string was = before == then.end() ? "unknown" : before->second;
    if (was != value)
      text += (text.empty() ? "" : ", ") + name + " was " + was + " and is " + value;
  }
  return text;
}

}  // namespace

RunDefinition definition_of(const DemoOptions& options, const std::string& corpus_text) {
  return {{"--layers", std::to_string(options.layers)},
          {"--heads", std::to_string(options.heads)},
          {"--width", std::to_string(options.width)},
          {"--context", std::to_string(options.context)},
          {"--batch", std::to_string(options.batch)},
          {"--seed", std::to_string(options.seed)},
          {"--lr", exact(options.learning_rate)},
          {"--repeat-share", exact(options.repeat_share)},
          {"--monitor", to_string(options.monitor)},
          {"--corpus (hash of its content)", hash_of(corpus_text)}};
}

std::string checkpoint_path(const std::string& run_dir) {
  return (std::filesystem::path(run_dir) / "checkpoint.pt").string();
}

std::string checkpoint_bytes(const CheckpointFacts& facts, const TrainingResult& progress,
                             const RunParts& parts) {
  c10::Dict<std::string, std::string> definition;
  for (const auto& [name, value] : facts.definition) definition.insert(name, value);
  c10::List<double> legs;
  for (const Leg& leg : progress.legs) {
    legs.push_back(leg.start_time);
    legs.push_back(leg.seconds_before);
    legs.push_back(static_cast<double>(leg.first_step));
  }
  torch::serialize::OutputArchive archive;
  archive.write("format", c10::IValue(kFormat));
  archive.write("definition", c10::IValue(definition));
  archive.write("probe_gap", c10::IValue(facts.probe_gap));
  archive.write("threads", c10::IValue(static_cast<int64_t>(facts.threads)));
  archive.write("steps", c10::IValue(progress.steps));
  archive.write("final_loss", c10::IValue(progress.final_loss));
  archive.write("loss_hash", c10::IValue(std::bit_cast<int64_t>(progress.loss_hash)));
  archive.write("seconds", c10::IValue(progress.seconds));
  archive.write("step_seconds", c10::IValue(progress.step_seconds));
  archive.write("monitor_seconds", c10::IValue(progress.monitor_seconds));
  archive.write("legs", c10::IValue(legs));
  archive.write("batches", c10::IValue(parts.batches.save()));
  torch::serialize::OutputArchive model, optimizer;
  parts.model.save(model);
  archive.write("model", model);
  parts.optimizer.save(optimizer);
  archive.write("optimizer", optimizer);
  if (parts.monitor != nullptr) write_state(parts.monitor->state_dict(), archive);
  std::ostringstream out;
  archive.save_to(out);
  return out.str();
}

void write_checkpoint(const std::string& run_dir, const std::string& bytes) {
  std::error_code error;
  std::filesystem::create_directories(run_dir, error);
  if (error)
    throw std::runtime_error("cannot create run directory '" + run_dir + "': " + error.message());
  replace_durably(checkpoint_path(run_dir), bytes);
}

void move_checkpoint_aside(const std::string& run_dir) {
  const std::string path = checkpoint_path(run_dir), aside = path + ".previous";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return;
  std::filesystem::rename(path, aside, error);
  if (error)
    throw std::invalid_argument("'" + path + "' is of an earlier run and cannot be moved away (" +
                                error.message() + "): give --resume or another --run-dir");
  std::fprintf(stderr,
               "attention_only_lm: a new run begins; the checkpoint of the earlier one is now %s\n",
               aside.c_str());
}

Checkpoint::Checkpoint(const DemoOptions& options, const RunDefinition& definition) {
  const std::string path = checkpoint_path(options.run_dir);
  if (!std::filesystem::exists(path))
    throw std::invalid_argument("--resume: there is nothing to resume, no checkpoint lies at '" +
                                path + "': run without --resume to start from the beginning");
  try {
    read(path);
  } catch (const c10::Error& error) {
    const std::string words = error.what_without_backtrace();
    throw std::invalid_argument("--resume: '" + path + "' cannot be read (" +
                                words.substr(0, words.find('\n')) +
                                "): run without --resume to start from the beginning");
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument("--resume: '" + path + "' is no checkpoint of this program (" +
                                error.what() +
                                "): run without --resume to start from the beginning");
  }
  if (const std::string text = differences(facts_.definition, definition); !text.empty())
    throw std::invalid_argument("--resume: the run in '" + options.run_dir +
                                "' is another one: " + text + ": give the options it began with");
  if (progress_.steps >= options.steps)
    throw std::invalid_argument("--resume: the run in '" + options.run_dir + "' has done " +
                                std::to_string(progress_.steps) +
                                " steps: give more --steps to go on");
}

void Checkpoint::read(const std::string& path) {
  archive_.load_from(path);
  if (const int64_t format = read_value(archive_, "format").toInt(); format != kFormat)
    throw std::runtime_error("format " + std::to_string(format) + ", this program reads format " +
                             std::to_string(kFormat));
  for (const auto& entry : read_value(archive_, "definition").toGenericDict())
    facts_.definition[entry.key().toStringRef()] = entry.value().toStringRef();
  facts_.probe_gap = read_value(archive_, "probe_gap").toInt();
  facts_.threads = static_cast<int>(read_value(archive_, "threads").toInt());
  progress_.steps = read_value(archive_, "steps").toInt();
  progress_.final_loss = read_value(archive_, "final_loss").toDouble();
  progress_.loss_hash = std::bit_cast<uint64_t>(read_value(archive_, "loss_hash").toInt());
  progress_.seconds = read_value(archive_, "seconds").toDouble();
  progress_.step_seconds = read_value(archive_, "step_seconds").toDouble();
  progress_.monitor_seconds = read_value(archive_, "monitor_seconds").toDouble();
  const std::vector<double> legs = read_value(archive_, "legs").toDoubleVector();
  for (size_t i = 0; i + 2 < legs.size(); i += 3)
    progress_.legs.push_back({legs[i], legs[i + 1], static_cast<int64_t>(legs[i + 2])});
}

void Checkpoint::restore(const RunParts& parts) {
  torch::serialize::InputArchive model, optimizer;
  archive_.read("model", model);
  parts.model.load(model);
  archive_.read("optimizer", optimizer);
  parts.optimizer.load(optimizer);
  parts.batches.restore(read_value(archive_, "batches").toStringRef());
  if (parts.monitor != nullptr) parts.monitor->load_state_dict(read_state(archive_));
}

}  // namespace headscope::demo
