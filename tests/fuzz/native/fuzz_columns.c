/* The loop in C over a column of prefixes (wire/_columns.c), held against a plain one; see fuzz_loops.c. */
#define MODULE _columns
#include "interpreter.h"

/* Bit by bit: whether no bit beyond the length is set, and the length is one. */
static int is_prefix(const uint8_t *key, size_t address)
{
    if (key[address] > 8 * address)
        return 0;
    for (size_t bit = key[address]; bit < 8 * address; bit++)
        if (key[bit / 8] >> (7 - bit % 8) & 1)
            return 0;
    return 1;
}

static void run(const uint8_t *octets, size_t size, size_t stride)
{
    PyObject *column = PyBytes_FromStringAndSize((const char *)octets, (Py_ssize_t)size);
    PyObject *keys = PyObject_CallMethod(module, "split", "On", column, (Py_ssize_t)stride);
    size_t bad = 0;
    while (bad < size / stride && is_prefix(octets + bad * stride, stride - 1))
        bad++;
    if (!keys) {
        require(PyErr_ExceptionMatches(PyExc_ValueError) && size % stride, "ValueError for half a key");
        PyErr_Clear();
    } else if (PyList_Check(keys)) {
        require(!(size % stride) && bad == size / stride && (size_t)PyList_Size(keys) == bad, "keys");
        for (size_t i = 0; i < bad; i++)
            require(!memcmp(PyBytes_AsString(PyList_GetItem(keys, (Py_ssize_t)i)), octets + i * stride, stride), "a key");
    } else {
        require((size_t)PyLong_AsSsize_t(keys) == bad && bad < size / stride, "the position of what is no prefix");
    }
    Py_XDECREF(keys);
    Py_DECREF(column);
}

int LLVMFuzzerTestOneInput(const uint8_t *octets, size_t size)
{
    run(octets, size, 5);
    run(octets, size, 17);
    run(octets, size - size % 5, 5);
    run(octets, size - size % 17, 17);
    return 0;
}
