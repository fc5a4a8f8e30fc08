// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Every function of the policy, with external linkage (PL_EXPORT), and the layout of every struct. */
#include <stddef.h>
#include "bandwidth.h"
#include "pelt.h"
#include "load.h"
#include "weight.h"
#include "fair.h"
#include "sparsemask.h"
#include "steal.h"
#include "group.h"
#include "task.h"
#include "place.h"
#include "entity.h"
#include "domain.h"
#include "steps.h"
#include "baseline/balance.h"
#include "baseline/cfs.h"
#include "baseline/recorded.h"
#include "baseline/wake.h"
#include "headroom.h"
#include "lend.h"
#include "layout.h"

u64 pl_layout(u32 index)
{
	return index < sizeof(pl_layout_values) / sizeof(pl_layout_values[0]) ? pl_layout_values[index]
									      : ~0ULL;
}
