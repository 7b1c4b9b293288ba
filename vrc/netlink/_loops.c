/* The two loops of the VRC that run once for each route: octets to changes, and changes into the route table.
 *
 *     buffer ── frames │ messages ──► changes ── bind ──► routes, dirty
 *
 * Each takes what is usual and stops at what is not. Python does that one thing (vrc/netlink/route_messages.py, vrc/routes/table.py)
 * and comes back, so nothing here decides what something odd means. The layout of a message and of its shape is
 * drawn in vrc/netlink/route_messages.py; a change is (message type, prefix key, shape, nlmsg flags).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "../../wire/_runs.h"

enum {
    FPM_VERSION = 1,
    FPM_NETLINK = 1,
    FPM_HEADER = 4,
    FAMILY_AT = NLMSG_HDRLEN + offsetof(struct rtmsg, rtm_family),
    BITS_AT = NLMSG_HDRLEN + offsetof(struct rtmsg, rtm_dst_len),
    TABLE_AT = NLMSG_HDRLEN + offsetof(struct rtmsg, rtm_table),
    HEAD_AT = NLMSG_HDRLEN + offsetof(struct rtmsg, rtm_src_len), /* where a shape begins */
    TOS_AT = NLMSG_HDRLEN + offsetof(struct rtmsg, rtm_tos),
    FLAGS_AT = NLMSG_HDRLEN + offsetof(struct rtmsg, rtm_flags),
    ATTRIBUTES_AT = NLMSG_HDRLEN + sizeof(struct rtmsg),
    HEAD = ATTRIBUTES_AT - HEAD_AT,
    SHAPE_HEAD = HEAD + RTA_LENGTH(0), /* with the header of RTA_DST */
};

static PyObject *no_key;   /* b"": the key of a nexthop */
static PyObject *zero;     /* 0: withdrawn */
static PyObject *name_set_id;

/* Octets to changes */

static uint16_t load16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t load32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static bool is_attribute(const uint8_t *at, uint16_t type, size_t size)
{
    return load16(at) == RTA_LENGTH(size) && load16(at + 2) == type;
}

/* Whether an address of `size` octets has no bit set beyond `bits`, which are not more than it has. */
static bool is_network(const uint8_t *address, size_t size, unsigned bits)
{
    for (size_t i = bits / 8; i < size; i++) {
        uint8_t host = i == bits / 8 ? 0xFF >> bits % 8 : 0xFF;
        if (address[i] & host)
            return false;
    }
    return true;
}

/* Where the parts of a route message are. */
struct route {
    const uint8_t *message, *destination; /* `destination`: the attribute RTA_DST with its header */
    size_t length, size;                  /* of the message; of the address */
};

/* Find the parts of a route of the main table whose RTA_DST comes first, or behind RTA_TABLE; false for any other,
 * and for one that is for packets of some sources or of a TOS alone, or of what the kernel learned of a destination. */
static bool find_parts(const uint8_t *message, size_t length, struct route *found)
{
    if (length < ATTRIBUTES_AT)
        return false;
    unsigned family = message[FAMILY_AT], bits = message[BITS_AT];
    size_t size = family == AF_INET ? 4 : family == AF_INET6 ? 16 : 0;
    if (!size || bits > size * 8 || message[TABLE_AT] != RT_TABLE_MAIN || message[HEAD_AT] || message[TOS_AT])
        return false;
    if (load32(message + FLAGS_AT) & RTM_F_CLONED)
        return false;
    const uint8_t *at = message + ATTRIBUTES_AT, *end = message + length;
    if (end - at >= (ptrdiff_t)RTA_LENGTH(4) && is_attribute(at, RTA_TABLE, 4) && load32(at + 4) == RT_TABLE_MAIN)
        at += RTA_LENGTH(4);
    if (end - at < (ptrdiff_t)RTA_LENGTH(size) || !is_attribute(at, RTA_DST, size))
        return false;
    *found = (struct route){message, at, length, size};
    return is_network(at + RTA_LENGTH(0), size, bits);
}

