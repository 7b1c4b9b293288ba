/* The two loops of the controller that run once for each route: a message into the RIB, and the FIB's queue into
 * columns of updates.
 *
 *     keys, ids ── replace ──► routes (RIB) ── take ──► installed, updates
 *
 * Where it is not plain what a prefix should have, `take` asks Python (controller/routing/fib.py); the same for the quota
 * (controller/routing/prefixes.py).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "../../wire/_runs.h"

enum { IPV4_KEY = 5 };

static PyObject *name_action, *zero;

/* A message into the RIB */

/* Return the sets that ids name, NULL for 0: an array to be freed, of borrowed references. KeyError for an unknown. */
static PyObject **find_sets(const Py_buffer *ids, PyObject *names)
{
    Py_ssize_t count = ids->len / (Py_ssize_t)sizeof(uint32_t);
    PyObject **sets = PyMem_New(PyObject *, count ? count : 1);
    if (!sets)
        return (PyObject **)PyErr_NoMemory();
    uint32_t last = 0;
    PyObject *set = NULL; /* of `last` */
    for (Py_ssize_t i = 0; i < count; i++) {
        uint32_t id;
        memcpy(&id, (const char *)ids->buf + i * (Py_ssize_t)sizeof id, sizeof id);
        if (id && id != last) {
            PyObject *name = PyLong_FromUnsignedLong(id);
            set = name ? PyDict_GetItemWithError(names, name) : NULL;
            if (name && !set && !PyErr_Occurred())
                PyErr_SetObject(PyExc_KeyError, name);
            Py_XDECREF(name);
            if (!set) {
                PyMem_Free(sets);
                return NULL;
            }
            last = id;
        }
        sets[i] = id ? set : NULL;
    }
    return sets;
}

/* Append a set to a list that does not end with it; false with an exception set. */
static bool append_run(PyObject *sets, PyObject *set)
{
    Py_ssize_t size = PyList_GET_SIZE(sets);
    return (size && PyList_GET_ITEM(sets, size - 1) == set) || !PyList_Append(sets, set);
}

/* Give a prefix a set, or none (NULL); the set that it had is appended to `left`. Returns 1 where that changed something, 0, or -1 with an exception set. */
static int replace_one(PyObject *routes, PyObject *key, PyObject *set, struct run *run, long *count, PyObject *left)
{
    PyObject *old = PyDict_GetItemWithError(routes, key);
    if (!old && PyErr_Occurred())
        return -1;
    if (old == set)
        return 0;
    if (old && (!count_routes(run, old, -1) || !append_run(left, old)))
        return -1;
    if (!set) {
        --*count;
        return PyDict_DelItem(routes, key) ? -1 : 1;
    }
    if (set != run->object && !begin_run(run, set))
        return -1;
    run->gained++;
    *count += !old;
    return PyDict_SetItem(routes, key, set) ? -1 : 1;
}

PyDoc_STRVAR(replace_doc,
             "replace(keys, ids, names, routes) -> (list[bytes], int, list[NexthopSet])\n\n"
             "Give each key of `routes` the set that its id names (32-bit numbers), withdraw it where that is 0. "
             "Returns the keys that changed, how many more routes there are, and the sets that lost some. KeyError where "
             "an id has no name: nothing is changed.");

static PyObject *replace(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *keys, *names, *routes;
    Py_buffer ids;
    if (!PyArg_ParseTuple(arguments, "O!y*O!O!", &PyList_Type, &keys, &ids, &PyDict_Type, &names, &PyDict_Type,
                          &routes))
        return NULL;
    PyObject **sets = NULL, *changed = NULL, *left = NULL;
    struct run run = {0};
    long count = 0;
    Py_ssize_t size = PyList_GET_SIZE(keys);
    if (ids.len != size * (Py_ssize_t)sizeof(uint32_t))
        PyErr_Format(PyExc_ValueError, "%zd keys with %zd octets of ids", size, ids.len);
    else if ((sets = find_sets(&ids, names)) && (left = PyList_New(0)))
        changed = PyList_New(0);
    for (Py_ssize_t i = 0; changed && i < size; i++) {
        PyObject *key = PyList_GET_ITEM(keys, i);
        int replaced = replace_one(routes, key, sets[i], &run, &count, left);
        if (replaced < 0 || (replaced && PyList_Append(changed, key)))
            Py_CLEAR(changed);
    }
    PyMem_Free(sets);
    PyBuffer_Release(&ids);
    if (!end_run(&run))
        Py_CLEAR(changed);
    if (changed)
        return Py_BuildValue("NlN", changed, count, left);
    Py_XDECREF(left);
    return NULL;
}

