/* An interpreter with one of our modules in C, and what a fuzzer asserts of it.
 *
 * Whoever includes this defines MODULE, the module's name, first. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>

#define JOINED(first, second) first##second
#define INIT_OF(name) JOINED(PyInit_, name)
#define QUOTED(name) #name
#define NAME_OF(name) QUOTED(name)

PyMODINIT_FUNC INIT_OF(MODULE)(void);

static PyObject *module;

static void require(int holds, const char *what)
{
    if (holds)
        return;
    if (PyErr_Occurred())
        PyErr_Print();
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    require(PyImport_AppendInittab(NAME_OF(MODULE), INIT_OF(MODULE)) == 0, "room for the module");
    Py_InitializeEx(0);
    module = PyImport_ImportModule(NAME_OF(MODULE));
    require(module != NULL, "the module");
    return 0;
}
