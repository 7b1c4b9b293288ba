/* SPDX-License-Identifier: Apache-2.0
 *
 * The pipeline compiled once as C, for tests in C++.
 */
#ifndef SPLITPLANE_TESTS_NATIVE_PIPELINE_H
#define SPLITPLANE_TESTS_NATIVE_PIPELINE_H

#include "pipeline/verdict.h"

struct sp_verdict sp_native_pipeline(sp_tables tables, struct sp_packet *packet, sp_u32 port);
sp_u32 sp_native_selector_hash(struct sp_packet *packet);

#endif
