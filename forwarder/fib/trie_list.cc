// SPDX-License-Identifier: Apache-2.0
#include "fib/trie_list.h"

namespace splitplane {

namespace {

constexpr uint32_t kCodes = 1u << SP_TRIE_CODE_BITS;
constexpr uint32_t kNoCode = kCodes;

// The code of a leaf beside a base, or kNoCode.
uint32_t code_of(uint32_t leaf, uint32_t base) {
    uint32_t kind = sp_leaf_kind(leaf), away = sp_leaf_slot(leaf) - base;  // of a lower slot: as far as can be
    if (kind == SP_ROUTE_NEXTHOP) {
        return away < kCodes - SP_TRIE_NEXTHOPS ? SP_TRIE_NEXTHOPS + away : kNoCode;
    }
    if (kind == SP_ROUTE_GROUP) {
        return away < SP_TRIE_NEXTHOPS - SP_TRIE_GROUPS ? SP_TRIE_GROUPS + away : kNoCode;
    }
    return kind < SP_TRIE_GROUPS && sp_leaf_slot(leaf) == 0 ? kind : kNoCode;
}

// UINT32_MAX of a leaf without a slot.
uint32_t lowest_slot(uint32_t leaf) {
    bool has_slot = sp_leaf_kind(leaf) == SP_ROUTE_NEXTHOP || sp_leaf_kind(leaf) == SP_ROUTE_GROUP;
    return has_slot ? sp_leaf_slot(leaf) : UINT32_MAX;
}

// The word of a route in a list, of no more than SP_TRIE_LIST_BITS, and its key again.
uint32_t route_word(uint32_t key, uint32_t code) {
    uint32_t bits = list_key_bits(key);
    return (key & ~SP_TRIE_WIDE_END) | uint32_t{1} << (31 - bits) | code;
}
uint32_t key_of_route(uint32_t word) {
    uint32_t key = word >> SP_TRIE_CODE_BITS << SP_TRIE_CODE_BITS, last = key & -key;
    return (key ^ last) | (SP_TRIE_WIDE_END - static_cast<uint32_t>(std::countl_zero(last)));
}

// The lowest that a list can have.
uint32_t base_of(const ListContent& content) {
    uint32_t least = std::min(lowest_slot(content.background), SP_NEXTHOPS - 1);
    for (uint32_t at = 0; at < content.count; ++at) {
        least = std::min(least, lowest_slot(content.routes[at].leaf));
    }
    return least / SP_TRIE_BASES * SP_TRIE_BASES;
}

// The words of a list that says it has so many routes. False: a leaf or a key does not fit.
bool put_short(const ListContent& content, uint32_t base, uint32_t count, sp_u32* words) {
    uint32_t code = code_of(content.background, base);
    bool fits = code != kNoCode;
    words[0] = sp_trie_head(base, count, code);
    for (uint32_t at = 0; at < content.count && fits; ++at) {
        auto [leaf, key] = content.routes[at];
        code = code_of(leaf, base);
        fits = code != kNoCode && list_key_bits(key) <= SP_TRIE_LIST_BITS;
        words[1 + at] = route_word(key, code);
    }
    return fits;
}

constexpr uint32_t key_part(uint32_t route) { return route >> SP_TRIE_CODE_BITS; }

// Whether a key begins with another, or is the same.
bool covers(uint32_t key, uint32_t other) {
    return (key & -key) >= (other & -other) && sp_trie_begins(key << SP_TRIE_CODE_BITS, other) != 0;
}

// The node's own routes inside a prefix of it, as in RouteNode::routes.
std::array<uint64_t, 2> routes_inside(const RouteNode& node, uint32_t heap) {
    uint32_t bits = heap_bits(heap);
    uint64_t shorter = 0;
    for (uint32_t more = 1; bits + more < kStride; ++more) {
        shorter |= ((uint64_t{1} << (1u << more)) - 1) << (heap << more);
    }
    uint64_t longest = 0;
    if (bits < kStride) {
        longest = ~uint64_t{0} >> (kSlots - heap_slots(heap)) << heap_slot(heap);
    }
    return {node.routes[0] & shorter, node.routes[1] & longest};
}

bool gather_below(const RouteStore& store, const RouteNode& node, uint32_t heap, uint32_t longest, uint32_t most,
                  RouteList& list) {
    auto own = routes_inside(node, heap);
    uint64_t children = node.children & heap_range(heap);
    auto routes = static_cast<uint32_t>(std::popcount(own[0]) + std::popcount(own[1]));
    // One child may just have lost its last route.
    if (list.count + routes > most ||
        list.count + routes + static_cast<uint32_t>(std::popcount(children)) > most + 1) {
        return false;
    }
    for (uint32_t word = 0; word < 2; ++word) {
        for (uint64_t bits = own[word]; bits != 0; bits &= bits - 1) {
            uint32_t each = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
            Key key = node.key | slot_key(heap_slot(each), node.depth);
            uint32_t length = node.depth + heap_bits(each);
            if (length > longest) {
                return false;
            }
            list.routes[list.count++] = {key, length, store.leaf(node, each)};
        }
    }
    for (uint64_t bits = children; bits != 0; bits &= ~slot_bit(first_slot(bits))) {
        if (!gather_below(store, store.at(store.child(node, first_slot(bits))), 1, longest, most, list)) {
            return false;
        }
    }
    return true;
}

}  // namespace

bool gather(const RouteStore& store, const RouteNode& node, uint32_t heap, uint32_t longest, uint32_t most,
            RouteList& list) {
    list.count = 0;
    return gather_below(store, node, heap, longest, most, list);
}

uint32_t list_key(Key key, uint32_t length, uint32_t from) {
    uint32_t bits = length - from;
    return static_cast<uint32_t>(high_of((key << from) & mask_of(bits)) >> 32) | (SP_TRIE_WIDE_END - bits);
}

ListContent::ListContent(const RouteList& list, uint32_t from, uint32_t background)
    : background(background) {
    for (uint32_t at = 0; at < list.count; ++at) {
        insert(list_key(list.routes[at].key, list.routes[at].length, from), list.routes[at].leaf, SP_TRIE_BUCKET);
    }
}

ListContent::ListContent(const sp_u32* words, bool wide) {
    if (wide) {
        for (; list_key_bits(words[1]) > 0; words += 2) {
            routes[count++] = {words[0], words[1]};
        }
        background = words[0];
        return;
    }
    uint32_t base = sp_trie_head_base(words[0]);
    background = sp_trie_code_leaf(base, sp_trie_code(words[0]));
    for (uint32_t at = 1; at <= sp_trie_head_count(words[0]); ++at) {
        if (words[at] != 0) {
            insert(key_of_route(words[at]), sp_trie_code_leaf(base, sp_trie_code(words[at])), SP_TRIE_BUCKET);
        }
    }
}

ListContent::Route* ListContent::find(uint32_t key) {
    Route* end = routes.data() + count;
    Route* found = std::find_if(routes.data(), end, [&](const Route& route) { return route.key == key; });
    return found == end ? nullptr : found;
}

bool ListContent::replace(uint32_t key, uint32_t leaf) {
    Route* found = find(key);
    if (found != nullptr) {
        found->leaf = leaf;
    }
    return found != nullptr;
}

bool ListContent::erase(uint32_t key) {
    Route* found = find(key);
    if (found != nullptr) {
        std::copy(found + 1, routes.data() + count, found);
        --count;
    }
    return found != nullptr;
}

bool ListContent::insert(uint32_t key, uint32_t leaf, uint32_t most) {
    if (count == most) {
        return false;
    }
    uint32_t to = count++;
    for (; to > 0 && list_key_bits(routes[to - 1].key) < list_key_bits(key); --to) {
        routes[to] = routes[to - 1];
    }
    routes[to] = {leaf, key};
    return true;
}

void ListContent::put_before(uint32_t prefix, uint32_t bits) {
    for (uint32_t at = 0; at < count; ++at) {
        uint32_t key = routes[at].key, length = list_key_bits(key) + bits;
        uint32_t first = bits == 0 ? 0 : prefix << (32 - bits);
        routes[at].key = first | (key & ~SP_TRIE_WIDE_END) >> bits | (SP_TRIE_WIDE_END - length);
    }
}

void ListContent::keep(uint32_t prefix, uint32_t bits, uint32_t drop) {
    uint32_t kept = 0;
    for (uint32_t at = 0; at < count; ++at) {
        auto [leaf, key] = routes[at];
        uint32_t length = list_key_bits(key);
        if (length > bits && (bits == 0 || key >> (32 - bits) == prefix)) {
            routes[kept++] = {leaf, (key & ~SP_TRIE_WIDE_END) << drop | (SP_TRIE_WIDE_END - (length - drop))};
        }
    }
    count = kept;
}

ListImage::ListImage(const ListContent& content) {
    // A base of 0 leaves most room for leaves that come later.
    if (!put(content, 0) && !put(content, base_of(content))) {
        put_wide(content);
    }
}

ListImage::ListImage(const ListContent& content, const sp_u32* now, bool wide) {
    if (wide) {
        put_wide(content);
    } else if (!put(content, sp_trie_head_base(now[0]))) {
        size = 0;
    }
}

bool ListImage::put(const ListContent& content, uint32_t base) {
    bool fits = put_short(content, base, content.count, words.data());
    size = fits ? 1 + content.count : 0;
    wide = false;
    return fits;
}

void ListImage::put_wide(const ListContent& content) {
    for (uint32_t at = 0; at < content.count; ++at) {
        words[2 * at] = content.routes[at].leaf;
        words[2 * at + 1] = content.routes[at].key;
    }
    words[2 * content.count] = content.background;
    words[2 * content.count + 1] = SP_TRIE_WIDE_END;
    size = 2 * (content.count + 1);
    wide = true;
}

bool ListImage::has_keys_of(const sp_u32* now) const {
    for (uint32_t at = wide; at < size; at += 1 + wide) {  // not beyond its end, which is the same in both
        if ((now[at] ^ words[at]) >> (wide ? 0 : SP_TRIE_CODE_BITS) != 0) {
            return false;
        }
    }
    return true;
}

bool compose(const ListContent& content, BucketImage& image) {
    image.fill(0);
    return put_short(content, 0, SP_TRIE_BUCKET, image.data()) ||
           put_short(content, base_of(content), SP_TRIE_BUCKET, image.data());
}

bool BucketEdit::plan(const sp_u32* now, const ListContent& content) {
    BucketImage before, after{};
    std::copy_n(now, before.size(), before.begin());
    if (!put_short(content, sp_trie_head_base(before[0]), SP_TRIE_BUCKET, after.data())) {
        return false;
    }
    if (after[0] != before[0]) {
        store(0, after[0]);
    }
    uint32_t changes = 0;
    for (uint32_t at = 1; at < before.size(); ++at) {
        auto same = [&](uint32_t other) { return key_part(other) == key_part(before[at]); };
        auto found = std::find_if(after.begin() + 1, after.end(), same);
        if (before[at] != 0 && (found == after.end() || *found != before[at])) {
            store(at, found == after.end() ? 0 : *found);
            moves = found == after.end();
            key = key_part(before[at]);
            ++changes;
        }
    }
    uint32_t route = 0;
    for (uint32_t at = 1; at <= content.count; ++at) {
        auto same = [&](uint32_t other) { return key_part(other) == key_part(after[at]); };
        if (std::none_of(before.begin() + 1, before.end(), same)) {
            route = after[at];
            moves = true;
            key = key_part(route);
            ++changes;
        }
    }
    return changes <= 1 && (route == 0 || open(before, route));
}

bool BucketEdit::open(const BucketImage& now, uint32_t route) {
    uint32_t first = 1, end = SP_BUCKET_WORDS;
    for (uint32_t at = 1; at < end; ++at) {
        if (now[at] != 0 && covers(key_part(now[at]), key_part(route))) {
            end = at;
        } else if (now[at] != 0 && covers(key_part(route), key_part(now[at]))) {
            first = at + 1;
        }
    }
    for (uint32_t at = first; at < SP_BUCKET_WORDS; ++at) {
        if (now[at] == 0) {
            for (; at > end; --at) {
                store(at, now[at - 1]);
            }
            store(at, route);
            return true;
        }
    }
    return false;
}

bool nested(uint32_t key, uint32_t other) { return key != other && (covers(key, other) || covers(other, key)); }

uint32_t list_units(const sp_u32* words, bool wide) {
    if (!wide) {
        return (sp_trie_head_count(words[0]) + 2) / 2;
    }
    uint32_t units = 1;
    while (list_key_bits(words[2 * units - 1]) > 0) {
        ++units;
    }
    return units;
}

}  // namespace splitplane
