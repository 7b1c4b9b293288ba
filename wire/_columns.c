/* Splits a column of prefixes into keys: what wire/columns.py does for each route of a message. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether a key's length is one of its family, and no bit is set beyond it (RFC 4632 section 3.1). */
static bool is_prefix(const uint8_t *key, size_t address_size)
{
    unsigned bits = key[address_size];
    if (bits > address_size * 8)
        return false;
    size_t at = bits / 8;
    if (at < address_size && key[at++] & 0xFF >> bits % 8)
        return false;
    for (; at < address_size; at++)
        if (key[at])
            return false;
    return true;
}

PyDoc_STRVAR(split_doc, "split(column, stride) -> list[bytes] | int\n\n"
                        "Return the keys of a column, which is a multiple of `stride` octets; or the position of the "
                        "first key that is no prefix.");

static PyObject *split(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer column;
    Py_ssize_t stride;
    if (!PyArg_ParseTuple(arguments, "y*n", &column, &stride))
        return NULL;
    PyObject *keys = NULL;
    if (stride < 2 || column.len % stride) {
        PyErr_SetString(PyExc_ValueError, "the column is no multiple of its stride");
    } else if ((keys = PyList_New(column.len / stride))) {
        for (Py_ssize_t i = 0; keys && i < column.len / stride; i++) {
            const uint8_t *octets = (const uint8_t *)column.buf + i * stride;
            PyObject *key = NULL;
            if (!is_prefix(octets, (size_t)stride - 1))
                Py_SETREF(keys, PyLong_FromSsize_t(i));
            else if (!(key = PyBytes_FromStringAndSize((const char *)octets, stride)))
                Py_CLEAR(keys);
            if (!key)
                break;
            PyList_SET_ITEM(keys, i, key);
        }
    }
    PyBuffer_Release(&column);
    return keys;
}

static PyMethodDef methods[] = {
    {"split", split, METH_VARARGS, split_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "wire._columns",
    .m_doc = "The loop of wire.columns that runs once for each route.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__columns(void)
{
    return PyModule_Create(&module);
}
