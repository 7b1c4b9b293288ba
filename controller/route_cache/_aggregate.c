/* Labels as a Python type: keys and actions in, writes out. See _labels.h for what they are. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_labels.h"

enum { MOST_KEY = 17 };

typedef struct {
    PyObject_HEAD
    struct labels labels;
} Labels;

struct item {
    address_t address;
    int64_t action;
    unsigned length;
};

/* Keys */

static address_t address_from(const unsigned char *octets, Py_ssize_t count)
{
    address_t address = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        address |= (address_t)octets[i] << (120 - 8 * i);
    return address;
}

static PyObject *key_from(const struct labels *labels, address_t address, unsigned length)
{
    char octets[MOST_KEY];
    unsigned count = labels->width / 8;
    for (unsigned i = 0; i < count; i++)
        octets[i] = (char)(address >> (120 - 8 * i));
    octets[count] = (char)length;
    return PyBytes_FromStringAndSize(octets, count + 1);
}

/* Read a key and what it should have; false with ValueError or TypeError set. */
static bool read_item(const struct labels *labels, PyObject *key, PyObject *action, struct item *item)
{
    Py_ssize_t count = labels->width / 8;
    if (!PyBytes_Check(key) || PyBytes_GET_SIZE(key) != count + 1) {
        PyErr_Format(PyExc_ValueError, "%R is no prefix key of %zd octets", key, count + 1);
        return false;
    }
    const unsigned char *octets = (const unsigned char *)PyBytes_AS_STRING(key);
    item->address = address_from(octets, count);
    item->length = octets[count];
    if (item->length > labels->width || (item->length < 128 && item->address << item->length)) {
        PyErr_Format(PyExc_ValueError, "%R is longer than its address or has bits set beyond its length", key);
        return false;
    }
    item->action = NO_ACTION;
    if (action != Py_None) {
        unsigned long long number = PyLong_AsUnsignedLongLong(action);
        if (PyErr_Occurred() || number > UINT32_MAX) {
            PyErr_Clear();
            PyErr_Format(PyExc_ValueError, "%R is no action of 32 bits", action);
            return false;
        }
        item->action = (int64_t)number;
    }
    return true;
}

static int compare_items(const void *one, const void *other)
{
    const struct item *left = one, *right = other;
    if (left->address != right->address)
        return left->address < right->address ? -1 : 1;
    return (int)left->length - (int)right->length;
}

/* Writes */

static bool add_write(const struct labels *labels, PyObject *writes, const struct change *one)
{
    PyObject *key = key_from(labels, (address_t)one->high << 64 | one->low, one->length);
    PyObject *action = one->now == NO_ACTION ? Py_NewRef(Py_None) : PyLong_FromLongLong(one->now);
    bool sound = key && action && !PyDict_SetItem(writes, key, action);
    Py_XDECREF(key);
    Py_XDECREF(action);
    return sound;
}

/* Return what has to be written, and forget it. */
static PyObject *taken_writes(struct labels *labels)
{
    PyObject *writes = PyDict_New();
    for (uint32_t i = 0; writes && i < labels->changes.room; i++) {
        const struct change *one = &labels->changes.slots[i];
        if (one->used && one->before != one->now && !add_write(labels, writes, one))
            Py_CLEAR(writes);
    }
    end_changes(labels);
    return writes;
}

/* Methods */

PyDoc_STRVAR(change_doc,
             "change(changes, kept, budget) -> dict[bytes, int | None]\n\n"
             "Give prefixes actions or None, then settle queued nodes with as many writes in all as `budget`; return "
             "the writes. ValueError for what is no key or action; then nothing is changed.");

static PyObject *change(Labels *self, PyObject *arguments)
{
    PyObject *changes, *key, *action;
    int kept;
    unsigned long long budget;
    if (!PyArg_ParseTuple(arguments, "O!pK", &PyDict_Type, &changes, &kept, &budget))
        return NULL;
    Py_ssize_t size = PyDict_GET_SIZE(changes), position = 0, count = 0;
    struct item *items = PyMem_New(struct item, size ? size : 1);
    if (!items)
        return PyErr_NoMemory();
    bool sound = true;
    while (sound && PyDict_Next(changes, &position, &key, &action))
        sound = read_item(&self->labels, key, action, &items[count++]);
    if (sound) /* neighbors in the trie are neighbors in memory then */
        qsort(items, (size_t)count, sizeof *items, compare_items);
    for (Py_ssize_t i = 0; sound && i < count; i++)
        change_route(&self->labels, items[i].address, items[i].length, items[i].action, kept);
    PyMem_Free(items);
    if (!sound)
        return NULL;
    finish(&self->labels);
    improve(&self->labels, budget, UINT64_MAX);
    return taken_writes(&self->labels);
}

