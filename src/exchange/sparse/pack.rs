//! Packs the gradients of the bags that an owner knows of, a vector each.

use super::super::gradients::Stream;
use crate::base::RankId;
use crate::exchange::layout::Layout;
use crate::exchange::{Ids, Pass, Route};
use crate::simd::Isa;
use crate::sync::{Line, Stores};

/// Packs some lines, from line `first` on, of the message to an owner from the rank that `ids` are of; `gradient` is
/// that of its features.
pub(in crate::exchange) fn pack(
    (isa, stores): (Isa, Stores),
    layout: &Layout,
    ids: &Ids,
    owner: RankId,
    gradient: &[f32],
    first: usize,
    to: &mut [Line],
) {
    let (mut at, end) = (first * Line::FLOATS, (first + to.len()) * Line::FLOATS);
    let blocks = ids.blocks(Route { owner, asking: ids.rank() }, Pass::Backward).expect("messages have some bags only");
    let mut stream = Stream::new(isa, stores, to);
    for group in &layout.of(owner).groups {
        // Its own message has shards of divided rows alone.
        if group.shards.start >= blocks.shards() {
            break;
        }
        for (place, shard) in group.shards.clone().enumerate() {
            let vectors = blocks.range(&(shard..shard + 1));
            let numbers = ids.list(owner, group.streams[place], Pass::Backward);
            while at < end.min(vectors.end) {
                let (bag, skipped) = ((at - vectors.start) / group.width, (at - vectors.start) % group.width);
                let (number, count) = (numbers[bag] as usize, (group.width - skipped).min(end - at));
                let (sample, position) = (number / group.positions, number % group.positions);
                let start = sample * layout.feature_row() + group.in_features[place] + position * group.step + skipped;
                stream.put(&gradient[start..start + count]);
                at += count;
            }
        }
    }
    // As much as fills up the last line of what travels.
    const NONE: [f32; Line::FLOATS] = [0.0; Line::FLOATS];
    while at < end {
        let count = (end - at).min(Line::FLOATS);
        stream.put(&NONE[..count]);
        at += count;
    }
    stream.flush();
}
