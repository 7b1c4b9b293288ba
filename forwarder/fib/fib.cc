// SPDX-License-Identifier: Apache-2.0
#include "fib/fib.h"

#include <bit>
#include <cassert>

#include "fib/key.h"
#include "fib/route_store.h"
#include "fib/trie_writer.h"
#include "fib/zeroed_array.h"

namespace splitplane {

namespace {

// Of the array, for deletions: a sixteenth, in a small one more, so that it holds a few of the biggest blocks.
uint32_t reserve_of(uint32_t units) { return std::max(units / 16, std::min(units / 4, 512u)); }

// What the tries can hold: a list has about as many nodes as units, all else has fewer; and those in the roots.
uint32_t node_limit(const sp_arrays& arrays) { return arrays.word_count / 2 + 4 * SP_VRFS; }

// The unit from which on roots with buckets lie: the second half of the array, of whole buckets. The unit before is
// their arena's unit 0, which it never gives out; so all that it does give out begins with a bucket.
uint32_t first_bucket(const sp_arrays& arrays) {
    constexpr uint32_t kUnits = SP_BUCKET_WORDS / 2;
    return std::max(arrays.word_count / 4 / kUnits, 1u) * kUnits;
}

}  // namespace

class Fib::Tables {
  public:
    Tables(sp_arrays& arrays, GracePeriods& grace)
        : arrays_(arrays),
          arena_({reinterpret_cast<uint64_t*>(arrays.words), first_bucket(arrays) - 1}, grace, SP_WORDS_CHUNK / 2,
                 SP_WORDS_SPAN / 2),
          buckets_({reinterpret_cast<uint64_t*>(arrays.words) + first_bucket(arrays) - 1,
                    arrays.word_count / 2 - (first_bucket(arrays) - 1)},
                   grace),
          store_(node_limit(arrays), arrays.word_count / 2 + 2),
          writer_(store_, arrays, arena_, buckets_, grace),
          tables_(SP_VRFS * 2) {}

    FibResult set(uint32_t vrf, Family family, const Prefix& prefix, uint32_t leaf);
    FibResult erase(uint32_t vrf, Family family, const Prefix& prefix);
    uint32_t find(uint32_t vrf, Family family, const Prefix& prefix) const;
    std::optional<Prefix> longest(uint32_t vrf, Family family, const Prefix& address) const;
    bool next(uint32_t vrf, Family family, std::optional<Prefix>& cursor, uint32_t& leaf) const;
    uint32_t next_used(uint32_t vrf, Family family) const;
    FibMemory memory() const;

    size_t size(uint32_t vrf, Family family) const { return table(vrf, family).routes; }
    size_t size(Family family) const { return sizes_[static_cast<size_t>(family)]; }
    void settle() {
        writer_.settle();
        buckets_.settle();
        arena_.settle();
    }

  private:
    using Place = TrieWriter::Place;

    const TrieTable& table(uint32_t vrf, Family family) const { return tables_[vrf * 2 + static_cast<size_t>(family)]; }
    TrieTable& table(uint32_t vrf, Family family) { return tables_[vrf * 2 + static_cast<size_t>(family)]; }
    sp_u32& default_leaf(uint32_t vrf, Family family) const {
        return arrays_.vrfs[vrf].default_leaf[static_cast<size_t>(family)];
    }
    sp_u64& root(uint32_t vrf, Family family) const { return arrays_.roots[static_cast<size_t>(family)][vrf]; }
    uint32_t reserve() const { return reserve_of(first_bucket(arrays_)); }
    void count(uint32_t vrf, Family family, int change) {
        const uint32_t routes = table(vrf, family).routes += static_cast<uint32_t>(change);
        sizes_[static_cast<size_t>(family)] += static_cast<size_t>(change);
        uint64_t& used = used_[static_cast<size_t>(family)][vrf / 64];
        const uint64_t bit = uint64_t{1} << vrf % 64;
        used = routes != 0 ? used | bit : used & ~bit;
    }

    // The slots that a change of a route concerns. One that longer ones hide may still be in a list.
    uint64_t changed(const RouteNode& node, uint32_t heap) const {
        uint64_t visible = store_.visible(node, heap);
        return visible != 0 ? visible : heap_range(heap);
    }
    bool descend(uint32_t node, Key key, uint32_t length, Place& place) const;
    FibResult insert(TrieTable& table, sp_u64& root, const Place& place, Key key, uint32_t length, uint32_t leaf);
    FibResult insert_below(TrieTable& table, sp_u64& root, const Place& place, Key key, uint32_t length, uint32_t leaf);
    FibResult insert_between(TrieTable& table, sp_u64& root, const Place& place, Key key, uint32_t length,
                             uint32_t leaf);
    uint32_t make_leaf_node(Key key, uint32_t length, uint32_t leaf);
    void tidy(TrieTable& table, sp_u64& root, Place& place);

