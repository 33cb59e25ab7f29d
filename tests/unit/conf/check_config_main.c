/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recpsd without the server: reads the options and prints the resolution, so
 * that conf/ can be tested as a program before recpsd is linked.
 */
#include "conf/options.h"

int
main(int argc, char **argv)
{
    struct rps_options options;
    int code = rps_options_read(&options, RPS_SCOPE_SERVER, "recpsd",
            "usage: recpsd [OPTION]...\n", false, argc, argv);

    if (code < 0) {
        code = rps_check_config_print(&options, NULL);
    }
    rps_options_finish(&options);
    return code;
}
