/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that the verifier refuses: it reads the frame without a look at where that ends.
 */
#include "engine/xdp/run.h"

char sp_license[] SEC("license") = "Apache-2.0";

SEC("xdp")
int forward(struct xdp_md *context) { return *(sp_u8 *)(long)context->data; }