/* Return the shape of a route: `last`, if it is the same, because runs of routes have one shape. */
static PyObject *shape_of(const struct route *route, PyObject *last)
{
    const uint8_t *head = route->message + HEAD_AT;
    const uint8_t *tail = route->destination + RTA_LENGTH(route->size);
    size_t tail_size = (size_t)(route->message + route->length - tail);
    if (last && (size_t)PyBytes_GET_SIZE(last) == SHAPE_HEAD + tail_size) {
        const char *known = PyBytes_AS_STRING(last);
        if (!memcmp(known, head, HEAD) && !memcmp(known + HEAD, route->destination, RTA_LENGTH(0)) &&
            !memcmp(known + SHAPE_HEAD, tail, tail_size))
            return Py_NewRef(last);
    }
    PyObject *shape = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(SHAPE_HEAD + tail_size));
    if (!shape)
        return NULL;
    char *to = PyBytes_AS_STRING(shape);
    memcpy(to, head, HEAD);
    memcpy(to + HEAD, route->destination, RTA_LENGTH(0));
    memcpy(to + SHAPE_HEAD, tail, tail_size);
    return shape;
}

static PyObject *key_of(const struct route *route)
{
    PyObject *key = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)route->size + 1);
    if (key) {
        memcpy(PyBytes_AS_STRING(key), route->destination + RTA_LENGTH(0), route->size);
        PyBytes_AS_STRING(key)[route->size] = (char)route->message[BITS_AT];
    }
    return key;
}

/* Append (kind, key, body, flags), whose references to key and body are taken over; false with an exception set. */
static bool append(PyObject *changes, unsigned kind, PyObject *key, PyObject *body, unsigned flags)
{
    PyObject *change = NULL;
    int failed = -1;
    if (key && body && (change = PyTuple_New(4))) {
        PyTuple_SET_ITEM(change, 0, PyLong_FromLong(kind));
        PyTuple_SET_ITEM(change, 1, Py_NewRef(key));
        PyTuple_SET_ITEM(change, 2, Py_NewRef(body));
        PyTuple_SET_ITEM(change, 3, PyLong_FromLong(flags));
        if (PyTuple_GET_ITEM(change, 0) && PyTuple_GET_ITEM(change, 3))
            failed = PyList_Append(changes, change);
    }
    Py_XDECREF(change);
    Py_XDECREF(key);
    Py_XDECREF(body);
    return !failed;
}

/* Take messages until `end` or one that is odd; returns its offset, -1 with an exception set. `last` is kept. */
static Py_ssize_t take_messages(const uint8_t *data, Py_ssize_t offset, Py_ssize_t end, PyObject *changes,
                                PyObject **last)
{
    while (end - offset >= NLMSG_HDRLEN) {
        const uint8_t *message = data + offset;
        uint32_t length = load32(message);
        unsigned kind = load16(message + 4), flags = load16(message + 6);
        if (length < NLMSG_HDRLEN || length > (size_t)(end - offset))
            break;
        if (kind == RTM_NEWROUTE || kind == RTM_DELROUTE) {
            struct route route;
            if (!find_parts(message, length, &route))
                break;
            PyObject *shape = shape_of(&route, *last);
            if (!shape)
                return -1;
            Py_XSETREF(*last, Py_NewRef(shape));
            if (!append(changes, kind, key_of(&route), shape, flags))
                return -1;
        } else if (kind == RTM_NEWNEXTHOP || kind == RTM_DELNEXTHOP) {
            PyObject *body = PyBytes_FromStringAndSize((const char *)message + NLMSG_HDRLEN, length - NLMSG_HDRLEN);
            if (!append(changes, kind, Py_NewRef(no_key), body, flags))
                return -1;
        }
        offset += NLMSG_ALIGN((Py_ssize_t)length);
    }
    return offset;
}

static bool is_within(Py_buffer *buffer, Py_ssize_t offset, Py_ssize_t end)
{
    if (offset >= 0 && offset <= end && end <= buffer->len)
        return true;
    PyErr_Format(PyExc_ValueError, "%zd to %zd is not within %zd octets", offset, end, buffer->len);
    return false;
}

PyDoc_STRVAR(messages_doc, "messages(buffer, offset, end, changes) -> int\n\n"
                           "Append the changes of netlink messages; returns where the first one begins that is not "
                           "usual, or `end` or a little more.");

