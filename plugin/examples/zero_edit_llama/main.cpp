// A llama-style model with grouped-query scaled_dot_product_attention, watched without a line in
// its code (docs/attach.md).

#include "plugin/examples/zero_edit/program.h"
#include "plugin/examples/zero_edit_llama/model.h"

int main(int argc, char** argv) {
  return headscope::demo::zero_edit_program(
      argc, argv, "zero_edit_llama", [](const headscope::demo::SubjectShape& shape) {
        llama::Transformer model(llama::Config{shape.vocab_size, shape.layers, shape.context});
        return headscope::demo::Subject{
            model.ptr(), [model](const at::Tensor& tokens) mutable { return model(tokens); }};
      });
}
