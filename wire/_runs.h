/* Runs of routes that refer to the same object, as routes beside each other in a message mostly do.
 *
 * Such an object (a Binding of the VRC, a NexthopSet of the controller) counts its routes in its attribute `routes`.
 * What a run added to it is written when the run ends, and not once for each route.
 */
#pragma once

#include <Python.h>

#include <stdbool.h>

/* `gained` may be negative. The object is owned. */
struct run {
    PyObject *object;
    long gained;
};

static inline PyObject *routes_name(void)
{
    static PyObject *name;
    return name ? name : (name = PyUnicode_InternFromString("routes"));
}

/* Add to the attribute `routes` of an object; false with an exception set. */
static inline bool add_routes(PyObject *object, long count)
{
    PyObject *name = routes_name(), *routes = name ? PyObject_GetAttr(object, name) : NULL;
    long total = routes ? PyLong_AsLong(routes) : -1;
    Py_XDECREF(routes);
    if (total == -1 && PyErr_Occurred())
        return false;
    PyObject *sum = PyLong_FromLong(total + count);
    int failed = sum ? PyObject_SetAttr(object, name, sum) : -1;
    Py_XDECREF(sum);
    return !failed;
}

/* Write what the run added, also where an exception is set, which is kept; false with an exception set. */
static inline bool end_run(struct run *run)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    bool sound = !run->object || !run->gained || add_routes(run->object, run->gained);
    Py_CLEAR(run->object);
    run->gained = 0;
    if (type) {
        PyErr_Restore(type, value, trace);
        sound = false;
    }
    return sound;
}

/* End the run and begin another one; false with an exception set. */
static inline bool begin_run(struct run *run, PyObject *object)
{
    bool sound = end_run(run);
    run->object = Py_NewRef(object);
    return sound;
}

/* Count `count` more routes of an object, which may be the run's; false with an exception set. */
static inline bool count_routes(struct run *run, PyObject *object, long count)
{
    if (object != run->object)
        return add_routes(object, count);
    run->gained += count;
    return true;
}
