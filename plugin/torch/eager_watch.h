#pragma once

#include "plugin/torch/seen_call.h"

namespace headscope {

/// Shows the observer every bmm (or baddbmm) -> softmax -> bmm of this thread until it is stopped,
/// by torch's own record of operators. That taxes every operator of the thread (1.5 to 1.9 times
/// for tiny ones): only while something is measured.
///
/// q, k and the mask are not asked for: the scores that went into the softmax say all. The observer
/// sees q and k as the product had them, scale 0 and the scores as bias, which gives the same
/// softmax rows. The scores, which the model has in memory anyway, live until the second product is
/// done.
void observe_eager(CallObserver* observer);
void stop_observing_eager(CallObserver* observer);

}  // namespace headscope
