// SPDX-License-Identifier: Apache-2.0
//
// Buckets: a root in which each word is the head of a list that lies there, one cache line for most addresses.
//
//     head, route, route, 0, route, ...    ◄─ routes come and go ─►    held until a grace period is over
//        │
//        └── more than 15 routes, what does not fit, or a change that has to wait: a word that leads to a list or a node
//
// Who goes through a bucket while routes come and go (BucketEdit) misses only what came behind his back, and finds
// nothing that went before he was there. So of an address that one route's coming or going concerns, whatever is found
// was right before or after. What a second change of the same address made of it could be found by who missed the
// first, and was never right. Therefore a bucket is held after a route came or went: other routes may change in it that
// have no address in common with that one, the same one may, but nothing else until all readers are younger. A change
// that has to wait is made in a list elsewhere: one store of the head leads there, and the bucket's words stay as they
// are. The list is brought back once the grace period is over and it fits: the words first, which nobody reads, then
// the head.
#include "fib/trie_writer.h"

namespace splitplane {

TrieWriter::TrieWriter(RouteStore& store, sp_arrays& arrays, BlockArena& arena, BlockArena& buckets,
                       GracePeriods& grace)
    : store_(store), arrays_(arrays), arena_(arena), buckets_(buckets),
      waiting_(grace, [this](const Waiting& waiting) { passed_.push_back(waiting); }) {}

bool TrieWriter::Held::allows(const BucketEdit& edit) const {
    return !edit.changes_head() &&
           std::none_of(keys.begin(), keys.begin() + known, [&](uint32_t key) { return nested(key, edit.key); });
}

void TrieWriter::Held::add(uint32_t key) {
    if (std::find(keys.begin(), keys.begin() + known, key) != keys.begin() + known) {
        return;
    }
    if (known == keys.size()) {
        known = 0;
        key = kEveryKey;
    }
    keys[known++] = key;
}

// The list at a word of the root, as one that asks for the bits that the root does not take.
ListContent TrieWriter::root_list(const TrieTable& table, uint32_t slot) const {
    const sp_u32* word = arrays_.words + table.index(slot);
    if (!is_here(*word)) {
        return {arrays_.words + block_index(*word), is_wide(*word)};
    }
    ListContent content(word, false);
    uint32_t bits = table.bits - table.taken();
    content.put_before(slot & ((1u << bits) - 1), bits);
    return content;
}

// The word of the root for such a list, which has no more than table.most() routes.
uint32_t TrieWriter::put_root_list(const TrieTable& table, uint32_t slot, const ListContent& content,
                                   uint32_t old_word, bool everything) {
    uint32_t index = table.index(slot);
    if (table.buckets) {
        ListContent rest = content;
        uint32_t bits = table.bits - table.taken();
        rest.keep(slot & ((1u << bits) - 1), bits, bits);
        if (uint32_t word = put_bucket(index, rest, everything); word != 0) {
            return word;
        }
        if (is_here(old_word)) {
            moved_.push_back({index, kEveryKey});
        }
    }
    return content.count > 0 ? put_list(content, old_word) : content.background;
}

// The head of a bucket that will have a list; 0: that does not fit, or not now.
uint32_t TrieWriter::put_bucket(uint32_t index, const ListContent& content, bool everything) {
    sp_u32* now = arrays_.words + index;
    BucketImage image;
    if (everything) {
        if (!compose(content, image)) {
            return 0;
        }
        std::copy(image.begin() + 1, image.end(), now + 1);
        in_buckets_ += content.count;
        return image[0];
    }
    auto held = held_.find(index);
    if (!is_here(*now)) {
        if (held != held_.end() || !compose(content, image)) {
            return 0;
        }
        for (uint32_t at = 1; at < image.size(); ++at) {
            plan(index + at, 1, image[at]);
        }
        return image[0];
    }
    BucketEdit edit;
    if (!edit.plan(now, content) || (held != held_.end() && edit.count > 0 && !held->second.allows(edit))) {
        return 0;
    }
    for (uint32_t at = 0; at < edit.count; ++at) {
        plan(index + edit.stores[at].at, 1, edit.stores[at].value);
    }
    if (edit.moves) {
        moved_.push_back({index, edit.key});
    }
    return edit.changes_head() ? edit.stores[0].value : *now;
}

// The stores were made.
void TrieWriter::hold_moved(const sp_u64& root) {
    for (const Moved& moved : moved_) {
        Held& held = held_[moved.index];
        ++held.count;
        held.add(moved.key);
        waiting_.retire({moved.index, &root, root});
    }
}

void TrieWriter::bring_back() {
    waiting_.pump();
    for (const Waiting& waiting : passed_) {
        auto held = held_.find(waiting.index);
        if (--held->second.count == 0) {
            held_.erase(held);
            bring_back(waiting);
        }
    }
    passed_.clear();
}

void TrieWriter::bring_back(const Waiting& waiting) {
    sp_u32* now = arrays_.words + waiting.index;
    if (*waiting.root != waiting.value || !is_list(*now)) {
        return;
    }
    uint32_t bits = sp_trie_root_bits(waiting.value) - sp_trie_root_taken(waiting.value);
    uint32_t slot = waiting.index / SP_BUCKET_WORDS - sp_trie_root_base(waiting.value), old_word = *now;
    ListContent content(arrays_.words + block_index(old_word), is_wide(old_word));
    content.keep(slot & ((1u << bits) - 1), bits, bits);
    BucketImage image;
    if (!compose(content, image)) {
        return;
    }
    std::copy(image.begin() + 1, image.end(), now + 1);
    __atomic_store_n(now, image[0], __ATOMIC_RELEASE);
    arena_.retire(old_word & SP_TRIE_UNIT, list_units(arrays_.words + block_index(old_word), is_wide(old_word)));
}

void TrieWriter::settle() {
    waiting_.settle();
    bring_back();
}

}  // namespace splitplane