/* The FIB's queue into columns */

struct column {
    PyObject *ops, *keys, *actions;
    long room, added; /* for new prefixes: what the quota leaves; how many there are more */
};

struct taking {
    PyObject *own, *routes, *decide;
    PyObject *installed, *references, *refused, *released;
    PyObject *admit, *insert, *modify, *delete;
    struct column columns[2]; /* IPv4, IPv6 */
    PyObject *set, *action;   /* owned: the last set, and its action */
    PyObject *counted;        /* owned: an action whose new references are not written yet */
    long gained;
};

/* Write the references that `counted` gained; false with an exception set. */
static bool end_count(struct taking *taking)
{
    bool sound = true;
    if (taking->gained) {
        PyObject *before = PyDict_GetItemWithError(taking->references, taking->counted);
        long total = before ? PyLong_AsLong(before) : 0;
        PyObject *sum = PyErr_Occurred() ? NULL : PyLong_FromLong(total + taking->gained);
        sound = sum && !PyDict_SetItem(taking->references, taking->counted, sum);
        Py_XDECREF(sum);
    }
    Py_CLEAR(taking->counted);
    taking->gained = 0;
    return sound;
}

static bool count_reference(struct taking *taking, PyObject *action)
{
    if (action != taking->counted) {
        if (!end_count(taking))
            return false;
        taking->counted = Py_NewRef(action);
    }
    taking->gained++;
    return true;
}

/* Return the action a prefix should have (a new reference), Py_None for none, NULL with an exception set. */
static PyObject *desired(struct taking *taking, PyObject *key, PyObject *have)
{
    int own = PyDict_Contains(taking->own, key);
    if (own)
        return own < 0 ? NULL : PyObject_CallOneArg(taking->decide, key);
    PyObject *set = PyDict_GetItemWithError(taking->routes, key);
    if (!set)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    if (set != taking->set) {
        PyObject *action = PyObject_GetAttr(set, name_action);
        if (!action)
            return NULL;
        Py_XSETREF(taking->set, Py_NewRef(set));
        Py_XSETREF(taking->action, action);
    }
    int plain = !have || have == taking->action ? 1 : PyObject_RichCompareBool(have, taking->action, Py_EQ);
    int installable = PyObject_IsTrue(taking->action);
    if (plain < 0 || installable < 0)
        return NULL;
    if (!plain && installable) /* it may stay on the object that it has */
        return PyObject_CallOneArg(taking->decide, key);
    return Py_NewRef(installable ? taking->action : Py_None);
}

/* Whether the quota admits a new prefix. Returns 1, 0, or -1 with an exception set. */
static int is_admitted(struct taking *taking, struct column *column, PyObject *key)
{
    if (column->room <= 0) {
        PyObject *answer = PyObject_CallOneArg(taking->admit, key);
        int admitted = answer ? PyObject_IsTrue(answer) : -1;
        Py_XDECREF(answer);
        if (admitted <= 0)
            return admitted;
    }
    column->room--;
    column->added++;
    return 1;
}

static int forget_refusal(struct taking *taking, PyObject *key)
{
    int refused = PyDict_GET_SIZE(taking->refused) ? PyDict_Contains(taking->refused, key) : 0;
    return refused > 0 ? PyDict_DelItem(taking->refused, key) : refused;
}

static bool append(struct column *column, PyObject *op, PyObject *key, PyObject *action)
{
    return !PyList_Append(column->ops, op) && !PyList_Append(column->keys, key) &&
           !PyList_Append(column->actions, action);
}