static PyObject *messages(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer buffer;
    Py_ssize_t offset, end;
    PyObject *changes, *last = NULL;
    if (!PyArg_ParseTuple(arguments, "y*nnO!", &buffer, &offset, &end, &PyList_Type, &changes))
        return NULL;
    if (is_within(&buffer, offset, end))
        offset = take_messages(buffer.buf, offset, end, changes, &last);
    else
        offset = -1;
    Py_XDECREF(last);
    PyBuffer_Release(&buffer);
    return offset < 0 ? NULL : PyLong_FromSsize_t(offset);
}

PyDoc_STRVAR(frames_doc,
             "frames(buffer, offset, limit, changes) -> int\n\n"
             "Append the changes of whole FPM frames until there are `limit`; returns where the first frame begins that "
             "was not taken: one that is incomplete, malformed, or has a message that is not usual.");

static PyObject *frames(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer buffer;
    Py_ssize_t offset, limit;
    PyObject *changes, *last = NULL;
    if (!PyArg_ParseTuple(arguments, "y*nnO!", &buffer, &offset, &limit, &PyList_Type, &changes))
        return NULL;
    bool sound = is_within(&buffer, offset, buffer.len);
    while (sound && buffer.len - offset >= FPM_HEADER && PyList_GET_SIZE(changes) < limit) {
        const uint8_t *frame = (const uint8_t *)buffer.buf + offset;
        Py_ssize_t length = frame[2] << 8 | frame[3], end = offset + length;
        if (frame[0] != FPM_VERSION || length < FPM_HEADER || end > buffer.len)
            break;
        if (frame[1] == FPM_NETLINK) {
            Py_ssize_t before = PyList_GET_SIZE(changes);
            Py_ssize_t done = take_messages(buffer.buf, offset + FPM_HEADER, end, changes, &last);
            sound = done >= 0;
            if (sound && done < end) {
                sound = !PyList_SetSlice(changes, before, PyList_GET_SIZE(changes), NULL);
                break;
            }
        }
        offset = end;
    }
    Py_XDECREF(last);
    PyBuffer_Release(&buffer);
    return sound ? PyLong_FromSsize_t(offset) : NULL;
}

/* Changes into the route table */

/* Routes of one shape, one after the other. */
struct shape_run {
    struct run run;     /* of its binding */
    PyObject *shape;    /* borrowed from a change */
    PyObject *set_id;   /* owned: the binding's */
};

static bool end_shape(struct shape_run *shapes)
{
    Py_CLEAR(shapes->set_id);
    shapes->shape = NULL;
    return end_run(&shapes->run);
}

static bool begin_shape(struct shape_run *shapes, PyObject *shape, PyObject *binding)
{
    if (binding != shapes->run.object) {
        Py_XSETREF(shapes->set_id, PyObject_GetAttr(binding, name_set_id));
        if (!shapes->set_id || !begin_run(&shapes->run, binding))
            return false;
    }
    shapes->shape = shape;
    return true;
}

/* Loopback, multicast and link-local prefixes, and some more, are for Python to judge (vrc/routes/table.py). */
static bool may_be_ignored(PyObject *key)
{
    uint8_t first = (uint8_t)PyBytes_AS_STRING(key)[0];
    return first == 127 || first == 169 || first >= 224;
}

struct table {
    PyObject *routes, *dirty4, *dirty6, *withdrawn;
    Py_ssize_t limit;
};

static int mark(const struct table *table, PyObject *key, PyObject *set_id)
{
    return PyDict_SetItem(PyBytes_GET_SIZE(key) == 5 ? table->dirty4 : table->dirty6, key, set_id);
}

/* Give a route the binding of the run. Returns 1, 0 where the table is full, -1 with an exception set. */
static int put(const struct table *table, struct shape_run *shapes, PyObject *key)
{
    PyObject *binding = shapes->run.object, *old = PyDict_GetItemWithError(table->routes, key);
    if (old == binding)
        return 1;
    if (!old && PyErr_Occurred())
        return -1;
    if (!old && PyDict_GET_SIZE(table->routes) >= table->limit)
        return 0;
    PyObject *before = old ? PyObject_GetAttr(old, name_set_id) : Py_NewRef(zero);
    int same = before ? PyObject_RichCompareBool(before, shapes->set_id, Py_EQ) : -1;
    Py_XDECREF(before);
    if (same < 0 || (old && !add_routes(old, -1)) || (!same && mark(table, key, shapes->set_id)) ||
        PyDict_SetItem(table->routes, key, binding))
        return -1;
    shapes->run.gained++;
    return 1;
}