    sp_arrays& arrays_;
    BlockArena arena_;
    BlockArena buckets_;
    RouteStore store_;
    TrieWriter writer_;
    ZeroedArray<TrieTable> tables_;
    std::array<size_t, 2> sizes_{};
    std::array<std::array<uint64_t, SP_VRFS / 64>, 2> used_{};  // by family: a bit for each table that has routes
};

// Go down as far as nodes are on the way to a prefix. True: the last one is where it belongs.
bool Fib::Tables::descend(uint32_t index, Key key, uint32_t length, Place& place) const {
    place.count = 0;
    for (;;) {
        place.nodes[place.count++] = index;
        const RouteNode& node = store_.at(index);
        if (length <= node.depth + kStride) {
            return true;
        }
        index = store_.child(node, slot_of(key, node.depth));
        if (index == 0) {
            return false;
        }
        const RouteNode& child = store_.at(index);
        if (length <= child.depth || ((key ^ child.key) & mask_of(child.depth)) != 0) {
            return false;
        }
    }
}

FibResult Fib::Tables::set(uint32_t vrf, Family family, const Prefix& prefix, uint32_t leaf) {
    TrieTable& table = this->table(vrf, family);
    if (prefix.length == 0) {
        uint32_t before = default_leaf(vrf, family);
        __atomic_store_n(&default_leaf(vrf, family), leaf, __ATOMIC_RELEASE);
        count(vrf, family, before == 0 ? 1 : 0);
        return FibResult::kDone;
    }
    Key key = key_of(prefix);
    sp_u64& root = this->root(vrf, family);
    if (table.node == 0 && (table.node = store_.make(0, 0)) == 0) {
        return FibResult::kFull;
    }
    table.short_keys = family == Family::kIpv4;
    Place place;
    bool there = descend(table.node, key, prefix.length, place);
    RouteNode& node = store_.at(place.last());
    uint32_t heap = there ? heap_of(key, prefix.length) : 0;
    if (uint32_t before = there ? store_.leaf(node, heap) : 0; before != 0) {
        store_.replace_route(node, heap, leaf);
        if (before != leaf &&
            !writer_.update(table, root, place, {key, prefix.length, leaf}, changed(node, heap), reserve())) {
            store_.replace_route(node, heap, before);
            return FibResult::kFull;
        }
        return FibResult::kDone;
    }
    FibResult result;
    if (there) {
        result = insert(table, root, place, key, prefix.length, leaf);
    } else if (store_.child(node, slot_of(key, node.depth)) == 0) {
        result = insert_below(table, root, place, key, prefix.length, leaf);
    } else {
        result = insert_between(table, root, place, key, prefix.length, leaf);
    }
    if (result == FibResult::kDone) {
        count(vrf, family, 1);
        writer_.fit_root(table, root, reserve());
    } else if (table.base == 0) {
        store_.drop(table.node);
        table.node = 0;
    }
    return result;
}

// The node is there.
FibResult Fib::Tables::insert(TrieTable& table, sp_u64& root, const Place& place, Key key, uint32_t length,
                              uint32_t leaf) {
    RouteNode& node = store_.at(place.last());
    uint32_t heap = heap_of(key, length);
    if (!store_.add_route(node, heap, leaf)) {
        return FibResult::kFull;
    }
    if (!writer_.update(table, root, place, {key, length, leaf}, changed(node, heap), reserve())) {
        store_.remove_route(node, heap);
        return FibResult::kFull;
    }
    return FibResult::kDone;
}

// A node with one route; 0: no room.
uint32_t Fib::Tables::make_leaf_node(Key key, uint32_t length, uint32_t leaf) {
    uint32_t made = store_.make(key, depth_of(length));
    if (made != 0) {
        store_.add_route(store_.at(made), heap_of(key, length), leaf);  // in the node itself
    }
    return made;
}

// Nothing is on the way behind the last node:   node ─► new
FibResult Fib::Tables::insert_below(TrieTable& table, sp_u64& root, const Place& place, Key key, uint32_t length,
                                    uint32_t leaf) {
    RouteNode& node = store_.at(place.last());
    uint32_t slot = slot_of(key, node.depth);
    uint32_t made = make_leaf_node(key, length, leaf);
    if (made == 0) {
        return FibResult::kFull;
    }
    if (!store_.add_child(node, slot, made)) {
        store_.drop(made);
        return FibResult::kFull;
    }
    if (!writer_.update(table, root, place, {key, length, leaf}, slot_bit(slot), reserve())) {
        store_.remove_child(node, slot);
        store_.drop(made);
        return FibResult::kFull;
    }
    return FibResult::kDone;
}

// The last node's child lies elsewhere, or further down:   node ─► fork ─► child
//                                                                    └──► new, if the route is not the fork's own
FibResult Fib::Tables::insert_between(TrieTable& table, sp_u64& root, const Place& place, Key key, uint32_t length,
                                      uint32_t leaf) {
    RouteNode& node = store_.at(place.last());
    uint32_t slot = slot_of(key, node.depth);
    uint32_t child = store_.child(node, slot);
    Key child_key = store_.at(child).key;
    uint32_t child_depth = store_.at(child).depth;
    uint32_t both = std::min(std::min(shared_bits(key, child_key), child_depth - 1), length - 1);
    uint32_t fork_depth = both / kStride * kStride;
    bool own = length <= fork_depth + kStride;
    uint32_t fork = own ? make_leaf_node(key, length, leaf) : store_.make(key, fork_depth);
    uint32_t made = own || fork == 0 ? 0 : make_leaf_node(key, length, leaf);
    if (fork == 0 || (!own && made == 0)) {
        if (fork != 0) {
            store_.drop(fork);
        }
        return FibResult::kFull;
    }
    // Two cells at most: in the node itself.
    store_.add_child(store_.at(fork), slot_of(child_key, fork_depth), child);
    if (!own) {
        store_.add_child(store_.at(fork), slot_of(key, fork_depth), made);
    }
    store_.replace_child(node, slot, fork);
    if (!writer_.update(table, root, place, {key, length, leaf}, slot_bit(slot), reserve())) {
        store_.replace_child(node, slot, child);
        if (!own) {
            store_.drop(made);
        }
        store_.drop(fork);
        return FibResult::kFull;
    }
    return FibResult::kDone;
}

FibResult Fib::Tables::erase(uint32_t vrf, Family family, const Prefix& prefix) {
    TrieTable& table = this->table(vrf, family);
    if (find(vrf, family, prefix) == 0) {
        return FibResult::kMissing;
    }
    if (prefix.length == 0) {
        __atomic_store_n(&default_leaf(vrf, family), 0, __ATOMIC_RELEASE);
        count(vrf, family, -1);
        return FibResult::kDone;
    }
    Key key = key_of(prefix);
    sp_u64& root = this->root(vrf, family);
    Place place;
    descend(table.node, key, prefix.length, place);
    RouteNode& node = store_.at(place.last());
    uint32_t heap = heap_of(key, prefix.length);
    uint32_t leaf = store_.leaf(node, heap);
    uint64_t slots = changed(node, heap);
    store_.remove_route(node, heap);
    if (!writer_.update(table, root, place, {key, prefix.length, 0}, slots, 0)) {
        [[maybe_unused]] bool back = store_.add_route(node, heap, leaf);  // into the room that it just left
        assert(back);
        return FibResult::kFull;
    }
    count(vrf, family, -1);
    tidy(table, root, place);
    if (table.node != 0) {
        writer_.fit_root(table, root, 0);
    }
    return FibResult::kDone;
}

// Take out the nodes that are left without a purpose: without routes, and with one child or none. Where there is no
// room for the one block that this may need, a node stays, and does no harm.
void Fib::Tables::tidy(TrieTable& table, sp_u64& root, Place& place) {
    for (; place.count > 0; --place.count) {
        uint32_t index = place.last();
        RouteNode& node = store_.at(index);
        uint32_t children = RouteStore::child_count(node);
        if (RouteStore::route_count(node) > 0 || children > 1 || (children == 1 && place.count == 1)) {
            return;
        }
        if (place.count == 1) {
            writer_.clear(table, root);
            writer_.forget(node);
            store_.drop(index);
            table.node = 0;
            return;
        }
        RouteNode& parent = store_.at(place.nodes[place.count - 2]);
        uint32_t slot = slot_of(node.key, parent.depth);
        if (children == 0) {
            store_.remove_child(parent, slot);  // which was a leaf of the parent already, as readers see it
            store_.drop(index);
            continue;
        }
        uint32_t child = store_.child(node, first_slot(node.children));
        store_.replace_child(parent, slot, child);
        --place.count;
        if (!TrieWriter::listed(node) && !writer_.update(table, root, place, {}, slot_bit(slot), 0)) {
            store_.replace_child(parent, slot, index);
            return;
        }
        writer_.forget(node);
        store_.drop(index);
        return;
    }
}

uint32_t Fib::Tables::find(uint32_t vrf, Family family, const Prefix& prefix) const {
    if (prefix.length == 0) {
        return default_leaf(vrf, family);
    }
    Key key = key_of(prefix);
    uint32_t index = table(vrf, family).node;
    while (index != 0) {
        const RouteNode& node = store_.at(index);
        if (prefix.length <= node.depth || ((key ^ node.key) & mask_of(node.depth)) != 0) {
            return 0;
        }
        if (prefix.length <= node.depth + kStride) {
            return store_.leaf(node, heap_of(key, prefix.length));
        }
        index = store_.child(node, slot_of(key, node.depth));
    }
    return 0;
}

std::optional<Prefix> Fib::Tables::longest(uint32_t vrf, Family family, const Prefix& address) const {
    const Key key = key_of(address);
    uint32_t length = 0;
    for (uint32_t index = table(vrf, family).node; index != 0;) {
        const RouteNode& node = store_.at(index);
        if (((key ^ node.key) & mask_of(node.depth)) != 0) {
            break;
        }
        const uint32_t slot = slot_of(key, node.depth);
        if (const uint32_t heap = store_.heap_over(node, kSlots | slot); heap != 0) {
            length = node.depth + heap_bits(heap);
        }
        index = store_.child(node, slot);
    }
    if (length == 0 && default_leaf(vrf, family) == 0) {
        return std::nullopt;
    }
    return prefix_of(key & mask_of(length), length);
}

bool Fib::Tables::next(uint32_t vrf, Family family, std::optional<Prefix>& cursor, uint32_t& leaf) const {
    uint32_t node = table(vrf, family).node;
    if (!cursor && default_leaf(vrf, family) != 0) {
        cursor = Prefix{};
        leaf = default_leaf(vrf, family);
        return true;
    }
    Key key = 0;
    uint32_t length = 0;
    bool found = !cursor || cursor->length == 0 ? store_.first(node, key, length, leaf)
                                                : store_.next(node, key_of(*cursor), cursor->length, key, length, leaf);
    if (found) {
        cursor = prefix_of(key, length);
    }
    return found;
}

uint32_t Fib::Tables::next_used(uint32_t vrf, Family family) const {
    const auto& used = used_[static_cast<size_t>(family)];
    uint64_t mask = ~uint64_t{0} << vrf % 64;
    for (uint32_t word = vrf / 64; word < used.size(); ++word, mask = ~uint64_t{0}) {
        if ((used[word] & mask) != 0) {
            return word * 64 + static_cast<uint32_t>(std::countr_zero(used[word] & mask));
        }
    }
    return SP_VRFS;
}

FibMemory Fib::Tables::memory() const {
    BlockArena::Usage usage = arena_.usage(), buckets = buckets_.usage();
    constexpr size_t kUnit = sizeof(uint64_t);
    size_t tables = tables_.size() * sizeof(TrieTable);
    return {(usage.units + buckets.units) * kUnit,     (usage.used + buckets.used) * kUnit,
            (usage.waiting + buckets.waiting) * kUnit, (usage.peak + buckets.peak) * kUnit,
            store_.octets() + tables,     store_.peak_octets() + tables,
            store_.nodes()};
}

Fib::Fib(sp_arrays& arrays, GracePeriods& grace) : tables_(std::make_unique<Tables>(arrays, grace)) {}
Fib::~Fib() = default;

FibResult Fib::set(uint32_t vrf, Family family, const Prefix& prefix, uint32_t leaf) {
    return tables_->set(vrf, family, prefix, leaf);
}
FibResult Fib::erase(uint32_t vrf, Family family, const Prefix& prefix) { return tables_->erase(vrf, family, prefix); }
uint32_t Fib::find(uint32_t vrf, Family family, const Prefix& prefix) const {
    return tables_->find(vrf, family, prefix);
}
std::optional<Prefix> Fib::longest(uint32_t vrf, Family family, const Prefix& address) const {
    return tables_->longest(vrf, family, address);
}
bool Fib::next(uint32_t vrf, Family family, std::optional<Prefix>& cursor, uint32_t& leaf) const {
    return tables_->next(vrf, family, cursor, leaf);
}
uint32_t Fib::next_used(uint32_t vrf, Family family) const { return tables_->next_used(vrf, family); }
size_t Fib::size(uint32_t vrf, Family family) const { return tables_->size(vrf, family); }
size_t Fib::size(Family family) const { return tables_->size(family); }
FibMemory Fib::memory() const { return tables_->memory(); }
void Fib::settle() { tables_->settle(); }

}  // namespace splitplane
