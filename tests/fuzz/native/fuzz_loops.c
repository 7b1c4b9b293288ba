/* The loops in C over what zebra and the kernel say (vrc/netlink/_loops.c), in an interpreter of their own.
 *
 * With PYTHONMALLOC=malloc a buffer is as long as its input, so that AddressSanitizer sees every octet too far. */
#define MODULE _loops
#include "interpreter.h"

/* What a loop returns is where it stopped: not before where it began, and not after the end, but for what aligns the
 * last message. */
static void run(const char *name, PyObject *buffer, Py_ssize_t size, Py_ssize_t offset, Py_ssize_t last)
{
    PyObject *changes = PyList_New(0);
    PyObject *stopped = PyObject_CallMethod(module, name, "OnnO", buffer, offset, last, changes);
    if (stopped) {
        Py_ssize_t at = PyLong_AsSsize_t(stopped);
        require(at >= offset && at <= size + 3, name);
        Py_DECREF(stopped);
    } else {
        require(PyErr_ExceptionMatches(PyExc_ValueError), "another exception than ValueError");
        PyErr_Clear();
    }
    Py_DECREF(changes);
}

int LLVMFuzzerTestOneInput(const uint8_t *octets, size_t size)
{
    PyObject *buffer = PyBytes_FromStringAndSize((const char *)octets, (Py_ssize_t)size);
    require(buffer != NULL, "a buffer");
    run("frames", buffer, (Py_ssize_t)size, 0, 1000);
    run("frames", buffer, (Py_ssize_t)size, 0, 1);
    run("messages", buffer, (Py_ssize_t)size, 0, (Py_ssize_t)size);
    if (size > 4)
        run("messages", buffer, (Py_ssize_t)size, 4, (Py_ssize_t)size);
    Py_DECREF(buffer);
    return 0;
}
