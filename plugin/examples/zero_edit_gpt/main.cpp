// A GPT with torch::nn::MultiheadAttention, watched without a line in its code (docs/attach.md).

#include "plugin/examples/zero_edit/program.h"
#include "plugin/examples/zero_edit_gpt/model.h"

int main(int argc, char** argv) {
  return headscope::demo::zero_edit_program(
      argc, argv, "zero_edit_gpt", [](const headscope::demo::SubjectShape& shape) {
        gpt::Gpt model(gpt::Config{shape.vocab_size, shape.layers, shape.context});
        return headscope::demo::Subject{
            model.ptr(), [model](const at::Tensor& tokens) mutable { return model(tokens); }};
      });
}