/* Make what is installed of a prefix (`have`, NULL for nothing) what is wanted; false with an exception set. */
static bool install(struct taking *taking, PyObject *key, PyObject *have, PyObject *want)
{
    struct column *column = &taking->columns[PyBytes_GET_SIZE(key) != IPV4_KEY];
    if (!have) {
        int admitted = is_admitted(taking, column, key);
        if (admitted <= 0)
            return !admitted;
        if (forget_refusal(taking, key))
            return false;
    } else if (PyList_Append(taking->released, have)) {
        return false;
    }
    if (want == Py_None) {
        column->room++;
        column->added--;
        return append(column, taking->delete, key, zero) && !PyDict_DelItem(taking->installed, key);
    }
    return append(column, have ? taking->modify : taking->insert, key, want) &&
           !PyDict_SetItem(taking->installed, key, want) && count_reference(taking, want);
}

static bool take_one(struct taking *taking, PyObject *key)
{
    if (!PyBytes_CheckExact(key)) {
        PyErr_SetString(PyExc_TypeError, "a prefix key is bytes");
        return false;
    }
    PyObject *have = PyDict_GetItemWithError(taking->installed, key);
    if (!have && PyErr_Occurred())
        return false;
    Py_XINCREF(have);
    PyObject *want = desired(taking, key, have);
    int equal = want ? (have ? have == want : want == Py_None) : -1;
    if (!equal && have && want != Py_None)
        equal = PyObject_RichCompareBool(have, want, Py_EQ);
    bool sound = equal > 0 ? !forget_refusal(taking, key) : !equal && install(taking, key, have, want);
    Py_XDECREF(want);
    Py_XDECREF(have);
    return sound;
}

PyDoc_STRVAR(take_doc,
             "take(keys, (own, routes, decide), (installed, references, refused, released), (room4, room6, admit),\n"
             "     (insert, modify, delete), (ops4, keys4, actions4), (ops6, keys6, actions6)) -> (int, int)\n\n"
             "Append the updates that give prefixes what they should have now to the columns of their family, and note "
             "them in `installed` and what goes with it. Returns how many more prefixes of each family there are.");

static PyObject *take(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    struct taking taking = {0};
    struct column *ipv4 = &taking.columns[0], *ipv6 = &taking.columns[1];
    PyObject *keys;
    if (!PyArg_ParseTuple(arguments, "O!(O!O!O)(O!O!O!O!)(llO)(OOO)(O!O!O!)(O!O!O!)", &PyList_Type, &keys,
                          &PyDict_Type, &taking.own, &PyDict_Type, &taking.routes, &taking.decide, &PyDict_Type,
                          &taking.installed, &PyDict_Type, &taking.references, &PyDict_Type, &taking.refused,
                          &PyList_Type, &taking.released, &ipv4->room, &ipv6->room, &taking.admit, &taking.insert,
                          &taking.modify, &taking.delete, &PyList_Type, &ipv4->ops, &PyList_Type, &ipv4->keys,
                          &PyList_Type, &ipv4->actions, &PyList_Type, &ipv6->ops, &PyList_Type, &ipv6->keys,
                          &PyList_Type, &ipv6->actions))
        return NULL;
    bool sound = true;
    for (Py_ssize_t i = 0; sound && i < PyList_GET_SIZE(keys); i++)
        sound = take_one(&taking, PyList_GET_ITEM(keys, i));
    sound = sound && end_count(&taking);
    Py_CLEAR(taking.counted);
    Py_CLEAR(taking.set);
    Py_CLEAR(taking.action);
    return sound ? Py_BuildValue("ll", ipv4->added, ipv6->added) : NULL;
}

static PyMethodDef methods[] = {
    {"replace", replace, METH_VARARGS, replace_doc},
    {"take", take, METH_VARARGS, take_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "controller.routing._routes",
    .m_doc = "The loops of the controller that run once for each route.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__routes(void)
{
    name_action = PyUnicode_InternFromString("action");
    zero = PyLong_FromLong(0);
    return name_action && zero ? PyModule_Create(&module) : NULL;
}
