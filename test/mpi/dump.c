/* SPDX-License-Identifier: BSD-3-Clause */
/* What a debugger calls to have the state of all connections written: Open MPI's pml_dump, which
 * calls each BTL's btl_dump unchecked. With 4.1 alone: later headers need more than a program has.
 */
#include "check.h"

#if OMPI_MAJOR_VERSION < 5
#include <ompi_config.h>

#include <ompi/mca/pml/pml.h>
#endif

int main(int argc, char **argv)
{
    enum { SIZE = 100 };
    unsigned char memory[SIZE];

    MPI_Init(&argc, &argv);
    check_transfer(memory, SIZE, stamp_key(3, 0, 0, 0), "before the dump");
#if OMPI_MAJOR_VERSION < 5
    mca_pml.pml_dump(MPI_COMM_WORLD, 0);
#endif
    return check_end();
}