PyDoc_STRVAR(improve_doc,
             "improve(budget, looks) -> dict[bytes, int | None]\n\n"
             "Settle queued nodes while there are writes and looks at nodes left; return the writes.");

static PyObject *improve_method(Labels *self, PyObject *arguments)
{
    unsigned long long budget, looks;
    if (!PyArg_ParseTuple(arguments, "KK", &budget, &looks))
        return NULL;
    improve(&self->labels, budget, looks);
    return taken_writes(&self->labels);
}

PyDoc_STRVAR(match_doc,
             "match(address) -> tuple[bytes, int] | None\n\n"
             "Return the entry that forwards an address: its key and action.");

static PyObject *match(Labels *self, PyObject *address)
{
    Py_ssize_t count = self->labels.width / 8;
    if (!PyBytes_Check(address) || PyBytes_GET_SIZE(address) != count)
        return PyErr_Format(PyExc_ValueError, "%R is no address of %zd octets", address, count);
    address_t at = address_from((const unsigned char *)PyBytes_AS_STRING(address), count);
    struct match found = longest_match(&self->labels, at);
    if (found.action == NO_ACTION)
        Py_RETURN_NONE;
    return Py_BuildValue("NL", key_from(&self->labels, found.address, found.length), (long long)found.action);
}

PyDoc_STRVAR(table_doc, "table() -> dict[bytes, int]\n\nReturn all entries.");

static PyObject *table(Labels *self, PyObject *Py_UNUSED(arguments))
{
    struct labels *labels = &self->labels;
    uint64_t entries = labels->entries;
    note_all(labels);
    labels->entries = entries;
    return taken_writes(labels);
}

/* Attributes */

static PyObject *get_entries(Labels *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(self->labels.entries);
}

static PyObject *get_routes(Labels *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(self->labels.routes);
}

static PyObject *get_queued(Labels *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(self->labels.queue.count);
}

static PyGetSetDef attributes[] = {
    {"entries", (getter)get_entries, NULL, "entries of the aggregated table", NULL},
    {"routes", (getter)get_routes, NULL, "prefixes of the full table", NULL},
    {"queued", (getter)get_queued, NULL, "nodes that improve has to look at", NULL},
    {0},
};

static PyMethodDef methods[] = {
    {"change", (PyCFunction)change, METH_VARARGS, change_doc},
    {"improve", (PyCFunction)improve_method, METH_VARARGS, improve_doc},
    {"match", (PyCFunction)match, METH_O, match_doc},
    {"table", (PyCFunction)table, METH_NOARGS, table_doc},
    {0},
};

/* The type */

static PyObject *new_labels(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    static char *names[] = {"width", "limit", NULL};
    unsigned width, limit;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "II", names, &width, &limit))
        return NULL;
    if (width != 32 && width != 128)
        return PyErr_Format(PyExc_ValueError, "addresses have 32 or 128 bits, not %u", width);
    Labels *self = (Labels *)type->tp_alloc(type, 0);
    if (self)
        begin_labels(&self->labels, width, limit);
    return (PyObject *)self;
}

static void dealloc(Labels *self)
{
    end_labels(&self->labels);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject labels_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "controller.route_cache._aggregate.Labels",
    .tp_doc = "Labels(width, limit): the labels of one route table; see _labels.h.",
    .tp_basicsize = sizeof(Labels),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = new_labels,
    .tp_dealloc = (destructor)dealloc,
    .tp_methods = methods,
    .tp_getset = attributes,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "controller.route_cache._aggregate",
    .m_doc = "The labels of route tables.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__aggregate(void)
{
    PyObject *self = PyType_Ready(&labels_type) ? NULL : PyModule_Create(&module);
    if (self && PyModule_AddObjectRef(self, "Labels", (PyObject *)&labels_type))
        Py_CLEAR(self);
    return self;
}