/* Take a route out. Returns 1, -1 with an exception set. */
static int withdraw(const struct table *table, struct shape_run *shapes, PyObject *key)
{
    PyObject *old = PyDict_GetItemWithError(table->routes, key);
    if (old) {
        PyObject *set_id = PyObject_GetAttr(old, name_set_id);
        int known = set_id ? PyObject_IsTrue(set_id) : -1;
        Py_XDECREF(set_id);
        if (known < 0 || (known && mark(table, key, zero)) || !count_routes(&shapes->run, old, -1) ||
            PyDict_DelItem(table->routes, key))
            return -1;
    } else if (PyErr_Occurred()) {
        return -1;
    }
    return table->withdrawn == Py_None || !PySet_Add(table->withdrawn, key) ? 1 : -1;
}

/* Take one change. Returns 1, 0 where it is not a usual one, -1 with an exception set. */
static int take_change(const struct table *table, struct shape_run *shapes, PyObject *bindings, PyObject *change)
{
    if (!PyTuple_CheckExact(change) || PyTuple_GET_SIZE(change) != 4 ||
        !PyBytes_CheckExact(PyTuple_GET_ITEM(change, 1))) {
        PyErr_SetString(PyExc_TypeError, "a change is (type, key, shape, flags)");
        return -1;
    }
    long kind = PyLong_AsLong(PyTuple_GET_ITEM(change, 0));
    PyObject *key = PyTuple_GET_ITEM(change, 1), *shape = PyTuple_GET_ITEM(change, 2);
    if (kind == RTM_DELROUTE)
        return withdraw(table, shapes, key);
    if (kind != RTM_NEWROUTE)
        return PyErr_Occurred() ? -1 : 0;
    if (!PyBytes_GET_SIZE(key) || may_be_ignored(key))
        return 0;
    if (shape != shapes->shape) {
        PyObject *binding = PyDict_GetItemWithError(bindings, shape);
        if (!binding)
            return PyErr_Occurred() ? -1 : 0;
        if (!begin_shape(shapes, shape, binding))
            return -1;
    }
    return put(table, shapes, key);
}

PyDoc_STRVAR(bind_doc,
             "bind(changes, start, bindings, routes, dirty4, dirty6, withdrawn, limit) -> int\n\n"
             "Take in changes from `start` on; returns the position of the first one that is not usual: of a shape "
             "without a binding, a nexthop, a prefix that may have to be ignored, a route for which there is no room.");

static PyObject *bind_changes(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *changes, *bindings;
    Py_ssize_t position;
    struct table table;
    struct shape_run shapes = {0};
    if (!PyArg_ParseTuple(arguments, "O!nO!O!O!O!On", &PyList_Type, &changes, &position, &PyDict_Type, &bindings,
                          &PyDict_Type, &table.routes, &PyDict_Type, &table.dirty4, &PyDict_Type, &table.dirty6,
                          &table.withdrawn, &table.limit))
        return NULL;
    int taken = 1;
    while (position >= 0 && position < PyList_GET_SIZE(changes)) {
        taken = take_change(&table, &shapes, bindings, PyList_GET_ITEM(changes, position));
        if (taken <= 0)
            break;
        position++;
    }
    return end_shape(&shapes) && taken >= 0 ? PyLong_FromSsize_t(position) : NULL;
}

static PyMethodDef methods[] = {
    {"messages", messages, METH_VARARGS, messages_doc},
    {"frames", frames, METH_VARARGS, frames_doc},
    {"bind", bind_changes, METH_VARARGS, bind_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "vrc.netlink._loops",
    .m_doc = "The loops of the VRC that run once for each route.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__loops(void)
{
    no_key = PyBytes_FromStringAndSize(NULL, 0);
    zero = PyLong_FromLong(0);
    name_set_id = PyUnicode_InternFromString("set_id");
    return no_key && zero && name_set_id ? PyModule_Create(&module) : NULL;
}
